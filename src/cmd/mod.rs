//! Subcommands, one file each.

pub mod bench;
pub mod init;
pub mod serve;
