use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn schema(value: &Value) -> Schema {
    Schema::compile(&value.to_string()).unwrap_or_else(|malformed| panic!("{value}: {malformed}"))
}

fn refused(value: &Value) -> String {
    Schema::compile(&value.to_string()).map(|_| ()).unwrap_err().to_string()
}

/// A schema, values that match it, and values that do not.
fn table() -> Vec<(Value, Vec<Value>, Vec<Value>)> {
    let values = |values: Value| values.as_array().expect("a list of values").clone();
    let row = |schema: Value, yes: Value, no: Value| (schema, values(yes), values(no));
    vec![
        row(json!(true), json!([1, null, {}]), json!([])),
        row(json!(false), json!([]), json!([1, null, {}])),
        row(json!({"type": "object"}), json!([{}, {"a": 1}]), json!([1, null, "x", [[]]])),
        row(json!({"type": ["integer", "null"]}), json!([1, 1.0, null]), json!([1.5, "1"])),
        row(
            json!({"$ref": "#/$defs/name", "$defs": {"name": {"type": "string", "minLength": 2}}}),
            json!(["ab", "äö"]),
            json!(["a", 1]),
        ),
        row(json!({"$ref": "#/$defs/a%20b~1c", "$defs": {"a b/c": {"const": 1}}}), json!([1]), json!([2])),
        row(
            json!({"$ref": "#here", "$defs": {"a": {"$anchor": "here", "const": 1}}}),
            json!([1]),
            json!([2]),
        ),
        row(
            json!({"$id": "https://example.com/s", "$ref": "https://example.com/s#/$defs/a", "$defs": {"a": {"const": 1}}}),
            json!([1]),
            json!([2]),
        ),
        row(
            json!({"$dynamicAnchor": "node", "type": "object", "properties": {"next": {"$dynamicRef": "#node"}}}),
            json!([{"next": {"next": {}}}]),
            json!([{"next": {"next": 1}}]),
        ),
        row(
            json!({"prefixItems": [{"type": "string"}, {"type": "number"}], "items": false}),
            json!([["a", 1], ["a"], []]),
            json!([["a", "b"], ["a", 1, 2]]),
        ),
        row(
            json!({"allOf": [{"properties": {"a": true}}], "properties": {"b": true}, "unevaluatedProperties": false}),
            json!([{"a": 1, "b": 2}]),
            json!([{"a": 1, "c": 2}]),
        ),
        row(
            json!({"prefixItems": [true], "anyOf": [{"prefixItems": [true, {"const": 2}]}, true], "unevaluatedItems": false}),
            json!([[1], [1, 2]]),
            json!([[1, 3], [1, 2, 3]]),
        ),
        row(
            json!({"dependentRequired": {"card": ["address"]}}),
            json!([{}, {"card": 1, "address": 2}]),
            json!([{"card": 1}]),
        ),
        row(
            json!({"dependentSchemas": {"a": {"required": ["b"]}}}),
            json!([{}, {"a": 1, "b": 1}]),
            json!([{"a": 1}]),
        ),
        row(
            json!({"if": {"properties": {"kind": {"const": "a"}}}, "then": {"required": ["x"]}, "else": {"required": ["y"]}}),
            json!([{"kind": "a", "x": 1}, {"kind": "b", "y": 1}]),
            json!([{"kind": "a", "y": 1}, {"kind": "b", "x": 1}]),
        ),
        row(json!({"const": {"a": [1]}}), json!([{"a": [1.0]}]), json!([{"a": [2]}, {}])),
        row(json!({"enum": ["a", 1, null]}), json!(["a", 1, null]), json!(["b", 2, false])),
        row(json!({"oneOf": [{"multipleOf": 2}, {"multipleOf": 3}]}), json!([2, 3]), json!([6, 5])),
        row(json!({"not": {"type": "string"}}), json!([1]), json!(["a"])),
        row(json!({"contains": {"const": 1}, "minContains": 2}), json!([[1, 1]]), json!([[1], []])),
        row(json!({"uniqueItems": true}), json!([[1, 2]]), json!([[1, 1.0]])),
        row(json!({"propertyNames": {"pattern": "^[a-z]+$"}}), json!([{"ab": 1}]), json!([{"A": 1}])),
        row(json!({"pattern": "^\\d+$"}), json!(["12"]), json!(["१२", "a"])),
        row(
            json!({"patternProperties": {"^x-": {"type": "integer"}}, "additionalProperties": false}),
            json!([{"x-a": 1}]),
            json!([{"x-a": "1"}, {"y": 1}]),
        ),
        // A format is a remark, and so is a word that nobody knows.
        row(json!({"format": "email", "x-mcp-header": "Region"}), json!(["no address", 1]), json!([])),
        // draft-07 has its own way to say what prefixItems says.
        row(
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "string"}], "additionalItems": false,
                   "format": "email"}),
            json!([["a"], []]),
            json!([[1], ["a", "b"]]),
        ),
    ]
}

