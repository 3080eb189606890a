//! The arguments that a listed tool wants repeated in headers: properties with the mark `x-mcp-header` (MCP Streamable HTTP,
//! SEP-2243).
//!
//! Whether a schema may have its marks where it has them is for the server to say, when the tool is registered and when it
//! is called. Here a mark that no header can follow is passed over.

use serde_json::Value;

/// The mark.
pub const KEYWORD: &str = "x-mcp-header";

/// An argument that is repeated in a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// What follows `Mcp-Param-` in the name of the header.
    pub name: String,
    /// The names of the properties that lead to the argument, outermost first.
    pub path: Vec<String>,
}

impl Mark {
    /// The argument among those of a call.
    pub fn argument<'a>(&self, arguments: &'a Value) -> Option<&'a Value> {
        self.path.iter().try_fold(arguments, |value, name| value.get(name))
    }
}

/// The marks of an input schema: those on its properties, and on properties of these.
pub fn of(schema: &Value) -> Vec<Mark> {
    let mut found = Vec::new();
    walk(schema, &mut Vec::new(), &mut found);
    found
}

/// JSON that could be parsed is nested no deeper than its parser goes, so the recursion is bounded.
fn walk(schema: &Value, path: &mut Vec<String>, found: &mut Vec<Mark>) {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
    for (property, schema) in properties {
        path.push(property.clone());
        if let Some(name) = schema.get(KEYWORD).and_then(Value::as_str) {
            found.push(Mark { name: name.to_owned(), path: path.clone() });
        }
        walk(schema, path, found);
        path.pop();
    }
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
        }}));
        let mut shown: Vec<_> = found.iter().map(|mark| (mark.name.as_str(), mark.path.join("."))).collect();
        shown.sort_unstable();
        assert_eq!(shown, [("Cpu", "limits.cpu".to_owned()), ("Region", "region".to_owned())]);
        let cpu = Mark { name: "Cpu".to_owned(), path: vec!["limits".to_owned(), "cpu".to_owned()] };
        assert_eq!(cpu.argument(&json!({"limits": {"cpu": 4}})), Some(&json!(4)));
        assert_eq!(cpu.argument(&json!({"limits": 1})), None);
        assert_eq!(cpu.argument(&Value::Null), None);
    }

    #[test]
    fn what_is_no_mark_on_a_property_is_passed_over() {
        let region = json!({"type": "string", "x-mcp-header": "Region"});
        for none in [
            Value::Null,
            json!([region]),
            json!({"type": "object", "x-mcp-header": "A"}),
            json!({"properties": [region]}),
            json!({"properties": {"p": {"type": "string", "x-mcp-header": 1}}}),
            json!({"properties": {"p": {"type": "array", "items": region}}}),
            json!({"$defs": {"r": region}, "properties": {"p": {"$ref": "#/$defs/r"}}}),
        ] {
            assert_eq!(of(&none), [], "{none}");
        }
    }
}
