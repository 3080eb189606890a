//! The arguments of a skill that an MCP client repeats in headers of HTTP, so that those between can read them:
//! properties with the remark `x-mcp-header` (MCP Streamable HTTP, SEP-2243).

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::schema::shape::{self, Reach};

/// The remark.
const REMARK: &str = "x-mcp-header";

/// How long the name of a header may be.
const NAME_BYTES_MAX: usize = 64;

/// How many arguments may be repeated in headers.
const HEADERS_MAX: usize = 64;

/// An argument that is repeated in a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// What follows `Mcp-Param-` in the name of the header.
    pub name: String,
    /// The names of the properties that lead to the argument, outermost first.
    pub path: Vec<String>,
    /// What the argument is.
    pub kind: Kind,
}

/// What an argument in a header can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Text.
    String,
    /// A number.
    Number,
    /// A number without a fraction.
    Integer,
    /// True or false.
    Boolean,
}

impl Header {
    /// The argument among those of a call; none if it was left out or is null.
    pub fn argument<'a>(&self, arguments: &'a Map<String, Value>) -> Option<&'a Value> {
        let (first, rest) = self.path.split_first()?;
        let found = rest.iter().try_fold(arguments.get(first)?, |value, name| value.get(name))?;
        (!found.is_null()).then_some(found)
    }
}

/// The headers that an input schema asks for, in the order of their paths.
pub fn of(schema: &Value) -> Result<Vec<Header>, String> {
    let mut found = Vec::new();
    // The top of a schema is no property.
    walk(schema, Some(&mut Vec::new()), &mut found)?;
    let mut names = BTreeSet::new();
    for header in &found {
        if !names.insert(header.name.to_ascii_lowercase()) {
            return Err(format!("{REMARK}: expected each name once, found {:?} twice", header.name));
        }
    }
    found.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(found)
}

/// `path` is there as long as only properties led here. The schema's nesting is bounded, so the recursion is too.
fn walk<'a>(
    schema: &'a Value,
    mut path: Option<&mut Vec<&'a str>>,
    found: &mut Vec<Header>,
) -> Result<(), String> {
    if let Some(remark) = schema.get(REMARK) {
        let path = path.as_deref().filter(|path| !path.is_empty());
        let path = path.ok_or_else(|| {
            format!("{REMARK}: expected on properties of objects that are properties, found elsewhere")
        })?;
        found.push(header(schema, remark, path)?);
        if found.len() > HEADERS_MAX {
            return Err(format!("{REMARK}: expected on at most {HEADERS_MAX} properties, found on more"));
        }
    }
    for inner in shape::inner(schema) {
        match (inner.reach, inner.name, path.as_deref_mut()) {
            (Reach::Property, Some(name), Some(path)) => {
                path.push(name);
                walk(inner.schema, Some(path), found)?;
                path.pop();
            }
            _ => walk(inner.schema, None, found)?,
        }
    }
    Ok(())
}

fn header(schema: &Value, remark: &Value, path: &[&str]) -> Result<Header, String> {
    let property = path.join(".");
    let name = remark.as_str().filter(|name| is_token(name)).ok_or_else(|| {
        format!("{REMARK} of {property:?}: expected 1 to {NAME_BYTES_MAX} letters, digits or signs of a header's name")
    })?;
    let kind = match schema.get("type").and_then(Value::as_str) {
        Some("string") => Kind::String,
        Some("number") => Kind::Number,
        Some("integer") => Kind::Integer,
        Some("boolean") => Kind::Boolean,
        _ => {
            return Err(format!(
                "{REMARK} of {property:?}: expected the type string, number, integer or boolean, found another"
            ));
        }
    };
    Ok(Header { name: name.to_owned(), path: path.iter().map(|name| (*name).to_owned()).collect(), kind })
}

/// RFC 9110 section 5.6.2.
fn is_token(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn properties_of_properties_can_be_in_headers() {
        let found = of(&json!({"type": "object", "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "limits": {"type": "object", "properties": {"cpu": {"type": "integer", "x-mcp-header": "Cpu"}}},
            "x-mcp-header": {"type": "string"},
            "other": {"const": {"x-mcp-header": "Data"}},
        }}))
        .unwrap();
        let shown: Vec<_> = found.iter().map(|h| (h.name.as_str(), h.path.join("."), h.kind)).collect();
        let cpu = ("Cpu", "limits.cpu".to_owned(), Kind::Integer);
        assert_eq!(shown, [cpu, ("Region", "region".to_owned(), Kind::String)]);
        let arguments = json!({"region": null, "limits": {"cpu": 4}});
        let arguments = arguments.as_object().unwrap();
        assert_eq!(found[0].argument(arguments), Some(&json!(4)));
        assert_eq!(found[1].argument(arguments), None);
        assert_eq!(found[0].argument(json!({"limits": 1}).as_object().unwrap()), None);
    }

    #[test]
    fn a_remark_that_no_header_can_keep_is_refused() {
        let property = |schema: Value| json!({"type": "object", "properties": {"p": schema}});
        let region = json!({"type": "string", "x-mcp-header": "Region"});
        for wrong in [
            property(json!({"type": "string", "x-mcp-header": ""})),
            property(json!({"type": "string", "x-mcp-header": "a b"})),
            property(json!({"type": "string", "x-mcp-header": "ä"})),
            property(json!({"type": "string", "x-mcp-header": "a:\r\n"})),
            property(json!({"type": "string", "x-mcp-header": 1})),
            property(json!({"type": "array", "x-mcp-header": "A"})),
            property(json!({"type": ["string", "null"], "x-mcp-header": "A"})),
            property(json!({"x-mcp-header": "A"})),
            property(json!({"type": "array", "items": region})),
            property(json!({"anyOf": [region]})),
            property(json!({"type": "object", "additionalProperties": region})),
            json!({"type": "object", "x-mcp-header": "A"}),
            json!({"type": "object", "$defs": {"r": region}, "properties": {"p": {"$ref": "#/$defs/r"}}}),
            json!({"type": "object", "allOf": [property(region.clone())]}),
            json!({"type": "object", "properties": {"p": region, "q": {"type": "number", "x-mcp-header": "rEGION"}}}),
        ] {
            of(&wrong).expect_err(&wrong.to_string());
        }
    }
}
