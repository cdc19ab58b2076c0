//! A disk that is really full: a small file system in memory, mounted in a namespace of its own.
