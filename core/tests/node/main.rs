//! The node on a store in memory, driven by hand: scripted stories, and random lives that must end
//! well.

mod check;
mod full;
mod life;
mod receive;
mod relay;
mod scrub;
mod site;
mod start;
