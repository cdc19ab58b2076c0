//! The work: look at rows, then at files, mend what can be mended, and look again until nothing is left.

use std::time::SystemTime;

use consign_core::id::BatchNo;
use consign_core::ledger::Table;
use consign_core::ledger::check::{self, Finding, Mender, Rule, Tally, Watch};
use consign_core::ledger::rows::MetaName;
use consign_core::store::{Batch, Snapshot, StoreFault};
use consign_core::time::UnixMillis;
use consign_storage_lmdb::{Aside, HowFiles, Offline, WatchFiles};

use super::FsckArgs;
use super::tell::{Ending, Found};
use crate::cmd::screen::{Progress, Screen, during};
use crate::exit::{Exit, Failure};

/// Looks before it is given up: mending one thing may show another.
const LOOKS: u32 = 10;

/// What there is to do.
pub(super) struct Work<'w> {
    args: &'w FsckArgs,
    store: Offline,
    names: Vec<String>,
    at: UnixMillis,
    ending: Ending,
}

/// One look: counts what is wrong, and mends it if it is to.
struct Look<'l, 's> {
    store: &'l Offline,
    found: Found,
    /// Takes what mends, in a look that is to.
    mender: Option<Mender>,
    asides: Vec<Aside>,
    mended: u64,
    fault: Option<StoreFault>,
    rows: u64,
    content: (u64, u64),
    progress: Progress,
    screen: &'l mut Screen<'s>,
}

impl Look<'_, '_> {
    fn commit(&mut self, batch: Option<Batch>) {
        let Some(batch) = batch else { return };
        if let Err(fault) = self.store.commit(&batch) {
            self.fault.get_or_insert(fault);
        }
    }

    fn take(&mut self, finding: &Finding, aside: Option<Aside>) {
        let mendable = !finding.fixes.is_empty() || aside.is_some();
        self.found.add(finding, mendable);
        let Some(mender) = self.mender.as_mut().filter(|_| mendable) else { return };
        let full = mender.add(finding);
        self.mended += 1;
        self.asides.extend(aside);
        self.commit(full);
    }

    fn end(&mut self) {
        let last = self.mender.as_mut().and_then(Mender::take);
        self.commit(last);
        self.progress.done();
    }
}

impl Watch for Look<'_, '_> {
    fn found(&mut self, finding: Finding) {
        self.take(&finding, None);
    }

    fn read(&mut self, _: Table, rows: u64) {
        self.rows += rows;
        let (rows, screen) = (self.rows, &mut *self.screen);
        self.progress.show(screen, self.content.1, (rows, 0));
    }
}

impl WatchFiles for Look<'_, '_> {
    fn found(&mut self, finding: Finding, aside: Option<Aside>) {
        self.take(&finding, aside);
    }

    fn seen(&mut self, bytes: u64) {
        self.content.1 += bytes;
        self.content.0 += u64::from(bytes == 0);
        let (seen, screen) = (self.content.0, &mut *self.screen);
        self.progress.show(screen, self.content.1, (seen, 0));
    }
}

