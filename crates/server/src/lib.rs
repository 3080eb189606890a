//! The server library.
