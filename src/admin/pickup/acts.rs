//! What operators do about nodes, clients and shards, as JSON.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use consign_core::id::Sha256Digest;
use consign_core::ledger::keys_pickup::is_node_id;
use consign_core::pickup::{Operator, OperatorAct, PickupRefusal, Report};

use super::parse_shard;
use crate::admin::refusal::No;

/// Longest reason given, in bytes.
const WHY_MAX: usize = 1_024;

/// What an operator asks for (`POST /v1/pickup/acts`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PickupRequest {
    /// `enrol_node`, `revoke_node`, `enrol_client`, `revoke_client`, `retry_shard`, `abandon_shard`.
    pub action: String,
    /// The node's id, the client's name, or the shard as `FILE_ID/VERSION/SHARD@NODE`.
    pub subject: String,
    /// Acts on nodes: an Ed25519 public key, 32 bytes in base64. For `revoke_node`: only this key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// `enrol_client`: SHA-256 of the bearer token, 64 hex digits. The token itself is told to nobody.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_sha256: Option<String>,
    /// Why it is done; goes into the audit.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// What became of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PickupActed {
    /// `consign.pickup_act/1`
    pub schema: String,
    /// The act.
    pub action: String,
    /// What it was about.
    pub subject: String,
    /// Whether anything was changed.
    pub changed: bool,
    /// For people: what it is now.
    pub text: String,
}

impl PickupActed {
    /// Its schema.
    pub const SCHEMA: &'static str = "consign.pickup_act/1";

    /// The node's report on a request.
    pub(in crate::admin) fn of(request: &PickupRequest, report: Report) -> PickupActed {
        PickupActed {
            schema: PickupActed::SCHEMA.into(),
            action: request.action.clone(),
            subject: request.subject.clone(),
            changed: report.changed,
            text: report.text,
        }
    }
}

/// Reads a public key as it is enrolled.
///
/// # Errors
/// When it is not 32 bytes in standard base64.
pub fn public_key(text: &str) -> Result<[u8; 32], String> {
    let bytes = STANDARD.decode(text).ok().and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| format!("{text:?} is not an Ed25519 public key: 32 bytes in base64"))
}

/// Reads the body of a request; `uid` is who sent it.
pub(in crate::admin) fn read(body: &[u8], uid: u32) -> Result<(PickupRequest, Operator), No> {
    let bad = |text: String| No::new(400, "invalid", text);
    let request: PickupRequest =
        serde_json::from_slice(body).map_err(|why| bad(format!("the body: {why}")))?;
    if request.why.len() > WHY_MAX {
        return Err(bad(format!("a reason of {} bytes is more than {WHY_MAX}", request.why.len())));
    }
    let act = act(&request).map_err(bad)?;
    let operator = Operator { act, who: format!("uid:{uid}"), why: request.why.clone() };
    Ok((request, operator))
}

fn act(request: &PickupRequest) -> Result<OperatorAct, String> {
    let subject = request.subject.as_str();
    let named = || {
        let form = "1 to 128 characters of A-Z a-z 0-9 . _ -";
        let wrong = || format!("{subject:?} is not a name of {form}");
        is_node_id(subject).then(|| subject.to_owned()).ok_or_else(wrong)
    };
    let key = request.key.as_deref().map(public_key).transpose()?;
    let digits = request.token_sha256.as_deref();
    let token = digits
        .map(|d| Sha256Digest::from_hex(d).ok_or_else(|| format!("{d:?} is not 64 hex digits")))
        .transpose()?;
    let action = request.action.as_str();
    let act = match (action, key, token) {
        ("enrol_node", Some(key), None) => OperatorAct::EnrolNode { id: named()?, key },
        ("revoke_node", key, None) => OperatorAct::RevokeNode { id: named()?, key },
        ("enrol_client", None, Some(token)) => OperatorAct::EnrolClient { name: named()?, token },
        ("revoke_client", None, None) => OperatorAct::RevokeClient { name: named()? },
        ("retry_shard", None, None) => OperatorAct::RetryShard { shard: parse_shard(subject)? },
        ("abandon_shard", None, None) => OperatorAct::AbandonShard { shard: parse_shard(subject)? },
        ("enrol_node", None, None) => return Err("enrol_node needs a key".into()),
        ("enrol_client", None, None) => return Err("enrol_client needs token_sha256".into()),
        (
            "enrol_node" | "revoke_node" | "enrol_client" | "revoke_client" | "retry_shard"
            | "abandon_shard",
            ..,
        ) => return Err(format!("{action} does not go with this key or token")),
        _ => return Err(format!("{action:?} is not an act on nodes, clients or shards")),
    };
    Ok(act)
}

/// The node's refusal, as this interface says it.
pub(in crate::admin) fn refusal(refusal: PickupRefusal, retry_after: u64, text: String) -> No {
    let message = if text.is_empty() { refusal.word().into() } else { text };
    // "not found" is said of paths here; what an act is about is unknown.
    let code = if refusal == PickupRefusal::NotFound { "unknown" } else { refusal.word() };
    let no = No::new(refusal.status(), code, message);
    match (retry_after, refusal.status()) {
        (0, 503 | 507) => no.retry_after(1),
        (0, _) => no,
        (seconds, _) => no.retry_after(seconds),
    }
}
