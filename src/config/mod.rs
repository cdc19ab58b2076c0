//! The configuration file: found, read, judged as a whole, and turned into what the parts go by.
//!
//! A configuration is taken whole or not at all, and every fault is shown in one run, with line, column
//! and what to write instead. What a key takes and means stands in one table, [`keys`]. Values come from
//! flags, then `CONSIGN_<SECTION>_<KEY>` variables, then the file, then the defaults.

mod credential;
pub mod effective;
pub mod explain;
pub mod fault;
pub mod fmt;
pub mod keys;
pub mod outside;
pub mod reload;
mod rules;
pub mod schema;
mod settings;
mod sites;
mod socket;
pub mod template;
mod twin;
pub mod units;
pub mod value;
pub mod walk;

#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};

use crate::replace::{self, New, NotWritten, Reader};

use consign_core::config::Config;

pub use fault::{Code, Faults};
pub use settings::{Log, LogFormat, PickupListen, Runtime, Settings, TlsFiles};
pub use walk::Layers;

/// Name of the file when only its directory is given.
pub const FILE_NAME: &str = "consign.toml";
/// Where the file is looked for last.
pub const SYSTEM_FILE: &str = "/etc/consign/consign.toml";

/// The configuration file at a path that was named; a directory stands for the `consign.toml` in it.
///
/// # Errors
/// When it is not there; `how` says who named it.
pub fn named(path: &Path, how: &str) -> Result<PathBuf, Faults> {
    let file = if path.is_dir() { path.join(FILE_NAME) } else { path.to_path_buf() };
    if file.is_file() {
        return Ok(file);
    }
    let message = format!("there is no configuration at {} (from {how})", file.display());
    let help = "`consign init DIR` makes one";
    Err(Faults::whole(PathBuf::new(), Code::Unreadable, message, help))
}

/// Reads and judges a configuration file.
///
/// # Errors
/// Everything that is wrong with it.
pub fn load(file: &Path, layers: &Layers) -> Result<Settings, Faults> {
    parse(file, &read(file)?, layers)
}

/// The text of a configuration file.
///
/// # Errors
/// When it cannot be read, or is no text.
pub fn read(file: &Path) -> Result<String, Faults> {
    let whole = |message: String| Faults::whole(file.into(), Code::Unreadable, message, "");
    let bytes = crate::plain::read(file).map_err(|e| whole(format!("cannot be read: {e}")))?;
    String::from_utf8(bytes)
        .map_err(|e| whole(format!("is not UTF-8 at byte {}", e.utf8_error().valid_up_to())))
}

/// Judges the text of a configuration file; relative paths in it start at the directory of `file`.
///
/// # Errors
/// Everything that is wrong with it.
pub fn parse(file: &Path, text: &str, layers: &Layers) -> Result<Settings, Faults> {
    let walked = walk::walk(text, layers);
    settings::settle(file, walked, layers.credentials.as_deref())
        .map_err(|faults| Faults::new(file.into(), text.to_owned(), faults))
}

/// The files of certificates and key, and what they are judged by, of a configuration that may have faults elsewhere; none
/// if they cannot be made out themselves.
#[must_use]
pub fn files(file: &Path, text: &str, layers: &Layers) -> Option<(TlsFiles, Config)> {
    settings::files(file, walk::walk(text, layers), layers.credentials.as_deref())
}

/// Replaces a file's text; a crash leaves the old or the new one, and its mode and owner stay.
///
/// # Errors
/// When the system refuses; nothing is changed then.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    let of = |e: NotWritten| e.error;
    let _alone = replace::alone(path).map_err(of)?;
    replace::replace(&[New { path, text, reader: Reader::Everybody }]).map_err(of)
}
