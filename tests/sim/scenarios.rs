//! Every named story ends well, and there is one for what the documents name.

use consign::sim::scenario;

#[test]
fn every_story_ends_well() {
    let mut told = 0;
    for story in scenario::all() {
        if let Err(why) = scenario::tell(&story) {
            panic!("{} ({}): {why}", story.name, story.about);
        }
        told += 1;
    }
    assert!(told >= 10, "{told} stories");
}

#[test]
fn names_are_unique_and_stories_say_what_they_are() {
    let mut names: Vec<&str> = scenario::all().iter().map(|s| s.name).collect();
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count);
    for story in scenario::all() {
        assert!(story.about.len() > 20, "{}", story.name);
    }
    for name in ["flapping-link", "four-site-loop", "pickup-old-acks", "pickup-killed-site"] {
        assert!(names.contains(&name), "{name}");
    }
}