#[test]
fn values_match_as_the_specification_says() {
    for (text, yes, no) in table() {
        let schema = schema(&text);
        for value in yes {
            schema.check(&value).unwrap_or_else(|mismatch| panic!("{text} and {value}: {mismatch}"));
        }
        for value in no {
            schema.check(&value).expect_err(&format!("{text} and {value}"));
        }
    }
}

#[test]
fn a_mismatch_says_where_and_what() {
    let schema = schema(&json!({
        "type": "object",
        "properties": {"to": {"type": "string"}, "times": {"type": ["integer", "null"]}, "how": {"enum": ["a", "b"]}},
        "required": ["to"],
        "additionalProperties": false,
    }));
    let mismatch = |value: Value| schema.check(&value).unwrap_err().to_string();
    assert_eq!(mismatch(json!([])), "expected an object, found an array");
    assert_eq!(mismatch(json!({})), "expected the property \"to\", found none");
    assert_eq!(mismatch(json!({"to": 1})), "/to: expected a string, found a number");
    assert_eq!(
        mismatch(json!({"to": "x", "times": "y"})),
        "/times: expected null or an integer, found a string"
    );
    assert_eq!(
        mismatch(json!({"to": "x", "how": "c"})),
        "/how: expected one of [\"a\",\"b\"], found something else"
    );
    assert_eq!(mismatch(json!({"to": "x", "b": 1})), "expected no other properties, found \"b\"");
}

#[test]
fn a_mismatch_is_short_however_much_is_wrong() {
    let schema = schema(&json!({"items": {"type": "string", "maxLength": 3}}));
    let secret = "secret".repeat(1000);
    let found = schema.check(&Value::from(vec![secret; 100])).unwrap_err();
    assert_eq!(found.places.len(), PLACES_MAX);
    assert_eq!(found.places[0].pointer, "/0");
    assert!(!found.to_string().contains("secret"), "{found}");

    let long = "n".repeat(5000);
    let schema = self::schema(&json!({"additionalProperties": false}));
    let found = schema.check(&json!({ long: 1 })).unwrap_err().to_string();
    assert!(found.chars().count() <= SHOWN_CHARS_MAX + 1, "{found}");
}

#[test]
fn a_schema_that_cannot_be_used_is_refused_with_the_reason() {
    let says = |schema: Value, part: &str| {
        let said = refused(&schema);
        assert!(said.contains(part), "{schema}: {said}");
    };
    says(json!({"type": "objekt"}), "/type");
    says(json!({"properties": []}), "/properties");
    says(json!(1), "the schema");
    says(json!({"pattern": "("}), "pattern");
    says(json!({"$ref": "https://example.com/other.json"}), "found \"https://example.com/other.json\"");
    says(json!({"$ref": "other.json#/$defs/a"}), "into the same schema");
    says(json!({"properties": {"a": {"$ref": "file:///etc/passwd"}}}), "into the same schema");
    says(json!({"$defs": {"a": {"$dynamicRef": "urn:x"}}, "$ref": "#/$defs/a"}), "into the same schema");
    says(json!({"$ref": "#/$defs/none"}), "that is there");
    says(json!({"$ref": "#/%zz"}), "that is there");
    says(json!({"$ref": "#/required", "required": ["a"]}), "that is there");
    says(json!({"$defs": {"a": {"$id": "https://example.com/a"}}}), "$id");
    says(json!({"x": {"$id": "https://example.com/a", "y": {}}, "$ref": "#/x/y"}), "$id");
    says(json!({"$defs": {"a": {"$anchor": "n"}, "b": {"$anchor": "n"}}}), "twice");
    says(json!({"$schema": "https://example.com/mine"}), "$schema");
    assert!(Schema::compile("{").unwrap_err().to_string().contains("in JSON"));
    let large = format!("{{\"description\":\"{}\"}}", "x".repeat(SCHEMA_BYTES_MAX));
    assert!(Schema::compile(&large).unwrap_err().to_string().contains("at most 65536 bytes"));
}

