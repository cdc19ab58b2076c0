//! Acts on nodes, clients and shards, and lists of them.

use consign_core::id::TransferNo;
use consign_core::pickup::{Answer, Command, Event};
use consign_core::session::{SessionEvent, SessionOut};
use consign_core::time::Now;

use super::answer::json;
use super::begin::query;
use super::{AdminSession, Task};
use crate::admin::pickup::acts::{self, PickupActed};
use crate::admin::pickup::lists::{self, ShardShown};
use crate::admin::refusal::No;
use crate::admin::route::pickup::PickupRoute;

/// Asks the ledger.
pub(super) fn ask(route: &PickupRoute, ticket: TransferNo, out: &mut SessionOut) {
    match route.clone() {
        PickupRoute::Nodes(listing) => {
            query(ticket, out, move |s| json(&lists::nodes(s, &listing)?));
        }
        PickupRoute::Clients(listing) => {
            query(ticket, out, move |s| json(&lists::clients(s, &listing)?));
        }
        PickupRoute::Shards(listing) => {
            query(ticket, out, move |s| json(&lists::shards(s, &listing)?));
        }
        PickupRoute::Shard(key) => query(ticket, out, move |s| json(&lists::shard(s, &key)?)),
        PickupRoute::Act => unreachable!("its body comes first"),
    }
}

/// Whether the ledger has shown a shard.
pub(super) fn shown(bytes: &[u8]) -> Result<(), No> {
    match serde_json::from_slice::<Option<ShardShown>>(bytes) {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(No::new(404, "unknown", "there is no such shard")),
        Err(why) => Err(No::new(500, "store_failed", why.to_string())),
    }
}

impl AdminSession {
    /// The body of an act is whole: the node judges it.
    pub(super) fn pickup_act(&mut self, now: Now, body: &[u8], out: &mut SessionOut) {
        // Over TCP nobody comes this far.
        match acts::read(body, self.info.uid.unwrap_or(u32::MAX)) {
            Err(no) => self.refuse(now, &no, out),
            Ok((request, operator)) => {
                let (ticket, act) = (self.ticket(), Box::new(operator));
                let event = Event::Operator { ticket, act };
                out.events.push(SessionEvent::Pickup(Box::new(event)));
                self.task = Task::PickupAct(ticket, Box::new(request));
            }
        }
    }

    /// An act is committed.
    pub(super) fn pickup_done(&mut self, now: Now, answer: Answer, out: &mut SessionOut) {
        match (std::mem::replace(&mut self.task, Task::Idle), answer) {
            (Task::PickupAct(asked, request), Answer::Done { ticket, report })
                if asked == ticket =>
            {
                self.shape(now, 200, &[], &PickupActed::of(&request, report), out);
            }
            (other, _) => self.task = other,
        }
    }

    /// An act is refused.
    pub(super) fn pickup_refused(&mut self, now: Now, command: Command, out: &mut SessionOut) {
        match (std::mem::replace(&mut self.task, Task::Idle), command) {
            (
                Task::PickupAct(asked, _),
                Command::Refuse { ticket, refusal, retry_after, text, .. },
            ) if asked == ticket => {
                self.refuse(now, &acts::refusal(refusal, retry_after, text), out);
            }
            (other, _) => self.task = other,
        }
    }
}
