//! Read buffers, shared by all connections: a connection has one only while it reads and digests.

use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, PoisonError};

/// Bytes read at a time.
pub(crate) const READ_SIZE: usize = 256 << 10;
/// Buffers there may be: enough for every core, and few enough to be cheap.
const BUFFERS: usize = 8;

/// The pool.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    free: Mutex<(Vec<Vec<u8>>, usize)>,
    back: Condvar,
}

impl Buffers {
    /// A buffer of [`READ_SIZE`] bytes; waits for one when all are in use. Holders only compute, so
    /// the wait is short.
    pub(crate) fn lend(&self) -> Lent<'_> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(buffer) = free.0.pop() {
                return Lent { pool: self, buffer };
            }
            if free.1 < BUFFERS {
                free.1 += 1;
                return Lent { pool: self, buffer: vec![0; READ_SIZE] };
            }
            free = self.back.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A buffer that goes back when dropped.
#[derive(Debug)]
pub(crate) struct Lent<'a> {
    pool: &'a Buffers,
    buffer: Vec<u8>,
}

impl Deref for Lent<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.buffer
    }
}

impl DerefMut for Lent<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.buffer
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        let mut free = self.pool.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.0.push(buffer);
        self.pool.back.notify_one();
    }
}
