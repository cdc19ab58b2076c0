//! `consign pickup upload`: a file or standard input to a relay, for a node.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;
use consign_core::ledger::keys_pickup::ShardKey;
use consign_core::ledger::rows_pickup::ShardState;
use consign_core::pickup::token::Token;
use serde::Serialize;

use super::name;
use crate::cmd::complete;
use crate::cmd::screen::{Progress, Screen, standard};
use crate::exit::{Exit, Failure, Global};
use crate::human;
use crate::pickup::http::Target;
use crate::pickup::source::{FileSource, Source, Stream};
use crate::pickup::upload::{Done, Step, Upload};
use crate::pickup::url::Relay;

/// Environment variable with the bearer token.
const TOKEN: &str = "CONSIGN_PICKUP_TOKEN";

/// Hands a shard to a relay, which keeps it until its node fetches it
#[derive(Args, Clone, Debug)]
pub struct UploadArgs {
    /// The content: a file, or - for standard input
    #[arg(value_name = "FILE|-")]
    content: PathBuf,
    /// The relay
    #[arg(long = "to", value_name = "URL", value_parser = Relay::parse)]
    relay: Relay,
    /// The node it is for
    #[arg(long, value_name = "ID", value_parser = name, add = complete::nodes())]
    node: String,
    /// The file it is a part of
    #[arg(long, value_name = "ID")]
    file_id: String,
    /// Version of that file
    #[arg(long, value_name = "N")]
    version: u64,
    /// Which part it is
    #[arg(long, value_name = "N", default_value = "0")]
    shard: u64,
    /// File with the bearer token [default: $CONSIGN_PICKUP_TOKEN]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The authority that signed the relay's certificate [default: tls.ca of the configuration]
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Tries in a row that get no further, before it is given up
    #[arg(long, value_name = "N", default_value = "8")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    tries: u32,
}

/// What became of it, with `--json`.
#[derive(Serialize)]
struct Outcome<'a> {
    schema: &'static str,
    file_id: &'a str,
    version_number: u64,
    shard_index: u64,
    node_id: &'a str,
    /// Whether the relay had it before.
    known: bool,
    /// Connections beyond the first.
    again: u32,
    #[serde(flatten)]
    uploaded: &'a consign_core::pickup::message::Uploaded,
}

/// Runs it.
///
/// # Errors
/// When the relay cannot be reached or refuses, or the content cannot be read.
pub fn run(args: &UploadArgs, global: &Global) -> Result<Exit, Failure> {
    let ca = args.ca.clone().or_else(|| own_authority(global));
    standard(global, |screen| {
        let env = std::env::var(TOKEN).ok();
        let token = token(args.token_file.as_deref(), env.as_deref())?;
        let target = Target::new(args.relay.clone(), ca.as_deref())?;
        upload(args, target, token, &mut std::io::stdin().lock(), screen)
    })
}

/// A site of this machine is likely to have the same authority.
fn own_authority(global: &Global) -> Option<PathBuf> {
    crate::cli::settings(global, &[]).ok().map(|settings| settings.tls.ca)
}

/// The bearer token: in a file, or in the environment, and never on a command line that others can see.
fn token(file: Option<&Path>, env: Option<&str>) -> Result<Token, Failure> {
    let usage = |text: String| {
        Failure::new(Exit::Usage, "CN0814", text)
            .help(format!("--token-file FILE, or {TOKEN} in the environment"))
    };
    let (text, whence) = match (file, env) {
        (Some(file), _) => {
            let text = std::fs::read_to_string(file)
                .map_err(|e| usage(format!("{} cannot be read: {e}", file.display())))?;
            (text, file.display().to_string())
        }
        (None, Some(env)) => (env.to_owned(), TOKEN.to_owned()),
        (None, None) => return Err(usage("a bearer token is needed".into())),
    };
    let wrong = || usage(format!("{whence} holds no bearer token: 64 lower-case hex digits"));
    Token::parse(text.trim()).ok_or_else(wrong)
}

fn upload(
    args: &UploadArgs,
    target: Target,
    token: Token,
    input: &mut dyn Read,
    screen: &mut Screen<'_>,
) -> Result<Exit, Failure> {
    let shard = ShardKey::new(args.file_id.as_str(), args.version, args.shard, args.node.as_str())
        .map_err(|fault| Failure::new(Exit::Usage, "CN0002", fault.to_string()))?;
    let upload = Upload { tries: args.tries, ..Upload::new(target, shard.clone(), token) };
    let path = &args.content;
    let unreadable = |e: std::io::Error| {
        Failure::new(Exit::Failed, "CN0620", format!("{} cannot be read: {e}", path.display()))
    };
    let file = match path.as_os_str() == "-" {
        true => None,
        false => {
            let total = std::fs::metadata(path).map_err(unreadable)?.len();
            let mut progress = Progress::new(screen, "Hashing", Some(total));
            let mut seen = 0;
            let file = FileSource::open(path, &mut |bytes| {
                seen += bytes;
                progress.show(screen, seen, (0, 1));
            });
            progress.done();
            file.map_err(unreadable)?
        }
    };
    let done = match file {
        Some(mut file) => carry(&upload, &mut file, screen)?,
        None if path.as_os_str() == "-" => carry(&upload, &mut Stream::new(input), screen)?,
        None => {
            let mut pipe = File::open(path).map_err(unreadable)?;
            carry(&upload, &mut Stream::new(&mut pipe), screen)?
        }
    };
    tell(&shard, &done, screen)?;
    Ok(Exit::Done)
}

fn carry(
    upload: &Upload,
    source: &mut dyn Source,
    screen: &mut Screen<'_>,
) -> Result<Done, Failure> {
    let mut progress = Progress::new(screen, "Uploading", source.whole().map(|whole| whole.0));
    let done = upload.run(source, &mut |step| match step {
        Step::At(bytes) => progress.show(screen, bytes, (0, 1)),
        Step::Again(why, pause) => {
            let pause = human::duration(pause);
            progress.aside(|| screen.note(&format!("Again in {pause}: {why}")));
        }
    });
    progress.done();
    done
}

/// What has become of a shard, in one word: what is buffered is not stored.
fn word(state: ShardState) -> (&'static str, &'static str) {
    match state {
        ShardState::Created | ShardState::Uploading => ("Uploading", "at the relay"),
        ShardState::RelayBuffered => ("Buffered", "at the relay until the node fetches it"),
        ShardState::NodeReceiving | ShardState::NodeVerified => {
            ("Buffered", "at the relay; the node is fetching it")
        }
        ShardState::NodeStored => ("Stored", "by the node"),
        ShardState::RelayCleanup => ("Given up", "by the relay"),
    }
}

fn tell(shard: &ShardKey, done: &Done, screen: &mut Screen<'_>) -> Result<(), Failure> {
    let uploaded = &done.uploaded;
    if screen.is_json() {
        return screen.object(&Outcome {
            schema: "consign.uploaded/1",
            file_id: shard.file_id(),
            version_number: shard.version(),
            shard_index: shard.index(),
            node_id: shard.node(),
            known: done.known,
            again: done.again,
            uploaded,
        });
    }
    let (word, where_) = word(uploaded.state);
    let (file, size) = (shard.file_id(), human::bytes(uploaded.size));
    let key = format!("{file}/{}/{}", shard.version(), shard.index());
    let known = if done.known { "; it was known before" } else { "" };
    screen.line(&format!("{word:<9} {key}  {size}  for {}  ({where_}{known})", shard.node()));
    Ok(())
}

#[cfg(test)]
mod tests;
