//! The simulator: drawn runs and named stories.

mod scenarios;
mod small;
mod swarm;
