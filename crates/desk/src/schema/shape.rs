//! How the parts of a schema hang together: which parts look at the same value and which at a part of it. From that
//! follows what a check can cost.
//!
//! The validator remembers what it found where a schema refers to itself, so recursion is cheap. What is not is a part
//! that is referred to twice by a part that is referred to twice, and so on: that is counted here.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{Malformed, cut};

/// How many steps a schema may take on one value, references followed.
const STEPS_MAX: usize = 100_000;

/// How many schemas may apply to one value through each other: `$ref` to `allOf` to `$ref` and so on.
const CHAIN_MAX: usize = 24;

/// How much the patterns of a schema may weigh together; each takes memory once it is compiled.
const PATTERNS_WEIGHT_MAX: usize = 128;

/// What a schema inside another one is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// It looks at the same value.
    Same,
    /// It looks at the property of this name.
    Property,
    /// It looks at some or all parts of the value.
    Parts,
    /// It is only there to be referred to.
    Aside,
}

/// A schema inside another one.
#[derive(Clone, Copy, Debug)]
pub struct Inner<'a> {
    /// What it is for.
    pub reach: Reach,
    /// The name that it stands under, if its keyword holds several by name.
    pub name: Option<&'a str>,
    /// The schema.
    pub schema: &'a Value,
}

/// The schemas directly inside a schema, in every keyword that holds some.
pub fn inner(schema: &Value) -> Vec<Inner<'_>> {
    let mut found = Vec::new();
    for (keyword, value) in schema.as_object().into_iter().flatten() {
        let reach = match keyword.as_str() {
            "allOf" | "anyOf" | "oneOf" | "not" | "if" | "then" | "else" | "dependentSchemas"
            | "dependencies" => Reach::Same,
            "properties" => Reach::Property,
            "patternProperties"
            | "additionalProperties"
            | "propertyNames"
            | "unevaluatedProperties"
            | "prefixItems"
            | "items"
            | "additionalItems"
            | "contains"
            | "unevaluatedItems"
            | "contentSchema" => Reach::Parts,
            "$defs" | "definitions" => Reach::Aside,
            _ => continue,
        };
        match (keyword.as_str(), value) {
            (
                "properties" | "patternProperties" | "dependentSchemas" | "dependencies" | "$defs"
                | "definitions",
                Value::Object(entries),
            ) => found.extend(entries.iter().map(|(name, schema)| Inner {
                reach,
                name: Some(name.as_str()),
                schema,
            })),
            (_, Value::Array(items)) => {
                found.extend(items.iter().map(|schema| Inner { reach, name: None, schema }));
            }
            (_, schema) => found.push(Inner { reach, name: None, schema }),
        }
    }
    found.retain(|inner| matches!(inner.schema, Value::Object(_) | Value::Bool(_)));
    found
}

/// One schema of the whole, and those that it leads to, by their numbers.
#[derive(Debug, Default)]
struct Node {
    same: Vec<usize>,
    properties: BTreeMap<Box<str>, usize>,
    parts: Vec<usize>,
    /// Whether it asks what the others looked at: they are then gone through again.
    unevaluated: bool,
    /// What its pattern for text weighs, and what those for the names of properties do.
    text_weight: usize,
    name_weight: usize,
}

impl Node {
    /// A node that leads nowhere yet.
    fn weighed(schema: &Value, weigh: impl Fn(&str) -> Result<usize, Malformed>) -> Result<Node, Malformed> {
        let mut node = Node {
            unevaluated: ["unevaluatedProperties", "unevaluatedItems"]
                .iter()
                .any(|name| schema.get(name).is_some()),
            ..Node::default()
        };
        if let Some(Value::String(pattern)) = schema.get("pattern") {
            node.text_weight = weigh(pattern)?;
        }
        for pattern in
            schema.get("patternProperties").and_then(Value::as_object).into_iter().flat_map(Map::keys)
        {
            node.name_weight += weigh(pattern)?;
            if node.name_weight > PATTERNS_WEIGHT_MAX {
                break;
            }
        }
        Ok(node)
    }

    fn within(&self) -> impl Iterator<Item = usize> + '_ {
        self.properties.values().chain(&self.parts).copied()
    }
}

/// All schemas that a schema leads to; the first is the whole.
#[derive(Debug)]
pub struct Shape {
    nodes: Vec<Node>,
    steps: usize,
    /// What the patterns weigh that one value can meet.
    weight: usize,
}

/// What is gone through if every alternative is followed to its end.
struct Walk {
    /// How many more visits there may be.
    left: usize,
    /// The bytes that patterns are put to, times what those weigh.
    matched: usize,
}

