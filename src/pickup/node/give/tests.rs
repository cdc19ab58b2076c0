//! Rules of a node: what is given out, when, and what a kill leaves.

use super::super::tests::*;
use super::*;
use consign_core::ledger::keys_upkeep::RuleId;

fn rule(file: Option<&str>, dir: &Path, command: &[&str]) -> Rule {
    let id = RuleId::inbox("", "", file.unwrap_or_default(), &dir.to_string_lossy());
    let command = command.iter().map(|word| (*word).to_owned()).collect();
    let (picks, timeout) = (String::new(), Duration::from_secs(60));
    let dir = InboxDir { id, picks, dir: dir.into(), command, timeout };
    Rule { file: file.map(String::from), dir }
}

fn given(told: &[Tell]) -> Vec<String> {
    let path = |said: &Tell| match said {
        Tell::Given(given) => Some(given.path.clone()),
        _ => None,
    };
    let mut paths: Vec<String> = told.iter().filter_map(path).collect();
    paths.sort_unstable();
    paths
}

fn records(shelf: &Path) -> usize {
    std::fs::read_dir(shelf.join(".consign/give")).map_or(0, Iterator::count)
}

/// Waits for a file; the test's own time limit is the end of it.
fn until_there(path: &Path) {
    while !path.exists() {
        std::thread::yield_now();
    }
}

