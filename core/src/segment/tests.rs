//! Rules on metadata, sets of destinations, identity.

use alloc::format;
use alloc::string::ToString;
use alloc::vec;

use quickcheck::{TestResult, quickcheck};

use super::*;

fn named(name: &str) -> Meta {
    Meta { name: name.into(), ..Meta::default() }
}

fn labelled(labels: &[(&str, &str)]) -> Meta {
    let labels = labels.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    Meta { labels, ..named("n") }
}

#[test]
fn names_that_may_be_and_names_that_may_not() {
    let longest = "n".repeat(1024);
    for good in
        ["a", ".a", "a.", "...", "-", "Grüße.txt", "a b", "a\\b", "a/b c/.d", longest.as_str()]
    {
        assert_eq!(named(good).check(), Ok(()), "{good:?}");
    }
    let too_long = "n".repeat(1025);
    let wide = "é".repeat(513);
    for bad in [
        "", ".", "..", "/", "a//b", "/a", "a/", "a/../b", "./a", "a\0b", "a\nb", "\u{7f}",
        "\u{85}", &too_long, &wide,
    ] {
        let shown = bad.chars().take(64).collect();
        assert_eq!(named(bad).check(), Err(MetaFault::Name(shown)), "{bad:?}");
    }
}

#[test]
fn each_limit_is_judged_at_its_edge() {
    let kind = |len: usize| Meta { content_type: "t".repeat(len), ..named("n") };
    assert_eq!(kind(256).check(), Ok(()));
    assert_eq!(kind(257).check(), Err(MetaFault::Type { len: 257 }));
    let control = Meta { content_type: "text/\tplain".into(), ..named("n") };
    assert_eq!(control.check(), Err(MetaFault::Type { len: 11 }));

    let many = |count: usize| Meta {
        labels: (0..count).map(|i| (format!("{i:03}"), String::new())).collect(),
        ..named("n")
    };
    assert_eq!(many(64).check(), Ok(()));
    assert_eq!(many(65).check(), Err(MetaFault::Labels { count: 65 }));

    for len in 0..40 {
        let meta = Meta { instance: vec![1; len], ..named("n") };
        let expected =
            if len == 0 || len == 16 { Ok(()) } else { Err(MetaFault::Instance { len }) };
        assert_eq!(meta.check(), expected);
    }

    // One byte of name, one of key, eight of overhead.
    let large = |len: usize| labelled(&[("k", &"v".repeat(len))]);
    assert_eq!(large(META_MAX - 10).check(), Ok(()));
    assert_eq!(large(META_MAX - 9).check(), Err(MetaFault::Size { len: META_MAX + 1 }));
}

#[test]
fn labels_are_sorted_and_unique() {
    assert_eq!(labelled(&[]).check(), Ok(()));
    assert_eq!(labelled(&[("a", ""), ("b", "")]).check(), Ok(()));
    for bad in [
        &[("b", ""), ("a", "")][..],
        &[("a", "1"), ("a", "2")],
        &[("", "x")],
        &[("", ""), ("a", "")],
    ] {
        assert_eq!(labelled(bad).check(), Err(MetaFault::LabelOrder), "{bad:?}");
    }
}

#[test]
fn faults_carry_the_numbers() {
    assert_eq!(MetaFault::Labels { count: 65 }.to_string(), "65 labels are more than 64");
    assert!(MetaFault::Name("a/b".into()).to_string().contains("\"a/b\""));
}

#[test]
fn site_names() {
    let longest = "a".repeat(128);
    for good in ["a", "A-1", "site.north_2", "9", "_", longest.as_str()] {
        assert!(is_site_name(good), "{good:?}");
    }
    let too_long = "a".repeat(129);
    for bad in ["", ".a", "-a", "a b", "a/b", "*", "é", "a\0", too_long.as_str()] {
        assert!(!is_site_name(bad), "{bad:?}");
    }
}

#[test]
fn named_destinations_are_a_sorted_set() {
    let strings = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    let set = Destinations::named(strings(&["c", "a", "b", "a"])).expect("good names");
    assert_eq!(set, Destinations::Named(strings(&["a", "b", "c"])));
    assert_eq!(set.to_string(), "a, b, c");
    assert_eq!(Destinations::All.to_string(), "*");
    for name in ["a", "b", "c"] {
        assert!(set.addresses(name));
    }
    assert!(!set.addresses("d") && !set.addresses("") && !set.addresses("*"));
    assert!(Destinations::All.addresses("anything"));

    assert_eq!(Destinations::named(vec![]), None, "nobody");
    assert_eq!(Destinations::named(strings(&["a", "*"])), None, "not a name");
    let many = |count: usize| (0..count).map(|i| format!("s{i}")).collect::<Vec<_>>();
    assert!(Destinations::named(many(256)).is_some());
    assert_eq!(Destinations::named(many(257)), None);
    let doubled = [many(256), many(256)].concat();
    assert!(Destinations::named(doubled).is_some(), "doubles do not count");
}

