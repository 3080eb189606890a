//! What the methods are, for machines: an OpenRPC document, made from the very types that they take and return.

use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use super::methods::Method;

/// The version of the document's own format.
const OPENRPC: &str = "1.3.2";

/// The document.
pub fn openrpc() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut generator = settings.into_generator();
    let methods: Vec<Value> = Method::ALL.iter().map(|method| described(*method, &mut generator)).collect();
    json!({
        "openrpc": OPENRPC,
        "info": {
            "title": "Handover: Grid-style task conversations",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Every method is a JSON-RPC 2.0 request: POST /grid/a2a/{node} with params as an object.",
        },
        "methods": methods,
        "components": { "schemas": generator.take_definitions(true) },
    })
}

fn described(method: Method, generator: &mut schemars::SchemaGenerator) -> Value {
    let (params, result) = method.schemas(generator);
    let taken = resolved(&params, generator);
    let required = taken["required"].as_array().cloned().unwrap_or_default();
    let fields = taken["properties"].as_object().cloned().unwrap_or_default();
    let params: Vec<Value> = fields
        .into_iter()
        .map(|(name, schema)| {
            let required = required.contains(&json!(name));
            let summary = schema["description"].clone();
            json!({ "name": name, "required": required, "summary": summary, "schema": schema })
        })
        .collect();
    json!({
        "name": method.name(),
        "summary": method.summary(),
        "paramStructure": "by-name",
        "params": params,
        "result": { "name": "result", "schema": result },
    })
}

/// The schema that a reference stands for.
fn resolved(schema: &schemars::Schema, generator: &schemars::SchemaGenerator) -> Value {
    let value = json!(schema);
    let name = value["$ref"].as_str().and_then(|reference| reference.rsplit('/').next());
    name.and_then(|name| generator.definitions().get(name)).cloned().unwrap_or(value)
}