fn until_empty(shelf: &Path) {
    while records(shelf) > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn what_a_rule_picks_is_given_out_under_its_own_name_once() {
    let shards = (0..3).map(|i| Shard::new(content(70_000, i)));
    let relay = relay(shards);
    let (shelf, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let rules = [
        rule(Some("a/*"), &out.path().join("a"), &[]),
        rule(Some("other"), &out.path().join("b"), &[]),
    ];
    let told = with_rules(&relay, shelf.path(), &rules, || {
        relay.until("all are stored", all_stored);
        until_empty(shelf.path());
    });
    let there = |i: u64| out.path().join(format!("a/a/b/3/{i}"));
    for i in 0..3 {
        assert_eq!(std::fs::read(there(i)).unwrap(), content(70_000, i as u8));
        assert_eq!(read(shelf.path(), i), content(70_000, i as u8));
    }
    assert_eq!(given(&told), [0, 1, 2].map(|i| there(i).display().to_string()));
    assert!(!out.path().join("b").exists());
    // The next process has nothing to do.
    let told = with_rules(&relay, shelf.path(), &rules, || {});
    assert_eq!(given(&told), Vec::<String>::new());
}

#[test]
fn a_command_runs_on_the_file_and_one_that_fails_runs_again() {
    let relay = relay([Shard::new(content(10, 1))]);
    let (shelf, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let script = "echo $CONSIGN_RUN $CONSIGN_EXPORT_ID $CONSIGN_LABEL_FILE_ID ${CONSIGN_SEGMENT-none} >> log; \
                  test -s \"$CONSIGN_FILE\" && test $CONSIGN_RUN -ge 2";
    let rules = [rule(None, out.path(), &["/bin/sh", "-c", script])];
    let told = with_rules(&relay, shelf.path(), &rules, || {
        relay.until("it is stored", all_stored);
        until_empty(shelf.path());
    });
    let log = std::fs::read_to_string(out.path().join("log")).unwrap();
    let words: Vec<Vec<&str>> = log.lines().map(|line| line.split(' ').collect()).collect();
    let [first, second] = words.as_slice() else { panic!("{log}") };
    assert_eq!((first[0], second[0]), ("1", "2"));
    assert_eq!(first[1..], second[1..], "an export keeps its id");
    assert_eq!(first[2..], ["a/b", "none"]);
    let failed = |said: &Tell| matches!(said, Tell::Failed(f) if f.code == "CN0830");
    assert_eq!(told.iter().filter(|said| failed(said)).count(), 1, "{told:?}");
    assert_eq!(given(&told).len(), 1);
}

#[test]
fn what_a_killed_process_owed_is_given_out_by_the_next() {
    for placed in [false, true] {
        let (shelf, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let rules = [rule(None, out.path(), &[])];
        let all = content(1000, 4);
        let key = ShardKey::new("a/b", 3, 0, "edge-7").unwrap();
        let notify = notify(&all, 1);
        let record = Record::of(&notify, "edge-7");
        {
            let open = Arc::new(Shelf::open(shelf.path()).unwrap());
            let (stop, _bell) = Stop::new().unwrap();
            stop.stop();
            let giving = Giving::start(&rules, &open, "edge-7", &stop).unwrap();
            giving.owing().owe(&key, &record).unwrap();
            if placed {
                let mut partial = open.partial(&key, notify.size, &notify.digest).unwrap();
                partial.write(&all).unwrap();
                open.keep(&key, &mut partial, &record, &mut |_| Ok(())).unwrap();
            }
        }
        assert_eq!(records(shelf.path()), 1);
        let mut shard = Shard::new(all.clone());
        if placed {
            shard.redemption = 1;
            shard.state = consign_core::ledger::rows_pickup::ShardState::NodeReceiving;
        }
        let relay = relay([shard]);
        with_rules(&relay, shelf.path(), &rules, || {
            relay.until("it is stored", all_stored);
            until_empty(shelf.path());
        });
        let there = out.path().join("a/b/3/0");
        until_there(&there);
        assert_eq!(std::fs::read(there).unwrap(), all);
        assert!(!out.path().join("a/b/3/0 (2)").exists());
    }
}

#[test]
fn content_under_the_same_key_later_is_another_debt_and_so_is_what_could_not_be_recorded() {
    let (shelf, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let rules = [rule(None, out.path(), &[])];
    let key = ShardKey::new("a/b", 3, 0, "edge-7").unwrap();
    let open = Arc::new(Shelf::open(shelf.path()).unwrap());
    let (stop, _bell) = Stop::new().unwrap();
    stop.stop();
    let giving = Giving::start(&rules, &open, "edge-7", &stop).unwrap();
    for content in [b"first", b"other"] {
        let record = Record::of(&notify(content, 1), "edge-7");
        giving.owing().owe(&key, &record).unwrap();
    }
    assert_eq!(records(shelf.path()), 2, "neither takes the other's place");
}

#[test]
fn what_a_rule_owed_that_is_gone_is_told_at_the_start() {
    let (shelf, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    held(shelf.path(), &[rule(None, &out.path().join("old"), &[])], "a/b", b"right");
    for rules in [vec![rule(None, &out.path().join("new"), &[])], Vec::new()] {
        let relay = relay([]);
        let told = with_rules(&relay, shelf.path(), &rules, || {});
        let known = |said: &Tell| matches!(said, Tell::Failed(f) if f.message.starts_with("1 shard not given out"));
        assert!(told.iter().any(known), "{told:?}");
    }
    assert_eq!(records(shelf.path()), 1);
}

/// A shelf that holds a shard, and owes it to the rules.
fn held(shelf: &Path, rules: &[Rule], file: &str, all: &[u8]) {
    let shelf = Arc::new(Shelf::open(shelf).unwrap());
    let key = ShardKey::new(file, 3, 0, "edge-7").unwrap();
    let notify = notify(all, 1);
    let record = Record { file_id: file.into(), ..Record::of(&notify, "edge-7") };
    let (stop, _bell) = Stop::new().unwrap();
    stop.stop();
    let giving = Giving::start(rules, &shelf, "edge-7", &stop).unwrap();
    giving.owing().owe(&key, &record).unwrap();
    let mut partial = shelf.partial(&key, notify.size, &notify.digest).unwrap();
    partial.write(all).unwrap();
    shelf.keep(&key, &mut partial, &record, &mut |_| Ok(())).unwrap();
    shelf.answered(&key).unwrap();
}

#[test]
fn a_directory_that_is_missing_is_waited_for_and_a_hostile_name_is_told() {
    let (shelf, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let dir = out.path().join("missing/in");
    let rules = [rule(None, &dir, &[])];
    held(shelf.path(), &rules, "a/b", b"right");
    held(shelf.path(), &rules, "../etc", b"wrong");
    let relay = relay([]);
    let told = with_rules(&relay, shelf.path(), &rules, || {
        std::fs::create_dir(out.path().join("missing")).unwrap();
        until_there(&dir.join("a/b/3/0"));
        while records(shelf.path()) > 1 {
            std::thread::yield_now();
        }
    });
    let failures: Vec<&str> = told
        .iter()
        .filter_map(|said| if let Tell::Failed(f) = said { Some(f.message.as_str()) } else { None })
        .collect();
    assert!(failures.iter().any(|why| why.contains("hostile_name")), "{failures:?}");
    assert!(!out.path().join("etc").exists() && !dir.join("etc").exists());
}

#[test]
fn what_a_rule_that_is_gone_has_half_written_is_removed() {
    let (shelf, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    drop(Shelf::open(shelf.path()).unwrap());
    let (old, new) = (out.path().join("old"), out.path().join("new"));
    let was = rule(None, &old, &[]);
    remember(shelf.path(), std::slice::from_ref(&was)).swept();
    let half = old.join(format!(".consign/{:016x}-1", was.dir.id.0));
    std::fs::create_dir_all(half.parent().unwrap()).unwrap();
    std::fs::write(&half, b"ha").unwrap();
    std::fs::write(old.join("whole"), b"whole").unwrap();
    remember(shelf.path(), &[was]).swept();
    assert!(half.exists(), "its rule goes on with it");
    remember(shelf.path(), &[rule(None, &new, &[])]).swept();
    assert!(!half.exists() && old.join("whole").exists());
    assert_eq!(Left::unfinished(&shelf.path().join(OWN), &[]), [new.join(".consign")]);
}
