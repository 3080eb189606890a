//! Requests that Python's `cryptography` signed over Python's canonical form, and what is wrong with others.

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use serde_json::{Value, json};

use super::*;

/// When they were signed.
const NOW: Timestamp = Timestamp(1_785_231_000_000);

struct Vector {
    public_key: &'static str,
    node: &'static str,
    canonical: &'static str,
    body: &'static str,
}

const VECTORS: [Vector; 4] = [
    Vector {
        public_key: "ea4a6c63e29c520abef5507b132ec5f9954776aebebe7b92421eea691446d22c",
        node: "222b7143-486e-5d28-a0aa-aa327d062b22",
        canonical: "{\"fromNodeId\": \"222b7143-486e-5d28-a0aa-aa327d062b22\", \"id\": 1, \"jsonrpc\": \"2.0\", \"method\": \"task/list\", \"nonce\": \"0123456789abcdef0123456789abcdef\", \"params\": {}, \"timestamp\": 1785231000}",
        body: "{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"task/list\", \"params\": {}, \"timestamp\": 1785231000, \"nonce\": \"0123456789abcdef0123456789abcdef\", \"fromNodeId\": \"222b7143-486e-5d28-a0aa-aa327d062b22\", \"signature\": \"8bb9505d5b54a437f80d0dd82f8c3f0ce5e506dfd69ce30229e4946971564d1029f5c8496e73cda58a16e6dcf59715eb91614121e2d0e8f73672d6efef5ff004\"}",
    },
    Vector {
        public_key: "1398f62c6d1a457c51ba6a4b5f3dbd2f69fca93216218dc8997e416bd17d93ca",
        node: "776a60d5-83a1-543b-b59e-8366d86f2da5",
        canonical: "{\"Zebra\": \"Z\", \"fromNodeId\": \"776a60d5-83a1-543b-b59e-8366d86f2da5\", \"nonce\": \"ffffffffffffffffffffffffffffffff\", \"timestamp\": 1785231000.25, \"z\": {\"\": 0, \"a\": {\"x\": [true, false, [], {}], \"y\": null}, \"b\": [1, 2.0, 1e-07, 1.0, -0.0, 1e+22, 123456789012345678901234567890]}, \"äpfel\": \"über 🦀 日本\"}",
        body: "{\n   \"z\": {\n      \"b\": [\n         1,\n         2.0,\n         1e-07,\n         1.0,\n         -0.0,\n         1e+22,\n         123456789012345678901234567890\n      ],\n      \"a\": {\n         \"y\": null,\n         \"x\": [\n            true,\n            false,\n            [],\n            {}\n         ]\n      },\n      \"\": 0\n   },\n   \"Zebra\": \"Z\",\n   \"\\u00e4pfel\": \"\\u00fcber \\ud83e\\udd80 \\u65e5\\u672c\",\n   \"timestamp\": 1785231000.25,\n   \"nonce\": \"ffffffffffffffffffffffffffffffff\",\n   \"fromNodeId\": \"776a60d5-83a1-543b-b59e-8366d86f2da5\",\n   \"signature\": \"abd70e2429db0f23e20b0a6a4aed69c9098b24ba10c40dd301e9387189ffc87a43ea6b35de3f2f7129addf61ffed5fbc74dc80d340bad2a3bcaa61bfe6cebc03\"\n}",
    },
    Vector {
        public_key: "fd1724385aa0c75b64fb78cd602fa1d991fdebf76b13c58ed702eac835e9f618",
        node: "7230e4ad-86bc-5587-8548-3c9248cd5270",
        canonical: "{\"\\n\": \"line\", \"a\\\"b\": 1, \"aB\": 2, \"esc\": \"\\\"\\\\\\n\\r\\t\\f\\b\\u0000\\u001f\u{7f}/\u{2028}é\u{85}\", \"fromNodeId\": \"7230e4ad-86bc-5587-8548-3c9248cd5270\", \"nonce\": \"00ff00ff00ff00ff00ff00ff00ff00ff\", \"timestamp\": \"2026-07-28T09:30:00.5+00:00\", \"\u{ffff}\": 4, \"🦀\": 3}",
        body: "{\"esc\":\"\\\"\\\\\\n\\r\\t\\f\\b\\u0000\\u001f\u{7f}/\u{2028}é\u{85}\",\"\\n\":\"line\",\"a\\\"b\":1,\"aB\":2,\"🦀\":3,\"\u{ffff}\":4,\"timestamp\":\"2026-07-28T09:30:00.5+00:00\",\"nonce\":\"00ff00ff00ff00ff00ff00ff00ff00ff\",\"fromNodeId\":\"7230e4ad-86bc-5587-8548-3c9248cd5270\",\"signature\":\"b1301b499fc49eea51e76570b7b78aff9a749d3015d9ac50e13b164bfb5da55c7e8ab523bc3142ba9fb930f0759ec825a16b41e3a499dbef2bd02e455f28b80b\"}",
    },
    Vector {
        public_key: "43a72e714401762df66b68c26dfbdf2682aaec9f2474eca4613e424a0fbafd3c",
        node: "4167987b-6900-501a-b279-ad00e3b3975e",
        canonical: "{\"fromNodeId\": \"4167987b-6900-501a-b279-ad00e3b3975e\", \"nonce\": \"deadbeefdeadbeefdeadbeefdeadbeef\", \"params\": {\"message\": {\"parts\": [{\"text\": \"Grüße,\\n</script>\", \"type\": \"text\"}, {\"data\": {\"10\": 1, \"9\": 2, \"e\": 4, \"é\": 3}, \"type\": \"data\"}], \"role\": \"user\"}}, \"timestamp\": 1785231000123}",
        body: "{\"signature\": \"b9722c0f0854d3e1cb1cb5f1a5ccf9539b4c0785d797c043b4529c8895f394acf33724d3783d5643ac2dc94ae1274d429e98b4fc68a015c2cf20633bac879f0f\", \"fromNodeId\": \"4167987b-6900-501a-b279-ad00e3b3975e\", \"nonce\": \"deadbeefdeadbeefdeadbeefdeadbeef\", \"timestamp\": 1785231000123, \"params\": {\"message\": {\"role\": \"user\", \"parts\": [{\"type\": \"text\", \"text\": \"Gr\\u00fc\\u00dfe,\\n</script>\"}, {\"type\": \"data\", \"data\": {\"10\": 1, \"9\": 2, \"\\u00e9\": 3, \"e\": 4}}]}}}",
    },
];

