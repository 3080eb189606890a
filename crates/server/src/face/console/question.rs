//! Questions as forms: a field for each thing that a question's JSON Schema asks for, where a form can ask for it; else a
//! field for JSON.

use std::collections::BTreeSet;

use handover_kernel::command::{Need, Reply};
use handover_kernel::event::Question;
use handover_kernel::{Blob, Session};
use serde_json::{Map, Number, Value, json};

use super::fields::{Fields, Typed, shown};
use super::shown::words;

/// What stands before the names of a form's fields.
const PREFIX: &str = "f.";

/// The kind of a field that is written as JSON.
const JSON: &str = "json";

/// How many fields a form has at most, and how many choices one of them.
const FIELDS_MAX: usize = 50;
const CHOICES_MAX: usize = 100;

/// A question with the form that answers it.
pub(super) struct Asks {
    pub(super) key: String,
    pub(super) text: String,
    pub(super) form: Form,
    /// What the ids of its fields begin with.
    pub(super) prefix: String,
    /// What was typed that is not one of the form's fields.
    pub(super) answer: String,
    /// Whether an answer was refused: what was typed is in the form.
    pub(super) refused: bool,
}

/// A form.
pub(super) enum Form {
    /// Yes or no.
    Permission,
    /// Any text.
    Text,
    /// Fields of an object.
    Fields(Vec<Field>),
    /// Anything else, as JSON, with the schema that it must fit.
    Json(String),
}

/// A field of a form.
pub(super) struct Field {
    /// As the form sends it.
    pub(super) name: String,
    pub(super) label: String,
    pub(super) hint: String,
    pub(super) kind: &'static str,
    pub(super) required: bool,
    pub(super) value: String,
    pub(super) choices: Vec<Choice>,
    /// What JSON must fit, where it is written as JSON.
    pub(super) schema: String,
    /// Its name in the object.
    own: String,
}

/// One of a list. A form says which by its place: a page may not show all that is in its text.
pub(super) struct Choice {
    pub(super) label: String,
    value: String,
}

impl Field {
    /// Whether it is chosen from a list.
    pub(super) fn is_choice(&self) -> bool {
        self.kind == "choice"
    }

    /// Whether it says the choice at this place.
    pub(super) fn is_chosen(&self, place: &usize) -> bool {
        self.value == place.to_string()
    }
}

impl Form {
    pub(super) fn is_permission(&self) -> bool {
        matches!(self, Form::Permission)
    }

    pub(super) fn is_text(&self) -> bool {
        matches!(self, Form::Text)
    }

    /// The fields that it has.
    pub(super) fn fields(&self) -> &[Field] {
        match self {
            Form::Fields(fields) => fields,
            Form::Permission | Form::Text | Form::Json(_) => &[],
        }
    }

    /// Put what was typed where it was.
    pub(super) fn fill(&mut self, typed: &Fields) {
        if let Form::Fields(fields) = self {
            for field in fields {
                field.value = typed.get(&field.name).to_owned();
            }
        }
    }

    /// The schema that JSON must fit.
    pub(super) fn schema(&self) -> Option<&str> {
        match self {
            Form::Json(schema) => Some(schema),
            Form::Permission | Form::Text | Form::Fields(_) => None,
        }
    }
}

/// The open questions of a session whose forms have room on a page, and how many have none. `one` is shown in any case where
/// the page is about this session alone; the others once it is answered.
pub(super) fn open(session: &Session, typed: &Typed, room: &mut usize, one: bool) -> (Vec<Asks>, usize) {
    let over = session.lifecycle.is_terminal();
    let questions = session.task().filter(|_| !over).map_or(&[][..], |task| task.phase.questions());
    let asks = |(index, question): (usize, &Question)| {
        let refused = typed.is("answer") && is_named(question, typed.form.get("question"));
        let mut form = form_of(question);
        if refused {
            form.fill(&typed.form);
        }
        Asks {
            prefix: format!("q{index}-{}", session.binding.id),
            key: question.key.to_string(),
            text: words(&question.text),
            form,
            answer: if refused { typed.form.get("answer").to_owned() } else { String::new() },
            refused,
        }
    };
    let mut found = Vec::new();
    for asks in questions.iter().enumerate().map(asks) {
        *room = room.saturating_sub(asks.weight());
        if *room == 0 && !(one && found.is_empty()) {
            break;
        }
        found.push(asks);
    }
    let left_out = questions.len() - found.len();
    (found, left_out)
}