#[test]
fn a_pattern_that_could_backtrack_is_matched_in_linear_time_or_refused() {
    let schema = schema(&json!({"pattern": "^(a+)+$"}));
    let begun = Instant::now();
    schema.check(&Value::from(format!("{}!", "a".repeat(100_000)))).unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(5));
    refused(&json!({"pattern": "(?=a)b"}));
    refused(&json!({"pattern": "(a)\\1"}));
    refused(&json!({"pattern": "((((a{100}){100}){100}){100})"}));
    let many: serde_json::Map<String, Value> =
        (0..129).map(|number| (format!("p{number}"), json!({"pattern": "a"}))).collect();
    assert!(refused(&json!({"properties": many})).contains("patterns"));
}

#[test]
fn text_that_patterns_would_take_too_long_for_is_refused() {
    // Large once it is compiled, and slow: every character can be the last one that counts.
    let slow = "[ab]*a[ab]{1500}c";
    let schema = schema(&json!({"properties": {
        "id": {"pattern": slow},
        "name": {"pattern": "^[\\p{L}\\p{N} .'-]{1,20}$"},
        "body": {"type": "string"},
    }}));
    let text = |length: usize| "ab".repeat(length / 2);
    let begun = Instant::now();
    schema.check(&json!({"id": text(10_000)})).unwrap_err();
    let found = schema.check(&json!({"id": text(1_000_000)})).unwrap_err().to_string();
    assert!(found.contains("less text for the patterns"), "{found}");
    // Text that meets no pattern may be as long as it likes.
    schema.check(&json!({"name": "Zoë 2", "body": text(1_000_000)})).unwrap();
    let many: serde_json::Map<String, Value> =
        (0..100).map(|n| (format!("{n} {}", text(2000)), json!(1))).collect();
    let names = self::schema(&json!({"propertyNames": {"allOf": [{"pattern": slow}]}}));
    names.check(&Value::Object(many.clone())).unwrap_err();
    let named = self::schema(&json!({"patternProperties": {slow: false}}));
    let found = named.check(&Value::Object(many)).unwrap_err().to_string();
    assert!(found.contains("less text for the patterns"), "{found}");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    // A plain pattern is put to a megabyte.
    self::schema(&json!({"pattern": "^[ab]+$"})).check(&Value::from(text(1_000_000))).unwrap();
}

/// `count` definitions, each of which refers to the next one in these places.
fn ladder(count: usize, rung: impl Fn(Value) -> Value) -> Value {
    let name = |number: usize| format!("d{number}");
    let mut defs: serde_json::Map<String, Value> = (0..count)
        .map(|number| (name(number), rung(json!({"$ref": format!("#/$defs/{}", name(number + 1))}))))
        .collect();
    defs.insert(name(count), json!({"type": "object"}));
    json!({"$defs": defs, "$ref": "#/$defs/d0"})
}

#[test]
fn a_schema_that_would_check_for_ever_is_refused() {
    let back = "leads back to its own schema";
    assert!(refused(&json!({"$ref": "#"})).contains(back));
    assert!(refused(&json!({"anyOf": [{"$ref": "#"}, true]})).contains(back));
    let two = json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"not": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"});
    assert!(refused(&two).contains(back));
    assert!(refused(&ladder(1500, |next| next)).contains("through each other"));
    // Each definition takes twice as long as the next one.
    let doubling = |next: Value| json!({"properties": {"a": next, "b": next}});
    schema(&ladder(8, doubling));
    assert!(refused(&ladder(30, doubling)).contains("steps"));
    let asking_again =
        |next: Value| json!({"properties": {"x": {"allOf": [next], "unevaluatedProperties": false}}});
    schema(&ladder(5, asking_again));
    assert!(refused(&ladder(40, asking_again)).contains("steps"));
}

