//! Ids that lead nowhere: a segment that has lost its content is found only by looking through all of them, which is worth
//! it only where the node knows of one.

use consign_core::node::{self, Question};
use consign_core::session::{SessionEvent, SessionOut};
use consign_core::store::StoreFault;
use consign_core::time::Now;

use super::answer::missing;
use super::{AdminSession, Task};
use crate::admin::ledger::One;
use crate::admin::refusal::No;
use crate::admin::route::Route;

impl AdminSession {
    /// What the ledger says to a route, if that is the last word: an id that leads nowhere is asked about once more.
    pub(super) fn last_word(
        &mut self,
        now: Now,
        mut route: Route,
        answer: Result<Vec<u8>, StoreFault>,
        out: &mut SessionOut,
    ) -> Option<(Route, Vec<u8>)> {
        let bytes = match answer {
            Ok(bytes) => bytes,
            Err(fault) => {
                self.refuse(now, &No::of_store(&fault), out);
                return None;
            }
        };
        if route.id_mut().is_some_and(|id| !id.lost) && is_missing(&bytes) {
            let (ticket, question) = (self.ticket(), Question::Status);
            out.events.push(SessionEvent::Ask { ticket, question });
            self.task = Task::Ask(ticket, route);
            return None;
        }
        Some((route, bytes))
    }

    /// What the node knows of lost content. While a start is still looking, there may be some.
    pub(super) fn look_for_lost(
        &mut self,
        now: Now,
        mut route: Route,
        status: &node::Status,
        out: &mut SessionOut,
    ) {
        match route.id_mut() {
            Some(id) if status.scrub.damaged > 0 || status.reconciling => {
                id.lost = true;
                self.begin(now, route, out);
            }
            _ => self.refuse(now, &missing(), out),
        }
    }
}

fn is_missing(bytes: &[u8]) -> bool {
    let read = serde_json::from_slice::<One<serde::de::IgnoredAny>>(bytes);
    matches!(read, Ok(One::Missing))
}
