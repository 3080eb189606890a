//! JSON-RPC 2.0, without what none of our protocols has: batches, parameters by position and ids that are null. What comes
//! in is looked at only as far as it must be, what goes out is one line of JSON.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// The message is no JSON.
pub const PARSE_ERROR: i32 = -32700;
/// The message is JSON, and no message.
pub const INVALID_REQUEST: i32 = -32600;
/// There is no such method.
pub const METHOD_NOT_FOUND: i32 = -32601;
/// The parameters are wrong.
pub const INVALID_PARAMS: i32 = -32602;
/// No fault of the caller.
pub const INTERNAL_ERROR: i32 = -32603;

// The codes that MCP adds.

/// A header does not say what the body says.
pub const HEADER_MISMATCH: i32 = -32020;
/// The caller did not declare a capability that the call needs.
pub const MISSING_CAPABILITY: i32 = -32021;
/// The revision is not spoken here.
pub const UNSUPPORTED_VERSION: i32 = -32022;

/// A message that came in.
#[derive(Debug)]
pub enum Incoming<'a> {
    /// Wants an answer.
    Request {
        /// To be given back as it came: a string or an integer.
        id: &'a RawValue,
        /// What is asked.
        method: Cow<'a, str>,
        /// With what; an object, if anything.
        params: Option<&'a RawValue>,
    },
    /// Wants none.
    Notification {
        /// What is told.
        method: Cow<'a, str>,
        /// With what.
        params: Option<&'a RawValue>,
    },
    /// An answer to a request of ours.
    Response {
        /// The request's.
        id: Cow<'a, str>,
        /// What it asked for; none if it was answered with an error.
        result: Option<&'a RawValue>,
    },
}

#[derive(serde::Deserialize)]
struct Wire<'a> {
    #[serde(borrow, default, deserialize_with = "text")]
    jsonrpc: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "text")]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "present")]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "there")]
    error: bool,
}

/// Tells `null` from nothing.
fn present<'de: 'a, 'a, D: Deserializer<'de>>(value: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(value).map(Some)
}

/// Reads what is an object, if it is there: left to itself, serde takes a list of the fields' values as well.
pub fn object<'de, T: Deserialize<'de>, D: Deserializer<'de>>(value: D) -> Result<Option<T>, D::Error> {
    struct Fields<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
        type Value = Option<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_unit<E>(self) -> Result<Option<T>, E> {
            Ok(None)
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Option<T>, A::Error> {
            T::deserialize(MapAccessDeserializer::new(map)).map(Some)
        }
    }
    value.deserialize_any(Fields(PhantomData))
}

/// Reads text, if it is there, as it stands in the message; only what has escapes is copied. Left to itself, serde copies
/// all text that need not be there.
pub fn text<'de: 'a, 'a, D: Deserializer<'de>>(value: D) -> Result<Option<Cow<'a, str>>, D::Error> {
    #[derive(serde::Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
    Option::<Text<'a>>::deserialize(value).map(|found| found.map(|Text(text)| text))
}

fn there<'de, D: Deserializer<'de>>(value: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(value).map(|_| true)
}

/// A body that is no message, and the id of the message that it may have been.
#[derive(Debug)]
pub struct Unreadable<'a> {
    /// To be given back, if it could be read.
    pub id: Option<&'a RawValue>,
    /// Why.
    pub error: Error,
}

impl<'a> Incoming<'a> {
    /// Read one message.
    pub fn parse(body: &'a [u8]) -> Result<Incoming<'a>, Unreadable<'a>> {
        let nameless = |error| Unreadable { id: None, error };
        // Left to itself, serde takes a list of the fields' values for an object.
        if body.trim_ascii_start().starts_with(b"[") {
            return Err(nameless(
                Error::new(INVALID_REQUEST, "expected one message, found a batch").status(400),
            ));
        }
        let wire: Wire<'a> = serde_json::from_slice(body).map_err(|error| nameless(not_a_message(&error)))?;
        let id = wire.id.filter(|id| is_id(id));
        let wrong =
            |what: &'static str| Unreadable { id, error: Error::new(INVALID_REQUEST, what).status(400) };
        if wire.jsonrpc.as_deref() != Some("2.0") {
            return Err(wrong("expected \"jsonrpc\": \"2.0\""));
        }
        if wire.id.is_some() && id.is_none() {
            return Err(wrong("expected an id that is a string or an integer of at most 1024 bytes"));
        }
        if wire.params.is_some_and(|params| !params.get().starts_with('{')) {
            return Err(wrong("expected params to be an object"));
        }
        match (wire.method, id) {
            (Some(method), Some(id)) => Ok(Incoming::Request { id, method, params: wire.params }),
            (Some(method), None) => Ok(Incoming::Notification { method, params: wire.params }),
            (None, Some(id)) if wire.result.is_some() || wire.error => {
                let id = serde_json::from_str(id.get()).unwrap_or(Cow::Borrowed(id.get()));
                Ok(Incoming::Response { id, result: wire.result })
            }
            (None, _) => Err(wrong("expected a method")),
        }
    }
}

