//! How the parts of a schema hang together: which parts look at the same value and which at a part of it. From that
//! follows what a check can cost, and schemas whose cost multiplies are refused before they are used.
//!
//! The validator remembers what it found where a schema refers to itself, so recursion is cheap. What is not is a part
//! that is referred to twice by a part that is referred to twice, and so on: that is counted here. What a check really
//! takes is counted by [`super::meter`] while it runs.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::meter::Rates;
use super::pattern::Weight;
use super::{Malformed, cut};

/// How many schemas a schema may come to, references followed.
const STEPS_MAX: usize = 100_000;

/// How many of them may look at one and the same value.
const ON_ONE_VALUE_MAX: usize = 10_000;

/// How many schemas may apply to one value through each other: `$ref` to `allOf` to `$ref` and so on.
const CHAIN_MAX: usize = 24;

/// How many patterns a schema may have, and how large they may be together once they are compiled.
const PATTERNS_MAX: usize = 128;
const PATTERNS_BYTES_MAX: usize = 2 * 1024 * 1024;

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
    /// The keyword that holds it.
    pub keyword: &'static str,
    /// The name that it stands under, if its keyword holds several by name.
    pub name: Option<&'a str>,
    /// The schema.
    pub schema: &'a Value,
}

/// Every keyword that holds schemas, and what they are for.
const HOLDING: [(&str, Reach); 22] = [
    ("allOf", Reach::Same),
    ("anyOf", Reach::Same),
    ("oneOf", Reach::Same),
    ("not", Reach::Same),
    ("if", Reach::Same),
    ("then", Reach::Same),
    ("else", Reach::Same),
    ("dependentSchemas", Reach::Same),
    ("dependencies", Reach::Same),
    ("properties", Reach::Property),
    ("patternProperties", Reach::Parts),
    ("additionalProperties", Reach::Parts),
    ("propertyNames", Reach::Parts),
    ("unevaluatedProperties", Reach::Parts),
    ("prefixItems", Reach::Parts),
    ("items", Reach::Parts),
    ("additionalItems", Reach::Parts),
    ("contains", Reach::Parts),
    ("unevaluatedItems", Reach::Parts),
    ("contentSchema", Reach::Parts),
    ("$defs", Reach::Aside),
    ("definitions", Reach::Aside),
];

/// The schemas directly inside a schema, in every keyword that holds some.
pub fn inner(schema: &Value) -> Vec<Inner<'_>> {
    let mut found = Vec::new();
    for (keyword, value) in schema.as_object().into_iter().flatten() {
        let Some(&(keyword, reach)) = HOLDING.iter().find(|(name, _)| name == keyword) else { continue };
        match (keyword, value) {
            (
                "properties" | "patternProperties" | "dependentSchemas" | "dependencies" | "$defs"
                | "definitions",
                Value::Object(entries),
            ) => found.extend(entries.iter().map(|(name, schema)| Inner {
                reach,
                keyword,
                name: Some(name.as_str()),
                schema,
            })),
            (_, Value::Array(items)) => {
                found.extend(items.iter().map(|schema| Inner { reach, keyword, name: None, schema }));
            }
            (_, schema) => found.push(Inner { reach, keyword, name: None, schema }),
        }
    }
    found.retain(|inner| matches!(inner.schema, Value::Object(_) | Value::Bool(_)));
    found
}

/// One schema of the whole, and those that it leads to, by their numbers.
#[derive(Debug, Default)]
struct Node {
    same: Vec<Edge>,
    parts: Vec<Edge>,
    /// Those of the parts that are gone through again to learn what was looked at.
    again: Vec<usize>,
    /// Whether it asks what the others looked at: they are then gone through again.
    asks: bool,
    /// Whether it looks at the value itself, however little there is to see.
    looks: bool,
    /// The steps of its patterns for each byte of a property's name.
    name_weight: u64,
    patterns: Patterns,
}

/// How many patterns there are, and how large they are together.
#[derive(Clone, Copy, Debug, Default)]
struct Patterns {
    count: usize,
    bytes: usize,
}

impl Patterns {
    fn add(&mut self, other: Patterns) {
        self.count += other.count;
        self.bytes += other.bytes;
    }

    fn are_too_many(self) -> bool {
        self.count > PATTERNS_MAX || self.bytes > PATTERNS_BYTES_MAX
    }
}

/// A way from one schema to another.
#[derive(Clone, Copy, Debug)]
struct Edge {
    keyword: &'static str,
    to: usize,
}

