//! What became of a reading of the configuration, in words: for the log, the audit, `status` and events.

use consign_core::node::Reading;

use crate::admin::reloads::{Certificate, ChangedKey, Reloaded};
use crate::config::reload::Changed;
use crate::config::value::worded;
use crate::tls::Shown as Certificates;
use crate::tls::identity::date;

/// Most bytes of a record's words: a file may change in thousands of places.
const LONGEST: usize = 1_000;

/// Who asked for a reload that no client asked for.
pub(super) const SIGNAL: &str = "SIGHUP";

/// A reload for the audit and whoever watches.
pub(super) fn reading(report: &Reloaded) -> Reading {
    let (code, text) = match report.ok {
        false => refusal(report),
        true => (warning(report).to_owned(), taken(report)),
    };
    Reading {
        who: SIGNAL.into(),
        file: report.file.clone(),
        taken: report.ok,
        code,
        text: bounded(text),
        changes: u64::try_from(report.changed.len()).unwrap_or(u64::MAX),
    }
}

fn refusal(report: &Reloaded) -> (String, String) {
    let word = |name: &str| report.error[name].as_str().unwrap_or_default().to_owned();
    let each = report.error["errors"].as_array().into_iter().flatten();
    let each: Vec<&str> = each.filter_map(|error| error["message"].as_str()).collect();
    let code = word("code");
    let message = if each.is_empty() { word("message") } else { each.join("; ") };
    (code.clone(), format!("{code}: {message}"))
}

/// The code of what is left to do after it.
fn warning(report: &Reloaded) -> &'static str {
    match (report.restart.is_empty(), report.warnings.is_empty()) {
        (false, _) => "CN0543",
        (true, false) => "CN0309",
        (true, true) => "",
    }
}

fn taken(report: &Reloaded) -> String {
    let changed: Vec<&str> = report.changed.iter().map(|c| c.text.as_str()).collect();
    let parts = [
        (!changed.is_empty(), changed.join(", ")),
        (!report.restart.is_empty(), format!("needs restart: {}", report.restart.join(", "))),
        (report.certificates, "certificates were replaced".into()),
    ];
    let said: Vec<String> = parts.into_iter().filter(|(is, _)| *is).map(|(_, text)| text).collect();
    if said.is_empty() { "nothing has changed".into() } else { said.join("; ") }
}

fn bounded(text: String) -> String {
    match text.floor_char_boundary(LONGEST) {
        end if end < text.len() => format!("{} …", &text[..end]),
        _ => text,
    }
}

/// Certificate and key that were found to be others than before.
pub(super) fn renewed(file: String, certificates: &Certificates) -> Reading {
    let text = format!("certificate and key are new, valid until {}", date(certificates.own.1));
    Reading { file, taken: true, text, changes: 1, ..Reading::default() }
}

/// A changed key for those who asked.
pub(super) fn changed_key(changed: &Changed) -> ChangedKey {
    let text = changed.line();
    let Changed { key, from, to } = changed.clone();
    ChangedKey { key, from, to, text }
}

/// Writes a reading that was taken to the log.
pub(super) fn told(node: &str, report: &Reloaded) {
    for changed in &report.changed {
        tracing::info!(node, "changed: {}", changed.text);
    }
    for key in &report.restart {
        tracing::warn!(node, code = "CN0543", "needs restart: {key}");
    }
    for warning in &report.warnings {
        tracing::warn!(node, code = "CN0309", "{warning}");
    }
    let (changed, restart) = (report.changed.len(), report.restart.len());
    tracing::info!(node, changed, restart, "the configuration was read again");
}

/// Certificates for `status`.
pub(super) fn described(shown: &Certificates) -> Vec<Certificate> {
    let one = |certificate: &str, fingerprint: String, seconds: i64| Certificate {
        certificate: certificate.into(),
        expires: date(seconds),
        fingerprint,
        expires_seconds: seconds,
    };
    let own = one("own", worded(&shown.own.0), shown.own.1);
    let authority = shown.until.map(|until| one("authority", String::new(), until));
    std::iter::once(own).chain(authority).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn taken_with(changes: usize) -> Reloaded {
        let changed = |n: usize| {
            let (key, from, to) = (format!("relay.known_peers.p{n}.address"), "a:1", "b:1");
            changed_key(&Changed { key, from: from.into(), to: to.into() })
        };
        let changed = (0..changes).map(changed).collect();
        Reloaded { ok: true, file: "c.toml".into(), changed, ..Reloaded::default() }
    }

    #[test]
    fn what_changed_and_what_waits_is_in_one_line() {
        let mut report = taken_with(1);
        let changed = "relay.known_peers.p0.address a:1 -> b:1";
        let said = reading(&report);
        assert_eq!((said.taken, said.changes, said.code.as_str()), (true, 1, ""));
        assert_eq!((said.who.as_str(), said.file.as_str()), ("SIGHUP", "c.toml"));
        assert_eq!(said.text, changed);
        report.restart = vec!["listen.web".into(), "node.name".into()];
        let said = reading(&report);
        assert_eq!(said.text, format!("{changed}; needs restart: listen.web, node.name"));
        assert_eq!(said.code, "CN0543");
        assert_eq!(reading(&taken_with(0)).text, "nothing has changed");
    }

    #[test]
    fn a_refusal_names_its_code_and_ten_thousand_changes_stay_short() {
        let error = json!({"code": "CN0206", "message": "`relay.max_retries` is 0"});
        let said = reading(&Reloaded { error, ..Reloaded::default() });
        assert_eq!((said.taken, said.code.as_str()), (false, "CN0206"));
        assert_eq!(said.text, "CN0206: `relay.max_retries` is 0");
        let errors = json!([{"message": "one"}, {"message": "two"}]);
        let error = json!({"code": "CN0206", "message": "2 errors in c.toml", "errors": errors});
        let said = reading(&Reloaded { error, ..Reloaded::default() });
        assert_eq!(said.text, "CN0206: one; two", "what they are, not how many");
        let said = reading(&taken_with(10_000));
        assert_eq!(said.changes, 10_000);
        assert!(said.text.len() < LONGEST + 8 && said.text.ends_with(" …"), "{}", said.text);
    }
}
