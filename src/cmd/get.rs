//! `consign get`: the content of a segment, checked against its digest.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::Args;
use consign_core::http::Headers;
use serde_json::json;

use super::acts;
use super::complete;
use super::ls::short;
use super::screen::{Progress, Screen, standard};
use crate::admin::acts::{ActRequest, Acted};
use crate::admin::digest_field;
use crate::admin::shapes::Segment;
use crate::client::Api;
use crate::exit::{Exit, Failure, Global};
use crate::{human, out};

/// Fetches the content of a segment.
#[derive(Args, Clone, Debug, Default)]
pub struct GetArgs {
    /// Its id, or the first 6 digits or more
    #[arg(value_name = "ID", value_parser = super::id, add = complete::segments())]
    pub id: String,
    /// Where to put it: a file (replaced as a whole), a directory, or - for standard output
    #[arg(short, long, value_name = "FILE|DIR|-")]
    pub output: PathBuf,
    /// Lets the content go here once the file is durable: as `consign release ID` does, refused while it is
    /// owed to others
    #[arg(long)]
    pub release: bool,
}

/// Runs it.
///
/// # Errors
/// When the daemon cannot be reached or refuses, when the content does not match its digest, and when it
/// cannot be written.
pub fn run(args: GetArgs, global: &Global, socket: &Path) -> Result<Exit, Failure> {
    standard(global, |screen| get(&args, &mut Api::new(socket), screen))
}

fn get(args: &GetArgs, api: &mut Api, screen: &mut Screen<'_>) -> Result<Exit, Failure> {
    if args.release && args.output.as_os_str() == "-" {
        return Err(not_kept(&args.output));
    }
    let segment: Segment = api.json("GET", &format!("/v1/segments/{}", args.id))?;
    let mut target = Target::open(&args.output, &segment)?;
    if args.release && !matches!(target, Target::Beside { .. }) {
        return Err(not_kept(&args.output));
    }
    let mut progress = Progress::new(screen, "Fetching", Some(segment.size));
    let fetched = fetch(api, &segment, screen, &mut progress, &mut target);
    progress.done();
    match fetched {
        Ok(()) => target.keep()?,
        Err(failure) => {
            target.discard();
            return Err(failure);
        }
    }
    let Some(file) = target.path() else { return Ok(Exit::Done) };
    let (id, size) = (short(&segment.id), human::bytes(segment.size));
    if !screen.is_json() {
        screen.note(&format!("Fetched   {id}  {}  {size}", file.display()));
    }
    let released = if args.release { Some(release(api, &segment, file, screen)?) } else { None };
    if screen.is_json() {
        let mut fetched = json!({
            "schema": "consign.fetched/1", "id": segment.id, "name": segment.name,
            "file": file, "size": segment.size, "digest": segment.digest,
        });
        if let (Some(acted), Some(fields)) = (&released, fetched.as_object_mut()) {
            fields.insert("released".into(), (acted.count > 0).into());
        }
        screen.object(&fetched)?;
    }
    let Some(acted) = released else { return Ok(Exit::Done) };
    if acted.count > 0 {
        if !screen.is_json() {
            screen.note(&format!("Released  {id}  this site may remove it now"));
        }
        return Ok(Exit::Done);
    }
    let why = acted.left.first().map_or("it is not here any more", |left| left.text.as_str());
    screen.note(&format!("Kept      {id}  not released: {why}"));
    Ok(Exit::Partly)
}

/// Lets the content go: the file that was written is durable, with its directory.
fn release(
    api: &mut Api,
    segment: &Segment,
    file: &Path,
    screen: &mut Screen<'_>,
) -> Result<Acted, Failure> {
    let request = ActRequest {
        action: "release".into(),
        ids: vec![segment.id.clone()],
        why: "get --release".into(),
        ..ActRequest::default()
    };
    acts::act(api, &request, screen).map_err(|failure| {
        failure.help(format!("{} is whole; `consign release` tries again", file.display()))
    })
}

/// What is not written to a file is in nobody's safe keeping.
fn not_kept(output: &Path) -> Failure {
    let text = format!("--release needs a regular file: {} does not keep it", output.display());
    Failure::new(Exit::Usage, "CN0403", text)
        .help("get it into a file, or let it go afterwards with `consign release`")
}

