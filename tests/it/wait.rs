//! Waiting for a condition: a bounded number of looks, a short pause between two of them. The one
//! place in the tests that pauses; nothing waits for time to pass.

use std::time::Duration;

const PAUSE: Duration = Duration::from_millis(10);
/// Looks until a wait has failed: a minute and more, for machines that are slow or busy.
const LOOKS: u32 = 9_000;

/// Looks until `look` finds something.
///
/// # Panics
/// When it never does, with `what` was waited for.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..LOOKS {
        if let Some(found) = look() {
            return found;
        }
        std::thread::sleep(PAUSE);
    }
    panic!("waited in vain for {what}");
}

/// Looks until `holds` does.
pub(crate) fn until_true(what: &str, mut holds: impl FnMut() -> bool) {
    until(what, || holds().then_some(()));
}
