//! One token at a time.

use aws_lc_rs::hmac;
use handover_desk::identity::jwt::keys::KeySet;
use handover_desk::identity::jwt::{TOKEN_BYTES_MAX, Verifier, header};
use handover_desk::identity::tokens::{Tokens, hash_text};
use handover_desk::identity::{Identity, Principal, Unauthenticated};
use handover_kernel::Timestamp;
use serde_json::{Value, json};
use std::sync::Arc;

use super::issuer::*;

/// Whose token this is now, or else why it is nobody's.
fn checked(verifier: &Verifier, token: &str) -> Result<Principal, &'static str> {
    verifier.verify(token, &header(token).expect("it has the shape of a token"), Timestamp(now() * 1000))
}

/// A `planner` of the default tenant without roles, beside what is expected of it.
fn assert_planner(found: Principal) {
    assert_eq!((found.agent.as_str(), &*found.tenant), ("planner", "default"));
    assert!(!found.observer && !found.admin && found.proven);
}

#[test]
fn a_token_signed_in_any_accepted_way_is_its_subjects() {
    let keys = [Key::rsa("r"), Key::pss("p"), Key::ec("e"), Key::ec384("e384"), Key::ed("d")];
    let verifier = verifier(&keys.each_ref());
    for key in &keys {
        let token = key.token(&claims());
        for turn in ["checked", "remembered"] {
            let found =
                checked(&verifier, &token).unwrap_or_else(|why| panic!("{} {turn}: {why}", key.algorithm));
            assert_planner(found);
        }
    }
}

#[test]
fn a_token_says_the_tenant_and_the_roles_of_its_subject() {
    let key = Key::ed("d");
    let verifier = verifier(&[&key]);
    for (roles, observer, admin) in [
        (json!(["observer"]), true, false),
        (json!(["king", "admin", 7, "observer"]), true, true),
        (json!("admin"), false, true),
        (json!("queen observer"), true, false),
        (json!(["administrator", "Admin", "admin "]), false, false),
        (json!({ "admin": true }), false, false),
        (json!(true), false, false),
    ] {
        let token = key.token(&claims_with(json!({ "tenant": "acme", "roles": roles })));
        let found = checked(&verifier, &token).unwrap();
        assert_eq!((&*found.tenant, found.observer, found.admin), ("acme", observer, admin), "{roles}");
    }
}

#[test]
fn the_clocks_may_differ_by_the_skew_and_no_more() {
    let key = Key::ed("d");
    let verifier = verifier(&[&key]);
    // Ten seconds to spare on each side, because the machine may be busy.
    for good in [
        json!({ "exp": now() - 50 }),
        json!({ "nbf": now() + 50 }),
        json!({ "iat": now() + 50 }),
        json!({ "exp": now() as f64 + 0.5 }),
        json!({ "aud": ["x", AUDIENCE] }),
        json!({ "aud": "another" }),
    ] {
        assert_planner(checked(&verifier, &key.token(&claims_with(good))).unwrap());
    }
    let token = key.token(&claims());
    let expires_at = checked(&verifier, &token).unwrap().expires_at.unwrap();
    assert!(expires_at.0.abs_diff((now() + 3600 + 60) * 1000) < 30_000);
    let late = verifier.verify(&token, &header(&token).unwrap(), expires_at);
    assert_eq!(late, Err("the token has expired"), "a token that is remembered expires as well");
}

