//! A clean story passes; each way to break it is named by its invariant.

mod acts;
mod cases;
mod copies;
mod deeds;
mod doubts;
mod encode;
mod mended;
mod more;
mod play;
mod reload;
mod show;
mod signed;
mod sums;