fn not_a_message(error: &serde_json::Error) -> Error {
    match error.classify() {
        serde_json::error::Category::Data => Error::new(
            INVALID_REQUEST,
            "expected a JSON-RPC message: an object with jsonrpc, id, method, params",
        )
        .status(400),
        serde_json::error::Category::Syntax
        | serde_json::error::Category::Eof
        | serde_json::error::Category::Io => {
            let place =
                format!("expected JSON, found an error in line {}, column {}", error.line(), error.column());
            Error::new(PARSE_ERROR, place).status(400)
        }
    }
}

/// How many bytes the JSON of an id may have: it is kept, and repeated in every message that speaks of it.
pub const ID_BYTES_MAX: usize = 1024;

/// Whether it can be an id: a string or an integer, never null, and short.
pub fn is_id(id: &RawValue) -> bool {
    let text = id.get();
    let is_number = || text.strip_prefix('-').unwrap_or(text).bytes().all(|digit| digit.is_ascii_digit());
    text.len() <= ID_BYTES_MAX && (text.starts_with('"') || is_number())
}

/// What a code of JSON-RPC or MCP is called where nothing more precise is known.
fn name_of(code: i32) -> Option<&'static str> {
    match code {
        PARSE_ERROR => Some("PARSE_ERROR"),
        INVALID_REQUEST => Some("INVALID_REQUEST"),
        METHOD_NOT_FOUND => Some("METHOD_NOT_FOUND"),
        INVALID_PARAMS => Some("INVALID_PARAMS"),
        INTERNAL_ERROR => Some("INTERNAL_ERROR"),
        HEADER_MISMATCH => Some("HEADER_MISMATCH"),
        MISSING_CAPABILITY => Some("MISSING_CAPABILITY"),
        UNSUPPORTED_VERSION => Some("UNSUPPORTED_PROTOCOL_VERSION"),
        _ => None,
    }
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq)]
pub struct Error {
    /// JSON-RPC's code.
    pub code: i32,
    /// In one sentence.
    pub message: Cow<'static, str>,
    /// For machines.
    pub data: Option<Value>,
    /// HTTP's status, where it goes over HTTP. What a method refuses stays 200: the message itself was in order, and a
    /// client of MCP would take another status for another revision.
    pub status: u16,
    /// The code in words, which has a page of help. None if the error is an agent's.
    pub name: Option<Cow<'static, str>>,
}

impl Error {
    /// With a code and a sentence.
    pub fn new(code: i32, message: impl Into<Cow<'static, str>>) -> Error {
        let name = name_of(code).map(Cow::Borrowed);
        Error { code, message: message.into(), data: None, status: 200, name }
    }

    /// As an agent says it, to be passed on as it is.
    pub fn of_agent(code: i32, message: impl Into<Cow<'static, str>>, data: Option<Value>) -> Error {
        Error { code, message: message.into(), data, status: 200, name: None }
    }

    /// The parameters are wrong.
    pub fn invalid(message: impl Into<Cow<'static, str>>) -> Error {
        Error::new(INVALID_PARAMS, message)
    }

    /// There is no such method.
    pub fn no_method(method: &str) -> Error {
        Error::new(METHOD_NOT_FOUND, format!("there is no method {}", shorten(method))).status(404)
    }

    /// The same with another status.
    pub fn status(mut self, status: u16) -> Error {
        self.status = status;
        self
    }

    /// The same under a code in words that says more than the number.
    pub fn named(mut self, name: impl Into<Cow<'static, str>>) -> Error {
        self.name = Some(name.into());
        self
    }

    /// What there is for machines, with the code in words and its page of help.
    fn named_data(&self, name: &str) -> Map<String, Value> {
        let mut data = self.data.as_ref().and_then(Value::as_object).cloned().unwrap_or_default();
        data.insert("code".to_owned(), name.into());
        data.insert("help".to_owned(), format!("/errors/{name}").into());
        data
    }

    /// The same with something for machines.
    pub fn data(mut self, data: Value) -> Error {
        self.data = Some(data);
        self
    }
}

