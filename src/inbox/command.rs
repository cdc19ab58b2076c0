//! The command of a rule: run on a file that is in its place, within a time, its output kept.

use std::io::PipeReader;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use consign_core::inbox::{ExportJob, ExportStep};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};

use super::InboxDir;

/// Output that is kept: the last bytes.
const KEPT: usize = 4096;
/// How often a command that runs is asked whether the site is stopping.
const LOOK: Duration = Duration::from_millis(200);
/// Longest value of a label that a command is told.
const LABEL_MAX: usize = 4096;

/// Runs it once. It is killed with everything it started when its time is over or `stopping` says so.
pub(super) fn run(
    rule: &InboxDir,
    job: &ExportJob,
    name: &str,
    run: u32,
    stopping: &dyn Fn() -> bool,
) -> ExportStep {
    match ran(rule, job, name, run, stopping) {
        Ok(step) => step,
        Err(error) => {
            // Arguments may be secrets.
            let program = rule.command.first().map_or("", String::as_str);
            let error = format!("{program} cannot be run: {error}");
            ExportStep::Ran { exit: None, output: Vec::new(), error }
        }
    }
}

fn ran(
    rule: &InboxDir,
    job: &ExportJob,
    name: &str,
    run: u32,
    stopping: &dyn Fn() -> bool,
) -> std::io::Result<ExportStep> {
    let (reader, writer) = std::io::pipe()?;
    rustix::io::ioctl_fionbio(&reader, true)?;
    let mut command = prepared(rule, job, name, run)?;
    command.stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn()?;
    // The writing ends that this process holds close with it.
    drop(command);
    let mut output = Output { reader, kept: Vec::new() };
    let waited = wait(&mut child, &mut output, rule.timeout, stopping);
    if !matches!(waited, Ok(Ended::Itself(_))) {
        kill(&child);
        // It was killed; what is left of it is collected here.
        child.wait()?;
    }
    output.take();
    let (exit, error) = match waited? {
        Ended::Itself(status) if status.success() => (Some(0), String::new()),
        Ended::Itself(status) => (status.code(), format!("the command ended with {status}")),
        Ended::Late => (None, format!("the command took longer than {:?}", rule.timeout)),
        // Not the command's fault, and no run of its own.
        Ended::Stopped => {
            let why = "the site was stopped while the command ran";
            return Ok(ExportStep::Later(why.to_owned()));
        }
    };
    Ok(ExportStep::Ran { exit, output: output.kept, error })
}

fn prepared(rule: &InboxDir, job: &ExportJob, name: &str, run: u32) -> std::io::Result<Command> {
    let Some((program, arguments)) = rule.command.split_first() else {
        return Err(std::io::Error::other("there is no command"));
    };
    let dir = std::path::absolute(&rule.dir)?;
    let mut command = Command::new(program);
    command.args(arguments).current_dir(&dir).stdin(Stdio::null()).process_group(0);
    // What the service manager says to this process is not for its commands.
    for name in ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"] {
        command.env_remove(name);
    }
    for name in ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"] {
        command.env_remove(name);
    }
    command.env("CONSIGN_EXPORT_ID", format!("{:016x}-{}", job.rule.0, job.seq));
    command.env("CONSIGN_FILE", dir.join(name)).env("CONSIGN_NAME", &job.meta.name);
    // A shard has neither.
    if job.id.0 != [0; 32] {
        command.env("CONSIGN_ORIGIN", &job.origin).env("CONSIGN_SEGMENT", job.id.to_string());
    }
    command.env("CONSIGN_SIZE", job.size.to_string()).env("CONSIGN_RUN", run.to_string());
    for (key, value) in &job.meta.labels {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
        let key: String = key.chars().map(plain).collect();
        if value.len() <= LABEL_MAX && !value.contains('\0') {
            command.env(format!("CONSIGN_LABEL_{key}"), value);
        }
    }
    Ok(command)
}

enum Ended {
    Itself(ExitStatus),
    Late,
    Stopped,
}

fn wait(
    child: &mut Child,
    output: &mut Output,
    timeout: Duration,
    stopping: &dyn Fn() -> bool,
) -> std::io::Result<Ended> {
    let pid = Pid::from_child(child);
    let handle = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
    let until = Instant::now() + timeout;
    let mut open = true;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Ended::Itself(status));
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(Ended::Late);
        }
        if stopping() {
            return Ok(Ended::Stopped);
        }
        let time = left.min(LOOK);
        let time = Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
        let mut fds = vec![PollFd::new(&handle, PollFlags::IN)];
        if open {
            fds.push(PollFd::new(&output.reader, PollFlags::IN));
        }
        match poll(&mut fds, Some(&time)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(why) => return Err(why.into()),
        }
        // Once nobody can write any more it would be ready for ever.
        open = open && output.take();
    }
}

/// Ends it and everything it started in its group.
fn kill(child: &Child) {
    let group = Pid::from_child(child);
    if let Err(why) = rustix::process::kill_process_group(group, Signal::KILL)
        && why != Errno::SRCH
    {
        tracing::warn!(%why, code = "CN0544", "a command of an inbox rule cannot be killed");
    }
}

/// What it prints, the end of it.
struct Output {
    reader: PipeReader,
    kept: Vec<u8>,
}

impl Output {
    /// Takes what is there; says whether more can come.
    fn take(&mut self) -> bool {
        let mut piece = [0; KEPT];
        // What a command prints without end does not keep this from looking at the time.
        for _ in 0..64 {
            match rustix::io::read(&self.reader, &mut piece) {
                Ok(0) => return false,
                Ok(n) => self.kept.extend_from_slice(piece.get(..n).unwrap_or_default()),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return true,
                Err(_) => return false,
            }
            self.kept.drain(..self.kept.len().saturating_sub(KEPT));
        }
        true
    }
}
