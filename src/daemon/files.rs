//! The process's limit of open files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that are not connections: ledger, content files, listeners, the log.
const OTHERS: u64 = 256;

/// Raises the limit as far as it is needed and allowed; returns how many connections there may be.
pub(super) fn allow(connections: usize) -> usize {
    let wanted = u64::try_from(connections).unwrap_or(u64::MAX).saturating_add(OTHERS);
    let limit = getrlimit(Resource::Nofile);
    let Some(current) = limit.current else { return connections };
    if current >= wanted {
        return connections;
    }
    let raised = limit.maximum.map_or(wanted, |most| most.min(wanted)).max(current);
    let new = Rlimit { current: Some(raised), maximum: limit.maximum };
    let have = if setrlimit(Resource::Nofile, new).is_ok() { raised } else { current };
    let fit = usize::try_from(have.saturating_sub(OTHERS)).unwrap_or(usize::MAX).max(8);
    if fit < connections {
        tracing::warn!(
            code = "CN0523",
            "the limit of open files is {have}: at most {fit} connections instead of {connections}"
        );
    }
    fit.min(connections)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_more_than_asked_for_and_never_none() {
        assert_eq!(allow(8), 8);
        assert!((8..=1 << 20).contains(&allow(1 << 20)));
    }
}
