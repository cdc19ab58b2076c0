//! The node on a store in memory, driven by hand: scripted stories, and random lives that must end
//! well.

mod check;
mod again;
mod full;
mod hop;
mod life;
mod receive;
mod receipts;
mod relay;
mod routes;
mod site;
mod start;
