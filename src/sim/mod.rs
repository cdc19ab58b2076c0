//! The simulator: a network of sites that lives in one thread, on virtual time, from one number.
//!
//! ```text
//!   seed ─▶ swarm (options) ─▶ World ── one event queue ──▶ Site: Pump + Conn + Session (the real ones)
//!                               │                            ├─ SimStore: rows, files, sync points, faults
//!                               │                            └─ clocks: skew, steps, freezes
//!                               ├─ Net: latency, cuts, half-open, clogs
//!                               └─ Audit: sees everything, shares no decision with the core
//! ```
//!
//! Nothing here reads a clock or draws from the system's randomness: the same seed and options give the
//! same trace hash on every machine. A run has a *safety* phase, in which everything may fail, and a
//! *liveness* phase, in which nothing fails any more and everything owed must come to its end.

pub mod audit;
pub mod client;
pub mod clocks;
pub mod keeping;
mod life;
pub mod net;
mod people;
pub mod pickup;
pub mod process;
pub mod queue;
pub mod reload;
pub mod rng;
pub mod run;
pub mod scenario;
pub mod seen;
mod setup;
pub mod shrink;
pub mod small;
pub mod store;
pub mod swarm;
pub mod tight;
pub mod time;
pub mod watch;
mod weather;
pub mod wire;
mod workload;
pub mod world;
