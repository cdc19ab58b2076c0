//! A node's configuration: a few lines of TOML beside its key.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use consign_core::inbox::{RULES_MAX, pattern_fault};
use consign_core::ledger::keys_pickup::is_node_id;
use consign_core::ledger::keys_upkeep::RuleId;
use consign_core::pickup::sign;
use serde::Deserialize;

use crate::exit::{Exit, Failure};
use crate::inbox::InboxDir;
use crate::pickup::node::give::Rule;
use crate::pickup::random;
use crate::pickup::url::Relay;

/// Its name in a node's directory.
pub const FILE_NAME: &str = "node.toml";
/// The key's name there.
const KEY_NAME: &str = "node.key";
/// What stands before the 32 bytes of an Ed25519 key in PKCS #8 (RFC 8410).
const PKCS8: [u8; 16] = *b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";

/// What a node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeConfig {
    /// Its id.
    pub id: String,
    /// Its relay.
    pub relay: Relay,
    /// The authority that signed the relay's certificate.
    pub ca: Option<PathBuf>,
    /// Its private key.
    pub key: PathBuf,
    /// Where shards go.
    pub dir: PathBuf,
    /// Fetches at a time.
    pub fetches: usize,
    /// What becomes of stored shards.
    pub inbox: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    id: String,
    relay: String,
    ca: Option<PathBuf>,
    key: PathBuf,
    dir: PathBuf,
    fetches: Option<usize>,
    #[serde(default)]
    inbox: Vec<RawRule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRule {
    file: Option<String>,
    dir: PathBuf,
    #[serde(default)]
    command: Vec<String>,
    timeout: Option<String>,
}

/// How long a command may take.
const TIMEOUT: Duration = Duration::from_secs(60);

impl RawRule {
    fn rule(self, base: &Path) -> Result<Rule, String> {
        if let Some(fault) = self.file.as_deref().and_then(pattern_fault) {
            return Err(format!("`file` is no pattern: {fault}"));
        }
        if self.command.first().is_some_and(String::is_empty)
            || self.command.iter().any(|word| word.contains('\0'))
        {
            return Err("`command` must be a program and its arguments".into());
        }
        let timeout = self.timeout.map_or(Ok(TIMEOUT), |text| {
            let parsed = text.parse::<humantime::Duration>().ok().map(Duration::from);
            let timeout = parsed.filter(|timeout| !timeout.is_zero());
            timeout.ok_or_else(|| format!("`timeout`: {text:?} is no time such as \"60s\""))
        })?;
        let said = self.dir.to_string_lossy();
        let file = self.file.clone().unwrap_or_default();
        let id = RuleId::inbox("", "", &file, &said);
        let picks = self.file.clone().unwrap_or_else(|| "everything".into());
        let dir = base.join(&self.dir);
        let command = self.command;
        Ok(Rule { file: self.file, dir: InboxDir { id, picks, dir, command, timeout } })
    }
}

fn unusable(path: &Path, why: impl std::fmt::Display) -> Failure {
    let text = format!("{} cannot be used: {why}", path.display());
    Failure::new(Exit::Config, "CN0821", text)
}

