//! Answers in JSON and in words, and the ledger's answers read back.

use serde::Serialize;
use serde::de::DeserializeOwned;

use consign_core::http::{Payload, Response};
use consign_core::id::{SegmentId, TransferNo};
use consign_core::ledger::rows::Body;
use consign_core::node::Answer;
use consign_core::session::SessionOut;
use consign_core::store::StoreFault;
use consign_core::time::{Instant, Now};

use super::{AdminSession, Task};
use crate::admin::exports::Done;
use crate::admin::ledger::{Located, One};
use crate::admin::refusal::No;
use crate::admin::route::Route;
use crate::admin::shapes::{Refused, Status, Stopping};

impl AdminSession {
    /// The node's word.
    pub(super) fn answer(
        &mut self,
        now: Now,
        ticket: TransferNo,
        answer: &Answer,
        out: &mut SessionOut,
    ) {
        match (std::mem::replace(&mut self.task, Task::Idle), answer) {
            (Task::Ask(asked, Route::Status), Answer::Status(status)) if asked == ticket => {
                let up = now.mono.since(Instant::ZERO).as_secs();
                let shape = Status::of(status, &self.context, up);
                self.shape(now, 200, &[], &shape, out);
            }
            (Task::Ask(asked, Route::Ready), Answer::Status(status)) if asked == ticket => {
                let (code, word) =
                    if status.stopping { (503, "stopping\n") } else { (200, "ready\n") };
                self.text(now, code, word, out);
            }
            (Task::Ask(asked, Route::Stop), Answer::Stopping) if asked == ticket => {
                let (schema, pid) = ("consign.stopping/1".into(), std::process::id());
                let shape = Stopping { schema, stopping: true, pid };
                self.shape(now, 202, &[], &shape, out);
            }
            (Task::Ask(asked, _), Answer::Exports(count) | Answer::Unwatched(count))
                if asked == ticket =>
            {
                self.shape(now, 200, &[], &Done::of(*count), out);
            }
            (Task::Progress(asked, mut segment), Answer::Progress(sent)) if asked == ticket => {
                for delivery in segment.deliveries.iter_mut().filter(|d| d.state == "sending") {
                    let mine = sent.iter().find(|(peer, _)| *peer == delivery.peer);
                    delivery.sent = mine.map(|(_, bytes)| *bytes);
                }
                self.shape(now, 200, &[], &segment, out);
            }
            (Task::Upload(mut upload), Answer::Status(status)) if upload.ticket() == ticket => {
                match upload.status(status, out) {
                    Ok(()) => self.task = Task::Upload(upload),
                    Err(no) => self.refuse(now, &no, out),
                }
            }
            (
                other,
                Answer::Status(_)
                | Answer::Stopping
                | Answer::Progress(_)
                | Answer::Exports(_)
                | Answer::Unwatched(_),
            ) => {
                self.task = other;
            }
        }
    }

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
        let mut all = vec![("Content-Type", "application/json"), ("Cache-Control", "no-store")];
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

pub(super) fn found<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, No> {
    match serde_json::from_slice::<One<T>>(bytes) {
        Ok(One::Found(found)) => Ok(found),
        Ok(One::Missing) => Err(No::new(404, "unknown", "no segment has an id that begins so")),
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
