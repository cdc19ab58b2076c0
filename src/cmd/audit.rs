//! `consign audit`: who did what, to how much, and why.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;

use super::screen::{Progress, Screen, standard};
use crate::admin::lists::{Audit, Record};
use crate::client::Api;
use crate::exit::{Exit, Failure, Global};
use crate::human::{self, Align};

/// Records of a page that is asked for.
const PAGE: u64 = 1_000;

/// Shows who did what and why, and what the site removed by itself.
#[derive(Args, Clone, Debug)]
pub struct AuditArgs {
    /// Only what happened within this time
    #[arg(long, value_name = "D", default_value = "7d", value_parser = humantime::parse_duration)]
    pub since: Duration,
}

/// Runs it.
///
/// # Errors
/// When the daemon cannot be reached or refuses.
pub fn run(args: AuditArgs, global: &Global, socket: &Path) -> Result<Exit, Failure> {
    standard(global, |screen| list(&args, &mut Api::new(socket), screen, SystemTime::now()))
}

fn list(
    args: &AuditArgs,
    api: &mut Api,
    screen: &mut Screen<'_>,
    now: SystemTime,
) -> Result<Exit, Failure> {
    let since = now.checked_sub(args.since).and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    let since = since.map_or(0, |at| at.as_millis());
    let (mut after, mut rows) = (None, Vec::new());
    let (mut progress, mut seen) = (Progress::new(screen, "Listing", None), 0);
    loop {
        let mut target = format!("/v1/audit?limit={PAGE}&since={since}");
        if let Some(after) = after {
            target.push_str(&format!("&after={after}"));
        }
        let page: Audit = api.json("GET", &target)?;
        for record in &page.records {
            if screen.is_json() {
                screen.object(record)?;
            } else {
                rows.push(row(record));
            }
        }
        seen += page.records.len() as u64;
        progress.show(screen, 0, (seen, 0));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    progress.done();
    if !screen.is_json() && rows.is_empty() {
        screen.note("nothing is recorded within this time");
    } else if !screen.is_json() {
        screen.line(human::table(&HEAD, &rows).trim_end());
    }
    Ok(Exit::Done)
}

const HEAD: [(&str, Align); 7] = [
    ("WHEN", Align::Left),
    ("WHO", Align::Left),
    ("ACTION", Align::Left),
    ("SUBJECT", Align::Left),
    ("COUNT", Align::Right),
    ("SIZE", Align::Right),
    ("WHY", Align::Left),
];

fn row(record: &Record) -> Vec<String> {
    let hex = record.subject.len() == 64 && record.subject.bytes().all(|b| b.is_ascii_hexdigit());
    vec![
        record.at.clone(),
        if record.who.is_empty() { "the site".into() } else { record.who.clone() },
        record.action.clone(),
        if hex { super::ls::short(&record.subject) } else { record.subject.clone() },
        record.count.to_string(),
        human::bytes(record.bytes),
        record.reason.clone(),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::client::testing::{Daemon, Say};
    use crate::cmd::screen::said;

    #[test]
    fn pages_follow_each_other_and_the_time_is_told() {
        let daemon = Daemon::answering(|request, _| {
            let record = |number: u64, who: &str, subject: &str| {
                json!({"schema":"consign.audit_record/1","number":number,
                    "at":"2026-11-30T18:44:05.000Z","who":who,"action":"retry","subject":subject,
                    "reason":"limit raised","count":34,"bytes":3_u64 << 30})
            };
            assert!(request.target.contains("&since=1796064245000"), "{}", request.target);
            let (records, next) = match request.target.ends_with("&after=1") {
                false => (vec![record(1, "uid:1000", "peer=gamma")], json!(1)),
                true => (vec![record(2, "", &"3fa9c17be204".repeat(6)[..64])], json!(null)),
            };
            Say::json(200, json!({"schema":"consign.audit/1","records":records,"next":next}))
        });
        let now = human::moment("2026-12-07T18:44:05.000Z").unwrap();
        let args = AuditArgs { since: Duration::from_secs(7 * 86_400) };
        let (exit, said) = said(false, |s| list(&args, &mut Api::new(&daemon.socket()), s, now));
        assert_eq!(exit, Ok(Exit::Done));
        let expected = "\
WHEN                      WHO       ACTION  SUBJECT       COUNT     SIZE  WHY
2026-11-30T18:44:05.000Z  uid:1000  retry   peer=gamma       34  3.0 GiB  limit raised
2026-11-30T18:44:05.000Z  the site  retry   3fa9c17be204     34  3.0 GiB  limit raised";
        assert_eq!(said.lines, [expected]);
    }
}
