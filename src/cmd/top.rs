//! `consign top`: the site at a glance, again and again, on a whole terminal.
//!
//! A few escape sequences are all it needs: another screen, the cursor's place, and keys without Enter.

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use clap::Args;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{self, OptionalActions, Termios};
use signal_hook::consts::{SIGHUP, SIGTERM};

use super::events;
use super::status::{self, StatusArgs};
use crate::admin::shapes::Status;
use crate::client::Api;
use crate::events::EventPage;
use crate::exit::{Exit, Failure, Global};

/// Shows the site and its peers on the whole terminal; q or Ctrl-C ends it.
#[derive(Args, Clone, Debug)]
pub struct TopArgs {
    /// How often it looks
    #[arg(short = 'd', long, value_name = "D", default_value = "2s", value_parser = status::interval)]
    pub every: Duration,
}

/// Runs it. With `--json` it says a status a line, as `status -w` does.
///
/// # Errors
/// When standard output is no terminal, or the daemon cannot be reached or refuses.
pub fn run(args: TopArgs, global: &Global, socket: &Path) -> Result<Exit, Failure> {
    if global.json {
        return status::run(StatusArgs { watch: Some(args.every) }, global, socket);
    }
    if !(io::stdout().is_terminal() && io::stdin().is_terminal()) {
        let message = "standard input and output must be a terminal";
        let help = "consign status -w says the same line by line";
        return Err(Failure::new(Exit::Usage, "CN0002", message).help(help));
    }
    let mut api = Api::new(socket);
    // The first answer comes before the screen changes: a failure is told where it can be read.
    let mut now: Status = api.json("GET", "/v1/status")?;
    let ended = ended()?;
    let terminal = Terminal::take()?;
    let mut last: Option<(Status, Instant)> = None;
    loop {
        let asked = Instant::now();
        let before = last.as_ref().map(|(status, at)| (status, asked.duration_since(*at)));
        let (rows, columns) = terminal.size();
        let told = events::newest(&mut api, rows)?;
        terminal.draw(&page(&now, before, &told, SystemTime::now(), (rows, columns)))?;
        if wants_end(args.every, &ended) {
            return Ok(Exit::Done);
        }
        last = Some((now, asked));
        now = api.json("GET", "/v1/status")?;
    }
}

/// Set once a signal asks for the end.
fn ended() -> Result<Arc<AtomicBool>, Failure> {
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&ended)).map_err(|e| trouble(&e))?;
    }
    Ok(ended)
}

fn trouble(e: &dyn std::fmt::Display) -> Failure {
    Failure::new(Exit::Failed, "CN0003", format!("the terminal cannot be used: {e}"))
}

/// Waits for the next look; whether a key or a signal ends it all instead.
fn wants_end(every: Duration, ended: &AtomicBool) -> bool {
    let until = Instant::now() + every;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if ended.load(Ordering::Relaxed) {
            return true;
        }
        if left.is_zero() {
            return false;
        }
        let stdin = io::stdin();
        let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
        let wait = Timespec::try_from(left).ok();
        // A signal ends the wait early, and the flag is looked at again.
        if poll(&mut fds, wait.as_ref()) == Ok(1) && is_end(&keys()) {
            return true;
        }
    }
}

/// What was typed.
fn keys() -> Vec<u8> {
    let mut keys = [0; 64];
    let read = rustix::io::read(io::stdin(), &mut keys).unwrap_or(0);
    // Nothing at all is the end of the input: the terminal has gone.
    if read == 0 { vec![b'q'] } else { keys[..read].to_vec() }
}

/// Whether one of the keys is q, Ctrl-C or Ctrl-D.
fn is_end(keys: &[u8]) -> bool {
    keys.iter().any(|key| matches!(key, b'q' | b'Q' | 3 | 4))
}