impl<'w> Work<'w> {
    pub(super) fn new(args: &'w FsckArgs, store: Offline, names: Vec<String>) -> Work<'w> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let at = UnixMillis(u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
        Work { args, store, names, at, ending: Ending::default() }
    }

    /// Does it.
    ///
    /// # Errors
    /// When the directory cannot be read or written any further.
    pub(super) fn run(mut self, screen: &mut Screen<'_>) -> Result<Exit, Failure> {
        if self.args.restored {
            self.restore().map_err(|why| failed(&why))?;
        }
        let mut first = None;
        if self.args.repair {
            first = self.repair(screen)?;
        } else if self.args.restored {
            self.newer_aside(screen)?;
        }
        if self.args.compact {
            let beside = self.store.compacted_beside();
            let look = || (beside.metadata().map_or(0, |file| file.len()), (0, 0));
            let sizes = during(screen, "Compacting", None, look, || self.store.compact());
            let sizes = sizes.map_err(|why| failed(&why))?;
            self.ending.compacted = Some((sizes.before, sizes.after));
        }
        let left = self.look(screen)?;
        let aside = self.store.set_aside_before().map_err(|why| failed(&why))?;
        self.ending.before = aside.iter().map(|name| name.display().to_string()).collect();
        if let Some(first) = first {
            first.tell(screen)?;
        } else {
            left.tell(screen)?;
        }
        self.ending.tell(&left, screen)?;
        Ok(match (left.all(), self.ending.mended) {
            (0, _) => Exit::Done,
            (_, 0) => Exit::Failed,
            (_, _) => Exit::Partly,
        })
    }

    /// Rows and files as they are, nothing mended.
    fn look(&mut self, screen: &mut Screen<'_>) -> Result<Found, Failure> {
        let mut found = Found::new(self.args.show);
        if !self.store.is_marked() {
            found.add(&unmarked(), true);
        }
        let (found, tally, _) = self.rows(screen, found, false)?;
        let content = self.args.content;
        let (found, _, seen) = self.files(screen, found, false, content)?;
        self.ending.tally = tally;
        self.ending.content = seen;
        Ok(found)
    }

    fn start<'l, 's>(
        store: &'l Offline,
        screen: &'l mut Screen<'s>,
        found: Found,
        mends: bool,
    ) -> Result<Look<'l, 's>, StoreFault> {
        let last = store.snapshot()?.as_of();
        Ok(Look {
            store,
            found,
            mender: mends.then(|| Mender::after(last)),
            asides: Vec::new(),
            mended: 0,
            fault: None,
            rows: 0,
            content: (0, 0),
            progress: Progress::new(screen, "Checking", None),
            screen,
        })
    }

    fn rows(
        &self,
        screen: &mut Screen<'_>,
        found: Found,
        mends: bool,
    ) -> Result<(Found, Tally, u64), Failure> {
        let done = || {
            let snapshot = self.store.snapshot()?;
            let mut look = Work::start(&self.store, screen, found, mends)?;
            let tally = check::check(&snapshot, self.at, &self.names, &mut look)?;
            look.end();
            look.fault.map_or(Ok((look.found, tally, look.mended)), Err)
        };
        done().map_err(|why| failed(&why))
    }

    fn files(
        &mut self,
        screen: &mut Screen<'_>,
        found: Found,
        mends: bool,
        content: bool,
    ) -> Result<(Found, u64, (u64, u64)), Failure> {
        let done = || {
            let mut look = Work::start(&self.store, screen, found, mends)?;
            self.store.files(HowFiles { content, at: self.at }, &mut look)?;
            look.end();
            if let Some(fault) = look.fault {
                return Err(fault);
            }
            // Rows first: a file that a row still names is not moved.
            let moved = if mends { self.store.set_aside(&look.asides)? } else { 0 };
            Ok((look.found, look.mended, look.content, moved))
        };
        let (found, mended, seen, moved) = done().map_err(|why| failed(&why))?;
        self.ending.aside += moved;
        Ok((found, mended, seen))
    }

    /// Mends until nothing is left that can be; what was found at first.
    fn repair(&mut self, screen: &mut Screen<'_>) -> Result<Option<Found>, Failure> {
        let mut first = Found::new(self.args.show);
        if !self.store.is_marked() {
            self.store.mark().map_err(|why| failed(&why))?;
            first.add(&unmarked(), true);
            self.ending.mended += 1;
        }
        let mut content = self.args.content;
        for round in 0..LOOKS {
            let rows = self.mend_rows(screen)?;
            // Files are judged by rows that are right.
            let (files, mended, _) =
                self.files(screen, Found::new(self.args.show), true, content)?;
            self.ending.mended += mended;
            // What is wrong with content is known by now.
            content = false;
            let quiet = mended == 0;
            if round == 0 {
                first.join(rows);
                first.join(files);
            }
            if quiet {
                break;
            }
        }
        Ok(Some(first))
    }

    /// Mends rows until nothing is left that can be; what was found at first.
    fn mend_rows(&mut self, screen: &mut Screen<'_>) -> Result<Found, Failure> {
        let mut first = None;
        for _ in 0..LOOKS {
            let (found, _, mended) = self.rows(screen, Found::new(self.args.show), true)?;
            self.ending.mended += mended;
            first.get_or_insert(found);
            if mended == 0 {
                break;
            }
        }
        Ok(first.unwrap_or_default())
    }

    /// Lets the counters jump beyond everything that is there.
    fn restore(&mut self) -> Result<(), StoreFault> {
        let highest = self.store.highest_file()?;
        let snapshot = self.store.snapshot()?;
        let fixes = check::restored(&snapshot, highest)?;
        // Numbers of batches were given too.
        let last = snapshot.as_of().0.saturating_add(1 << 32);
        drop(snapshot);
        let mut mender = Mender::after(BatchNo(last));
        for batch in mender.add_all(&fixes).into_iter().chain(mender.take()) {
            self.store.commit(&batch)?;
        }
        self.ending.restored = true;
        Ok(())
    }

    /// Files that the older ledger does not know are set aside.
    fn newer_aside(&mut self, screen: &mut Screen<'_>) -> Result<(), Failure> {
        struct Strays(Vec<Aside>);
        impl WatchFiles for Strays {
            fn found(&mut self, _: Finding, aside: Option<Aside>) {
                self.0.extend(aside);
            }
            fn seen(&mut self, _: u64) {}
        }
        let mut strays = Strays(Vec::new());
        let how = HowFiles { content: false, at: self.at };
        let looked = self.store.files(how, &mut strays);
        let moved = looked.and_then(|()| self.store.set_aside(&strays.0));
        self.ending.aside += moved.map_err(|why| failed(&why))?;
        screen.note("Files that the older ledger does not know were set aside");
        Ok(())
    }
}

/// The marker file is not there.
fn unmarked() -> Finding {
    Finding {
        rule: Rule::Format,
        table: Table::Meta,
        key: MetaName::Format.key().to_vec(),
        text: "the file FORMAT is missing".into(),
        fixes: Vec::new(),
    }
}

fn failed(why: &StoreFault) -> Failure {
    let (exit, code) = match why {
        StoreFault::Full(_) => (Exit::TryLater, "CN0933"),
        _ => (Exit::StoreFailed, "CN0932"),
    };
    Failure::new(exit, code, format!("the data directory cannot be gone on with: {why}"))
}
