//! A directory for the sites, gone when it is no longer needed.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::failed;
use crate::exit::Failure;

/// A directory of our own that is removed at the end.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes one under `parent`, or else under `/var/tmp`, which unlike `/tmp` is not kept in memory.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn new(parent: Option<&Path>) -> Result<Scratch, Failure> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let usual = [Path::new("/var/tmp")].into_iter().find(|path| path.is_dir());
        let parent = parent.or(usual).map_or_else(std::env::temp_dir, Path::to_path_buf);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("consign-bench-{}-{number}", std::process::id()));
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(|e| failed(&format!("{} cannot be made", path.display()), e))?;
        Ok(Scratch { path })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left is found by its name.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
