//! Blob writers: two, each with the files of one parity, doing what sessions ask in order.

use bytes::Bytes;
use consign_core::id::{BlobNo, ConnId};
use consign_core::store::{StoreEvent, StoreFault};

use super::disk::{FileNo, folder_of};
use super::faults::{Hit, Kind};
use super::{Done, Fact, SimStore};
use crate::sim::time::Micros;

/// Written bytes are reported at the latest after so many, and at once when nothing more waits.
const REPORT_EVERY: u64 = 256 << 10;

/// The lane of a blob.
pub(super) fn lane_of(blob: BlobNo) -> usize {
    usize::from(folder_of(blob) % 2)
}

/// What a blob writer is given.
#[derive(Debug)]
pub(super) enum Job {
    /// Work on a file.
    Of(ConnId, BlobNo, Work),
    /// Close all of a connection.
    ConnEnded(ConnId),
}

/// Work on a file.
#[derive(Debug)]
pub(super) enum Work {
    /// Create it, or open it and cut it to that length.
    Create(u64),
    /// Append.
    Write(Bytes),
    /// Make it durable.
    Sync,
    /// Make it durable and close it.
    Finish,
    /// Close it.
    Abandon,
}

/// What a blob writer does next.
#[derive(Debug)]
pub(super) enum Step {
    /// Does it; goes on at that moment.
    Do(ConnId, BlobNo, Work, Micros),
    /// Syncs the folder after the file; goes on at that moment.
    Name(ConnId, BlobNo, Work, Micros),
    /// Closes the file if it is finished, answers, takes the next.
    Rest(Option<(ConnId, StoreEvent)>),
}

/// A file a connection has opened.
#[derive(Debug)]
pub(super) struct Open {
    conn: ConnId,
    /// `None` after a failure: what was sent before the connection knew of it is swallowed.
    file: Option<FileNo>,
    /// Whether the writer takes the name for durable.
    named: bool,
    /// Bytes taken and not yet reported.
    unreported: u64,
}

impl SimStore {
    pub(super) fn blob_job(&mut self, now: Micros, lane: usize, job: Job) {
        self.blobs[lane].waiting.push_back(job);
        if self.blobs[lane].doing.is_none() {
            self.blob_next(now, lane);
        }
    }

    /// Takes jobs until one needs the disk.
    fn blob_next(&mut self, at: Micros, lane: usize) {
        while let Some(job) = self.blobs[lane].waiting.pop_front() {
            let (conn, blob, work) = match job {
                Job::Of(conn, blob, work) => (conn, blob, work),
                Job::ConnEnded(conn) => {
                    self.close_all(conn, lane);
                    continue;
                }
            };
            let range = match &work {
                Work::Create(_) | Work::Sync | Work::Finish => self.faults.sync,
                Work::Write(_) => self.faults.write,
                Work::Abandon => {
                    if self.open.get(&blob).is_some_and(|open| open.conn == conn) {
                        self.close(blob);
                    }
                    continue;
                }
            };
            let call = self.call(at, range);
            self.blobs[lane].doing = Some((call.effect, Step::Do(conn, blob, work, call.end)));
            return;
        }
        // Nothing more to gather: let the senders have their credit back.
        self.report(lane, None);
    }

    pub(super) fn blob_step(&mut self, at: Micros, lane: usize) {
        let Some((_, step)) = self.blobs[lane].doing.take() else { return };
        let next = match step {
            Step::Do(conn, blob, work, end) => {
                self.settle_space(at);
                self.work(conn, blob, work, end)
            }
            Step::Name(conn, blob, work, end) => self.sync_name(conn, blob, &work, end),
            Step::Rest(answer) => {
                self.ready.extend(answer.map(|(conn, event)| Done::Conn(conn, event)));
                return self.blob_next(at, lane);
            }
        };
        self.blobs[lane].doing = Some(next);
    }

