//! Names and numbers of the tables.

use crate::code::codes;

codes! {
    /// A table of the ledger. The number is stored in row checksums, the word is the LMDB database name.
    pub enum Table {
        /// name → counter or marker.
        Meta = 1, "meta";
        /// seq → segment.
        Segments = 2, "segments";
        /// segment id → seq.
        Ids = 3, "ids";
        /// body number → inline content, raw.
        Bodies = 4, "bodies";
        /// blob number → digest, size, references.
        Blobs = 5, "blobs";
        /// digest → blob number.
        Digests = 6, "digests";
        /// (seq, site) → delivery.
        Deliveries = 7, "deliveries";
        /// (peer, class, ms, id prefix, seq) → nothing.
        Due = 8, "due";
        /// (peer, seq) → nothing.
        Owed = 9, "owed";
        /// (peer, seq) → session epoch.
        Inflight = 10, "inflight";
        /// (peer, seq) → nothing: in custody of a hop.
        Handed = 11, "handed";
        /// (ms, seq, site) → reason.
        Deadletters = 12, "deadletters";
        /// (ms, kind, key) → nothing.
        Expiry = 13, "expiry";
        /// blob number → size and owner: to be unlinked.
        Doomed = 14, "doomed";
        /// blob number → content being received.
        Incoming = 15, "incoming";
        /// (site, state) → count and bytes.
        Counters = 16, "counters";
        /// segment id → when it was evicted, and its origin's accept number.
        Remembered = 17, "remembered";
        /// (ms, seq) → nothing: relayed condition not yet met.
        Unmet = 18, "unmet";
        /// (blob, owner) → nothing.
        Owners = 19, "owners";
        /// (digest, source) → incoming blob number and mismatches.
        Sources = 20, "sources";
        /// (kind, key) → why it was set aside.
        Quarantine = 21, "quarantine";
        /// (rule, seq) → export intent or done.
        Exports = 22, "exports";
        /// (rule, path hash) → file seen.
        Watched = 23, "watched";
        /// shard key → shard.
        Shards = 24, "shards";
        /// (node, shard key) → nothing.
        ByNode = 25, "by_node";
        /// (ms, shard key) → nothing.
        ShardDeadlines = 26, "shard_deadlines";
        /// SHA-256 of a token → token.
        Tokens = 27, "tokens";
        /// (node, nonce) → until when.
        Nonces = 28, "nonces";
        /// node id → keys.
        Nodes = 29, "nodes";
        /// client name → SHA-256 of its bearer token.
        Clients = 30, "clients";
        /// site number → peer.
        Peers = 31, "peers";
        /// audit number → record.
        Audit = 32, "audit";
        /// (seq, site) → receipt kept after eviction.
        Receipts = 33, "receipts";
        /// (peer, seq, site) → nothing: a receipt that this peer has still to be told.
        PassBack = 34, "pass_back";
        /// (ms, segment id) → nothing: remembered ids by age.
        RememberedAge = 35, "remembered_age";
    }
}