impl NodeConfig {
    /// Reads a file, or the one in a directory. Paths in it are beside it.
    ///
    /// # Errors
    /// What is wrong with it (exit 78).
    pub fn read(path: &Path) -> Result<NodeConfig, Failure> {
        let file = if path.is_dir() { path.join(FILE_NAME) } else { path.into() };
        let text = std::fs::read_to_string(&file)
            .map_err(|e| unusable(&file, e).help("consign node init makes one"))?;
        let raw: Raw = toml::from_str(&text).map_err(|e| unusable(&file, e))?;
        let wrong = |what: &str, why: String| unusable(&file, format!("`{what}`: {why}"));
        if !is_node_id(&raw.id) {
            let why = "it is not 1 to 128 characters of A-Z a-z 0-9 . _ -";
            return Err(wrong("id", why.into()));
        }
        let fetches = raw.fetches.unwrap_or(4);
        if !(1..=32).contains(&fetches) {
            return Err(wrong("fetches", format!("{fetches} is not from 1 to 32")));
        }
        let relay = Relay::parse(&raw.relay).map_err(|why| wrong("relay", why))?;
        if relay.tls && raw.ca.is_none() {
            return Err(wrong("ca", "https needs the authority that signed the relay".into()));
        }
        let base = file.parent().unwrap_or(Path::new("."));
        let beside = |path: PathBuf| base.join(path);
        if raw.inbox.len() > RULES_MAX {
            let why = format!("{} rules are more than {RULES_MAX}", raw.inbox.len());
            return Err(wrong("inbox", why));
        }
        let rules = raw.inbox.into_iter().map(|rule| rule.rule(base));
        let inbox = rules.collect::<Result<Vec<Rule>, String>>();
        let inbox = inbox.map_err(|why| wrong("inbox", why))?;
        let own = beside(raw.dir.clone());
        let overlaps =
            |rule: &&Rule| rule.dir.dir.starts_with(&own) || own.starts_with(&rule.dir.dir);
        if let Some(rule) = inbox.iter().find(overlaps) {
            let why = format!("{} is within `dir`, or the other way round", rule.dir.dir.display());
            return Err(wrong("inbox", why));
        }
        let twice = |(at, rule): (usize, &Rule)| {
            inbox.iter().take(at).any(|other| other.dir.id == rule.dir.id)
        };
        if inbox.iter().enumerate().any(twice) {
            return Err(wrong("inbox", "a rule stands there twice".into()));
        }
        Ok(NodeConfig {
            id: raw.id,
            relay,
            ca: raw.ca.map(beside),
            key: beside(raw.key),
            dir: beside(raw.dir),
            fetches,
            inbox,
        })
    }

    /// The private key; refused when others can read it.
    ///
    /// # Errors
    /// When it cannot be used (exit 78).
    pub fn secret(&self) -> Result<[u8; 32], Failure> {
        let there = std::fs::metadata(&self.key).map_err(|e| unusable(&self.key, e))?;
        let mode = there.permissions().mode() & 0o7777;
        if mode & 0o077 != 0 {
            let text = format!("the private key {} has mode {mode:04o}", self.key.display());
            let help = format!("chmod 600 {}", self.key.display());
            return Err(Failure::new(Exit::Config, "CN0211", text).help(help));
        }
        let text = std::fs::read_to_string(&self.key).map_err(|e| unusable(&self.key, e))?;
        let lines: String = text.lines().filter(|line| !line.starts_with("-----")).collect();
        let bytes = STANDARD.decode(lines).ok();
        let secret = bytes.as_deref().and_then(|bytes| bytes.strip_prefix(&PKCS8));
        let secret = secret.and_then(|secret| <[u8; 32]>::try_from(secret).ok());
        secret.ok_or_else(|| unusable(&self.key, "it is no Ed25519 key in PEM (PKCS #8)"))
    }
}

/// A private key in PEM.
fn pem(secret: &[u8; 32]) -> String {
    let bytes = STANDARD.encode([PKCS8.as_slice(), secret].concat());
    format!("-----BEGIN PRIVATE KEY-----\n{bytes}\n-----END PRIVATE KEY-----\n")
}