#[test]
fn a_schema_may_refer_to_itself_for_the_parts_of_a_value() {
    // Alternatives that all lead back: every level could multiply the work by their number.
    let kinds: Vec<Value> = (0..12)
        .map(|number| json!({"properties": {"kids": {"items": {"$ref": "#"}}, "kind": {"const": number}}, "required": ["kind"]}))
        .collect();
    let schema = schema(&json!({"type": "object", "anyOf": kinds}));
    let mut value = json!({"kind": 11});
    for _ in 0..30 {
        value = json!({"kind": 11, "kids": [value, {"kind": 0}]});
    }
    let begun = Instant::now();
    schema.check(&value).unwrap();
    *value.pointer_mut("/kids/0/kids/0/kids/0/kids/0/kids/0/kids/0/kind").unwrap() = json!("none");
    let found = schema.check(&value).unwrap_err();
    assert_eq!(found.places.len(), 1, "too many ways to say more: {found}");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[test]
fn the_deepest_value_on_the_longest_chain_fits_the_stack() {
    // The most schemas on one value, and back again for its part.
    let mut longest = json!({"properties": {"a": {"$ref": "#"}}});
    while Schema::compile(&json!({"not": {"not": longest}}).to_string()).is_ok() {
        longest = json!({"not": {"not": longest}});
    }
    let schema = schema(&longest);
    let mut value = json!(1);
    for _ in 1..DEPTH_MAX {
        value = json!({ "a": value });
    }
    schema.check(&value).unwrap();
    assert!(schema.check(&json!({ "a": value })).unwrap_err().to_string().contains("levels"));
}

#[test]
fn a_value_that_is_too_large_for_its_schema_is_refused() {
    let properties: serde_json::Map<String, Value> =
        (0..1000).map(|number| (format!("p{number}"), json!({"type": "string"}))).collect();
    let schema = schema(&json!({"items": {"properties": properties}}));
    schema.check(&Value::from(vec![1; 1000])).unwrap();
    let found = schema.check(&Value::from(vec![1; 100_000])).unwrap_err().to_string();
    assert!(found.contains("found 100001"), "{found}");
}

#[test]
fn a_large_value_is_told_its_first_mismatch() {
    let schema = schema(&json!({"items": {"type": "integer"}}));
    let mut items = vec![json!(1); 50_000];
    items[40_000] = json!("x");
    items[40_001] = json!("x");
    let found = schema.check(&Value::from(items)).unwrap_err();
    assert_eq!(found.to_string(), "/40000: expected an integer, found a string");
}

/// JSON that often looks like a schema.
fn schema_like() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(vec![
        "type",
        "$ref",
        "$id",
        "$schema",
        "$anchor",
        "$defs",
        "a",
        "properties",
        "items",
        "allOf",
        "anyOf",
        "oneOf",
        "not",
        "if",
        "then",
        "else",
        "pattern",
        "enum",
        "const",
        "required",
        "dependentSchemas",
        "dependentRequired",
        "unevaluatedProperties",
        "unevaluatedItems",
        "prefixItems",
        "contains",
        "minContains",
        "propertyNames",
        "multipleOf",
        "maximum",
        "minLength",
        "uniqueItems",
        "additionalProperties",
        "patternProperties",
        "$dynamicRef",
        "$dynamicAnchor",
        "format",
        "contentSchema",
        "contentMediaType",
        "dependencies",
    ]);
    let text = prop::sample::select(vec![
        "object",
        "string",
        "#",
        "#/$defs/a",
        "#a",
        "a",
        "",
        "#/properties/a",
        "#/allOf/0",
        "%",
        "(",
        "^a*$",
        "\u{0}",
        "https://example.com",
        "integer",
        "application/json",
        "[{]}",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text.prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 48, 5, move |part| {
        prop_oneof![
            1 => prop::collection::vec(part.clone(), 0..4).prop_map(Value::from),
            4 => prop::collection::btree_map(word.clone(), part, 0..5)
                .prop_map(|entries| entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect::<Value>()),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_schema_and_no_value_makes_a_panic(schema in schema_like(), value in schema_like()) {
        if let Ok(schema) = Schema::compile(&schema.to_string())
            && let Err(mismatch) = schema.check(&value)
        {
            prop_assert!(!mismatch.places.is_empty() && mismatch.places.len() <= PLACES_MAX);
        }
    }

    #[test]
    fn no_text_makes_a_panic(text in "\\PC{0,64}") {
        let _ = Schema::compile(&text);
    }
}