#[test]
fn a_token_that_is_not_right_is_refused_with_the_reason() {
    let (rsa, ec, ed, stranger) = (Key::rsa("r"), Key::ec("e"), Key::ed("d"), Key::ec("e"));
    let verifier = verifier(&[&rsa, &ec, &ed]);
    let with = |changes: Value| ec.token(&claims_with(changes));
    let headed = |header: Value| ec.signed(&header, claims().to_string().as_bytes());
    let good = ec.token(&claims());
    let [head, body, signature]: [&str; 3] = good.split('.').collect::<Vec<_>>().try_into().unwrap();
    let other = base64url(claims_with(json!({ "sub": "chief" })).to_string().as_bytes());
    let none = |name: &str| format!("{}.{body}.", base64url(json!({ "alg": name }).to_string().as_bytes()));
    let confused = {
        let message =
            format!("{}.{body}", base64url(json!({ "alg": "HS256", "kid": "r" }).to_string().as_bytes()));
        let secret = hmac::Key::new(hmac::HMAC_SHA256, &rsa.public_bytes());
        format!("{message}.{}", base64url(hmac::sign(&secret, message.as_bytes()).as_ref()))
    };
    let cases = [
        (with(json!({ "iss": "https://other" })), "its issuer is another"),
        (with(json!({ "iss": null })), "it does not say who issued it"),
        (with(json!({ "iss": 7 })), "it does not say who issued it"),
        (with(json!({ "aud": "other" })), "its audience is another"),
        (with(json!({ "aud": ["other"] })), "its audience is another"),
        (with(json!({ "aud": [] })), "its audience is another"),
        (with(json!({ "aud": null })), "it does not say for whom it is"),
        (with(json!({ "exp": now() - 70 })), "the token has expired"),
        (with(json!({ "exp": 0 })), "the token has expired"),
        (with(json!({ "exp": null })), "it does not say when it expires"),
        (with(json!({ "exp": "tomorrow" })), "it does not say when it expires"),
        (with(json!({ "exp": -1 })), "it does not say when it expires"),
        (with(json!({ "nbf": now() + 120 })), "the token is not valid yet"),
        (with(json!({ "nbf": "now" })), "one of its times is not a number"),
        (with(json!({ "iat": now() + 120 })), "it was issued in the future"),
        (with(json!({ "iat": "now" })), "one of its times is not a number"),
        (with(json!({ "sub": null })), "it does not say whose it is"),
        (with(json!({ "sub": 7 })), "it does not say whose it is"),
        (with(json!({ "sub": "" })), "an agent id is not empty"),
        (with(json!({ "sub": "a\nb" })), "an agent id has visible characters only"),
        (with(json!({ "sub": "plan\u{200b}ner" })), "an agent id has visible characters only"),
        (with(json!({ "sub": "a".repeat(257) })), "an agent id has at most 256 bytes"),
        (with(json!({ "tenant": "" })), "its tenant cannot be the name of one"),
        (with(json!({ "tenant": ["acme"] })), "its tenant cannot be the name of one"),
        (none("none"), "its algorithm is not accepted"),
        (none("None"), "its algorithm is not accepted"),
        (none(""), "its algorithm is not accepted"),
        (headed(json!({ "kid": "e" })), "its algorithm is not accepted"),
        (headed(json!({ "alg": ["ES256"], "kid": "e" })), "its algorithm is not accepted"),
        (confused, "its algorithm is not accepted"),
        (headed(json!({ "alg": "ES256", "kid": "other" })), "its key is not known"),
        (headed(json!({ "alg": "ES256", "kid": 7 })), "the name of its key is not text"),
        (headed(json!({ "alg": "ES256", "kid": "r" })), "its algorithm is not that of its key"),
        (headed(json!({ "alg": "ES384", "kid": "e" })), "its algorithm is not that of its key"),
        (headed(json!({ "alg": "RS256", "kid": "r" })), "its signature is not that of its key"),
        (headed(json!({ "alg": "EdDSA", "kid": "d" })), "its signature is not that of its key"),
        (
            headed(json!({ "alg": "ES256", "kid": "e", "crit": ["b64"], "b64": false })),
            "it needs an extension",
        ),
        (stranger.token(&claims()), "its signature is not that of its key"),
        (format!("{head}.{other}.{signature}"), "its signature is not that of its key"),
        (format!("{head}.{body}."), "its signature is not that of its key"),
        (ec.signed(&json!({ "alg": "ES256", "kid": "e" }), b"\"planner\""), "it is not a well-formed token"),
        (
            ec.signed(&json!({ "alg": "ES256", "kid": "e" }), b"{\"sub\": \"\xff\"}"),
            "it is not a well-formed token",
        ),
        (ec.signed(&json!({ "alg": "ES256", "kid": "e" }), b""), "it is not a well-formed token"),
        (with(json!({ "x": "x".repeat(TOKEN_BYTES_MAX) })), "it is longer than any token"),
    ];
    for (token, expected) in cases {
        let why = checked(&verifier, &token).map(|_| expected).unwrap_err();
        assert!(why.starts_with(expected), "expected {expected:?}, found {why:?}");
    }
    assert_planner(checked(&verifier, &good).unwrap());
}

