//! Two whole sites without sockets: nodes, peer sessions and stores, stepped by hand.

mod chain;
mod stories;
mod world;
