//! JSON Web Tokens: which are accepted, which are not and why, and how the issuer's keys come and go.
//!
//! - [`issuer`]: somebody who signs tokens with keys of their own, and serves the keys
//! - [`checks`]: one token at a time
//! - [`rotation`]: keys that change while the server runs

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod issuer;

mod checks;
mod rotation;
