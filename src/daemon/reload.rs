//! The configuration read again while the site runs: judged as a whole, compared, and applied as one swap, or the old one goes on untouched.
//!
//! One thread does it, when a client asks, at SIGHUP, and for certificate and key also when their files change: those are looked
//! at every few seconds, never the configuration itself. Whoever shakes hands after the swap goes by the new set; the node
//! learns of peers and limits by one input.

use std::collections::VecDeque;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use consign_core::config::Config;
use consign_core::driver::Reloader;
use consign_core::node::{Input, Reading};
use consign_core::store::Sink;
use consign_core::time::UnixMillis;

use super::reread::{changed_key, described, reading, renewed, told};
use crate::admin::reloads::{ChangedKey, Reloaded, Reloads};
use crate::config::effective::{Shown, effective, settled};
use crate::config::reload::{Difference, compare};
use crate::config::{self, Code, Faults, Layers, Settings};
use crate::exit::Failure;
use crate::service::Service;
use crate::tls::{Credentials, Judged, Live, Shown as Certificates};
use crate::{log, tls};

/// How often the files of certificate and key are looked at: seldom enough not to keep a processor awake.
const LOOK: Duration = Duration::from_secs(5);

/// What new sessions are made by, as it is now.
pub(super) type Shared<T> = Arc<RwLock<T>>;

/// Told what holds from now on, so that new sessions go by it.
pub(super) type Apply = Box<dyn Fn(&Settings) + Send + Sync>;

/// Reads again; one for each running site.
pub struct Rereader {
    inner: Arc<Inner>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Inner {
    layers: Layers,
    live: Live,
    reloads: Reloads,
    apply: Apply,
    service: Service,
    now: Mutex<Present>,
    wanted: Mutex<Wanted>,
    changed: Condvar,
    sink: OnceLock<Arc<dyn Sink>>,
}

/// What the site runs by.
struct Present {
    settings: Settings,
    shown: Vec<Shown>,
    certificates: Certificates,
    /// The files of certificate and key as they were when they were read last.
    stamps: Stamps,
    /// What was wrong with them then, so that it is said once.
    problem: Option<String>,
    /// The configuration was refused when it, and those files, were like this.
    refused: Option<(Stamp, Stamps)>,
}

#[derive(Default)]
struct Wanted {
    numbers: VecDeque<u64>,
    stopped: bool,
}

/// What tells one state of a file from another.
type Stamp = Option<(u64, u64, i64, i64, i64, i64)>;

/// Of authorities, certificate and key.
type Stamps = [Stamp; 3];

fn stamp(path: &Path) -> Stamp {
    let m = std::fs::metadata(path).ok()?;
    Some((m.ino(), m.size(), m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec()))
}

fn stamps(settings: &Settings) -> Stamps {
    let files = &settings.tls;
    [&files.ca, &files.cert, &files.key].map(|path| stamp(path))
}

impl Present {
    /// The files as they are now.
    fn seen(&self) -> (Stamp, Stamps) {
        (stamp(&self.settings.file), stamps(&self.settings))
    }
}

/// Why a reading is not taken.
enum Refused {
    Faults(Faults),
    Failure(Failure),
}

impl From<Faults> for Refused {
    fn from(faults: Faults) -> Refused {
        Refused::Faults(faults)
    }
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Refused {
        Refused::Failure(failure)
    }
}

impl Refused {
    fn report(&self, file: String) -> Reloaded {
        let (error, text) = match self {
            Refused::Faults(faults) => (faults.json(), faults.render(false)),
            Refused::Failure(failure) => (failure.json(), format!("{failure}\n")),
        };
        Reloaded { schema: Reloaded::SCHEMA.into(), file, error, text, ..Reloaded::default() }
    }

