//! Subcommands, one file each.

mod acts;
pub mod assurance;
pub mod audit;
pub mod bench;
pub mod cert;
pub mod check;
pub mod clock;
pub(crate) mod complete;
pub mod config;
pub mod context;
pub mod deadletter;
pub mod demo;
pub mod doctor;
pub mod events;
pub mod explain;
pub mod fsck;
pub mod get;
pub mod hold;
pub mod inbox;
pub mod init;
pub mod log_level;
pub mod ls;
pub mod node;
pub mod page;
pub mod pages;
pub mod peers;
pub mod pickup;
pub mod quota;
pub mod reload;
pub mod replay;
pub mod schema;
mod screen;
pub mod send;
pub mod serve;
pub mod shape;
pub mod show;
pub mod sim;
pub mod status;
pub mod stop;
pub mod storage;
pub mod top;
pub mod watch;

use crate::admin::ledger::IdPrefix;

/// Reads an id on the command line, or its beginning.
fn id(text: &str) -> Result<String, String> {
    let prefix = IdPrefix::parse(text)
        .ok_or("it is not 6 to 64 hex digits of an id; `consign ls` shows ids")?;
    Ok(prefix.digits().into())
}
