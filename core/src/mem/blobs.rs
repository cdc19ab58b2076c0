//! Content files of the store in memory, with what of them would survive a power cut.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

use super::missing;
use crate::id::{BlobNo, ConnId};
use crate::store::{NeverMade, StoreEvent, StoreFault};

/// A content file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlobFile {
    /// Its bytes.
    pub data: Vec<u8>,
    /// How many of them are durable.
    pub synced: usize,
    /// Whether its name is durable.
    pub named: bool,
}

/// A file a connection has opened; `failed` ones swallow what was sent before the failure was known.
#[derive(Clone, Copy, Debug)]
struct Open {
    conn: ConnId,
    failed: bool,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Blobs {
    files: BTreeMap<BlobNo, BlobFile>,
    open: BTreeMap<BlobNo, Open>,
    quarantined: Vec<BlobNo>,
    bytes: u64,
    requests: u64,
    faults: BTreeMap<u64, StoreFault>,
    never: NeverMade,
}

impl Blobs {
    /// Bytes of all files that are in place.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn fail(&mut self, nth: u64, fault: StoreFault) {
        self.faults.insert(self.requests.saturating_add(nth), fault);
    }

    pub(super) fn files(&self) -> impl Iterator<Item = (BlobNo, &BlobFile)> {
        self.files.iter().map(|(blob, file)| (*blob, file))
    }

    pub(super) fn quarantined(&self) -> &[BlobNo] {
        &self.quarantined
    }

    pub(super) fn data(&self, blob: BlobNo) -> Result<&[u8], StoreFault> {
        self.files.get(&blob).map(|file| file.data.as_slice()).ok_or_else(|| missing(blob))
    }

    fn next(&mut self) -> Option<StoreFault> {
        self.requests = self.requests.saturating_add(1);
        self.faults.remove(&self.requests)
    }

    pub(super) fn create(&mut self, conn: ConnId, blob: BlobNo, offset: u64) -> Option<StoreEvent> {
        let fault = self.next().or_else(|| self.ready(blob, offset).err());
        self.open.insert(blob, Open { conn, failed: fault.is_some() });
        fault.map(|fault| StoreEvent::WriteFailed { blob, fault })
    }

    fn ready(&mut self, blob: BlobNo, offset: u64) -> Result<(), StoreFault> {
        match (self.files.get_mut(&blob), offset) {
            (None, 0) => {
                self.never.may_make(blob)?;
                self.files.insert(blob, BlobFile::default());
                Ok(())
            }
            (None, _) => Err(missing(blob)),
            (Some(_), 0) => Err(StoreFault::Io(format!("blob {blob} is there already"))),
            (Some(file), _) => {
                let have = file.data.len();
                let keep = usize::try_from(offset).unwrap_or(usize::MAX);
                if have < keep {
                    return Err(StoreFault::Corrupt(format!(
                        "blob {blob} has {have} bytes, {offset} were durable"
                    )));
                }
                file.data.truncate(keep);
                file.synced = file.synced.min(keep);
                self.bytes -= (have - keep) as u64;
                Ok(())
            }
        }
    }

    /// The file, if `conn` has it open and it has not failed. A request for a file that is not open
    /// is answered once.
    fn opened(&mut self, conn: ConnId, blob: BlobNo) -> Result<&mut BlobFile, Option<StoreEvent>> {
        match self.open.get(&blob) {
            Some(open) if open.conn == conn && open.failed => Err(None),
            Some(open) if open.conn == conn => {
                self.files.get_mut(&blob).ok_or_else(|| failed(blob, missing(blob)))
            }
            Some(_) => Err(None),
            None => {
                self.open.insert(blob, Open { conn, failed: true });
                let fault = StoreFault::Missing(format!("blob {blob} is not open"));
                Err(failed(blob, fault))
            }
        }
    }

    fn close_failed(&mut self, blob: BlobNo, fault: StoreFault) -> Option<StoreEvent> {
        if let Some(open) = self.open.get_mut(&blob) {
            open.failed = true;
        }
        failed(blob, fault)
    }

