//! Pickup for operators: nodes, clients and shards as JSON, and what is done about them.
//!
//! Acts are the node's to judge ([`acts`]); lists are read from a snapshot ([`lists`]), each bounded: a
//! page may be short, or empty, and still name a next one.

pub mod acts;
pub mod lists;

use consign_core::ledger::keys_pickup::{ShardKey, ShardKeyFault};

/// Reads a shard as it is written for people: `FILE_ID/VERSION/SHARD@NODE`. A file id may have `/` and
/// `@` in it; what stands behind it has neither, so it is read from its end.
///
/// # Errors
/// What is wrong with it.
pub fn parse_shard(text: &str) -> Result<ShardKey, String> {
    let form = || format!("{text:?} is not FILE_ID/VERSION/SHARD@NODE");
    let (rest, node) = text.rsplit_once('@').ok_or_else(form)?;
    let (rest, index) = rest.rsplit_once('/').ok_or_else(form)?;
    let (file_id, version) = rest.rsplit_once('/').ok_or_else(form)?;
    let number = |digits: &str| {
        let plain = digits == "0" || !digits.starts_with('0');
        let plain = plain && digits.bytes().all(|b| b.is_ascii_digit());
        plain.then(|| digits.parse::<u64>().ok()).flatten().ok_or_else(form)
    };
    ShardKey::new(file_id, number(version)?, number(index)?, node)
        .map_err(|fault: ShardKeyFault| fault.to_string())
}

/// The same, written.
#[must_use]
pub fn shard_text(shard: &ShardKey) -> String {
    format!("{}/{}/{}@{}", shard.file_id(), shard.version(), shard.index(), shard.node())
}

#[cfg(test)]
mod tests;
