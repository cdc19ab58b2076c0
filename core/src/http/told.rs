//! Telling somebody of every answer: what was asked for, what was answered, and how long it took.

use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;
use core::time::Duration;

use super::{Method, Request};
use crate::time::{Instant, Now};

/// An answer to a request whose head was understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered<'a> {
    /// Its method.
    pub method: &'a Method,
    /// Its target, as it came.
    pub target: &'a str,
    /// The answer's status.
    pub status: u16,
    /// Who asked: the address of the other side.
    pub remote: &'a str,
    /// From the end of the request's head to the beginning of the answer.
    pub took: Duration,
}

/// Who is told. Must be quick: connections call it where they run.
#[derive(Clone)]
pub struct Tell(Arc<dyn Fn(&Answered<'_>) + Send + Sync>);

impl Tell {
    /// Calls this with every answer.
    pub fn new(tell: impl Fn(&Answered<'_>) + Send + Sync + 'static) -> Tell {
        Tell(Arc::new(tell))
    }
}

impl fmt::Debug for Tell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tell")
    }
}

impl PartialEq for Tell {
    fn eq(&self, other: &Tell) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Tell {}

/// The request under way, where somebody is to be told of its answer.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub tell: Option<(Tell, String)>,
    asked: Option<(Method, Instant)>,
    /// Its target, in memory that the next one uses again.
    target: String,
}

impl Told {
    /// A request begins.
    pub fn asked(&mut self, now: Now, request: &Request) {
        if self.tell.is_some() {
            self.asked = Some((request.method.clone(), now.mono));
            self.target.clone_from(&request.target);
        }
    }

    /// It is answered.
    pub fn answered(&mut self, now: Now, status: u16) {
        if let (Some((tell, remote)), Some((method, at))) = (&self.tell, self.asked.take()) {
            let (method, target, took) = (&method, &*self.target, now.mono.since(at));
            (tell.0)(&Answered { method, target, status, remote, took });
        }
    }
}
