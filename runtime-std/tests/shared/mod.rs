//! Tests of a runtime, whichever the including crate calls `runtime`: both must pass the same.
#![allow(dead_code, unreachable_pub)]

#[path = "../../../core/tests/link/pki.rs"]
pub mod pki;
#[path = "../../../core/tests/link/sessions.rs"]
pub mod sessions;
pub mod support;
