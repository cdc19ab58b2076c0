//! What `init` says it has done, and what comes next.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::json;

use super::card::Card;
use super::join::Joined;
use super::{PORT, Plan, files, is_this_machine, pickup, shown};
use crate::config::FILE_NAME;
use crate::config::template::{Peer, quote};
use crate::tls::identity::date;

/// What was done, for people and programs.
pub(crate) struct Report {
    pub(super) until: i64,
    pub(super) own_authority: bool,
    /// Whether the other site was changed; `None` when that was not asked for.
    pub(super) introduced: Option<bool>,
    pub(super) card: Option<Card>,
    /// Set where the certificate is yet to come.
    pub(super) joined: Option<Joined>,
}

impl Report {
    pub(crate) fn json(&self, plan: &Plan) -> serde_json::Value {
        let peers: Vec<_> =
            plan.peers.iter().map(|p| json!({"name": p.name, "address": p.address})).collect();
        json!({
            "schema": "consign.init/1",
            "name": plan.name,
            "dir": plan.dir.display().to_string(),
            "config": (!plan.bare).then(|| plan.dir.join(FILE_NAME).display().to_string()),
            "authority_made": self.own_authority,
            "certificate_expires_at": self.joined.is_none().then(|| date(self.until)),
            "card": self.card.as_ref().map(Card::to_string),
            "request": self.joined.as_ref().map(|joined| joined.request(plan)),
            "peers": peers,
            "introduced": self.introduced == Some(true),
            "known_peer_lines": self.to_tell(plan).lines(),
        })
    }

    pub(crate) fn text(&self, plan: &Plan) -> String {
        if let Some(joined) = &self.joined {
            return joined.text(plan);
        }
        let mut out = String::new();
        let dir = shown(&plan.dir);
        let until = date(self.until);
        let until = until.split('T').next().unwrap_or_default();
        let _ = writeln!(out, "Created {dir}/");
        if self.own_authority {
            let _ = writeln!(
                out,
                "  ca.pem, ca.key      the authority that signs your sites; keep ca.key to yourself"
            );
        } else {
            let _ = writeln!(out, "  ca.pem              the authority you named");
        }
        let _ = writeln!(
            out,
            "  node.pem, node.key  certificate of {}, valid until {until}",
            plan.name
        );
        if plan.bare {
            self.for_a_configuration(plan, &mut out);
            return out;
        }
        let listen = plan.listen.map_or_else(|| format!("0.0.0.0:{PORT}"), |a| a.to_string());
        let known: Vec<String> =
            plan.peers.iter().map(|p| format!("{} at {}", p.name, p.address)).collect();
        let known = if known.is_empty() {
            "knows no peers yet".into()
        } else {
            format!("knows {}", known.join(", "))
        };
        let _ = writeln!(out, "  {FILE_NAME}        listens on {listen}, {known}");
        let _ = writeln!(out, "  {}/               what it keeps", files::DATA);
        self.next_steps(plan, &dir, &mut out);
        out
    }

    /// What a configuration that is there already says of them.
    fn for_a_configuration(&self, plan: &Plan, out: &mut String) {
        let dir = std::path::absolute(&plan.dir).unwrap_or_else(|_| plan.dir.clone());
        let at = |name: &str| quote(&dir.join(name).display().to_string());
        let (ca, cert, key) = (at("ca.pem"), at("node.pem"), at("node.key"));
        let _ = write!(
            out,
            "\nTheir site's configuration says:\n  [node]\n  name = {}\n  [tls]\n  ca = {ca}\n  cert = {cert}\n  key = {key}\n",
            quote(&plan.name)
        );
        self.tell_card(out);
    }

    fn to_tell(&self, plan: &Plan) -> Peer {
        if self.introduced.is_some() { plan.as_peer() } else { plan.to_tell() }
    }

    fn next_steps(&self, plan: &Plan, dir: &str, out: &mut String) {
        let me = self.to_tell(plan);
        let Some((other_dir, other)) = &plan.sibling else {
            if plan.peers.is_empty() && plan.pickup.is_some() {
                pickup::steps(plan, dir, out);
                self.tell_card(out);
            } else if plan.peers.is_empty() {
                let second = free_name(&plan.name, |name| Path::new(name).exists());
                let _ = write!(
                    out,
                    "\nNext, a second site on this machine, and both know each other:\n  \
                     consign init {second} --ca {dir} --introduce\n\
                     or one on another machine, by this site's card, and no key leaves either:\n  \
                     consign init {second} --join {}\n",
                    self.card.as_ref().map_or_else(|| "CARD".into(), Card::to_string)
                );
                out.push_str(self.card.as_ref().map_or("", only_here));
            } else {
                let _ = write!(out, "\nNext:\n  consign serve -c {dir}\n");
                self.tell_peers(&me, "its peers", out);
                self.tell_card(out);
            }
            return;
        };
        let (other_dir, other) = (shown(other_dir), &other.node.name);
        match self.introduced {
            Some(true) => {
                let _ = writeln!(
                    out,
                    "Changed {other_dir}/{FILE_NAME}\n  {other} knows {} at {} from its next start or `consign -c {other_dir} reload` on",
                    me.name, me.address
                );
            }
            Some(false) => {
                let _ = writeln!(out, "{other} knew {} already", me.name);
            }
            None => self.tell_peers(&me, other, out),
        }
        if self.introduced.is_none() && plan.is_elsewhere() {
            let _ = write!(
                out,
                "\nNext, start {other} again so that it knows {}, copy {dir}/ to its machine, and there:\n  \
                 consign serve -c {dir}\nThen, here:\n  consign -c {other_dir} send FILE --to {} --wait\n",
                plan.name, plan.name
            );
            return;
        }
        let _ = write!(
            out,
            "\nNext, each in a terminal of its own:\n  consign serve -c {other_dir}\n  \
             consign serve -c {dir}\n  consign -c {other_dir} send FILE --to {} --wait\n",
            plan.name
        );
    }

    fn tell_peers(&self, me: &Peer, whom: &str, out: &mut String) {
        let _ = write!(out, "\nTo make it known to {whom}, add to the configuration there:\n");
        for line in me.lines().lines() {
            let _ = writeln!(out, "  {line}");
        }
        out.push_str(where_it_is(me));
    }

    /// A card as it is told, with a word of warning where it is of no use elsewhere.
    fn tell_card(&self, out: &mut String) {
        let Some(card) = &self.card else { return };
        let _ = writeln!(out, "\nIts card, for --join elsewhere:\n  {card}");
        out.push_str(only_here(card));
    }
}

/// What is to be known of an address before it is written down elsewhere.
pub(super) fn where_it_is(me: &Peer) -> &'static str {
    match me.address.as_str() {
        address if address.starts_with("HOST:") => {
            "where HOST is the name or address of its machine\n"
        }
        address if is_this_machine(address) => {
            "That address is reached from this machine alone; elsewhere the name or address of this one stands there (--host, --listen)\n"
        }
        _ => "",
    }
}

fn only_here(card: &Card) -> &'static str {
    if !is_this_machine(&card.address) {
        return "";
    }
    "That card is of use on this machine alone: --host NAME with `init` makes one for others, --listen has them reach it\n"
}

/// A name for a second site that nothing here has yet.
pub(super) fn free_name(first: &str, taken: impl Fn(&str) -> bool) -> &'static str {
    let names = ["beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"];
    names.into_iter().find(|name| *name != first && !taken(name)).unwrap_or("another")
}
