//! Counters and usage: sums of what the other rules have read.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::ToString;
use alloc::vec;

use super::rows::text_of;
use super::{Check, Fix, Rule, Tally};
use crate::id::SiteNo;
use crate::ledger::rows::{CounterRow, DeliveryRow, INBOUND, MetaName, MetaRow, SHARDS};
use crate::ledger::rows_pickup::ShardState;
use crate::ledger::{Table, keys};

/// What was read so far; one entry for each site and state, none for a row.
#[derive(Debug, Default)]
pub(super) struct Sums {
    tally: Tally,
    counters: BTreeMap<(SiteNo, u8), CounterRow>,
    given: BTreeMap<MetaName, u64>,
}

impl Sums {
    pub(super) fn tally(&self) -> Tally {
        self.tally
    }

    /// A segment that came from `site`, 0 is here, and whether its content is damaged or gone.
    pub(super) fn segment(&mut self, site: u32, lost: bool) {
        self.tally.segments += 1;
        self.tally.lost += u64::from(lost);
        if site != 0 {
            self.counters.entry((SiteNo(site), INBOUND)).or_default().count += 1;
        }
    }

    pub(super) fn counts(&mut self, name: MetaName) {
        *self.given.entry(name).or_default() += 1;
    }

    pub(super) fn quarantined(&mut self) {
        self.tally.quarantined += 1;
    }

    pub(super) fn delivery(&mut self, site: SiteNo, row: &DeliveryRow, bytes: u64) {
        self.tally.deliveries += 1;
        for at in row.counted_as() {
            let sum = self.counters.entry((site, at)).or_default();
            sum.count += 1;
            sum.bytes = sum.bytes.saturating_add(bytes);
        }
    }

    /// Shards in a state, and bytes that are held or reserved for them.
    pub(super) fn shard(&mut self, state: ShardState, count: u64, bytes: u64) {
        let row = self.counters.entry((SiteNo(0), SHARDS + state.number())).or_default();
        row.count += count;
        row.bytes = row.bytes.saturating_add(bytes);
    }

    /// Bytes charged for what came from `site`; 0 is here.
    pub(super) fn charge(&mut self, site: u32, bytes: u64) {
        self.tally.used = self.tally.used.saturating_add(bytes);
        if site != 0 {
            let row = self.counters.entry((SiteNo(site), INBOUND)).or_default();
            row.bytes = row.bytes.saturating_add(bytes);
        }
    }

    /// This number was given.
    pub(super) fn gives(&mut self, name: MetaName, number: u64) {
        let highest = self.given.entry(name).or_insert(number);
        *highest = (*highest).max(number);
    }
}

impl Check<'_> {
    pub(super) fn counters(&mut self) {
        let mut wrong = core::mem::take(&mut self.sums.counters);
        self.each(Table::Counters, &[], &mut |check, key, value| {
            let Some(row) = check.readable::<CounterRow>(Table::Counters, key, value) else {
                return;
            };
            let mut rest = key;
            let (Some(site), [state]) = (keys::take(&mut rest), rest) else { return };
            let site = SiteNo(u32::from_be_bytes(site));
            let sum = wrong.remove(&(site, *state)).unwrap_or_default();
            if row != sum {
                check.miscounted(site, *state, Some(row), sum);
            }
        });
        for ((site, state), sum) in wrong {
            self.miscounted(site, state, None, sum);
        }
    }

    fn miscounted(&mut self, site: SiteNo, state: u8, row: Option<CounterRow>, sum: CounterRow) {
        let key = keys::counter(site, state);
        let row = row.unwrap_or_default();
        let text = format!(
            "site number {site}, state {state}: {} deliveries of {} bytes are counted, {} of {} are \
             there",
            row.count, row.bytes, sum.count, sum.bytes
        );
        let fix = Fix::put(Table::Counters, &key, &sum);
        self.found(Rule::Counter, Table::Counters, &key, text, vec![fix]);
    }

    pub(super) fn usage(&mut self) {
        let tally = self.sums.tally();
        let counted = |name| self.sums.given.get(&name).copied().unwrap_or(0);
        let sums = [
            (MetaName::UsedBytes, tally.used),
            (MetaName::Segments, tally.segments),
            (MetaName::Unplaced, counted(MetaName::Unplaced)),
            (MetaName::Remembered, counted(MetaName::Remembered)),
            (MetaName::AuditRows, counted(MetaName::AuditRows)),
        ];
        for (name, value) in sums {
            let (table, key) = (Table::Meta, name.key());
            let row = self.look::<MetaRow>(table, key).row().map(|row| row.value);
            if row.unwrap_or(0) != value {
                let told = row.map_or_else(|| "missing".to_string(), |row| row.to_string());
                let text = format!("{} is {told}, {value} are there", text_of(key));
                let fix = Fix::put(table, key, &MetaRow { value });
                self.found(Rule::Usage, table, key, text, vec![fix]);
            }
        }
        let numbers = [
            MetaName::NextSeq,
            MetaName::NextBlob,
            MetaName::NextBody,
            MetaName::NextSite,
            MetaName::NextRedemption,
            MetaName::NextAudit,
            MetaName::Boot,
        ];
        for name in numbers {
            let given = self.sums.given.get(&name).copied().filter(|given| *given > 0);
            // The boot counter is that of this run, not of the next.
            let given = if name == MetaName::Boot { given.map(|boot| boot - 1) } else { given };
            self.number(name, given);
        }
    }
}
