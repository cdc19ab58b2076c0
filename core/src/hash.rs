//! A BLAKE3 hasher that can stop at a checkpoint and go on after a restart without re-reading.
