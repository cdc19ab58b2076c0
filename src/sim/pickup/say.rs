//! What clients and nodes write: heads of requests, signatures.

use consign_core::http::{Client, Outgoing, Payload, ReplyHead};
use consign_core::ledger::keys_pickup::ShardKey;
use consign_core::pickup::message::Refused;
use consign_core::pickup::sign::{Claim, Signable, no_body};

use super::{Shore, fill};

/// Fields of a request.
pub(super) type Fields = Vec<(&'static str, String)>;

/// The fields that name a shard, and the client's token.
pub(super) fn shard_fields(shard: &ShardKey, bearer: &str) -> Fields {
    vec![
        ("X-Nodus-File-Id", shard.file_id().to_string()),
        ("X-Nodus-Version", shard.version().to_string()),
        ("X-Nodus-Shard-Index", shard.index().to_string()),
        ("X-Nodus-Node-Id", shard.node().to_string()),
        ("Authorization", format!("Bearer {bearer}")),
    ]
}

/// Who signs, and how.
pub(super) struct Signer<'a> {
    pub node: &'a str,
    pub secret: &'a [u8; 32],
    /// The public half of it.
    pub public: [u8; 32],
}

/// A signature for a request with that target; the clock of whoever signs is a little off.
pub(super) fn sign(shore: &mut Shore<'_>, signer: &Signer<'_>, target: &str) -> Claim {
    let mut nonce = [0; 16];
    fill(shore.rng, &mut nonce);
    let off = match shore.rng.below(200) {
        0 => 58,
        1 => 200,
        _ => shore.rng.below(3),
    };
    let system = shore.system.0 / 1_000;
    let early = shore.rng.chance(500_000);
    let timestamp = if early { system.saturating_sub(off) } else { system + off };
    let authority = shore.authority();
    let text = Signable { method: "GET", authority, target, timestamp, nonce, body: no_body() };
    let signature = text.sign(signer.secret);
    shore.common.claims.insert(nonce, (signer.public, shore.at));
    Claim { node: signer.node.to_string(), timestamp, nonce, signature }
}

/// Appends the head of a request.
pub(super) fn request(
    http: &mut Client,
    shore: &Shore<'_>,
    (method, target): (&str, &str),
    fields: &Fields,
    payload: Payload<'_>,
    out: &mut Vec<u8>,
) {
    let headers: Vec<(&str, &str)> =
        fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let expect_continue = false;
    let host = shore.authority();
    let outgoing = Outgoing { method, target, host, headers: &headers, payload, expect_continue };
    http.request(&outgoing, out);
}

/// A number in a field.
pub(super) fn number(head: &ReplyHead, name: &str) -> Option<u64> {
    head.headers.text(name)?.parse().ok()
}

/// The stable code of a refusal.
pub(super) fn code(body: &[u8]) -> String {
    serde_json::from_slice::<Refused>(body).map_or_else(|_| String::new(), |refused| refused.code)
}
