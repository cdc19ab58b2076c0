//! The node on a store in memory, driven by hand: scripted stories, and random lives that must end
//! well.

mod again;
mod check;
mod full;
mod hop;
mod life;
mod receipts;
mod receive;
mod relay;
mod routes;
mod site;
mod start;
