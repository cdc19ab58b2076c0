//! `consign pickup clients`: who may upload.

use std::time::SystemTime;

use clap::{Args, Subcommand};
use consign_core::id::hex;
use consign_core::pickup::token::Token;
use serde::Serialize;

use super::nodes::target;
use super::{Why, act, name, told};
use crate::admin::pickup::lists::{Client, Clients};
use crate::client::Api;
use crate::cmd::complete;
use crate::cmd::screen::Screen;
use crate::exit::{Exit, Failure};
use crate::human::{self, Align};
use crate::pickup::random;

/// Lists clients that may upload, enrols and revokes them
#[derive(Subcommand, Clone, Debug)]
pub enum ClientsCommand {
    /// Lists them
    Ls,
    /// Lets a client upload, and prints its bearer token: this once; enrolled again it gets a new one
    Enrol(ClientArgs),
    /// Takes a client's token back
    Revoke(ClientArgs),
}

/// A client.
#[derive(Args, Clone, Debug, Default)]
pub struct ClientArgs {
    /// Its name
    #[arg(value_name = "NAME", value_parser = name, add = complete::clients())]
    name: String,
    #[command(flatten)]
    why: Why,
}

/// A token, with `--json`.
#[derive(Serialize)]
struct Enrolled<'a> {
    schema: &'static str,
    name: &'a str,
    token: &'a str,
}

pub(super) fn run(
    command: &ClientsCommand,
    api: &mut Api,
    screen: &mut Screen<'_>,
    now: SystemTime,
) -> Result<Exit, Failure> {
    match command {
        ClientsCommand::Ls => list(api, screen, now),
        ClientsCommand::Enrol(args) => enrol(args, api, screen),
        ClientsCommand::Revoke(args) => {
            let acted = act(api, "revoke_client", &args.name, &args.why, |_| {})?;
            let done = match acted.changed {
                true => format!("{} is revoked", args.name),
                false => format!("{} was revoked before", args.name),
            };
            told(&acted, &done, screen)
        }
    }
}

/// The token is drawn here, and the site is told its hash only: nobody else ever has it.
fn enrol(args: &ClientArgs, api: &mut Api, screen: &mut Screen<'_>) -> Result<Exit, Failure> {
    let token = Token::new(random()?);
    let hash = hex(&token.hash().0);
    act(api, "enrol_client", &args.name, &args.why, |request| {
        request.token_sha256 = Some(hash);
    })?;
    let token = token.text();
    if screen.is_json() {
        let schema = "consign.client_token/1";
        screen.object(&Enrolled { schema, name: &args.name, token: &token })?;
    } else {
        screen.line(&token);
        screen.note(&format!(
            "{} may upload with this bearer token; it is not shown again",
            args.name
        ));
    }
    Ok(Exit::Done)
}

fn list(api: &mut Api, screen: &mut Screen<'_>, now: SystemTime) -> Result<Exit, Failure> {
    let (mut after, mut rows): (Option<String>, _) = (None, Vec::new());
    loop {
        let page: Clients = api.json("GET", &target("clients", after.as_deref()))?;
        for client in &page.clients {
            if screen.is_json() {
                screen.object(client)?;
            } else {
                rows.push(row(client, now));
            }
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    if !screen.is_json() {
        match rows.is_empty() {
            true => screen.note("no clients are enrolled"),
            false => screen.line(human::table(&HEAD, &rows).trim_end()),
        }
    }
    Ok(Exit::Done)
}

const HEAD: [(&str, Align); 3] =
    [("CLIENT", Align::Left), ("STATE", Align::Left), ("ENROLLED", Align::Left)];

fn row(client: &Client, now: SystemTime) -> Vec<String> {
    let state = match &client.revoked_at {
        Some(at) => format!("revoked {}", human::ago(at, now)),
        None => "enrolled".into(),
    };
    vec![client.name.clone(), state, human::ago(&client.enrolled_at, now)]
}
