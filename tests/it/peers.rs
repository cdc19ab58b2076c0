//! Peers in an operator's hands: whether they answer, who knocks, and how one gets to know another.

use std::fs;
use std::sync::Arc;

use serde_json::Value;

use crate::site::{RUNTIMES, Site, lines, pair};
use crate::wait;

/// What `peers ping` says, and how it ends.
fn ping(site: &Site, peer: &str) -> (Option<i32>, Value) {
    let output = site.run(&["peers", "ping", peer, "--json"]);
    let said = [lines(&output.stdout), lines(&output.stderr)].concat();
    (output.status.code(), said.into_iter().next().unwrap_or_default())
}

#[test]
fn a_peer_that_is_there_answers_and_one_that_is_not_does_not() {
    for runtime in RUNTIMES {
        let (mut alpha, mut beta) = pair(runtime);
        alpha.serve();
        beta.serve();
        wait::until_true("an answer", || ping(&alpha, "beta").0 == Some(0));
        // However often it is asked: the session goes on.
        for _ in 0..100 {
            let (code, said) = ping(&alpha, "beta");
            let rtt = said["rtt_seconds"].as_f64().unwrap_or_else(|| panic!("{said}"));
            assert!(code == Some(0) && said["up"] == true && rtt < 5.0, "{said}");
        }
        let (code, said) = ping(&alpha, "gamma");
        assert_eq!((code, &said["code"]), (Some(1), &"CN0614".into()), "{said}");
        beta.stop();
        wait::until_true("the end of the session", || ping(&alpha, "beta").0 == Some(1));
        let (_, said) = ping(&alpha, "beta");
        assert_eq!((&said["up"], &said["rtt_seconds"]), (&false.into(), &Value::Null));
        alpha.stop();
    }
}

#[test]
fn a_site_that_knocks_is_pending_until_its_card_is_imported() {
    for runtime in RUNTIMES {
        let folder = Arc::new(tempfile::tempdir().expect("a temporary folder"));
        let mut alpha = Site::at(&folder, "alpha", runtime);
        let mut gamma = Site::at(&folder, "gamma", runtime);
        alpha.init(&[], None);
        gamma.init(&[&alpha], Some(&alpha));
        alpha.expects_errors = true;
        gamma.expects_errors = true;
        alpha.serve();
        let pending = |site: &Site| {
            let output = site.run(&["peers", "ls", "--pending", "--json"]);
            lines(&output.stdout)[0]["peers"].as_array().expect("a list").clone()
        };
        assert_eq!(pending(&alpha), [Value::Null; 0]);
        gamma.serve();
        wait::until_true("gamma to knock twice", || {
            pending(&alpha).first().is_some_and(|peer| peer["knocks"].as_u64() >= Some(2))
        });
        let knocked = pending(&alpha);
        assert_eq!((&knocked[0]["name"], &knocked[0]["code"]), (&"gamma".into(), &"CN0305".into()));
        let print = gamma.json(&["cert", "show"])[0].to_string();
        let shown = knocked[0]["fingerprint"].as_str().expect("a fingerprint");
        assert!(print.contains(shown), "{print} has no {shown}");
        // Its card is what it says of itself.
        let card = gamma.run(&["peers", "export", "gamma"]);
        let file = folder.path().join("card");
        fs::write(&file, &card.stdout).expect("written");
        let file = file.to_str().expect("a path");
        let imported = alpha.json(&["peers", "import", file]);
        assert_eq!(imported[0]["added"][0], "gamma", "{imported:?}");
        assert_eq!(alpha.run(&["reload"]).status.code(), Some(0));
        assert_eq!(pending(&alpha), [Value::Null; 0]);
        wait::until_true("gamma to answer", || ping(&alpha, "gamma").0 == Some(0));
        for mut site in [alpha, gamma] {
            site.stop();
        }
    }
}
