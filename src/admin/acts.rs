//! Acts of operators as JSON: what is asked for, and what became of it.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use consign_core::act::{Act, Action, IdPrefix, Report, Selection};
use consign_core::code::Cause;
use consign_core::id::unhex;

use super::refusal::No;

/// Longest body of a request: 20,000 ids and a reason.
pub(super) const BODY_MAX: usize = 2 << 20;

/// What an operator asks for (`POST /v1/acts`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ActRequest {
    /// `retry`, `purge`, `hold`, `unhold`, `release`, `hold_peer`, `release_peer`, `flush`, `forget`,
    /// `rekey`.
    pub action: String,
    /// Segments by their ids, or by 6 digits or more of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ids: Vec<String>,
    /// Every one.
    #[serde(skip_serializing_if = "is_no")]
    pub all: bool,
    /// Only deliveries to this peer; the peer itself for acts on a peer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// Only dead letters for this reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Only what has been so, or been here, for so long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub older_seconds: Option<u64>,
    /// Why it is done; goes into the audit.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// Only say what would be done.
    #[serde(skip_serializing_if = "is_no")]
    pub dry_run: bool,
    /// `release`: also what is still owed to others; it is given up.
    #[serde(skip_serializing_if = "is_no")]
    pub force: bool,
    /// `rekey`: the new fingerprint, 64 hex digits; without it the configuration's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pin: Option<String>,
}

// serde hands references to this.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_no(flag: &bool) -> bool {
    !flag
}

/// What became of an act.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Acted {
    /// `consign.act/1`
    pub schema: String,
    /// The act.
    pub action: String,
    /// Whether nothing was changed because that was asked for.
    pub dry_run: bool,
    /// How many deliveries, segments or peers it changed, or would change.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Commits it took.
    pub commits: u64,
    /// The same by peer; under an empty name for acts on segments.
    pub done: Vec<Tally>,
    /// What was left as it was; 100 at most are named.
    pub left: Vec<Left>,
    /// How much was left in all.
    pub left_count: u64,
}

/// How much was done for one peer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tally {
    /// The peer; empty for acts on segments.
    pub peer: String,
    /// Deliveries or segments.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Something an act left as it was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Left {
    /// An id, or its beginning as it was given.
    pub id: String,
    /// The peer; empty where it is not about one.
    pub peer: String,
    /// Stable word.
    pub code: String,
    /// For people.
    pub text: String,
}

impl Acted {
    /// Its schema.
    pub const SCHEMA: &'static str = "consign.act/1";

    /// A report of the node.
    #[must_use]
    pub fn of(report: &Report) -> Acted {
        let (count, bytes) = report.total();
        let tally = |t: &consign_core::act::Tally| Tally {
            peer: t.peer.clone(),
            count: t.count,
            bytes: t.bytes,
        };
        let left = |l: &consign_core::act::Left| Left {
            id: l.id.clone(),
            peer: l.peer.clone(),
            code: l.why.word().into(),
            text: l.text.clone(),
        };
        Acted {
            schema: Acted::SCHEMA.into(),
            action: report.action.word().into(),
            dry_run: report.dry_run,
            count,
            bytes,
            commits: report.commits,
            done: report.done.iter().map(tally).collect(),
            left: report.left.iter().map(left).collect(),
            left_count: report.left_count,
        }
    }
}

/// Reads the body of a request; `who` sent it.
pub(super) fn read(body: &[u8], who: String) -> Result<Act, No> {
    let bad = |text: String| No::new(400, "invalid", text);
    let request: ActRequest =
        serde_json::from_slice(body).map_err(|why| bad(format!("the body: {why}")))?;
    let action = Action::from_word(&request.action)
        .ok_or_else(|| bad(format!("{:?} is not an act", request.action)))?;
    let mut ids = Vec::with_capacity(request.ids.len());
    for id in &request.ids {
        let prefix = IdPrefix::parse(id).ok_or_else(|| {
            let text = format!("{id:?} is not 6 to 64 hex digits of a segment id");
            No::new(400, "invalid_id", text)
        })?;
        ids.push(prefix);
    }
    let reason = request
        .reason
        .map(|word| {
            let unknown = || bad(format!("{word:?} is not a reason; docs/ADMIN.md lists them"));
            Cause::from_word(&word).ok_or_else(unknown)
        })
        .transpose()?;
    let pin = request
        .pin
        .map(|digits| {
            let digits = digits.strip_prefix("sha256:").unwrap_or(&digits);
            let wrong = || bad(format!("{digits:?} is not a fingerprint of 64 hex digits"));
            unhex::<32>(digits).ok_or_else(wrong)
        })
        .transpose()?;
    let older = request.older_seconds.map(Duration::from_secs);
    Ok(Act {
        action,
        of: Selection { ids, all: request.all, peer: request.peer, reason, older },
        who,
        why: request.why,
        dry_run: request.dry_run,
        force: request.force,
        pin,
    })
}

