//! What drawn runs found once: each failure, told as the shortest story that shows it.

use super::Story;

/// What is told here.
pub const STORIES: &[Story] = &[];