#[test]
fn what_python_signs_is_signed() {
    for vector in VECTORS {
        let key: [u8; 32] = hex(vector.public_key).unwrap();
        assert_eq!(NodeId::of(&key).to_string(), vector.node);
        assert_eq!(canonical(vector.body.as_bytes()).unwrap(), vector.canonical);
        assert_eq!(check(vector.body.as_bytes(), &key, NOW).unwrap().to_string(), vector.node);
    }
}

#[test]
fn another_byte_another_key_or_another_id_is_refused() {
    for (place, vector) in VECTORS.iter().enumerate() {
        let key: [u8; 32] = hex(vector.public_key).unwrap();
        let other: [u8; 32] = hex(VECTORS[(place + 1) % VECTORS.len()].public_key).unwrap();
        let signed = Signed::read(vector.body.as_bytes()).unwrap();
        assert!(signed.check_signature(&key).is_ok());
        assert!(signed.check_signature(&other).is_err() && signed.check_signature(&key[..31]).is_err());
        assert_eq!(check(vector.body.as_bytes(), &other, NOW), Err("its fromNodeId is not that of its key"));
        let mut body: Value = serde_json::from_str(vector.body).unwrap();
        body["more"] = json!(1);
        assert!(check(body.to_string().as_bytes(), &key, NOW).is_err());
    }
}

