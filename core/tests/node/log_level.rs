//! How much is logged: asked for, for a while, and back to what is configured.

use std::time::Duration;

use consign_core::config::Config;
use consign_core::id::TransferNo;
use consign_core::node::{Answer, Input, LogAsked, LogLevel, LogWanted, Note, Question};
use consign_core::session::{SessionCommand, SessionEvent};

use crate::site::Site;

fn wanted(level: Option<LogLevel>, seconds: Option<u64>) -> LogWanted {
    LogWanted { level, lasting: seconds.map(Duration::from_secs), who: "uid:1000".into() }
}

/// Asks, and says what the answer has of it.
fn ask(site: &mut Site, wanted: LogWanted) -> Option<LogAsked> {
    let client = site.client();
    let question = Question::LogLevel(wanted);
    site.input(Input::Session(client, SessionEvent::Ask { ticket: TransferNo(3), question }));
    site.settle();
    let told = site.take_told(client).into_iter().find_map(|command| match command {
        SessionCommand::Answer { answer, .. } => match &*answer {
            Answer::Status(status) => Some(status.log.clone()),
            _ => None,
        },
        _ => None,
    });
    told.expect("an answer")
}

/// What the log was told since the last look.
fn told(site: &mut Site) -> Vec<(String, Option<LogLevel>, String)> {
    let notes = std::mem::take(&mut site.notes);
    let told = notes.into_iter().filter_map(|note| match note {
        Note::LogLevel { who, level, text } => Some((who, level, text)),
        _ => None,
    });
    told.collect()
}

fn records(site: &Site) -> Vec<[String; 3]> {
    let rows = crate::acts::audits(site).into_iter();
    rows.filter(|row| row.action == "log_level")
        .map(|row| [row.who, row.subject, row.reason])
        .collect()
}

#[test]
fn a_level_holds_for_its_time_and_then_the_configured_one_does() {
    let mut site = Site::new(&["beta"]);
    site.settle();
    let asked = ask(&mut site, wanted(Some(LogLevel::Debug), Some(600))).expect("it holds");
    assert_eq!((asked.level, asked.who.as_str()), (LogLevel::Debug, "uid:1000"));
    assert_eq!(asked.until, Some(site.now.wall.after(Duration::from_secs(600))));
    let who = "uid:1000".to_string();
    assert_eq!(told(&mut site), [(who, Some(LogLevel::Debug), "for 600 s".into())]);
    site.wait(Duration::from_secs(599));
    site.settle();
    assert_eq!(told(&mut site), [], "a second is left");
    let deadline = site.pump.node().next_deadline().expect("there is one");
    assert!(deadline <= site.now.mono.after(Duration::from_secs(1)), "it wakes up for it");
    site.wait(Duration::from_secs(1));
    site.settle();
    assert_eq!(told(&mut site), [(String::new(), None, "its time is over".into())]);
    assert_eq!(site.pump.node().status(site.now).log, None);
    let want = [["uid:1000", "debug", "for 600 s"], ["", "configured", "its time is over"]];
    assert_eq!(records(&site), want);
    site.audit();
}

#[test]
fn without_a_time_it_holds_until_somebody_asks_it_back_or_a_reload_is_taken() {
    let mut site = Site::new(&["beta"]);
    site.settle();
    assert_eq!(ask(&mut site, wanted(None, None)), None);
    assert_eq!(told(&mut site), [], "it was as configured");
    for back in [true, false] {
        assert!(ask(&mut site, wanted(Some(LogLevel::Trace), None)).is_some());
        site.wait(Duration::from_secs(1_000_000));
        site.settle();
        let until = site.pump.node().status(site.now).log.expect("it holds").until;
        assert_eq!((until, told(&mut site).len()), (None, 1));
        // Certificates alone end nothing, and neither does a reload that is refused.
        site.input(Input::Reconfigure { reload: 0, config: None, renew: true, reading: None });
        site.settle();
        assert_eq!(told(&mut site), []);
        if back {
            assert_eq!(ask(&mut site, wanted(None, None)), None);
        } else {
            let config: Config = site.pump.node().config().clone();
            let config = Some(Box::new(config));
            site.input(Input::Reconfigure { reload: 0, config, renew: false, reading: None });
            site.settle();
        }
        let why = if back { ("uid:1000", "asked back") } else { ("", "a reload") };
        assert_eq!(told(&mut site), [(why.0.to_string(), None, why.1.to_string())]);
    }
    assert_eq!(records(&site).len(), 4);
    site.audit();
}

#[test]
fn asked_again_the_newest_wish_and_its_time_count() {
    let mut site = Site::new(&["beta"]);
    site.settle();
    ask(&mut site, wanted(Some(LogLevel::Debug), Some(10)));
    let asked = ask(&mut site, wanted(Some(LogLevel::Warn), None)).expect("it holds");
    assert_eq!((asked.level, asked.until), (LogLevel::Warn, None));
    told(&mut site);
    site.wait(Duration::from_secs(60));
    site.settle();
    assert_eq!(told(&mut site), []);
}
