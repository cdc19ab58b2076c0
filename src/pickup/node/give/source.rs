//! A stored shard's file, as the exporter reads content.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use bytes::Bytes;
use consign_core::id::BlobNo;
use consign_core::ledger::rows::Body;
use consign_core::store::StoreFault;

use crate::inbox::Source;

/// One file as the exporter reads it.
pub(super) struct OneFile(pub(super) File);

impl Source for OneFile {
    fn read(&self, _: Body, offset: u64, len: usize) -> Result<Bytes, StoreFault> {
        let mut data = vec![0; len];
        let mut filled = 0;
        while let Some(rest) = data.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.0.read_at(rest, offset + filled as u64) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(StoreFault::Io(e.to_string())),
            }
        }
        data.truncate(filled);
        Ok(data.into())
    }

    fn open(&self, _: BlobNo) -> Result<Option<OwnedFd>, StoreFault> {
        let file = self.0.try_clone().map_err(|e| StoreFault::Io(e.to_string()))?;
        Ok(Some(file.into()))
    }
}
