//! What the product is for: what goes in at one site comes out at the other.

use std::fs;
use std::io::Write as _;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::site::{RUNTIMES, Site, content, make_file, pair, with_schema};
use crate::wait;

/// Lengths on both sides of every edge: empty, inline, a file, several pieces, several checkpoints.
const LENGTHS: [usize; 9] = [0, 1, 1024, 65_535, 65_536, 65_537, 131_073, 1 << 20, (20 << 20) + 7];

fn send_and_fetch(runtime: &'static str) {
    let (mut alpha, mut beta) = pair(runtime);
    alpha.serve();
    beta.serve();
    for (seed, len) in LENGTHS.into_iter().enumerate() {
        let file = alpha.dir.join(format!("file-{len}"));
        let digest = make_file(&file, seed as u64, len);
        let sent = alpha.json(&["send", file.to_str().unwrap(), "--to", "beta", "--wait"]);
        let accepted = with_schema(&sent, "consign.accepted/1");
        assert_eq!(accepted["digest"], digest.as_str(), "{len} bytes");
        assert_eq!((&accepted["new"], &accepted["size"]), (&true.into(), &len.into()));
        let id = accepted["id"].as_str().expect("an id");
        assert_eq!(
            blake3::hash(&beta.content(id)).to_hex().as_str(),
            digest,
            "{len} bytes at the far end"
        );
        let out = beta.dir.join(format!("out-{len}"));
        let got = beta.run(&["get", &id[..12], "-o", out.to_str().unwrap()]);
        assert!(got.status.success(), "{got:?}");
        assert!(fs::read(&out).unwrap() == fs::read(&file).unwrap(), "{len} bytes differ");
    }
    check_both_ends(&alpha, &beta, LENGTHS.len());
    assert!(alpha.stop().success() && beta.stop().success(), "a stop is no failure");
}

/// Everything alpha was given is at beta, once, and both say the same of it.
fn check_both_ends(alpha: &Site, beta: &Site, count: usize) {
    let counts = alpha.settled("beta");
    assert_eq!((counts.delivered, counts.dead), (count as u64, 0));
    let (here, there) = (alpha.segments(), beta.segments());
    assert_eq!((here.len(), there.len()), (count, count));
    for segment in &here {
        let delivery = &segment["deliveries"][0];
        assert_eq!((&delivery["peer"], &delivery["state"]), (&"beta".into(), &"delivered".into()));
        assert_eq!(segment["deliveries"].as_array().unwrap().len(), 1);
        let far = there.iter().find(|s| s["id"] == segment["id"]).expect("it is at beta");
        for same in ["name", "size", "digest", "labels", "type", "priority", "to"] {
            assert_eq!(far[same], segment[same], "{same}");
        }
        assert_eq!((&far["origin"], &far["here"]), (&"alpha".into(), &true.into()));
    }
}

#[test]
fn smol_sends_and_fetches() {
    send_and_fetch("smol");
}

#[test]
fn std_sends_and_fetches() {
    send_and_fetch("std");
}

#[test]
fn what_is_sent_twice_is_delivered_once() {
    let (mut alpha, mut beta) = pair("smol");
    alpha.serve();
    beta.serve();
    let file = alpha.dir.join("a");
    make_file(&file, 1, 5000);
    let args = ["send", file.to_str().unwrap(), "--to", "beta", "--wait"];
    let first = alpha.json(&args);
    let second = alpha.json(&args);
    let (first, second) =
        (with_schema(&first, "consign.accepted/1"), with_schema(&second, "consign.accepted/1"));
    assert_eq!(first["id"], second["id"]);
    assert_eq!((&first["new"], &second["new"]), (&true.into(), &false.into()));
    assert_eq!(second["delivered"], serde_json::json!(["beta"]));
    check_both_ends(&alpha, &beta, 1);

    // Another instance of the same content is another segment.
    let again = alpha.json(&["send", file.to_str().unwrap(), "--to", "beta", "--wait", "--again"]);
    assert_ne!(with_schema(&again, "consign.accepted/1")["id"], first["id"]);
    check_both_ends(&alpha, &beta, 2);
}

