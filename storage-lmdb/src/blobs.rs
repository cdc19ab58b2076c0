//! Blob writers: each owns the files of the blobs hashed to it and does what sessions ask, in order.
//!
//! A write is copied into a block of a fixed pool and its bytes are released; a full block goes to the
//! disk at once. Bytes that can go to the disk as they are wait for more of the kind, a block's worth at most
//! and only while there is more in the queue. So memory is the pool, less than 4 KiB for each open file without
//! a block, and what waits, in the queue or for its like. That queue has no bound of its own: what sessions may have in it is granted to
//! them as credit, byte for byte, and comes back only with [`StoreEvent::Written`].

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, TryRecvError};

use bytes::Bytes;
use consign_core::id::{BlobNo, ConnId};
use consign_core::store::{StoreEvent, StoreFault};
use rustix::io::Errno;

use crate::block::{Block, Pool};
use crate::file::{BlobFile, OpenFault};
use crate::readers::file_fault;
use crate::shared::{Shared, locked};

/// Blocks of one writer.
const BLOCKS: usize = 4;
/// Written bytes are reported at the latest after so many, and at once when the queue is empty.
const REPORT_EVERY: u64 = 256 << 10;

/// What a blob writer is given.
pub(crate) enum Job {
    /// Create the file, or open it and cut it to that length.
    Create(ConnId, BlobNo, u64),
    /// Append.
    Write(ConnId, BlobNo, Bytes),
    /// Make durable.
    Sync(ConnId, BlobNo),
    /// Make durable and close.
    Finish(ConnId, BlobNo),
    /// Close.
    Abandon(ConnId, BlobNo),
    /// Close all of a connection.
    ConnEnded(ConnId),
    /// The end.
    Stop,
}

/// A file a connection has opened.
struct Open {
    conn: ConnId,
    /// `None` after a failure: what was sent before the connection knew of it is swallowed.
    file: Option<BlobFile>,
    /// Bytes taken and not yet reported.
    unreported: u64,
    /// When it was last written to, in jobs.
    used: u64,
}

/// Serves jobs until told to stop; then closes everything.
pub(crate) fn run(shared: &Shared, jobs: &Receiver<Job>) {
    let mut writer = Writer {
        shared,
        open: BTreeMap::new(),
        pool: Pool::new(BLOCKS),
        clock: 0,
        unreported: None,
    };
    loop {
        let job = match jobs.try_recv() {
            Ok(job) => job,
            Err(TryRecvError::Empty) => {
                // Nothing more to gather: to the disk with it, and the senders have their credit back.
                writer.report();
                match jobs.recv() {
                    Ok(job) => job,
                    Err(_) => return,
                }
            }
            Err(TryRecvError::Disconnected) => return,
        };
        if !writer.job(job) {
            return;
        }
    }
}

struct Writer<'s> {
    shared: &'s Shared,
    open: BTreeMap<BlobNo, Open>,
    pool: Pool,
    clock: u64,
    /// The blob with bytes that are not yet reported; one at a time.
    unreported: Option<BlobNo>,
}

