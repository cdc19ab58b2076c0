//! What must hold between the rows of a ledger, and what mends it: pure functions over a snapshot.
//!
//! Every table is read in key order, once or twice, and whatever a row points to is looked up: nothing is
//! kept for a row but one bit for each body and blob. A finding that can be mended carries the operations
//! for it. They are right for the snapshot that was read, so whoever applies them checks again until
//! nothing is found; each finding's operations alone leave no ledger worse than it was.
//!
//! | file | rules about |
//! |---|---|
//! | `rows` | every row alone: keys, checksums, counters of `meta` |
//! | `segments` | a segment, its deliveries, and the index rows these need |
//! | `index` | index rows that lead nowhere |
//! | `content` | bodies, blobs, owners, digests, what is being received |
//! | `pickup` | shards, their indexes and tokens |
//! | `sums` | counters and usage |
//! | `lose` | what becomes of a segment whose content is gone |
//! | `restored` | a ledger that is an older copy |
//! | `mender` | findings into batches |
//!
//! Another table's rule is one more function in the list of [`check`].

mod content;
mod index;
mod lose;
mod mender;
mod pickup;
mod restored;
mod rows;
mod segments;
mod sums;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use minicbor::{Decode, Encode};

use super::rows::PeerRow;
use super::{Table, codec};
use crate::code::codes;
use crate::id::SiteNo;
use crate::store::{Batch, Snapshot, StoreFault};
use crate::time::UnixMillis;

pub use lose::lose;
pub use mender::Mender;
pub use pickup::lose_shard;
pub use restored::restored;
pub use rows::{decodes, quarantine};

codes! {
    /// What can be wrong with a data directory.
    pub enum Rule {
        /// A row cannot be decoded or does not match its checksum.
        Unreadable = 1, "row_unreadable";
        /// A key that is none of its table, or an index row with a value.
        Key = 2, "bad_key";
        /// A row lacks an index row that leads to it.
        IndexMissing = 3, "index_missing";
        /// An index row leads to nothing, or to a row that does not say so.
        IndexAstray = 4, "index_astray";
        /// A delivery that is owed has no row.
        DeliveryLost = 5, "delivery_lost";
        /// A delivery has no segment.
        SegmentLost = 6, "segment_lost";
        /// A segment counts its deliveries wrongly.
        SegmentCounts = 7, "segment_counts";
        /// A counter is not the sum of what it counts.
        Counter = 8, "counter_wrong";
        /// The bytes or segments held are not the sum of what is there.
        Usage = 9, "usage_wrong";
        /// A number to be given next was given already.
        Number = 10, "number_given";
        /// A content file has more or fewer owners than its row says.
        References = 11, "references_wrong";
        /// The content of a segment has no row, or one of another length.
        ContentLost = 12, "content_lost";
        /// Content belongs to nobody.
        Unowned = 13, "content_unowned";
        /// One number is content, being received or doomed at the same time.
        Twice = 14, "number_twice";
        /// A delivery goes to a site that has no row.
        Peer = 15, "peer_unknown";
        /// The format of the ledger is another one.
        Format = 16, "format_wrong";
        /// A content file is not there.
        FileMissing = 17, "file_missing";
        /// A content file has another length than its row says.
        FileLength = 18, "file_length";
        /// A content file that no row names.
        FileOrphan = 19, "file_orphan";
        /// A content file whose number was never given.
        FileAhead = 20, "file_ahead";
        /// Something else than a content file in its place.
        FileKind = 21, "file_kind";
        /// Content does not have the digest it was accepted with.
        Corrupt = 22, "content_corrupt";
        /// The ledger's pages cannot be read.
        Pages = 23, "pages_unreadable";
        /// A shard does not have what its state says.
        Shard = 24, "shard_wrong";
    }
}

/// One operation that mends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fix {
    /// Write a row.
    Put {
        /// The table.
        table: Table,
        /// Its key.
        key: Vec<u8>,
        /// Its value, encoded.
        value: Vec<u8>,
    },
    /// Remove a row.
    Del {
        /// The table.
        table: Table,
        /// Its key.
        key: Vec<u8>,
    },
}

impl Fix {
    /// Writes a row.
    pub fn put<R: Encode<()>>(table: Table, key: &[u8], row: &R) -> Fix {
        let mut value = Vec::new();
        codec::encode(table, key, row, &mut value);
        Fix::Put { table, key: key.to_vec(), value }
    }

    /// Writes a row of an index table.
    #[must_use]
    pub fn index(table: Table, key: &[u8]) -> Fix {
        Fix::Put { table, key: key.to_vec(), value: Vec::new() }
    }

    /// Removes a row.
    #[must_use]
    pub fn del(table: Table, key: &[u8]) -> Fix {
        Fix::Del { table, key: key.to_vec() }
    }

    /// Adds it to a batch.
    pub fn stage(&self, batch: &mut Batch) {
        match self {
            Fix::Put { table, key, value } => batch.put_raw(*table, key, value),
            Fix::Del { table, key } => batch.del(*table, key),
        }
    }
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which rule is broken.
    pub rule: Rule,
    /// The table of the row it is about.
    pub table: Table,
    /// Its key.
    pub key: Vec<u8>,
    /// For people.
    pub text: String,
    /// What mends it, in order; empty when nothing in the ledger can.
    pub fixes: Vec<Fix>,
}

