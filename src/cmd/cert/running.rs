//! What a running site makes of files that were replaced, and how all that is said.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::CertDone;
use crate::admin::shapes::Status;
use crate::client::Api;
use crate::cmd::init::shown;
use crate::cmd::screen::Screen;
use crate::exit::{Exit, Failure};

/// How long a running site may take to see new files; it looks every five seconds.
const PATIENCE: Duration = Duration::from_secs(15);
/// Time between two questions.
const LOOK: Duration = Duration::from_millis(100);

/// What the running site does with new files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Running {
    /// It shows the new certificate.
    Taken,
    /// Nobody answers: they are taken at the next start.
    Away,
    /// It has not taken them so far; why, if it says so.
    Waiting(String),
}

impl Running {
    fn word(&self) -> &'static str {
        match self {
            Running::Taken => "taken",
            Running::Away => "not_running",
            Running::Waiting(_) => "waiting",
        }
    }
}

/// Waits until the running site shows the certificate, and says what was done.
pub(super) fn tell(
    mut done: CertDone,
    socket: &Path,
    screen: &mut Screen<'_>,
) -> Result<Exit, Failure> {
    let print = done.fingerprint.clone().unwrap_or_default();
    let until = Instant::now() + PATIENCE;
    let running = wait(&print, || {
        let asked = Api::new(socket).json::<Status>("GET", "/v1/status");
        if asked.is_ok() && Instant::now() < until {
            thread::sleep(LOOK);
        }
        (asked, Instant::now() >= until)
    });
    done.running = Some(running.word().into());
    say(&done, &running, screen)?;
    Ok(if matches!(running, Running::Waiting(_)) { Exit::Partly } else { Exit::Done })
}

/// `ask` gives an answer and whether it is to be the last.
pub(super) fn wait(
    print: &str,
    mut ask: impl FnMut() -> (Result<Status, Failure>, bool),
) -> Running {
    loop {
        let (asked, last) = ask();
        match asked {
            Err(e) if e.exit == Exit::Unreachable => return Running::Away,
            Err(e) => return Running::Waiting(e.message),
            Ok(status) => {
                let shown = status.certificates.iter().find(|c| c.certificate == "own");
                if shown.is_some_and(|own| own.fingerprint == print) {
                    return Running::Taken;
                }
                if last {
                    return Running::Waiting(status.certificate_files);
                }
            }
        }
    }
}

pub(super) fn say(
    done: &CertDone,
    running: &Running,
    screen: &mut Screen<'_>,
) -> Result<(), Failure> {
    if screen.is_json() {
        return screen.object(done);
    }
    let verb = if done.action == "renew" { "Renewed" } else { "Installed" };
    let files: Vec<String> = done.files.iter().map(|file| shown(Path::new(file))).collect();
    screen.line(&format!(
        "{verb} the certificate of {}, valid until {}\n  replaced     {}\n  fingerprint  {}",
        done.name,
        done.expires.clone().unwrap_or_default(),
        files.join(", "),
        done.fingerprint.clone().unwrap_or_default()
    ));
    screen.advise(match running {
        Running::Taken => "The running site has taken it: whoever connects from now on is shown it",
        Running::Away => "No site runs here: it is taken at the next start",
        Running::Waiting(_) => {
            "The running site has not taken it so far; `consign status` says why"
        }
    });
    if let Running::Waiting(why) = running
        && !why.is_empty()
    {
        screen.problem(&format!("warning: {why}"));
    }
    screen.note("Peers that pin this site's certificate need the new fingerprint");
    Ok(())
}
