//! Read buffers: one for each thread of the executor. A task has it only between two awaits, while it
//! reads and digests.

use std::cell::RefCell;

/// Bytes read at a time.
pub(crate) const READ_SIZE: usize = 256 << 10;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Lends this thread's buffer of [`READ_SIZE`] bytes.
pub(crate) fn with_buffer<T>(work: impl FnOnce(&mut [u8]) -> T) -> T {
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.is_empty() {
            *buffer = vec![0; READ_SIZE];
        }
        work(buffer)
    })
}
