//! Peers and routes, from the values of their sections.

use consign_core::config::{PeerConfig, Route};

use super::fault::{At, Code, Fault};
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

/// The values of a key in several sections, as far as they can be read.
pub(super) fn names<'a>(sections: impl Iterator<Item = &'a Items>, key: &str) -> Vec<String> {
    sections.filter_map(|items| text_of(items, key)).map(|(text, _)| text.to_owned()).collect()
}

/// What is wrong with routes; `known` are the peers, `all` of them if each has a name that can be read.
pub(super) fn route_faults(routes: &[Items], own: &str, known: &[String], all: bool) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut fault = |code, key: &str, message: String, label: &str, help: String, at: &At| {
        let (key, label, at) = (key.to_owned(), label.to_owned(), at.clone());
        faults.push(Fault { code, key, message, label, help, at });
    };
    let knows = |name: &str| known.iter().any(|known| known == name);
    for (i, route) in routes.iter().enumerate() {
        if let Some((to, at)) = text_of(route, "to") {
            if names(routes.iter().take(i), "to").iter().any(|earlier| earlier == to) {
                fault(
                    Code::Double,
                    "route.to",
                    format!("`{to}` has two routes"),
                    "the second one",
                    String::new(),
                    &at,
                );
            }
            if to == own {
                let message = format!("`{to}` is this site itself, no route leads there");
                let label = "the same as node.name";
                fault(Code::Conflict, "route.to", message, label, String::new(), &at);
            }
            if knows(to) {
                let message = format!("`{to}` is a known peer, no route leads there");
                let label = "it is reached directly";
                fault(Code::Conflict, "route.to", message, label, String::new(), &at);
            }
        }
        if let Some((via, at)) = text_of(route, "via").filter(|(via, _)| all && !knows(via)) {
            let message = format!("`route.via` names {via:?}, which is no known peer");
            let label = "not among relay.known_peers";
            fault(Code::Conflict, "route.via", message, label, hop_help(via, known), &at);
        }
    }
    faults
}

/// What to do about a route by way of a site that is no known peer.
fn hop_help(via: &str, known: &[String]) -> String {
    let add = format!("add {via} to relay.known_peers, or take the [[route]] out");
    match known {
        [] => add,
        [only] => format!("{add}; the only known peer is {only}"),
        several => {
            let shown: Vec<&str> = several.iter().take(20).map(String::as_str).collect();
            format!("{add}; known peers: {}", shown.join(", "))
        }
    }
}