/// The bytes that are hashed, spelled out.
#[test]
fn identity_is_the_hash_of_these_bytes() {
    let meta = Meta {
        content_type: "t/x".into(),
        instance: vec![7; 16],
        ..labelled(&[("k", "v"), ("l", "")])
    };
    let digest = BlobDigest([0xdd; 32]);
    let mut bytes = Vec::new();
    bytes.extend_from_slice(b"consign segment id 1\n");
    bytes.extend_from_slice(b"\0\0\0\x01n");
    bytes.extend_from_slice(b"\0\0\0\x03t/x");
    bytes.extend_from_slice(b"\0\0\0\x04\0\0\0\x02");
    bytes.extend_from_slice(b"\0\0\0\x01k\0\0\0\x01v");
    bytes.extend_from_slice(b"\0\0\0\x01l\0\0\0\0");
    bytes.extend_from_slice(b"\0\0\0\x20");
    bytes.extend_from_slice(&[0xdd; 32]);
    bytes.extend_from_slice(b"\0\0\0\x10");
    bytes.extend_from_slice(&[7; 16]);
    assert_eq!(segment_id(&meta, &digest).0, *blake3::hash(&bytes).as_bytes());
}

#[test]
fn identity_of_known_segments() {
    let empty = BlobDigest(*blake3::hash(b"").as_bytes());
    assert_eq!(
        empty.to_string(),
        "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
    );
    let hello = BlobDigest(*blake3::hash(b"hello").as_bytes());
    let again = Meta { instance: (0..16).collect(), ..named("hello.txt") };
    let labels = labelled(&[("camera", "3"), ("site", "north")]);
    let vectors = [
        (named("a"), empty, "7802ed2a538c6e3d4f194c9515114ca66c79026af5af0698f00754491bf4b78d"),
        (
            named("hello.txt"),
            hello,
            "e3af6fe4ef634292e762d08f4c94ac849ae1bbc2e35fe318c80ffee5202e5ae6",
        ),
        (again, hello, "f787c211b7609485a97cc5554b477a5656b19b11c790a1b20c936ebca3051eeb"),
        (
            Meta { content_type: "text/plain".into(), ..labels },
            hello,
            "d97a07aa3b016c6131ea3c4807fd01290be552c6db7a9dbfdcf814bf73402246",
        ),
    ];
    for (meta, digest, expected) in vectors {
        assert_eq!(segment_id(&meta, &digest).to_string(), expected, "{meta:?}");
    }
}

#[test]
fn class_and_times_are_not_part_of_identity() {
    let digest = BlobDigest([1; 32]);
    let plain = named("n");
    let other = Meta { class: Class::Urgent, accepted_at: 5, expires_at: Some(9), ..plain.clone() };
    assert_eq!(segment_id(&plain, &digest), segment_id(&other, &digest));
    assert_eq!(other.expires(), Some(UnixMillis(9)));
}

#[test]
fn classes_are_numbered_in_order() {
    for (number, class) in Class::ALL.into_iter().enumerate() {
        assert_eq!(class as usize, number);
        assert_eq!(Class::from_number(number as u8), Some(class));
    }
    assert_eq!(Class::from_number(4), None);
    assert_eq!(Class::default(), Class::Normal);
}

quickcheck! {
    /// Moving a byte from one field to the next gives another segment.
    fn fields_do_not_run_into_each_other(text: String, cut: usize) -> TestResult {
        let Some((name, kind)) = text.split_at_checked(cut % (text.len() + 1)) else {
            return TestResult::discard();
        };
        if kind.is_empty() {
            return TestResult::discard();
        }
        let digest = BlobDigest([0; 32]);
        let parts = Meta { content_type: kind.into(), ..named(name) };
        let as_label = Meta { labels: vec![(kind.into(), String::new())], ..named(name) };
        let ids = [
            segment_id(&named(&text), &digest),
            segment_id(&parts, &digest),
            segment_id(&as_label, &digest),
            segment_id(&parts, &BlobDigest([1; 32])),
        ];
        let distinct = (0..4).all(|i| (0..i).all(|j| ids[i] != ids[j]));
        TestResult::from_bool(distinct)
    }

    /// Whatever passes is within every limit that the wire relies on.
    fn what_passes_is_bounded(name: String, kind: String, labels: Vec<(String, String)>) -> bool {
        let meta = Meta { content_type: kind, labels, ..named(&name) };
        let Ok(()) = meta.check() else { return true };
        let size = meta.labels.iter().fold(0, |n, (k, v)| n + k.len() + v.len());
        !meta.name.is_empty()
            && meta.name.len() <= NAME_MAX
            && meta.content_type.len() <= TYPE_MAX
            && meta.labels.len() <= LABELS_MAX
            && size <= META_MAX
    }
}
