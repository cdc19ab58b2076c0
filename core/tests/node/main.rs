//! The node on a store in memory, driven by hand: scripted stories, and random lives that must end
//! well.

mod full;
mod life;
mod pace;
mod receive;
mod reconcile;
mod relay;
mod site;
mod start;
mod takeover;