    pub(super) fn write(
        &mut self,
        conn: ConnId,
        blob: BlobNo,
        data: &[u8],
        free: u64,
    ) -> Option<StoreEvent> {
        let fault = self.next();
        let file = match self.opened(conn, blob) {
            Ok(file) => file,
            Err(answer) => return answer,
        };
        let bytes = data.len() as u64;
        let full = || {
            let why = format!("{bytes} bytes for blob {blob}, {free} free");
            (bytes > free).then_some(StoreFault::Full(why))
        };
        if let Some(fault) = fault.or_else(full) {
            return self.close_failed(blob, fault);
        }
        file.data.extend_from_slice(data);
        self.bytes += bytes;
        Some(StoreEvent::Written { blob, bytes })
    }

    pub(super) fn sync(&mut self, conn: ConnId, blob: BlobNo) -> Option<StoreEvent> {
        let fault = self.next();
        let file = match self.opened(conn, blob) {
            Ok(file) => file,
            Err(answer) => return answer,
        };
        if let Some(fault) = fault {
            return self.close_failed(blob, fault);
        }
        file.synced = file.data.len();
        file.named = true;
        Some(StoreEvent::Synced { blob, offset: file.synced as u64 })
    }

    pub(super) fn finish(&mut self, conn: ConnId, blob: BlobNo) -> Option<StoreEvent> {
        let fault = self.next();
        let file = match self.opened(conn, blob) {
            Ok(file) => file,
            Err(answer) => return answer,
        };
        if let Some(fault) = fault {
            return self.close_failed(blob, fault);
        }
        file.synced = file.data.len();
        file.named = true;
        let size = file.synced as u64;
        self.open.remove(&blob);
        Some(StoreEvent::Finished { blob, size })
    }

    pub(super) fn abandon(&mut self, conn: ConnId, blob: BlobNo) {
        if self.open.get(&blob).is_some_and(|open| open.conn == conn) {
            self.open.remove(&blob);
        }
    }

    pub(super) fn conn_ended(&mut self, conn: ConnId) {
        self.open.retain(|_, open| open.conn != conn);
    }

    pub(super) fn unlink(&mut self, blob: BlobNo) -> bool {
        let file = self.files.remove(&blob);
        self.bytes -= file.as_ref().map_or(0, |file| file.data.len() as u64);
        if file.is_none() {
            self.never.nothing_there(blob);
        }
        file.is_some()
    }

    pub(super) fn plant(&mut self, blob: BlobNo, data: &[u8]) {
        let before = self.files.remove(&blob).map_or(0, |file| file.data.len() as u64);
        self.bytes -= before;
        self.bytes += data.len() as u64;
        let file = BlobFile { data: data.to_vec(), synced: data.len(), named: true };
        self.files.insert(blob, file);
    }

    pub(super) fn sweep(
        &mut self,
        folder: u8,
        below: BlobNo,
        known: impl Fn(BlobNo) -> bool,
    ) -> u64 {
        let orphan = |blob: BlobNo| {
            blob.0.to_le_bytes().first() == Some(&folder) && blob < below && !known(blob)
        };
        let found: Vec<BlobNo> = self.files.keys().copied().filter(|b| orphan(*b)).collect();
        for blob in &found {
            self.set_aside(*blob);
        }
        found.len() as u64
    }

    pub(super) fn set_aside(&mut self, blob: BlobNo) {
        if self.files.contains_key(&blob) {
            self.quarantined.push(blob);
        }
        self.unlink(blob);
    }

    pub(super) fn close_all(&mut self) {
        self.never = NeverMade::default();
        self.open.clear();
    }

    pub(super) fn opened_now(&self) -> impl core::fmt::Debug + '_ {
        (&self.open, &self.never)
    }

    pub(super) fn crash(&mut self) {
        self.open.clear();
        self.never = NeverMade::default();
        self.files.retain(|_, file| file.named);
        for file in self.files.values_mut() {
            file.data.truncate(file.synced);
        }
        self.bytes = self.files.values().map(|file| file.data.len() as u64).sum();
    }
}

fn failed(blob: BlobNo, fault: StoreFault) -> Option<StoreEvent> {
    Some(StoreEvent::WriteFailed { blob, fault })
}