#[test]
fn a_token_that_names_no_key_is_accepted_if_only_one_fits() {
    let (one, two, ed) = (Key::ec("one"), Key::ec("two"), Key::ed("d"));
    let unnamed = |key: &Key| key.signed(&json!({ "alg": key.algorithm }), claims().to_string().as_bytes());
    let alone = verifier(&[&one, &ed]);
    assert_planner(checked(&alone, &unnamed(&one)).unwrap());
    assert_planner(checked(&alone, &unnamed(&ed)).unwrap());
    let both = verifier(&[&one, &two, &ed]);
    let why = "it names no key, and there is not exactly one that fits";
    assert_eq!(checked(&both, &unnamed(&one)), Err(why));
    assert_eq!(checked(&verifier(&[&ed]), &unnamed(&one)), Err(why));
}

#[test]
fn keys_that_are_not_for_these_signatures_are_passed_over() {
    let (ec, rsa) = (Key::ec("e"), Key::rsa("r"));
    let with = |key: &Key, name: &str, value: Value| {
        let mut jwk = key.public();
        jwk[name] = value;
        jwk
    };
    for unusable in [
        with(&ec, "use", json!("enc")),
        with(&ec, "key_ops", json!(["encrypt"])),
        with(&ec, "alg", json!("ES384")),
        with(&ec, "alg", json!("RSA-OAEP")),
        with(&ec, "crv", json!("P-521")),
        with(&ec, "crv", json!("secp256k1")),
        with(&ec, "x", json!("***")),
        with(&ec, "kty", json!("of another kind")),
        json!({ "kty": "oct", "kid": "e", "k": base64url(b"secret"), "alg": "HS256" }),
        json!("no key"),
    ] {
        let keys = KeySet::parse(json!({ "keys": [unusable] }).to_string().as_bytes()).unwrap();
        assert!(keys.is_empty(), "{unusable}");
    }
    // A key that says its algorithm is good for no other.
    let set = json!({ "keys": [with(&rsa, "alg", json!("PS256"))] }).to_string();
    let verifier = Verifier::new(settings());
    verifier.set_keys(KeySet::parse(set.as_bytes()).unwrap());
    assert_eq!(checked(&verifier, &rsa.token(&claims())), Err("its algorithm is not that of its key"));

    for (wrong, expected) in [
        ("", "found no JSON"),
        ("[]", "without a list of keys"),
        ("{}", "without a list of keys"),
        ("{\"keys\": 1}", "without a list of keys"),
    ] {
        let why = KeySet::parse(wrong.as_bytes()).err().unwrap();
        assert!(why.ends_with(expected), "{why}");
    }
}

#[test]
fn only_the_listed_algorithms_are_accepted() {
    let (ec, ed) = (Key::ec("e"), Key::ed("d"));
    let verifier = Verifier::new(handover_desk::identity::jwt::settings::Settings {
        algorithms: vec![jsonwebtoken::Algorithm::EdDSA],
        ..settings()
    });
    verifier.set_keys(KeySet::parse(set(&[&ec, &ed]).as_bytes()).unwrap());
    assert_planner(checked(&verifier, &ed.token(&claims())).unwrap());
    assert_eq!(checked(&verifier, &ec.token(&claims())), Err("its algorithm is not accepted"));
}

#[test]
fn what_has_the_shape_of_a_jwt_is_checked_as_one_and_everything_else_is_a_static_token() {
    let key = Key::ed("d");
    let file = |token: &str, agent: &str| {
        format!("[[token]]\nsha256 = \"{}\"\nagent = \"{agent}\"\n", hash_text(token))
    };
    let texts =
        ["plain", "a.b.c", "with.two", "e30.e30.not base64", "e30", "bm90IGpzb24.e30.e30", "W10.e30.e30"];
    let expired = key.token(&claims_with(json!({ "exp": 0 })));
    let all = texts.map(|text| file(text, "worker")).concat() + &file(&expired, "chief");
    let tokens = Arc::new(Tokens::parse(&all).unwrap());
    let identity = Identity::Jwt(Arc::new(verifier(&[&key])), tokens);
    for text in texts {
        assert_eq!(identity.authenticate(Some(text)).unwrap().agent.as_str(), "worker", "{text}");
    }
    assert_planner(identity.authenticate(Some(&key.token(&claims()))).unwrap());
    // A JWT is never looked up among the static tokens, whatever they say.
    let refused = identity.authenticate(Some(&expired)).unwrap_err();
    assert_eq!(refused, Unauthenticated::Refused { why: "the token has expired" });
    assert!(!format!("{refused} {refused:?} {identity:?}").contains(&expired));
    assert!(matches!(identity.authenticate(Some("unknown")), Err(Unauthenticated::Refused { .. })));
}
