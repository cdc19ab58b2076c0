//! What Prometheus reads: text format 0.0.4, base units, every series there from the start. Labels are
//! peers of the configuration and words of the code tables, so their number is bounded.

use std::fmt::Write as _;

use consign_core::act::Action;
use consign_core::code::Refusal;
use consign_core::ledger::rows_pickup::ShardState;
use consign_core::node::{PeerStatus, PickupStatus, Status};
use consign_core::pickup::PickupRefusal;

use super::AdminContext;

/// The content type of the format.
pub(super) const TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// States in the order of a peer's counters.
const STATES: [&str; 5] = ["queued", "sending", "delivered", "backing_off", "dead"];

/// The whole page.
pub(super) fn text(status: &Status, context: &AdminContext) -> String {
    let mut page = Page(String::new());
    page.family("consign_build_info", "gauge", "Version and runtime; always 1.");
    let labels = [("version", &*context.version), ("runtime", &*context.runtime)];
    page.sample("consign_build_info", &labels, 1);
    deliveries(&mut page, &status.peers);
    peers(&mut page, &status.peers);
    let space = status.space;
    let flag = u64::from;
    let gauges: [(&str, &str, u64); 9] = [
        ("consign_segments_stored", "Segments held.", status.segments),
        ("consign_storage_used_bytes", "Bytes charged to content.", status.used),
        ("consign_storage_limit_bytes", "storage.max_bytes.", status.limit),
        ("consign_storage_free_bytes", "Bytes free on the disk.", space.free),
        (
            "consign_storage_full",
            "Whether new segments are refused for want of space.",
            flag(status.full),
        ),
        ("consign_ledger_used_bytes", "Bytes in live pages of the ledger.", space.ledger),
        ("consign_ledger_limit_bytes", "storage.ledger_max.", context.reloads.ledger_max()),
        (
            "consign_ballast_whole",
            "Whether the reserve for a full disk is whole.",
            flag(space.ballast_whole),
        ),
        ("consign_boots", "How often the site was started.", status.boot),
    ];
    for (name, help, value) in gauges {
        page.family(name, "gauge", help);
        page.sample(name, &[], value);
    }
    configuration(&mut page, context);
    let counters = [
        ("consign_commits_total", "Commits of the ledger since the start.", status.commits.0),
        ("consign_commit_rows_total", "Rows they wrote or removed.", status.commits.1),
    ];
    for (name, help, value) in counters {
        page.family(name, "counter", help);
        page.sample(name, &[], value);
    }
    page.family(
        "consign_refusals_total",
        "counter",
        "Offers, submissions and acts refused since the start.",
    );
    for (refusal, count) in Refusal::ALL.iter().zip(status.refusals) {
        page.sample("consign_refusals_total", &[("code", refusal.word())], count);
    }
    page.family("consign_acts_total", "counter", "Acts of operators since the start.");
    for (action, count) in Action::ALL.iter().zip(status.acts) {
        page.sample("consign_acts_total", &[("action", action.word())], count);
    }
    pickup(&mut page, &status.pickup);
    page.0
}

fn configuration(page: &mut Page, context: &AdminContext) {
    let (ok, success) = context.reloads.numbers();
    let gauges = [
        (
            "consign_config_last_reload_successful",
            "Whether the last reading of the configuration was taken; the start counts.",
            u64::from(ok),
        ),
        (
            "consign_config_last_reload_success_timestamp_seconds",
            "When one was taken last.",
            success / 1000,
        ),
    ];
    for (name, help, value) in gauges {
        page.family(name, "gauge", help);
        page.sample(name, &[], value);
    }
    let (certificates, problem) = context.reloads.certificates_now();
    let name = "consign_certificate_expiry_timestamp_seconds";
    page.family(name, "gauge", "Last second of a certificate's validity.");
    for one in &certificates {
        let seconds = u64::try_from(one.expires_seconds).unwrap_or(0);
        page.sample(name, &[("certificate", &one.certificate)], seconds);
    }
    let name = "consign_certificate_files_usable";
    page.family(name, "gauge", "Whether certificate and key can be used as they lie there.");
    page.sample(name, &[], problem.is_empty().into());
}