/// Whether a page may ask for it: the retry of a group of dead letters, and nothing else.
pub(super) fn is_of_page(act: &Act) -> bool {
    let of = &act.of;
    let group = of.peer.is_some() && of.reason.is_some();
    let more = !of.ids.is_empty() || of.all || of.older.is_some() || act.force;
    act.action == Action::Retry && group && !more && act.pin.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_whole_or_not_at_all() {
        let body = br#"{"action":"retry","ids":["3fa9c17be204"],"peer":"gamma",
            "reason":"too_large","older_seconds":60,"why":"raised","dry_run":true}"#;
        let act = read(body, "uid:1000".into()).unwrap();
        assert_eq!((act.action, act.who.as_str()), (Action::Retry, "uid:1000"));
        assert_eq!(act.of.words(), "3fa9c17be204 peer=gamma reason=too_large older=60s");
        assert!(act.dry_run && !act.force && act.pin.is_none());
        let table: [(&str, &str); 7] = [
            ("", "invalid"),
            ("[]", "invalid"),
            (r#"{"action":"explode","all":true}"#, "invalid"),
            (r#"{"action":"retry","all":true,"extra":1}"#, "invalid"),
            (r#"{"action":"retry","ids":["3fa"]}"#, "invalid_id"),
            (r#"{"action":"retry","reason":"whim"}"#, "invalid"),
            (r#"{"action":"rekey","peer":"b","pin":"abc"}"#, "invalid"),
        ];
        for (body, code) in table {
            assert_eq!(read(body.as_bytes(), String::new()).unwrap_err().code, code, "{body}");
        }
        let pin = format!(r#"{{"action":"rekey","peer":"b","pin":"sha256:{}"}}"#, "0a".repeat(32));
        assert_eq!(read(pin.as_bytes(), String::new()).unwrap().pin, Some([10; 32]));
    }

    #[test]
    fn a_page_may_retry_a_group_and_nothing_else() {
        let table = [
            (r#""action":"retry","peer":"b","reason":"quota""#, true),
            (r#""action":"retry","peer":"b","reason":"quota","why":"x","dry_run":true"#, true),
            (r#""action":"retry","peer":"b""#, false),
            (r#""action":"retry","reason":"quota""#, false),
            (r#""action":"retry","all":true"#, false),
            (r#""action":"retry","peer":"b","reason":"quota","all":true"#, false),
            (r#""action":"retry","peer":"b","reason":"quota","ids":["3fa9c1"]"#, false),
            (r#""action":"retry","peer":"b","reason":"quota","older_seconds":1"#, false),
            (r#""action":"retry","peer":"b","reason":"quota","force":true"#, false),
        ];
        for (members, may) in table {
            let act = read(format!("{{{members}}}").as_bytes(), String::new()).unwrap();
            assert_eq!(is_of_page(&act), may, "{members}");
        }
        for action in Action::ALL.iter().filter(|action| **action != Action::Retry) {
            let body = format!(r#"{{"action":"{}","peer":"b","reason":"quota"}}"#, action.word());
            let act = read(body.as_bytes(), String::new()).unwrap();
            assert!(!is_of_page(&act), "{}", action.word());
        }
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        for action in Action::ALL {
            let request = ActRequest {
                action: action.word().into(),
                ids: vec!["3fa9c1".into()],
                all: true,
                peer: Some("beta".into()),
                reason: Some("loop".into()),
                older_seconds: Some(5),
                why: "because".into(),
                dry_run: true,
                force: true,
                pin: Some("00".repeat(32)),
            };
            let act = read(&serde_json::to_vec(&request).unwrap(), "uid:7".into()).unwrap();
            assert_eq!((act.action, act.of.ids.len(), act.force), (*action, 1, true));
        }
    }
}