impl Serialize for Error {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("code", &self.code)?;
        map.serialize_entry("message", &self.message)?;
        match (&self.data, &self.name) {
            (None | Some(Value::Object(_)), Some(name)) => {
                map.serialize_entry("data", &self.named_data(name))?;
            }
            (Some(data), _) => map.serialize_entry("data", data)?,
            (None, None) => {}
        }
        map.end()
    }
}

/// The parameters of a method; without any, those of an empty object.
pub fn params<'a, T: Deserialize<'a>>(params: Option<&'a RawValue>) -> Result<T, Error> {
    let text = params.map_or("{}", RawValue::get);
    serde_json::from_str(text).map_err(|error| {
        // Read once more for the name of the field, which costs more and is seldom wanted.
        let again: Result<T, _> =
            serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_str(text));
        let field = again.err().map(|found| found.path().to_string()).filter(|path| path != ".");
        let error = in_words(error.to_string());
        Error::invalid(match field {
            Some(field) => format!("params.{field}: {error}"),
            None => format!("params: {error}"),
        })
    })
}

/// What is wrong with JSON, without the names that Rust has for numbers.
fn in_words(error: String) -> String {
    let whole = ["usize", "u64", "u32"].into_iter().map(|name| (name, "a whole number"));
    let names = whole.chain([("f64", "a number"), ("a map", "an object"), ("a sequence", "a list")]);
    names.fold(error, |error, (name, words)| {
        error.replace(&format!("expected {name}"), &format!("expected {words}"))
    })
}

/// What a sender made up, short enough to repeat.
pub fn shorten(text: &str) -> String {
    const CHARS_MAX: usize = 80;
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// A result as JSON. Most fit into what is made room for at once.
pub fn result(shown: &impl Serialize) -> String {
    const ROOM: usize = 1024;
    let mut json = Vec::with_capacity(ROOM);
    serde_json::to_writer(&mut json, shown).expect("a result has only text for keys");
    String::from_utf8(json).expect("JSON is text")
}

/// The answer to a request: the result is JSON already.
pub fn answer(id: &RawValue, result: &str) -> String {
    let mut line = String::with_capacity(result.len() + id.get().len() + 36);
    line.push_str("{\"jsonrpc\":\"2.0\",\"id\":");
    line.push_str(id.get());
    line.push_str(",\"result\":");
    line.push_str(result);
    line.push('}');
    line
}

/// The same in the room of the result, if it has enough to spare.
pub fn answer_with(id: &RawValue, mut result: String) -> String {
    const BEFORE: &str = "{\"jsonrpc\":\"2.0\",\"id\":";
    const BETWEEN: &str = ",\"result\":";
    if result.capacity() - result.len() < BEFORE.len() + id.get().len() + BETWEEN.len() + 1 {
        return answer(id, &result);
    }
    result.insert_str(0, BETWEEN);
    result.insert_str(0, id.get());
    result.insert_str(0, BEFORE);
    result.push('}');
    result
}

/// The answer to a request that is refused; without an id if that could not be read.
pub fn refusal(id: Option<&RawValue>, error: &Error) -> String {
    #[derive(serde::Serialize)]
    struct Refusal<'a> {
        jsonrpc: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<&'a RawValue>,
        error: &'a Error,
    }
    line(&Refusal { jsonrpc: "2.0", id, error })
}

/// A notification.
pub fn notification(method: &str, params: &impl Serialize) -> String {
    #[derive(serde::Serialize)]
    struct Notification<'a, P> {
        jsonrpc: &'a str,
        method: &'a str,
        params: &'a P,
    }
    line(&Notification { jsonrpc: "2.0", method, params })
}

/// A notification of what is JSON already.
pub fn notification_of(method: &str, params: &str) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{method}\",\"params\":{params}}}")
}

/// A request of ours.
pub fn request(id: &str, method: &str, params: &impl Serialize) -> String {
    #[derive(serde::Serialize)]
    struct Request<'a, P> {
        jsonrpc: &'a str,
        id: &'a str,
        method: &'a str,
        params: &'a P,
    }
    line(&Request { jsonrpc: "2.0", id, method, params })
}

