//! The Consign product as a library: what the binary, the tests and the benches use.

pub mod admin;
mod below;
pub mod bench;
pub mod cli;
pub mod client;
pub mod cmd;
pub mod codes;
pub mod config;
pub mod daemon;
pub mod events;
pub mod exit;
pub mod human;
pub mod inbox;
pub mod log;
pub mod meters;
pub mod out;
pub mod page;
pub mod pickup;
pub mod pki;
mod plain;
pub mod record;
mod replace;
pub mod schemas;
pub mod service;
pub mod sim;
pub mod tls;
pub mod watch;
