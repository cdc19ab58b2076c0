//! `consign cert …` with real sites: a renewal that nobody notices, and two machines that share no key.

use std::fs;

use serde_json::Value;

use crate::site::{RUNTIMES, Site, consign, content, pair};

fn own(site: &Site) -> String {
    let print = site.status()["certificates"][0]["fingerprint"].clone();
    print.as_str().expect("a fingerprint").to_string()
}

fn text<'a>(value: &'a Value, member: &str) -> &'a str {
    value[member].as_str().unwrap_or_else(|| panic!("{member}: {value}"))
}

#[test]
fn a_running_site_takes_its_renewal_and_segments_go_on() {
    for runtime in RUNTIMES {
        let (mut alpha, mut beta) = pair(runtime);
        alpha.serve();
        beta.serve();
        let id = alpha.accepted("before", &content(1, 10_000));
        assert_eq!(beta.arrival(&id), content(1, 10_000));
        for (site, args) in [
            (&alpha, vec!["cert".to_string(), "renew".into()]),
            (
                &beta,
                vec!["cert".into(), "renew".into(), "--ca".into(), alpha.dir.display().to_string()],
            ),
        ] {
            let before = own(site);
            let done = site.json(&args).remove(0);
            assert_eq!(text(&done, "running"), "taken", "{done}");
            assert_eq!(own(site), text(&done, "fingerprint"));
            assert_ne!(own(site), before);
            let shown = site.json(&["cert", "show"]).remove(0);
            assert_eq!(shown["certificates"][0]["fingerprint"], done["fingerprint"]);
            assert_eq!((text(&shown, "problem"), &shown["requested"]), ("", &Value::Null));
        }
        // A session made from now on shows the new certificates; this side dials again.
        alpha.stop();
        alpha.serve();
        let id = alpha.accepted("after", &content(2, 10_000));
        assert_eq!(beta.arrival(&id), content(2, 10_000));
        let id = beta.accepted("back", &content(3, 10_000));
        assert_eq!(alpha.arrival(&id), content(3, 10_000));
        beta.stop();
        let done = beta.run(&["cert", "renew", "--ca", alpha.dir.to_str().expect("a path")]);
        assert_eq!(done.status.code(), Some(0), "{done:?}");
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(said.contains("taken at the next start"), "{said}");
        beta.serve();
        let id = alpha.accepted("last", &content(4, 10_000));
        assert_eq!(beta.arrival(&id), content(4, 10_000));
        alpha.stop();
        beta.stop();
    }
}

#[test]
fn two_machines_meet_without_a_key_leaving_either() {
    let (mut alpha, _) = pair("smol");
    let folder = alpha.folder().clone();
    let mut beta = Site::at(&folder, "gamma", "std");
    beta.name = "beta".into();
    beta.address = {
        let text = fs::read_to_string(alpha.config()).expect("it is there");
        let at = text.split("name = \"beta\"").nth(1).expect("alpha knows beta");
        let address = at.split("address = \"").nth(1).and_then(|a| a.split('"').next());
        address.expect("an address").parse().expect("an address")
    };
    // As on a machine of its own: with an authority that alpha has never heard of.
    beta.init(&[&alpha], None);
    alpha.serve();
    let made = beta.json(&["cert", "request"]).remove(0);
    // Only the request goes over, and only the answer comes back.
    let (there, back) = (folder.path().join("beta.csr"), folder.path().join("beta.pem"));
    fs::copy(beta.dir.join("beta.csr"), &there).expect("copied");
    let signed = alpha.json(&["cert", "sign", there.to_str().expect("a path")]).remove(0);
    assert_eq!((text(&signed, "name"), &signed["key"]), ("beta", &made["key"]));
    let answer = fs::read_to_string(&back).expect("an answer");
    assert!(!answer.contains("PRIVATE") && answer.matches("BEGIN CERT").count() == 2, "{answer}");
    let file = back.to_str().expect("a path");
    let refused = beta.run(&["cert", "install", file]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    let authority = text(&signed, "authority");
    assert!(said.contains("CN0327") && said.contains(authority), "{said}");
    let done = beta.json(&["cert", "install", file, "--trust", authority]).remove(0);
    assert_eq!(text(&done, "running"), "not_running");
    assert_eq!(done["fingerprint"], signed["fingerprint"]);
    beta.serve();
    let id = alpha.accepted("over", &content(5, 10_000));
    assert_eq!(beta.arrival(&id), content(5, 10_000));
    // The same again for a site that runs, without any trust to be said.
    for old in [&there, &back] {
        fs::remove_file(old).expect("removed");
    }
    let place = there.to_str().expect("a path");
    let request = beta.json(&["cert", "request", "-o", place]).remove(0);
    let signed = alpha.json(&["cert", "sign", place]).remove(0);
    assert_eq!(signed["key"], request["key"]);
    let done = beta.json(&["cert", "install", file]).remove(0);
    assert_eq!(text(&done, "running"), "taken", "{done}");
    assert_eq!(own(&beta), text(&signed, "fingerprint"));
    alpha.stop();
    alpha.serve();
    let id = alpha.accepted("on", &content(6, 10_000));
    assert_eq!(beta.arrival(&id), content(6, 10_000));
    alpha.stop();
    beta.stop();
}

#[test]
fn a_site_joins_another_by_its_card() {
    let (mut alpha, mut beta) = pair("std");
    fs::remove_dir_all(&beta.dir).expect("removed");
    fs::remove_dir_all(&alpha.dir).expect("removed");
    let init = |site: &Site, more: &[String]| {
        let mut command = consign();
        command.arg("init").arg(&site.dir).args(["--json", "--listen", &site.address.to_string()]);
        let output = command.args(more).output().expect("it runs");
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice::<Value>(&output.stdout).expect("JSON")
    };
    let to = |site: &Site| ["--peer".to_string(), format!("{}={}", site.name, site.address)];
    let made = init(&alpha, &to(&beta));
    let joined = init(&beta, &["--join".to_string(), text(&made, "card").to_string()]);
    let request = text(&joined, "request");
    // Not before its certificate is there.
    let refused = beta.serve_command().output().expect("it runs");
    assert_eq!(refused.status.code(), Some(78), "{refused:?}");
    alpha.json(&["cert", "sign", request]);
    let answer = request.replace(".csr", ".pem");
    let done = beta.json(&["cert", "install", &answer]).remove(0);
    assert_eq!((text(&done, "name"), text(&done, "running")), ("beta", "not_running"));
    alpha.serve();
    beta.serve();
    let id = alpha.accepted("joined", &content(7, 10_000));
    assert_eq!(beta.arrival(&id), content(7, 10_000));
    alpha.stop();
    beta.stop();
}