/// A body signed with the key of this seed, after a change of what is signed.
fn signed_with(seed: u8, change: impl FnOnce(&mut Value)) -> (Vec<u8>, [u8; 32]) {
    let pair = Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap();
    let key: [u8; 32] = pair.public_key().as_ref().try_into().unwrap();
    let mut body = json!({
        "fromNodeId": NodeId::of(&key).to_string(),
        "timestamp": NOW.0,
        "nonce": "0123456789abcdef0123456789abcdef",
    });
    change(&mut body);
    let signature = pair.sign(canonical(body.to_string().as_bytes()).unwrap().as_bytes());
    let digits: String = signature.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    body["signature"] = json!(digits);
    (body.to_string().into_bytes(), key)
}

#[test]
fn a_timestamp_is_within_five_minutes_on_either_side_in_any_form() {
    let at = |timestamp: Value| {
        let (body, key) = signed_with(1, |body| body["timestamp"] = timestamp);
        check(&body, &key, NOW).map(|_| ())
    };
    let seconds = NOW.0 / 1000;
    for near in [
        json!(seconds),
        json!(seconds - 300),
        json!(seconds + 300),
        json!(NOW.0 - SKEW_MS),
        json!(NOW.0 + SKEW_MS),
        json!(seconds as f64 + 0.5),
        json!("2026-07-28T09:30:00Z"),
        json!("2026-07-28T11:34:59.999+02:00"),
    ] {
        assert_eq!(at(near.clone()), Ok(()), "{near}");
    }
    for far in [
        json!(seconds - 301),
        json!(seconds + 301),
        json!(NOW.0 - SKEW_MS - 1),
        json!(NOW.0 + SKEW_MS + 1),
        json!(seconds as f64 + 300.5),
        json!("2026-07-28T09:24:59Z"),
        json!(0),
        json!(u64::MAX),
        json!(9e10),
    ] {
        let refused = at(far.clone()).unwrap_err();
        assert!(refused.contains("five minutes"), "{far}: {refused}");
    }
    for wrong in
        [json!(null), json!("now"), json!(-1), json!(1e300), json!(-0.5), json!([seconds]), json!(true)]
    {
        assert!(at(wrong.clone()).unwrap_err().contains("expected timestamp"), "{wrong}");
    }
}

#[test]
fn a_field_that_is_missing_or_of_another_shape_is_named() {
    for (field, wrong) in [
        ("nonce", json!("0123456789ABCDEF0123456789ABCDEF")),
        ("nonce", json!("0123456789abcdef0123456789abcde")),
        ("nonce", json!("0123456789abcdef0123456789abcdeg")),
        ("nonce", json!(7)),
        ("fromNodeId", json!("planner")),
        ("fromNodeId", json!("6BA7B810-9DAD-51D1-80B4-00C04FD430C8")),
        ("fromNodeId", json!("6ba7b810-9dad-11d1-80b4-00c04fd430c8")),
        ("fromNodeId", json!("6ba7b8109dad51d180b400c04fd430c8")),
        ("timestamp", json!({})),
        ("signature", json!("00")),
        ("signature", json!("é".repeat(64))),
        ("signature", json!(["00"])),
    ] {
        let (body, _) = signed_with(1, |_| {});
        let mut body: Value = serde_json::from_slice(&body).unwrap();
        body[field] = wrong.clone();
        let refused = Signed::read(body.to_string().as_bytes()).unwrap_err();
        assert!(refused.contains(field), "{field} {wrong}: {refused}");
        body.as_object_mut().unwrap().remove(field);
        assert!(Signed::read(body.to_string().as_bytes()).unwrap_err().contains(field));
    }
    let (body, _) = signed_with(1, |body| body["more"] = json!("x".repeat(BODY_BYTES_MAX)));
    assert_eq!(Signed::read(&body).unwrap_err(), "expected at most 64 KiB");
}

#[test]
fn marks_are_in_the_order_of_time() {
    let mark = |at: u64| {
        let (body, _) = signed_with(1, |body| body["timestamp"] = json!(at));
        Signed::read(&body).unwrap().mark()
    };
    assert!(mark(NOW.0) < mark(NOW.0 + 60_000) && mark(NOW.0) < mark(NOW.0 * 10));
    assert_eq!(mark(NOW.0), mark(NOW.0 + 1), "within a minute a nonce counts once whatever the time");
}
