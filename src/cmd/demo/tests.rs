//! The demo with small files; the whole of it runs from the command line.

use super::{DemoArgs, directory, perform};

#[test]
fn named_files_arrive_as_they_were_sent() {
    let root = tempfile::tempdir().expect("a directory");
    let files = [("small", 10), ("large", 200_000), ("empty", 0)].map(|(name, size)| {
        let path = root.path().join(name);
        std::fs::write(&path, vec![b'x'; size]).expect("written");
        path
    });
    let args = DemoArgs { dir: Some(root.path().join("demo")), files: files.to_vec() };
    let report = perform(&args, false).map_err(|_| ()).expect("the demo runs");
    assert!(report.is_good(), "{}", report.text());
    assert!(report.text().contains("3 of 3 equal"), "{}", report.text());
    assert_eq!(report.json()["directions"][0]["bytes"], 200_010);
    let shard = &report.json()["shard"];
    let states = shard["states"].as_array().expect("states");
    assert_eq!(
        (states.first(), states.last()),
        (Some(&"RELAY_BUFFERED".into()), Some(&"NODE_STORED".into()))
    );
    assert_eq!(shard["equal"], true);
    assert!(root.path().join("demo/beta/data/ledger").is_dir(), "there is something to look at");
}

#[test]
fn a_directory_that_is_not_empty_is_left_alone() {
    let root = tempfile::tempdir().expect("a directory");
    std::fs::write(root.path().join("precious"), "x").expect("written");
    let failure = directory(Some(root.path())).expect_err("not empty");
    assert!(failure.message.contains("not empty"), "{failure}");
}