    fn failure(&self) -> Failure {
        match self {
            Refused::Faults(faults) => faults.failure(),
            Refused::Failure(failure) => failure.clone(),
        }
    }
}

/// A reading that was judged good as a whole.
struct Judgement {
    settings: Settings,
    shown: Vec<Shown>,
    difference: Difference,
    tls: Judged,
    stamps: Stamps,
}

impl Rereader {
    /// For a site that starts with these settings; `apply` is told of every change.
    pub(super) fn new(
        settings: &Settings,
        layers: Layers,
        loaded: &tls::Loaded,
        reloads: Reloads,
        apply: Apply,
        service: Service,
    ) -> Rereader {
        // Settings that were not read from a file have nothing to be compared with: everything counts as changed then.
        let text = config::read(&settings.file).unwrap_or_default();
        let shown = effective(&settings.file, &text, &layers).unwrap_or_default();
        reloads.taken(wall(), &settings.node, &[]);
        reloads.logs_at(settings.log.level);
        reloads.certificates(described(&loaded.shown));
        let now = Present {
            settings: settings.clone(),
            shown,
            certificates: loaded.shown.clone(),
            stamps: stamps(settings),
            problem: None,
            refused: None,
        };
        let inner = Inner {
            layers,
            live: loaded.live.clone(),
            reloads,
            apply,
            service,
            now: Mutex::new(now),
            wanted: Mutex::default(),
            changed: Condvar::new(),
            sink: OnceLock::new(),
        };
        Rereader { inner: Arc::new(inner), thread: Mutex::default() }
    }

    /// Asks for a reload that nobody waits for (SIGHUP).
    pub fn ask(&self) {
        self.reload(0);
    }
}

impl Reloader for Rereader {
    fn start(&self, sink: Arc<dyn Sink>) {
        let _ = self.inner.sink.set(sink);
        let inner = self.inner.clone();
        let thread = std::thread::Builder::new().name("reload".into()).spawn(move || inner.run());
        match thread {
            Ok(thread) => *lock(&self.thread) = Some(thread),
            Err(e) => {
                let text = "the configuration cannot be read again in this run";
                tracing::error!(code = "CN0514", "{text}: a thread cannot be started: {e}");
            }
        }
    }

    fn reload(&self, number: u64) {
        lock(&self.inner.wanted).numbers.push_back(number);
        self.inner.changed.notify_all();
    }

