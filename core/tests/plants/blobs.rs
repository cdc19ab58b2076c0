//! Content files: one for each row, a row for each file, and the quota right after every end.

use std::time::Duration;

use consign_core::config::Config;
use consign_core::id::{BlobNo, TransferNo};
use consign_core::ledger::rows::{BlobRow, MetaName};
use consign_core::ledger::{Table, keys};
use consign_core::node::Input;
use consign_core::plant::Plant;
use consign_core::segment::Destinations;
use consign_core::session::{Broken, Content, Promise, SessionCommand, SessionEvent, Submission};
use consign_core::store::{CommitFault, Snapshot, StoreRequest};

use crate::site::{Site, accepted, config, offer_blob, recovery, write};
use crate::story::{End, promise, site};

const TRANSFER: TransferNo = TransferNo(1);

fn used(site: &Site) -> u64 {
    recovery(&site.store).meta_value(MetaName::UsedBytes)
}

/// Whether any of the tables names a blob.
fn names(snapshot: &dyn Snapshot, tables: &[Table], blob: BlobNo) -> bool {
    tables.iter().any(|table| snapshot.get(*table, &keys::blob(blob)).unwrap().is_some())
}

fn files_have_rows(site: &Site) -> End {
    let tables = [Table::Blobs, Table::Incoming, Table::Doomed];
    let snapshot = site.store.snapshot();
    let orphan = site.store.files().map(|(blob, _)| blob).find(|b| !names(&snapshot, &tables, *b));
    promise(orphan.is_none(), || format!("no row names the content file {orphan:?}"))
}

fn partials_are_there(site: &Site) -> End {
    for (blob, row) in recovery(&site.store).incoming {
        let file = site.store.files().find(|(file, _)| *file == blob);
        let there = file.map_or(0, |(_, file)| file.synced as u64);
        promise(there >= row.offset, || {
            format!("{} bytes of a transfer were durable, {there} are there", row.offset)
        })?;
    }
    Ok(())
}

/// Beta sends half of some content, up to a checkpoint that is durable. Returns its blob.
fn half(site: &mut Site, body: &[u8]) -> BlobNo {
    let conn = site.session("beta");
    site.settle();
    offer_blob(site, conn, 1, body);
    site.settle();
    let (blob, _, _) = accepted(site);
    let half = body.len() / 2;
    write(site, conn, blob, 0, &body[..half]);
    site.store.request(conn, StoreRequest::Sync { blob });
    let (offset, chain) = (half as u64, vec![1]);
    let event = SessionEvent::Checkpoint { transfer: TRANSFER, blob, offset, chain };
    site.input(Input::Session(conn, event));
    site.settle();
    site.store.conn_ended(conn);
    site.input(Input::Closed { conn, why: "reset".into() });
    site.settle();
    blob
}

/// (B1) A partial of the last run is finished while the sweep for orphans is under way.
pub fn sweep(plant: Option<Plant>) -> End {
    let mut site = site(&["beta"], plant);
    let body = [7; 140_000];
    let blob = half(&mut site, &body);
    let mut site = site.restart();
    let folder = blob.0.to_le_bytes()[0];
    site.hold_sweep = Some(folder);
    site.settle();
    let before = site.store.snapshot();
    let conn = site.session("beta");
    site.settle();
    let offer = offer_blob(&mut site, conn, 1, &body);
    site.settle();
    let (resumed, offset, _) = accepted(&mut site);
    assert_eq!((resumed, offset), (blob, 70_000));
    write(&mut site, conn, blob, offset, &body[70_000..]);
    site.store.request(conn, StoreRequest::Finish { blob });
    site.input(Input::Session(conn, SessionEvent::Received { transfer: TRANSFER, blob }));
    site.settle();
    let after = site.store.snapshot();
    // What the store does for the node: look which files no row names, and set those aside.
    let first = if Plant::B1.is_in(plant) { &before } else { &after };
    let known = names(first, &[Table::Blobs], blob)
        || names(&after, &[Table::Incoming, Table::Doomed], blob);
    if !known {
        site.store.lose_file(blob);
    }
    site.input(Input::Swept { folder, quarantined: u64::from(!known) });
    site.settle();
    assert!(site.segment(offer.id).is_some(), "it is received");
    promise(site.store.files().any(|(file, _)| file == blob), || {
        "the content of a segment that was acknowledged is set aside as an orphan".into()
    })
}