impl Node {
    /// A node that leads nowhere yet.
    fn weighed(schema: &Value, weigh: impl Fn(&str) -> Result<Weight, Malformed>) -> Result<Node, Malformed> {
        let is_there = |name: &&str| schema.get(*name).is_some();
        let holds_some = |name: &&str| match schema.get(*name) {
            Some(Value::Array(items)) => !items.is_empty(),
            Some(Value::Object(entries)) => !entries.is_empty(),
            _ => false,
        };
        let mut node = Node {
            asks: ["unevaluatedProperties", "unevaluatedItems"].iter().any(is_there),
            looks: ["type", "const", "enum", "minimum", "maximum"].iter().any(is_there)
                || ["required", "properties", "prefixItems"].iter().any(holds_some),
            ..Node::default()
        };
        if let Some(Value::String(pattern)) = schema.get("pattern") {
            node.patterns.add(Patterns { count: 1, bytes: weigh(pattern)?.bytes });
        }
        for pattern in
            schema.get("patternProperties").and_then(Value::as_object).into_iter().flat_map(Map::keys)
        {
            let Weight { bytes, per_byte } = weigh(pattern)?;
            node.name_weight += per_byte;
            node.patterns.add(Patterns { count: 1, bytes });
            if node.patterns.are_too_many() {
                break;
            }
        }
        Ok(node)
    }

    fn within(&self) -> impl Iterator<Item = Edge> + '_ {
        self.same.iter().chain(&self.parts).copied()
    }
}

/// What it takes to go through a schema with every reference followed, except back to where it came from.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    /// To see whether a value matches.
    check: usize,
    /// To learn what of a value was looked at.
    ask: usize,
}

/// What a check against a schema can cost.
#[derive(Debug)]
pub struct Shape {
    rates: Rates,
    patterns: Patterns,
}

impl Shape {
    /// The shape of a schema, if it is one that can be checked in bounded time. A pattern weighs what `weigh` says.
    pub fn of(schema: &Value, weigh: impl Fn(&str) -> Result<Weight, Malformed>) -> Result<Shape, Malformed> {
        let names = Names::of(schema)?;
        let graph = Graph::of(schema, &names, weigh)?;
        graph.chains()?;
        let _ = graph.most(ON_ONE_VALUE_MAX, "apply to one value", |_| 1, false)?;
        let _ = graph.most(STEPS_MAX, "are gone through", |_| 1, true)?;
        let unseen = |node: &Node| usize::from(!node.looks);
        let unseen = graph.most(ON_ONE_VALUE_MAX, "apply to one value", unseen, false)?;
        let rates =
            Rates { part: unseen as u64, name_byte: graph.nodes.iter().map(|node| node.name_weight).sum() };
        Ok(Shape { rates, patterns: graph.patterns })
    }

    /// How many patterns there are.
    pub fn patterns(&self) -> usize {
        self.patterns.count
    }

    /// How large the patterns are together, once they are compiled.
    pub fn pattern_bytes(&self) -> usize {
        self.patterns.bytes
    }

    /// What looking at a value costs in a check against the schema.
    pub fn rates(&self) -> Rates {
        self.rates
    }
}

/// How many schemas look at one value at most.
#[cfg(test)]
pub(super) fn on_one_value(schema: &Value) -> u64 {
    let weigh = |_: &str| Ok(Weight::default());
    let names = Names::of(schema).expect("a schema that can be used");
    let graph = Graph::of(schema, &names, weigh).expect("a schema that can be used");
    graph.most(usize::MAX, "", |_| 1, false).expect("no bound") as u64
}

/// All schemas that a schema leads to; the first is the whole.
struct Graph<'a> {
    nodes: Vec<Node>,
    schemas: Vec<&'a Value>,
    patterns: Patterns,
}