/// What is on the screen: as many lines as it has, none longer than it is wide.
fn page(
    now: &Status,
    before: Option<(&Status, Duration)>,
    told: &EventPage,
    at: SystemTime,
    (rows, columns): (usize, usize),
) -> Vec<String> {
    let mut lines: Vec<String> = status::text(now, before, at).lines().map(String::from).collect();
    let foot = format!("{}   q ends", events::clock(at));
    let room = rows.saturating_sub(2);
    lines.truncate(room);
    // A blank line, and the newest of what happened in the rest.
    if room > lines.len() + 1 {
        lines.push(String::new());
        let skip = told.events.len().saturating_sub(room - lines.len());
        lines.extend(told.events.iter().skip(skip).map(events::line));
    }
    lines.resize(rows.saturating_sub(1), String::new());
    lines.push(foot);
    lines.iter().map(|line| line.chars().take(columns).collect()).collect()
}

/// The terminal as long as it is ours; dropping it gives it back as it was.
struct Terminal {
    before: Termios,
}

impl Terminal {
    fn take() -> Result<Terminal, Failure> {
        let before = termios::tcgetattr(io::stdin()).map_err(|e| trouble(&e))?;
        let mut raw = before.clone();
        raw.make_raw();
        termios::tcsetattr(io::stdin(), OptionalActions::Now, &raw).map_err(|e| trouble(&e))?;
        let terminal = Terminal { before };
        // Another screen without a cursor.
        write("\x1b[?1049h\x1b[?25l").map_err(|e| trouble(&e))?;
        Ok(terminal)
    }

    /// Rows and columns.
    fn size(&self) -> (usize, usize) {
        match termios::tcgetwinsize(io::stdout()) {
            Ok(size) if size.ws_row > 0 && size.ws_col > 0 => {
                (size.ws_row.into(), size.ws_col.into())
            }
            Ok(_) | Err(_) => (24, 80),
        }
    }

    fn draw(&self, lines: &[String]) -> Result<(), Failure> {
        write(&drawn(lines)).map_err(|e| trouble(&e))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = write("\x1b[?25h\x1b[?1049l");
        let _ = termios::tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

/// Each line at its place, the rest of it blank: nothing flickers.
fn drawn(lines: &[String]) -> String {
    let mut text = String::from("\x1b[H");
    for (i, line) in lines.iter().enumerate() {
        let end = if i + 1 < lines.len() { "\r\n" } else { "" };
        text.push_str(&format!("{line}\x1b[K{end}"));
    }
    text.push_str("\x1b[J");
    text
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::Event;
    use crate::human;

    fn told(count: u64) -> EventPage {
        let event = |id| Event {
            id,
            at: "2026-11-30T18:44:05.000Z".into(),
            level: "info".into(),
            text: format!("event {id}"),
            ..Event::default()
        };
        EventPage { events: (1..=count).map(event).collect(), ..EventPage::default() }
    }

    fn shown(rows: usize, columns: usize, events: u64) -> Vec<String> {
        let now = human::moment("2026-11-30T18:44:07.000Z").unwrap();
        let status = Status { name: "alpha".into(), ..Status::default() };
        page(&status, None, &told(events), now, (rows, columns))
    }

    #[test]
    fn the_screen_is_filled_and_never_more() {
        let lines = shown(8, 40, 9);
        assert_eq!(lines.len(), 8);
        assert!(lines[0].starts_with("alpha"), "{lines:?}");
        assert!(lines.iter().all(|line| line.chars().count() <= 40), "{lines:?}");
        assert_eq!(lines[1], "no peers");
        assert_eq!(lines[2], "");
        assert_eq!(lines[5], "     9  18:44:05  event 9", "the newest is the last");
        assert_eq!(lines[7], "18:44:07   q ends");
        for rows in [1, 2, 3, 4] {
            assert_eq!(shown(rows, 40, 9).len(), rows);
        }
        assert_eq!(shown(30, 40, 1).len(), 30);
    }

    #[test]
    fn keys_that_end_it() {
        for (keys, end) in [("q", true), ("\u{3}", true), ("x", false), ("xQ", true), ("", false)] {
            assert_eq!(is_end(keys.as_bytes()), end, "{keys:?}");
        }
    }

    #[test]
    fn a_page_overwrites_what_was_there() {
        let lines = ["a".to_string(), "b".to_string()];
        assert_eq!(drawn(&lines), "\x1b[Ha\x1b[K\r\nb\x1b[K\x1b[J");
    }
}
