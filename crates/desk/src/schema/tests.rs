use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn schema(value: &Value) -> Schema {
    Schema::compile(&value.to_string()).unwrap_or_else(|malformed| panic!("{value}: {malformed}"))
}

/// More steps than any check here needs.
const MANY: u64 = 5_000_000;

fn check(schema: &Schema, value: &Value) -> Result<(), Mismatch> {
    match schema.check(value, MANY).0 {
        Verdict::Matches => Ok(()),
        Verdict::Differs(mismatch) => Err(mismatch),
        Verdict::OutOfSteps => panic!("a check that takes more than {MANY} steps"),
    }
}

/// Whether a check takes more steps than it may, though it was stopped at those.
fn runs_out(schema: &Schema, value: &Value) -> bool {
    let (verdict, steps) = schema.check(value, MANY);
    assert!(steps <= MANY);
    verdict == Verdict::OutOfSteps
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
            check(&schema, &value).unwrap_or_else(|mismatch| panic!("{text} and {value}: {mismatch}"));
        }
        for value in no {
            check(&schema, &value).expect_err(&format!("{text} and {value}"));
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
    let mismatch = |value: Value| check(&schema, &value).unwrap_err().to_string();
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
    let found = check(&schema, &Value::from(vec![secret; 100])).unwrap_err();
    assert_eq!(found.places.len(), PLACES_MAX);
    assert_eq!(found.places[0].pointer, "/0");
    assert!(!found.to_string().contains("secret"), "{found}");

    let long = "n".repeat(5000);
    let schema = self::schema(&json!({"additionalProperties": false}));
    let found = check(&schema, &json!({ long: 1 })).unwrap_err().to_string();
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
    check(&schema, &Value::from(format!("{}!", "a".repeat(100_000)))).unwrap_err();
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
    check(&schema, &json!({"id": text(100), "name": "Zoë 2"})).unwrap_err();
    assert!(runs_out(&schema, &json!({"id": text(10_000)})));
    // Text that meets no pattern may be as long as it likes.
    check(&schema, &json!({"name": "Zoë 2", "body": text(1_000_000)})).unwrap();
    let many: serde_json::Map<String, Value> =
        (0..100).map(|n| (format!("{n} {}", text(2000)), json!(1))).collect();
    let many = Value::Object(many);
    assert!(runs_out(&self::schema(&json!({"propertyNames": {"not": {"pattern": slow}}})), &many));
    assert!(runs_out(&self::schema(&json!({"patternProperties": {slow: false}})), &many));
    // A plain pattern is put to a megabyte.
    check(&self::schema(&json!({"pattern": "^[ab]+$"})), &Value::from(text(1_000_000))).unwrap();
}

#[test]
fn values_with_the_same_hash_are_told_apart_in_bounded_time() {
    let schema = schema(&json!({"uniqueItems": true}));
    // Lists of empty lists: the bits of a number, in shapes.
    let shape = |number: u32| {
        let bits = (0..16).map(|bit| if number >> bit & 1 == 1 { json!([[]]) } else { json!([]) });
        Value::from(bits.collect::<Vec<_>>())
    };
    let mut items: Vec<Value> = (0..5000).map(shape).collect();
    check(&schema, &Value::from(items.clone())).unwrap();
    items.push(shape(7));
    check(&schema, &Value::from(items)).unwrap_err();
    for (one, other) in
        [(json!(1), json!(1.0)), (json!({"a": [0]}), json!({"a": [-0.0]})), (json!(null), json!(null))]
    {
        check(&schema, &json!([one, "x", other, false])).unwrap_err();
    }
    check(&schema, &json!([1, 1.5, "1", [1], {"a": 1}, {"a": 2}, {"b": 1}, true, null, 1e300, u64::MAX]))
        .unwrap();
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
    assert!(refused(&ladder(30, doubling)).contains("expected at most 100000 schemas that are gone through"));
    let asking_again =
        |next: Value| json!({"properties": {"x": {"allOf": [next], "unevaluatedProperties": false}}});
    schema(&ladder(5, asking_again));
    let said = refused(&ladder(20, asking_again));
    assert!(said.contains("/properties/x/allOf: expected at most 100000 schemas"), "{said}");
}

