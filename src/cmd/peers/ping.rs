//! `consign peers ping`: whether a peer answers over the session there is.

use std::time::Duration;

use clap::Args;
use consign_core::segment::is_site_name;

use crate::admin::WAIT_MAX;
use crate::admin::shapes::Ping;
use crate::client::Api;
use crate::cmd::complete;
use crate::cmd::screen::Screen;
use crate::exit::{Exit, Failure};

/// A peer that is to answer.
#[derive(Args, Clone, Debug)]
pub struct PingArgs {
    /// Its name
    #[arg(value_name = "PEER", value_parser = name, add = complete::destinations())]
    peer: String,
    /// How long it may take, in whole seconds
    #[arg(long, value_name = "D", default_value = "5s", value_parser = wait)]
    timeout: Duration,
}

fn name(text: &str) -> Result<String, String> {
    if is_site_name(text) { Ok(text.into()) } else { Err("it is not a name for a site".into()) }
}

fn wait(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|e| e.to_string())?;
    let seconds = Duration::from_secs(time.as_secs());
    if seconds != time || seconds.is_zero() || seconds > WAIT_MAX {
        return Err(format!("it is not 1 to {} whole seconds", WAIT_MAX.as_secs()));
    }
    Ok(seconds)
}

/// Asks; exit 1 when it does not answer.
pub(super) fn run(
    args: &PingArgs,
    api: &mut Api,
    screen: &mut Screen<'_>,
) -> Result<Exit, Failure> {
    let PingArgs { peer, timeout } = args;
    let ping: Ping =
        api.json("POST", &format!("/v1/peers/{peer}/ping?wait={}", timeout.as_secs()))?;
    if screen.is_json() {
        screen.object(&ping)?;
    } else {
        screen.line(&sentence(&ping));
    }
    Ok(if ping.rtt_seconds.is_some() { Exit::Done } else { Exit::Failed })
}

fn sentence(ping: &Ping) -> String {
    let Ping { peer, up, rtt_seconds, problem, .. } = ping;
    match (rtt_seconds, up, problem.as_str()) {
        (Some(seconds), ..) => format!("{peer} answers after {}", millis(*seconds)),
        (None, true, why) => format!("{peer} does not answer: {why}"),
        (None, false, "") => format!("there is no session with {peer}"),
        (None, false, why) => format!("there is no session with {peer}: {why}"),
    }
}

fn millis(seconds: f64) -> String {
    let ms = seconds * 1e3;
    if ms < 10.0 { format!("{ms:.2} ms") } else { format!("{ms:.0} ms") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::client::testing::{Daemon, Say};
    use crate::cmd::screen::said;

    #[test]
    fn an_answer_is_done_and_anything_else_has_failed() {
        let cases = [
            (true, json!(0.000_42), "", "beta answers after 0.42 ms", Exit::Done),
            (true, json!(0.321), "", "beta answers after 321 ms", Exit::Done),
            (true, json!(null), "no answer within 5 s", "beta does not answer: ", Exit::Failed),
            (false, json!(null), "", "there is no session with beta", Exit::Failed),
            (false, json!(null), "connect: refused", "with beta: connect: ", Exit::Failed),
        ];
        for (up, rtt, problem, expected, exit) in cases {
            let daemon = Daemon::answering(move |request, _| {
                assert_eq!(request.target, "/v1/peers/beta/ping?wait=5");
                let shape = json!({"schema":"consign.ping/1","peer":"beta","up":up,
                    "rtt_seconds":rtt,"problem":problem});
                Say::json(200, shape)
            });
            let args = PingArgs { peer: "beta".into(), timeout: Duration::from_secs(5) };
            let (ended, heard) = said(false, |s| run(&args, &mut Api::new(&daemon.socket()), s));
            assert_eq!(ended, Ok(exit));
            assert!(heard.lines[0].contains(expected), "{heard:?}");
        }
    }

    #[test]
    fn a_wait_is_whole_seconds_that_a_client_can_wait() {
        assert_eq!(wait("50s"), Ok(WAIT_MAX));
        assert!(name("beta").is_ok() && name("beta/../status").is_err());
        for bad in ["51s", "0s", "500ms", "soon"] {
            assert!(wait(bad).is_err(), "{bad}");
        }
    }
}
