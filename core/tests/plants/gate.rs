//! What leaves rests on what is durable.

use consign_core::code::Refusal;
use consign_core::id::SegmentId;
use consign_core::plant::Plant;
use consign_core::segment::Class;
use consign_core::session::{Promise, SessionCommand};
use consign_core::store::{CommitFault, Snapshot};

use consign_core::node::Input;

use crate::site::{Site, offer_inline, to_alpha};
use crate::story::{End, promise, site};

/// The segments that were acknowledged since the last look.
fn acked(site: &mut Site) -> Vec<SegmentId> {
    let acks = site.promises().into_iter().filter_map(|(_, promise)| match promise {
        Promise::Ack { id, .. } => Some(id),
        Promise::Start { .. }
        | Promise::Send(_)
        | Promise::Accept { .. }
        | Promise::Receipt(_)
        | Promise::ReceiptOk { .. }
        | Promise::Want { .. }
        | Promise::Accepted { .. }
        | Promise::Done { .. }
        | Promise::Pickup(_) => None,
    });
    acks.collect()
}

fn acked_is_held(site: &Site, acked: &[SegmentId]) -> End {
    promise(acked.iter().all(|id| site.segment(*id).is_some()), || {
        "a segment that was acknowledged is not held".into()
    })
}

/// (G2) The peer offers a segment twice; the batch with its rows finds no space.
pub fn second_offer(plant: Option<Plant>) -> End {
    let mut site = site(&["beta"], plant);
    let conn = site.session("beta");
    site.settle();
    offer_inline(&mut site, conn, 1, "one", to_alpha());
    offer_inline(&mut site, conn, 2, "one", to_alpha());
    site.turn();
    site.turn();
    site.store.fail_commit(1, CommitFault::Full("no space left on device".into()));
    site.commit();
    site.settle();
    let acked = acked(&mut site);
    acked_is_held(&site, &acked)
}

/// The process dies while a new segment is on its way to the disk.
pub fn crash_before_commit(plant: Option<Plant>) -> End {
    let mut site = site(&["beta"], plant);
    let conn = site.session("beta");
    site.settle();
    offer_inline(&mut site, conn, 1, "one", to_alpha());
    site.turn();
    site.turn();
    let acked = acked(&mut site);
    let mut site = site.restart();
    site.settle();
    acked_is_held(&site, &acked)
}

/// (G7) The store is told that a commit found no space, and yet all of it is there.
pub fn error_after_effect(plant: Option<Plant>) -> End {
    let mut site = site(&["beta"], plant);
    site.settle();
    let client = site.client();
    let id = site.submit(client, 1, "one", &["beta"], Class::Normal);
    site.turn();
    site.turn();
    site.commit_by(|store, batch| {
        let committed = store.commit(batch);
        let from = batch.number;
        let read_back = !Plant::G7.is_in(plant);
        if read_back && store.snapshot().as_of() >= from {
            return committed;
        }
        let why = CommitFault::Full("no space left on device".into());
        Input::CommitFailed { from, why, space: store.space() }
    });
    site.settle();
    let told = site.take_told(client);
    let refused =
        told.iter().any(|c| matches!(c, SessionCommand::Refuse { refusal: Refusal::DiskFull, .. }));
    promise(!refused || site.segment(id).is_none(), || {
        "a segment that was refused as `disk_full` is held".into()
    })
}

/// (G8) A newer session of the peer takes the place of the one that claimed, while the claim is on
/// its way to the disk.
pub fn replaced_session(plant: Option<Plant>) -> End {
    let mut site = site(&["beta"], plant);
    site.queue("one", &["beta"]);
    site.session("beta");
    site.turn();
    assert!(site.has_batch() && site.promises().is_empty(), "the claim is not durable yet");
    let newer = site.connect("beta", true);
    site.turn();
    site.commit();
    site.turn();
    let early = site.sendings();
    site.settle();
    site.hello(newer, "beta");
    site.settle();
    let sent = early.into_iter().chain(site.sendings()).filter(|(conn, _)| *conn == newer).count();
    promise(sent == 1, || format!("one segment is on its way {sent} times on one session"))
}
