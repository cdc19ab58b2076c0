//! Peers and routes, from the values of their sections.

use consign_core::config::{PeerConfig, Route};

use super::fault::At;
use super::value::Value;
use super::walk::{Item, Items};

/// Whether a peer has one of these fingerprints.
pub(super) fn share_a_pin(peer: &Items, value: &Value) -> bool {
    match (peer.get("fingerprint").map(|item| &item.value), value) {
        (Some(Value::Pins(theirs)), Value::Pins(pins)) => theirs.iter().any(|p| pins.contains(p)),
        _ => false,
    }
}

pub(super) fn text_of<'a>(items: &'a Items, key: &str) -> Option<(&'a str, At)> {
    match items.get(key) {
        Some(Item { value: Value::Text(text), at }) => {
            Some((text, at.clone().unwrap_or(At::Whole)))
        }
        _ => None,
    }
}

pub(super) fn peer(items: &Items) -> Option<PeerConfig> {
    let pins = match items.get("fingerprint") {
        Some(Item { value: Value::Pins(pins), .. }) => pins.as_slice(),
        _ => &[],
    };
    let number = |key| match items.get(key) {
        Some(Item { value: Value::Number(number), .. }) => *number,
        _ => None,
    };
    let window = match items.get("window") {
        Some(Item { value: Value::Texts(texts), .. }) => texts.clone(),
        _ => Vec::new(),
    };
    Some(PeerConfig {
        pin: pins.first().copied(),
        more_pins: pins.get(1..).unwrap_or_default().to_vec(),
        inbound_quota: number("inbound_quota"),
        rate_limit: number("rate_limit"),
        window,
        ..PeerConfig::new(text_of(items, "name")?.0, text_of(items, "address")?.0)
    })
}

pub(super) fn route(items: &Items) -> Option<Route> {
    let text = |key| text_of(items, key).map(|(text, _)| text.to_owned());
    Some(Route { to: text("to")?, via: text("via")? })
}
