//! `consign reload`: the running site reads its configuration again.

use std::path::Path;

use super::screen::{Screen, standard};
use crate::admin::reloads::Reloaded;
use crate::client::Api;
use crate::exit::{Exit, Failure, Global};

/// Runs it.
///
/// # Errors
/// When the daemon cannot be reached or refuses.
pub fn run(global: &Global, socket: &Path) -> Result<Exit, Failure> {
    let reloaded: Reloaded = Api::new(socket).json("POST", "/v1/reload")?;
    standard(global, |screen| show(&reloaded, screen))
}

fn show(reloaded: &Reloaded, screen: &mut Screen<'_>) -> Result<Exit, Failure> {
    if !reloaded.ok {
        if screen.is_json() {
            screen.problem(&reloaded.error.to_string());
        } else {
            screen.problem(reloaded.text.trim_end());
        }
        return Ok(Exit::Config);
    }
    if screen.is_json() {
        screen.object(reloaded)?;
        return Ok(Exit::Done);
    }
    for changed in &reloaded.changed {
        screen.line(&format!("changed: {}", changed.text));
    }
    for key in &reloaded.restart {
        screen.line(&format!("needs restart: {key}"));
    }
    if reloaded.certificates {
        screen.line("certificates were replaced");
    }
    for warning in &reloaded.warnings {
        screen.note(&format!("warning[CN0309]: {warning}"));
    }
    if reloaded.changed.is_empty() && reloaded.restart.is_empty() && !reloaded.certificates {
        screen.line("nothing has changed");
    }
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::admin::reloads::ChangedKey;
    use crate::cmd::screen::said;

    fn taken() -> Reloaded {
        let changed = ChangedKey {
            key: "relay.max_retries".into(),
            from: "8".into(),
            to: "9".into(),
            text: "relay.max_retries 8 -> 9".into(),
        };
        Reloaded {
            schema: Reloaded::SCHEMA.into(),
            ok: true,
            changed: vec![changed],
            restart: vec!["listen.web".into()],
            ..Reloaded::default()
        }
    }

    #[test]
    fn what_changed_and_what_needs_a_restart_is_said_line_by_line() {
        let (exit, heard) = said(false, |screen| show(&taken(), screen));
        assert_eq!(exit, Ok(Exit::Done));
        let lines = ["changed: relay.max_retries 8 -> 9", "needs restart: listen.web"];
        assert_eq!((heard.lines.as_slice(), heard.notes.len()), (&lines.map(String::from)[..], 0));
        let nothing = Reloaded { ok: true, ..Reloaded::default() };
        let (_, heard) = said(false, |screen| show(&nothing, screen));
        assert_eq!(heard.lines, ["nothing has changed"]);
        let (_, heard) = said(true, |screen| show(&taken(), screen));
        assert!(heard.lines[0].contains("\"restart\":[\"listen.web\"]"), "{heard:?}");
    }

    #[test]
    fn a_refusal_is_said_as_config_check_says_it_and_is_exit_78() {
        let error = json!({ "schema": "consign.error/1", "code": "CN0203" });
        let refused = Reloaded { error, text: "error[CN0203]: x\n".into(), ..Reloaded::default() };
        let (exit, heard) = said(false, |screen| show(&refused, screen));
        assert_eq!(exit, Ok(Exit::Config));
        assert_eq!(
            (heard.lines.len(), heard.notes.as_slice()),
            (0, &["error[CN0203]: x".into()][..])
        );
        let (exit, heard) = said(true, |screen| show(&refused, screen));
        assert_eq!(exit, Ok(Exit::Config));
        assert!(heard.notes[0].contains("\"CN0203\""), "{heard:?}");
    }
}
