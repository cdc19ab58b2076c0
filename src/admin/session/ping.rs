//! Whether a peer answers: the node asks it over the session there is, and this waits a while for the answer.

use std::time::Duration;

use consign_core::code::Refusal;
use consign_core::id::TransferNo;
use consign_core::node::{Pinged, Question};
use consign_core::session::{SessionEvent, SessionOut};
use consign_core::time::{Instant, Now};

use super::{AdminSession, Task};
use crate::admin::refusal::No;
use crate::admin::shapes::Ping as Shape;

/// A question that waits.
#[derive(Clone, Debug)]
pub(super) struct Ping {
    peer: String,
    /// How long.
    wait: Duration,
    /// When it is answered in any case.
    pub(super) until: Instant,
}

impl AdminSession {
    /// Asks.
    pub(super) fn ping(
        &mut self,
        now: Now,
        ticket: TransferNo,
        (peer, wait): (String, Duration),
        out: &mut SessionOut,
    ) {
        let question = Question::Ping(peer.clone());
        out.events.push(SessionEvent::Ask { ticket, question });
        self.task = Task::Ping(ticket, Ping { peer, wait, until: now.mono.after(wait) });
    }

    /// The node's answer.
    pub(super) fn pinged(&mut self, now: Now, ping: Ping, pinged: &Pinged, out: &mut SessionOut) {
        let shape = match pinged {
            Pinged::Unknown => {
                let text = format!("{} is no peer of this site", ping.peer);
                return self.refuse(
                    now,
                    &No::of_refusal(Refusal::UnknownDestination, 0, text),
                    out,
                );
            }
            Pinged::Down(why) => Shape::silent(ping.peer, false, why.clone()),
            Pinged::After(micros) => Shape::answered(ping.peer, Duration::from_micros(*micros)),
        };
        self.shape(now, 200, &[], &shape, out);
    }

    /// Time has passed.
    pub(super) fn look_for_pong(&mut self, now: Now, out: &mut SessionOut) {
        let Task::Ping(_, ping) = &self.task else { return };
        if now.mono < ping.until {
            return;
        }
        let why = match self.conn.is_eof() {
            true => "not waited for: whoever asked has closed the connection".to_owned(),
            false => format!("no answer within {} s", ping.wait.as_secs()),
        };
        let shape = Shape::silent(ping.peer.clone(), true, why);
        self.task = Task::Idle;
        self.shape(now, 200, &[], &shape, out);
    }
}
