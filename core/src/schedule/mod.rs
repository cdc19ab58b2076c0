//! What goes next, to whom, and when again: order within a peer, shares between classes, backoff.

mod fair;
mod retry;

pub use fair::Shares;
pub use retry::{Backoff, jitter_key};

#[cfg(test)]
mod tests;
