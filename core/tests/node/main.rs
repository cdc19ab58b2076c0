//! The node on a store in memory, driven by hand: scripted stories, and random lives that must end
//! well.

mod acts;
mod again;
mod attempts;
mod books;
mod check;
mod clock;
mod export;
mod export_life;
mod full;
mod holds;
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
mod scrub;
mod selections;
mod site;
mod start;
mod takeover;
