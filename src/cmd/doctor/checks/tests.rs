//! Single checks at their bounds.

use std::net::TcpListener;

use super::*;
use crate::admin::shapes::{Count, Ledger, Storage};

fn results(checks: &[Check]) -> Vec<(&str, &str)> {
    checks.iter().map(|check| (check.check.as_str(), check.result.as_str())).collect()
}

#[test]
fn a_certificate_that_ends_soon_is_told() {
    for (left, result) in [(1_209_601, "ok"), (1_209_600, "warning"), (259_200, "wrong")] {
        assert_eq!(lasts(left + 5, 5).result, result, "{left}");
    }
    assert!(lasts(0, 0).text.starts_with("valid until 1970"), "{:?}", lasts(0, 0));
}

#[test]
fn room_on_the_disk() {
    for (free, result) in [(9, "wrong"), (10, "warning"), (19, "warning"), (20, "ok")] {
        assert_eq!(room(free, 10).result, result, "{free}");
    }
    assert_eq!(clock(EARLIEST - 1).result, "wrong");
    assert_eq!(clock(EARLIEST).result, "ok");
}

#[test]
fn a_directory_that_others_can_write_to_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let mode = |mode| {
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        data_dir(folder.path()).result
    };
    assert_eq!((mode(0o700), mode(0o707)), ("ok".into(), "wrong".into()));
    assert_eq!(data_dir(&folder.path().join("none")).result, "ok");
    let file = folder.path().join("file");
    std::fs::write(&file, b"").unwrap();
    assert_eq!(data_dir(&file).result, "wrong");
}

#[test]
fn a_status_tells_what_is_not_as_it_should_be() {
    let good =
        Status { ledger: Ledger { ballast_whole: true, ..Ledger::default() }, ..Status::default() };
    assert_eq!(results(&of_status(&good)), [("site", "ok"), ("ledger", "ok")]);
    let peer = Peer { dead: Count { count: 2, bytes: 1 }, ..Peer::default() };
    let bad = Status {
        clock_held: true,
        storage: Storage { full: true, ..Storage::default() },
        quarantined: 1,
        peers: vec![peer],
        ..Status::default()
    };
    let found = of_status(&bad);
    let expected = [
        ("site", "ok"),
        ("clock", "warning"),
        ("disk", "wrong"),
        ("ledger", "warning"),
        ("deadletters", "warning"),
    ];
    assert_eq!(results(&found), expected);
    let ledger = "1 row in quarantine; the reserve for a full disk is not whole";
    assert_eq!(found[3].text, ledger);
}

#[test]
fn peers_are_tried() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let open = listener.local_addr().unwrap().to_string();
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = free.local_addr().unwrap().to_string();
    drop(free);
    let found = reached(vec![("a", &open, ""), ("b", &open, "no such pin"), ("c", &closed, "")]);
    assert_eq!(results(&found), [("peer", "ok"), ("peer", "warning"), ("peer", "warning")]);
    assert!(found[1].text.ends_with("but there is no session (no such pin)"), "{found:?}");
    assert!(found[2].text.contains("does not answer"), "{found:?}");
}
