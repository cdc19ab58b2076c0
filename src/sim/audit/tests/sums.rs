//! What the auditor sums up of rows.

use consign_core::id::Seq;

use super::play::{A, Line, Play};
use crate::sim::audit::disk::Disk;
use crate::sim::audit::rows::Name;

/// A delivery whose row was destroyed stays when its segment goes, and so does what it was counted with.
#[test]
fn a_delivery_that_outlives_its_segment_is_summed_up_with_its_bytes() {
    let mut disk = Disk::default();
    for line in Play::new().take(A, "report.pdf").0 {
        if let Line::Put(row) = line {
            disk.set(row);
        }
    }
    let seq: Seq = *disk.segments.keys().next().expect("a segment was taken");
    let before = disk.tally();
    assert!(before.values().any(|tally| tally.bytes > 0), "{before:?}");
    assert!(disk.unset(&Name::Segment(seq)));
    assert_eq!(disk.tally(), before);
}