/// Makes a node's directory: key and configuration. Returns its public key in base64.
///
/// # Errors
/// When something is there already, or cannot be written; nothing is left behind.
pub fn init(dir: &Path, id: &str, relay: &Relay, ca: Option<&Path>) -> Result<String, Failure> {
    let (config, key) = (dir.join(FILE_NAME), dir.join(KEY_NAME));
    for path in [&config, &key] {
        if path.symlink_metadata().is_ok() {
            let text = format!("{} is already there; nothing was changed", path.display());
            return Err(Failure::new(Exit::Failed, "CN0822", text)
                .help("init never overwrites: give another directory"));
        }
    }
    let failed = |path: &Path, e: std::io::Error| {
        let text = format!("{} could not be made: {e}", path.display());
        Failure::new(Exit::Failed, "CN0823", text)
    };
    let ca = match ca {
        None => String::new(),
        Some(ca) => {
            let ca = std::path::absolute(ca).map_err(|e| failed(ca, e))?;
            format!("ca = {}\n", toml::Value::from(ca.to_string_lossy().as_ref()))
        }
    };
    let text = format!(
        "# A node that picks shards up; run it with: consign node run DIR\n\
         id = \"{id}\"\n\
         relay = \"{relay}\"\n\
         {ca}\
         key = \"{KEY_NAME}\"\n\
         # Where shards go, as FILE/VERSION/SHARD.\n\
         dir = \"shards\"\n\
         # Fetches at a time.\n\
         fetches = 4\n\
         # What is stored as files elsewhere, and a program run on each; any number of these.\n\
         # [[inbox]]\n\
         # file = \"backups/*\"\n\
         # dir = \"/srv/backups\"\n\
         # command = [\"/usr/local/bin/index\", \"--new\"]\n\
         # timeout = \"60s\"\n"
    );
    let secret = random()?;
    let mut make = std::fs::DirBuilder::new();
    make.recursive(true).mode(0o755).create(dir).map_err(|e| failed(dir, e))?;
    let write = |path: &Path, text: &str, mode| {
        let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
        file.and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        })
        .map_err(|e| failed(path, e))
    };
    let made = write(&key, &pem(&secret), 0o600).and_then(|()| write(&config, &text, 0o644));
    if let Err(failure) = made {
        let _ = std::fs::remove_file(&key);
        let _ = std::fs::remove_file(&config);
        return Err(failure);
    }
    Ok(STANDARD.encode(sign::public_key(&secret)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_init_makes_is_what_run_reads() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("n");
        let relay = Relay::parse("https://relay.example:7410").unwrap();
        let public = init(&at, "edge-7", &relay, Some(Path::new("/etc/ca \"x\".pem"))).unwrap();
        let config = NodeConfig::read(&at).unwrap();
        assert_eq!((config.id.as_str(), &config.relay, config.fetches), ("edge-7", &relay, 4));
        assert_eq!(config.ca.as_deref(), Some(Path::new("/etc/ca \"x\".pem")));
        assert_eq!(config.dir, at.join("shards"));
        let secret = config.secret().unwrap();
        assert_eq!(STANDARD.encode(sign::public_key(&secret)), public);
        assert_eq!(NodeConfig::read(&at.join(FILE_NAME)).unwrap(), config);
        let mode = std::fs::metadata(&config.key).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(init(&at, "x", &relay, None).unwrap_err().code, "CN0822");
        std::fs::set_permissions(&config.key, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(config.secret().unwrap_err().code, "CN0211");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let read = |text: &str| {
            std::fs::write(dir.path().join(FILE_NAME), text).unwrap();
            NodeConfig::read(dir.path()).map_err(|f| (f.exit, f.code, f.message))
        };
        let good = "id='n'\nrelay='http://r'\nkey='k'\ndir='d'\n";
        assert!(read(good).is_ok());
        let bad = [
            (good.replace("'n'", "'n/m'"), "`id`"),
            (good.replace("http", "ftp"), "`relay`"),
            (good.replace("http", "https"), "`ca`"),
            (format!("{good}fetches=0"), "`fetches`"),
            (format!("{good}fetch=1"), "fetch"),
            (format!("{good}[[inbox]]\ndir='d/x'"), "`inbox`"),
            (format!("{good}[[inbox]]\ndir='.'"), "`inbox`"),
            (format!("{good}[[inbox]]\ndir='o'\n[[inbox]]\ndir='o'"), "twice"),
            (format!("{good}[[inbox]]\ndir='o'\ntimeout='soon'"), "timeout"),
            ("id='n'".into(), "relay"),
        ];
        for (text, word) in bad {
            let (exit, code, message) = read(&text).unwrap_err();
            assert_eq!((exit, code), (Exit::Config, "CN0821"));
            assert!(message.contains(word), "{message}");
        }
    }
}
