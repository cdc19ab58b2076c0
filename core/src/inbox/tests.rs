//! Patterns against a naive matcher, rules against segments.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use quickcheck::{Arbitrary, Gen, quickcheck};

use super::*;

#[test]
fn patterns() {
    for (pattern, text, fits) in [
        ("", "", true),
        ("", "a", false),
        ("*", "", true),
        ("*", "a/b", true),
        ("?", "", false),
        ("?", "é", true),
        ("*.csv", "a.csv", true),
        ("*.csv", "a.csv.gz", false),
        ("a*b*c", "a-b-b-c", true),
        ("a*b*c", "a-c-b", false),
        ("**", "x", true),
        ("[a-c]x", "bx", true),
        ("[a-c]x", "dx", false),
        ("[!a-c]x", "dx", true),
        ("[^a-c]x", "ax", false),
        ("[]]", "]", true),
        ("[-]", "-", true),
        ("[a-]", "-", true),
        ("[", "[", false),
        ("cam-[0-9][0-9]/*", "cam-07/x.jpg", true),
    ] {
        assert_eq!(glob(pattern, text), fits, "{pattern:?} {text:?}");
    }
    for (pattern, sound) in [("*", true), ("[a", false), ("[]", false), ("[b-a]", false)] {
        assert_eq!(pattern_fault(pattern).is_none(), sound, "{pattern:?}");
    }
    assert!(pattern_fault(&"a".repeat(PATTERN_MAX + 1)).is_some());
}

#[test]
fn a_pattern_of_many_stars_takes_no_longer_than_pattern_times_text() {
    let pattern = "a*".repeat(PATTERN_MAX / 2);
    let text = "a".repeat(1023) + "b";
    assert!(glob(&pattern, &text));
    assert!(!glob(&(pattern + "c"), &text));
}

/// A short text over few characters.
#[derive(Clone, Debug)]
struct Short(String);

impl Arbitrary for Short {
    fn arbitrary(g: &mut Gen) -> Short {
        let len = usize::arbitrary(g) % 8;
        Short((0..len).map(|_| *g.choose(&['a', 'b', '*', '?', '/']).unwrap()).collect())
    }
}

fn naive(pattern: &[char], text: &[char]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some(('*', rest)) => (0..=text.len()).any(|n| naive(rest, &text[n..])),
        Some((c, rest)) => text
            .split_first()
            .is_some_and(|(t, others)| (*c == '?' || c == t) && naive(rest, others)),
    }
}

quickcheck! {
    fn a_pattern_says_what_the_naive_one_says(pattern: Short, text: Short) -> bool {
        let chars = |s: &Short| s.0.chars().collect::<Vec<char>>();
        glob(&pattern.0, &text.0) == naive(&chars(&pattern), &chars(&text))
    }

    fn any_pattern_is_judged(pattern: String, text: String) -> bool {
        let sound = pattern_fault(&pattern).is_none();
        !glob(&pattern, &text) || sound || pattern.chars().count() > PATTERN_MAX
    }
}

fn meta(name: &str, labels: &[(&str, &str)]) -> Meta {
    let labels = labels.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    Meta { name: name.to_string(), labels, ..Meta::default() }
}

#[test]
fn a_rule_takes_what_fits_all_it_says() {
    let every = InboxRule::default();
    assert!(every.matches("shop", &meta("a", &[])));
    let rule = InboxRule {
        from: Some("shop-*".into()),
        label: Some(("kind".into(), Some("photo".into()))),
        name: Some("*.jpg".into()),
        ..InboxRule::default()
    };
    let photo = [("kind", "photo"), ("x", "y")];
    assert!(rule.matches("shop-7", &meta("a.jpg", &photo)));
    assert!(!rule.matches("ship-7", &meta("a.jpg", &photo)));
    assert!(!rule.matches("shop-7", &meta("a.png", &photo)));
    assert!(!rule.matches("shop-7", &meta("a.jpg", &[("kind", "film")])));
    let any = InboxRule { label: Some(("kind".into(), None)), ..InboxRule::default() };
    assert!(any.matches("", &meta("a", &[("kind", "")])));
    assert!(!any.matches("", &meta("a", &[("other", "")])));
}

#[test]
fn a_rule_is_another_one_when_it_picks_or_puts_otherwise() {
    let one = RuleId::inbox("a", "", "b", "/in");
    assert_eq!(one, RuleId::inbox("a", "", "b", "/in"));
    for other in [
        RuleId::inbox("", "a", "b", "/in"),
        RuleId::inbox("a", "", "b", "/out"),
        RuleId::inbox("ab", "", "", "/in"),
        RuleId::watch("/in"),
    ] {
        assert_ne!(one, other);
    }
}