    fn stop(&self) {
        lock(&self.inner.wanted).stopped = true;
        self.inner.changed.notify_all();
        if let Some(thread) = lock(&self.thread).take() {
            let _ = thread.join();
        }
    }
}

impl Inner {
    fn run(&self) {
        loop {
            let waits = |wanted: &mut Wanted| !wanted.stopped && wanted.numbers.is_empty();
            let wanted = lock(&self.wanted);
            let waited = self.changed.wait_timeout_while(wanted, LOOK, waits);
            let (mut wanted, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if wanted.stopped {
                return;
            }
            let number = wanted.numbers.pop_front();
            drop(wanted);
            match number {
                Some(number) => self.reload(number),
                None => self.look_at_files(),
            }
        }
    }

    fn reload(&self, number: u64) {
        self.service.reloading();
        let mut now = lock(&self.now);
        let mut outcome = Ok(());
        // Before they are read: what changes from here on is another state of them.
        let seen = now.seen();
        let (report, config, renew) = match self.judge(&now) {
            Ok(judgement) => self.swap(&mut now, judgement),
            Err(refused) => {
                outcome = Err(refused.failure().code);
                now.refused = Some(seen);
                (self.refuse(&now, &refused), None, false)
            }
        };
        let outcome = outcome.map(|()| now.settings.node.peers.len());
        drop(now);
        let reading = reading(&report);
        if number > 0 {
            self.reloads.report(number, report);
        }
        self.tell(number, config, renew, Some(reading));
        self.service.reloaded(outcome);
    }

    fn tell(&self, reload: u64, config: Option<Config>, renew: bool, reading: Option<Reading>) {
        if let Some(sink) = self.sink.get() {
            let (config, reading) = (config.map(Box::new), reading.map(Box::new));
            sink.node(Input::Reconfigure { reload, config, renew, reading });
        }
    }

    /// Everything that can be wrong is found before anything is changed.
    fn judge(&self, now: &Present) -> Result<Judgement, Refused> {
        let file = &now.settings.file;
        let text = config::read(file)?;
        let (read, shown) = settled(file, &text, &self.layers)?;
        let (difference, shown) = compare(&now.shown, &shown);
        let settings = now.settings.with_live(&read);
        self.fits(&settings)?;
        let stamps = stamps(&settings);
        let tls = Credentials::read(&settings.tls)?.judge(&settings.node)?;
        Ok(Judgement { settings, shown, difference, tls, stamps })
    }

    /// New values beside those that stay until a restart.
    fn fits(&self, settings: &Settings) -> Result<(), Faults> {
        let faults = settings.node.faults();
        let Some(first) = faults.first() else { return Ok(()) };
        let message =
            format!("`{}` needs a restart before this can hold: {}", first.key, first.problem);
        let help = "`consign stop --wait`, then `consign serve`, takes everything at once";
        Err(Faults::whole(settings.file.clone(), Code::Conflict, message, help))
    }

    fn swap(&self, now: &mut Present, judgement: Judgement) -> (Reloaded, Option<Config>, bool) {
        let Judgement { settings, shown, difference, tls, stamps } = judgement;
        let warnings: Vec<String> = tls.warning.iter().cloned().collect();
        // Handshakes know of new peers before the node dials them.
        let (certificates, renew) = self.take(now, tls);
        let changed: Vec<ChangedKey> = difference.changed.iter().map(changed_key).collect();
        let report = Reloaded {
            schema: Reloaded::SCHEMA.into(),
            ok: true,
            file: settings.file.display().to_string(),
            changed,
            restart: difference.restart,
            certificates,
            warnings,
            ..Reloaded::default()
        };
        log::set_level(settings.log.level);
        self.reloads.logs_at(settings.log.level);
        (self.apply)(&settings);
        self.reloads.taken(wall(), &settings.node, &report.restart);
        let config = settings.node.clone();
        (now.settings, now.shown, now.stamps) = (settings, shown, stamps);
        (now.problem, now.refused) = (None, None);
        told(&config.name, &report);
        (report, Some(config), renew)
    }

    /// Handshakes go by these from now on. Whether they are others than before, and whether an authority is
    /// believed no longer.
    fn take(&self, now: &mut Present, tls: Judged) -> (bool, bool) {
        let renew = tls.shown.believes_less_than(&now.certificates);
        let differs = tls.shown != now.certificates;
        self.reloads.certificates(described(&tls.shown));
        now.certificates = tls.shown.clone();
        tls.replace(&self.live);
        (differs, renew)
    }

    fn refuse(&self, now: &Present, refused: &Refused) -> Reloaded {
        let failure = refused.failure();
        let node = now.settings.node.name.as_str();
        let (code, message) = (failure.code, &failure.message);
        tracing::error!(node, code, "the configuration stays as it was: {message}");
        self.reloads.refused(wall(), format!("{code}: {message}"));
        refused.report(now.settings.file.display().to_string())
    }

    /// What was refused may have been taken back: once the file says again what holds, nothing is left to warn of.
    /// Anything else in it waits for somebody to ask for a reload, like every change of it.
    fn look_at_refused(&self, now: &mut Present) {
        let Some(refused) = now.refused else { return };
        let seen = now.seen();
        if refused == seen {
            return;
        }
        now.refused = Some(seen);
        let Ok(judgement) = self.judge(now) else { return };
        let Difference { changed, restart } = &judgement.difference;
        let holds = changed.is_empty() && self.reloads.waits_for(restart);
        if holds && judgement.tls.shown == now.certificates {
            now.refused = None;
            self.reloads.withdrawn();
            let node = now.settings.node.name.as_str();
            tracing::info!(node, "the configuration file says what holds again");
        }
    }

    /// Certificate and key may have been replaced; what does not fit together (yet) leaves the last good set in use.
    fn look_at_files(&self) {
        let mut now = lock(&self.now);
        self.look_at_refused(&mut now);
        let found = stamps(&now.settings);
        if found == now.stamps && now.problem.is_none() {
            return;
        }
        let files = now.settings.tls.clone();
        let judged = Credentials::read(&files).and_then(|c| c.judge(&now.settings.node));
        let node = now.settings.node.name.clone();
        match judged {
            Ok(tls) => {
                now.stamps = found;
                now.problem = None;
                let warning = tls.warning.clone();
                let (differs, renew) = self.take(&mut now, tls);
                if let Some(warning) = warning.filter(|_| differs) {
                    tracing::warn!(node, code = "CN0309", "{warning}");
                }
                let reading = differs.then(|| {
                    let file = files.cert.display().to_string();
                    renewed(file, &now.certificates)
                });
                drop(now);
                if let Some(reading) = &reading {
                    tracing::info!(node, "{}", reading.text);
                }
                if renew || reading.is_some() {
                    self.tell(0, None, renew, reading);
                }
            }
            Err(failure) => {
                let problem = format!("{}: {}", failure.code, failure.message);
                if now.problem.as_ref() != Some(&problem) {
                    let (code, message) = (failure.code, &failure.message);
                    let text = "certificate and key stay as they were";
                    tracing::warn!(node, code, "{text}: {message}");
                }
                self.reloads.files_are(&problem);
                now.problem = Some(problem);
            }
        }
    }
}

fn wall() -> UnixMillis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMillis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