    fn work(&mut self, conn: ConnId, blob: BlobNo, work: Work, end: Micros) -> (Micros, Step) {
        let failed = match &work {
            Work::Create(offset) => self.create(conn, blob, *offset),
            Work::Write(data) => self.write(conn, blob, data),
            Work::Sync | Work::Finish => match self.sync_file(conn, blob) {
                Ok(Some(open)) if open => return self.synced(conn, blob, &work, end),
                Ok(Some(_)) => {
                    let call = self.call(end, self.faults.sync);
                    return (call.effect, Step::Name(conn, blob, work, call.end));
                }
                Ok(None) => None,
                Err(fault) => Some(fault),
            },
            Work::Abandon => None,
        };
        let failed = failed.map(|fault| self.fail(conn, blob, fault));
        (end, Step::Rest(failed))
    }

    fn create(&mut self, conn: ConnId, blob: BlobNo, offset: u64) -> Option<StoreFault> {
        // A connection that goes on with a blob takes it from one that has not ended yet.
        self.close(blob);
        let hit = self.hit(Kind::Grow, "create", blob);
        let opened = match hit {
            Hit::Before(fault) => Err(fault),
            Hit::None => self.make(blob, offset),
            Hit::After(fault) => self.make(blob, offset).and_then(|file| {
                self.disk.close(file);
                Err(fault)
            }),
        };
        let (file, fault) = match opened {
            Ok(file) => (Some(file), None),
            Err(fault) => (None, Some(fault)),
        };
        self.open.insert(blob, Open { conn, file, named: offset > 0, unreported: 0 });
        fault
    }

    fn make(&mut self, blob: BlobNo, offset: u64) -> Result<FileNo, StoreFault> {
        if offset > 0 {
            return self.disk.reopen(blob, offset);
        }
        self.never.may_make(blob)?;
        self.disk.create(blob)
    }

    /// The file, if `conn` has it open and it has not failed; what is not open is refused once.
    fn opened(&mut self, conn: ConnId, blob: BlobNo) -> Result<Option<FileNo>, StoreFault> {
        match self.open.get(&blob) {
            Some(open) if open.conn == conn => Ok(open.file),
            Some(_) => Ok(None),
            None => {
                self.open.insert(blob, Open { conn, file: None, named: false, unreported: 0 });
                Err(StoreFault::Missing(format!("blob {blob} is not open")))
            }
        }
    }

    fn write(&mut self, conn: ConnId, blob: BlobNo, data: &Bytes) -> Option<StoreFault> {
        let file = match self.opened(conn, blob) {
            Ok(file) => file?,
            Err(fault) => return Some(fault),
        };
        if let Hit::Before(fault) = self.hit(Kind::Write, "write", blob) {
            return Some(fault);
        }
        let (bytes, free) = (data.len() as u64, self.mem.space().free);
        if bytes > free {
            return Some(StoreFault::Full(format!("{bytes} bytes for blob {blob}, {free} free")));
        }
        self.disk.append(file, data);
        self.report(lane_of(blob), Some(blob));
        if let Some(open) = self.open.get_mut(&blob) {
            open.unreported += bytes;
            if open.unreported >= REPORT_EVERY {
                self.report(lane_of(blob), None);
            }
        }
        None
    }

    /// Makes the bytes durable; whether the name is taken for durable, `None` when there is no file.
    fn sync_file(&mut self, conn: ConnId, blob: BlobNo) -> Result<Option<bool>, StoreFault> {
        let Some(file) = self.opened(conn, blob)? else { return Ok(None) };
        match self.hit(Kind::Grow, "sync", blob) {
            Hit::Before(fault @ StoreFault::Full(_)) => return Err(fault),
            Hit::Before(fault) => {
                self.disk.sync_fails(file, &mut self.rng);
                return Err(fault);
            }
            Hit::After(fault) => {
                self.disk.sync(file);
                return Err(fault);
            }
            Hit::None => {
                self.damage_pages(blob);
                self.disk.sync(file);
            }
        }
        Ok(Some(self.open.get(&blob).is_some_and(|open| open.named)))
    }