/// Who is told.
pub trait Watch {
    /// Something is wrong.
    fn found(&mut self, finding: Finding);
    /// So many more rows of a table were read.
    fn read(&mut self, table: Table, rows: u64);
}

/// What was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Segments that can be read.
    pub segments: u64,
    /// Deliveries that can be read.
    pub deliveries: u64,
    /// Bytes charged.
    pub used: u64,
    /// Rows in quarantine.
    pub quarantined: u64,
    /// Segments that bear the mark that their content is damaged or gone.
    pub lost: u64,
}

/// A peer as the rules need it.
struct Known {
    name: String,
    held: bool,
}

/// A check under way.
struct Check<'c> {
    snapshot: &'c dyn Snapshot,
    watch: &'c mut dyn Watch,
    at: UnixMillis,
    names: &'c [String],
    peers: BTreeMap<SiteNo, Known>,
    sums: sums::Sums,
    bodies: content::Bits,
    blobs: content::Bits,
    /// Partial content that a shard leads to.
    partials: content::Bits,
    /// Owners are not all there: what they say of blobs is not to be relied on.
    owners_missing: bool,
    time_high: u64,
    fault: Option<StoreFault>,
}

/// Checks every table of a snapshot. Mended rows are dated `at`; `names` are the sites that the
/// configuration knows, for a peer whose row is gone.
///
/// # Errors
/// When the store cannot be read.
pub fn check(
    snapshot: &dyn Snapshot,
    at: UnixMillis,
    names: &[String],
    watch: &mut dyn Watch,
) -> Result<Tally, StoreFault> {
    let mut check = Check {
        snapshot,
        watch,
        at,
        names,
        peers: BTreeMap::new(),
        sums: sums::Sums::default(),
        bodies: content::Bits::default(),
        blobs: content::Bits::default(),
        partials: content::Bits::default(),
        owners_missing: false,
        time_high: 0,
        fault: None,
    };
    // What later rules look up in memory comes first, sums last.
    let rules: [Step<'_>; 13] = [
        Check::meta,
        Check::peers,
        Check::others,
        Check::shards,
        Check::segments,
        Check::deliveries,
        Check::indexes,
        Check::blobs,
        Check::bodies,
        Check::incoming,
        Check::sources,
        Check::counters,
        Check::usage,
    ];
    for rule in rules {
        rule(&mut check);
        if let Some(fault) = check.fault {
            return Err(fault);
        }
    }
    Ok(check.sums.tally())
}

/// What is done with a row: its key and its value.
type Visit<'v, C> = &'v mut dyn FnMut(&mut C, &[u8], &[u8]);

/// The rules about one part of the ledger.
type Step<'c> = fn(&mut Check<'c>);

/// What stands under a key.
enum Look<R> {
    /// Nothing.
    Nothing,
    /// A row that cannot be read: it is found where its table is read.
    Bad,
    /// A row.
    Row(R),
}

impl<R> Look<R> {
    fn row(self) -> Option<R> {
        match self {
            Look::Row(row) => Some(row),
            Look::Nothing | Look::Bad => None,
        }
    }
}

impl Check<'_> {
    /// Reads every row of a table whose key begins with `prefix`, until the store fails.
    fn each(&mut self, table: Table, prefix: &[u8], visit: Visit<'_, Self>) {
        let (snapshot, mut rows) = (self.snapshot, 0);
        let scanned = super::read::scan_prefix(snapshot, table, prefix, &mut |key, value| {
            rows += 1;
            if rows % TELL == 0 {
                self.watch.read(table, TELL);
            }
            visit(self, key, value);
            self.fault.is_none()
        });
        self.watch.read(table, rows % TELL);
        self.failed(scanned);
    }

    /// Notes the first failure of the store.
    fn failed<T>(&mut self, result: Result<T, StoreFault>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(fault) => {
                self.fault.get_or_insert(fault);
                None
            }
        }
    }

    fn look<R>(&mut self, table: Table, key: &[u8]) -> Look<R>
    where
        R: for<'b> Decode<'b, ()>,
    {
        let snapshot = self.snapshot;
        match self.failed(snapshot.get(table, key)).flatten() {
            None => Look::Nothing,
            Some(value) => codec::decode(table, key, value).map_or(Look::Bad, Look::Row),
        }
    }

    /// Whether there is a row, readable or not.
    fn has(&mut self, table: Table, key: &[u8]) -> bool {
        let snapshot = self.snapshot;
        self.failed(snapshot.get(table, key)).flatten().is_some()
    }

    fn found(&mut self, rule: Rule, table: Table, key: &[u8], text: String, fixes: Vec<Fix>) {
        self.watch.found(Finding { rule, table, key: key.to_vec(), text, fixes });
    }

    /// An index row is needed and not there.
    fn need(&mut self, table: Table, key: &[u8], whose: &str) {
        if !self.has(table, key) {
            self.owners_missing |= table == Table::Owners;
            let text = alloc::format!("{whose} has no row in {table}");
            self.found(Rule::IndexMissing, table, key, text, [Fix::index(table, key)].into());
        }
    }

    fn peer(&mut self, site: SiteNo, row: &PeerRow) {
        self.peers.insert(site, Known { name: row.name.clone(), held: row.held });
    }
}

/// Rows between two signs of progress.
const TELL: u64 = 4096;
