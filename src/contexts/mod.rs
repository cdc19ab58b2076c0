//! Names for sites on this machine, and which configuration a command goes by.
//!
//! A context is a name for what `-c` takes, nothing more. All of them stand in one small file of the user's own,
//! `$XDG_CONFIG_HOME/consign/contexts.toml`, which is replaced as a whole: a crash leaves the old or the new one.

mod text;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use clap_complete::engine::CompletionCandidate;

use crate::config::value::similar;
use crate::config::{self, Code, FILE_NAME, Faults, SYSTEM_FILE};
use crate::exit::{Exit, Failure};
use crate::replace::{self, New, NotWritten, Reader};

/// Contexts of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contexts {
    /// The one that holds where nothing else is said.
    pub used: Option<String>,
    /// Configurations, or their directories, as absolute paths.
    pub known: BTreeMap<String, PathBuf>,
}

/// Where this user's contexts are kept; none without `$XDG_CONFIG_HOME` and `$HOME`.
#[must_use]
pub fn file() -> Option<PathBuf> {
    place(std::env::var_os("XDG_CONFIG_HOME"), std::env::var_os("HOME"))
}

/// As the XDG base directory specification has it: what is not absolute is as if it were not there.
fn place(xdg: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute = |path: OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    let home = || home.and_then(absolute).map(|home| home.join(".config"));
    Some(xdg.and_then(absolute).or_else(home)?.join("consign/contexts.toml"))
}

/// Where this user's contexts are to be kept.
///
/// # Errors
/// Without `$XDG_CONFIG_HOME` and `$HOME`.
pub fn needed_file() -> Result<PathBuf, Failure> {
    file().ok_or_else(|| {
        let message = "contexts cannot be kept: neither $XDG_CONFIG_HOME nor $HOME is given";
        Failure::new(Exit::Failed, "CN0592", message).help("-c names a configuration without them")
    })
}

/// The names there are, for a shell that asks; none where they cannot be read, since nobody is there to be told.
#[must_use]
pub fn candidates() -> Vec<CompletionCandidate> {
    let contexts = file().and_then(|file| Contexts::read(&file).ok()).unwrap_or_default();
    let candidate = |(name, path): (&String, &PathBuf)| {
        CompletionCandidate::new(name).help(Some(path.display().to_string().into()))
    };
    contexts.known.iter().map(candidate).collect()
}

impl Contexts {
    /// Reads them; a file that is not there has none.
    ///
    /// # Errors
    /// Everything that is wrong with it (exit 78).
    pub fn read(file: &Path) -> Result<Contexts, Faults> {
        match file.symlink_metadata() {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Contexts::default()),
            _ => text::parse(file, &config::read(file)?),
        }
    }

    /// What a context stands for.
    ///
    /// # Errors
    /// When there is none of that name (exit 4); the help says which was meant.
    pub fn get(&self, name: &str) -> Result<&Path, Failure> {
        self.known.get(name).map(PathBuf::as_path).ok_or_else(|| {
            let known = || self.known.keys().map(String::as_str);
            let help = match (similar(name, known()), self.known.is_empty()) {
                (Some(near), _) => format!("a context with a similar name exists: {near}"),
                (None, true) => "there are no contexts; `consign context add` makes one".into(),
                (None, false) => {
                    format!("contexts: {}", known().take(20).collect::<Vec<_>>().join(", "))
                }
            };
            let message = format!("there is no context {name:?}");
            Failure::new(Exit::NoMatch, "CN0591", message).help(help)
        })
    }

    /// Gives a configuration a name.
    ///
    /// # Errors
    /// When the name stands for another one that is still there.
    pub fn add(&mut self, name: &str, path: &Path) -> Result<(), Failure> {
        if let Some(other) = self.known.get(name).filter(|other| *other != path && other.exists()) {
            let message = format!("the context {name} stands for {} already", other.display());
            let help = format!("another name, or `consign context rm {name}` first");
            return Err(Failure::new(Exit::Failed, "CN0593", message).help(help));
        }
        if path.to_str().is_none() {
            let message = format!("{} is no text, which a context must be", path.display());
            return Err(Failure::new(Exit::Failed, "CN0592", message));
        }
        self.known.insert(name.into(), path.into());
        Ok(())
    }

    /// Forgets a name, and that it was used.
    ///
    /// # Errors
    /// As [`Contexts::get`].
    pub fn remove(&mut self, name: &str) -> Result<PathBuf, Failure> {
        let path = self.get(name)?.to_path_buf();
        self.known.remove(name);
        self.used.take_if(|used| used == name);
        Ok(path)
    }
}

/// Changes the contexts in a file: nobody else does meanwhile, and all of it is written or nothing.
///
/// # Errors
/// Those of `act`; when the file has faults, or cannot be written.
pub fn change<T>(
    file: &Path,
    act: impl FnOnce(&mut Contexts) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let cannot = |why: NotWritten| {
        let message = format!("{} was not changed: {}", why.path.display(), why.error);
        Failure::new(Exit::Failed, "CN0592", message)
    };
    let dir = file.parent().unwrap_or(Path::new("/"));
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|error| cannot(NotWritten { path: dir.into(), error }))?;
    let _alone = replace::alone(file).map_err(cannot)?;
    let mut contexts = Contexts::read(file).map_err(|faults| faults.failure())?;
    let before = contexts.clone();
    let done = act(&mut contexts)?;
    if contexts != before {
        let new = New { path: file, text: &text::render(&contexts), reader: Reader::Owner };
        replace::replace(&[new]).map_err(cannot)?;
    }
    Ok(done)
}