    /// Makes the name durable, with all others of its folder.
    fn sync_name(
        &mut self,
        conn: ConnId,
        blob: BlobNo,
        work: &Work,
        end: Micros,
    ) -> (Micros, Step) {
        let hit = self.hit(Kind::Grow, "sync the folder of", blob);
        if matches!(hit, Hit::None | Hit::After(_)) {
            self.sync_folder(folder_of(blob));
        }
        if let Hit::Before(fault) | Hit::After(fault) = hit {
            return (end, Step::Rest(Some(self.fail(conn, blob, fault))));
        }
        if let Some(open) = self.open.get_mut(&blob) {
            open.named = true;
        }
        self.synced(conn, blob, work, end)
    }

    /// Bytes and name are durable.
    fn synced(&mut self, conn: ConnId, blob: BlobNo, work: &Work, end: Micros) -> (Micros, Step) {
        self.report(lane_of(blob), None);
        let Some(file) = self.open.get(&blob).and_then(|open| open.file) else {
            return (end, Step::Rest(None));
        };
        let size = self.disk.len(file);
        if !matches!(work, Work::Finish) {
            let event = StoreEvent::Synced { blob, offset: size };
            return (end, Step::Rest(Some((conn, event))));
        }
        if let Some((size, digest)) = self.disk.finish(blob, file) {
            self.facts.push(Fact::FileWhole { blob, size, digest });
        }
        if let Hit::After(fault) = self.hit(Kind::Remove, "close", blob) {
            return (end, Step::Rest(Some(self.fail(conn, blob, fault))));
        }
        self.close(blob);
        (end, Step::Rest(Some((conn, StoreEvent::Finished { blob, size }))))
    }

    /// Makes every name of a folder durable.
    pub(super) fn sync_folder(&mut self, folder: u8) {
        let gone = self.disk.sync_folder(folder);
        self.facts.extend(gone.into_iter().map(Fact::FileGone));
    }

    /// Tells connections how many of their bytes need no memory any more: all of a lane but those of
    /// the blob that is being written.
    fn report(&mut self, lane: usize, but: Option<BlobNo>) {
        for (blob, open) in &mut self.open {
            let bytes = match but {
                Some(but) if but == *blob => 0,
                _ if lane_of(*blob) != lane => 0,
                _ => std::mem::take(&mut open.unreported),
            };
            if bytes > 0 {
                let event = StoreEvent::Written { blob: *blob, bytes };
                self.ready.push_back(Done::Conn(open.conn, event));
            }
        }
    }

    /// A file could not be written: closes it. Nothing is tried again on it.
    fn fail(&mut self, conn: ConnId, blob: BlobNo, fault: StoreFault) -> (ConnId, StoreEvent) {
        if let Some(open) = self.open.get_mut(&blob) {
            open.unreported = 0;
            if let Some(file) = open.file.take() {
                self.disk.close(file);
            }
        }
        (conn, StoreEvent::WriteFailed { blob, fault })
    }

    /// Closes a file as it is.
    fn close(&mut self, blob: BlobNo) {
        if let Some(file) = self.open.remove(&blob).and_then(|open| open.file) {
            self.disk.close(file);
        }
    }

    fn close_all(&mut self, conn: ConnId, lane: usize) {
        let of_conn = |(blob, open): (&BlobNo, &Open)| {
            (open.conn == conn && lane_of(*blob) == lane).then_some(*blob)
        };
        let ended: Vec<BlobNo> = self.open.iter().filter_map(of_conn).collect();
        for blob in ended {
            self.close(blob);
        }
    }

    /// What blob writers are at when the process ends takes effect or not.
    pub(super) fn interrupted_files(&mut self) {
        for lane in 0..self.blobs.len() {
            let Some((_, step)) = self.blobs[lane].doing.take() else { continue };
            if !self.rng.chance(500_000) {
                continue;
            }
            match step {
                Step::Do(conn, blob, Work::Create(offset), _) => {
                    self.create(conn, blob, offset);
                }
                Step::Do(conn, blob, Work::Write(data), _) => {
                    self.write(conn, blob, &data);
                }
                Step::Do(conn, blob, Work::Sync | Work::Finish, _) => {
                    if let Ok(Some(file)) = self.opened(conn, blob) {
                        self.disk.sync(file);
                    }
                }
                Step::Name(_, blob, ..) => self.sync_folder(folder_of(blob)),
                Step::Do(_, _, Work::Abandon, _) | Step::Rest(_) => {}
            }
        }
    }
}
