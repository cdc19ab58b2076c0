//! Answers in JSON and in words, and the ledger's answers read back.

use serde::Serialize;
use serde::de::DeserializeOwned;

use consign_core::http::{Payload, Response};
use consign_core::id::SegmentId;
use consign_core::ledger::rows::Body;
use consign_core::session::SessionOut;
use consign_core::store::StoreFault;
use consign_core::time::Now;

use super::AdminSession;
use crate::admin::ledger::{Located, One};
use crate::admin::refusal::No;
use crate::admin::shapes::Refused;

impl AdminSession {
    pub(super) fn refuse(&mut self, now: Now, no: &No, out: &mut SessionOut) {
        if !self.conn.awaits_answer() {
            return;
        }
        let seconds = no.retry_after.map(|s| s.to_string());
        let mut headers = Vec::new();
        headers.extend(seconds.as_deref().map(|s| ("Retry-After", s)));
        headers.extend(no.allow.map(|allow| ("Allow", allow)));
        let shape = Refused { code: no.code.into(), message: no.message.clone() };
        self.shape(now, no.status, &headers, &shape, out);
    }

    pub(super) fn shape<T: Serialize>(
        &mut self,
        now: Now,
        status: u16,
        headers: &[(&str, &str)],
        shape: &T,
        out: &mut SessionOut,
    ) {
        match json(shape) {
            Ok(bytes) => self.body(now, status, headers, &bytes, out),
            Err(fault) => self.text(now, 500, &format!("{fault}\n"), out),
        }
    }

    pub(super) fn body(
        &mut self,
        now: Now,
        status: u16,
        headers: &[(&str, &str)],
        bytes: &[u8],
        out: &mut SessionOut,
    ) {
        self.body_of(now, status, "application/json", headers, bytes, out);
    }

    pub(super) fn body_of(
        &mut self,
        now: Now,
        status: u16,
        kind: &str,
        headers: &[(&str, &str)],
        bytes: &[u8],
        out: &mut SessionOut,
    ) {
        let mut all = vec![("Content-Type", kind), ("Cache-Control", "no-store")];
        all.extend_from_slice(headers);
        let response = Response { status, headers: &all, payload: Payload::Full(bytes) };
        self.conn.respond(now, &response, &mut out.bytes);
    }

    pub(super) fn text(&mut self, now: Now, status: u16, text: &str, out: &mut SessionOut) {
        let headers = [("Content-Type", "text/plain"), ("Cache-Control", "no-store")];
        let payload = Payload::Full(text.as_bytes());
        let response = Response { status, headers: &headers, payload };
        self.conn.respond(now, &response, &mut out.bytes);
    }
}

pub(super) fn stopping() -> No {
    No::new(503, "busy", "this site is stopping").retry_after(5)
}

pub(super) fn json<T: Serialize>(shape: &T) -> Result<Vec<u8>, StoreFault> {
    let mut bytes = serde_json::to_vec(shape).map_err(|why| StoreFault::Io(why.to_string()))?;
    bytes.push(b'\n');
    Ok(bytes)
}

pub(super) fn missing() -> No {
    No::new(404, "unknown", "no segment has an id that begins so")
}

pub(super) fn found<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, No> {
    match serde_json::from_slice::<One<T>>(bytes) {
        Ok(One::Found(found)) => Ok(found),
        Ok(One::Missing) => Err(missing()),
        Ok(One::Ambiguous(ids)) => {
            let short: Vec<String> = ids
                .iter()
                .map(|id| SegmentId::from_hex(id).map_or_else(|| id.clone(), |id| id.short()))
                .collect();
            let text = format!("several segments begin so: {}", short.join(", "));
            Err(No::new(409, "ambiguous", text))
        }
        Err(why) => Err(No::new(500, "store_failed", why.to_string())),
    }
}

pub(super) fn located(located: Located) -> Result<(Located, Body), No> {
    match located.body() {
        Some(body) => Ok((located, body)),
        None => Err(No::new(500, "store_failed", "the content is nowhere")),
    }
}
