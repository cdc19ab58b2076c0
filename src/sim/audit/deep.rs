//! Deep checks: the model against the rows and files that are really there, and the end of a run.

use consign_core::id::{BlobNo, Seq, SiteNo};
use consign_core::ledger::Table;
use consign_core::ledger::rows::{DeliveryRow, INBOUND, IncomingRow, State};
use consign_core::store::Snapshot;

use super::Desk;
use super::disk::{Disk, Tally, due_key, waits};
use super::rows::{self, Name};
use super::violation::{Broken, Check, broken, demand};

/// A file as the store shows it: number, length, whether it is whole and durable.
pub(super) type File = (BlobNo, u64, bool);

impl Desk<'_> {
    /// The model against the rows that are there, row by row, and all rows against each other.
    pub(super) fn deep(&mut self, rows: &dyn Snapshot, files: &[File]) -> Check {
        let real = self.read(rows)?;
        if self.site.lost_track {
            self.site.adopt(real);
            return Ok(());
        }
        if let Some(difference) = self.site.disk.differs(&real, &self.site.harm.rows) {
            return Err(broken("I1", None, difference));
        }
        self.everything()?;
        self.files(files)
    }

    /// Reads every row. One that cannot be read must have been destroyed.
    fn read(&self, snapshot: &dyn Snapshot) -> Result<Disk, Box<Broken>> {
        let mut disk = Disk::default();
        let mut bad = None;
        for table in Table::ALL {
            let scanned = snapshot.scan(*table, &[], &mut |key, value| {
                match rows::row(*table, key, value) {
                    Ok(row) => drop(disk.set(row)),
                    Err(why) => {
                        let name = rows::name(*table, key);
                        let harmed = name.is_some_and(|name| self.site.harm.row(&name));
                        if !harmed && !self.site.lost_track {
                            bad = Some(why);
                        }
                    }
                }
                bad.is_none()
            });
            scanned.map_err(|fault| broken("I1", None, format!("{table}: {fault}")))?;
        }
        match bad {
            Some(why) => Err(broken("I1", None, why)),
            None => Ok(disk),
        }
    }

    fn everything(&self) -> Check {
        let disk = &self.site.disk;
        for (seq, no) in disk.deliveries.keys() {
            self.delivery(*seq, *no)?;
        }
        for (seq, row) in &disk.segments {
            self.segment(*seq)?;
            self.keeps(row)?;
        }
        let tally = disk.tally();
        demand(tally.iter().all(|(k, v)| self.site.tally.get(k) == Some(v)), "I2", None, || {
            format!("deliveries are {tally:?}, and were counted as {:?}", self.site.tally)
        })?;
        self.records()?;
        let as_it_is = self.site.past.reloaded;
        for key in self.site.tally.keys().chain(disk.counters.keys()) {
            self.counter(*key, as_it_is.then_some(u64::MAX))?;
        }
        let (inbound, none) = (disk.inbound(), Default::default());
        let told = disk.counters.keys().filter(|(_, state)| *state == INBOUND).map(|(no, _)| no);
        for no in told.chain(inbound.keys()) {
            let row = disk.counters.get(&(*no, INBOUND)).copied().unwrap_or_default();
            let kept = inbound.get(no).unwrap_or(&none);
            let harmed = self.site.harm.row(&Name::Counter(*no, INBOUND));
            demand(Tally::is(kept, &row) || harmed, "I10", None, || {
                format!("{row:?} is charged for {}, {kept:?} is kept", self.site.peer(*no))
            })?;
        }
        let charge = i128::from(disk.charge());
        demand(charge == self.site.charged, "I10", None, || {
            format!("{charge} bytes are kept, and {} were counted", self.site.charged)
        })?;
        // Once limits were lowered, every batch was judged, and what is left is as it was then.
        self.usage(if as_it_is { (u64::MAX, u64::MAX) } else { (0, 0) })?;
        let owned = disk.owners.iter().map(|(blob, _)| blob);
        for blob in disk.blobs.keys().chain(disk.doomed.keys()).chain(owned) {
            self.blob(*blob)?;
        }
        for (blob, row) in &disk.incoming {
            self.incoming(*blob)?;
            self.source(&row.digest, SiteNo(row.source))?;
        }
        for digest in disk.digests.keys() {
            self.digest(digest)?;
        }
        for (digest, no) in disk.sources.keys() {
            self.source(digest, *no)?;
        }
        self.every_shard()?;
        self.indexes()
    }

    /// No index row points to what is not there.
    fn indexes(&self) -> Check {
        let disk = &self.site.disk;
        let row = |seq, no| disk.deliveries.get(&(seq, no));
        for key in &disk.due {
            let waiting = |row: &DeliveryRow| {
                let segment = disk.segments.get(&key.seq);
                waits(row.state)
                    && segment.is_some_and(|s| {
                        due_key(key.peer, key.seq, row.next_attempt_after, s) == *key
                    })
            };
            let right = row(key.seq, key.peer).is_some_and(waiting);
            demand(right || self.site.excuses(key.seq, key.peer), "I2", None, || {
                format!("{key:?} is due, and no delivery waits under it")
            })?;
        }
        let pointed = disk.owed.iter().chain(disk.inflight.keys());
        for (no, seq) in pointed {
            let right = row(*seq, *no).is_some() || self.site.excuses(*seq, *no);
            demand(right, "I2", None, || format!("number {seq} is owed to {no}, without a row"))?;
        }
        for (at, seq, no) in disk.deadletters.keys() {
            let dead = row(*seq, *no)
                .is_some_and(|row| (row.state, row.since) == (State::Deadletter, *at));
            demand(dead || self.site.excuses(*seq, *no), "I2", self.site.id(*seq), || {
                format!("a dead letter of {at} to {}, and no delivery", self.site.peer(*no))
            })?;
        }
        for (id, seq) in &disk.ids {
            let right = disk.segments.get(seq).is_some_and(|row| row.id == *id);
            demand(right || self.site.is_harmed(*seq), "I2", Some(*id), || {
                format!("its identity leads to number {seq}, which is another")
            })?;
        }
        for (at, seq) in &disk.unmet {
            let right = disk.segments.get(seq).is_some_and(|row| row.accepted_at == *at);
            demand(right || self.site.harm.segment(*seq), "I2", None, || {
                format!("number {seq} is in unmet under {at}, and not kept since then")
            })?;
        }
        Ok(())
    }

    fn files(&self, files: &[File]) -> Check {
        let site = &*self.site;
        let find = |blob: BlobNo| files.iter().find(|(no, ..)| *no == blob);
        for (blob, row) in &site.disk.blobs {
            let there = find(*blob).is_some_and(|(_, len, whole)| *whole && *len == row.size);
            demand(there || site.harm.files.contains(blob), "I16", None, || {
                let (size, have) = (row.size, find(*blob));
                format!("file {blob} was whole with {size} bytes, there is {have:?}")
            })?;
        }
        for (blob, row) in site.disk.incoming.iter().filter(|(_, row)| row.offset > 0) {
            let there = find(*blob).is_some_and(|(_, len, _)| *len >= row.offset);
            demand(there || site.harm.files.contains(blob), "I26", None, || {
                let have = find(*blob);
                format!("{} bytes of file {blob} were durable, there is {have:?}", row.offset)
            })?;
        }
        let swept = site.life.running && site.life.reconciled;
        let orphan = self.orphans(files).find(|blob| swept && *blob < site.life.below);
        demand(orphan.is_none(), "I16", None, || {
            format!("file {orphan:?} has no row, and start-up has swept")
        })
    }

    /// Files that no row names.
    fn orphans<'f>(&'f self, files: &'f [File]) -> impl Iterator<Item = BlobNo> + 'f {
        let disk = &self.site.disk;
        // An older ledger does not know the files of the newer one.
        let numbers = files.iter().map(|(blob, ..)| *blob).filter(|_| !self.site.rolled_back);
        numbers.filter(|blob| {
            let named = disk.blobs.contains_key(blob)
                || disk.incoming.contains_key(blob)
                || disk.doomed.contains_key(blob);
            !named && !self.site.harm.files.contains(blob)
        })
    }

    /// Nothing fails any more, and time has passed.
    pub(super) fn at_rest(&mut self, rows: &dyn Snapshot, files: &[File]) -> Check {
        self.quiet(files)?;
        self.deep(rows, files)
    }

    /// What must hold at rest and can be told without looking at everything.
    pub(super) fn quiet(&self, files: &[File]) -> Check {
        let site = &*self.site;
        let (disk, life) = (&site.disk, &site.life);
        demand(life.running, "I28", None, || "it does not run".into())?;
        demand(life.reconciled, "I17", None, || "start-up has not come to its end".into())?;
        for (no, seq) in &disk.owed {
            self.is_told(*seq, *no)?;
        }
        self.shards_rest()?;
        let doomed = disk.doomed.keys().next();
        demand(doomed.is_none(), "I28", None, || {
            format!("file {doomed:?} is still to be removed")
        })?;
        let now = site.clock.now.wall.0;
        // What can be gone on with is kept for its source, for as long as the configuration says.
        let goes_on = |row: &IncomingRow| row.offset > 0 && row.source > 0 && row.expires_at > now;
        let temporary = disk.incoming.iter().find(|(_, row)| !goes_on(row));
        demand(temporary.is_none(), "I28", None, || format!("still reserved: {temporary:?}"))?;
        demand(site.clock.footprint == (0, 0, 0), "I19", None, || {
            let left = site.clock.footprint;
            format!("{left:?} entries of overlay, windows and promises are left in memory")
        })?;
        let orphan = self.orphans(files).next();
        demand(orphan.is_none(), "I16", None, || format!("file {orphan:?} has no row"))
    }

    /// What is still owed at the end must have been destroyed, and somebody must have been told.
    fn is_told(&self, seq: Seq, no: SiteNo) -> Check {
        let site = &*self.site;
        let (id, peer) = (site.id(seq), site.peer(no));
        if !site.excuses(seq, no) {
            let state = site.disk.deliveries.get(&(seq, no)).map(|row| row.state);
            return demand(false, "I28", id, || format!("delivery to {peer} is still {state:?}"));
        }
        let names = [
            format!("delivery of segment number {seq} to site number {no}"),
            format!("segment number {seq}"),
        ];
        demand(names.iter().any(|name| site.told.contains(name)), "I2", id, || {
            format!("delivery to {peer}: its row was destroyed, and nobody was told")
        })
    }

    /// A row was destroyed.
    pub(super) fn harm_row(&mut self, table: Table, key: &[u8]) {
        if let Some(name) = rows::name(table, key) {
            if let Name::Segment(seq) = &name
                && let Some(id) = self.site.id(*seq)
            {
                self.tell(&id, super::story::Event::Distrusted);
            }
            self.site.pickup_harmed |= super::pickup::is_of_shards(&name);
            self.site.harm.rows.insert(name);
        }
    }
}
