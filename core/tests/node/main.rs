//! The node on a store in memory, driven by hand: scripted stories, and random lives that must end
//! well.

mod again;
mod books;
mod check;
mod clock;
mod full;
mod hop;
mod keep;
mod life;
mod pace;
mod receipts;
mod receive;
mod reconcile;
mod relay;
mod room;
mod routes;
mod site;
mod start;
mod takeover;
