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
use signal_hook::consts::{SIGHUP, SIGTERM, SIGWINCH};

use super::events;
use super::status::{self, StatusArgs};
use crate::admin::shapes::Status;
use crate::client::Api;
use crate::events::EventPage;
use crate::exit::{Exit, Failure, Global};

/// Shows the site and its peers on the whole terminal; q or Ctrl-C ends it, ? shows all keys.
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
        let help = "`consign status -w` says the same line by line";
        return Err(Failure::new(Exit::Usage, "CN0002", message).help(help));
    }
    let mut api = Api::new(socket);
    // The first answer comes before the screen changes: a failure is told where it can be read.
    let mut now: Status = api.json("GET", "/v1/status")?;
    let heard = Heard::new()?;
    let terminal = Terminal::take()?;
    let mut last: Option<(Status, Instant)> = None;
    let (mut first, mut keys) = (0, false);
    loop {
        let asked = Instant::now();
        let before = last.as_ref().map(|(status, at)| (status, asked.duration_since(*at)));
        let told = events::newest(&mut api, terminal.size().0)?;
        loop {
            let size = terminal.size();
            let text = status::text(&now, before, SystemTime::now(), &global.address);
            let shown = if keys { KEYS } else { &text };
            let page = page(shown, &told, SystemTime::now(), size, first);
            first = page.first;
            terminal.draw(&page.lines)?;
            match wish(asked + args.every, &heard) {
                Wish::End => return Ok(Exit::Done),
                Wish::Look => break,
                Wish::Draw => {}
                Wish::Keys => (keys, first) = (!keys, 0),
                Wish::Move(by) => first = first.saturating_add_signed(by),
                Wish::Turn(by) => {
                    let rows = isize::try_from(size.0.saturating_sub(2)).unwrap_or(1).max(1);
                    first = first.saturating_add_signed(by.saturating_mul(rows));
                }
            }
        }
        last = Some((now, asked));
        now = api.json("GET", "/v1/status")?;
    }
}

/// What `?` shows.
const KEYS: &str = "\
q, Ctrl-C        ends it
j, k, arrows     a line down or up, where there is more than fits
blank, b, pages  a screen down or up
?                shows these keys, and the site again";

/// What signals have said.
#[derive(Default)]
struct Heard {
    /// It is to end.
    ended: Arc<AtomicBool>,
    /// The terminal has another size.
    resized: Arc<AtomicBool>,
}

impl Heard {
    fn new() -> Result<Heard, Failure> {
        let heard = Heard::default();
        let signals = [(SIGTERM, &heard.ended), (SIGHUP, &heard.ended), (SIGWINCH, &heard.resized)];
        for (signal, flag) in signals {
            signal_hook::flag::register(signal, Arc::clone(flag)).map_err(|e| trouble(&e))?;
        }
        Ok(heard)
    }

    /// What that comes to now.
    fn wish(&self) -> Option<Wish> {
        match self.ended.load(Ordering::Relaxed) {
            true => Some(Wish::End),
            false => self.resized.swap(false, Ordering::Relaxed).then_some(Wish::Draw),
        }
    }
}

fn trouble(e: &dyn std::fmt::Display) -> Failure {
    Failure::new(Exit::Failed, "CN0003", format!("the terminal cannot be used: {e}"))
}

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    /// Look again.
    Look,
    /// Show the same anew.
    Draw,
    /// Show the keys, or the site again.
    Keys,
    /// So many lines down.
    Move(isize),
    /// So many screens down.
    Turn(isize),
    /// Nothing any more.
    End,
}

