//! Two whole sites without sockets: nodes, peer sessions and stores, stepped by hand.

mod stories;
mod world;
