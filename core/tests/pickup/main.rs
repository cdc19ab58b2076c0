//! The node's half of pickup on a store in memory: scripted stories of clients, nodes and operators.

mod crash;
mod fetch;
mod full;
mod mend;
mod pager;
mod people;
mod relay;
mod sessions;
mod signed;
mod spoiled;
mod sweep;
mod tally;
mod upload;
mod writing;

#[allow(unused_imports)]
#[path = "../node/site.rs"]
mod site;
