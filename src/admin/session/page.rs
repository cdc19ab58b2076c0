//! The page, links to it, and pages that are opened by one.

use consign_core::pickup::token::Token;
use consign_core::session::SessionOut;
use consign_core::time::Now;

use super::AdminSession;
use super::admit::Asker;
use crate::admin::refusal::No;
use crate::admin::shapes::{PageEntered, PageLink};
use crate::page;
use crate::page::links::{CODE_LIFE, TOKEN_LIFE};

impl AdminSession {
    pub(super) fn page(&mut self, now: Now, out: &mut SessionOut) {
        self.body_of(now, 200, page::TYPE, &page::fields(), page::HTML.as_bytes(), out);
    }

    /// A link for whoever asks over the admin socket.
    pub(super) fn link(&mut self, now: Now, out: &mut SessionOut) {
        match self.linked(now) {
            Ok(link) => self.shape(now, 200, &[], &link, out),
            Err(no) => self.refuse(now, &no, out),
        }
    }

    fn linked(&self, now: Now) -> Result<PageLink, No> {
        let at = self.context.web.ok_or_else(|| {
            No::new(409, "no_page", "there is no page: listen.web is \"off\" in the configuration")
        })?;
        // Over TCP nobody comes this far.
        let uid = self.info.uid.unwrap_or(u32::MAX);
        let code = secret()?;
        self.context.links.issue(now.mono, uid, &code);
        Ok(PageLink {
            schema: PageLink::SCHEMA.into(),
            url: format!("http://{at}/#token={}", code.text()),
            expires_seconds: CODE_LIFE.as_secs(),
        })
    }

    /// A page was opened by a link: its code becomes a token.
    pub(super) fn enter(&mut self, now: Now, code: &Token, out: &mut SessionOut) {
        match self.entered(now, code) {
            Ok(entered) => self.shape(now, 200, &[], &entered, out),
            Err(no) => self.refuse(now, &no, out),
        }
    }

    fn entered(&self, now: Now, code: &Token) -> Result<PageEntered, No> {
        let token = secret()?;
        let uid = self.context.links.enter(now.mono, code, &token).ok_or_else(No::of_code)?;
        Ok(PageEntered {
            schema: PageEntered::SCHEMA.into(),
            token: token.text(),
            expires_seconds: TOKEN_LIFE.as_secs(),
            who: Asker::User(uid).who(),
        })
    }
}

/// Drawn from the system.
fn secret() -> Result<Token, No> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|why| No::new(500, "no_randomness", why.to_string()))?;
    Ok(Token::new(bytes))
}
