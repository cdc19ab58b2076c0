//! The recording of a running site.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use consign_core::ledger::read::Recovery;
use consign_core::pump::Tap;
use consign_core::time::Now;

use crate::config::Settings;
use crate::exit::Failure;
use crate::record::{Header, OnFault, Recording, not_made};

/// Most files of one site that begin in the same millisecond.
const SAME: u32 = 1_000;

/// Begins the recording of a node that comes out of `recovery`.
pub(super) fn begin(
    path: &Path,
    settings: &Settings,
    recovery: &Recovery,
    now: Now,
) -> Result<Box<dyn Tap + Send>, Failure> {
    let header = Header::new("serve")
        .option("node", &settings.node.name)
        .option("runtime", settings.runtime.word());
    let made = if path.is_dir() {
        in_folder(path, &header, settings, now)
    } else {
        at(path, &header, settings)
    };
    let (path, recording) =
        made.map_err(|e| not_made(path, &e, "give another name, or a folder"))?;
    tracing::info!(node = settings.node.name, "everything is recorded in {}", path.display());
    Ok(Box::new(recording.start(0, &settings.node, recovery, now)))
}

fn at(path: &Path, header: &Header, settings: &Settings) -> io::Result<(PathBuf, Recording)> {
    Recording::create(path, header, warning(settings, path)).map(|r| (path.to_owned(), r))
}

/// A file named after the site and the time; a site that starts again gets another.
fn in_folder(
    folder: &Path,
    header: &Header,
    settings: &Settings,
    now: Now,
) -> io::Result<(PathBuf, Recording)> {
    let stem = format!("{}-{}", settings.node.name, now.wall.0);
    let names = (1..=SAME).map(|n| match n {
        1 => format!("{stem}.jsonl"),
        n => format!("{stem}-{n}.jsonl"),
    });
    let mut last = io::Error::from(ErrorKind::AlreadyExists);
    for name in names {
        match at(&folder.join(name), header, settings) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => last = e,
            other => return other,
        }
    }
    Err(last)
}

/// The site goes on without its recording.
fn warning(settings: &Settings, path: &Path) -> OnFault {
    let (node, path) = (settings.node.name.clone(), path.to_owned());
    Box::new(move |error| {
        let path = path.display();
        tracing::warn!(node, code = "CN0702", "the recording in {path} ends here: {error}");
    })
}
