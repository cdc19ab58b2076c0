//! Uploads to files: one writer, checkpoints, resume, what breaks off.

use std::time::Duration;

use consign_core::config::{BufferConfig, Config};
use consign_core::id::Sha256Digest;
use consign_core::ledger::Table;
use consign_core::ledger::rows::Body;
use consign_core::ledger::rows_pickup::ShardState;
use consign_core::pickup::{
    Answer, BrokenUpload, Command, Event, PickupRefusal, UploadAsk, UploadKind,
};
use consign_core::store::StoreFault;

use crate::relay::{MIB, Relay, Said, digests, shard, with};

fn body(len: u64) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8).collect()
}

#[test]
fn a_file_is_created_after_its_commit_and_owned_by_its_shard() {
    let mut relay = Relay::new();
    let key = shard("a", 0);
    let conn = relay.site.client();
    let ticket = relay.ticket();
    let ask = Box::new(relay.ask_of(&key, Some(100_000)));
    relay.tell(conn, Event::Upload { ticket, ask });
    while !relay.site.has_batch() {
        relay.site.turn();
    }
    assert_eq!(relay.said(conn), [], "B3: nothing before the commit");
    relay.site.settle();
    let said = relay.said(conn);
    let [Said::Answer(Answer::Granted { blob, offset: 0, reserved: 100_000, .. })] = said[..]
    else {
        panic!("{said:?}")
    };
    assert_eq!((relay.state(&key), relay.used()), (Some(ShardState::Uploading), 100_000));
    relay.audit();
    let content = body(100_000);
    let (writer, content) =
        (crate::relay::Writer { conn, ticket, blob, offset: 0, reserved: 0 }, content);
    let create = consign_core::store::StoreRequest::Create { blob, offset: 0 };
    relay.site.store.request(conn, create);
    relay.write(&writer, &content);
    let (new, view) = relay.whole(&writer, &content).unwrap();
    assert!(new && view.buffer == Some(Body::Blob(blob)));
    assert_eq!((relay.site.store.rows(Table::Incoming), relay.used()), (0, 100_000));
    assert_eq!(relay.site.store.rows(Table::Digests), 0, "shards share with nobody");
    relay.audit();
}

#[test]
fn one_writer_proceeds_and_the_other_is_told_the_offset() {
    let mut relay = Relay::new();
    let key = shard("a", 0);
    let ask = relay.ask_of(&key, Some(40 * MIB));
    let writer = relay.begin(ask.clone()).unwrap();
    relay.write(&writer, &body(16 * MIB));
    let (ticket, blob) = (writer.ticket, writer.blob);
    let chain = vec![1, 2, 3];
    relay.tell(writer.conn, Event::Checkpoint { ticket, blob, offset: 16 * MIB, chain });
    relay.site.settle();
    assert_eq!(relay.head(&key, "cam"), Ok((16 * MIB, false, ShardState::Uploading)));
    assert_eq!(relay.head(&key, "eve"), Err(PickupRefusal::NotFound));
    let mut patch = ask.clone();
    patch.kind = UploadKind::Patch { offset: 16 * MIB };
    for ask in [ask.clone(), patch.clone()] {
        let conn = relay.site.client();
        let ticket = relay.ticket();
        let said = relay.ask(conn, Event::Upload { ticket, ask: Box::new(ask) });
        let Said::Command(Command::Refuse { refusal, number, .. }) = said else { panic!() };
        assert_eq!((refusal, number), (PickupRefusal::Busy, Some(16 * MIB)));
    }
    // The connection ends: what was checkpointed waits for its client, and for nobody else.
    relay.close(writer.conn);
    relay.site.settle();
    let mut eve = patch.clone();
    eve.client = Some(crate::relay::token_of("eve"));
    assert_eq!(relay.begin(eve).unwrap_err(), PickupRefusal::NotFound);
    let mut ahead = patch.clone();
    ahead.kind = UploadKind::Patch { offset: 17 * MIB };
    assert_eq!(relay.begin(ahead).unwrap_err(), PickupRefusal::WrongOffset);
    patch.body = Some(24 * MIB);
    let writer = relay.begin(patch).unwrap();
    assert_eq!((writer.offset, writer.blob), (16 * MIB, blob));
    relay.write(&writer, &body(40 * MIB)[16 * MIB as usize..]);
    assert!(relay.whole(&writer, &body(40 * MIB)).unwrap().0);
    assert_eq!(relay.head(&key, "cam"), Ok((40 * MIB, true, ShardState::RelayBuffered)));
    relay.audit();
}

