//! What a request is answered when it is not done.

use alloc::borrow::Cow;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::http::{Conn, Payload, Response};
use crate::pickup::PickupRefusal;
use crate::pickup::message::{Refused, body_of};
use crate::time::Now;

/// A refusal: status, stable code, words, and fields that go with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct No {
    status: u16,
    code: &'static str,
    message: Cow<'static, str>,
    fields: Vec<(&'static str, String)>,
}

impl No {
    pub(super) fn new(
        status: u16,
        code: &'static str,
        message: impl Into<Cow<'static, str>>,
    ) -> No {
        No { status, code, message: message.into(), fields: Vec::new() }
    }

    /// A field that is missing or wrong.
    pub(super) fn header(message: impl Into<Cow<'static, str>>) -> No {
        No::new(400, "bad_header", message)
    }

    /// One of the node's refusals that the session can say itself.
    pub(super) fn of(refusal: PickupRefusal, message: impl Into<Cow<'static, str>>) -> No {
        No::new(refusal.status(), refusal.word(), message)
    }

    /// Neither a good signature nor a good token: the same words whatever is wrong.
    pub(super) fn unauthorized() -> No {
        No::of(
            PickupRefusal::Unauthorized,
            "the request is not signed, or has no token, that is good here",
        )
    }

    pub(super) fn and(mut self, name: &'static str, value: impl Into<String>) -> No {
        self.fields.push((name, value.into()));
        self
    }

    /// The node's word.
    pub(super) fn of_node(
        refusal: PickupRefusal,
        retry_after: u64,
        number: Option<u64>,
        text: String,
    ) -> No {
        let mut no = No::of(refusal, text);
        if retry_after > 0 {
            no = no.and("Retry-After", retry_after.to_string());
        }
        match (refusal, number) {
            (PickupRefusal::Range, Some(size)) => {
                no.and("Content-Range", alloc::format!("bytes */{size}"))
            }
            (_, Some(offset)) if refusal.status() == 409 => {
                no.and("Upload-Offset", offset.to_string())
            }
            (_, _) => no,
        }
    }

    /// Answers the request, if that is still to be done.
    pub(super) fn say(&self, now: Now, conn: &mut Conn, out: &mut Vec<u8>) {
        if !conn.awaits_answer() {
            return;
        }
        let body = body_of(&Refused { code: self.code.into(), message: self.message.to_string() });
        let mut headers =
            Vec::from([("Content-Type", "application/json"), ("Cache-Control", "no-store")]);
        if self.status == 401 {
            // One challenge for either kind of proof (RFC 9110, 11.6.1).
            headers.push((
                "WWW-Authenticate",
                "Bearer realm=\"consign\", Nodus-Signature realm=\"consign\"",
            ));
        }
        headers.extend(self.fields.iter().map(|(name, value)| (*name, value.as_str())));
        let payload = Payload::Full(&body);
        let response = Response { status: self.status, headers: &headers, payload };
        conn.respond(now, &response, out);
    }
}