/// What says which configuration a command goes by, from the strongest to the weakest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// `-c`.
    Config,
    /// `--context`.
    Context,
    /// `$CONSIGN_CONFIG`.
    ConfigVariable,
    /// `$CONSIGN_CONTEXT`.
    ContextVariable,
    /// `./consign.toml`.
    Here,
    /// `consign context use`.
    Used,
    /// `/etc/consign/consign.toml`.
    System,
}

impl By {
    /// As people write it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            By::Config => "-c",
            By::Context => "--context",
            By::ConfigVariable => "$CONSIGN_CONFIG",
            By::ContextVariable => "$CONSIGN_CONTEXT",
            By::Here => "./consign.toml",
            By::Used => "context use",
            By::System => SYSTEM_FILE,
        }
    }
}

/// What was said about the configuration to go by.
#[derive(Clone, Debug, Default)]
pub struct Said {
    /// `-c`.
    pub config: Option<PathBuf>,
    /// `--context`.
    pub context: Option<String>,
    /// `$CONSIGN_CONFIG`.
    pub config_variable: Option<PathBuf>,
    /// `$CONSIGN_CONTEXT`.
    pub context_variable: Option<String>,
    /// The file of contexts, if this user can have one.
    pub contexts: Option<PathBuf>,
    /// Directory of a command, in which a configuration may lie; empty is the current one.
    pub here: PathBuf,
}

/// The configuration that a command goes by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// What said so.
    pub by: By,
    /// The context, where it was one.
    pub context: Option<String>,
    /// The file.
    pub file: PathBuf,
}

impl Said {
    /// Finds the configuration: by `-c`, then `--context`, then the variables, then in this directory, then the used
    /// context, then the system's. A directory stands for the `consign.toml` in it.
    ///
    /// # Errors
    /// When what was named is not there, the contexts have faults, or there is nothing anywhere (exit 78).
    pub fn choose(&self) -> Result<Chosen, Faults> {
        let plain = |by: By, path: &Path| {
            let file = config::named(path, by.word()).map_err(|faults| self.meant(path, faults))?;
            Ok(Chosen { by, context: None, file })
        };
        if let Some(path) = &self.config {
            return plain(By::Config, path);
        }
        if let Some(name) = &self.context {
            return of_context(By::Context, name, &self.contexts()?);
        }
        if let Some(path) = &self.config_variable {
            return plain(By::ConfigVariable, path);
        }
        if let Some(name) = &self.context_variable {
            return of_context(By::ContextVariable, name, &self.contexts()?);
        }
        let here = self.here.join(FILE_NAME);
        if here.is_file() {
            return Ok(Chosen { by: By::Here, context: None, file: here });
        }
        let contexts = self.contexts()?;
        if let Some(name) = &contexts.used {
            return of_context(By::Used, name, &contexts);
        }
        if Path::new(SYSTEM_FILE).is_file() {
            return Ok(Chosen { by: By::System, context: None, file: SYSTEM_FILE.into() });
        }
        let message = format!(
            "no configuration: none is named (-c, --context, $CONSIGN_CONFIG, $CONSIGN_CONTEXT), no context is in \
             use, and neither ./{FILE_NAME} nor {SYSTEM_FILE} is there"
        );
        let mut help = "`consign init` makes one here; `-c FILE` names one elsewhere".to_owned();
        let names: Vec<&str> = contexts.known.keys().take(20).map(String::as_str).collect();
        if !names.is_empty() {
            help.push_str(&format!(
                "; contexts that there are: {} (`--context NAME`; `consign context use NAME` for good)",
                names.join(", ")
            ));
        }
        Err(Faults::whole(PathBuf::new(), Code::Unreadable, message, &help))
    }

    /// A path that leads nowhere may have been meant as a context.
    fn meant(&self, path: &Path, mut faults: Faults) -> Faults {
        let contexts = self.contexts().unwrap_or_default();
        let name = path.to_str().filter(|name| contexts.known.contains_key(*name));
        if let (Some(name), Some(fault)) = (name, faults.faults.first_mut()) {
            fault.help = format!("there is a context {name}: --context {name}");
        }
        faults
    }

    fn contexts(&self) -> Result<Contexts, Faults> {
        self.contexts.as_deref().map_or_else(|| Ok(Contexts::default()), Contexts::read)
    }
}

fn of_context(by: By, name: &str, contexts: &Contexts) -> Result<Chosen, Faults> {
    let path = contexts.get(name).map_err(|mut failure| {
        failure.message = format!("{} (from {})", failure.message, by.word());
        Faults { files: vec![failure], ..Faults::new(PathBuf::new(), String::new(), vec![]) }
    })?;
    let file = config::named(path, &format!("the context {name}"))?;
    Ok(Chosen { by, context: Some(name.into()), file })
}
