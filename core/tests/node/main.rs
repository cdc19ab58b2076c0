//! The node on a store in memory, driven by hand: scripted stories, and random lives that must end
//! well.

mod acts;
mod again;
mod attempts;
mod check;
mod full;
mod holds;
mod hop;
mod life;
mod receipts;
mod receive;
mod relay;
mod routes;
mod selections;
mod site;
mod start;
