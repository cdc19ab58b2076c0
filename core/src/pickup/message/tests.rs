//! Every message both ways, and what is none.

use alloc::format;

use super::*;

const ACK: &str = r#"{"type":"shard_ack","file_id":"f/1","version_number":2,"shard_index":3,"redemption":4,"status":"verified"}"#;

fn digests() -> Digests {
    Digests { sha256: Sha256Digest([1; 32]), blake3: BlobDigest([2; 32]) }
}

#[test]
fn what_the_relay_says() {
    let one = "01".repeat(32);
    let two = "02".repeat(32);
    let key = ShardKey::new("f/1", 2, 3, "n").unwrap();
    let table = [
        (
            FromRelay::Registered(Registered { node_id: "n".into(), session: 7, owed: 9 }),
            r#"{"type":"registered","node_id":"n","session":7,"owed":9}"#.into(),
        ),
        (
            FromRelay::PendingNotify(PendingNotify {
                file_id: "f/1".into(),
                version_number: 2,
                shard_index: 3,
                buffer_id: "blob-5".into(),
                size: 6,
                digest: digests(),
                token: Token::new([0xab; 32]),
                token_expires_at: UnixMillis(1_796_064_245_123),
                redemption: 4,
            }),
            format!(
                r#"{{"type":"pending_notify","file_id":"f/1","version_number":2,"shard_index":3,"buffer_id":"blob-5","size":6,"digest":{{"sha-256":"{one}","blake3":"{two}"}},"token":"{}","token_expires_at":"2026-11-30T18:44:05.123Z","redemption":4}}"#,
                "ab".repeat(32)
            ),
        ),
        (
            FromRelay::ShardState(ShardStateOf {
                file_id: "f/1".into(),
                version_number: 2,
                shard_index: 3,
                redemption: 4,
                state: ShardState::NodeStored,
            }),
            r#"{"type":"shard_state","file_id":"f/1","version_number":2,"shard_index":3,"redemption":4,"state":"NODE_STORED"}"#.into(),
        ),
        (
            FromRelay::Error(ErrorOf::new("unknown_type", "no")),
            r#"{"type":"error","code":"unknown_type","message":"no"}"#.into(),
        ),
        (
            FromRelay::Error(ErrorOf::new("stale_ack", "no").about(&key, 4)),
            r#"{"type":"error","code":"stale_ack","message":"no","file_id":"f/1","version_number":2,"shard_index":3,"redemption":4}"#.into(),
        ),
    ];
    for (message, text) in table {
        assert_eq!(message.text(), text);
        assert_eq!(FromRelay::parse(&text), Ok(message));
    }
}

#[test]
fn what_a_node_says() {
    let register = FromNode::Register(Register { node_id: "n".into() });
    assert_eq!(register.text(), r#"{"type":"register","node_id":"n"}"#);
    assert_eq!(FromNode::parse(&register.text()), Ok(register));
    let Ok(FromNode::ShardAck(ack)) = FromNode::parse(ACK) else { panic!("an ack") };
    assert_eq!((ack.redemption, ack.status, &ack.reason), (4, AckStatus::Verified, &None));
    assert_eq!(FromNode::ShardAck(ack).text(), ACK);
    let failed = ACK.replace("verified\"", "failed\",\"reason\":\"why\",\"more\":[{}]");
    let Ok(FromNode::ShardAck(ack)) = FromNode::parse(&failed) else { panic!("an ack") };
    assert_eq!((ack.status, ack.reason.as_deref()), (AckStatus::Failed, Some("why")));
}

#[test]
fn what_is_no_message() {
    let deep = format!("{}{}", "[".repeat(40_000), "]".repeat(20_000));
    let hidden =
        format!(r#"{{"type":"register","node_id":"n","x":{}1{}}}"#, "[".repeat(40), "]".repeat(40));
    let long = ACK.replace("verified\"", &format!("failed\",\"reason\":\"{}\"", "x".repeat(257)));
    let bad = [
        "",
        "x",
        "null",
        "7",
        "[]",
        "{}",
        "{\"type\":7}",
        "{\"type\":\"register\"}",
        "{\"type\":\"register\",\"node_id\":7}",
        "{\"type\":\"register\",\"node_id\":\"n\"} x",
        "{\"type\":\"register\",\"node_id\":\"n\",\"node_id\":\"m\"}",
        "{\"type\":\"register\",\"type\":\"register\",\"node_id\":\"n\"}",
        &ACK.replace(":2", ":\"2\""),
        &ACK.replace(":2", ":2.0"),
        &ACK.replace(":2", ":-2"),
        &ACK.replace(":2", ":9007199254740992"),
        &ACK.replace(":2", ":18446744073709551616"),
        &ACK.replace("verified", "Verified"),
        &deep,
        &hidden,
        &long,
    ];
    for text in bad {
        let fault = FromNode::parse(text).unwrap_err();
        assert_eq!(fault.code(), "bad_message", "{text}");
    }
    assert!(FromNode::parse(&ACK.replace(":2", ":9007199254740991")).is_ok());
    let unknown = FromNode::parse(r#"{"type":"hello"}"#).unwrap_err();
    assert_eq!(unknown, MessageFault::UnknownType("hello".into()));
    // What the other side says is not understood either.
    let other = FromNode::parse(r#"{"type":"registered","node_id":"n","session":1,"owed":1}"#);
    assert_eq!(other.unwrap_err().code(), "unknown_type");
}

#[test]
fn brackets_in_strings_are_no_nesting() {
    let text = format!(r#"{{"type":"register","node_id":"{}\"\\"}}"#, "[".repeat(100));
    assert!(FromNode::parse(&text).is_ok());
}

#[test]
fn no_text_panics() {
    fn survives(text: String) -> bool {
        let _ = (FromNode::parse(&text), FromRelay::parse(&text));
        true
    }
    quickcheck::quickcheck(survives as fn(String) -> bool);
}

#[test]
fn bodies_of_answers() {
    let uploaded = Uploaded {
        buffer_id: None,
        state: ShardState::NodeStored,
        size: 1,
        digest: digests(),
        expires_at: None,
    };
    let text = String::from_utf8(body_of(&uploaded)).unwrap();
    assert!(text.starts_with(r#"{"buffer_id":null,"state":"NODE_STORED","size":1,"digest":{"#));
    assert!(text.ends_with("\"expires_at\":null}\n"));
    assert_eq!(serde_json::from_str::<Uploaded>(&text).unwrap(), uploaded);
    let slot = Slot { expires_at: UnixMillis(0) };
    assert_eq!(body_of(&slot), b"{\"expires_at\":\"1970-01-01T00:00:00.000Z\"}\n");
}
