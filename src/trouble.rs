//! Trouble that comes and goes by itself: it is told once when it begins and once when it is over, and shown in between.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use consign_core::node::Note;
use consign_core::time::UnixMillis;

/// Who is told.
pub type Tell = Arc<dyn Fn(Note) + Send + Sync>;

/// What is wrong with a thing, if anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trouble {
    /// What is wrong; empty when nothing is.
    pub text: String,
    /// Since when something has been.
    pub since: Option<UnixMillis>,
}

impl Trouble {
    /// This is wrong with `what` at `now`, or nothing if it is empty. What is to be told of that, if it begins or ends.
    pub fn becomes(
        &mut self,
        what: &str,
        text: String,
        code: &'static str,
        now: UnixMillis,
    ) -> Option<Note> {
        let (was, is) = (!self.text.is_empty(), !text.is_empty());
        self.text = text;
        if was == is {
            return None;
        }
        self.since = is.then_some(now);
        Some(if is {
            Note::Warn { code, text: format!("{what}: {}", self.text) }
        } else {
            Note::Recovered { text: format!("{what}: it goes on") }
        })
    }
}

/// States that one thread or several change and others show; whoever is to be told is told outside of their lock.
pub(crate) struct States<T> {
    all: Arc<Mutex<Vec<T>>>,
    tell: Option<Tell>,
}

impl<T> Clone for States<T> {
    fn clone(&self) -> States<T> {
        States { all: self.all.clone(), tell: self.tell.clone() }
    }
}

impl<T> Default for States<T> {
    fn default() -> States<T> {
        States { all: Arc::default(), tell: None }
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for States<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("States").field("all", &self.all).finish_non_exhaustive()
    }
}

impl<T: Clone> States<T> {
    pub(crate) fn new(all: Vec<T>, tell: Tell) -> States<T> {
        States { all: Arc::new(Mutex::new(all)), tell: Some(tell) }
    }

    pub(crate) fn all(&self) -> Vec<T> {
        self.locked().clone()
    }

    /// Changes one of them.
    pub(crate) fn change(&self, at: usize, change: impl FnOnce(&mut T) -> Option<Note>) {
        let note = self.locked().get_mut(at).and_then(change);
        if let (Some(note), Some(tell)) = (note, &self.tell) {
            tell(note);
        }
    }

    fn locked(&self) -> MutexGuard<'_, Vec<T>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wall time.
pub(crate) fn now() -> UnixMillis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMillis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_when_it_begins_and_when_it_is_over() {
        let mut trouble = Trouble::default();
        let mut is = |text: &str, at| {
            let note = trouble.becomes("inbox in", text.into(), "CN0626", UnixMillis(at));
            (note, trouble.since)
        };
        assert_eq!(is("", 1), (None, None));
        let (note, since) = is("no space", 2);
        assert_eq!(note, Some(Note::Warn { code: "CN0626", text: "inbox in: no space".into() }));
        assert_eq!(since, Some(UnixMillis(2)));
        assert_eq!(is("no file", 3), (None, Some(UnixMillis(2))), "it is the same trouble");
        let over = Note::Recovered { text: "inbox in: it goes on".into() };
        assert_eq!(is("", 4), (Some(over), None));
        assert_eq!(is("", 5).0, None);
    }
}
