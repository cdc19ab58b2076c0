//! The real binary, from outside: two sites on loopback with real certificates, ledgers and disks.

mod cert;
mod cli;
mod config;
mod damage;
mod deadletters;
mod deliver;
mod disk;
mod events;
mod freeze;
mod fsck;
mod full;
mod hostile;
mod http;
mod inbox;
mod kill;
mod mixed;
mod page;
mod pickup;
mod record;
mod refuse;
mod reload;
mod resume;
mod routes;
mod site;
mod verbs;
mod wait;
