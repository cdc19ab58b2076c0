//! The real binary, from outside: two sites on loopback with real certificates, ledgers and disks.

mod cli;
mod damage;
mod deliver;
mod disk;
mod freeze;
mod fsck;
mod full;
mod hostile;
mod http;
mod kill;
mod record;
mod refuse;
mod resume;
mod site;
mod wait;
