//! Between what the kernel carries, bytes, and what MCP shows, content blocks. The same bytes always look the same.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use handover_desk::payload::Payload;
use handover_kernel::Blob;
use serde_json::{Map, Value, json};

use super::message::{self, Error};

/// What only a server says of its own answers: a worker that passes on what another server returned may have it.
const RESERVED_META: &str = "io.modelcontextprotocol/";

/// What a tool call returns, of bytes that came from another wire: a JSON object is structured content and text, other
/// text is text, anything else a blob.
pub fn of_bytes(task: &str, bytes: &[u8]) -> Map<String, Value> {
    let mut result = Map::new();
    let block = match Payload::of(bytes) {
        Payload::Object(text, object) => {
            result.insert("structuredContent".to_owned(), object);
            json!({ "type": "text", "text": text })
        }
        Payload::Text(text) => json!({ "type": "text", "text": text }),
        Payload::Bytes(bytes) => json!({ "type": "resource", "resource": {
            "uri": format!("task://{task}/output"),
            "mimeType": "application/octet-stream",
            "blob": STANDARD.encode(bytes),
        } }),
    };
    result.insert("content".to_owned(), json!([block]));
    result
}

/// A result that is one text.
pub fn text(text: impl Into<String>) -> Map<String, Value> {
    let mut result = Map::new();
    result.insert("content".to_owned(), json!([{ "type": "text", "text": text.into() }]));
    result
}

/// A result that says what went wrong.
pub fn failed(reason: impl Into<String>) -> Map<String, Value> {
    let mut result = text(reason);
    result.insert("isError".to_owned(), Value::Bool(true));
    result
}

/// A structured result, with the same as text for those that read only that.
pub fn structured(value: Value) -> Map<String, Value> {
    let mut result = text(message::result(&value));
    result.insert("structuredContent".to_owned(), value);
    result
}

/// A result as an MCP worker gives it, checked; with the bytes that other wires see of it.
pub struct Given {
    /// The result as it is given back, JSON.
    pub verbatim: Blob,
    /// What it means: the structured content, else the text, else all of the content.
    pub output: Blob,
    /// Whether it says that the work failed.
    pub is_error: bool,
    /// Its text.
    pub text: String,
    /// Its structured content.
    pub structured: Option<Value>,
}

/// Read a worker's `CallToolResult`.
pub fn read(result: &Value) -> Result<Given, Error> {
    let expected = |what: &str| Error::invalid(format!("result: expected {what}"));
    let object = result.as_object().ok_or_else(|| expected("an object with content"))?;
    let blocks = match object.get("content") {
        None => &Vec::new(),
        Some(Value::Array(blocks)) => blocks,
        Some(_) => return Err(expected("content to be a list of content blocks")),
    };
    for (index, block) in blocks.iter().enumerate() {
        check_block(block).map_err(|what| expected(&format!("content block {} to be {what}", index + 1)))?;
    }
    let structured = match object.get("structuredContent") {
        None => None,
        Some(value @ Value::Object(_)) => Some(value.clone()),
        Some(_) => return Err(expected("structuredContent to be an object")),
    };
    if blocks.is_empty() && structured.is_none() {
        return Err(expected("content or structuredContent, found neither"));
    }
    let texts: Vec<&str> = blocks.iter().filter_map(|block| block.get("text")?.as_str()).collect();
    let output = match &structured {
        Some(value) => value.to_string(),
        None if texts.len() == blocks.len() => texts.join("\n"),
        None => Value::Array(blocks.clone()).to_string(),
    };
    let text = texts.join("\n");
    let mut kept = Map::new();
    let mut content = blocks.clone();
    if let (true, Some(value)) = (content.is_empty(), &structured) {
        content.push(json!({ "type": "text", "text": value.to_string() }));
    }
    kept.insert("content".to_owned(), Value::Array(content));
    for key in ["structuredContent", "isError"] {
        if let Some(value) = object.get(key) {
            kept.insert(key.to_owned(), value.clone());
        }
    }
    if let Some(Value::Object(meta)) = object.get("_meta") {
        let mut meta = meta.clone();
        meta.retain(|key, _| !key.starts_with(RESERVED_META));
        if !meta.is_empty() {
            kept.insert("_meta".to_owned(), Value::Object(meta));
        }
    }
    Ok(Given {
        verbatim: Blob::from(Value::Object(kept).to_string().into_bytes()),
        output: Blob::from(output.into_bytes()),
        is_error: object.get("isError").and_then(Value::as_bool).unwrap_or(false),
        text,
        structured,
    })
}

