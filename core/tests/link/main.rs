//! TLS, links and connections in memory: two sides back to back, no sockets, no clock.

mod conn;
mod link;
mod pair;
mod pki;
mod sessions;
mod tls;