#[test]
fn a_stream_is_sent_under_the_name_it_is_given() {
    let (mut alpha, mut beta) = pair("std");
    alpha.serve();
    beta.serve();
    let bytes = content(3, 300_000);
    let mut command =
        alpha.command(&["send", "-", "--name", "stream.bin", "--to", "beta", "--wait", "--json"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let segments = beta.segments();
    assert_eq!(segments[0]["name"], "stream.bin");
    assert!(beta.content(segments[0]["id"].as_str().unwrap()) == bytes);
    // To a pipe, too.
    let got = beta.run(&["get", segments[0]["id"].as_str().unwrap(), "-o", "-"]);
    assert!(got.status.success() && got.stdout == bytes);
}

#[test]
fn what_waits_for_a_peer_is_queued_and_then_delivered() {
    for runtime in RUNTIMES {
        let (mut alpha, mut beta) = pair(runtime);
        alpha.serve();
        let file = alpha.dir.join("a");
        make_file(&file, 1, 100_000);
        let path = file.to_str().unwrap();
        let output = alpha.run(&["send", path, "--to", "beta", "--wait", "--timeout", "1s"]);
        assert_eq!(output.status.code(), Some(5), "still queued: {output:?}");
        let text = String::from_utf8_lossy(&output.stdout).to_lowercase();
        assert!(text.contains("queued") && !text.contains("delivered"), "{text}");
        let counts = alpha.counts("beta");
        assert_eq!((counts.delivered, counts.dead), (0, 0));
        beta.serve();
        check_both_ends(&alpha, &beta, 1);
        let delivery = &alpha.segments()[0]["deliveries"][0];
        assert_eq!(delivery["spent"], 0, "an unreachable peer is not the segment's fault");
    }
}

#[test]
fn the_runtimes_understand_each_other() {
    let (mut alpha, mut beta) = pair("smol");
    beta.use_runtime("std");
    alpha.serve();
    beta.serve();
    for (from, to, seed) in [(&alpha, &beta, 1), (&beta, &alpha, 2)] {
        let file = from.dir.join("file");
        let digest = make_file(&file, seed, 3 << 20);
        let path = file.to_str().unwrap();
        let sent = from.json(&["send", path, "--to", to.name.as_str(), "--wait"]);
        let accepted = with_schema(&sent, "consign.accepted/1");
        let content = to.content(accepted["id"].as_str().unwrap());
        assert_eq!(blake3::hash(&content).to_hex().as_str(), digest);
    }
    assert_eq!((alpha.segments().len(), beta.segments().len()), (2, 2));
}

/// Content passes through in pieces, whatever its size.
#[test]
fn a_large_segment_takes_little_memory() {
    for runtime in RUNTIMES {
        let (mut alpha, mut beta) = pair(runtime);
        alpha.serve();
        beta.serve();
        let bytes = content(9, 160 << 20);
        let done = AtomicBool::new(false);
        let (most, id) = std::thread::scope(|scope| {
            let sending = scope.spawn(|| {
                let id = alpha.accepted("large", &bytes);
                alpha.settled("beta");
                done.store(true, Ordering::Release);
                id
            });
            let mut most = 0;
            wait::until_true("the transfer to end", || {
                most = most.max(alpha.rss_anon()).max(beta.rss_anon());
                done.load(Ordering::Acquire) || sending.is_finished()
            });
            (most, sending.join().expect("it was sent"))
        });
        assert!(most < 64 << 20, "{runtime}: {most} bytes of anonymous memory");
        assert!(beta.arrival(&id) == bytes);
    }
}

#[test]
fn a_stop_lets_what_is_in_flight_arrive() {
    for runtime in RUNTIMES {
        let (mut alpha, mut beta) = pair(runtime);
        beta.serve();
        alpha.serve();
        let folder = alpha.dir.join("files");
        fs::create_dir(&folder).unwrap();
        for i in 0..100 {
            make_file(&folder.join(format!("f{i}")), i, 20_000);
        }
        let sent = alpha.run(&["send", folder.to_str().unwrap(), "--to", "beta"]);
        assert!(sent.status.success(), "{sent:?}");
        assert!(alpha.stop().success());
        // Nothing is in flight any more, and what was not sent is still owed.
        alpha.serve();
        wait::until_true("all of it to arrive", || alpha.counts("beta").delivered == 100);
        check_both_ends(&alpha, &beta, 100);
    }
}

/// Two sites; what goes from the first to the second takes its time.
fn slow_pair(runtime: &'static str) -> (Site, Site) {
    let (alpha, beta) = pair(runtime);
    let address = format!("address = \"{}\"\n", beta.address);
    let config = fs::read_to_string(alpha.config()).unwrap();
    let slow = config.replace(&address, &format!("{address}rate_limit = \"4MiB\"\n"));
    assert_ne!(slow, config);
    fs::write(alpha.config(), slow).unwrap();
    (alpha, beta)
}

fn is_on_its_way(alpha: &Site) {
    let sent = || alpha.status()["peers"][0]["sent"].as_u64();
    wait::until_true("it to be on its way", || sent().is_some_and(|sent| sent > 0));
}

/// A stop that a client asks for is like one by a signal: what took too long is said, and goes on later.
#[test]
fn a_stop_that_cuts_something_off_says_so() {
    for runtime in RUNTIMES {
        let (mut alpha, mut beta) = slow_pair(runtime);
        alpha.set("CONSIGN_LIMITS_DRAIN_TIMEOUT", "1s");
        beta.serve();
        alpha.serve();
        let bytes = content(9, 40 << 20);
        let id = alpha.accepted("large", &bytes);
        is_on_its_way(&alpha);
        let stopped = alpha.run(&["stop", "--wait"]);
        assert!(stopped.status.success(), "{stopped:?}");
        assert!(alpha.wait().success());
        assert!(alpha.log().contains("CN0524"), "{runtime}: {}", alpha.log());
        let fast =
            fs::read_to_string(alpha.config()).unwrap().replace("rate_limit = \"4MiB\"\n", "");
        fs::write(alpha.config(), fast).unwrap();
        alpha.serve();
        assert!(beta.arrival(&id) == bytes);
    }
}

/// What is on its way in is finished too; what is offered meanwhile is not begun.
#[test]
fn a_stop_lets_what_is_on_its_way_in_arrive() {
    for runtime in RUNTIMES {
        let (mut alpha, mut beta) = slow_pair(runtime);
        beta.serve();
        alpha.serve();
        let bytes = content(8, 4 << 20);
        let id = alpha.accepted("large", &bytes);
        is_on_its_way(&alpha);
        beta.signal(rustix::process::Signal::TERM);
        let late = alpha.accepted("late", b"too late");
        assert!(beta.wait().success());
        assert!(!beta.log().contains("CN0524"), "{runtime}: {}", beta.log());
        wait::until_true("the first to be known to have arrived", || {
            alpha.counts("beta").delivered >= 1
        });
        beta.serve();
        assert!(beta.arrival(&id) == bytes && beta.arrival(&late) == b"too late");
        alpha.settled("beta");
        check_both_ends(&alpha, &beta, 2);
    }
}

#[test]
fn what_is_fetched_with_release_is_let_go_here_and_only_here() {
    let (mut alpha, mut beta) = pair("smol");
    let file = alpha.dir.join("file");
    make_file(&file, 3, 100_000);
    alpha.serve();
    let sent = alpha.json(&["send", file.to_str().unwrap(), "--to", "beta"]);
    let id = with_schema(&sent, "consign.accepted/1")["id"].as_str().unwrap().to_string();
    let out = alpha.dir.join("out");
    let args = ["get", &id, "-o", out.to_str().unwrap(), "--release"];
    // It is still owed: it is fetched, and stays.
    let kept = alpha.run(&args);
    let said = String::from_utf8(kept.stderr).unwrap();
    assert!(!kept.status.success() && said.contains("beta does not have it"), "{said}");
    assert!(fs::read(&out).unwrap() == fs::read(&file).unwrap());
    assert_eq!(alpha.segments().len(), 1);
    beta.serve();
    beta.arrival(&id);
    let out = beta.dir.join("out");
    let args = ["get", &id, "-o", out.to_str().unwrap(), "--release"];
    let pipe = beta.run(&["get", &id, "-o", "-", "--release"]);
    assert_eq!((pipe.status.code(), pipe.stdout.len()), (Some(2), 0), "{pipe:?}");
    assert_eq!(beta.segments().len(), 1);
    let got = beta.run(&args);
    assert!(got.status.success(), "{got:?}");
    assert!(fs::read(&out).unwrap() == fs::read(&file).unwrap());
    wait::until("beta to let it go", || beta.segments().is_empty().then_some(()));
    assert_eq!(beta.json(&["audit"])[0]["action"], "release");
}
