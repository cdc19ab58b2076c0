//! Who may ask for what.

use consign_core::http::{Limits, Method, Request};
use consign_core::session::ConnInfo;

use super::AdminSession;
use crate::admin::AdminContext;
use crate::admin::refusal::No;

impl AdminSession {
    /// Who may ask for what: everything for the daemon's user and root, health for this machine.
    pub(super) fn admit(&self, request: &Request) -> Result<(), No> {
        if let Some(uid) = self.info.uid {
            if uid == self.context.uid || uid == 0 {
                return Ok(());
            }
            let text = format!("user {uid} may not use this socket");
            return Err(No::new(403, "not_permitted", text));
        }
        let host = request.headers.text("host").unwrap_or_default();
        if !is_local(host, &self.context.web_names) {
            let text = format!("{host:?} is not a name of this page");
            return Err(No::new(421, "misdirected", text));
        }
        let reads = matches!(request.method, Method::Get | Method::Head);
        let open =
            ["/healthz", "/readyz", "/v1/status", "/metrics"].contains(&request.target.as_str());
        if !(reads && open) {
            let text = "only health, status and metrics are served here; use the admin socket";
            return Err(No::new(403, "not_permitted", text));
        }
        Ok(())
    }
}

/// The admin socket's users are known: they may take their time, a pipe may be slow.
pub(super) fn limits(context: &AdminContext, info: &ConnInfo) -> Limits {
    match info.uid {
        Some(_) => Limits { idle_timeout: None, body_rate: None, ..context.limits },
        None => context.limits,
    }
}

/// Whether a Host field names this machine, with or without a port.
fn is_local(host: &str, names: &[String]) -> bool {
    let bare = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !name.is_empty() => name,
        _ => host,
    };
    let is = |name: &str| name.eq_ignore_ascii_case(bare);
    ["localhost", "127.0.0.1", "[::1]"].into_iter().any(is) || names.iter().any(|n| is(n))
}
