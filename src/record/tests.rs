//! Recordings: what survives the way to text and back, and what a replay finds.

mod make;
mod site;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use consign_core::config::Config;
use consign_core::ledger::read::Recovery;
use consign_core::node::Input;
use consign_core::plant::Plant;
use consign_core::time::Now;
use quickcheck::{Arbitrary, Gen, quickcheck};

use super::effect::BatchText;
use super::line::{Line, Start};
use super::reader::{Lines, Next};
use super::*;
use make::Any;
use site::Site;

fn read(bytes: &[u8]) -> Result<Outcome, ReplayError> {
    replay(bytes)
}

fn no_fault() -> OnFault {
    Box::new(|error| panic!("{error}"))
}

fn recording() -> (Recording, Memory) {
    Recording::in_memory(&Header::new("test").option("answer", 42))
}

/// Two nodes in one recording, three lives, some segments.
fn story() -> &'static str {
    static STORY: LazyLock<String> = LazyLock::new(told);
    &STORY
}

fn told() -> String {
    let (recording, memory) = recording();
    let (mut a, mut b) = (Site::new(&recording, 0), Site::new(&recording, 7));
    a.start();
    b.start();
    a.send(b"one");
    b.send(b"two");
    recording.note("a dies");
    a.kill();
    a.start();
    a.send(b"three");
    b.send(b"four");
    assert_eq!((a.acked, b.acked), (2, 2));
    drop((a, b, recording));
    String::from_utf8(memory.bytes()).expect("text")
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

fn joined(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// The text with the first line changed that begins with `begin` and has `from`; its number.
fn changed(text: &str, begin: &str, from: &str, to: &str) -> (String, u64) {
    let mut lines = lines(text);
    let fits = |line: &String| line.starts_with(begin) && line.contains(from);
    let at = lines.iter().position(fits).expect("such a line");
    lines[at] = lines[at].replacen(from, to, 1);
    (joined(&lines), at as u64 + 1)
}

quickcheck! {
    fn an_input_survives(now: Any<Now>, input: Any<Input>) -> bool {
        let line = Line::In { node: 3, now: now.0, input: Cow::Borrowed(&input.0) };
        let text = serde_json::to_vec(&line).expect("text");
        serde_json::from_slice::<Line<'static>>(&text).expect("a line") == line
    }

    fn a_start_survives(now: Any<Now>, config: Any<Config>, recovery: Any<Recovery>) -> bool {
        let (config, recovery) = (Cow::Borrowed(&config.0), Cow::Borrowed(&recovery.0));
        let line = Line::Start(Box::new(Start { node: 3, now: now.0, config, recovery }));
        let text = serde_json::to_vec(&line).expect("text");
        serde_json::from_slice::<Line<'static>>(&text).expect("a line") == line
    }

    fn no_line_makes_the_reader_panic(bytes: Vec<u8>, cut: usize) -> bool {
        let story = story();
        let mut text = story.as_bytes()[..cut % story.len()].to_vec();
        text.extend(bytes);
        let _ = read(&text);
        true
    }
}

#[test]
fn the_generator_makes_every_input_and_event() {
    let mut g = Gen::new(4);
    let mut seen = BTreeSet::new();
    for _ in 0..4_000 {
        let value = serde_json::to_value(Any::<Input>::arbitrary(&mut g).0).expect("a value");
        let name = |value: &serde_json::Value| match value {
            serde_json::Value::String(name) => name.clone(),
            other => other.as_object().and_then(|o| o.keys().next()).expect("a name").clone(),
        };
        if let Some(event) = value.get("Session").and_then(|both| both.get(1)) {
            seen.insert(format!("Session.{}", name(event)));
        } else {
            seen.insert(name(&value));
        }
    }
    // 20 inputs, of which one is told by its 21 events.
    assert_eq!(seen.len(), 19 + 21, "{seen:?}");
}

#[test]
fn bytes_are_lower_case_hex() {
    let mut g = Gen::new(4);
    let input = Input::Connected {
        conn: Any::arbitrary(&mut g).0,
        identity: consign_core::session::Identity {
            name: "beta".into(),
            fingerprint: [0xAB; 32],
            not_after: 1,
        },
        dialled: true,
    };
    let text = serde_json::to_string(&input).expect("text");
    assert!(text.contains(&format!("\"fingerprint\":\"{}\"", "ab".repeat(32))), "{text}");
    for wrong in ["ab", "", &"zz".repeat(32)] {
        let text = text.replace(&"ab".repeat(32), wrong);
        assert!(serde_json::from_str::<Input>(&text).is_err(), "{text}");
    }
}

#[test]
fn the_same_run_gives_the_same_bytes_and_a_replay_finds_them_identical() {
    let text = story();
    assert_eq!(text, told());
    let outcome = read(text.as_bytes()).expect("a recording");
    assert!(outcome.is_identical(), "{outcome}");
    assert_eq!(outcome.ending, Ending::Whole);
    assert_eq!(outcome.panicked, None);
    assert_eq!(outcome.header.options.get("answer").map(String::as_str), Some("42"));
    let Totals { lines: n, nodes, lives, inputs, turns, effects } = outcome.totals;
    assert_eq!((nodes, lives, n), (2, 3, text.lines().count() as u64));
    let count = |kind: &str| text.matches(&format!("\n{{\"{kind}\":")).count() as u64;
    assert_eq!(inputs, count("in"));
    assert_eq!(turns, count("turn"));
    assert_eq!(effects, count("do") + count("batch") + count("rest"));
    assert!(turns > 20 && inputs > 20 && effects > 60, "{outcome}");
}

#[test]
fn a_changed_effect_is_found_at_its_line() {
    let text = story();
    for (from, to) in [
        ("attempts: 1", "attempts: 2"),
        ("Some(Acked)", "Some(Failed)"),
        ("\"node\":7,", "\"node\":0,"),
    ] {
        let (changed, at) = changed(text, "{\"do\"", from, to);
        let outcome = read(changed.as_bytes()).expect("a recording");
        let difference = outcome.difference.expect(from);
        assert_eq!(difference.line, at, "{from}: {difference}");
        assert_ne!(difference.recorded, difference.replayed);
        assert!(!difference.inputs.is_empty() && difference.inputs.len() <= 5);
        assert_eq!(outcome.ending, Ending::Left { at });
    }
}

#[test]
fn a_changed_row_is_found_with_its_operation() {
    let text = story();
    let at = text.find("\"put segments ").expect("a row");
    let value = at + text[at..].find("\",").expect("its end") - 1;
    let mut changed = text.to_owned();
    let digit = if &text[value..=value] == "0" { "1" } else { "0" };
    changed.replace_range(value..=value, digit);
    let difference = read(changed.as_bytes()).expect("a recording").difference.expect("one");
    assert!(difference.recorded.contains(": put segments "), "{difference}");
    assert!(difference.replayed.contains(": put segments "), "{difference}");
    assert_eq!(difference.line, text[..at].lines().count() as u64);
    // A value that differs only where the short hash does not show it differs in the digest.
    let (changed, at) = changed_digest(text);
    let difference = read(changed.as_bytes()).expect("a recording").difference.expect("one");
    assert_eq!(difference.line, at);
}

fn changed_digest(text: &str) -> (String, u64) {
    let mut lines = lines(text);
    let at = lines.iter().position(|line| line.starts_with("{\"batch\"")).expect("a batch");
    let digest = lines[at].find("\"digest\":\"").expect("a digest") + 10;
    let digit = if &lines[at][digest..=digest] == "0" { "1" } else { "0" };
    lines[at].replace_range(digest..=digest, digit);
    (joined(&lines), at as u64 + 1)
}

#[test]
fn a_changed_input_shows_in_what_follows() {
    let (text, at) = changed(story(), "{\"in\"", "\"Acked\"", "\"AckTimeout\"");
    let outcome = read(text.as_bytes()).expect("a recording");
    let difference = outcome.difference.expect("a difference");
    assert!(difference.line > at, "{difference}");
    assert!(difference.inputs.iter().any(|input| input.contains("AckTimeout")), "{difference}");
}

#[test]
fn an_effect_more_and_an_effect_less_are_found() {
    let text = story();
    let mut all = lines(text);
    let at = all.iter().position(|line| line.starts_with("{\"do\"")).expect("an effect");
    let effect = all.remove(at);
    let difference = read(joined(&all).as_bytes()).expect("a recording").difference;
    assert_eq!(difference.expect("one less").line, at as u64 + 1);
    all.insert(at, effect.clone());
    all.insert(at, effect);
    let difference = read(joined(&all).as_bytes()).expect("a recording").difference;
    assert_eq!(difference.expect("one more").line, at as u64 + 2);
    // What stands where the next input comes.
    let mut all = lines(text);
    let at = all.iter().position(|line| line.starts_with("{\"rest\"")).expect("an end of a turn");
    all.remove(at);
    let difference = read(joined(&all).as_bytes()).expect("a recording").difference.expect("one");
    assert_eq!(difference.line, at as u64 + 1);
    assert!(difference.replayed.contains("the end of the turn"), "{difference}");
}

#[test]
fn a_recording_cut_anywhere_replays_to_its_end_and_says_so() {
    let text = story();
    let header = text.find('\n').expect("a line") + 1;
    let some = (header..text.len()).step_by(text.len() / 30);
    for cut in some.chain(text.len() - 120..text.len()) {
        let outcome = read(&text.as_bytes()[..cut]).expect("a recording");
        assert!(outcome.is_identical(), "cut at {cut}: {outcome}");
        let whole = text[..cut].matches('\n').count() as u64;
        let half = !text[..cut].ends_with('\n');
        assert_eq!(outcome.ending, Ending::Cut { after: whole, half });
        assert!(outcome.to_string().contains(&format!("cut off after line {whole}")), "{outcome}");
    }
    for cut in [0, 1, header - 1] {
        let error = read(&text.as_bytes()[..cut]).expect_err("no recording");
        assert!(matches!(error, ReplayError::NoRecording(_)), "{error}");
    }
}

#[test]
fn another_version_is_refused_with_both_named_unless_any_will_do() {
    let this = Header::new("").version;
    let (text, _) =
        changed(story(), "", &format!("\"version\":\"{this}\""), "\"version\":\"99.1.0\"");
    let error = read(text.as_bytes()).expect_err("refused");
    assert!(matches!(error, ReplayError::Version { .. }), "{error}");
    let said = error.to_string();
    assert!(said.contains("99.1.0") && said.contains(&this), "{said}");
    let outcome = Replayer::open_any_version(text.as_bytes()).and_then(Replayer::run);
    assert!(outcome.expect("a recording").is_identical());
}

#[test]
fn another_format_is_refused_with_both_named() {
    let (text, _) = changed(story(), "", "\"consign_recording\":1", "\"consign_recording\":2");
    for result in [Replayer::open(text.as_bytes()), Replayer::open_any_version(text.as_bytes())] {
        let error = result.err().expect("refused").to_string();
        assert_eq!(error, "the recording has format 2, this build reads 1");
    }
    // A format that is to come may have other fields in its header.
    let error = read(b"{\"consign_recording\":2,\"more\":[]}\n").expect_err("refused");
    assert!(matches!(error, ReplayError::Format { found: 2 }), "{error}");
}

#[test]
fn garbage_names_line_and_column() {
    let mut all = lines(story());
    all[4] = "{\"turn\":{\"node\":0,\"now\":{\"mono\":\"x\",\"wall\":1}}}".into();
    let error = read(joined(&all).as_bytes()).expect_err("garbage").to_string();
    assert!(error.starts_with("line 5, column 35: invalid type: string"), "{error}");
    all[4] = "{\"sit\":{}}".into();
    let error = read(joined(&all).as_bytes()).expect_err("garbage").to_string();
    assert!(error.starts_with("line 5, column 6: unknown variant `sit`"), "{error}");
    all[4] = "{\"turn\":{\"node\":9,\"now\":{\"mono\":1,\"wall\":1}}}".into();
    let error = read(joined(&all).as_bytes()).expect_err("garbage").to_string();
    assert_eq!(error, "line 5, column 0: node 9 was not started");
    for text in ["", "\n", "hello\n", "{}\n", "[1]\n", "{\"consign_recording\":1}\n"] {
        let error = read(text.as_bytes()).expect_err("no recording");
        assert!(matches!(error, ReplayError::NoRecording(_)), "{text:?}: {error}");
    }
}

#[test]
fn what_was_taken_out_or_put_behind_the_end_is_found() {
    let mut all = lines(story());
    let last = all.len() as u64;
    let note = all.iter().position(|line| line.starts_with("{\"note\"")).expect("a note");
    let kept = all.remove(note);
    let error = read(joined(&all).as_bytes()).expect_err("a line less").to_string();
    assert!(
        error.contains(&format!("it ends as line {last}, but is line {}", last - 1)),
        "{error}"
    );
    all.insert(note, kept.clone());
    all.push(kept);
    let error = read(joined(&all).as_bytes()).expect_err("a line more").to_string();
    assert!(error.contains("something follows the end"), "{error}");
}

#[test]
fn a_line_longer_than_the_limit_is_refused_and_one_of_the_limit_is_read() {
    let note = |len: usize| {
        let frame = "{\"note\":{\"text\":\"\"}}".len();
        format!("{{\"note\":{{\"text\":\"{}\"}}}}\n", "x".repeat(len - frame))
    };
    let text = note(100);
    let mut lines = Lines::with_longest(text.as_bytes(), 100);
    let Ok(Next::Line(line)) = lines.read() else { panic!("it is no longer than the limit") };
    assert!(matches!(line, Line::Note { .. }));
    assert_eq!(lines.read().expect("the end"), Next::Nothing { half: false });
    let text = note(101);
    let mut lines = Lines::with_longest(text.as_bytes(), 100);
    assert!(matches!(lines.read(), Err(ReplayError::Long { line: 1 })));
}

#[test]
fn a_panic_of_the_core_is_a_finding() {
    let text = story();
    // An answer that belongs to no such request: a store that broke its contract.
    let mut all = lines(text);
    let at = all.iter().position(|line| line.contains("\"Read\":")).expect("an answer");
    let from = all[at].find("\"body\":").expect("its body");
    all[at] = format!("{}\"body\":{{\"Pairs\":[]}}}}}}]}}}}}}", &all[at][..from]);
    let outcome = read(joined(&all).as_bytes()).expect("a recording");
    let difference = outcome.difference.expect("it went on, then");
    assert_eq!(difference.line, at as u64 + 2);
    assert!(difference.replayed.starts_with("the core panics: "), "{difference}");
    // The recording of a core that panicked ends there.
    let outcome = read(joined(&all[..=at]).as_bytes()).expect("a recording");
    assert!(outcome.is_identical());
    let panicked = outcome.panicked.expect("a panic");
    assert_eq!((panicked.line, panicked.node), (at as u64 + 1, 0));
}

/// Takes so many bytes and then has no space.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.0 == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let taken = data.len().min(self.0);
        self.0 -= taken;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_bug_on_purpose_is_replayed_too() {
    let (recording, memory) = recording();
    let mut site = Site::new(&recording, 0);
    site.plant = Some(Plant::AckBeforeCommit);
    site.start();
    site.send(b"content");
    drop((site, recording));
    let text = String::from_utf8(memory.bytes()).expect("text");
    let outcome = read(text.as_bytes()).expect("a recording");
    assert!(outcome.is_identical(), "{outcome}");
    let planted = format!(",\"plant\":{}", Plant::AckBeforeCommit.number());
    let (without, _) = changed(&text, "{\"start\"", &planted, "");
    let outcome = read(without.as_bytes()).expect("a recording");
    assert!(!outcome.is_identical(), "{outcome}");
    let (unknown, _) = changed(&text, "{\"start\"", &planted, ",\"plant\":255");
    let error = read(unknown.as_bytes()).expect_err("there is none").to_string();
    assert!(error.contains("a number that means nothing here"), "{error}");
}

#[test]
fn a_write_that_fails_ends_the_recording_with_one_warning_and_nothing_else() {
    let warned = Arc::new(AtomicUsize::new(0));
    let count = warned.clone();
    let on_fault: OnFault = Box::new(move |error| {
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        count.fetch_add(1, Ordering::Relaxed);
    });
    let header = Header::new("test");
    let recording = Recording::new(Box::new(Full(10_000)), &header, on_fault).expect("room");
    let mut site = Site::new(&recording, 0);
    site.start();
    for _ in 0..20 {
        site.send(b"content");
    }
    assert_eq!(site.acked, 20);
    assert_eq!(warned.load(Ordering::Relaxed), 1);
    let none: OnFault = Box::new(|_| unreachable!("it never began"));
    assert!(Recording::new(Box::new(Full(10)), &header, none).is_err());
}

#[test]
fn a_file_is_its_owners_and_never_overwritten() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("recording.jsonl");
    let header = Header::new("test");
    drop(Recording::create(&path, &header, no_fault()).expect("a new file"));
    let mode = std::fs::metadata(&path).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let before = std::fs::read(&path).expect("it is there");
    let again = Recording::create(&path, &header, no_fault());
    assert_eq!(again.err().expect("refused").kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(std::fs::read(&path).expect("it is there"), before);
    assert_eq!(read(&before).expect("a recording").ending, Ending::Whole);
}

#[test]
fn a_run_that_panics_leaves_no_end() {
    let (recording, memory) = recording();
    let run = std::thread::spawn(move || {
        let _recording = recording;
        std::panic::resume_unwind(Box::new("on purpose"));
    });
    assert!(run.join().is_err());
    assert_eq!(memory.bytes().iter().filter(|b| **b == b'\n').count(), 1);
}

#[test]
fn what_must_not_be_written_down_is_not() {
    let (recording, memory) = recording();
    let mut site = Site::new(&recording, 0);
    site.start();
    site.send(b"the content of a segment");
    drop((site, recording));
    let text = String::from_utf8(memory.bytes()).expect("text");
    assert!(text.contains("segment-1"));
    let hexed = consign_core::id::hex(b"the content of a segment");
    assert!(!text.contains("the content of a segment") && !text.contains(&hexed));
}

#[test]
fn two_batches_that_are_told_apart() {
    use consign_core::id::BatchNo;
    use consign_core::ledger::Table;
    use consign_core::store::Batch;
    let batch = |rows: &[(&[u8], &[u8])]| {
        let mut batch = Batch::new(BatchNo(5));
        for (key, value) in rows {
            batch.put_raw(Table::Ids, key, value);
        }
        BatchText::of(&batch)
    };
    let (one, two) = (batch(&[(b"a", b"1"), (b"b", b"2")]), batch(&[(b"a", b"1")]));
    let (left, right) = one.first_difference(&two);
    assert!(left.contains("operation 2: put ids 62 "), "{left}");
    assert!(right.contains("nothing behind operation 1"), "{right}");
    // Where one value ends and the next key begins counts.
    assert_ne!(batch(&[(b"ab", b"c")]), batch(&[(b"a", b"bc")]));
}

#[test]
fn the_page_shows_lines_that_are_read() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/RECORDING.md");
    let page = std::fs::read_to_string(path).expect("the page");
    let shown: Vec<&str> = page.lines().filter(|line| line.starts_with("{\"")).collect();
    let (header, rest) = shown.split_first().expect("examples");
    serde_json::from_str::<Header>(header).expect(header);
    assert!(rest.len() >= 4);
    for line in rest {
        serde_json::from_str::<Line<'static>>(line).expect(line);
    }
}