/// What a content block should have been, if it is none.
fn check_block(block: &Value) -> Result<(), &'static str> {
    let text = |place: &Value, key: &str| place.get(key).is_some_and(Value::is_string);
    let encoded = |place: &Value, key: &str| {
        place.get(key).and_then(Value::as_str).is_some_and(|data| STANDARD.decode(data).is_ok())
    };
    match block.get("type").and_then(Value::as_str) {
        Some("text") if text(block, "text") => Ok(()),
        Some("text") => Err("text with a text"),
        Some("image" | "audio") if encoded(block, "data") && text(block, "mimeType") => Ok(()),
        Some("image" | "audio") => Err("an image or audio with data in base64 and mimeType"),
        Some("resource_link") if text(block, "uri") && text(block, "name") => Ok(()),
        Some("resource_link") => Err("a resource link with uri and name"),
        Some("resource") => match block.get("resource") {
            Some(resource)
                if text(resource, "uri") && (text(resource, "text") || encoded(resource, "blob")) =>
            {
                Ok(())
            }
            Some(_) | None => Err("a resource with uri and text or blob in base64"),
        },
        Some(_) | None => Err("of type text, image, audio, resource or resource_link"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_look_as_the_crosswalk_says() {
        let object = of_bytes("t", br#"{"a":1}"#);
        assert_eq!(object["structuredContent"], json!({ "a": 1 }));
        assert_eq!(object["content"][0]["text"], "{\"a\":1}");
        let list = of_bytes("t", b"[1]");
        assert!(list.get("structuredContent").is_none());
        assert_eq!(list["content"][0]["text"], "[1]");
        let blob = of_bytes("t", &[0xff, 0x00]);
        assert_eq!(blob["content"][0]["resource"]["blob"], "/wA=");
        assert_eq!(blob["content"][0]["resource"]["uri"], "task://t/output");
    }

    #[test]
    fn every_kind_of_block_can_be_given() {
        let content = json!([
            { "type": "text", "text": "t" },
            { "type": "image", "data": "AA==", "mimeType": "image/png" },
            { "type": "audio", "data": "AA==", "mimeType": "audio/wav" },
            { "type": "resource", "resource": { "uri": "x://y", "text": "z" } },
            { "type": "resource_link", "uri": "x://y", "name": "z" },
        ]);
        let given = read(&json!({ "content": content, "unknown": 1 })).ok().unwrap();
        let verbatim: Value = serde_json::from_slice(&given.verbatim).unwrap();
        assert_eq!(verbatim, json!({ "content": content }));
        assert_eq!(serde_json::from_slice::<Value>(&given.output).unwrap(), content);
    }

    #[test]
    fn what_other_wires_see_is_the_structure_or_the_text() {
        let output = |result: Value| String::from_utf8(read(&result).ok().unwrap().output.to_vec()).unwrap();
        assert_eq!(
            output(json!({ "content": [{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }] })),
            "a\nb"
        );
        assert_eq!(output(json!({ "structuredContent": { "n": 1 } })), "{\"n\":1}");
    }

    #[test]
    fn a_wrong_result_is_refused_with_what_was_expected() {
        let cases = [
            (json!(1), "an object with content"),
            (json!({}), "content or structuredContent"),
            (json!({ "content": "x" }), "a list of content blocks"),
            (json!({ "content": [{ "type": "video" }] }), "content block 1"),
            (json!({ "content": [{ "type": "image", "data": 1 }] }), "data in base64 and mimeType"),
            (json!({ "content": [{ "type": "resource", "resource": {} }] }), "uri and text or blob"),
            (json!({ "structuredContent": [1] }), "structuredContent to be an object"),
        ];
        for (result, expected) in cases {
            let error = read(&result).err().unwrap();
            assert!(error.message.contains(expected), "{result}: {}", error.message);
        }
    }
}
