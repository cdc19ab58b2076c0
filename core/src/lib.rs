//! The pure core of Consign: framing, sessions, lifecycle, order, retries, ledger rows and the commit
//! gate, as deterministic step functions. No clock, no randomness, no I/O, no logging.
#![no_std]
#![forbid(unsafe_code)]
#![deny(
    clippy::alloc_instead_of_core,
    clippy::float_arithmetic,
    clippy::indexing_slicing,
    clippy::std_instead_of_alloc,
    clippy::std_instead_of_core,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm
)]
// Tests may stop with a panic: that is how they fail.
#![cfg_attr(
    test,
    allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::wildcard_enum_match_arm)
)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

pub mod act;
pub mod amount;
pub mod code;
pub mod config;
#[cfg(feature = "tls")]
pub mod conn;
pub mod delivery;
#[cfg(feature = "tls")]
pub mod driver;
pub mod gate;
#[cfg(feature = "tls")]
mod handover;
pub mod hash;
#[cfg(feature = "serde")]
mod hexed;
pub mod histogram;
pub mod http;
pub mod id;
pub mod inbox;
pub mod ledger;
pub mod limits;
#[cfg(feature = "tls")]
pub mod link;
pub mod mem;
pub mod node;
pub mod pickup;
pub mod plant;
pub mod pump;
pub mod retention;
pub mod schedule;
pub mod segment;
#[cfg(feature = "tls")]
pub mod sendbuf;
pub mod session;
pub mod store;
mod texted;
pub mod time;
#[cfg(feature = "tls")]
pub mod tls;
pub mod wire;
