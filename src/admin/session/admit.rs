//! Who may ask for what.

use consign_core::act::Act;
use consign_core::http::{Limits, Method, Request, Target};
use consign_core::pickup::token::Token;
use consign_core::session::ConnInfo;
use consign_core::time::Now;

use super::AdminSession;
use crate::admin::refusal::No;
use crate::admin::{AdminContext, acts};
use crate::page::links::FIELD;
use crate::page::origin;

/// Longest body of an act that a page asks for: a peer, a reason and why.
const PAGE_BODY_MAX: usize = 4 << 10;

/// Who sent a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asker {
    /// A user over the admin socket.
    User(u32),
    /// A page that was opened by a link of this user.
    Page(u32),
    /// Somebody on this machine.
    Anybody,
}

impl Asker {
    /// As the audit has it.
    pub(super) fn who(self) -> String {
        match self {
            Asker::User(uid) => format!("uid:{uid}"),
            Asker::Page(uid) => format!("page:uid:{uid}"),
            Asker::Anybody => String::new(),
        }
    }

    /// Bytes that the body of an act may have.
    pub(super) fn body_max(self) -> usize {
        match self {
            Asker::User(_) => acts::BODY_MAX,
            Asker::Page(_) | Asker::Anybody => PAGE_BODY_MAX,
        }
    }

    /// Whether this act is among those it may ask for.
    pub(super) fn may(self, act: Act) -> Result<Act, No> {
        match self {
            Asker::User(_) => Ok(act),
            Asker::Page(_) if acts::is_of_page(&act) => Ok(act),
            Asker::Page(_) | Asker::Anybody => {
                let text = "the page may retry the dead letters of one peer and one reason only";
                Err(No::new(403, "not_permitted", text))
            }
        }
    }
}

impl AdminSession {
    /// Who may ask for what: everything for the daemon's user and root; for this machine the page with
    /// what it shows, health and metrics; and acts for a page that was opened by a link.
    pub(super) fn admit(&self, now: Now, request: &Request) -> Result<Asker, No> {
        if let Some(uid) = self.info.uid {
            if uid == self.context.uid || uid == 0 {
                return Ok(Asker::User(uid));
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
        match Target::of(&request.target).path {
            "/"
            | "/healthz"
            | "/readyz"
            | "/metrics"
            | "/v1/status"
            | "/v1/peers"
            | "/v1/deadletters/groups"
                if reads =>
            {
                Ok(Asker::Anybody)
            }
            "/v1/page/session" if request.method == Method::Post => {
                from_the_page(request).map(|()| Asker::Anybody)
            }
            "/v1/acts" if request.method == Method::Post => {
                from_the_page(request)?;
                let token = request.headers.text(FIELD).and_then(Token::parse);
                let user = token.and_then(|token| self.context.links.user(now.mono, &token));
                user.map(Asker::Page).ok_or_else(No::of_token)
            }
            _ => {
                let text = "only the page with what it shows, health and metrics are served here; \
                            use the admin socket";
                Err(No::new(403, "not_permitted", text))
            }
        }
    }
}

/// Nothing is changed for a page of somebody else.
fn from_the_page(request: &Request) -> Result<(), No> {
    origin::is_here(&request.headers).map_err(|why| No::new(403, "cross_origin", why.to_string()))
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
