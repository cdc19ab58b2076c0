//! Peer sessions back to back: scripted traces, and random workloads against a model of node and
//! store.

mod frames;
mod random;
mod script;
mod show;
mod traces;
mod world;
