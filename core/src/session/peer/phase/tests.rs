//! Every pair of phase and event.

use super::Event::{End, Frame, Hello, Opened, Start};
use super::Phase::{Heard, New, Over, Quiet, Ready, Said};
use super::PhaseFault::{Early, HelloAgain};
use super::Step::{Fault, Ignore, To};
use super::next;

#[test]
fn every_pair() {
    let events = [Opened, Start, Hello, Frame, End];
    let table = [
        (New, [To(Quiet), Ignore, Fault(Early), Fault(Early), To(Over)]),
        (Quiet, [Ignore, To(Said), To(Heard), Fault(Early), To(Over)]),
        (Said, [Ignore, Ignore, To(Ready), Fault(Early), To(Over)]),
        (Heard, [Ignore, To(Ready), Fault(HelloAgain), Fault(Early), To(Over)]),
        (Ready, [Ignore, Ignore, Fault(HelloAgain), To(Ready), To(Over)]),
        (Over, [Ignore, Ignore, Ignore, Ignore, To(Over)]),
    ];
    for (phase, row) in table {
        for (event, expected) in events.into_iter().zip(row) {
            assert_eq!(next(phase, event), expected, "{phase:?} on {event:?}");
        }
    }
}
