//! What clients and nodes of pickup say: they were promised something, and know what they have.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use consign_core::id::Sha256Digest;
use consign_core::ledger::keys_pickup::ShardKey;
use consign_core::ledger::rows_pickup::{ShardRow, ShardState, TokenState};

use super::Desk;
use super::pickup::show;
use super::shards::{ended, owns};
use super::violation::{Check, demand};
use crate::sim::pickup::sight::{Content, Sight};
use crate::sim::seen::SiteIx;
use crate::sim::time::Micros;

/// Once all goes well, a shard that a node is owed is said to it within this, beside what a failed
/// pickup waits.
const SOON: Duration = Duration::from_secs(600);

/// A session of a node, as it knows it.
#[derive(Debug)]
struct Session {
    number: u64,
    since: Micros,
    notified: BTreeSet<(ShardKey, u64)>,
}

/// What clients and nodes know.
#[derive(Debug, Default)]
pub(super) struct Known {
    handed: BTreeSet<(SiteIx, ShardKey, Sha256Digest)>,
    stored: BTreeSet<(SiteIx, ShardKey, Sha256Digest)>,
    acked: BTreeSet<(SiteIx, u64, bool)>,
    nonces: BTreeSet<(SiteIx, String, [u8; 16])>,
    /// Tokens, with the shard they are for.
    tokens: BTreeMap<(SiteIx, Sha256Digest), ShardKey>,
    served: BTreeSet<(SiteIx, Sha256Digest)>,
    /// The sessions that a node takes for its own, newest last.
    sessions: BTreeMap<(SiteIx, String), Vec<Session>>,
}

impl Known {
    pub fn was_handed(&self, ix: SiteIx, shard: &ShardKey, sha256: Sha256Digest) -> bool {
        self.handed.contains(&(ix, shard.clone(), sha256))
    }

    pub fn has_stored(&self, ix: SiteIx, shard: &ShardKey, sha256: Sha256Digest) -> bool {
        self.stored.contains(&(ix, shard.clone(), sha256))
    }

    /// Whether a node has said that of a redemption.
    pub fn has_acked(&self, ix: SiteIx, redemption: u64, verified: bool) -> bool {
        self.acked.contains(&(ix, redemption, verified))
    }

    /// The only session that a node has.
    fn session(&self, ix: SiteIx, node: &str) -> Option<&Session> {
        match self.sessions.get(&(ix, node.to_string()))?.as_slice() {
            [session] => Some(session),
            _ => None,
        }
    }
}