impl<'a> Graph<'a> {
    /// Number every schema that the whole leads to.
    fn of(
        root: &'a Value,
        names: &Names<'a>,
        weigh: impl Fn(&str) -> Result<Weight, Malformed>,
    ) -> Result<Graph<'a>, Malformed> {
        let patterns = Patterns::default();
        let mut numbers = BTreeMap::from([(address(root), 0)]);
        let mut graph = Graph { nodes: Vec::new(), schemas: vec![root], patterns };
        let mut number = |schema: &'a Value, found: &mut Vec<&'a Value>| {
            *numbers.entry(address(schema)).or_insert_with(|| {
                found.push(schema);
                found.len() - 1
            })
        };
        while let Some(&schema) = graph.schemas.get(graph.nodes.len()) {
            names.no_other_id(schema)?;
            let mut node = Node::weighed(schema, &weigh)?;
            graph.patterns.add(node.patterns);
            if graph.patterns.are_too_many() {
                return Err(Malformed::costly(format!(
                    "{}: expected at most {PATTERNS_MAX} patterns of {PATTERNS_BYTES_MAX} bytes together in a \
                     schema, found more: leave out pattern or \
                     patternProperties here, or write shorter ones without large repetitions",
                    graph.place(graph.nodes.len())
                )));
            }
            for Inner { reach, keyword, schema, .. } in inner(schema) {
                if reach == Reach::Aside {
                    continue;
                }
                let to = number(schema, &mut graph.schemas);
                let edge = Edge { keyword, to };
                if reach == Reach::Same {
                    node.same.push(edge)
                } else {
                    node.parts.push(edge)
                }
                if ["unevaluatedProperties", "unevaluatedItems", "contains"].contains(&keyword) {
                    node.again.push(to);
                }
            }
            for keyword in ["$ref", "$dynamicRef"] {
                if let Some(Value::String(reference)) = schema.get(keyword) {
                    let to = number(names.resolve(reference)?, &mut graph.schemas);
                    node.same.push(Edge { keyword, to });
                }
            }
            graph.nodes.push(node);
        }
        Ok(graph)
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
            return Err(Malformed::costly(format!(
                "{}: expected references that lead into the value, found one that leads back to its own schema: put \
                 the $ref under properties or items",
                self.place(node)
            )));
        }
        path.push(node);
        let mut highest = 0;
        for edge in &self.nodes[node].same {
            // The recursion ends here too: a path that is too long is an error.
            if path.len() <= CHAIN_MAX {
                highest = highest.max(self.height(edge.to, heights, path)?);
            } else {
                highest = CHAIN_MAX;
            }
        }
        path.pop();
        if highest >= CHAIN_MAX {
            return Err(Malformed::costly(format!(
                "{}: expected at most {CHAIN_MAX} schemas that apply to one value through each other, found more: \
                 write what they say into one schema",
                self.place(node)
            )));
        }
        heights[node] = Some(highest + 1);
        Ok(highest + 1)
    }

    /// The most that a schema of the graph comes to if each counts `own`, and those for parts of the value count where
    /// `into_parts` says so. The validator does not remember what it found, except where a schema is recursive; what an
    /// `unevaluatedProperties` asks about is gone through again, and so is what it says itself.
    fn most(
        &self,
        max: usize,
        what: &str,
        own: impl Fn(&Node) -> usize,
        into_parts: bool,
    ) -> Result<usize, Malformed> {
        let mut costs = vec![Cost::default(); self.nodes.len()];
        let mut begun = vec![false; self.nodes.len()];
        let mut left: Vec<(usize, bool)> = (0..self.nodes.len()).rev().map(|node| (node, false)).collect();
        while let Some((number, ready)) = left.pop() {
            let node = &self.nodes[number];
            if ready {
                let sum = |all: &mut dyn Iterator<Item = usize>| all.fold(0, usize::saturating_add);
                let checked = sum(&mut node.same.iter().map(|edge| costs[edge.to].check));
                let asked = sum(&mut node.same.iter().map(|edge| costs[edge.to].ask));
                let within =
                    sum(&mut node.parts.iter().filter(|_| into_parts).map(|edge| costs[edge.to].check));
                let again = sum(&mut node.again.iter().filter(|_| into_parts).map(|to| costs[*to].check));
                let ask = checked.saturating_add(asked).saturating_add(again).saturating_add(1);
                let check = checked.saturating_add(within).saturating_add(own(node));
                let check = check.saturating_add(if node.asks { ask } else { 0 });
                if check > max {
                    return Err(self.too_much(number, max, what, |edge| costs[edge.to].check));
                }
                costs[number] = Cost { check, ask };
            } else if !begun[number] {
                begun[number] = true;
                left.push((number, true));
                left.extend(node.same.iter().map(|edge| (edge.to, false)));
                left.extend(node.parts.iter().filter(|_| into_parts).map(|edge| (edge.to, false)));
            }
        }
        Ok(costs.iter().map(|cost| cost.check).max().unwrap_or(0))
    }

    /// Which keyword makes a schema too much, and what to write instead.
    fn too_much(&self, node: usize, max: usize, what: &str, cost: impl Fn(&Edge) -> usize) -> Malformed {
        let most = self.nodes[node].within().max_by_key(cost);
        let (keyword, instead) = match most.map_or("", |edge| edge.keyword) {
            keyword @ ("unevaluatedProperties" | "unevaluatedItems") => (
                keyword,
                "each of these inside another one doubles the work: write additionalProperties or items",
            ),
            keyword @ ("$ref" | "$dynamicRef") => (
                keyword,
                "what it leads to is gone through once for every reference: refer to it from fewer places",
            ),
            keyword => (keyword, "write fewer alternatives, and what they have in common only once"),
        };
        Malformed::costly(format!(
            "{}/{keyword}: expected at most {max} schemas that {what}, references followed, found more: {instead}",
            self.place(node)
        ))
    }

    /// Where a schema is, as a JSON pointer from the top.
    fn place(&self, node: usize) -> String {
        fn search(value: &Value, wanted: usize, path: &mut String) -> bool {
            if address(value) == wanted {
                return true;
            }
            let before = path.len();
            let mut under = |name: &str, value: &Value| {
                path.push('/');
                path.push_str(&name.replace('~', "~0").replace('/', "~1"));
                let found = search(value, wanted, path);
                if !found {
                    path.truncate(before);
                }
                found
            };
            match value {
                Value::Array(items) => {
                    items.iter().enumerate().any(|(index, item)| under(&index.to_string(), item))
                }
                Value::Object(entries) => entries.iter().any(|(name, value)| under(name, value)),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
            }
        }
        let mut path = String::from("#");
        search(self.schemas[0], address(self.schemas[node]), &mut path);
        cut(&path).into_owned()
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
