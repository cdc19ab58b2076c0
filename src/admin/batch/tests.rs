//! Batches against a real node and a store in memory.

use consign_core::store::CommitFault;
use serde_json::{Value, json};

use super::{BYTES_MAX, ITEMS_MAX};
use crate::admin::testing::{Got, Site};

fn item(name: &str, content: &[u8]) -> Vec<u8> {
    let mut item = json!({"name": name, "size": content.len()}).to_string().into_bytes();
    item.push(b'\n');
    item.extend_from_slice(content);
    item
}

fn lines(got: &Got) -> Vec<Value> {
    assert_eq!(got.status, 200, "{}", got.headers);
    let lines = got.body.split(|b| *b == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
}

fn hand_in(site: &mut Site, query: &str, body: &[u8]) -> Got {
    site.ask("POST", &format!("/v1/segments/batch{query}"), body)
}

#[test]
fn items_are_answered_in_their_order() {
    let mut site = Site::new();
    let body = [item("a", b"one"), item("b/c", b""), item("d", b"{\"name\"\n}")].concat();
    let told = lines(&hand_in(&mut site, "?to=beta&label=k%3Dv", &body));
    let of = |key: &str| told.iter().map(|line| line[key].clone()).collect::<Vec<_>>();
    assert_eq!(of("schema"), vec![json!("consign.accepted/1"); 3]);
    assert_eq!(of("name"), [json!("a"), json!("b/c"), json!("d")]);
    assert_eq!(of("size"), [json!(3), json!(0), json!(9)]);
    assert_eq!(of("added"), vec![json!(["beta"]); 3]);
    assert_eq!(told[0]["digest"], json!(blake3::hash(b"one").to_hex().to_string()));

    let alone = site.ask("POST", "/v1/segments?name=a&to=beta&label=k%3Dv", b"one");
    assert_eq!(alone.status, 200, "the same identity as alone");
    let again = lines(&hand_in(&mut site, "?to=beta&label=k%3Dv", &body));
    assert!(again.iter().all(|line| line["new"] == json!(false)));
    assert!(lines(&hand_in(&mut site, "", b"")).is_empty());
}

#[test]
fn where_the_bytes_are_split_does_not_matter() {
    let body = [item("a", b"12345"), item("b", b""), item("c", b"678")].concat();
    let head = format!(
        "POST /v1/segments/batch HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let whole = lines(&hand_in(&mut Site::new(), "", &body));
    for split in 1..body.len() {
        let mut site = Site::new();
        site.feed(head.as_bytes());
        site.feed(&body[..split]);
        site.feed(&body[split..]);
        assert_eq!(lines(&site.got("POST")), whole, "split at {split}");
    }
}

#[test]
fn nothing_is_said_before_every_item_is_durable() {
    let mut site = Site::new();
    site.hold_commits = true;
    let body = [item("a", b"1"), item("b", b"2")].concat();
    let head = format!(
        "POST /v1/segments/batch HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    site.feed(head.as_bytes());
    site.feed(&body);
    assert!(site.out.is_empty());
    site.hold_commits = false;
    site.settle();
    assert_eq!(lines(&site.got("POST")).len(), 2);
}

#[test]
fn a_failed_commit_refuses_its_items() {
    let mut site = Site::new();
    site.store.fail_commit(1, CommitFault::Full("the disk".into()));
    let told = lines(&hand_in(&mut site, "", &[item("a", b"1"), item("b", b"2")].concat()));
    for line in &told {
        assert_eq!(line["schema"], json!("consign.refused/1"));
        assert_eq!((&line["code"], &line["status"]), (&json!("disk_full"), &json!(507)));
        assert!(line["retry_after_seconds"].is_u64(), "{line}");
    }
    assert_eq!(told.len(), 2);
}

#[test]
fn an_item_that_is_refused_does_not_stop_the_others() {
    let mut site = Site::new();
    let large = vec![7; 65_537];
    let odd = b"{\"name\":\"e\",\"size\":1,\"instance\":\"zz\"}\nx".to_vec();
    let body = [item("a", b"1"), item("..", b"22"), item("c", &large), odd, item("f", b"3")];
    let told = lines(&hand_in(&mut site, "", &body.concat()));
    let codes: Vec<&str> = told.iter().map(|line| line["code"].as_str().unwrap_or("")).collect();
    assert_eq!(codes, ["", "invalid", "not_small", "invalid", ""]);
    assert_eq!(told[4]["name"], json!("f"));

    let body = [item("x", b"1"), item("y", b"2")].concat();
    let told = lines(&hand_in(&mut site, "?to=nobody", &body));
    assert!(told.iter().all(|line| line["code"] == json!("unknown_destination")), "{told:?}");
}

#[test]
fn what_cannot_be_read_is_the_last_line() {
    let many = item("n", b"").repeat(ITEMS_MAX + 3);
    let line_of = |size: u64| format!("{{\"name\":\"m\",\"size\":{size}}}\n").into_bytes();
    let cases: [(Vec<u8>, &str, &str); 7] = [
        ([item("a", b"1"), b"no json\nrest".to_vec()].concat(), "invalid", "item 2"),
        ([item("a", b"1"), b"{\"name\":\"b\"}\n".to_vec()].concat(), "invalid", "item 2"),
        (
            [item("a", b"1"), b"{\"name\":\"b\",\"size\":1,\"x\":2}\n1".to_vec()].concat(),
            "invalid",
            "`x`",
        ),
        ([item("a", b"1"), vec![b' '; 9_000]].concat(), "invalid", "8192"),
        (
            [item("a", b"1"), b"{\"name\":\"b\",\"size\":3}\nxy".to_vec()].concat(),
            "invalid",
            "ended",
        ),
        ([item("a", b"1"), line_of(BYTES_MAX)].concat(), "too_large", "4194304"),
        (many, "too_large", "1024"),
    ];
    for (body, code, text) in cases {
        let mut site = Site::new();
        let told = lines(&hand_in(&mut site, "", &body));
        let (last, before) = told.split_last().unwrap();
        assert!(before.iter().all(|line| line["schema"] == json!("consign.accepted/1")));
        assert!(!before.is_empty());
        assert_eq!(last["code"], json!(code));
        assert!(last["message"].as_str().unwrap().contains(text), "{last}");
    }
}

#[test]
fn a_batch_shares_attributes_but_no_name() {
    for (query, code) in [
        ("?name=x", "bad_query"),
        ("?watch=0", "bad_query"),
        ("?instance=00112233445566778899aabbccddeeff", "invalid"),
        ("?priority=soon", "invalid"),
    ] {
        let got = hand_in(&mut Site::new(), query, &item("a", b"1"));
        assert_eq!((got.status, got.code().as_str()), (400, code), "{query}");
    }
    let mut site = Site::new();
    let body = [item("a", b"1"), item("a", b"1")].concat();
    let told = lines(&hand_in(&mut site, "?instance=random", &body));
    assert_ne!(told[0]["id"], told[1]["id"]);
    assert_eq!(site.ask("GET", "/v1/segments/batch", b"").status, 400);
}

#[test]
fn a_site_that_stops_answers_what_it_has_and_takes_no_more() {
    let mut site = Site::new();
    let first = item("a", b"1");
    site.feed(b"POST /v1/segments/batch HTTP/1.1\r\nHost: h\r\nContent-Length: 500\r\n\r\n");
    site.feed(&first);
    site.stop();
    let told = lines(&site.got("POST"));
    assert_eq!(told.len(), 2);
    assert_eq!((&told[0]["name"], &told[1]["code"]), (&json!("a"), &json!("busy")));
}
