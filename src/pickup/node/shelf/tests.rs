//! Names, and what is found again after a kill at any point.

use consign_core::id::{BlobDigest, Sha256Digest};
use consign_core::pickup::token::Token;
use consign_core::time::UnixMillis;

use super::super::keeper::Filling;
use super::*;

fn shard(file: &str) -> ShardKey {
    ShardKey::new(file, 3, 1, "edge-7").unwrap()
}

fn digest(content: &[u8]) -> Digests {
    let mut hashes = Hashes::default();
    hashes.update(content);
    let (sha256, blake3) = hashes.finish();
    Digests { sha256, blake3 }
}

fn notify(file: &str, content: &[u8]) -> PendingNotify {
    PendingNotify {
        file_id: file.into(),
        version_number: 3,
        shard_index: 1,
        buffer_id: "blob-1".into(),
        size: content.len() as u64,
        digest: digest(content),
        token: Token::new([7; 32]),
        token_expires_at: UnixMillis(1),
        redemption: 9,
    }
}

#[test]
fn a_file_id_is_one_name_and_no_two_are_alike() {
    let table = [
        ("photos", "photos"),
        ("a/b", "a%2Fb"),
        ("..", "%2E%2E"),
        (".", "%2E"),
        (".consign", "%2Econsign"),
        ("a.b.", "a.b%2E"),
        ("../../etc/passwd", "%2E.%2F..%2Fetc%2Fpasswd"),
        ("100%", "100%25"),
        ("a%2Fb", "a%252Fb"),
        ("C:\\x", "C%3A%5Cx"),
    ];
    for (file, name) in table {
        assert_eq!(escaped(file), name);
    }
    let (long, other) = ("/".repeat(256), format!("{}x", "/".repeat(255)));
    assert!(escaped(&long).len() <= NAME_MAX && escaped(&long) != escaped(&other));
    fn sound(bytes: Vec<u8>, others: Vec<u8>) -> bool {
        let visible = |bytes: Vec<u8>| -> String {
            bytes.into_iter().map(|b| char::from(33 + b % 94)).collect()
        };
        let (a, b) = (visible(bytes), visible(others));
        let name = escaped(&a);
        !name.contains('/')
            && !name.starts_with('.')
            && name.len() <= 255
            && (a == b) == (escaped(&a) == escaped(&b))
    }
    quickcheck::quickcheck(sound as fn(Vec<u8>, Vec<u8>) -> bool);
    assert_eq!(path_of(&shard("a/b")), ["a%2Fb", "3", "1"]);
}

/// Everything a node does with content that it has whole; `until` is the last step before a kill.
fn keeps(shelf: &Shelf, content: &[u8], until: Option<Step>) -> io::Result<()> {
    let shard = shard("f");
    let notify = notify("f", content);
    let mut partial = shelf.partial(&shard, notify.size, &notify.digest)?;
    let from = partial.size() as usize;
    partial.write(&content[from..])?;
    assert!(partial.is(notify.size, &notify.digest));
    shelf.keep(&shard, &mut partial, &Record::of(&notify, "edge-7"), &mut |step| {
        if Some(step) == until { Err(io::Error::other("killed")) } else { Ok(()) }
    })
}

#[test]
fn a_kill_at_any_point_costs_no_content_and_claims_none() {
    let content = vec![5; 100_000];
    for step in [Step::Verified, Step::Placed, Step::Recorded] {
        let dir = tempfile::tempdir().unwrap();
        let shelf = Shelf::open(dir.path()).unwrap();
        assert!(keeps(&shelf, &content, Some(step)).is_err());
        drop(shelf);
        let shelf = Shelf::open(dir.path()).unwrap();
        let size = content.len() as u64;
        let has = shelf.has(&shard("f"), size, &digest(&content)).unwrap();
        let part = shelf.partial(&shard("f"), size, &digest(&content)).unwrap().size();
        let fresh = shelf.unanswered().unwrap().len();
        let expected = match step {
            Step::Verified => (false, size, 0),
            Step::Placed => (true, 0, 0),
            Step::Recorded => (true, 0, 1),
        };
        assert_eq!((has, part, fresh), expected, "{step:?}");
        keeps(&shelf, &content, None).unwrap();
        assert_eq!(std::fs::read(dir.path().join("f/3/1")).unwrap(), content);
        assert_eq!(shelf.unanswered().unwrap()[0].1.redemption, 9);
        shelf.answered(&shard("f")).unwrap();
        assert!(shelf.unanswered().unwrap().is_empty());
        assert!(shelf.record(&shard("f")).unwrap().is_some());
    }
}

