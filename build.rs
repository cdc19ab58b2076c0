//! Puts the commit into the version, where there is one.

use std::process::Command;

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok().filter(|o| o.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (!text.is_empty()).then_some(text)
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let head = git(&["rev-parse", "--git-path", "logs/HEAD"]);
    if let Some(head) = head.filter(|path| std::path::Path::new(path).exists()) {
        println!("cargo::rerun-if-changed={head}");
    }
    let version = env!("CARGO_PKG_VERSION");
    let full = match git(&["rev-parse", "--short=9", "HEAD"]) {
        Some(commit) => format!("{version}+{commit}"),
        None => version.to_owned(),
    };
    println!("cargo::rustc-env=CONSIGN_VERSION={full}");
}
