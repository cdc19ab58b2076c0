//! What a command says: data to standard output, everything else to standard error.

use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::advice::Address;
use crate::exit::{Exit, Failure, Global};
use crate::{human, out};

/// Where lines go.
pub(super) struct Screen<'a> {
    line: &'a mut dyn FnMut(&str),
    note: &'a mut dyn FnMut(&str),
    json: bool,
    quiet: bool,
    verbose: bool,
    address: Address,
}

/// The process's own standard output and error.
pub(super) fn standard<T>(global: &Global, run: impl FnOnce(&mut Screen<'_>) -> T) -> T {
    let (mut line, mut note) = (out::line, out::note);
    run(&mut Screen::new(&mut line, &mut note, global))
}

impl<'a> Screen<'a> {
    pub(super) fn new(
        line: &'a mut dyn FnMut(&str),
        note: &'a mut dyn FnMut(&str),
        global: &Global,
    ) -> Screen<'a> {
        let verbose = global.verbose > 0;
        let address = global.address.clone();
        Screen { line, note, json: global.json, quiet: global.quiet, verbose, address }
    }

    /// How the site was named.
    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    /// Words of ours with the commands in them as the reader called this one. What others named is none of ours.
    pub(super) fn told(&self, text: &str) -> String {
        self.address.tell(text)
    }

    pub(super) fn is_json(&self) -> bool {
        self.json
    }

    /// A line of data for people.
    pub(super) fn line(&mut self, text: &str) {
        (self.line)(text);
    }

    /// The same with commands in it that are advice.
    pub(super) fn advise(&mut self, text: &str) {
        let told = self.told(text);
        (self.line)(&told);
    }

    /// An object, in one line. It says its schema, which is published: tests look at each that is printed.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub(super) fn object<T: Serialize>(&mut self, shape: &T) -> Result<(), Failure> {
        #[cfg(test)]
        assert_eq!(crate::schemas::tests::wrong(shape), [""; 0]);
        self.document(shape)
    }

    /// A JSON document that is no object of ours, such as a schema, in one line.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub(super) fn document<T: Serialize>(&mut self, value: &T) -> Result<(), Failure> {
        let text = serde_json::to_string(value)
            .map_err(|e| Failure::new(Exit::Failed, "CN0604", e.to_string()))?;
        (self.line)(&text);
        Ok(())
    }

    /// Something that is not data. With `--json` only what has a form is said.
    pub(super) fn note(&mut self, text: &str) {
        if !self.json && !self.quiet {
            let told = self.told(text);
            (self.note)(&told);
        }
    }

    /// Something for those who asked to be told more.
    pub(super) fn more(&mut self, text: &str) {
        if self.verbose {
            self.note(text);
        }
    }

    /// What is wrong, in words that somebody else has chosen; said however quiet one is.
    pub(super) fn problem(&mut self, text: &str) {
        (self.note)(text);
    }

    /// A failure of one of several things, while the others go on.
    pub(super) fn failure(&mut self, failure: &Failure) {
        let failure = failure.clone().told(&self.address);
        if self.json {
            (self.note)(&failure.json().to_string());
        } else {
            (self.note)(&failure.to_string());
        }
    }
}

/// What a command says, as text.
#[cfg(test)]
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) lines: Vec<String>,
    pub(super) notes: Vec<String>,
}

