//! Subcommands, one file each.

pub mod init;
pub mod serve;
