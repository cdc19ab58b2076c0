//! What pickup sessions go by.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use crate::http::{Limits, Tell};

/// Fills what it is given with random bytes fit for secrets. The core draws none itself.
pub type FillRandom = Box<dyn FnMut(&mut [u8]) + Send>;

/// What all pickup sessions of a site have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PickupContext {
    /// Authorities it answers to, as `name`, `name:port` or `[address]:port`. A name without a port
    /// stands for that name with any port. With none at all every request is answered 421.
    pub names: Vec<String>,
    /// Bodies up to this length are read before the node is asked, and kept inline.
    pub inline_max: u64,
    /// `buffer.max_upload`.
    pub max_upload: u64,
    /// Of the HTTP half.
    pub limits: Limits,
    /// Silence on a WebSocket after which it is asked for a sign of life, and again after as much.
    pub ping_after: Duration,
    /// Silence after which it is gone.
    pub dead_after: Duration,
    /// A fetch that takes nothing for so long is broken off.
    pub fetch_stall: Duration,
    /// Notifications that may be unanswered.
    pub notify_window: usize,
    /// Who is told of answers.
    pub tell: Option<Tell>,
}

impl PickupContext {
    /// With the times of DESIGN 4 and RELIABILITY 5.
    #[must_use]
    pub fn new(names: Vec<String>, inline_max: u64, max_upload: u64) -> PickupContext {
        PickupContext {
            names,
            inline_max,
            max_upload,
            limits: Limits::default(),
            ping_after: Duration::from_secs(20),
            dead_after: Duration::from_secs(60),
            fetch_stall: Duration::from_secs(30),
            notify_window: 32,
            tell: None,
        }
    }

    /// Whether a Host field names this site.
    pub(super) fn is_named(&self, authority: &str) -> bool {
        let bare = match authority.rsplit_once(':') {
            Some((name, port)) if is_port(port) && !name.is_empty() => name,
            _ => authority,
        };
        let is =
            |name: &String| name.eq_ignore_ascii_case(authority) || name.eq_ignore_ascii_case(bare);
        !authority.is_empty() && self.names.iter().any(is)
    }
}

fn is_port(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_named_is_answered() {
        let names = ["relay.example".into(), "10.0.0.1:7443".into(), "[::1]:7443".into()];
        let context = PickupContext::new(names.to_vec(), 0, 0);
        for good in [
            "relay.example",
            "Relay.Example:1",
            "relay.example:7443",
            "10.0.0.1:7443",
            "[::1]:7443",
        ] {
            assert!(context.is_named(good), "{good}");
        }
        for bad in [
            "",
            "relay",
            "relay.example.",
            "xrelay.example",
            "10.0.0.1",
            "10.0.0.1:1",
            "[::1]",
            ":1",
        ] {
            assert!(!context.is_named(bad), "{bad}");
        }
        assert!(!PickupContext::new(Vec::new(), 0, 0).is_named("relay.example"));
    }
}
