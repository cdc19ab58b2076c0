//! The Consign product as a library: what the binary, the tests and the benches use.

pub mod config;
pub mod exit;
pub mod pki;
pub mod tls;
