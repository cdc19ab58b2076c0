//! `credential:NAME`: a file that the service manager puts where only this service can read it.

use std::path::{Path, PathBuf};

/// Why there is no such file to be looked for.
pub(super) struct Refused {
    pub(super) problem: &'static str,
    pub(super) help: &'static str,
}

/// Where the credential of this name is; `dir` is `$CREDENTIALS_DIRECTORY`.
pub(super) fn place(name: &str, dir: Option<&Path>) -> Result<PathBuf, Refused> {
    if !is_name(name) {
        let problem = "that is not the name of a credential";
        return Err(Refused { problem, help: "a name is one file's, without slashes and colons" });
    }
    let problem = "$CREDENTIALS_DIRECTORY is not set";
    let help = "the service manager sets it for a service with LoadCredential=; elsewhere set it to a directory with \
                that file, such as /run/credentials/consign.service";
    dir.map(|dir| dir.join(name)).ok_or(Refused { problem, help })
}

/// What systemd takes as a name: one component of a path, and nothing that separates names.
fn is_name(name: &str) -> bool {
    let plain = |c: char| !c.is_control() && !matches!(c, '/' | ':');
    (1..=255).contains(&name.len()) && !matches!(name, "." | "..") && name.chars().all(plain)
}
