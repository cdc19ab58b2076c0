//! The pure core of Consign: framing, sessions, lifecycle, order, retries, ledger rows and the commit
//! gate, as deterministic step functions. No clock, no randomness, no I/O, no logging.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

pub mod code;
pub mod config;
#[cfg(feature = "tls")]
pub mod conn;
#[cfg(feature = "tls")]
pub mod driver;
pub mod gate;
pub mod hash;
pub mod id;
pub mod ledger;
pub mod limits;
#[cfg(feature = "tls")]
pub mod link;
pub mod node;
pub mod pump;
pub mod segment;
#[cfg(feature = "tls")]
pub mod sendbuf;
pub mod session;
pub mod store;
pub mod time;
#[cfg(feature = "tls")]
pub mod tls;
pub mod wire;