/// Runs with a screen that keeps what is said.
#[cfg(test)]
pub(super) fn said<T>(json: bool, run: impl FnOnce(&mut Screen<'_>) -> T) -> (T, Said) {
    addressed(Address::default(), json, run)
}

/// The same of a command that named its site.
#[cfg(test)]
pub(super) fn addressed<T>(
    address: Address,
    json: bool,
    run: impl FnOnce(&mut Screen<'_>) -> T,
) -> (T, Said) {
    let mut said = Said::default();
    let Said { lines, notes } = &mut said;
    let (mut line, mut note) =
        (|text: &str| lines.push(text.into()), |text: &str| notes.push(text.into()));
    let result = run(&mut Screen {
        line: &mut line,
        note: &mut note,
        json,
        quiet: false,
        verbose: true,
        address,
    });
    (result, said)
}

/// Progress of long work: a bar on a terminal, at most one line a second with `--json`.
pub(super) struct Progress {
    bar: ProgressBar,
    json: bool,
    what: &'static str,
    total: Option<u64>,
    last: Option<Instant>,
    began: Instant,
    /// What it is at, in words.
    says: String,
}

/// Progress with `--json`.
#[derive(Serialize)]
struct Line {
    schema: &'static str,
    what: &'static str,
    bytes: u64,
    total_bytes: Option<u64>,
    done: u64,
    of: u64,
    seconds: u64,
}

/// How often a JSON line may be written.
const EVERY: Duration = Duration::from_secs(1);
/// What is done so soon needs no bar: it would only flicker.
const SOON: Duration = Duration::from_millis(200);
/// How often work that tells nothing itself is looked at.
const TICK: Duration = Duration::from_millis(100);

/// Bytes that are done, things that are done, and things there are: 0 when nobody knows.
pub(super) type Far = (u64, (u64, u64));

/// Does work that shows nothing itself on a thread of its own; meanwhile `look` says how far it is.
pub(super) fn during<T: Send>(
    screen: &mut Screen<'_>,
    what: &'static str,
    total: Option<u64>,
    mut look: impl FnMut() -> Far,
    work: impl FnOnce() -> T + Send,
) -> T {
    let mut progress = Progress::new(screen, what, total);
    let (tell, told) = sync_channel(1);
    let done = std::thread::scope(|scope| {
        let worker = scope.spawn(move || drop(tell.send(work())));
        loop {
            match told.recv_timeout(TICK) {
                Ok(done) => return done,
                Err(RecvTimeoutError::Timeout) => {
                    let (bytes, things) = look();
                    progress.show(screen, bytes, things);
                }
                // It has panicked: so does whoever asked for it.
                Err(RecvTimeoutError::Disconnected) => match worker.join() {
                    Err(panic) => std::panic::resume_unwind(panic),
                    Ok(()) => unreachable!("it tells before it ends"),
                },
            }
        }
    });
    progress.done();
    done
}

impl Progress {
    /// `what` is the word in front; `total` the bytes there are, if known.
    pub(super) fn new(screen: &Screen<'_>, what: &'static str, total: Option<u64>) -> Progress {
        let target = if screen.json || screen.quiet {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr()
        };
        let bar = ProgressBar::with_draw_target(total, target);
        let form = if total.is_some() {
            "{prefix:<9} {bar:16.green/dim} {wide_msg}"
        } else {
            "{prefix:<9} {spinner} {elapsed}  {wide_msg}"
        };
        if let Ok(style) = ProgressStyle::with_template(form) {
            bar.set_style(style.progress_chars("█▓░"));
        }
        bar.set_prefix(what);
        let (json, began) = (screen.json, Instant::now());
        Progress { bar, json, what, total, last: None, began, says: String::new() }
    }

    /// So many bytes and so many of the things are done.
    pub(super) fn show(&mut self, screen: &mut Screen<'_>, bytes: u64, things: (u64, u64)) {
        if self.json {
            let now = Instant::now();
            if self.last.is_some_and(|last| now.duration_since(last) < EVERY) {
                return;
            }
            // Nothing is said of work that is done within a second.
            let silent = self.last.is_none() && now.duration_since(self.began) < EVERY;
            if !silent {
                self.last = Some(now);
                let line = Line {
                    schema: "consign.progress/1",
                    what: self.what,
                    bytes,
                    total_bytes: self.total,
                    done: things.0,
                    of: things.1,
                    seconds: self.began.elapsed().as_secs(),
                };
                // Numbers and plain words are always JSON.
                (screen.note)(&serde_json::to_string(&line).unwrap_or_default());
            }
            return;
        }
        if self.began.elapsed() < SOON {
            return;
        }
        self.bar.set_position(bytes);
        let rate = self.bar.per_sec();
        let mut text = message(bytes, self.total, rate as u64, self.bar.eta(), things);
        if !self.says.is_empty() {
            text =
                if text.is_empty() { self.says.clone() } else { format!("{text}  {}", self.says) };
        }
        self.bar.set_message(text);
    }

    /// Words that stand beside the numbers from now on; empty for none.
    pub(super) fn says(&mut self, text: String) {
        self.says = text;
    }

    /// Lines are printed while the bar is away.
    pub(super) fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }

    /// Takes the bar away.
    pub(super) fn done(&self) {
        self.bar.finish_and_clear();
    }
}

fn message(
    bytes: u64,
    total: Option<u64>,
    rate: u64,
    eta: Duration,
    (done, of): (u64, u64),
) -> String {
    let mut text = String::new();
    match total {
        Some(total) => {
            let percent = bytes.saturating_mul(100).checked_div(total).unwrap_or(100).min(100);
            let (part, all) = (human::bytes(bytes), human::bytes(total));
            text.push_str(&format!("{percent:>3} %  {part} of {all}"));
        }
        None if bytes > 0 => text.push_str(&human::bytes(bytes)),
        None => {}
    }
    let things = match (done, of) {
        (0, 0) | (_, 1) => String::new(),
        (done, 0) => human::thousands(done),
        (done, of) => format!("{done} of {of}"),
    };
    if !text.is_empty() && !things.is_empty() {
        text.push_str("  ");
    }
    text.push_str(&things);
    if rate > 0 {
        text.push_str(&format!("  {}", human::rate(rate)));
        if total.is_some_and(|total| bytes < total) {
            text.push_str(&format!("  eta {}", human::duration(eta)));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_in_words() {
        let (mib, gib) = (1 << 20, 1 << 30);
        let eta = Duration::from_secs(1);
        let text = message(812 * mib, Some(1229 * mib), 310 * mib, eta, (0, 1));
        assert_eq!(text, " 66 %  812 MiB of 1.2 GiB  310 MiB/s  eta 1.0 s");
        assert_eq!(message(gib, None, 0, eta, (0, 1)), "1.0 GiB");
        assert_eq!(message(0, None, 0, eta, (0, 0)), "");
        assert_eq!(message(0, None, 0, eta, (12_345, 0)), "12,345");
        assert_eq!(message(0, None, 0, eta, (3, 7)), "3 of 7");
        assert_eq!(message(0, Some(0), 0, eta, (3, 7)), "100 %  0 B of 0 B  3 of 7");
        assert_eq!(
            message(mib, Some(mib), mib, eta, (7, 7)),
            "100 %  1.0 MiB of 1.0 MiB  7 of 7  1.0 MiB/s"
        );
    }

    #[test]
    fn a_line_is_written_after_a_second_and_then_once_a_second() {
        let ((), heard) = said(true, |screen| {
            let mut progress = Progress::new(screen, "Checking", None);
            progress.show(screen, 1, (1, 0));
            progress.began = Instant::now().checked_sub(EVERY).expect("a second ago");
            progress.show(screen, 2, (2, 0));
            progress.show(screen, 3, (3, 0));
            progress.last = Instant::now().checked_sub(EVERY);
            progress.show(screen, 4, (4, 0));
        });
        let lines: Vec<serde_json::Value> =
            heard.notes.iter().map(|note| serde_json::from_str(note).expect("JSON")).collect();
        assert_eq!(lines.len(), 2, "{heard:?}");
        for (line, bytes) in lines.iter().zip([2, 4]) {
            assert_eq!(crate::schemas::tests::wrong(line), [""; 0]);
            assert_eq!((&line["bytes"], &line["of"]), (&bytes.into(), &0.into()));
        }
    }

    #[test]
    fn work_that_tells_nothing_is_looked_at_until_it_is_done() {
        let (look, looked) = sync_channel(8);
        let work = move || looked.iter().take(2).sum::<u64>();
        let mut looks = 0;
        let (sum, _) = said(true, |screen| {
            let look = || {
                looks += 1;
                let _ = look.try_send(looks);
                (looks, (0, 0))
            };
            during(screen, "Packing", None, look, work)
        });
        assert_eq!(sum, 3, "it ended by what the second look told it");
    }

    #[test]
    fn a_panic_of_the_work_is_the_commands() {
        let panicked = std::panic::catch_unwind(|| {
            said(true, |screen| during(screen, "Packing", None, || (0, (0, 0)), || panic!("gone")))
        });
        assert!(panicked.is_err());
    }
}
