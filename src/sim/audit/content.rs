//! Content: files and what names them, and whether what is kept is whole.

use consign_core::config::Config;
use consign_core::id::{BlobDigest, BlobNo, SiteNo};
use consign_core::ledger::rows::{BlobRow, Body, IncomingRow, MetaName, SegmentRow};

use super::Desk;
use super::batch::Touched;
use super::site::Holds;
use super::violation::{Check, demand};

impl Desk<'_> {
    pub(super) fn put_blob(&mut self, blob: BlobNo, row: &BlobRow, t: &mut Touched) -> Check {
        t.blobs.push(blob);
        if let Some(old) = self.site.disk.blobs.get(&blob) {
            let same = (old.digest, old.size) == (row.digest, row.size);
            return demand(same, "I16", None, || {
                format!("file {blob} becomes something else: {old:?}, now {row:?}")
            });
        }
        self.site.charged += i128::from(row.size);
        let file = self.site.files.get(&blob).copied();
        let right = file == Some((row.size, row.digest));
        demand(right || self.site.harm.files.contains(&blob), "I16", None, || {
            format!("file {blob} gets a row for {row:?}, and on disk is {file:?}")
        })
    }

    pub(super) fn put_incoming(
        &mut self,
        blob: BlobNo,
        row: &IncomingRow,
        t: &mut Touched,
    ) -> Check {
        let disk = &self.site.disk;
        t.sources.push((row.digest, SiteNo(row.source)));
        t.incoming.push(blob);
        let before = match disk.incoming.get(&blob) {
            None => {
                let fresh = blob >= t.before.2;
                demand(fresh, "I16", None, || format!("file number {blob} is given twice"))?;
                self.begins_in_time(blob, row)?;
                0
            }
            Some(old) => {
                let same = (old.digest, old.source) == (row.digest, row.source);
                demand(same && row.offset >= old.offset, "I26", None, || {
                    format!("content of file {blob} goes back: {old:?}, now {row:?}")
                })?;
                old.reserved
            }
        };
        demand(row.offset <= row.reserved, "I26", None, || {
            format!("{} bytes of file {blob} are there, {} reserved", row.offset, row.reserved)
        })?;
        self.site.charged += i128::from(row.reserved) - i128::from(before);
        let reached = self.site.reached.entry((row.digest, SiteNo(row.source))).or_default();
        *reached = (*reached).max(row.offset);
        self.site.pickup.arrives(blob, row);
        Ok(())
    }

    /// After a stop no transfer begins.
    fn begins_in_time(&self, blob: BlobNo, row: &IncomingRow) -> Check {
        let Some(stopped) = self.site.life.stop_at else { return Ok(()) };
        let end = |config: &Config| stopped.wall.after(config.partial_ttl).0;
        let last = self.site.rules().map(end).max().unwrap_or(u64::MAX);
        demand(row.shard.is_some() || row.expires_at <= last, "I30", None, || {
            format!("file {blob} is begun after a stop was asked for at {}", stopped.wall)
        })
    }

    /// A content file is whole and durable.
    pub(super) fn file_whole(&mut self, blob: BlobNo, size: u64, digest: BlobDigest) -> Check {
        let next = BlobNo(self.site.disk.meta(MetaName::NextBlob));
        demand(blob < next, "I16", None, || {
            format!("file {blob} is written before anything on disk says so; {next} is next")
        })?;
        self.site.files.insert(blob, (size, digest));
        Ok(())
    }

    /// A content file is gone: never before what names it.
    pub(super) fn file_gone(&mut self, blob: BlobNo) -> Check {
        self.site.files.remove(&blob);
        let disk = &self.site.disk;
        if self.site.harm.files.contains(&blob) {
            return Ok(());
        }
        demand(!disk.blobs.contains_key(&blob), "I17", None, || {
            format!("file {blob} is removed, and {} segments need it", disk.owners_of(blob))
        })?;
        demand(!disk.incoming.contains_key(&blob), "I16", None, || {
            format!("file {blob} is removed before anything on disk says that it goes")
        })
    }

    /// Whether the content of a segment is here, or was destroyed.
    pub(super) fn keeps(&self, row: &SegmentRow) -> Check {
        match self.site.content(row) {
            Holds::Yes | Holds::Harmed => Ok(()),
            Holds::No(why) => {
                let invariant = match row.body {
                    Body::Inline(body) if self.site.disk.bodies.contains_key(&body) => "I11",
                    Body::Blob(blob) if self.site.files.contains_key(&blob) => "I11",
                    Body::Inline(_) | Body::Blob(_) => "I1",
                };
                demand(false, invariant, Some(row.id), || why)
            }
        }
    }
}
