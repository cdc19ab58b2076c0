//! Pickup's listener, certificate and sessions.

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};

use consign_core::driver::{MakeSession, PickupParts, PickupTls};
use consign_core::http::{Limits, Tell};
use consign_core::pickup::{PickupContext, PickupSession};

use super::open::listeners;
use super::reload::Apply;
use crate::config::{PickupListen, Settings};
use crate::exit::Failure;
use crate::meters::Meters;
use crate::service::sockets::{Place, Sockets};

/// Pickup where it is on.
pub(super) struct Opened {
    pub(super) parts: PickupParts,
    /// Told of other settings, so that new sessions go by them.
    pub(super) apply: Apply,
    /// Where it is.
    pub(super) at: Option<SocketAddr>,
}

/// Binds what the settings ask for.
///
/// # Errors
/// When the address cannot be had.
pub(super) fn open(
    settings: &Settings,
    tls: PickupTls,
    hosts: &[String],
    sockets: &Sockets,
    meters: &Meters,
) -> Result<Option<Opened>, Failure> {
    let listen = &settings.pickup;
    let (listeners, bound) = listeners(listen.address.as_slice(), Place::Pickup, sockets)?;
    if listeners.is_empty() {
        return Ok(None);
    }
    let (session, apply) =
        session(settings, names(listen, &bound, hosts), meters.http(&settings.node.name));
    let tls = listen.wants_tls(&bound).then_some(tls);
    let parts = PickupParts { listeners, tls, session };
    Ok(Some(Opened { parts, apply, at: bound.first().copied() }))
}

/// Authorities that requests may be signed for. Without names of the operator's: the addresses that
/// are listened on, and the hosts that the certificate names.
fn names(listen: &PickupListen, bound: &[SocketAddr], hosts: &[String]) -> Vec<String> {
    if !listen.names.is_empty() {
        return listen.names.iter().map(|name| name.to_ascii_lowercase()).collect();
    }
    let exact = bound.iter().filter(|a| !a.ip().is_unspecified()).map(ToString::to_string);
    exact.chain(hosts.iter().cloned()).collect()
}

fn session(settings: &Settings, names: Vec<String>, tell: Tell) -> (MakeSession, Apply) {
    let first = context(settings, names.clone(), tell.clone());
    let shared = Arc::new(RwLock::new(Arc::new(first)));
    let of_sessions = shared.clone();
    let session: MakeSession = Arc::new(move |info| {
        let context = of_sessions.read().unwrap_or_else(PoisonError::into_inner).clone();
        Box::new(PickupSession::new(context, info.clone(), Box::new(fill)))
    });
    let apply: Apply = Box::new(move |settings| {
        let context = Arc::new(context(settings, names.clone(), tell.clone()));
        *shared.write().unwrap_or_else(PoisonError::into_inner) = context;
    });
    (session, apply)
}

/// What sessions of clients and nodes go by.
fn context(settings: &Settings, names: Vec<String>, tell: Tell) -> PickupContext {
    let node = &settings.node;
    let max_upload = node.buffer.max_upload.unwrap_or(u64::MAX);
    let window = usize::try_from(node.buffer.notify_window).unwrap_or(usize::MAX);
    PickupContext {
        limits: Limits {
            header_timeout: settings.header_timeout,
            body_rate: Some(settings.min_body_rate),
            ..Limits::default()
        },
        notify_window: window,
        tell: Some(tell),
        ..PickupContext::new(names, node.inline_max, max_upload)
    }
}

/// Secrets from the system.
///
/// # Panics
/// When the system gives no randomness: nothing that rests on secrets may go on then.
fn fill(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the system gives randomness");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listen(names: &[&str]) -> PickupListen {
        PickupListen {
            address: Some(SocketAddr::from(([0, 0, 0, 0], 0))),
            tls: None,
            names: names.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    #[test]
    fn names_are_the_operators_or_else_what_is_known() {
        let bound = [SocketAddr::from(([127, 0, 0, 1], 7410)), SocketAddr::from(([0, 0, 0, 0], 1))];
        let hosts = ["alpha".to_owned(), "localhost".to_owned()];
        assert_eq!(names(&listen(&[]), &bound, &hosts), ["127.0.0.1:7410", "alpha", "localhost"]);
        assert_eq!(names(&listen(&["Relay.Example"]), &bound, &hosts), ["relay.example"]);
    }

    #[test]
    fn tls_is_for_what_others_can_reach_unless_the_operator_says_otherwise() {
        let at = |ip: [u8; 4]| SocketAddr::from((ip, 7410));
        let (here, everywhere) = (at([127, 0, 0, 1]), at([0, 0, 0, 0]));
        let mut listen = listen(&[]);
        assert!(!listen.wants_tls(&[here]));
        assert!(listen.wants_tls(&[here, everywhere]));
        listen.tls = Some(false);
        assert!(!listen.wants_tls(&[everywhere]));
        listen.tls = Some(true);
        assert!(listen.wants_tls(&[here]));
    }
}