impl Desk<'_> {
    pub(super) fn sight(&mut self, sight: &Sight) -> Check {
        let ix = self.ix;
        match sight {
            Sight::Handing(content) => {
                let Content { shard, sha256, .. } = content.clone();
                self.world.quay.handed.insert((ix, shard, sha256));
                Ok(())
            }
            Sight::Kept { content, new, state, buffered, token, asked } => {
                self.world.totals.kept += u64::from(*new);
                self.may_upload(*token, *asked)?;
                self.kept(content, *state, *buffered)
            }
            Sight::Offset { content, offset, complete, state } => {
                self.offset(content, *offset, *complete, *state)
            }
            Sight::Registered { node, session } => {
                let (number, since, notified) = (*session, self.at, BTreeSet::new());
                let new = Session { number, since, notified };
                self.world.quay.sessions.entry((ix, node.clone())).or_default().push(new);
                Ok(())
            }
            Sight::Gone { node, session } => {
                let mine = self.world.quay.sessions.entry((ix, node.clone())).or_default();
                mine.retain(|known| known.number != *session);
                Ok(())
            }
            Sight::Notified { content, session, token, redemption } => {
                self.notified(content, *session, *token, *redemption)
            }
            Sight::Signed { node, nonce, forged, status, key, asked } => {
                demand(!forged, "I13", None, || {
                    format!("a signature of {node} that is not right is answered {status}")
                })?;
                self.signed(node, *nonce, *status, *key, *asked)
            }
            Sight::Served { node, token, shard, redemption } => {
                self.served(node, *token, shard, *redemption)
            }
            Sight::Stored(content) => {
                let Content { shard, sha256, .. } = content.clone();
                let known = self.world.quay.was_handed(ix, &shard, sha256);
                self.world.quay.stored.insert((ix, shard.clone(), sha256));
                demand(known, "I11", None, || {
                    format!("{} has come as what nobody has handed in", show(&shard))
                })
            }
            Sight::Wrong(content) => demand(false, "I11", None, || {
                format!("{} was given out whole, and is not what it is", show(&content.shard))
            }),
            Sight::Acked { redemption, verified, .. } => {
                self.world.quay.acked.insert((ix, *redemption, *verified));
                Ok(())
            }
            Sight::State { shard, redemption, state } => {
                self.ack_answered(shard, *redemption, *state)
            }
            Sight::Odd(text) => demand(false, "I27", None, || text.clone()),
        }
    }

    /// A request with a right signature is answered. What does as it asks rests on what is on disk: its
    /// key, and its nonce. A refusal promises nothing, and is said from what is still being committed;
    /// a power cut may take back the key and the nonce it went by.
    fn signed(
        &mut self,
        node: &str,
        nonce: [u8; 16],
        status: u16,
        key: [u8; 32],
        asked: Micros,
    ) -> Check {
        let nonce = (self.ix, node.to_string(), nonce);
        let is_new = if status < 400 {
            self.may_sign(node, key, asked)?;
            self.world.quay.nonces.insert(nonce)
        } else {
            !self.world.quay.nonces.contains(&nonce)
        };
        demand(is_new, "I13", None, || {
            format!("a request of {node} that was taken before is answered {status}")
        })
    }

    /// A client is told that its shard is kept: it is a promise.
    fn kept(&self, content: &Content, state: ShardState, buffered: bool) -> Check {
        let Content { shard, sha256, .. } = content;
        demand(buffered == owns(state), "I5", None, || {
            format!("{} is said to be {state}, with a buffer_id: {buffered}", show(shard))
        })?;
        if self.site.has_lost_shards() {
            return Ok(());
        }
        let ever = self.site.pickup.kept.contains(&(shard.clone(), *sha256));
        demand(ever, "I1", None, || {
            let row = self.site.disk.pickup.shards.get(shard);
            format!("{} is said to be {state}, and on disk is {row:?}", show(shard))
        })
    }

    /// A client is told how far its upload is: so much is durable.
    fn offset(&self, content: &Content, offset: u64, complete: bool, state: ShardState) -> Check {
        let Content { shard, sha256, size } = content;
        if self.site.has_lost_shards() {
            return Ok(());
        }
        if state == ShardState::Uploading {
            let reached = self.site.pickup.reached.get(shard).copied().unwrap_or(0);
            return demand(offset <= reached, "I26", None, || {
                format!("{offset} bytes of {} are said to be there, {reached} were", show(shard))
            });
        }
        let ever = self.site.pickup.kept.contains(&(shard.clone(), *sha256));
        let whole = !(complete && ever) || offset == *size;
        demand(whole, "I26", None, || {
            format!("{} is said to be {state} with {offset} of {size} bytes", show(shard))
        })
    }

    fn notified(
        &mut self,
        content: &Content,
        session: u64,
        token: Sha256Digest,
        redemption: u64,
    ) -> Check {
        let (ix, shard) = (self.ix, &content.shard);
        let tokens = &mut self.world.quay.tokens;
        let twice = tokens.insert((ix, token), shard.clone()).is_some();
        demand(!twice, "I12", None, || format!("a token of {} is given twice", show(shard)))?;
        let mine = self.world.quay.sessions.get_mut(&(ix, shard.node().to_string()));
        let mine = mine.and_then(|all| all.iter_mut().find(|known| known.number == session));
        if let Some(session) = mine {
            session.notified.insert((shard.clone(), redemption));
        }
        if self.site.has_lost_shards() {
            return Ok(());
        }
        let row = self.site.disk.pickup.tokens.get(&token);
        // A step of the clock may have made it old, and gone, before the node heard of it.
        let known = self.site.pickup.given.contains(&redemption);
        let right = row.map_or(known, |row| row.redemption == redemption);
        demand(right, "I1", None, || {
            format!("{} is notified of with a token that is not on disk: {row:?}", show(shard))
        })?;
        let kept = self.site.pickup.kept.contains(&(shard.clone(), content.sha256));
        demand(kept, "I1", None, || format!("{} is notified of, and was never kept", show(shard)))
    }

    fn served(
        &mut self,
        node: &str,
        token: Sha256Digest,
        shard: &ShardKey,
        redemption: u64,
    ) -> Check {
        let first = self.world.quay.served.insert((self.ix, token));
        demand(first, "I12", None, || format!("a token of {} is served twice", show(shard)))?;
        let of = self.world.quay.tokens.get(&(self.ix, token));
        demand(of.is_some_and(|of| of.node() == node && of == shard), "I12", None, || {
            format!("{node} is served with a token that is for {of:?}")
        })?;
        if self.site.has_lost_shards() {
            return Ok(());
        }
        let row = self.site.disk.pickup.tokens.get(&token);
        let known = self.site.pickup.used.contains(&redemption);
        let used = row
            .map_or(known, |row| row.state == TokenState::Redeemed && row.redemption == redemption);
        demand(used, "I12", None, || {
            format!("{} is served, and its token on disk is {row:?}", show(shard))
        })
    }

    /// A node is told what became of its ack: what is final is so on disk.
    fn ack_answered(&self, shard: &ShardKey, redemption: u64, state: ShardState) -> Check {
        if !ended(state) || self.site.has_lost_shards() {
            return Ok(());
        }
        let end = self.site.pickup.ends.get(&redemption);
        // Said again, it is what became of the shard since.
        let row = self.site.disk.pickup.shards.get(shard);
        let right = end == Some(&state) || row.is_none_or(|row| row.state == state);
        demand(right, "I1", None, || {
            format!("{} is said to be {state} by {redemption}, and on disk is {row:?}", show(shard))
        })
    }

    /// A shard that is owed to a node which is there has been said to it in that session, once all has
    /// gone well for long enough.
    pub(super) fn is_notified(&self, shard: &ShardKey, row: &ShardRow) -> Check {
        let (Some(calm), Some(session)) =
            (self.world.calm, self.world.quay.session(self.ix, shard.node()))
        else {
            return Ok(());
        };
        let owed = self.site.pickup.owed_since.get(shard).copied().unwrap_or(Micros::FAR);
        let since = calm.max(session.since).max(owed);
        let most = SOON + self.site.past.notified;
        let late = self.at > since.after(most) && !self.site.lost_content(row);
        let said = session.notified.contains(&(shard.clone(), row.redemption));
        demand(said || !late, "I24", None, || {
            format!("{} is owed since {owed}, session {} is there", show(shard), session.number)
        })
    }
}
