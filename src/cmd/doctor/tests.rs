//! Findings in words.

use super::*;
use crate::cmd::screen::said;

#[test]
fn what_is_wrong_decides_how_it_ends() {
    let checks = vec![
        Check::ok("clock", "2026-11-30"),
        Check::warning("peer", "beta does not answer", "is beta up?"),
    ];
    let mut findings =
        Findings { schema: Findings::SCHEMA.into(), good: true, checks, ..Findings::default() };
    let (exit, text) = said(false, |s| say(&findings, s));
    assert_eq!(exit, Ok(Exit::Done));
    let expected = [
        "ok       clock          2026-11-30",
        "warning  peer           beta does not answer",
        "           do this:     is beta up?",
    ];
    assert_eq!(text.lines, expected);
    assert_eq!(text.notes, ["0 wrong, 1 warning"]);
    findings.good = false;
    findings.bundle = Some("b.tar.gz".into());
    let (exit, text) = said(true, |s| say(&findings, s));
    assert_eq!(exit, Ok(Exit::Failed));
    let object: serde_json::Value = serde_json::from_str(&text.lines[0]).unwrap();
    assert_eq!((&object["good"], &object["bundle"]), (&false.into(), &"b.tar.gz".into()));
}
