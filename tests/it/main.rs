//! The real binary, from outside: two sites on loopback with real certificates, ledgers and disks.

mod disk;
