//! What rules name outside of the configuration: directories and programs. They may be made later, or be for other eyes than
//! those that look now, so nothing here is a fault.

use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::Settings;

/// A directory or program that a rule could not use now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable {
    /// `inbox` or `watch`.
    pub section: &'static str,
    /// A sentence.
    pub text: String,
    /// What to do about it.
    pub help: &'static str,
}

/// What the rules of a configuration could not use, if they were to now and by whoever asks.
#[must_use]
pub fn unusable(settings: &Settings) -> Vec<Unusable> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let inbox = settings.inbox.iter().flat_map(|rule| {
        let dir = output(&rule.dir).map(|text| Unusable {
            section: "inbox",
            text,
            help: "what arrives waits here until its `dir` can be written to",
        });
        let program = rule.command.first().and_then(|program| missing(program, &rule.dir, &path));
        let program = program.map(|text| Unusable {
            section: "inbox",
            text,
            help: "name the program with its whole path, and make it executable",
        });
        [dir, program].into_iter().flatten()
    });
    let watch = settings.watch.iter().filter_map(|rule| {
        let help = "make it: nothing is taken from it until then";
        input(&rule.dir).map(|text| Unusable { section: "watch", text, help })
    });
    inbox.chain(watch).collect()
}

/// What is wrong with a directory that files are to appear in; it is made where it is missing.
fn output(dir: &Path) -> Option<String> {
    closed(dir).map(|why| format!("`inbox.dir` {}: {why}", dir.display()))
}

/// Why files cannot appear in a directory.
pub(crate) fn closed(dir: &Path) -> Option<String> {
    let there = dir.ancestors().find(|dir| dir.symlink_metadata().is_ok())?;
    let shown = there.display();
    if !there.is_dir() {
        return Some(format!("{shown} is no directory"));
    }
    let why = access(there, Access::WRITE_OK | Access::EXEC_OK).err()?;
    Some(format!("{shown} cannot be written to: {why}"))
}

/// Why the command of a rule cannot be run by this process; nothing where it has none.
pub(crate) fn no_program(command: &[String], dir: &Path) -> Option<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path: Vec<PathBuf> = std::env::split_paths(&path).collect();
    missing(command.first()?, dir, &path)
}

/// What is wrong with a directory that files are taken from.
fn input(dir: &Path) -> Option<String> {
    let shown = dir.display();
    match std::fs::metadata(dir) {
        Err(why) => Some(format!("`watch.dir` {shown}: {why}")),
        Ok(found) if !found.is_dir() => Some(format!("`watch.dir` {shown} is no directory")),
        Ok(_) => {
            let why = access(dir, Access::READ_OK | Access::EXEC_OK).err()?;
            Some(format!("`watch.dir` {shown} cannot be read: {why}"))
        }
    }
}

/// Why a program cannot be run: one without a slash is looked for in `path`, another is relative to the rule's directory.
fn missing(program: &str, dir: &Path, path: &[PathBuf]) -> Option<String> {
    let runs = |at: &Path| at.is_file() && access(at, Access::EXEC_OK).is_ok();
    if program.contains('/') {
        let at = dir.join(program);
        return (!runs(&at))
            .then(|| format!("`inbox.command`: {} is no program to be run", at.display()));
    }
    let found = path.iter().any(|dir| runs(&dir.join(program)));
    (!found).then(|| format!("`inbox.command`: there is no program {program} in $PATH"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn an_output_is_made_where_its_parent_can_be_written_to() {
        let room = tempfile::tempdir().unwrap();
        assert_eq!(output(&room.path().join("not/yet")), None);
        let file = room.path().join("file");
        fs::write(&file, "").unwrap();
        for dir in [file.clone(), file.join("below")] {
            assert!(output(&dir).unwrap().ends_with("file is no directory"), "{dir:?}");
        }
    }

    #[test]
    fn an_input_must_be_there() {
        let room = tempfile::tempdir().unwrap();
        assert_eq!(input(room.path()), None);
        assert!(input(&room.path().join("gone")).unwrap().contains("gone: No such file"));
        let file = room.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(input(&file).unwrap().ends_with("is no directory"));
    }

    #[test]
    fn a_program_is_found_as_a_rule_would_run_it() {
        let room = tempfile::tempdir().unwrap();
        let program = room.path().join("import");
        fs::write(&program, "#!/bin/sh\n").unwrap();
        let (whole, path) = (program.to_str().unwrap(), [room.path().to_path_buf()]);
        let mode = |mode| fs::set_permissions(&program, fs::Permissions::from_mode(mode)).unwrap();
        mode(0o644);
        assert!(missing(whole, Path::new("/"), &path).is_some());
        assert!(missing("import", Path::new("/"), &path).unwrap().contains("import in $PATH"));
        mode(0o755);
        assert_eq!(missing(whole, Path::new("/"), &path), None);
        assert_eq!(missing("./import", room.path(), &path), None);
        assert_eq!(missing("import", Path::new("/"), &path), None);
        assert!(missing("import", Path::new("/"), &[]).is_some());
    }
}