/// Hands in content that is too large to park.
fn submit(site: &mut Site, name: &str, body: &[u8]) {
    let client = site.client();
    let size = Some(body.len() as u64);
    site.input(Input::Session(client, SessionEvent::Reserve { ticket: TRANSFER, size }));
    site.settle();
    let (blob, _, _) = accepted(site);
    write(site, client, blob, 0, body);
    site.store.request(client, StoreRequest::Finish { blob });
    let to = Destinations::named(vec!["beta".into()]).unwrap();
    let offer = Site::make_offer(name, body, 1, to);
    let submission = Box::new(Submission {
        meta: offer.meta,
        to: offer.to,
        id: offer.id,
        digest: offer.digest,
        size: offer.size,
        content: Content::Blob(blob),
        watched: None,
    });
    site.input(Input::Session(client, SessionEvent::Submit { ticket: TRANSFER, submission }));
    site.settle();
    let told = site.take_told(client);
    assert!(matches!(&told[..], [SessionCommand::Promised(_)]), "{told:?}");
}

/// (B2) The same content is handed in under two names.
pub fn shared_content(plant: Option<Plant>) -> End {
    let mut site = site(&["beta"], plant);
    site.settle();
    submit(&mut site, "first", &[5; 70_000]);
    submit(&mut site, "second", &[5; 70_000]);
    let owners = site.store.rows(Table::Owners);
    let mut refs = Vec::new();
    let mut visit = |key: &[u8], value: &[u8]| {
        let row: BlobRow = consign_core::ledger::codec::decode(Table::Blobs, key, value).unwrap();
        refs.push(row.refs as usize);
        true
    };
    site.store.snapshot().scan(Table::Blobs, &[], &mut visit).unwrap();
    promise(refs == [owners], || {
        format!("{owners} segments rest on a file that counts {refs:?}: it goes with the first")
    })
}

/// (B3) The commit of a reservation finds no space; then everything is started again.
pub fn refused_reservation(plant: Option<Plant>) -> End {
    let mut site = site(&["beta"], plant);
    let conn = site.session("beta");
    site.settle();
    offer_blob(&mut site, conn, 1, &[7; 70_000]);
    site.turn();
    site.turn();
    for (conn, promise) in site.promises() {
        if let Promise::Accept { blob, .. } = promise {
            write(&mut site, conn, blob, 0, &[7; 1_000]);
            site.store.request(conn, StoreRequest::Sync { blob });
        }
    }
    site.store.fail_commit(1, CommitFault::Full("no space left on device".into()));
    site.commit();
    site.settle();
    let mut site = site.restart();
    site.settle();
    files_have_rows(&site)
}

/// (B5) Content is given up, its file is unlinked, and then the process dies.
pub fn crash_after_unlink(plant: Option<Plant>) -> End {
    let mut site = site(&["beta"], plant);
    let conn = site.session("beta");
    site.settle();
    offer_blob(&mut site, conn, 1, &[7; 70_000]);
    site.settle();
    let (blob, _, _) = accepted(&mut site);
    write(&mut site, conn, blob, 0, &[7; 1_000]);
    site.store.request(conn, StoreRequest::Abandon { blob });
    let event = SessionEvent::Broken { transfer: TRANSFER, blob, why: Broken::Cut };
    site.input(Input::Session(conn, event));
    site.turn();
    site.commit();
    site.turn();
    assert_eq!(site.store.files().count(), 0, "it is unlinked");
    let mut site = site.restart();
    site.settle();
    let used = used(&site);
    promise(used == 0, || format!("{used} bytes are charged for nothing"))
}

/// A partial that nobody came back for is given up, and the process dies before that is durable.
pub fn crash_before_doom(plant: Option<Plant>) -> End {
    let partial_ttl = Duration::from_secs(100);
    let mut site = Site::with(Config { plant, partial_ttl, ..config(&["beta"]) });
    half(&mut site, &[7; 140_000]);
    site.now.mono = site.now.mono.after(partial_ttl);
    site.now.wall = site.now.wall.after(partial_ttl);
    site.input(Input::Timer);
    site.turn();
    site.turn();
    let site = site.restart();
    partials_are_there(&site)
}

/// Content does not match what was offered.
pub fn mismatch(plant: Option<Plant>) -> End {
    let mut site = site(&["beta"], plant);
    let conn = site.session("beta");
    site.settle();
    offer_blob(&mut site, conn, 1, &[1; 70_000]);
    site.settle();
    let (blob, _, _) = accepted(&mut site);
    write(&mut site, conn, blob, 0, &[2; 70_000]);
    site.store.request(conn, StoreRequest::Abandon { blob });
    let event = SessionEvent::Broken { transfer: TRANSFER, blob, why: Broken::Mismatch };
    site.input(Input::Session(conn, event));
    site.settle();
    assert_eq!(site.store.files().count(), 0, "its file is gone");
    let used = used(&site);
    promise(used == 0, || format!("{used} bytes are charged for content that is gone"))
}
