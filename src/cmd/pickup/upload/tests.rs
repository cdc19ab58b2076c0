//! The verb against a small relay.

use clap::Parser;
use serde_json::Value;

use super::*;
use crate::cmd::screen::said;
use crate::pickup::testing::{Fake, State};

#[derive(Parser, Debug)]
struct Line {
    #[command(flatten)]
    args: UploadArgs,
}

fn args(content: &str, relay: &Relay) -> UploadArgs {
    let relay = relay.to_string();
    let words = [
        "upload",
        content,
        "--to",
        &relay,
        "--node",
        "edge-7",
        "--file-id",
        "a/b",
        "--version",
        "3",
        "--shard",
        "1",
    ];
    Line::try_parse_from(words).unwrap().args
}

#[test]
fn command_lines() {
    let good = "upload - --to https://r:1 --node n --file-id f --version 1";
    assert!(Line::try_parse_from(good.split(' ')).is_ok());
    let bad = [
        "upload - --to r:1 --node n --file-id f --version 1",
        "upload - --to http://r --node n/m --file-id f --version 1",
        "upload - --to http://r --node n --file-id f --version -1",
        "upload - --to http://r --node n --file-id f",
        "upload --to http://r --node n --file-id f --version 1",
        "upload - --to http://r --node n --file-id f --version 1 --tries 0",
    ];
    for line in bad {
        assert!(Line::try_parse_from(line.split(' ')).is_err(), "{line}");
    }
}

#[test]
fn standard_input_is_buffered_and_not_called_stored() {
    let fake = Fake::new(State::default());
    let relay = fake.relay();
    let target = || Target::new(relay.clone(), None).unwrap();
    let run = |json| {
        said(json, |screen| {
            let (args, token) = (args("-", &relay), Token::new([0xab; 32]));
            upload(&args, target(), token, &mut "hello".as_bytes(), screen)
        })
    };
    let (exit, said) = run(false);
    assert_eq!(exit, Ok(Exit::Done));
    let line = "Buffered  a/b/3/1  5 B  for edge-7  (at the relay until the node fetches it)";
    assert_eq!(said.lines, [line]);
    let (_, said) = run(true);
    let object: Value = serde_json::from_str(&said.lines[0]).unwrap();
    assert_eq!((&object["schema"], &object["known"]), (&"consign.uploaded/1".into(), &true.into()));
    assert_eq!((&object["state"], &object["shard_index"]), (&"RELAY_BUFFERED".into(), &1.into()));
    assert_eq!(word(ShardState::NodeStored), ("Stored", "by the node"));
}

#[test]
fn tokens_come_from_a_file_or_the_environment() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    let text = "ab".repeat(32);
    std::fs::write(&path, format!("{text}\n")).unwrap();
    let other = "cd".repeat(32);
    assert_eq!(token(Some(&path), Some(&other)).unwrap().text(), text);
    assert_eq!(token(None, Some(&other)).unwrap().text(), other);
    let upper = text.to_uppercase();
    let missing = dir.path().join("none");
    for failure in [
        token(None, None),
        token(None, Some("")),
        token(None, Some(&upper)),
        token(Some(&missing), Some(&text)),
    ] {
        let failure = failure.unwrap_err();
        assert_eq!((failure.exit, failure.code), (Exit::Usage, "CN0814"));
    }
    let missing = said(false, |screen| {
        let relay = Relay::parse("http://127.0.0.1:1").unwrap();
        let target = Target::new(relay.clone(), None).unwrap();
        let args = args("no-such-file", &relay);
        upload(&args, target, Token::new([0; 32]), &mut std::io::empty(), screen)
    });
    assert_eq!(missing.0.unwrap_err().code, "CN0620");
}
