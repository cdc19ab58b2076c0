//! A node's configuration: a few lines of TOML beside its key.

mod text;

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use consign_core::pickup::sign;

use crate::config::Faults;
use crate::exit::{Exit, Failure};
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

fn unusable(path: &Path, why: impl std::fmt::Display) -> Failure {
    let text = format!("{} cannot be used: {why}", path.display());
    Failure::new(Exit::Config, "CN0821", text)
}

impl NodeConfig {
    /// Reads a file, or the one in a directory. Paths in it are beside it.
    ///
    /// # Errors
    /// Everything that is wrong with it (exit 78).
    pub fn read(path: &Path) -> Result<NodeConfig, Faults> {
        let file = if path.is_dir() { path.join(FILE_NAME) } else { path.into() };
        match crate::config::read(&file) {
            Ok(text) => text::parse(&file, &text),
            Err(mut faults) => {
                for fault in &mut faults.faults {
                    fault.help = "`consign node init` makes one".into();
                }
                Err(faults)
            }
        }
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

    fn faults(text: &str) -> String {
        text::parse(Path::new("node.toml"), text)
            .map_err(|faults| faults.render(false))
            .unwrap_err()
    }

    const GOOD: &str = "id='n'\nrelay='http://r'\nkey='k'\ndir='d'\n";

    #[test]
    fn what_is_wrong_is_named() {
        assert!(text::parse(Path::new("node.toml"), GOOD).is_ok());
        let more = |lines: &str| format!("{GOOD}{lines}");
        let bad = [
            (GOOD.replace("'n'", "'n/m'"), "CN0205", "`id` is not 1 to 128"),
            (GOOD.replace("http", "ftp"), "CN0205", "`relay` cannot be used"),
            (GOOD.replace("http", "https"), "CN0207", "`ca` is missing: https"),
            (more("fetches=0"), "CN0206", "`fetches` must be"),
            (more("fetches='4'"), "CN0204", "`fetches` must be a whole number"),
            (more("[[inbox]]\ndir='d/x'"), "CN0209", "is within `dir`"),
            (more("[[inbox]]\ndir='.'"), "CN0209", "is within `dir`"),
            (more("[[inbox]]\ndir='o'\n[[inbox]]\ndir='o'"), "CN0208", "two rules"),
            (more("[[inbox]]\ndir='o'\ntimeout='soon'"), "CN0205", "`inbox.timeout`"),
            (more("[[inbox]]\ndir='o'\nfile='[a'"), "CN0205", "`inbox.file` is no pattern"),
            (more("[[inbox]]\ndir='o'\ncommand=['']"), "CN0205", "`inbox.command`"),
            (more("[[inbox]]\nfile='a'"), "CN0207", "`inbox.dir` is missing"),
            (more("inbox=1"), "CN0204", "`inbox` must be written as a section"),
            (more("id='m'"), "CN0208", "a key that stands there twice"),
        ];
        for (text, code, words) in bad {
            let said = faults(&text);
            assert!(said.starts_with(&format!("error[{code}]: ")), "{text}\n{said}");
            assert!(said.contains(words) && said.contains("1 error in node.toml"), "{said}");
        }
        let many = "[[inbox]]\ndir='x'\n".repeat(consign_core::inbox::RULES_MAX + 1);
        assert!(faults(&more(&many)).contains("more than"));
    }

    #[test]
    fn every_fault_is_shown_in_one_run_with_its_place_and_what_was_meant() {
        let text = "id = \"edge 7\"\nrelay = \"https://r:7410\"\nca = \"ca.pem\"\nkey = 'node.key'\n\
                    dri = \"shards\"\nfetches = 99\n\n[[inbox]]\ndir = \"/srv\"\ntimout = \"60s\"\n";
        let expected = r#"error[CN0205]: `id` is not 1 to 128 characters of A-Z a-z 0-9 . _ -
 --> node.toml:1:6
  |
1 | id = "edge 7"
  |      ^^^^^^^^ this

error[CN0203]: unknown key `dri`
 --> node.toml:5:1
  |
5 | dri = "shards"
  | ^^^ not a setting of nodes
  = help: a key with a similar name exists: `dir`

error[CN0206]: `fetches` must be at most 32
 --> node.toml:6:11
  |
6 | fetches = 99
  |           ^^ more than 32

error[CN0203]: unknown key `timout` in `[[inbox]]`
  --> node.toml:10:1
   |
10 | timout = "60s"
   | ^^^^^^ not a setting of nodes
   = help: a key with a similar name exists: `timeout`

4 errors in node.toml; nothing was changed or started
"#;
        assert_eq!(faults(text), expected);
    }

    #[test]
    fn a_file_that_is_not_there_says_what_makes_one() {
        let dir = tempfile::tempdir().unwrap();
        let failure = NodeConfig::read(dir.path()).unwrap_err().failure();
        assert_eq!((failure.exit, failure.code), (Exit::Config, "CN0201"));
        assert!(failure.help.contains("node init"), "{failure}");
    }
}