impl Shape {
    /// The shape of a schema, if it is one that can be checked in bounded time. A pattern weighs what `weigh` says.
    pub fn of(schema: &Value, weigh: impl Fn(&str) -> Result<usize, Malformed>) -> Result<Shape, Malformed> {
        let names = Names::of(schema)?;
        let mut shape = Shape { nodes: Vec::new(), steps: 0, weight: 0 };
        shape.gather(schema, &names, weigh)?;
        shape.chains()?;
        shape.steps = shape.count(|_| 1);
        shape.weight = shape.count(|node| node.text_weight + node.name_weight);
        if shape.steps > STEPS_MAX {
            return Err(Malformed::new(format!(
                "expected a schema that takes at most {STEPS_MAX} steps with its references followed, found one \
                 that takes more"
            )));
        }
        Ok(shape)
    }

    /// How many steps the schema takes on one value at most.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// What the patterns weigh that one value can meet.
    pub fn weight(&self) -> usize {
        self.weight
    }

    /// How often some schema looks at some part of the value if every alternative is followed to its end; none if that
    /// is more than `max`.
    pub fn visits(&self, value: &Value, max: usize) -> Option<usize> {
        let mut walk = Walk { left: max, matched: 0 };
        self.visit(0, value, &mut walk)?;
        Some(max - walk.left)
    }

    /// The bytes of the value that patterns are put to, times what those weigh; none if finding out takes more than
    /// `max` visits.
    pub fn matched(&self, value: &Value, max: usize) -> Option<usize> {
        let mut walk = Walk { left: max, matched: 0 };
        self.visit(0, value, &mut walk)?;
        Some(walk.matched)
    }

    fn visit(&self, node: usize, value: &Value, walk: &mut Walk) -> Option<()> {
        walk.left = walk.left.checked_sub(1)?;
        let node = &self.nodes[node];
        for &other in &node.same {
            self.visit(other, value, walk)?;
        }
        match value {
            Value::Object(entries) => {
                for (name, part) in entries {
                    walk.put(name, node.name_weight);
                    let property = node.properties.get(name.as_str()).copied();
                    for other in property.into_iter().chain(node.parts.iter().copied()) {
                        self.visit(other, part, walk)?;
                    }
                }
            }
            Value::Array(items) => {
                for (&other, part) in
                    node.parts.iter().flat_map(|node| items.iter().map(move |part| (node, part)))
                {
                    self.visit(other, part, walk)?;
                }
            }
            Value::String(text) => walk.put(text, node.text_weight),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
        Some(())
    }

    /// Number every schema that the whole leads to.
    fn gather<'a>(
        &mut self,
        root: &'a Value,
        names: &Names<'a>,
        weigh: impl Fn(&str) -> Result<usize, Malformed>,
    ) -> Result<(), Malformed> {
        let mut weight = 0;
        let mut numbers = BTreeMap::from([(address(root), 0)]);
        let mut found = vec![root];
        let mut number = |schema: &'a Value, found: &mut Vec<&'a Value>| {
            *numbers.entry(address(schema)).or_insert_with(|| {
                found.push(schema);
                found.len() - 1
            })
        };
        while let Some(&schema) = found.get(self.nodes.len()) {
            names.no_other_id(schema)?;
            let mut node = Node::weighed(schema, &weigh)?;
            weight += node.text_weight + node.name_weight;
            if weight > PATTERNS_WEIGHT_MAX {
                return Err(Malformed::new("expected fewer or smaller patterns in a schema, found too many"));
            }
            for inner in inner(schema) {
                match (inner.reach, inner.name) {
                    (Reach::Same, _) => node.same.push(number(inner.schema, &mut found)),
                    (Reach::Property, Some(name)) => {
                        node.properties.insert(name.into(), number(inner.schema, &mut found));
                    }
                    (Reach::Property, None) | (Reach::Parts, _) => {
                        node.parts.push(number(inner.schema, &mut found));
                    }
                    (Reach::Aside, _) => {}
                }
            }
            for keyword in ["$ref", "$dynamicRef"] {
                if let Some(Value::String(reference)) = schema.get(keyword) {
                    node.same.push(number(names.resolve(reference)?, &mut found));
                }
            }
            self.nodes.push(node);
        }
        for (node, schema) in self.nodes.iter_mut().zip(&found) {
            // Names that have to match a schema may meet any pattern.
            if schema.get("propertyNames").is_some() {
                node.name_weight = weight;
            }
        }
        Ok(())
    }

    /// See that no schema leads to itself on the same value, and that there are not too many on one.
    fn chains(&self) -> Result<(), Malformed> {
        let mut heights = vec![None; self.nodes.len()];
        let mut path = Vec::new();
        for node in 0..self.nodes.len() {
            self.height(node, &mut heights, &mut path)?;
        }
        Ok(())
    }

    fn height(
        &self,
        node: usize,
        heights: &mut [Option<usize>],
        path: &mut Vec<usize>,
    ) -> Result<usize, Malformed> {
        if let Some(height) = heights[node] {
            return Ok(height);
        }
        if path.contains(&node) {
            let what =
                "expected references that lead into the value, found one that leads back to its own schema";
            return Err(Malformed::new(what));
        }
        path.push(node);
        let mut highest = 0;
        for &other in &self.nodes[node].same {
            // The recursion ends here too: a path that is too long is an error.
            if path.len() <= CHAIN_MAX {
                highest = highest.max(self.height(other, heights, path)?);
            } else {
                highest = CHAIN_MAX;
            }
        }
        path.pop();
        if highest >= CHAIN_MAX {
            return Err(Malformed::new(format!(
                "expected at most {CHAIN_MAX} schemas that apply to one value through each other, found more"
            )));
        }
        heights[node] = Some(highest + 1);
        Ok(highest + 1)
    }

