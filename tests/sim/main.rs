//! The simulator: drawn runs and named stories.

mod plants;
mod scenarios;
mod small;
mod swarm;
