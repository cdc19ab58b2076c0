//! Since when each peer waits: the first key of `owed` for it, and when that segment was accepted. Two short
//! looks for each peer, whatever the backlog is.

use serde::{Deserialize, Serialize};

use consign_core::id::{Seq, SiteNo};
use consign_core::ledger::read::row;
use consign_core::ledger::rows::{PeerRow, SegmentRow};
use consign_core::ledger::{Table, codec, keys};
use consign_core::node::Status;
use consign_core::store::{Snapshot, StoreFault};
use consign_core::time::UnixMillis;

/// Rows looked at for one peer where the first cannot be read.
const LOOKS: usize = 16;

/// Peers by name with the accept time (ms) of the oldest segment that each is owed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Oldest(pub Vec<(String, u64)>);

impl Oldest {
    /// Reads it.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub(super) fn read(snapshot: &dyn Snapshot) -> Result<Oldest, StoreFault> {
        let mut peers = Vec::new();
        snapshot.scan(Table::Peers, &[], &mut |key, value| {
            let row = codec::decode::<PeerRow>(Table::Peers, key, value);
            let site = <[u8; 4]>::try_from(key).ok().map(u32::from_be_bytes);
            peers.extend(site.zip(row.ok()).map(|(site, row)| (SiteNo(site), row.name)));
            true
        })?;
        let mut oldest = Vec::new();
        for (site, name) in peers {
            if let Some(at) = first_owed(snapshot, site)? {
                oldest.push((name, at));
            }
        }
        Ok(Oldest(oldest))
    }

    /// Puts it in place of what the node knows from memory.
    pub(super) fn into_status(self, status: &mut Status) {
        for peer in &mut status.peers {
            let found = self.0.iter().find(|(name, _)| *name == peer.name);
            peer.oldest = found.map(|(_, at)| UnixMillis(*at));
        }
    }
}

/// When the first segment was accepted that a site is owed: accept numbers and times grow together.
fn first_owed(snapshot: &dyn Snapshot, site: SiteNo) -> Result<Option<u64>, StoreFault> {
    let mut first = Vec::new();
    snapshot.scan(Table::Owed, &keys::peer_seq(site, Seq(0)), &mut |key, _| {
        let owed = keys::parse_peer_seq(key).filter(|(of, _)| *of == site);
        first.extend(owed.map(|(_, seq)| seq));
        owed.is_some() && first.len() < LOOKS
    })?;
    for seq in first {
        match row::<SegmentRow>(snapshot, Table::Segments, &keys::seq(seq)) {
            Ok(Some(row)) => return Ok(Some(row.accepted_at)),
            // What cannot be read is the scrub's business.
            Ok(None) | Err(StoreFault::Corrupt(_)) => {}
            Err(fault) => return Err(fault),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use consign_core::store::Batch;

    use super::*;
    use crate::admin::testing;

    fn segment(batch: &mut Batch, seq: u64, accepted_at: u64) {
        let row = SegmentRow { accepted_at, ..testing::segment_row(seq) };
        batch.put(Table::Segments, &keys::seq(Seq(seq)), &row);
    }

    fn owe(batch: &mut Batch, site: u32, seq: u64) {
        batch.put_key(Table::Owed, &keys::peer_seq(SiteNo(site), Seq(seq)));
    }

    #[test]
    fn the_first_that_is_owed_tells_and_a_peer_that_is_owed_nothing_has_none() {
        let store = testing::ledger(|batch| {
            for (seq, at) in [(3, 3_000), (5, 5_000)] {
                segment(batch, seq, at);
            }
            owe(batch, 2, 5);
            owe(batch, 2, 3);
        });
        let oldest = Oldest::read(&store.snapshot()).expect("read");
        assert_eq!(oldest, Oldest(vec![("gamma".into(), 3_000)]));
        let peer = |name: &str, oldest| consign_core::node::PeerStatus {
            name: name.into(),
            oldest,
            ..Default::default()
        };
        let known = Some(UnixMillis(9));
        let peers = vec![peer("beta", known), peer("gamma", known)];
        let mut status = Status { peers, ..Status::default() };
        oldest.into_status(&mut status);
        assert_eq!(status.peers[0].oldest, None);
        assert_eq!(status.peers[1].oldest, Some(UnixMillis(3_000)));
    }

    #[test]
    fn a_segment_whose_row_is_gone_is_passed_by() {
        let store = testing::ledger(|batch| {
            segment(batch, 8, 8_000);
            owe(batch, 1, 7);
            owe(batch, 1, 8);
        });
        assert_eq!(Oldest::read(&store.snapshot()), Ok(Oldest(vec![("beta".into(), 8_000)])));
    }
}
