//! Verdicts as people and machines read them.

use std::fmt::Write as _;

use super::{Check, Checked, Verdict};
use crate::human::{self, Align};

/// A line for each check.
pub(super) fn text(checked: &Checked) -> String {
    let rows: Vec<Vec<String>> = checked
        .checks
        .iter()
        .map(|check| {
            let Check { check, subject, verdict, text, .. } = check;
            vec![verdict.word().into(), check.clone(), subject.clone(), text.clone()]
        })
        .collect();
    // The head has no titles: its line is empty.
    let table = human::table(&[("", Align::Left); 4], &rows);
    table.split_once('\n').map_or("", |(_, lines)| lines).trim_end().to_owned()
}

/// What Nagios reads: the verdict with the worst of it, then performance data; more lines follow for
/// everything that is not well.
pub(super) fn nagios(checked: &Checked) -> String {
    let bad: Vec<&Check> = checked.checks.iter().filter(|c| c.verdict != Verdict::Ok).collect();
    let worst = bad.iter().find(|check| check.verdict == checked.verdict);
    let of = match checked.checks.len() {
        1 => String::new(),
        n => format!(" ({} of {n} checks are well)", n - bad.len()),
    };
    let said = worst.map_or("everything is well", |check| &check.text);
    let mut line = format!("CONSIGN {} - ", checked.verdict.word().to_uppercase());
    if !checked.site.is_empty() {
        let _ = write!(line, "{}: ", checked.site);
    }
    // A bar begins the performance data.
    line += &(said.to_owned() + &of).replace('|', "/");
    let data: Vec<String> = checked.checks.iter().filter_map(performance).collect();
    if !data.is_empty() {
        let _ = write!(line, " | {}", data.join(" "));
    }
    for check in bad {
        let text = check.text.replace('|', "/");
        let _ = write!(line, "\n{}: {text}", check.verdict.word());
    }
    line
}

/// `'label'=value[unit];warning;critical;least`.
fn performance(check: &Check) -> Option<String> {
    let (value, warning, critical) = (check.value?, check.warning?, check.critical?);
    // Certificates are bad below a limit: a range without an upper end is written `limit:`.
    let end = if check.check == "certificate" { ":" } else { "" };
    let label = format!("{}_{}", check.check, check.subject).replace(['\'', '='], "_");
    Some(format!("'{label}'={value}{};{warning}{end};{critical}{end}", check.unit))
}

/// Metrics of the last run.
pub(super) fn prometheus(checked: &Checked) -> String {
    let mut page = String::from(
        "# HELP consign_check_verdict How well it is: 0 well, 1 warning, 2 critical, 3 unknown.\n\
         # TYPE consign_check_verdict gauge\n",
    );
    for check in &checked.checks {
        let number = check.verdict.number();
        let _ = writeln!(page, "consign_check_verdict{} {number}", labels(checked, check));
    }
    page += "# HELP consign_check_value What was measured: seconds, percent, or how many.\n\
             # TYPE consign_check_value gauge\n";
    for check in &checked.checks {
        if let Some(value) = check.value {
            let _ = writeln!(page, "consign_check_value{} {value}", labels(checked, check));
        }
    }
    page.trim_end().to_owned()
}

fn labels(checked: &Checked, check: &Check) -> String {
    let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let (site, subject) = (quoted(&checked.site), quoted(&check.subject));
    format!("{{site=\"{site}\",check=\"{}\",subject=\"{subject}\"}}", check.check)
}
