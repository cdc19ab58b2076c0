//! Small worlds, tried out to the last: every interleaving and every crash point of every workload
//! of up to three operations between two sites, enumerated, not sampled.

mod check;
mod explore;
mod nth;
mod ops;
mod plans;
mod site;
mod watch;
mod wire;
mod world;

#[cfg(test)]
mod tests;

pub use check::{Broken, Check, Checked};
pub use explore::{Bounds, Failure, Report, explore, replay};
pub use nth::{Call, Calls, Fault, NthFailure, Story, fail_at, fail_each};
pub use ops::{CHECKPOINT, Choice, INLINE, NAMES, Op, What, other, workloads};
pub use plans::{ALWAYS, FULL, Plan};
pub use world::{Rules, World};
