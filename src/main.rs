//! The `consign` command.

fn main() {}