    /// What the whole comes to, every reference followed, except back to where it came from.
    fn count(&self, own: impl Fn(&Node) -> usize) -> usize {
        let mut counts = vec![0_usize; self.nodes.len()];
        let mut begun = vec![false; self.nodes.len()];
        let mut left = vec![(0, false)];
        while let Some((number, ready)) = left.pop() {
            let node = &self.nodes[number];
            if ready {
                let sum = |all: &mut dyn Iterator<Item = usize>| {
                    all.fold(0, |sum: usize, other| sum.saturating_add(counts[other]))
                };
                let same = sum(&mut node.same.iter().copied());
                let same = if node.unevaluated { same.saturating_mul(3) } else { same };
                counts[number] = same.saturating_add(sum(&mut node.within())).saturating_add(own(node));
            } else if !begun[number] {
                begun[number] = true;
                left.push((number, true));
                left.extend(node.same.iter().copied().chain(node.within()).map(|other| (other, false)));
            }
        }
        counts[0]
    }
}

impl Walk {
    fn put(&mut self, text: &str, weight: usize) {
        self.matched = self.matched.saturating_add(text.len().saturating_mul(weight));
    }
}

/// What the references of a schema can name.
struct Names<'a> {
    root: &'a Value,
    id: Option<&'a str>,
    anchors: BTreeMap<&'a str, &'a Value>,
}

impl<'a> Names<'a> {
    fn of(root: &'a Value) -> Result<Names<'a>, Malformed> {
        let id = root.get("$id").and_then(Value::as_str).map(|id| id.trim_end_matches('#'));
        let mut names = Names { root, id: id.filter(|id| !id.is_empty()), anchors: BTreeMap::new() };
        let mut left = vec![root];
        while let Some(schema) = left.pop() {
            left.extend(inner(schema).iter().map(|inner| inner.schema));
            let Some(entries) = schema.as_object() else { continue };
            names.no_other_id(schema)?;
            for keyword in ["$anchor", "$dynamicAnchor"] {
                if let Some(Value::String(name)) = entries.get(keyword)
                    && names.anchors.insert(name, schema).is_some_and(|other| !std::ptr::eq(other, schema))
                {
                    let name = cut(name);
                    return Err(Malformed::new(format!("expected each anchor once, found {name:?} twice")));
                }
            }
        }
        Ok(names)
    }

    /// An `$id` below the top would give the references around it another meaning.
    fn no_other_id(&self, schema: &Value) -> Result<(), Malformed> {
        if schema.get("$id").is_some() && !std::ptr::eq(schema, self.root) {
            return Err(Malformed::new("expected $id at the top of the schema only, found one below it"));
        }
        Ok(())
    }

    /// What is there under a pointer, in any keyword.
    fn pointed(&self, pointer: &str) -> Result<Option<&'a Value>, Malformed> {
        for (end, _) in pointer.match_indices('/').skip(1) {
            if let Some(above) = self.root.pointer(&pointer[..end]) {
                self.no_other_id(above)?;
            }
        }
        let found = self.root.pointer(pointer);
        found.map_or(Ok(()), |found| self.no_other_id(found))?;
        Ok(found)
    }

    /// The schema that a reference leads to. Nothing is ever fetched.
    fn resolve(&self, reference: &str) -> Result<&'a Value, Malformed> {
        let (base, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        if !base.is_empty() && Some(base) != self.id {
            return Err(Malformed::new(format!(
                "expected a $ref into the same schema, such as \"#/$defs/name\", found {:?}",
                cut(reference)
            )));
        }
        let found = match decoded(fragment).as_deref() {
            Some("") => Some(self.root),
            Some(pointer) if pointer.starts_with('/') => self.pointed(pointer)?,
            Some(anchor) => self.anchors.get(anchor).copied(),
            None => None,
        };
        found.filter(|found| matches!(found, Value::Object(_) | Value::Bool(_))).ok_or_else(|| {
            let reference = cut(reference);
            Malformed::new(format!("expected a $ref to a schema that is there, found {reference:?}"))
        })
    }
}

/// A fragment without its percent signs.
fn decoded(fragment: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(fragment.len());
    let mut parts = fragment.split('%');
    bytes.extend(parts.next().unwrap_or_default().bytes());
    for part in parts {
        bytes.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
        bytes.extend(part.get(2..)?.bytes());
    }
    String::from_utf8(bytes).ok()
}

/// What tells one part of a parsed schema from another.
fn address(schema: &Value) -> usize {
    std::ptr::from_ref(schema).addr()
}
