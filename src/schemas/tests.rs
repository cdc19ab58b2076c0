//! Published schemas are in the repository as they are made, and answers fit them.

use std::collections::BTreeSet;
use std::path::Path;

use super::*;
use crate::admin::testing::Site;

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/schemas")
}

#[test]
fn the_files_are_what_is_made_and_no_others() {
    let mut there: BTreeSet<String> = std::fs::read_dir(folder())
        .expect("docs/schemas")
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    for published in ALL {
        let file = published.file();
        let text = std::fs::read_to_string(folder().join(&file)).unwrap_or_default();
        assert!(text == published.text(), "consign schema --dir docs/schemas: {file}");
        there.remove(&file);
    }
    assert_eq!(there, BTreeSet::new(), "files of no schema");
}

#[test]
fn every_schema_has_its_own_name_and_is_one() {
    let ids: BTreeSet<&str> = ALL.iter().map(|published| published.id).collect();
    assert_eq!(ids.len(), ALL.len());
    for published in ALL {
        let schema = published.schema();
        assert_eq!(schema["properties"]["schema"]["const"], published.id);
        assert!(jsonschema::meta::is_valid(&schema), "{}", published.id);
        assert!(schema["description"].is_string(), "{} says what it is", published.id);
    }
}

#[test]
fn commands_lead_to_their_schemas() {
    let ids = |what: &str| of(what).map(|published| published.id).collect::<Vec<_>>();
    assert_eq!(ids("consign.event/1"), ["consign.event/1"]);
    assert_eq!(ids("explain"), ["consign.code/1", "consign.explanation/1"]);
    let of_deadletter = [
        "consign.deadletter/1",
        "consign.deadletter_group/1",
        "consign.act/1",
        "consign.progress/1",
    ];
    assert_eq!(ids("deadletter"), of_deadletter);
    assert_eq!(ids("dead"), [""; 0]);
    // Every command that is named is one.
    let command = crate::cli::command();
    for published in ALL {
        for name in published.commands.iter().filter(|name| !name.contains("standard error")) {
            let mut at = &command;
            for part in name.split(' ') {
                let found = at.find_subcommand(part);
                at = found.unwrap_or_else(|| panic!("{name} is no command"));
            }
        }
    }
}

/// What is wrong with something that is said, by the schema it names.
pub(crate) fn wrong<T: serde::Serialize>(said: &T) -> Vec<String> {
    faults(&serde_json::to_value(said).expect("JSON"))
}

/// What is wrong with an answer by the schema it names.
fn faults(answer: &Value) -> Vec<String> {
    let id = answer["schema"].as_str().unwrap_or_else(|| panic!("no schema in {answer}"));
    let published = ALL.iter().find(|published| published.id == id);
    let published = published.unwrap_or_else(|| panic!("{id} is not published"));
    let validator = jsonschema::validator_for(&published.schema()).expect("a schema");
    validator.iter_errors(answer).map(|error| format!("{id}: {error}")).collect()
}

#[test]
fn every_answer_of_the_local_interface_fits_its_schema() {
    let mut site = Site::new();
    for name in ["a", "b"] {
        let target = format!("/v1/segments?name={name}&to=beta,gamma&label=k=v");
        let got = site.ask("POST", &target, b"content");
        assert_eq!((got.status, faults(&got.json())), (201, Vec::new()));
    }
    let id = site.ask("GET", "/v1/segments", b"").json()["segments"][0]["id"].clone();
    let id = id.as_str().expect("an id").to_string();
    let asked = [
        "/v1/segments".to_string(),
        format!("/v1/segments/{id}"),
        "/v1/status".into(),
        "/v1/peers".into(),
        "/v1/peers/pending".into(),
        "/v1/deadletters".into(),
        "/v1/deadletters/groups".into(),
        "/v1/audit".into(),
        "/v1/assurance".into(),
        format!("/v1/assurance/{id}"),
        "/v1/assurance?unmet=1&peer=beta".into(),
        "/v1/shape".into(),
        "/v1/events?since=0".into(),
        "/v1/exports?all=1".into(),
        "/v1/watched?rule=0000000000000000".into(),
        "/v1/pickup/nodes".into(),
        "/v1/pickup/clients".into(),
        "/v1/pickup/shards".into(),
    ];
    for target in &asked {
        let got = site.ask("GET", target, b"");
        assert_eq!((got.status, faults(&got.json())), (200, Vec::new()), "{target}");
    }
    let hold = format!("{{\"action\":\"hold\",\"ids\":[\"{id}\"],\"why\":\"test\"}}");
    let enrol = "{\"action\":\"enrol_client\",\"subject\":\"c\",\"token_sha256\":\"";
    let enrol = format!("{enrol}{}\"}}", "0".repeat(64));
    for (target, body) in [
        ("/v1/acts", hold.as_bytes()),
        ("/v1/pickup/acts", enrol.as_bytes()),
        ("/v1/exports/run", b""),
        ("/v1/clock/confirm", b""),
        ("/v1/peers/beta/ping?wait=1", b""),
        ("/v1/stop", b""),
    ] {
        let got = site.ask("POST", target, body);
        let text = String::from_utf8_lossy(&got.body).into_owned();
        assert!(got.status < 300, "{target}: {text}");
        assert_eq!(faults(&got.json()), [""; 0], "{target}");
    }
}

#[test]
fn an_answer_that_does_not_fit_is_seen() {
    let mut answer = json!({"schema": "consign.clock/1", "was_held": true, "new_member": 1});
    assert_eq!(faults(&answer), [""; 0], "members may be added");
    answer["was_held"] = "yes".into();
    assert_eq!(faults(&answer).len(), 1);
    answer.as_object_mut().expect("an object").remove("was_held");
    assert_eq!(faults(&answer).len(), 1);
}
