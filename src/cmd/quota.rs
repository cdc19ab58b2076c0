//! `consign quota`: every limit with what is used of it.

use std::path::Path;

use clap::Args;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::screen::{Screen, standard};
use crate::admin::shapes::Status;
use crate::client::Api;
use crate::exit::{Exit, Failure, Global};
use crate::human::{self, Align};

/// Shows every quota and what is used of it.
#[derive(Args, Clone, Debug, Default)]
pub struct QuotaArgs {}

/// Every quota.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Quotas {
    /// `consign.quota/1`
    pub schema: String,
    /// Whether new content is refused for want of space.
    pub full: bool,
    /// The quotas.
    pub quotas: Vec<Quota>,
}

impl Quotas {
    /// Its schema.
    pub const SCHEMA: &'static str = "consign.quota/1";

    fn of(status: &Status) -> Quotas {
        let (storage, ledger) = (&status.storage, &status.ledger);
        let mut quotas = vec![
            bytes("storage.max_bytes", "", storage.used, Some(storage.limit)),
            Quota {
                unit: "segments".into(),
                ..bytes("storage.max_segments", "", status.segments, storage.max_segments)
            },
            bytes("storage.ledger_max", "", ledger.used, Some(ledger.limit)),
            // What is free is not used: the least is what must stay free.
            Quota {
                least: true,
                ..bytes("storage.min_free", "", storage.free, Some(storage.min_free))
            },
        ];
        if status.pickup.is_used() {
            let pickup = &status.pickup;
            quotas.push(bytes("buffer.max_bytes", "", pickup.used, Some(pickup.limit)));
        }
        for peer in &status.peers {
            let (used, limit) = (peer.inbound.bytes, peer.inbound_quota);
            quotas.push(bytes("inbound_quota", &peer.name, used, limit));
        }
        Quotas { schema: Quotas::SCHEMA.into(), full: storage.full, quotas }
    }
}

/// A quota and what is used of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Quota {
    /// Its key in the configuration.
    pub key: String,
    /// The peer it is for; empty for the whole site.
    pub peer: String,
    /// `bytes` or `segments`.
    pub unit: String,
    /// What is used, or free where it is a least.
    pub used: u64,
    /// The limit, if there is one.
    pub limit: Option<u64>,
    /// Whether the limit is what must be left, not what may be used.
    pub least: bool,
    /// What is left.
    pub left: Option<u64>,
}

fn bytes(key: &str, peer: &str, used: u64, limit: Option<u64>) -> Quota {
    let (key, peer, unit) = (key.into(), peer.into(), "bytes".into());
    let left = limit.map(|limit| limit.saturating_sub(used));
    Quota { key, peer, unit, used, limit, least: false, left }.judged()
}

impl Quota {
    /// The same with what is left.
    fn judged(mut self) -> Quota {
        self.left = self.limit.map(|limit| match self.least {
            true => self.used.saturating_sub(limit),
            false => limit.saturating_sub(self.used),
        });
        self
    }
}

/// Runs it.
///
/// # Errors
/// When the daemon cannot be reached or refuses.
pub fn run(_: QuotaArgs, global: &Global, socket: &Path) -> Result<Exit, Failure> {
    standard(global, |screen| show(&mut Api::new(socket), screen))
}

fn show(api: &mut Api, screen: &mut Screen<'_>) -> Result<Exit, Failure> {
    let status: Status = api.json("GET", "/v1/status")?;
    let mut quotas = Quotas::of(&status);
    quotas.quotas = quotas.quotas.into_iter().map(Quota::judged).collect();
    if screen.is_json() {
        screen.object(&quotas)?;
        return Ok(Exit::Done);
    }
    let rows: Vec<Vec<String>> = quotas.quotas.iter().map(row).collect();
    screen.line(human::table(&HEAD, &rows).trim_end());
    if quotas.full {
        screen.line("full: new segments are refused until there is room");
    }
    Ok(Exit::Done)
}

const HEAD: [(&str, Align); 6] = [
    ("QUOTA", Align::Left),
    ("PEER", Align::Left),
    ("USED", Align::Right),
    ("LIMIT", Align::Right),
    ("LEFT", Align::Right),
    ("USED %", Align::Right),
];

fn row(quota: &Quota) -> Vec<String> {
    let amount = |n: u64| match quota.unit.as_str() {
        "segments" => human::thousands(n),
        _ => human::bytes(n),
    };
    let percent = quota.limit.filter(|limit| *limit > 0 && !quota.least).map(|limit| {
        let tenths = u128::from(quota.used) * 1000 / u128::from(limit);
        format!("{}.{} %", tenths / 10, tenths % 10)
    });
    let least = if quota.least { " at least" } else { "" };
    vec![
        quota.key.clone(),
        quota.peer.clone(),
        if quota.least { format!("{} free", amount(quota.used)) } else { amount(quota.used) },
        quota.limit.map_or("none".into(), |limit| amount(limit) + least),
        quota.left.map(amount).unwrap_or_default(),
        percent.unwrap_or_default(),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::admin::shapes::{Count, Ledger, Peer, Storage};
    use crate::client::testing::{Daemon, Say};
    use crate::cmd::screen::said;

    fn daemon() -> Daemon {
        Daemon::answering(|_, _| {
            let storage = Storage {
                used: 3 << 30,
                limit: 100 << 30,
                free: 50 << 30,
                full: true,
                min_free: 1 << 30,
                max_segments: None,
                max_segment: None,
            };
            let peer = Peer {
                name: "beta".into(),
                inbound: Count { count: 2, bytes: 1 << 20 },
                inbound_quota: Some(4 << 20),
                ..Peer::default()
            };
            let ledger = Ledger { used: 1 << 20, limit: 64 << 30, ..Ledger::default() };
            let status =
                Status { segments: 1200, storage, ledger, peers: vec![peer], ..Status::default() };
            Say::json(200, serde_json::to_value(status).unwrap())
        })
    }

    #[test]
    fn every_quota_says_what_is_left() {
        let daemon = daemon();
        let (exit, text) = said(false, |s| show(&mut Api::new(&daemon.socket()), s));
        assert_eq!(exit, Ok(Exit::Done));
        let expected = "\
QUOTA                 PEER           USED             LIMIT      LEFT  USED %
storage.max_bytes                 3.0 GiB           100 GiB  97.0 GiB   3.0 %
storage.max_segments                1,200              none
storage.ledger_max                1.0 MiB          64.0 GiB  64.0 GiB   0.0 %
storage.min_free            50.0 GiB free  1.0 GiB at least  49.0 GiB
inbound_quota         beta        1.0 MiB           4.0 MiB   3.0 MiB  25.0 %";
        assert_eq!(text.lines, [expected, "full: new segments are refused until there is room"]);
    }

    #[test]
    fn json_has_numbers() {
        let daemon = daemon();
        let (_, text) = said(true, |s| show(&mut Api::new(&daemon.socket()), s));
        let object: Value = serde_json::from_str(&text.lines[0]).unwrap();
        assert_eq!(object["schema"], Quotas::SCHEMA);
        assert_eq!(object["quotas"][3]["left"], 49_u64 << 30);
        assert_eq!(object["quotas"][1]["limit"], Value::Null);
    }
}
