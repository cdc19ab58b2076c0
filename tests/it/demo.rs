//! The first five minutes as README has them: a demo of two sites in one process, found by the names of contexts.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::site::{consign, content, free_address};
use crate::wait;

/// A folder in which somebody sits at a terminal, with a home of their own.
struct Desk {
    folder: tempfile::TempDir,
    /// Where alpha listens.
    listen: String,
    served: Option<Child>,
}

impl Desk {
    /// Ports of a demo at this one belong to nobody else: other tests begin above them.
    fn new(port: u16) -> Desk {
        let listen = format!("{}:{port}", free_address().ip());
        Desk { folder: tempfile::tempdir().expect("a folder"), listen, served: None }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The command line as it would be typed there.
    fn command(&self, line: &str) -> Command {
        let mut command = consign();
        command.current_dir(self.folder.path()).env("HOME", self.folder.path());
        command.env("CONSIGN_RELAY_BACKOFF_MAX", "5s").args(line.split(' '));
        command
    }

    fn run(&self, line: &str) -> Output {
        self.command(line).output().expect("the binary runs")
    }

    /// What a command that succeeds prints.
    fn says(&self, line: &str) -> String {
        let output = self.run(line);
        assert_eq!(output.status.code(), Some(0), "{line}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    fn init(&self) -> String {
        self.says(&format!("init --demo --listen {}", self.listen))
    }

    /// What `serve --demo` has said.
    fn log(&self) -> String {
        fs::read_to_string(self.path("serve.log")).unwrap_or_default()
    }

    /// Serves the demo, and waits for the lines of both sites.
    fn serve(&mut self) -> Vec<String> {
        let log = File::create(self.path("serve.log")).expect("a file");
        let mut command = self.command("serve --demo");
        command.stdout(log.try_clone().expect("another")).stderr(log);
        self.served = Some(command.spawn().expect("the binary runs"));
        wait::until("both sites", || {
            let said: Vec<String> = self.log().lines().map(str::to_owned).collect();
            said.iter().any(|line| line.starts_with("beta")).then_some(said)
        })
    }

    fn has_ended(&mut self) -> Option<i32> {
        let child = self.served.as_mut().expect("it is served");
        child.try_wait().expect("a child").map(|status| status.code().unwrap_or(-1))
    }

    /// Ctrl-C, and how it ends.
    fn interrupt(&mut self) -> i32 {
        let pid = self.served.as_ref().expect("it is served").id();
        kill_process(Pid::from_raw(pid as i32).expect("a number"), Signal::INT).expect("sent");
        wait::until("the end of both", || self.has_ended())
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        if let Some(child) = &mut self.served {
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            eprintln!("---- serve --demo\n{}", self.log());
        }
    }
}

/// What stands in README between `$ consign` and the next prompt, with the numbers that differ taken out.
fn words(text: &str, pairs: &[(&str, &str)]) -> String {
    pairs.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// Matches a line with a pattern of README in which every `…` stands for anything.
fn is_like(line: &str, pattern: &str) -> bool {
    let pattern = regex::escape(pattern).replace('…', ".*");
    regex::Regex::new(&format!("^{pattern}$")).expect("a pattern").is_match(line.trim_end())
}

#[track_caller]
fn like(said: &str, patterns: &[&str]) {
    let lines: Vec<&str> = said.trim_end().lines().collect();
    assert_eq!(lines.len(), patterns.len(), "{said}");
    for (line, pattern) in lines.iter().zip(patterns) {
        assert!(is_like(line, pattern), "{line}\nis not like\n{pattern}");
    }
}

#[test]
fn the_first_five_minutes_are_as_they_are_printed() {
    let mut desk = Desk::new(7400);
    let host = desk.listen.strip_suffix(":7400").expect("the port").to_owned();
    let said = words(&desk.init(), &[(&host, "127.0.0.1")]);
    like(
        &said,
        &[
            "Created consign-demo/  (demo CA, valid 30 days, not for production; contexts alpha and beta saved)",
            "  alpha  peers 127.0.0.1:7400   page http://127.0.0.1:7411",
            "  beta   peers 127.0.0.1:7500   page http://127.0.0.1:7511",
            "Next: consign serve --demo       then, in a second terminal: consign --context alpha send README.md --to beta --wait",
        ],
    );
    let ready = desk.serve();
    let lines: Vec<&str> =
        ready.iter().map(String::as_str).filter(|l| !l.contains("tmpfs")).collect();
    like(
        &lines.join("\n"),
        &[
            "alpha  ready in … ms  runtime=smol  peers=1  queued=0",
            "beta   ready in … ms  runtime=std   peers=1  queued=0  (peer alpha connected, tls=1.3, rtt=…ms)",
        ],
    );
    fs::write(desk.path("video.mp4"), content(1, 3 << 20)).expect("a file");
    like(
        &desk.says("--context alpha send video.mp4 --to beta --wait"),
        &[
            "Queued    …  video.mp4  3.0 MiB  for beta  (safe on disk; Ctrl-C stops only the waiting)",
            "Delivered …  to beta in …  (receipt: consign --context alpha show …)",
        ],
    );
    like(&desk.says("--context beta stop"), &["Stopping  (what is in flight is finished first)"]);
    wait::until_true("beta to stop alone", || {
        assert_eq!(desk.has_ended(), None, "alpha lives on");
        desk.log().contains("beta has stopped; the other goes on until Ctrl-C")
    });
    assert_eq!(desk.run("--context beta status").status.code(), Some(69));
    photos_wait_for_beta(&mut desk);
    assert_eq!(desk.interrupt(), 0);
    beta_gets_them_later(&mut desk);
}

fn photos_wait_for_beta(desk: &mut Desk) {
    fs::write(desk.path("photos.tar"), content(2, 1 << 20)).expect("a file");
    let pipe = File::open(desk.path("photos.tar")).expect("it is there");
    wait::until_true("alpha to know that beta is down", || {
        desk.says("--context alpha status").contains("Connection refused")
    });
    let mut send = desk.command("--context alpha send - --name photos.tar --to beta");
    let output = send.stdin(Stdio::from(pipe)).output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = String::from_utf8(output.stdout).expect("text");
    like(
        &said,
        &["Queued    …  photos.tar  1.0 MiB  for beta  (safe on disk; beta is down; next try …)"],
    );
    like(
        &desk.says("--context alpha status"),
        &[
            "alpha  …  smol  up …      … in … of …      ledger … %",
            "PEER  LINK    QUEUED       SENDING  OLDEST  DEAD  DELIVERED  NEXT TRY…LAST ERROR",
            "beta  ▼ down  1 (1.0 MiB)  0        …  …:7500: Connection refused (os error 111)",
        ],
    );
}

fn beta_gets_them_later(desk: &mut Desk) {
    let ready = desk.serve();
    assert!(
        ready.iter().any(|line| line.starts_with("alpha") && line.contains("queued=1")),
        "{ready:?}"
    );
    wait::until_true("the photos", || desk.says("--context beta ls").contains("photos.tar"));
    let again = desk.run(&format!("init --demo --listen {}", desk.listen));
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(said.contains("CN0530") && said.contains("it is not empty"), "{said}");
    assert_eq!(desk.interrupt(), 0);
}

#[test]
fn a_demo_takes_no_name_from_a_site_and_is_made_whole_or_not_at_all() {
    let desk = Desk::new(7700);
    desk.says("init mine --name beta --listen 127.0.0.1:7400");
    desk.says("context add beta mine");
    let refused = desk.run("init --demo");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("error[CN0593]") && said.contains("context rm beta"), "{said}");
    assert!(!desk.path("consign-demo").exists());
    let unserved = desk.run("serve --demo");
    assert_eq!(unserved.status.code(), Some(78), "{unserved:?}");
    assert!(String::from_utf8_lossy(&unserved.stderr).contains("consign init --demo"));
    desk.says("context rm beta");
    // Names that cannot be written leave no sites without names.
    let mut homeless = desk.command("init --demo");
    let output = homeless.env("XDG_CONFIG_HOME", "/proc/self").output().expect("the binary runs");
    assert!(String::from_utf8_lossy(&output.stderr).contains("error[CN0592]"), "{output:?}");
    assert!(!desk.path("consign-demo").exists());
    let said = desk.says(&format!("init --demo --listen {} tryout", desk.listen));
    assert!(said.contains("Next: consign serve --demo -c tryout "), "{said}");
    assert_eq!(desk.run("--context alpha serve --demo").status.code(), Some(2));
    assert_eq!(desk.run("init --demo --name x").status.code(), Some(2));
    let shown = desk.says("cert show -c tryout/alpha --json");
    assert!(shown.contains("\"days_left\":29") || shown.contains("\"days_left\":30"), "{shown}");
}

#[test]
fn contexts_stand_for_configurations() {
    let desk = Desk::new(7700);
    for name in ["alpha", "beta"] {
        desk.says(&format!("init {name} --listen 127.0.0.1:7400"));
        desk.says(&format!("context add {name} {name}"));
    }
    let goes_by = |line: &str, by: &str| {
        let said = desk.says(line);
        assert!(said.trim_end().ends_with(&format!("(by {by})")), "{line}: {said}");
        said
    };
    assert!(goes_by("--context beta context show", "--context").starts_with("beta  "));
    let nothing = desk.run("status");
    assert_eq!(nothing.status.code(), Some(78), "{nothing:?}");
    desk.says("context use alpha");
    assert!(goes_by("context show", "context use").starts_with("alpha  "));
    goes_by("context show -c beta", "-c");
    for both in ["--context alpha context show -c beta", "-c beta status --context alpha"] {
        let output = desk.run(both);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("-c beta and --context alpha each name"), "{said}");
    }
    let mut named = desk.command("context show");
    let output = named.env("CONSIGN_CONTEXT", "beta").output().expect("the binary runs");
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("beta  "), "{output:?}");
    // The site that is meant is named where nobody serves it.
    let output = desk.run("--context beta status");
    assert_eq!(output.status.code(), Some(69));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("consign --context beta serve"), "{said}");
    let output = desk.run("--context btea status");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(78));
    assert!(said.contains("error[CN0591]") && said.contains("similar name exists: beta"), "{said}");
    let file = desk.path(".config/consign/contexts.toml");
    write_over(&file);
    let output = desk.run("context ls");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(78));
    assert!(said.contains("CN0203") && said.contains("contexts.toml:1:1"), "{said}");
}

fn write_over(file: &Path) {
    fs::write(file, "usse = \"alpha\"\n").expect("it is there");
}
