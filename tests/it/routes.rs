//! Three sites in a row: what alpha hands to beta for gamma arrives, and alpha hears of it.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::sync::Arc;

use serde_json::Value;

use crate::site::{RUNTIMES, Site, make_file, with_schema};
use crate::wait;

/// alpha - beta - gamma, on these runtimes, not yet served.
fn chain(runtimes: [&'static str; 3]) -> [Site; 3] {
    let folder = Arc::new(tempfile::tempdir().expect("a temporary folder"));
    let [mut alpha, mut beta, mut gamma] = ["alpha", "beta", "gamma"]
        .into_iter()
        .zip(runtimes)
        .map(|(name, runtime)| Site::at(&folder, name, runtime))
        .collect::<Vec<_>>()
        .try_into()
        .unwrap_or_else(|_| panic!("three sites"));
    // Whose authority signs is known: that must be the one in the middle.
    beta.init(&[&alpha, &gamma], None);
    alpha.init(&[&beta], Some(&beta));
    gamma.init(&[&beta], Some(&beta));
    route(&alpha, "gamma", "beta");
    route(&gamma, "alpha", "beta");
    [alpha, beta, gamma]
}

fn route(site: &Site, to: &str, via: &str) {
    let mut file = OpenOptions::new().append(true).open(site.config()).expect("its configuration");
    write!(file, "\n[[route]]\nto = \"{to}\"\nvia = \"{via}\"\n").expect("written");
}

fn delivery(site: &Site, id: &str) -> Value {
    let shown = site.json(&["show", id]);
    with_schema(&shown, "consign.segment/1")["deliveries"][0].clone()
}

#[test]
fn a_file_and_its_receipt_cross_three_sites() {
    let [mut alpha, mut beta, mut gamma] = chain(["smol", "std", "smol"]);
    for site in [&mut alpha, &mut beta, &mut gamma] {
        site.serve();
    }
    for (seed, len) in [0, 1024, 100_000, 3 << 20].into_iter().enumerate() {
        let file = alpha.dir.join(format!("file-{len}"));
        let digest = make_file(&file, seed as u64, len);
        let sent = alpha.json(&["send", file.to_str().unwrap(), "--to", "gamma", "--wait"]);
        let accepted = with_schema(&sent, "consign.accepted/1");
        let id = accepted["id"].as_str().expect("an id");
        assert_eq!(blake3::hash(&gamma.content(id)).to_hex().as_str(), digest, "{len} bytes");
        assert_eq!(delivery(&alpha, id)["state"], "delivered");
    }
    assert_eq!(alpha.settled("gamma").delivered, 4);
    let status = String::from_utf8(alpha.run(&["status"]).stdout).expect("UTF-8");
    assert!(status.contains("via beta"), "{status}");
    for (site, here) in [(&beta, false), (&gamma, true)] {
        let segments = site.segments();
        assert_eq!(segments.len(), 4);
        assert!(segments.iter().all(|s| s["here"] == here && s["origin"] == "alpha"));
    }
    // Again on purpose: another segment, the same content.
    let file = alpha.dir.join("file-1024");
    let args = ["send", file.to_str().unwrap(), "--to", "gamma", "--again", "--wait"];
    let sent = alpha.json(&args);
    assert_eq!(with_schema(&sent, "consign.accepted/1")["new"], true);
    assert_eq!(gamma.segments().len(), 5);
}

#[test]
fn what_is_handed_on_waits_for_its_receipt_through_every_kill() {
    for runtime in RUNTIMES {
        let [mut alpha, mut beta, mut gamma] = chain([runtime; 3]);
        alpha.serve();
        beta.serve();
        let file = alpha.dir.join("file");
        make_file(&file, 7, 200_000);
        let sent = alpha.json(&["send", file.to_str().unwrap(), "--to", "gamma"]);
        let id = with_schema(&sent, "consign.accepted/1")["id"].as_str().unwrap().to_string();
        wait::until("beta to have custody", || {
            (delivery(&alpha, &id)["custody"] == "beta").then_some(())
        });
        let shown = String::from_utf8(alpha.run(&["show", &id]).stdout).expect("UTF-8");
        assert!(shown.contains("handed on to beta, waiting for its receipt"), "{shown}");
        alpha.kill();
        beta.kill();
        alpha.serve();
        assert_eq!(delivery(&alpha, &id)["custody"], "beta", "it survives a restart");
        gamma.serve();
        beta.serve();
        gamma.arrival(&id);
        beta.kill();
        beta.serve();
        wait::until("the receipt", || {
            (delivery(&alpha, &id)["state"] == "delivered").then_some(())
        });
        assert!(gamma.content(&id) == fs::read(&file).unwrap());
    }
}

#[test]
fn a_site_nobody_knows_is_refused_and_routes_are_named() {
    let [mut alpha, ..] = chain(["smol"; 3]);
    alpha.serve();
    let file = alpha.dir.join("file");
    make_file(&file, 1, 10);
    let sent = alpha.run(&["send", file.to_str().unwrap(), "--to", "delta"]);
    assert!(!sent.status.success());
    let said = String::from_utf8(sent.stderr).expect("UTF-8");
    assert!(said.contains("CN0614") && said.contains("[[route]]"), "{said}");
}
