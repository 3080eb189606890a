//! The console over real connections.
//!
//! - [`others`], [`grid`], [`issuer`]: the stages and clients of the other faces' tests
//! - [`browser`]: what a browser does: cookies, forms, redirects
//! - [`signing_in`]: signing in and out, cookies, and requests of other pages
//! - [`pages`]: every page, empty and full, and what agents write in them
//! - [`approving`]: what an approver sees, and what a click on each button does
//! - [`acts`]: what the forms do, and what they say when they do not
//! - [`live`]: the stream that tells pages to look again
//! - [`webhook`]: who is told elsewhere that something waits

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

// The Grid's client looks for the others beside itself.
#[path = "../grid/client.rs"]
#[allow(dead_code, reason = "no play needs all of it")]
mod grid;
#[path = "../jwt/issuer.rs"]
mod issuer;
#[path = "../grid/others.rs"]
mod others;

mod browser;

mod acts;
mod approving;
mod live;
mod pages;
mod signing_in;
mod webhook;