impl Asks {
    /// How many bytes it may take on a page, where a character can become five.
    fn weight(&self) -> usize {
        let field = |field: &Field| {
            let choice = |choice: &Choice| 30 + 5 * (choice.value.len() + choice.label.len());
            let choices: usize = field.choices.iter().map(choice).sum();
            let said = field.name.len() + field.label.len() + field.hint.len() + field.value.len();
            let said = said + field.schema.len();
            400 + 5 * said + choices
        };
        let fields: usize = self.form.fields().iter().map(field).sum();
        1000 + 5 * (self.text.len() + self.answer.len()) + fields + 5 * self.form.schema().map_or(0, str::len)
    }
}

/// Whether a form is about a question: it says its key as its page showed that.
fn is_named(question: &Question, said: &str) -> bool {
    shown(question.key.as_str()) == shown(said)
}

/// The question that a form is about; none if it is not open, or if several are shown by one key.
pub(super) fn named<'a>(questions: &'a [Question], said: &str) -> Option<&'a Question> {
    if let Some(exact) = questions.iter().find(|question| question.key.as_str() == said) {
        return Some(exact);
    }
    let mut found = questions.iter().filter(|question| is_named(question, said));
    found.next().filter(|_| found.next().is_none())
}

fn form_of(question: &Question) -> Form {
    match (question.schema.is_empty(), question.need) {
        (true, Need::Authorization) => Form::Permission,
        (true, Need::Input) if question.wire.is_none() => Form::Text,
        (true, Need::Input) => Form::Json(String::new()),
        (false, _) => form(&question.schema),
    }
}

/// The form for what a schema describes.
pub(super) fn form(schema: &[u8]) -> Form {
    let Ok(schema) = serde_json::from_slice::<Value>(schema) else { return Form::Json(String::new()) };
    match fields(&schema) {
        Some(fields) => Form::Fields(fields),
        None if schema == json!({ "type": "string" }) => Form::Text,
        None => Form::Json(words(&super::shown::pretty(&schema))),
    }
}

/// The fields of an object of plain values; none if it is anything else.
fn fields(schema: &Value) -> Option<Vec<Field>> {
    let known = ["type", "properties", "required", "title", "description", "$schema", "additionalProperties"];
    let object =
        schema.as_object().filter(|object| object.keys().all(|key| known.contains(&key.as_str())))?;
    let properties = object.get("properties")?.as_object().filter(|_| schema["type"] == "object")?;
    if properties.is_empty() || properties.len() > FIELDS_MAX {
        return None;
    }
    let required = |name: &str| {
        let names = object.get("required").and_then(Value::as_array);
        names.is_some_and(|names| names.iter().any(|found| found == name))
    };
    let fields = properties.iter().map(|(name, property)| field(name, property, required(name)));
    let mut fields: Vec<Field> = fields.collect();
    // Those that look the same on a page could not be told apart.
    let names: BTreeSet<&str> = fields.iter().map(|field| &*field.name).collect();
    if names.len() < fields.len() {
        return None;
    }
    // JSON has no order; what must be said comes first.
    fields.sort_by_key(|field| !field.required);
    Some(fields)
}

/// The texts that a property is chosen from, none if from any; nothing where a list cannot offer them.
fn choices(property: &Value) -> Option<Vec<Choice>> {
    let listed = |found: &Value, choice: fn(&Value) -> Option<Choice>| {
        let found = found.as_array().filter(|found| (1..=CHOICES_MAX).contains(&found.len()))?;
        found.iter().map(choice).collect()
    };
    let plain = |found: &Value| {
        let value = found.as_str()?.to_owned();
        Some(Choice { label: value.clone(), value })
    };
    // A text and what it is called.
    let named = |found: &Value| {
        let keys = found.as_object()?.keys().all(|key| matches!(key.as_str(), "const" | "title"));
        let value = found.get("const")?.as_str().filter(|_| keys)?.to_owned();
        let title = found.get("title").and_then(Value::as_str).map(super::shown::line);
        Some(Choice { label: title.unwrap_or_else(|| value.clone()), value })
    };
    match (property.get("enum"), property.get("oneOf")) {
        (None, None) => Some(Vec::new()),
        (Some(found), None) => listed(found, plain),
        (None, Some(found)) => listed(found, named),
        (Some(_), Some(_)) => None,
    }
}

/// How a property is asked for; nothing where only JSON can say it.
fn kind_of(property: &Value, choices: Option<&[Choice]>) -> Option<&'static str> {
    let choices = choices?;
    Some(match property.get("type").and_then(Value::as_str)? {
        "string" if !choices.is_empty() => "choice",
        _ if !choices.is_empty() => return None,
        "string" if property.get("maxLength").and_then(Value::as_u64).is_some_and(|max| max <= 200) => "text",
        "string" if property.get("format").is_some() => "text",
        "string" => "long",
        "number" => "number",
        "integer" => "integer",
        "boolean" => "boolean",
        _ => return None,
    })
}