#[test]
fn a_schema_that_doubles_the_work_with_each_level_is_refused_and_says_where() {
    // 554 bytes: each level is gone through by itself, and once more to learn what it looked at.
    let mut evil = json!({"type": "string"});
    let mut value = json!(1);
    for _ in 0..21 {
        evil = json!({"unevaluatedProperties": evil});
        value = json!({"a": value});
    }
    let said = refused(&evil);
    assert!(
        said.contains("/unevaluatedProperties: expected at most") && said.contains("additionalProperties"),
        "{said}"
    );
    // Few enough levels are checked.
    for _ in 0..11 {
        evil = evil["unevaluatedProperties"].take();
        value = value["a"].take();
    }
    check(&schema(&evil), &value).unwrap_err();
    // Alternatives that say the same of the same part.
    let twice = |next: Value| json!({"anyOf": [{"properties": {"a": next}}, {"properties": {"a": next}}]});
    assert!(refused(&ladder(22, twice)).contains("/anyOf: expected at most"));
    assert!(
        refused(&json!({"allOf": vec![json!({"anyOf": vec![json!({}); 200]}); 60]})).contains("one value")
    );
}

#[test]
fn what_a_schema_may_say_is_cut_off_where_its_value_makes_it_dear() {
    // Nothing of this is too much by itself; with a value that is made for it, each is.
    let branches =
        |inner: Value| json!({"anyOf": vec![json!({"items": inner, "contains": {"const": "z"}}); 200]});
    let cases = [
        (json!({"items": branches(json!({"enum": ["a", "b"]}))}), json!(vec![vec!["a"; 2000]; 200])),
        (json!({"items": {"allOf": vec![json!({}); 9000]}}), json!(vec![1; 100_000])),
        (
            json!({"items": {"enum": (0..4000).map(|n| json!([n])).collect::<Vec<_>>()}}),
            json!(vec![[3999]; 100_000]),
        ),
        (json!({"items": {"const": vec![0; 5000]}}), json!(vec![vec![0; 5000]; 6000])),
        (json!({"allOf": vec![json!({"uniqueItems": true}); 200]}), json!((0..50_000).collect::<Vec<_>>())),
        (
            json!({"items": {"allOf": vec![json!({"maxLength": 9_000_000}); 2000]}}),
            json!(vec!["x".repeat(20_000); 100]),
        ),
    ];
    for (text, value) in cases {
        let schema = schema(&text);
        assert!(runs_out(&schema, &value), "{}", cut(&text.to_string()));
        check(&schema, &json!([])).unwrap();
    }
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
    check(&schema, &value).unwrap();
    *value.pointer_mut("/kids/0/kids/0/kids/0/kids/0/kids/0/kids/0/kind").unwrap() = json!("none");
    let found = check(&schema, &value).unwrap_err();
    assert_eq!(found.places.len(), 1, "too many ways to say more: {found}");
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
    check(&schema, &value).unwrap();
    assert!(check(&schema, &json!({ "a": value })).unwrap_err().to_string().contains("levels"));
}

#[test]
fn a_large_value_is_told_its_first_mismatch() {
    let schema = schema(&json!({"items": {"type": "integer"}}));
    let mut items = vec![json!(1); 50_000];
    items[40_000] = json!("x");
    items[40_001] = json!("x");
    let found = check(&schema, &Value::from(items)).unwrap_err();
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
            && let Err(mismatch) = check(&schema, &value)
        {
            prop_assert!(!mismatch.places.is_empty() && mismatch.places.len() <= PLACES_MAX);
        }
    }

    /// However few steps there are, a check ends: it takes no more than it was given, and then finds its way out without
    /// going through the value. With enough steps it says what the validator says that nobody meters.
    #[test]
    fn a_check_stays_within_its_steps(text in schema_like(), value in schema_like(), steps in 0_u64..400) {
        if let Ok(schema) = Schema::compile(&text.to_string()) {
            let draft = draft(&text).unwrap();
            let free = jsonschema::options().with_draft(draft).should_validate_formats(false).offline();
            let matches = free.build(&text).unwrap().is_valid(&value);
            let (verdict, taken) = schema.run(steps, |validator| validator.is_valid(Metered(&value)));
            prop_assert!(taken <= steps);
            match verdict {
                Some(verdict) => prop_assert_eq!(verdict, matches),
                None => prop_assert!(meter::late() <= 64 * shape::on_one_value(&text), "{} looks", meter::late()),
            }
            prop_assert_eq!(schema.check(&value, MANY).0 == Verdict::Matches, matches);
        }
    }

    #[test]
    fn no_text_makes_a_panic(text in "\\PC{0,64}") {
        let _ = Schema::compile(&text);
    }
}
