//! How a story is told: once as it should be, once with its rule dropped.

use consign_core::config::Config;
use consign_core::plant::Plant;

use crate::site::{Site, config};

/// What a story ends with: an error is the promise that was broken, in plain words.
pub type End = Result<(), String>;

/// A story, with a rule dropped or not.
pub type Story = fn(Option<Plant>) -> End;

/// A promise, kept or broken.
pub fn promise(kept: bool, broken: impl FnOnce() -> String) -> End {
    if kept { Ok(()) } else { Err(broken()) }
}

/// A site that knows these peers, with a rule dropped or not.
pub fn site(peers: &[&str], plant: Option<Plant>) -> Site {
    Site::with(Config { plant, ..config(peers) })
}

/// Tells one story both ways.
macro_rules! stories {
    ($($name:ident: $plant:ident, $story:path;)*) => {
        $(
            mod $name {
                use super::*;

                #[test]
                fn ends_well() {
                    assert_eq!($story(None), Ok(()));
                }

                #[test]
                fn breaks_a_promise_without_its_rule() {
                    let end = $story(Some(consign_core::plant::Plant::$plant));
                    assert!(end.is_err(), "nobody would notice");
                }
            }
        )*

        const STORIES: &[(consign_core::plant::Plant, crate::story::Story)] =
            &[$((consign_core::plant::Plant::$plant, $story),)*];

        #[test]
        fn every_rule_that_can_be_dropped_has_a_story_of_its_own() {
            let mut told: Vec<_> = STORIES.iter().map(|(plant, _)| *plant).collect();
            // A site by itself has a receipt for whatever it lets go, so nobody would notice here: a seed
            // of the simulator shows this one (`tests/sim/plants.rs`).
            told.push(consign_core::plant::Plant::G1);
            told.sort();
            assert_eq!(told, consign_core::plant::Plant::ALL);
        }
    };
}