/// Waits for the next look, a key or a signal.
fn wish(until: Instant, heard: &Heard) -> Wish {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if let Some(wish) = heard.wish() {
            return wish;
        }
        if left.is_zero() {
            return Wish::Look;
        }
        let stdin = io::stdin();
        let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
        let wait = Timespec::try_from(left).ok();
        // A signal ends the wait early, and what it said is looked at again.
        if poll(&mut fds, wait.as_ref()) == Ok(1)
            && let Some(wish) = wished(&keys())
        {
            return wish;
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

/// What keys ask for: q, Ctrl-C or Ctrl-D end it; j, k, the arrows, blank, b and the page keys move.
fn wished(keys: &[u8]) -> Option<Wish> {
    if keys.iter().any(|key| matches!(key, b'q' | b'Q' | 3 | 4)) {
        return Some(Wish::End);
    }
    match keys {
        b"j" | b"\x1b[B" | b"\x1bOB" => Some(Wish::Move(1)),
        b"k" | b"\x1b[A" | b"\x1bOA" => Some(Wish::Move(-1)),
        b"?" | b"h" => Some(Wish::Keys),
        b" " | b"\x1b[6~" => Some(Wish::Turn(1)),
        b"b" | b"\x1b[5~" => Some(Wish::Turn(-1)),
        _ => None,
    }
}

/// What is on the screen: as many lines as it has, none longer than it is wide.
struct Page {
    lines: Vec<String>,
    /// The line of the status that is the first one on it.
    first: usize,
}

/// A status whole, on more lines where it is wider than the screen, and below it what happened lately; what is longer than
/// the screen is shown from line `first` on.
fn page(
    text: &str,
    told: &EventPage,
    at: SystemTime,
    (rows, columns): (usize, usize),
    first: usize,
) -> Page {
    let all: Vec<String> = text.lines().flat_map(|line| wrapped(line, columns)).collect();
    let room = rows.saturating_sub(1);
    let first = first.min(all.len().saturating_sub(room));
    let mut lines: Vec<String> = all.iter().skip(first).take(room).cloned().collect();
    let mut foot = format!("{}   q ends, ? keys", events::clock(at));
    if all.len() > room {
        let last = first + lines.len();
        foot += &format!("   lines {} to {last} of {}: j, k, blank, b", first + 1, all.len());
    } else if room > lines.len() + 2 {
        // A blank line, and the newest of what happened in the rest, with a blank line below it.
        lines.push(String::new());
        lines.extend(newest(told, room - lines.len() - 1, columns));
    }
    lines.resize(room, String::new());
    lines.push(foot.chars().take(columns).collect());
    lines.truncate(rows);
    Page { lines, first }
}

/// The newest events, each of them whole, in at most so many lines.
fn newest(told: &EventPage, room: usize, columns: usize) -> Vec<String> {
    let mut parts: Vec<Vec<String>> = Vec::new();
    let mut left = room;
    for event in told.events.iter().rev() {
        let lines = wrapped(&events::line(event), columns);
        let Some(less) = left.checked_sub(lines.len()) else { break };
        left = less;
        parts.push(lines);
    }
    parts.into_iter().rev().flatten().collect()
}

/// Columns that the rest of a line is moved in by.
const INDENT: usize = 6;

/// A line as several that are not longer than so many columns, between words where that is possible.
fn wrapped(line: &str, columns: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest: Vec<char> = line.chars().collect();
    let indent = if columns > 2 * INDENT { INDENT } else { 0 };
    while rest.len() > columns && columns > 0 {
        let begins = rest.iter().take_while(|c| **c == ' ').count();
        let blank = rest[..=columns].iter().rposition(|c| *c == ' ').filter(|at| *at > begins);
        let at = blank.unwrap_or(columns);
        let tail = rest.split_off(at);
        let head: String = rest.into_iter().collect();
        lines.push(head.trim_end().to_owned());
        let words = tail.into_iter().skip_while(|c| *c == ' ');
        rest = std::iter::repeat_n(' ', indent).chain(words).collect();
    }
    lines.push(rest.into_iter().collect());
    lines
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
    use crate::advice::Address;
    use crate::events::Event;
    use crate::human;

    fn in_words(status: &Status) -> String {
        let now = human::moment("2026-11-30T18:44:07.000Z").unwrap();
        status::text(status, None, now, &Address::default())
    }

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
        page(&in_words(&status), &told(events), now, (rows, columns), 0).lines
    }

    #[test]
    fn the_screen_is_filled_and_never_more() {
        let lines = shown(8, 200, 9);
        assert_eq!(lines.len(), 8);
        assert!(lines[0].starts_with("alpha"), "{lines:?}");
        assert_eq!(lines[1], "no peers");
        assert_eq!(lines[2], "");
        assert_eq!(lines[5], "     9  18:44:05  event 9", "the newest is the last");
        assert_eq!(lines[6..], ["", "18:44:07   q ends, ? keys"]);
        for (rows, columns) in [(1, 40), (2, 40), (3, 40), (4, 40), (9, 3), (5, 1), (30, 200)] {
            let lines = shown(rows, columns, 9);
            assert_eq!(lines.len(), rows);
            assert!(lines.iter().all(|line| line.chars().count() <= columns), "{lines:?}");
        }
    }

    #[test]
    fn what_is_wider_than_the_screen_goes_on_below_and_nothing_is_lost() {
        let now = human::moment("2026-11-30T18:44:07.000Z").unwrap();
        let files = "CN0314: the key in /etc/consign/pki/alpha.key does not fit the certificate in /etc/consign/pki/alpha.pem";
        let status = Status {
            name: "alpha".into(),
            clock_held: true,
            certificate_files: files.into(),
            ..Status::default()
        };
        let words = |text: &str| text.split_whitespace().map(String::from).collect::<Vec<_>>();
        let whole = words(&in_words(&status));
        for columns in [80, 40, 132] {
            let page = page(&in_words(&status), &told(3), now, (24, columns), 0);
            assert!(page.lines.iter().all(|line| line.chars().count() <= columns));
            assert!(words(&page.lines.join(" ")).starts_with(&whole), "{:?}", page.lines);
        }
        // On a screen too low for it, every line can be reached, and not more.
        let at = |first| page(&in_words(&status), &told(3), now, (4, 80), first);
        let (mut seen, mut first) = (Vec::new(), 0);
        loop {
            let page = at(first);
            assert!(page.lines[3].contains(" of ") && page.lines.len() == 4, "{:?}", page.lines);
            seen.push(page.lines[0].clone());
            if at(first + 1).first == page.first {
                seen.extend(page.lines[1..3].iter().cloned());
                break;
            }
            first += 1;
        }
        assert_eq!(words(&seen.join(" ")), whole);
        assert_eq!(at(usize::MAX).first, first);
    }

    #[test]
    fn lines_are_broken_between_words_and_long_words_anywhere() {
        assert_eq!(wrapped("short", 8), ["short"]);
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("abcdefghij", 4), ["abcd", "efgh", "ij"]);
        assert_eq!(
            wrapped("beta  down      a long error here", 20),
            ["beta  down      a", "      long error", "      here"]
        );
        assert_eq!(wrapped("", 4), [""]);
    }

    #[test]
    fn an_event_is_shown_whole_or_not_at_all() {
        let mut told = told(2);
        told.events[0].text = "x ".repeat(60);
        let lines = newest(&told, 2, 40);
        assert_eq!(lines, ["     2  18:44:05  event 2"]);
        assert!(newest(&told, 9, 40).len() > 3);
    }

    #[test]
    fn keys_that_end_it_and_keys_that_move() {
        let cases = [
            ("q", Some(Wish::End)),
            ("\u{3}", Some(Wish::End)),
            ("xQ", Some(Wish::End)),
            ("j", Some(Wish::Move(1))),
            ("\x1b[A", Some(Wish::Move(-1))),
            (" ", Some(Wish::Turn(1))),
            ("\x1b[5~", Some(Wish::Turn(-1))),
            ("?", Some(Wish::Keys)),
            ("x", None),
            ("", None),
        ];
        for (keys, wish) in cases {
            assert_eq!(wished(keys.as_bytes()), wish, "{keys:?}");
        }
    }

    #[test]
    fn another_size_is_drawn_at_once_and_the_end_goes_before_it() {
        let heard = Heard::default();
        assert_eq!(heard.wish(), None);
        heard.resized.store(true, Ordering::Relaxed);
        let soon = Instant::now() + Duration::from_secs(60);
        assert_eq!((wish(soon, &heard), heard.wish()), (Wish::Draw, None));
        heard.resized.store(true, Ordering::Relaxed);
        heard.ended.store(true, Ordering::Relaxed);
        assert_eq!(wish(soon, &heard), Wish::End);
    }

    #[test]
    fn keys_fit_a_narrow_screen() {
        assert!(KEYS.lines().all(|line| line.chars().count() <= 66));
        let now = human::moment("2026-11-30T18:44:07.000Z").unwrap();
        let page = page(KEYS, &told(0), now, (24, 66), 0);
        assert!(page.lines[0].starts_with("q, Ctrl-C"), "{:?}", page.lines);
    }

    #[test]
    fn a_page_overwrites_what_was_there() {
        let lines = ["a".to_string(), "b".to_string()];
        assert_eq!(drawn(&lines), "\x1b[Ha\x1b[K\r\nb\x1b[K\x1b[J");
    }
}
