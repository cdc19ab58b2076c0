//! Sites that knocked and are not known.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::value::worded;
use crate::tls::identity::date;
use crate::tls::strangers::Stranger;

/// Sites that were turned away since the start because nobody knows them here, who knocked last first; at most 64.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PendingPeers {
    /// `consign.pending_peers/1`
    pub schema: String,
    /// Each by name and certificate.
    pub peers: Vec<PendingPeer>,
}

/// A site that an authority believed here has signed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PendingPeer {
    /// The name in its certificate.
    pub name: String,
    /// SHA-256 of its certificate, as `fingerprint` of a peer takes it.
    pub fingerprint: String,
    /// CN0305: no peer of that name; CN0307: it is pinned to another certificate.
    pub code: String,
    /// When it knocked first.
    pub first_at: String,
    /// When it knocked last.
    pub last_at: String,
    /// How often.
    pub knocks: u64,
}

impl PendingPeers {
    /// Its schema.
    pub const SCHEMA: &'static str = "consign.pending_peers/1";

    pub(in crate::admin) fn of(strangers: Vec<Stranger>) -> PendingPeers {
        let peers = strangers.into_iter().map(|stranger| {
            let Stranger { name, fingerprint, code, first, last, knocks } = stranger;
            let fingerprint = worded(&fingerprint);
            let (first_at, last_at) = (date(first), date(last));
            PendingPeer { name, fingerprint, code: code.into(), first_at, last_at, knocks }
        });
        PendingPeers { schema: PendingPeers::SCHEMA.into(), peers: peers.collect() }
    }
}
