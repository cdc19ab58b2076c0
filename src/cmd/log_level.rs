//! `consign log-level`: how much the running site logs, and more or less of it for a while.

use std::path::Path;
use std::time::{Duration, SystemTime};

use clap::{Args, ValueEnum};

use super::screen::{Screen, standard};
use crate::admin::log_level::{CONFIGURED, FOR_MAX, LogShown, Logged};
use crate::client::Api;
use crate::exit::{Exit, Failure, Global};
use crate::human;

/// Shows how much the running site logs, or changes it without a word in the configuration.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "A reload and a restart bring the configured level back, and so does --for when it is over."
)]
pub struct LogLevelArgs {
    /// The least level from now on; nothing is changed without it
    #[arg(value_enum)]
    level: Option<Word>,
    /// How long, such as 10m; then the configured level holds again
    #[arg(long = "for", value_name = "DURATION", requires = "level", value_parser = lasting)]
    lasting: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Word {
    /// What somebody must act on
    Error,
    /// What an operator may act on
    Warn,
    /// What happens seldom
    Info,
    /// Every step of a segment
    Debug,
    /// Everything
    Trace,
    /// What the configuration says (log.level)
    Configured,
}

impl Word {
    fn word(self) -> &'static str {
        match self {
            Word::Error => "error",
            Word::Warn => "warn",
            Word::Info => "info",
            Word::Debug => "debug",
            Word::Trace => "trace",
            Word::Configured => CONFIGURED,
        }
    }
}

fn lasting(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|e| e.to_string())?;
    if time < Duration::from_secs(1) || time > FOR_MAX {
        return Err("it is not between 1s and 366 days".into());
    }
    Ok(time)
}

/// Runs it.
///
/// # Errors
/// When the daemon cannot be reached or refuses, and for `configured` with an end.
pub fn run(args: &LogLevelArgs, global: &Global, socket: &Path) -> Result<Exit, Failure> {
    let (method, target) = request(args)?;
    standard(global, |screen| {
        let shown: LogShown = Api::new(socket).json(method, &target)?;
        show(&shown, screen, SystemTime::now())
    })
}

fn request(args: &LogLevelArgs) -> Result<(&'static str, String), Failure> {
    let Some(level) = args.level else { return Ok(("GET", "/v1/log-level".into())) };
    let target = format!("/v1/log-level?level={}", level.word());
    match args.lasting {
        None => Ok(("POST", target)),
        Some(_) if level == Word::Configured => {
            let text = "the configured level has no end: leave --for out";
            Err(Failure::new(Exit::Usage, "CN0001", text))
        }
        Some(time) => Ok(("POST", format!("{target}&for={}", time.as_secs()))),
    }
}

fn show(shown: &LogShown, screen: &mut Screen<'_>, now: SystemTime) -> Result<Exit, Failure> {
    if screen.is_json() {
        screen.object(shown)?;
    } else {
        screen.line(&text(&shown.logged, now));
    }
    Ok(Exit::Done)
}

/// One line, also in `status`.
pub(super) fn text(logged: &Logged, now: SystemTime) -> String {
    let Logged { level, configured, asked, until, who } = logged;
    if !asked {
        return format!("log level {level}, as configured");
    }
    let end = match until {
        Some(at) => format!("{configured} again {}", human::until(at, now)),
        None => format!("until a reload or a restart; configured: {configured}"),
    };
    format!("log level {level} (asked by {who}), {end}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::screen::said;

    fn args(level: Option<Word>, seconds: Option<u64>) -> LogLevelArgs {
        LogLevelArgs { level, lasting: seconds.map(Duration::from_secs) }
    }

    #[test]
    fn what_is_asked_for_is_in_the_request() {
        let of = |level, seconds| request(&args(level, seconds)).map_err(|failure| failure.exit);
        assert_eq!(of(None, None), Ok(("GET", "/v1/log-level".into())));
        let (method, target) = of(Some(Word::Debug), Some(600)).expect("a request");
        assert_eq!((method, target.as_str()), ("POST", "/v1/log-level?level=debug&for=600"));
        let (_, target) = of(Some(Word::Configured), None).expect("a request");
        assert_eq!(target, "/v1/log-level?level=configured");
        assert_eq!(of(Some(Word::Configured), Some(1)), Err(Exit::Usage));
    }

    #[test]
    fn times_are_whole_and_bounded() {
        assert_eq!(lasting("10m"), Ok(Duration::from_secs(600)));
        for bad in ["0s", "999ms", "367days", "soon"] {
            assert!(lasting(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn one_line_says_what_holds_and_until_when() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_796_064_000);
        let mut logged =
            Logged { level: "info".into(), configured: "info".into(), ..Logged::default() };
        assert_eq!(text(&logged, now), "log level info, as configured");
        (logged.level, logged.asked, logged.who) = ("debug".into(), true, "uid:1000".into());
        let want =
            "log level debug (asked by uid:1000), until a reload or a restart; configured: info";
        assert_eq!(text(&logged, now), want);
        logged.until =
            Some(consign_core::http::rfc3339(consign_core::time::UnixMillis(1_796_064_600_000)));
        assert_eq!(text(&logged, now), "log level debug (asked by uid:1000), info again in 10 min");
        let shown = LogShown { schema: LogShown::SCHEMA.into(), logged };
        let (exit, heard) = said(true, |screen| show(&shown, screen, now));
        assert_eq!(exit, Ok(Exit::Done));
        assert!(heard.lines[0].contains("\"level\":\"debug\""), "{heard:?}");
    }
}