#[test]
fn what_arrived_is_durable_before_its_offset_is_told_and_survives_a_restart() {
    let mut relay = Relay::new();
    let key = shard("a", 0);
    let ask = relay.ask_of(&key, Some(100_000));
    let writer = relay.begin(ask.clone()).unwrap();
    relay.write(&writer, &body(30_000));
    let answer = relay.cut(&writer, 30_000).unwrap();
    let Answer::Offset { offset: 30_000, complete: false, state, .. } = answer else { panic!() };
    assert_eq!(state, ShardState::Uploading);
    let mut relay = relay.restart();
    relay.site.settle();
    assert_eq!(relay.head(&key, "cam"), Ok((30_000, false, ShardState::Uploading)));
    relay.audit();
    let mut patch = ask;
    patch.kind = UploadKind::Patch { offset: 30_000 };
    let conn = relay.site.client();
    let ticket = relay.ticket();
    let said = relay.ask(conn, Event::Upload { ticket, ask: Box::new(patch) });
    let Said::Answer(Answer::Granted { blob, offset: 30_000, chain, .. }) = said else { panic!() };
    assert_eq!((blob, chain), (writer.blob, vec![7; 4]));
}

#[test]
fn going_on_from_nothing_takes_another_file() {
    let mut relay = Relay::new();
    let key = shard("a", 0);
    let ask = relay.ask_of(&key, Some(100_000));
    let first = relay.begin(ask.clone()).unwrap();
    relay.write(&first, &body(30_000));
    // The connection is gone without a word: its file is there, and nothing of it counts.
    relay.close(first.conn);
    relay.site.settle();
    assert_eq!(relay.head(&key, "cam"), Ok((0, false, ShardState::Uploading)));
    let patch = UploadAsk { kind: UploadKind::Patch { offset: 0 }, ..ask };
    let second = relay.begin(patch).unwrap();
    assert!(second.blob != first.blob && second.offset == 0);
    relay.write(&second, &body(100_000));
    assert!(relay.whole(&second, &body(100_000)).unwrap().0);
    relay.site.settle();
    assert_eq!(relay.used(), 100_000, "the first is gone");
    relay.audit();
}

/// Both files are charged until the first is gone: where that is too much, it goes first.
#[test]
fn going_on_from_nothing_stays_within_the_limit() {
    let config = Config { max_bytes: 150_000, ..with(BufferConfig::default()) };
    let mut relay = Relay::with(config);
    let ask = relay.ask_of(&shard("a", 0), Some(100_000));
    let first = relay.begin(ask.clone()).unwrap();
    relay.write(&first, &body(30_000));
    relay.close(first.conn);
    relay.site.settle();
    let patch = UploadAsk { kind: UploadKind::Patch { offset: 0 }, ..ask.clone() };
    assert_eq!(relay.begin(patch.clone()).unwrap_err(), PickupRefusal::Unavailable);
    relay.site.settle();
    assert_eq!(relay.used(), 0, "nothing of it was durable");
    relay.audit();
    assert_eq!(relay.begin(patch).unwrap_err(), PickupRefusal::NotFound);
    let second = relay.begin(ask).unwrap();
    relay.write(&second, &body(100_000));
    assert!(relay.whole(&second, &body(100_000)).unwrap().0);
    assert_eq!(relay.used(), 100_000);
    relay.audit();
}

