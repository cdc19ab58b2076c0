//! Nodes, clients and shards over a local connection.

use consign_core::gate::Promised;
use consign_core::id::TransferNo;
use consign_core::pickup::{Answer, Command, PickupRefusal, Report};
use consign_core::session::{Promise, SessionCommand, SessionInput, SessionOut};
use serde_json::json;

use crate::admin::make;
use crate::admin::testing::{Site, config, context};

/// A request that waits for the node's word: sent, and not answered.
fn asked(site: &mut Site) {
    let body = json!({"action": "revoke_client", "subject": "c"}).to_string();
    let head = format!(
        "POST /v1/pickup/acts HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut out = SessionOut::default();
    site.session.step(site.now, SessionInput::Bytes(head.as_bytes()), &mut out);
    assert!(out.bytes.is_empty() && out.events.len() == 1, "{:?}", out.events);
}

fn says(site: &mut Site, command: SessionCommand) -> Vec<u8> {
    let mut out = SessionOut::default();
    site.session.step(site.now, SessionInput::Command(command), &mut out);
    out.bytes
}

fn refuse(ticket: u32) -> SessionCommand {
    SessionCommand::Pickup(Box::new(Command::Refuse {
        ticket: TransferNo(ticket),
        refusal: PickupRefusal::NotFound,
        retry_after: 0,
        number: None,
        text: "no client is called c".into(),
    }))
}

fn done(ticket: u32) -> SessionCommand {
    let report = Report { changed: true, text: "c is revoked".into() };
    let answer = Answer::Done { ticket: TransferNo(ticket), report };
    SessionCommand::Promised(Promised::for_tests(Promise::Pickup(Box::new(answer))))
}

#[test]
fn an_act_is_answered_by_the_nodes_word_and_no_other() {
    let mut site = Site::new();
    asked(&mut site);
    assert!(says(&mut site, done(9)).is_empty() && says(&mut site, refuse(9)).is_empty());
    site.out = says(&mut site, done(1));
    let got = site.got("POST");
    let expected = json!({
        "schema": "consign.pickup_act/1", "action": "revoke_client", "subject": "c",
        "changed": true, "text": "c is revoked",
    });
    assert_eq!((got.status, got.json()), (200, expected));
    asked(&mut site);
    site.out = says(&mut site, refuse(2));
    let got = site.got("POST");
    assert_eq!((got.status, got.code()), (404, "unknown".into()));
    assert!(says(&mut site, done(2)).is_empty(), "it is answered once");
}

#[test]
fn empty_lists_and_a_shard_that_is_not_there() {
    let mut site = Site::new();
    for of in ["nodes", "clients", "shards"] {
        let got = site.ask("GET", &format!("/v1/pickup/{of}"), b"");
        let expected = json!({"schema": format!("consign.{of}/1"), of: [], "next": null});
        assert_eq!((got.status, got.json()), (200, expected));
    }
    let got = site.ask("GET", "/v1/pickup/shard?key=a%2F1%2F2%40n", b"");
    assert_eq!((got.status, got.code()), (404, "unknown".into()));
}

#[test]
fn nobody_but_local_users_gets_here() {
    for uid in [None, Some(1_234)] {
        let mut site = Site::with(config(), &make(context()), uid);
        let asks = [
            ("GET", "/v1/pickup/shards", "".to_owned()),
            (
                "POST",
                "/v1/pickup/acts",
                json!({"action": "revoke_client", "subject": "c"}).to_string(),
            ),
        ];
        for (method, target, body) in asks {
            let got = site.ask(method, target, body.as_bytes());
            assert_eq!((got.status, got.code()), (403, "not_permitted".into()), "{uid:?}");
        }
    }
}
