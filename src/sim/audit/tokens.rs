//! Tokens and nonces in a batch: a token is used once, in its time (I12); a nonce is spent once (I13); in
//! one session a shard is notified of once (I24).

use consign_core::id::Sha256Digest;
use consign_core::ledger::keys_pickup::ShardKey;
use consign_core::ledger::rows::MetaName;
use consign_core::ledger::rows_pickup::{NonceRow, TokenRow, TokenState};

use super::Desk;
use super::batch::Touched;
use super::pickup::{millis, show};
use super::shards::Nonce;
use super::violation::{Check, demand};

impl Desk<'_> {
    pub(super) fn put_token(
        &mut self,
        hash: &Sha256Digest,
        new: &TokenRow,
        t: &mut Touched,
    ) -> Check {
        if self.site.has_lost_shards() {
            return Ok(());
        }
        let Some(shard) = ShardKey::parse(&new.shard) else {
            return demand(false, "I12", None, || format!("a token for no shard: {new:?}"));
        };
        let now = self.site.clock.now.wall.0;
        let Some(old) = self.site.disk.pickup.tokens.get(hash) else {
            let next = self.site.disk.meta(MetaName::NextRedemption);
            let next = *t.pickup.next.get_or_insert(next);
            let fresh = new.redemption >= next && self.site.pickup.given.insert(new.redemption);
            demand(fresh && new.state == TokenState::Live, "I12", None, || {
                format!("a token is minted as {new:?}, {next} is the next redemption")
            })?;
            self.is_served(shard.node(), "minted")?;
            let ttl = self.site.most(|config| millis(config.buffer.token_ttl));
            return demand(new.expires_at <= now.saturating_add(ttl), "I18", None, || {
                format!("a token is good until {} at {now}", new.expires_at)
            });
        };
        let (state, since) = (new.state, new.since);
        let same = TokenRow { state, since, ..old.clone() } == *new;
        demand(same && old.state == TokenState::Live, "I12", None, || {
            format!("the token {old:?} becomes {new:?}")
        })?;
        match new.state {
            TokenState::Live => Ok(()),
            TokenState::Redeemed => {
                self.is_served(shard.node(), "used")?;
                self.site.pickup.fetches.used(new.redemption);
                t.pickup.redeemed.push((shard, new.redemption));
                self.site.pickup.used.insert(new.redemption);
                demand(since < old.expires_at && since <= now, "I12", None, || {
                    format!("a token that is good until {} is used at {since}", old.expires_at)
                })
            }
            // In one session a shard is notified of once, unless its token runs out.
            TokenState::Replaced => {
                let node = self.site.disk.pickup.nodes.get(shard.node());
                let from = node.and_then(|node| node.tokens_from).unwrap_or(0);
                let again = old.redemption < from || self.site.acts.contains("pickup_retry");
                demand(again, "I24", None, || {
                    format!("{} is notified of anew, and {old:?} is good", show(&shard))
                })
            }
        }
    }

    pub(super) fn put_nonce(&mut self, nonce: &Nonce, row: &NonceRow, t: &mut Touched) -> Check {
        t.pickup.nonces.push(nonce.clone());
        let fresh = self.site.pickup.spent.insert(nonce.clone()) || self.site.has_lost_shards();
        demand(fresh, "I13", None, || format!("a nonce of {} is spent again: {row:?}", nonce.0))
    }
}
