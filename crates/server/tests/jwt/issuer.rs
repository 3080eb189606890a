//! Somebody who signs tokens with keys of their own, and serves the keys.

// No test file needs all of it.
#![allow(dead_code)]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair,
    RSA_PKCS1_SHA256, RSA_PSS_SHA256, RsaKeyPair,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use handover_desk::identity::jwt::Verifier;
use handover_desk::identity::jwt::keys::KeySet;
use handover_desk::identity::jwt::settings::{ALGORITHMS, Settings};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

pub const ISSUER: &str = "https://issuer.example";
pub const AUDIENCE: &str = "handover";

/// What most plays accept.
pub fn settings() -> Settings {
    Settings {
        issuer: ISSUER.to_owned(),
        audience: vec!["another".to_owned(), AUDIENCE.to_owned()],
        algorithms: ALGORITHMS.iter().map(|(_, algorithm)| *algorithm).collect(),
        skew_seconds: 60,
        tenant_claim: "tenant".to_owned(),
        refresh: Duration::from_secs(3600),
    }
}

/// Checks tokens with these keys.
pub fn verifier(keys: &[&Key]) -> Verifier {
    let verifier = Verifier::new(settings());
    verifier.set_keys(KeySet::parse(set(keys).as_bytes()).unwrap());
    verifier
}

/// The seconds of the Unix epoch.
pub fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()
}

/// The claims of a token of `planner` that is good for an hour.
pub fn claims() -> Value {
    json!({ "iss": ISSUER, "aud": AUDIENCE, "sub": "planner", "exp": now() + 3600 })
}

/// Claims with some of them changed; null takes one away.
pub fn claims_with(changes: Value) -> Value {
    let mut claims = claims();
    for (name, value) in changes.as_object().unwrap() {
        if value.is_null() {
            claims.as_object_mut().unwrap().remove(name);
        } else {
            claims[name] = value.clone();
        }
    }
    claims
}

pub fn base64url(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

enum Pair {
    Rsa(RsaKeyPair),
    Pss(RsaKeyPair),
    Ec(EcdsaKeyPair, &'static str),
    Ed(Ed25519KeyPair),
}

/// A key of an issuer.
pub struct Key {
    pub id: &'static str,
    pub algorithm: &'static str,
    pair: Pair,
}

impl Key {
    pub fn rsa(id: &'static str) -> Key {
        Key { id, algorithm: "RS256", pair: Pair::Rsa(RsaKeyPair::generate(KeySize::Rsa2048).unwrap()) }
    }

    pub fn pss(id: &'static str) -> Key {
        Key { id, algorithm: "PS256", pair: Pair::Pss(RsaKeyPair::generate(KeySize::Rsa2048).unwrap()) }
    }

    pub fn ec(id: &'static str) -> Key {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        Key { id, algorithm: "ES256", pair: Pair::Ec(pair, "P-256") }
    }

    pub fn ec384(id: &'static str) -> Key {
        let pair = EcdsaKeyPair::generate(&ECDSA_P384_SHA384_FIXED_SIGNING).unwrap();
        Key { id, algorithm: "ES384", pair: Pair::Ec(pair, "P-384") }
    }

    pub fn ed(id: &'static str) -> Key {
        Key { id, algorithm: "EdDSA", pair: Pair::Ed(Ed25519KeyPair::generate().unwrap()) }
    }

    /// The part that everybody may know.
    pub fn public(&self) -> Value {
        let mut jwk = match &self.pair {
            Pair::Rsa(pair) | Pair::Pss(pair) => {
                let public = pair.public_key();
                let n = base64url(public.modulus().big_endian_without_leading_zero());
                let e = base64url(public.exponent().big_endian_without_leading_zero());
                json!({ "kty": "RSA", "n": n, "e": e })
            }
            Pair::Ec(pair, curve) => {
                let (x, y) = pair.public_key().as_ref()[1..].split_at(pair.public_key().as_ref().len() / 2);
                json!({ "kty": "EC", "crv": curve, "x": base64url(x), "y": base64url(y) })
            }
            Pair::Ed(pair) => {
                json!({ "kty": "OKP", "crv": "Ed25519", "x": base64url(pair.public_key().as_ref()) })
            }
        };
        jwk["kid"] = self.id.into();
        jwk["use"] = "sig".into();
        jwk
    }

    /// The bytes of the public key, as somebody might take them for a secret.
    pub fn public_bytes(&self) -> Vec<u8> {
        match &self.pair {
            Pair::Rsa(pair) | Pair::Pss(pair) => pair.public_key().as_ref().to_vec(),
            Pair::Ec(pair, _) => pair.public_key().as_ref().to_vec(),
            Pair::Ed(pair) => pair.public_key().as_ref().to_vec(),
        }
    }

    pub fn signature(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        let rsa = |pair: &RsaKeyPair, padding| {
            let mut signature = vec![0; pair.public_modulus_len()];
            pair.sign(padding, &random, message, &mut signature).unwrap();
            signature
        };
        match &self.pair {
            Pair::Rsa(pair) => rsa(pair, &RSA_PKCS1_SHA256),
            Pair::Pss(pair) => rsa(pair, &RSA_PSS_SHA256),
            Pair::Ec(pair, _) => pair.sign(&random, message).unwrap().as_ref().to_vec(),
            Pair::Ed(pair) => pair.sign(message).as_ref().to_vec(),
        }
    }

    /// A token with these claims.
    pub fn token(&self, claims: &Value) -> String {
        let header = json!({ "alg": self.algorithm, "typ": "JWT", "kid": self.id });
        self.signed(&header, claims.to_string().as_bytes())
    }

    /// Whatever this is, signed.
    pub fn signed(&self, header: &Value, claims: &[u8]) -> String {
        let message = format!("{}.{}", base64url(header.to_string().as_bytes()), base64url(claims));
        let signature = self.signature(message.as_bytes());
        format!("{message}.{}", base64url(&signature))
    }
}

/// A JWK set.
pub fn set(keys: &[&Key]) -> String {
    json!({ "keys": keys.iter().map(|key| key.public()).collect::<Vec<_>>() }).to_string()
}

/// Serves a key set over HTTP on this machine.
pub struct Served {
    pub address: SocketAddr,
    answer: Arc<Mutex<String>>,
    asked: Arc<AtomicUsize>,
}

impl Served {
    pub async fn new(keys: &[&Key]) -> Served {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let answer = Arc::new(Mutex::new(ok(&set(keys))));
        let asked = Arc::new(AtomicUsize::new(0));
        let (answers, count) = (Arc::clone(&answer), Arc::clone(&asked));
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    if stream.read(&mut byte).await.unwrap_or(0) == 0 {
                        break;
                    }
                    request.push(byte[0]);
                }
                let answer = answers.lock().unwrap().clone();
                _ = stream.write_all(answer.as_bytes()).await;
                count.fetch_add(1, Ordering::SeqCst);
            }
        });
        Served { address, answer, asked }
    }

    pub fn url(&self) -> String {
        format!("http://{}/keys", self.address)
    }

    /// Answer with these keys from now on.
    pub fn serve(&self, keys: &[&Key]) {
        self.answer(ok(&set(keys)));
    }

    /// Answer with this from now on.
    pub fn answer(&self, answer: String) {
        *self.answer.lock().unwrap() = answer;
    }

    /// How often it has answered.
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

pub fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}
