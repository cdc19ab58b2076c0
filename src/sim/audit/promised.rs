//! What local clients and peers are promised.

use consign_core::id::SegmentId;
use consign_core::ledger::rows::State;
use consign_core::session::Accepted;

use super::Desk;
use super::site::Holds;
use super::story::Event;
use super::violation::{Check, broken, demand};

impl Desk<'_> {
    /// A local client is told that its segment is safe.
    pub(super) fn queued(&mut self, accepted: &Accepted) -> Check {
        self.world.totals.queued += 1;
        let id = accepted.id;
        self.tell(&id, Event::Queued);
        demand(self.site.life.running, "I30", Some(id), || "it takes, and does not run".into())?;
        let seq = accepted.seq;
        // It was, and went its way before the client heard of it.
        let gone = self.site.removed.get(&id).is_some_and(|removed| *removed >= seq);
        if let (Holds::No(why), false) = (self.site.holds(&id), gone) {
            return Err(broken("I1", Some(id), format!("a client is told that it is safe: {why}")));
        }
        let right = self.site.id(seq) == Some(id) || self.site.harm.segment(seq);
        demand(right, "I1", Some(id), || {
            format!("a client is told that it is number {seq}, which is another")
        })?;
        let Accepted { added, queued, delivered, dead, .. } = accepted;
        if gone {
            return Ok(());
        }
        let names = added.iter().chain(queued).chain(delivered).chain(dead);
        let names: Vec<&str> = names.map(String::as_str).collect();
        self.promises(id, &names);
        let told = [
            (added, None),
            (queued, None),
            (delivered, Some(State::Acked)),
            (dead, Some(State::Deadletter)),
        ];
        for (names, state) in told {
            for name in names {
                let no = self.site.disk.number_of(name);
                let found = no.and_then(|no| self.site.disk.deliveries.get(&(seq, no)));
                let right = found.is_some_and(|row| state.is_none_or(|state| row.state == state));
                let excused = no.is_some_and(|no| {
                    // It was, and somebody has it tried again since, in the batch of the answer.
                    let revived =
                        state == Some(State::Deadletter) && self.site.revived.contains(&(seq, no));
                    let settled = self.site.settled.contains(&(seq, no));
                    revived || settled || self.site.excuses(seq, no)
                });
                demand(right || excused, "I1", Some(id), || {
                    let found = found.map(|row| row.state);
                    format!("a client is told of {name}: {state:?}, on disk it is {found:?}")
                })?;
            }
        }
        Ok(())
    }

    /// It has said that a segment will be brought to these sites; what an operator has called off since
    /// it was decided does not count.
    pub(super) fn promises(&mut self, id: SegmentId, names: &[&str]) {
        let site = &*self.site;
        let seq = site.disk.ids.get(&id).or_else(|| site.newest.get(&id)).copied();
        let called_off = |name: &str| {
            let pair = seq.zip(site.disk.number_of(name));
            pair.is_some_and(|pair| {
                site.settled.contains(&pair) && !site.disk.deliveries.contains_key(&pair)
            })
        };
        let stand: Vec<&str> = names.iter().copied().filter(|name| !called_off(name)).collect();
        self.world.promise(self.ix, id, stand.into_iter());
    }
}
