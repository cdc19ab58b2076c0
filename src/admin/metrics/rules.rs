//! Inbox rules and watched directories: the label is the directory, of which the configuration names few.

use std::collections::BTreeMap;

use super::page::{Kind::Gauge, Page};
use crate::admin::shapes::Inbox;
use crate::watch::WatchState;

pub(super) fn rules(page: &mut Page, inbox: &[Inbox], watch: &[WatchState]) {
    // Rules may share a directory, and a series must not be there twice.
    let mut out: BTreeMap<&str, (bool, u64)> = BTreeMap::new();
    for rule in inbox {
        let (well, failed) = out.entry(&rule.dir).or_insert((true, 0));
        *well &= rule.error.is_empty();
        *failed = failed.saturating_add(rule.failed);
    }
    let name = "consign_inbox_well";
    page.family(
        name,
        Gauge,
        "Whether the directory of inbox rules can be used, and exports come through.",
    );
    for (dir, (well, _)) in &out {
        page.sample(name, &[("dir", dir)], u64::from(*well));
    }
    let name = "consign_inbox_failed_exports";
    page.family(name, Gauge, "Exports to a directory that were given up and wait for an operator.");
    for (dir, (_, failed)) in &out {
        page.sample(name, &[("dir", dir)], *failed);
    }
    let name = "consign_watch_well";
    page.family(
        name,
        Gauge,
        "Whether a watched directory and the files in it can be read and handed in.",
    );
    for state in watch {
        page.sample(name, &[("dir", &state.dir)], u64::from(state.trouble.text.is_empty()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trouble::Trouble;

    #[test]
    fn a_directory_is_there_once_from_the_start_and_says_how_it_is() {
        let rule = |dir: &str, error: &str, failed| Inbox {
            dir: dir.into(),
            error: error.into(),
            failed,
            ..Inbox::default()
        };
        let watched = |dir: &str, text: &str| WatchState {
            dir: dir.into(),
            trouble: Trouble { text: text.into(), since: None },
            ..WatchState::default()
        };
        let mut page = Page::default();
        let inbox = [rule("in", "", 2), rule("out \"x\"", "", 0), rule("in", "no space", 3)];
        rules(&mut page, &inbox, &[watched("a", ""), watched("b", "it is gone")]);
        let text = page.into_text();
        for line in [
            "consign_inbox_well{dir=\"in\"} 0",
            "consign_inbox_well{dir=\"out \\\"x\\\"\"} 1",
            "consign_inbox_failed_exports{dir=\"in\"} 5",
            "consign_inbox_failed_exports{dir=\"out \\\"x\\\"\"} 0",
            "consign_watch_well{dir=\"a\"} 1",
            "consign_watch_well{dir=\"b\"} 0",
        ] {
            assert_eq!(text.lines().filter(|l| *l == line).count(), 1, "{line}: {text}");
        }
    }
}