fn pickup(page: &mut Page, pickup: &PickupStatus) {
    let families = [
        ("consign_shards", "Shards by state."),
        ("consign_shard_bytes", "Bytes held or reserved for them."),
    ];
    for (at, (name, help)) in families.into_iter().enumerate() {
        page.family(name, "gauge", help);
        for (state, count) in ShardState::ALL.iter().zip(pickup.shards) {
            let value = if at == 0 { count.count } else { count.bytes };
            page.sample(name, &[("state", state.word())], value);
        }
    }
    let gauges = [
        ("consign_upload_buffer_used_bytes", "Bytes held or reserved for shards.", pickup.used),
        ("consign_upload_buffer_limit_bytes", "buffer.max_bytes.", pickup.limit),
        ("consign_notify_subscribers", "Nodes that are registered now.", pickup.sessions),
        ("consign_pickup_clients", "Clients that may upload.", pickup.clients),
        ("consign_uploads_active", "Uploads under way.", pickup.uploads),
        ("consign_fetches_active", "Fetches under way.", pickup.fetches),
        ("consign_notifications_unanswered", "Notifications without an answer.", pickup.unanswered),
    ];
    for (name, help, value) in gauges {
        page.family(name, "gauge", help);
        page.sample(name, &[], value);
    }
    let counters = [
        ("consign_uploads_stored_total", "Uploads stored since the start.", pickup.stored),
        (
            "consign_fetch_tokens_issued_total",
            "Notifications since the start, each with its token.",
            pickup.notified,
        ),
        (
            "consign_fetch_tokens_redeemed_total",
            "Tokens redeemed since the start.",
            pickup.redeemed,
        ),
        (
            "consign_fetch_tokens_unused_total",
            "Tokens that ran out while their node was there.",
            pickup.unused,
        ),
        ("consign_fetches_broken_total", "Fetches that broke off since the start.", pickup.broken),
    ];
    for (name, help, value) in counters {
        page.family(name, "counter", help);
        page.sample(name, &[], value);
    }
    page.family("consign_shard_acks_total", "counter", "Acks of nodes since the start.");
    for (status, count) in [("verified", pickup.acks.0), ("failed", pickup.acks.1)] {
        page.sample("consign_shard_acks_total", &[("status", status)], count);
    }
    let help = "Requests of pickup refused since the start.";
    page.family("consign_pickup_refusals_total", "counter", help);
    for (refusal, count) in PickupRefusal::ALL.iter().zip(pickup.refusals) {
        page.sample("consign_pickup_refusals_total", &[("code", refusal.word())], count);
    }
}

fn deliveries(page: &mut Page, peers: &[PeerStatus]) {
    let families = [
        ("consign_deliveries", "Deliveries by peer and state."),
        ("consign_delivery_bytes", "Their bytes."),
    ];
    for (at, (name, help)) in families.into_iter().enumerate() {
        page.family(name, "gauge", help);
        for peer in peers {
            for (state, count) in STATES.iter().zip(peer.counters) {
                let value = if at == 0 { count.count } else { count.bytes };
                page.sample(name, &[("peer", &peer.name), ("state", state)], value);
            }
        }
    }
}

fn peers(page: &mut Page, peers: &[PeerStatus]) {
    type Value = fn(&PeerStatus) -> u64;
    let families: [(&str, &str, Value); 5] = [
        ("consign_peer_up", "Whether there is a live session.", |p| p.session.is_some().into()),
        ("consign_peer_known", "Whether it is among relay.known_peers.", |p| p.known.into()),
        ("consign_peer_held", "Whether an operator holds it.", |p| p.held.into()),
        ("consign_peer_needs_rekey", "Whether it has another pin than it is known by.", |p| {
            p.needs_rekey.into()
        }),
        (
            "consign_peer_last_delivery_timestamp_seconds",
            "Last committed acknowledgement; 0 before the first.",
            |p| p.last_acked.map_or(0, |at| at.0 / 1000),
        ),
    ];
    for (name, help, value) in families {
        page.family(name, "gauge", help);
        for peer in peers {
            page.sample(name, &[("peer", &peer.name)], value(peer));
        }
    }
}

struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a String does not fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: u64) {
        self.0.push_str(name);
        for (i, (key, text)) in labels.iter().enumerate() {
            let open = if i == 0 { '{' } else { ',' };
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.0, "{open}{key}=\"{text}\"");
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        let _ = writeln!(self.0, " {value}");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::admin::testing::context;

    fn status() -> Status {
        let peer = |name: &str| PeerStatus { name: name.into(), ..PeerStatus::default() };
        Status { peers: vec![peer("beta"), peer("gamma")], ..Status::default() }
    }

    #[test]
    fn every_series_is_there_from_the_start() {
        let text = text(&status(), &context());
        for refusal in Refusal::ALL {
            assert!(text.contains(&format!("consign_refusals_total{{code=\"{refusal}\"}} 0\n")));
        }
        for action in Action::ALL {
            assert!(text.contains(&format!("consign_acts_total{{action=\"{action}\"}} 0\n")));
        }
        for refusal in PickupRefusal::ALL {
            let series = format!("consign_pickup_refusals_total{{code=\"{refusal}\"}} 0\n");
            assert!(text.contains(&series), "{series}");
        }
        for state in ShardState::ALL {
            assert!(text.contains(&format!("consign_shards{{state=\"{state}\"}} 0\n")));
        }
        for peer in ["beta", "gamma"] {
            for state in STATES {
                let series = format!("consign_deliveries{{peer=\"{peer}\",state=\"{state}\"}} 0\n");
                assert!(text.contains(&series), "{series}");
            }
        }
    }

    #[test]
    fn every_sample_follows_its_family_and_no_series_stands_twice() {
        let text = text(&status(), &context());
        let (mut family, mut series, mut families) = ("", BTreeSet::new(), BTreeSet::new());
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').unwrap();
                assert!(families.insert(name), "{name} twice");
                assert!(!help.is_empty());
                family = name;
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert_eq!(name, family);
                assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
            } else {
                let (name, value) = line.rsplit_once(' ').unwrap();
                assert_eq!(name.split('{').next().unwrap(), family);
                assert!(value.parse::<u64>().is_ok(), "{line}");
                assert!(series.insert(name), "{name} twice");
            }
        }
        assert!(families.len() > 15);
    }

    #[test]
    fn labels_are_escaped() {
        let mut page = Page(String::new());
        page.sample("x", &[("peer", "a\"b\\c\nd")], 1);
        assert_eq!(page.0, "x{peer=\"a\\\"b\\\\c\\nd\"} 1\n");
    }
}
