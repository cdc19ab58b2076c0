//! What goes next, to whom, and when: order within a peer, shares between classes, pace, contact
//! windows, backoff.

mod ahead;
mod contact;
mod fair;
mod rate;
mod retry;

pub use ahead::Ahead;
pub use contact::{Contact, ContactFault};
pub use fair::Shares;
pub use rate::Pace;
pub use retry::{Backoff, jitter_key};

#[cfg(test)]
mod tests;
