//! Uploads to a small relay that cuts, loses, refuses and lies.

use std::collections::VecDeque;

use super::*;
use crate::pickup::source::{FileSource, Stream};
use crate::pickup::testing::{Fake, State};
use crate::pickup::url::Relay;

fn upload(relay: Relay) -> Upload {
    let target = Target::new(relay, None).unwrap();
    let shard = ShardKey::new("photos", 3, 1, "edge-7").unwrap();
    let token = Token::new([0xab; 32]);
    Upload { tries: 3, pause: Duration::from_millis(1), ..Upload::new(target, shard, token) }
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 % 251) as u8).collect()
}

fn file(content: &[u8]) -> (tempfile::NamedTempFile, FileSource) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), content).unwrap();
    let source = FileSource::open(file.path(), &mut |_| {}).unwrap().unwrap();
    (file, source)
}

fn run(fake: &Fake, source: &mut dyn Source) -> Result<Done, Failure> {
    upload(fake.relay()).run(source, &mut |_| {})
}

const MIB: usize = 1 << 20;

#[test]
fn a_file_goes_in_whole_and_is_known_the_second_time() {
    for len in [0, 1, 100_000, MIB] {
        let fake = Fake::new(State::default());
        let (_kept, mut source) = file(&content(len));
        let done = run(&fake, &mut source).unwrap();
        assert_eq!((done.known, done.again, done.uploaded.size), (false, 0, len as u64));
        assert_eq!(fake.state().whole, Some(content(len)));
        let done = run(&fake, &mut source).unwrap();
        assert!(done.known);
        assert_eq!(fake.state().log, ["HEAD", "POST", "HEAD", "POST"]);
    }
}

#[test]
fn what_breaks_off_goes_on_where_the_relay_has_it() {
    let cuts = VecDeque::from([300_000, 1, 500_000]);
    let fake = Fake::new(State { cuts, ..State::default() });
    let (_kept, mut source) = file(&content(2 * MIB));
    let mut told = Vec::new();
    let done = upload(fake.relay()).run(&mut source, &mut |step| told.push(step)).unwrap();
    assert_eq!((done.again, fake.state().whole.clone()), (3, Some(content(2 * MIB))));
    let expected =
        ["HEAD", "POST", "HEAD", "PATCH 300000", "HEAD", "PATCH 300001", "HEAD", "PATCH 800001"];
    assert_eq!(fake.state().log, expected);
    assert!(told.contains(&Step::At(2 * MIB as u64)));
    assert_eq!(told.iter().filter(|step| matches!(step, Step::Again(..))).count(), 3);
}

#[test]
fn a_stream_goes_back_to_what_a_kill_has_lost() {
    let cuts = VecDeque::from([300_000, 200_000]);
    let fake = Fake::new(State { cuts, loses: 50_000, ..State::default() });
    let all = content(MIB);
    let mut from = all.as_slice();
    let mut source = Stream::new(&mut from);
    let done = run(&fake, &mut source).unwrap();
    assert_eq!((done.again, fake.state().whole.as_ref()), (2, Some(&all)));
    assert_eq!(fake.state().log[3], "PATCH 250000");
}

#[test]
fn an_upload_that_was_begun_before_goes_on_and_a_strange_one_is_replaced() {
    let all = content(MIB);
    for (there, log) in [
        (all[..400_000].to_vec(), vec!["HEAD", "PATCH 400000"]),
        (vec![9; 400_000], vec!["HEAD", "PATCH 400000", "HEAD", "POST"]),
    ] {
        let fake = Fake::new(State { partial: Some(there), ..State::default() });
        let (_kept, mut source) = file(&all);
        run(&fake, &mut source).unwrap();
        assert_eq!(fake.state().whole.as_ref(), Some(&all));
        assert_eq!(fake.state().log, log);
    }
}

#[test]
fn refusals_have_their_codes_and_are_heard_while_the_body_is_on_its_way() {
    let table = [
        (401, "unauthorized", Exit::NotPermitted, "CN0804"),
        (404, "unknown_node", Exit::NoMatch, "CN0807"),
        (409, "conflict", Exit::Failed, "CN0808"),
        (413, "too_large", Exit::Failed, "CN0809"),
        (507, "quota", Exit::TryLater, "CN0810"),
        (500, "corrupt", Exit::Failed, "CN0811"),
        (400, "digest_mismatch", Exit::Failed, "CN0812"),
    ];
    for (status, code, exit, stable) in table {
        let refusals = VecDeque::from([(status, code)]);
        let fake = Fake::new(State { refusals, ..State::default() });
        let (_kept, mut source) = file(&content(4 * MIB));
        let failure = run(&fake, &mut source).unwrap_err();
        assert_eq!((failure.exit, failure.code), (exit, stable), "{status}: {failure}");
        assert!(failure.message.contains(code));
    }
    let stranger =
        Upload { token: Token::new([1; 32]), ..upload(Fake::new(State::default()).relay()) };
    let (_kept, mut source) = file(b"x");
    assert_eq!(stranger.run(&mut source, &mut |_| {}).unwrap_err().code, "CN0804");
}

#[test]
fn what_passes_is_tried_again_and_not_for_ever() {
    let refusals = VecDeque::from([(503, "unavailable"), (409, "busy"), (429, "too_many_nonces")]);
    let fake = Fake::new(State { refusals: refusals.clone(), ..State::default() });
    let (_kept, mut source) = file(b"hello");
    let patient = Upload { tries: 4, ..upload(fake.relay()) };
    assert_eq!(patient.run(&mut source, &mut |_| {}).unwrap().again, 3);
    let fake = Fake::new(State { refusals, ..State::default() });
    let failure = run(&fake, &mut source).unwrap_err();
    assert_eq!((failure.exit, failure.code), (Exit::Unreachable, "CN0803"));
    // Nobody listens there.
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let relay = Relay::parse(&format!("http://{gone}")).unwrap();
    let failure = upload(relay).run(&mut source, &mut |_| {}).unwrap_err();
    assert_eq!((failure.exit, failure.code), (Exit::Unreachable, "CN0803"));
}

#[test]
fn a_relay_that_has_something_else_is_not_believed() {
    let fake = Fake::new(State { lies: true, ..State::default() });
    let (_kept, mut source) = file(b"hello");
    assert_eq!(run(&fake, &mut source).unwrap_err().code, "CN0812");
}