/// Brings the content; nothing but all of it, and the right one, is success.
fn fetch(
    api: &mut Api,
    segment: &Segment,
    screen: &mut Screen<'_>,
    progress: &mut Progress,
    target: &mut Target,
) -> Result<(), Failure> {
    let (mut hasher, mut came) = (blake3::Hasher::new(), 0);
    let path = format!("/v1/segments/{}/content", segment.id);
    let answer = api.fetch(&path, &mut |_: &Headers, data| {
        hasher.update(data);
        came += data.len() as u64;
        progress.show(screen, came, (0, 1));
        target.write(data)
    });
    let damaged = |text: String| Failure::new(Exit::Failed, "CN0630", text);
    let answer = match answer {
        Err(failure) if failure.code == "CN0603" && came > 0 => {
            let text = format!("only {came} of {} bytes came: {}", segment.size, failure.message);
            return Err(damaged(text).help("the content here is damaged, or the daemon stopped"));
        }
        other => other?,
    };
    let digest = hasher.finalize();
    let promised = answer.headers.text("repr-digest");
    let good = came == segment.size && digest.to_hex().as_str() == segment.digest;
    if !good || promised != Some(digest_field(digest.as_bytes()).as_str()) {
        return Err(damaged(format!(
            "what came is not {}: {came} bytes, BLAKE3 {}",
            segment.id,
            digest.to_hex()
        )));
    }
    Ok(())
}

/// Where the content goes.
enum Target {
    Stdout,
    /// Something that is there and is no regular file.
    Device(PathBuf, File),
    /// Written beside, renamed when whole.
    Beside {
        path: PathBuf,
        beside: PathBuf,
        file: File,
    },
}

impl Target {
    fn open(output: &Path, segment: &Segment) -> Result<Target, Failure> {
        if output.as_os_str() == "-" {
            return Ok(Target::Stdout);
        }
        // The last part only: a name may lead down directories that are not there.
        let name = segment.name.rsplit('/').next().unwrap_or_default();
        let path = if output.is_dir() { output.join(name) } else { output.into() };
        if let Ok(there) = std::fs::metadata(&path) {
            if there.is_dir() {
                return Err(unwritable(&path, "it is a directory"));
            }
            if !there.is_file() {
                let file = OpenOptions::new().write(true).open(&path);
                return Ok(Target::Device(path.clone(), file.map_err(|e| unwritable(&path, e))?));
            }
        }
        path.file_name().ok_or_else(|| unwritable(&path, "it has no file name"))?;
        // Short whatever the name is, and no other process's.
        let beside = path.with_file_name(format!(
            ".consign-{}-{}.partial",
            short(&segment.id),
            std::process::id()
        ));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o666).open(&beside);
        let file = file.map_err(|e| unwritable(&path, e))?;
        Ok(Target::Beside { path, beside, file })
    }

    fn write(&mut self, data: &[u8]) -> Result<(), Failure> {
        match self {
            Target::Stdout => {
                if let Err(e) = std::io::stdout().write_all(data) {
                    out::ended(&e);
                }
                Ok(())
            }
            Target::Device(path, file) => file.write_all(data).map_err(|e| unwritable(path, e)),
            Target::Beside { beside, file, .. } => {
                file.write_all(data).map_err(|e| unwritable(beside, e))
            }
        }
    }

    /// The content is whole and good.
    fn keep(&mut self) -> Result<(), Failure> {
        match self {
            Target::Stdout => {
                if let Err(e) = std::io::stdout().flush() {
                    out::ended(&e);
                }
                Ok(())
            }
            Target::Device(..) => Ok(()),
            Target::Beside { path, beside, file } => {
                let kept = file.sync_all().and_then(|()| std::fs::rename(&*beside, &*path));
                kept.map_err(|e| {
                    let _ = std::fs::remove_file(&*beside);
                    unwritable(path, e)
                })?;
                let dir = path.parent().filter(|p| !p.as_os_str().is_empty());
                let dir = File::open(dir.unwrap_or(Path::new(".")));
                dir.and_then(|dir| dir.sync_all()).map_err(|e| unwritable(path, e))
            }
        }
    }

    fn discard(&self) {
        if let Target::Beside { beside, .. } = self {
            let _ = std::fs::remove_file(beside);
        }
    }

    fn path(&self) -> Option<&Path> {
        match self {
            Target::Stdout => None,
            Target::Device(path, _) | Target::Beside { path, .. } => Some(path),
        }
    }
}

fn unwritable(path: &Path, why: impl std::fmt::Display) -> Failure {
    let text = format!("{} cannot be written: {why}", path.display());
    Failure::new(Exit::Failed, "CN0631", text)
}

#[cfg(test)]
mod tests;