fn field(name: &str, property: &Value, required: bool) -> Field {
    let choices = choices(property);
    let kind = kind_of(property, choices.as_deref()).unwrap_or(JSON);
    let text = |key: &str| property.get(key).and_then(Value::as_str).map(super::shown::line);
    let value = match property.get("default").filter(|_| kind != JSON) {
        Some(Value::String(text)) => match choices.as_deref() {
            Some(choices) if !choices.is_empty() => {
                let place = choices.iter().position(|choice| choice.value == *text);
                place.map_or_else(String::new, |place| place.to_string())
            }
            Some(_) | None => text.clone(),
        },
        Some(value @ (Value::Number(_) | Value::Bool(_))) => value.to_string(),
        Some(Value::Null | Value::Array(_) | Value::Object(_)) | None => String::new(),
    };
    Field {
        name: format!("{PREFIX}{}", shown(name)),
        label: text("title").unwrap_or_else(|| name.to_owned()),
        hint: text("description").unwrap_or_default(),
        kind,
        required,
        value,
        choices: choices.filter(|_| kind != JSON).unwrap_or_default(),
        schema: if kind == JSON {
            super::shown::line(&super::shown::pretty(property))
        } else {
            String::new()
        },
        own: name.to_owned(),
    }
}

/// What a form answers to a question, or what is wrong with it. Whether it fits the schema is the desk's to say.
pub(super) fn reply(question: &Question, said: &Fields) -> Result<Reply, String> {
    if said.get("do") == "refuse" {
        return Ok(Reply::Refused);
    }
    let form = form_of(question);
    if matches!(form, Form::Permission) {
        return Ok(content(&json!({ "approved": true })));
    }
    value(&form, said).map(Reply::Content)
}

fn content(value: &Value) -> Reply {
    Reply::Content(Blob::from(value.to_string().into_bytes()))
}

/// What a form says, as every wire sees it.
pub(super) fn value(form: &Form, said: &Fields) -> Result<Blob, String> {
    let answer = said.get("answer").replace("\r\n", "\n");
    match form {
        Form::Permission | Form::Text if answer.trim().is_empty() => {
            Err("expected an answer, found nothing".to_owned())
        }
        Form::Permission | Form::Text => Ok(Blob::from(answer.into_bytes())),
        Form::Json(_) => {
            let value: Value =
                serde_json::from_str(&answer).map_err(|error| format!("expected JSON: {error}"))?;
            Ok(Blob::from(value.to_string().into_bytes()))
        }
        Form::Fields(fields) => {
            let mut object = Map::new();
            for field in fields {
                if let Some(value) = read(field, said)? {
                    object.insert(field.own.clone(), value);
                }
            }
            Ok(Blob::from(Value::Object(object).to_string().into_bytes()))
        }
    }
}