#[test]
fn a_post_onto_a_partial_of_its_own_begins_anew() {
    let mut relay = Relay::new();
    let key = shard("a", 0);
    let ask = relay.ask_of(&key, Some(100_000));
    let first = relay.begin(ask.clone()).unwrap();
    relay.cut(&first, 30_000).unwrap();
    let mut eve = ask.clone();
    eve.client = Some(crate::relay::token_of("eve"));
    assert_eq!(relay.begin(eve).unwrap_err(), PickupRefusal::Conflict);
    let second = relay.begin(ask).unwrap();
    assert!(second.blob != first.blob && second.offset == 0);
    relay.site.settle();
    assert_eq!(relay.used(), 100_000, "the first is gone");
    relay.audit();
    // A small one in its place.
    relay.cut(&second, 0).unwrap();
    relay.put(&key, b"small");
    relay.site.settle();
    assert_eq!(relay.site.store.files().count(), 0);
    relay.audit();
}

#[test]
fn a_mismatch_discards_the_partial_and_the_row_is_what_it_was() {
    for slot in [false, true] {
        let mut relay = Relay::new();
        let key = shard("a", 0);
        if slot {
            relay.slot(&key, "cam", 100_000).unwrap();
        }
        let mut ask = relay.ask_of(&key, Some(100_000));
        ask.sha256 = Some(Sha256Digest([8; 32]));
        let writer = relay.begin(ask).unwrap();
        assert_eq!(relay.used(), 100_000);
        let (ticket, blob) = (writer.ticket, writer.blob);
        let why = BrokenUpload::Mismatch;
        let told = relay.call(writer.conn, Event::Broken { ticket, blob, why });
        assert_eq!(told, Err(PickupRefusal::DigestMismatch));
        let state = slot.then_some(ShardState::Created);
        assert_eq!(relay.state(&key), state);
        relay.site.settle();
        assert_eq!(relay.used(), if slot { 100_000 } else { 0 });
        relay.audit();
        // Whatever the session says, the node compares too.
        let ask = relay.ask_of(&key, Some(100_000));
        let mut ask = ask;
        ask.sha256 = Some(Sha256Digest([8; 32]));
        let writer = relay.begin(ask).unwrap();
        relay.write(&writer, &body(100_000));
        assert_eq!(relay.whole(&writer, &body(100_000)), Err(PickupRefusal::DigestMismatch));
        assert_eq!(relay.state(&key), state);
        relay.audit();
    }
}

#[test]
fn a_body_of_unknown_length_is_reserved_in_steps_up_to_the_limit() {
    let mut relay = Relay::new();
    let key = shard("a", 0);
    let mut ask = relay.ask_of(&key, None);
    ask.body = None;
    let writer = relay.begin(ask).unwrap();
    assert_eq!((writer.reserved, relay.used()), (64 * MIB, 64 * MIB));
    let (ticket, blob) = (writer.ticket, writer.blob);
    let answer = relay.call(writer.conn, Event::Extend { ticket, blob }).unwrap();
    let Answer::Granted { reserved, .. } = answer else { panic!() };
    assert_eq!((reserved, relay.used(), relay.status().used), (128 * MIB, 128 * MIB, 128 * MIB));
    relay.audit();
    relay.write(&writer, &body(70_000));
    assert!(relay.whole(&writer, &body(70_000)).unwrap().0);
    assert_eq!((relay.used(), relay.status().used), (70_000, 70_000));
    relay.audit();
}

#[test]
fn the_same_shard_sent_again_at_length_is_compared_and_kept_for_nobody() {
    let mut relay = Relay::new();
    let key = shard("a", 0);
    relay.put_file(&key, &body(100_000));
    let mut other = body(100_000);
    other[5] ^= 1;
    for (sent, outcome) in [(body(100_000), Ok(false)), (other, Err(PickupRefusal::Conflict))] {
        let ask = relay.ask_of(&key, Some(100_000));
        let writer = relay.begin(ask).unwrap();
        relay.write(&writer, &sent);
        assert_eq!(relay.whole(&writer, &sent).map(|(new, _)| new), outcome);
        relay.site.settle();
        assert_eq!((relay.used(), relay.site.store.files().count()), (100_000, 1));
        relay.audit();
    }
    let ask = relay.ask_of(&key, Some(100_000));
    let writer = relay.begin(ask).unwrap();
    relay.close(writer.conn);
    relay.site.settle();
    assert_eq!(relay.site.store.files().count(), 1);
    relay.audit();
    // A part that is longer than the whole is part of something else.
    let mut ask = relay.ask_of(&key, None);
    (ask.body, ask.complete) = (Some(100_001), false);
    assert_eq!(relay.upload(ask), Err(PickupRefusal::Conflict));
    // Whoever does not say the length is told it: nothing more is to be reserved ahead.
    let conn = relay.site.client();
    let ticket = relay.ticket();
    let ask = Box::new(relay.ask_of(&key, None));
    let answer = relay.call(conn, Event::Upload { ticket, ask }).unwrap();
    assert!(
        matches!(answer, Answer::Granted { size: Some(100_000), reserved: 100_000, .. }),
        "{answer:?}"
    );
}

