//! Refusals: one status, one stable code and one sentence each.

use consign_core::code::Refusal;
use consign_core::http::Fault;
use consign_core::store::StoreFault;

/// A request that is answered with no.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct No {
    pub(super) status: u16,
    pub(super) code: &'static str,
    pub(super) message: String,
    /// Seconds after which it may be tried again.
    pub(super) retry_after: Option<u64>,
    /// Methods the resource has (status 405).
    pub(super) allow: Option<&'static str>,
}

impl No {
    pub(super) fn new(status: u16, code: &'static str, message: impl Into<String>) -> No {
        No { status, code, message: message.into(), retry_after: None, allow: None }
    }

    pub(super) fn retry_after(mut self, seconds: u64) -> No {
        self.retry_after = Some(seconds);
        self
    }

    /// The node's refusal.
    pub(super) fn of_refusal(refusal: Refusal, retry_after_ms: u64, text: String) -> No {
        let status = match refusal {
            Refusal::Quota | Refusal::DiskFull => 507,
            Refusal::Busy => 503,
            Refusal::TooLarge => 413,
            Refusal::Expired | Refusal::Invalid | Refusal::Mismatch | Refusal::NotAddressed => 400,
            Refusal::AlreadyRelayed => 409,
            Refusal::Unknown | Refusal::UnknownDestination => 404,
        };
        let message = if text.is_empty() { refusal.word().into() } else { text };
        let no = No::new(status, refusal.word(), message);
        match (refusal.is_retry(), retry_after_ms) {
            (false, 0) => no,
            // Waiting helps, so say so even where the node names no time.
            (true, 0) => no.retry_after(1),
            (_, ms) => no.retry_after(ms.div_ceil(1000)),
        }
    }

    /// The store's trouble.
    pub(super) fn of_store(fault: &StoreFault) -> No {
        let message = fault.to_string();
        match fault {
            StoreFault::Full(_) => No::new(507, Refusal::DiskFull.word(), message).retry_after(60),
            StoreFault::Missing(_) => No::new(404, "missing", message),
            StoreFault::Corrupt(_) => No::new(500, "corrupt", message),
            StoreFault::Crowded => No::new(503, Refusal::Busy.word(), message).retry_after(1),
            // Non-exhaustive: whatever the store cannot do is its own trouble.
            _ => No::new(500, "store_failed", message),
        }
    }

    /// The code of a link that is good no more, or never was: one answer for every cause.
    pub(super) fn of_code() -> No {
        let text = "this link was used, is older than 10 minutes, or is from before a restart";
        No::new(401, "page_code", format!("{text}: `consign page` prints another"))
    }

    /// The same of a page's token.
    pub(super) fn of_token() -> No {
        let text = "this page may not act (any more): open the link that `consign page` prints";
        No::new(401, "page_token", text)
    }

    /// A fault found behind the codec, in a query.
    pub(super) fn of_fault(fault: Fault) -> No {
        No::new(fault.status(), fault.code(), fault.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_has_its_status_and_waits_where_waiting_helps() {
        let table = [
            (Refusal::Quota, 507, true),
            (Refusal::DiskFull, 507, true),
            (Refusal::Busy, 503, true),
            (Refusal::TooLarge, 413, false),
            (Refusal::Expired, 400, false),
            (Refusal::Invalid, 400, false),
            (Refusal::NotAddressed, 400, false),
            (Refusal::Mismatch, 400, false),
            (Refusal::AlreadyRelayed, 409, false),
            (Refusal::Unknown, 404, false),
            (Refusal::UnknownDestination, 404, false),
        ];
        assert_eq!(table.map(|t| t.0), Refusal::ALL);
        for (refusal, status, waits) in table {
            let no = No::of_refusal(refusal, 0, String::new());
            assert_eq!((no.status, no.code), (status, refusal.word()));
            assert_eq!(no.retry_after.is_some(), waits, "{refusal}");
        }
        assert_eq!(No::of_refusal(Refusal::Quota, 1001, "x".into()).retry_after, Some(2));
    }
}