fn line(message: &impl Serialize) -> String {
    serde_json::to_string(message).expect("a message has only text for keys")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_error_names_its_code_and_its_page_beside_what_else_it_says_and_an_agents_is_left_as_it_is() {
        let shown = |error: &Error| serde_json::to_value(error).unwrap();
        let help = json!({ "code": "INVALID_PARAMS", "help": "/errors/INVALID_PARAMS" });
        assert_eq!(
            shown(&Error::invalid("x")),
            json!({ "code": INVALID_PARAMS, "message": "x", "data": help })
        );
        assert_eq!(
            shown(&Error::invalid("x").data(json!({ "uri": "u" })).named("BUSY"))["data"],
            json!({ "uri": "u", "code": "BUSY", "help": "/errors/BUSY" })
        );
        assert_eq!(shown(&Error::invalid("x").data(json!([1])))["data"], json!([1]));
        assert_eq!(shown(&Error::new(-32001, "x")), json!({ "code": -32001, "message": "x" }));
        let agents = Error::of_agent(INVALID_PARAMS, "x", Some(json!({ "depth": 0 })));
        assert_eq!(shown(&agents), json!({ "code": INVALID_PARAMS, "message": "x", "data": { "depth": 0 } }));
        let silent = Error::of_agent(INTERNAL_ERROR, "x", None);
        assert_eq!(shown(&silent), json!({ "code": INTERNAL_ERROR, "message": "x" }));
    }

    fn error(body: &str) -> (Option<String>, i32) {
        let unreadable = Incoming::parse(body.as_bytes()).unwrap_err();
        (unreadable.id.map(|id| id.get().to_owned()), unreadable.error.code)
    }

    #[test]
    fn a_request_gives_its_id_back_as_it_came() {
        for id in ["1", "-7", "\"a\\u0062\"", "9007199254740993"] {
            let body = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"m\"}}");
            let Ok(Incoming::Request { id: found, method, params: None }) = Incoming::parse(body.as_bytes())
            else {
                panic!("expected a request: {body}");
            };
            assert_eq!((found.get(), &*method), (id, "m"));
            assert_eq!(answer(found, "1"), format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":1}}"));
        }
    }

    #[test]
    fn a2_an_id_is_a_string_or_an_integer_and_never_null() {
        for id in ["null", "1.5", "1e3", "true", "[]", "{}"] {
            let body = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"m\"}}");
            assert_eq!(error(&body), (None, INVALID_REQUEST), "{id}");
        }
    }

    #[test]
    fn an_answer_is_the_same_wherever_it_is_put_together() {
        let id: Box<RawValue> = serde_json::from_str("\"a-7\"").unwrap();
        let expected = r#"{"jsonrpc":"2.0","id":"a-7","result":{"x":"é"}}"#;
        let result = r#"{"x":"é"}"#;
        for room in [0, 10, expected.len() - result.len() - 1, expected.len(), 100] {
            let mut given = String::with_capacity(result.len() + room);
            given.push_str(result);
            assert_eq!(answer_with(&id, given), expected, "{room}");
        }
        assert_eq!(answer(&id, result), expected);
    }

    #[test]
    fn a_message_without_an_id_is_a_notification() {
        let body = br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
        assert!(matches!(Incoming::parse(body), Ok(Incoming::Notification { params: Some(_), .. })));
    }

    #[test]
    fn an_answer_to_a_request_of_ours_is_known_by_its_result_or_its_error() {
        let good = br#"{"jsonrpc":"2.0","id":"x:1","result":{}}"#;
        assert!(matches!(Incoming::parse(good), Ok(Incoming::Response { result: Some(_), .. })));
        let bad = br#"{"jsonrpc":"2.0","id":"x:1","error":{"code":1,"message":""}}"#;
        assert!(matches!(Incoming::parse(bad), Ok(Incoming::Response { result: None, .. })));
    }

    #[test]
    fn a1_what_is_no_message_is_refused_with_the_id_if_it_could_be_read() {
        let cases = [
            ("", None, PARSE_ERROR),
            ("{", None, PARSE_ERROR),
            ("\u{0}", None, PARSE_ERROR),
            ("1", None, INVALID_REQUEST),
            ("\"x\"", None, INVALID_REQUEST),
            ("{}", None, INVALID_REQUEST),
            (r#"{"jsonrpc":"1.0","id":4,"method":"m"}"#, Some("4"), INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","id":4}"#, Some("4"), INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","id":4,"method":7}"#, None, INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","id":4,"method":"m","params":[1]}"#, Some("4"), INVALID_REQUEST),
        ];
        for (body, id, code) in cases {
            assert_eq!(error(body), (id.map(str::to_owned), code), "{body}");
        }
        let not_text = Incoming::parse(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}").unwrap_err();
        assert_eq!(not_text.error.code, PARSE_ERROR);
    }

    #[test]
    fn a11_a_batch_is_refused() {
        assert_eq!(error(r#"[{"jsonrpc":"2.0","id":1,"method":"m"}]"#), (None, INVALID_REQUEST));
    }
}