#[test]
fn what_is_gone_or_other_is_not_held() {
    let dir = tempfile::tempdir().unwrap();
    let shelf = Shelf::open(dir.path()).unwrap();
    keeps(&shelf, b"hello", None).unwrap();
    let has =
        |content: &[u8]| shelf.has(&shard("f"), content.len() as u64, &digest(content)).unwrap();
    assert!(has(b"hello") && !has(b"hallo") && !has(b"hello!"));
    std::fs::write(dir.path().join(OWN).join("fresh").join(name_of(&shard("f"))), "{").unwrap();
    assert!(has(b"hello"), "by its content");
    // A newer generation of the shard takes the place of the older one.
    keeps(&shelf, b"hallo", None).unwrap();
    assert!(has(b"hallo") && !has(b"hello"));
    std::fs::remove_file(dir.path().join("f/3/1")).unwrap();
    assert!(!has(b"hallo"), "a record alone is no content");
}

#[test]
fn a_part_is_gone_on_with_unless_it_is_of_other_content() {
    let dir = tempfile::tempdir().unwrap();
    let shelf = Shelf::open(dir.path()).unwrap();
    let mut part = shelf.partial(&shard("f"), 5, &digest(b"hello")).unwrap();
    part.write(b"hel").unwrap();
    part.sync().unwrap();
    drop(part);
    assert_eq!(shelf.partial(&shard("f"), 5, &digest(b"hallo")).unwrap().size(), 0);
    let mut part = shelf.partial(&shard("f"), 5, &digest(b"hello")).unwrap();
    assert_eq!(part.size(), 3);
    part.write(b"lo").unwrap();
    assert!(part.is(5, &digest(b"hello")) && !part.is(6, &digest(b"hello")));
    let other = Digests { blake3: BlobDigest([0; 32]), ..digest(b"hello") };
    let others = Digests { sha256: Sha256Digest([0; 32]), ..digest(b"hello") };
    assert!(!part.is(5, &other) && !part.is(5, &others), "both count");
    shelf.discard(&part).unwrap();
    assert_eq!(shelf.partial(&shard("f"), 5, &digest(b"hello")).unwrap().size(), 0);
}

#[test]
fn a_large_part_is_gone_on_with_from_any_byte_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let shelf = Shelf::open(dir.path()).unwrap();
    let content: Vec<u8> = (0..LARGE + 5_001).map(|i| (i % 251) as u8).collect();
    let size = content.len() as u64;
    for until in [1, 3_000_001, content.len() - 1] {
        let part = shelf.partial(&shard("f"), size, &digest(&content)).unwrap();
        let from = part.size() as usize;
        let mut filling = Filling::begin(part).unwrap();
        assert!(matches!(filling, Filling::Aside(_)));
        for piece in content[from..until].chunks(100_003) {
            filling.write(piece).unwrap();
        }
        assert_eq!(filling.size(), until as u64);
        let (mut part, kept) = filling.end();
        kept.unwrap();
        part.sync().unwrap();
        assert_eq!(part.size(), until as u64);
    }
    keeps(&shelf, &content, None).unwrap();
    assert!(std::fs::read(dir.path().join("f/3/1")).unwrap() == content);
}

#[test]
fn what_a_thread_cannot_write_is_said_at_the_end_at_the_latest() {
    let dir = tempfile::tempdir().unwrap();
    let shelf = Shelf::open(dir.path()).unwrap();
    let mut part = shelf.partial(&shard("f"), LARGE, &digest(b"")).unwrap();
    let only_read = File::open(dir.path().join(OWN).join("partial").join(&part.name)).unwrap();
    part.file = Part::Large(LargeFile::new(only_read.into(), 0).unwrap());
    let mut filling = Filling::begin(part).unwrap();
    let piece = vec![7; 1 << 20];
    let refused = (0..100).find(|_| filling.write(&piece).is_err());
    assert!(refused.is_some(), "it goes on for ever");
    let why = filling.end().1.unwrap_err();
    assert_eq!(why.raw_os_error(), Some(Errno::BADF.raw_os_error()), "{why}");
}

#[test]
fn one_process_and_no_links() {
    let dir = tempfile::tempdir().unwrap();
    let shelf = Shelf::open(dir.path()).unwrap();
    assert_eq!(Shelf::open(dir.path()).unwrap_err().code, "CN0824");
    let elsewhere = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), dir.path().join("f")).unwrap();
    assert!(keeps(&shelf, b"hello", None).is_err());
    assert!(std::fs::read_dir(elsewhere.path()).unwrap().next().is_none());
}