/// What a field says; nothing if it is left empty.
fn read(field: &Field, said: &Fields) -> Result<Option<Value>, String> {
    let text = said.get(&field.name).replace("\r\n", "\n");
    let wrong = |expected: &str| format!("{}: expected {expected}, found {:?}", field.label, words(&text));
    match field.kind {
        // A box that is not ticked sends nothing: where nothing need be said, and yes is not assumed, nothing is.
        "boolean" if text != "true" && !field.required && field.value != "true" => Ok(None),
        "boolean" => Ok(Some(Value::Bool(text == "true"))),
        _ if text.is_empty() && field.required && field.kind != "long" && field.kind != "text" => {
            Err(wrong("a value"))
        }
        _ if text.is_empty() && !field.required => Ok(None),
        JSON => serde_json::from_str(&text).map(Some).map_err(|_| wrong("JSON")),
        "integer" => {
            text.trim().parse::<i64>().map(|number| Some(number.into())).map_err(|_| wrong("a whole number"))
        }
        "number" => {
            let number = text.trim().parse::<f64>().ok().and_then(Number::from_f64);
            number.map(|number| Some(Value::Number(number))).ok_or_else(|| wrong("a number"))
        }
        "choice" => {
            let choice = text.parse::<usize>().ok().and_then(|place| field.choices.get(place));
            let value = choice.map(|choice| Some(Value::String(choice.value.clone())));
            value.ok_or_else(|| wrong("one of the choices"))
        }
        _ => Ok(Some(Value::String(text))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_objects_are_fields_and_everything_else_is_json() {
        let schema = json!({
            "type": "object",
            "properties": {
                "why": { "type": "string", "title": "Why?" },
                "many": { "type": "integer" },
                "much": { "type": "number", "default": 1.5 },
                "sure": { "type": "boolean" },
                "which": { "type": "string", "enum": ["left", "right"] },
                "size": { "type": "string", "oneOf": [{ "const": "s", "title": "small" }, { "const": "l" }] },
                "parts": { "type": "array", "items": { "type": "string" } },
                "level": { "type": "integer", "enum": [1, 2] },
            },
            "required": ["many"],
        });
        let form = form(schema.to_string().as_bytes());
        let Form::Fields(found) = &form else { panic!("expected fields") };
        let kinds: Vec<(&str, &str)> = found.iter().map(|field| (&*field.own, field.kind)).collect();
        let expected = [
            ("why", "long"),
            ("many", "integer"),
            ("much", "number"),
            ("sure", "boolean"),
            ("which", "choice"),
            ("size", "choice"),
            ("parts", "json"),
            ("level", "json"),
        ];
        let mut expected = expected.to_vec();
        expected.sort_by_key(|(name, _)| kinds.iter().position(|(known, _)| known == name));
        assert_eq!(kinds, expected);
        let field = |name: &str| found.iter().find(|field| field.own == name).unwrap();
        let size: Vec<_> =
            field("size").choices.iter().map(|choice| (&*choice.value, &*choice.label)).collect();
        assert_eq!(size, [("s", "small"), ("l", "l")]);
        assert!(field("parts").schema.contains("array") && field("why").schema.is_empty());
        let read = |said: &str| -> Value {
            serde_json::from_slice(&value(&form, &Fields::parse(said)).unwrap()).unwrap()
        };
        let all =
            "f.why=because&f.many=3&f.sure=true&f.which=0&f.size=1&f.parts=[%22a%22]&f.level=2&f.other=x";
        let expected = json!({ "why": "because", "many": 3, "sure": true, "which": "left", "size": "l", "parts": ["a"], "level": 2 });
        assert_eq!(read(all), expected);
        assert_eq!(read("f.many=3"), json!({ "many": 3 }), "what is left alone says nothing");
        assert!(value(&form, &Fields::parse("f.many=3&f.parts=[")).unwrap_err().contains("JSON"));
        assert!(value(&form, &Fields::parse("f.many=three")).unwrap_err().contains("whole number"));
        for other in ["left", "2", "-1"] {
            let said = format!("f.many=3&f.which={other}");
            assert!(value(&form, &Fields::parse(&said)).unwrap_err().contains("one of the choices"));
        }
        assert!(value(&form, &Fields::parse("f.why=x")).is_err(), "what is required is missing");
        for other in [json!({ "type": "array" }), json!({ "type": "object", "oneOf": [] }), json!(true)] {
            assert!(matches!(super::form(other.to_string().as_bytes()), Form::Json(_)), "{other}");
        }
    }

    #[test]
    fn what_a_page_leaves_out_or_spells_out_is_answered_as_it_is() {
        let (name, choice) = ("le\u{200d}vel\u{202e}", "\u{2764}\u{fe0f}");
        let property = json!({ "type": "string", "enum": ["no", choice], "default": choice });
        let schema = json!({ "type": "object", "properties": { name: property } });
        let form = super::form(schema.to_string().as_bytes());
        let [field] = form.fields() else { panic!("expected a field") };
        assert_eq!((&*field.name, field.is_chosen(&1)), ("f.level[U+202E]", true));
        let said = Fields::parse("f.level[U%2B202E]=1");
        let answer: Value = serde_json::from_slice(&value(&form, &said).unwrap()).unwrap();
        assert_eq!(answer, json!({ name: choice }));
        // Names that look the same can only be said as JSON.
        let properties = json!({ "a": { "type": "string" }, "a\u{fe0f}": { "type": "string" } });
        let schema = json!({ "type": "object", "properties": properties });
        assert!(matches!(super::form(schema.to_string().as_bytes()), Form::Json(_)));
    }

    #[test]
    fn a_box_says_no_where_an_answer_is_required_or_yes_assumed() {
        let schema = |required: &[&str], default: bool| json!({ "type": "object", "required": required, "properties": { "sure": { "type": "boolean", "default": default } } });
        let read = |schema: Value, said: &str| -> Value {
            let form = form(schema.to_string().as_bytes());
            serde_json::from_slice(&value(&form, &Fields::parse(said)).unwrap()).unwrap()
        };
        assert_eq!(read(schema(&["sure"], false), ""), json!({ "sure": false }));
        assert_eq!(read(schema(&[], true), ""), json!({ "sure": false }));
        assert_eq!(read(schema(&[], false), ""), json!({}));
        assert_eq!(read(schema(&[], false), "f.sure=true"), json!({ "sure": true }));
    }
}