impl Writer<'_> {
    /// Does a job; `false` is the end.
    fn job(&mut self, job: Job) -> bool {
        self.clock += 1;
        match job {
            Job::Create(conn, blob, offset) => self.create(conn, blob, offset),
            Job::Write(conn, blob, data) => self.write(conn, blob, data),
            Job::Sync(conn, blob) => self.sync(conn, blob),
            Job::Finish(conn, blob) => self.finish(conn, blob),
            Job::Abandon(conn, blob) => {
                if self.open.get(&blob).is_some_and(|open| open.conn == conn) {
                    self.close(blob);
                }
            }
            Job::ConnEnded(conn) => {
                let of_conn = |(blob, open): (&BlobNo, &Open)| (open.conn == conn).then_some(*blob);
                let ended: Vec<BlobNo> = self.open.iter().filter_map(of_conn).collect();
                for blob in ended {
                    self.close(blob);
                }
            }
            Job::Stop => return false,
        }
        true
    }

    fn create(&mut self, conn: ConnId, blob: BlobNo, offset: u64) {
        // A connection that goes on with a blob takes it from one that has not ended yet.
        self.close(blob);
        let (file, fault) = match self.make(blob, offset) {
            Ok(file) => (Some(file), None),
            Err(fault) => (None, Some(fault)),
        };
        self.open.insert(blob, Open { conn, file, unreported: 0, used: self.clock });
        if let Some(fault) = fault {
            self.answer_failure(conn, blob, fault);
        }
    }

    fn make(&self, blob: BlobNo, offset: u64) -> Result<BlobFile, StoreFault> {
        let mut never = locked(&self.shared.never);
        if offset == 0 {
            never.may_make(blob)?;
        }
        BlobFile::open(&self.shared.dir, blob, offset).map_err(|fault| match fault {
            OpenFault::Wrong(why) => StoreFault::Corrupt(why),
            OpenFault::System(why) => file_fault(blob, why),
        })
    }

    fn write(&mut self, conn: ConnId, blob: BlobNo, data: Bytes) {
        let len = data.len() as u64;
        let done = self.with_block(conn, blob, |file| file.append(data));
        match done {
            Some(Ok(())) => {}
            Some(Err(why)) => return self.fail(blob, why),
            None => return,
        }
        if self.unreported.is_some_and(|other| other != blob) {
            self.report();
        }
        self.unreported = Some(blob);
        let Some(open) = self.open.get_mut(&blob) else { return };
        open.used = self.clock;
        open.unreported = open.unreported.saturating_add(len);
        let gathered = open.file.as_ref().map_or(0, BlobFile::gathered) as u64;
        if open.unreported.saturating_sub(gathered) >= REPORT_EVERY {
            self.report();
        }
    }

    fn sync(&mut self, conn: ConnId, blob: BlobNo) {
        match self.with_block(conn, blob, |file| file.sync().map(|()| file.len())) {
            Some(Ok(offset)) => {
                self.report();
                self.shared.conn(conn, StoreEvent::Synced { blob, offset });
            }
            Some(Err(why)) => self.fail(blob, why),
            None => {}
        }
    }

    fn finish(&mut self, conn: ConnId, blob: BlobNo) {
        let size = match self.with_block(conn, blob, |file| file.sync().map(|()| file.len())) {
            Some(Ok(size)) => size,
            Some(Err(why)) => return self.fail(blob, why),
            None => return,
        };
        self.report();
        let Some(file) = self.open.get_mut(&blob).and_then(|open| open.file.take()) else { return };
        let (block, closed) = file.close();
        self.give(block);
        match closed {
            Ok(()) => {
                self.open.remove(&blob);
                self.shared.conn(conn, StoreEvent::Finished { blob, size });
            }
            Err(why) => self.fail(blob, why),
        }
    }

    /// Runs `work` on an open file that has a block; `None` when there is nothing to work on.
    fn with_block<T>(
        &mut self,
        conn: ConnId,
        blob: BlobNo,
        work: impl FnOnce(&mut BlobFile) -> Result<T, Errno>,
    ) -> Option<Result<T, Errno>> {
        match self.open.get(&blob) {
            Some(open) if open.conn != conn => return None,
            Some(open) if open.file.is_none() => return None,
            Some(_) => {}
            None => {
                let open = Open { conn, file: None, unreported: 0, used: self.clock };
                self.open.insert(blob, open);
                let fault = StoreFault::Missing(format!("blob {blob} is not open"));
                self.answer_failure(conn, blob, fault);
                return None;
            }
        }
        let has_block = |open: &Open| open.file.as_ref().is_some_and(BlobFile::has_block);
        let block = if self.open.get(&blob).is_some_and(has_block) { None } else { self.block() };
        let file = self.open.get_mut(&blob).and_then(|open| open.file.as_mut())?;
        if let Some(block) = block {
            file.give_block(block);
        }
        Some(work(file))
    }

    /// A block from the pool, or from the file that was written to longest ago.
    fn block(&mut self) -> Option<Block> {
        loop {
            if let Some(block) = self.pool.take() {
                return Some(block);
            }
            let holders = self.open.iter().filter_map(|(blob, open)| {
                open.file.as_ref().filter(|file| file.has_block()).map(|_| (open.used, *blob))
            });
            let (_, blob) = holders.min()?;
            let file = self.open.get_mut(&blob).and_then(|open| open.file.as_mut())?;
            let (block, written) = file.take_block();
            self.give(block);
            if let Err(why) = written {
                self.fail(blob, why);
            }
        }
    }

    fn give(&mut self, block: Option<Block>) {
        if let Some(block) = block {
            self.pool.give(block);
        }
    }

    /// Has what is gathered written, and tells a connection how many of its bytes need no memory any more.
    fn report(&mut self) {
        let Some(blob) = self.unreported.take() else { return };
        let Some(open) = self.open.get_mut(&blob) else { return };
        if let Some(Err(why)) = open.file.as_mut().map(BlobFile::write_gathered) {
            return self.fail(blob, why);
        }
        let bytes = std::mem::take(&mut open.unreported);
        if bytes > 0 {
            self.shared.conn(open.conn, StoreEvent::Written { blob, bytes });
        }
    }

    /// A file could not be written: closes it. Nothing is tried again on it.
    fn fail(&mut self, blob: BlobNo, why: Errno) {
        let Some(open) = self.open.get_mut(&blob) else { return };
        let conn = open.conn;
        open.unreported = 0;
        if let Some(file) = open.file.take() {
            let (block, _) = file.close();
            self.give(block);
        }
        self.answer_failure(conn, blob, file_fault(blob, why));
    }

    fn answer_failure(&self, conn: ConnId, blob: BlobNo, fault: StoreFault) {
        tracing::warn!(blob = blob.0, %fault, code = "CN0562", "content cannot be written");
        self.shared.conn(conn, StoreEvent::WriteFailed { blob, fault });
    }

    /// Closes a file as it is.
    fn close(&mut self, blob: BlobNo) {
        if self.unreported == Some(blob) {
            self.unreported = None;
        }
        if let Some(file) = self.open.remove(&blob).and_then(|open| open.file) {
            let (block, closed) = file.close();
            self.give(block);
            if let Err(why) = closed {
                let text = "an abandoned file did not close cleanly";
                tracing::warn!(blob = blob.0, %why, code = "CN0563", "{text}");
            }
        }
    }
}