#[test]
fn what_is_only_compared_needs_room_beside_the_shard() {
    let config = Config { max_bytes: 150_000, ..with(BufferConfig::default()) };
    let mut relay = Relay::with(config);
    let key = shard("a", 0);
    relay.put_file(&key, &body(100_000));
    let ask = relay.ask_of(&key, Some(100_000));
    assert_eq!(relay.begin(ask).map(|_| ()), Err(PickupRefusal::Quota));
    relay.site.settle();
    assert_eq!((relay.used(), relay.site.store.files().count()), (100_000, 1));
    // By its digest it is known without another copy.
    let ask =
        UploadAsk { sha256: Some(digests(&body(100_000)).0), ..relay.ask_of(&key, Some(100_000)) };
    assert_eq!(relay.upload(ask).map(|(new, _)| new), Ok(false));
    relay.audit();
}

#[test]
fn a_file_that_cannot_be_written_is_given_up_or_stops_the_process() {
    let full = BrokenUpload::Store(StoreFault::Full("no space".into()));
    let lost = BrokenUpload::Store(StoreFault::Missing("gone".into()));
    for (why, code) in [(full, PickupRefusal::DiskFull), (lost, PickupRefusal::Unavailable)] {
        let mut relay = Relay::new();
        let ask = relay.ask_of(&shard("a", 0), Some(100_000));
        let writer = relay.begin(ask).unwrap();
        let (ticket, blob) = (writer.ticket, writer.blob);
        assert_eq!(relay.call(writer.conn, Event::Broken { ticket, blob, why }), Err(code));
        relay.site.settle();
        assert_eq!((relay.state(&shard("a", 0)), relay.used()), (None, 0));
        relay.audit();
    }
    let mut relay = Relay::new();
    let ask = relay.ask_of(&shard("a", 0), Some(100_000));
    let Writer { conn, ticket, blob, .. } = relay.begin(ask).unwrap();
    let why = BrokenUpload::Store(StoreFault::Io("input/output error".into()));
    relay.tell(conn, Event::Broken { ticket, blob, why });
    relay.site.settle();
    assert!(relay.site.halted.is_some());
}

use crate::relay::Writer;

#[test]
fn progress_is_written_every_five_minutes_and_an_upload_that_moves_is_not_given_up() {
    let mut relay = Relay::new();
    let key = shard("a", 0);
    let ask = relay.ask_of(&key, Some(400 * MIB));
    let writer = relay.begin(ask).unwrap();
    let (ticket, blob) = (writer.ticket, writer.blob);
    let mut written = std::collections::BTreeSet::new();
    for step in 1..=20 {
        relay.wait(Duration::from_secs(240));
        let (offset, chain) = (step * 16 * MIB, vec![]);
        relay.tell(writer.conn, Event::Checkpoint { ticket, blob, offset, chain });
        relay.site.settle();
        written.insert(relay.row(&key).unwrap().progress_at);
    }
    assert_eq!(relay.state(&key), Some(ShardState::Uploading), "80 minutes");
    assert!((10..=11).contains(&written.len()), "{}", written.len());
    // Then it stands still.
    relay.wait(Duration::from_secs(3599));
    assert_eq!(relay.state(&key), Some(ShardState::Uploading));
    relay.wait(Duration::from_secs(1));
    assert_eq!(relay.state(&key), Some(ShardState::RelayCleanup));
    let said = relay.said(writer.conn);
    let refused = PickupRefusal::Conflict;
    assert!(
        matches!(&said[..], [Said::Command(Command::Refuse { refusal, .. })] if *refusal == refused)
    );
    assert_eq!(relay.used(), 0);
    relay.audit();
}
