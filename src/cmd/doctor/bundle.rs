//! What helps others to see what is wrong, in one archive. Keys, tokens and content are not in it.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, Header};
use toml::{Table, Value};

use super::{Check, Findings};
use crate::client::Api;
use crate::exit::{Exit, Failure};

/// What is asked of a running site: name in the archive, target.
const ASKED: [(&str, &str); 5] = [
    ("status.json", "/v1/status"),
    ("metrics.txt", "/metrics"),
    ("events.json", "/v1/events?limit=1000"),
    ("deadletters.json", "/v1/deadletters/groups"),
    ("shape.json", "/v1/shape"),
];
/// Lines of a log.
const LINES: usize = 2_000;
/// Bytes of its end that are looked at.
const TAIL: u64 = 1 << 20;
/// Stands for what is not given away.
const REDACTED: &str = "(redacted)";

/// Writes the archive; it overwrites nothing. `got` counts bytes that the site has answered.
///
/// # Errors
/// When it cannot be written.
pub(super) fn write(
    path: &Path,
    findings: &Findings,
    config: Option<&Path>,
    api: Option<&mut Api>,
    log: Option<&Path>,
    got: &AtomicU64,
) -> Result<(), Failure> {
    let cannot = |e: std::io::Error| {
        let message = format!("{} cannot be written: {e}", path.display());
        Failure::new(Exit::Failed, "CN0405", message)
    };
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let file = file.map_err(cannot)?;
    let entries = entries(findings, config, api, log, got);
    pack(file, &entries).map_err(cannot)
}

fn pack(file: File, entries: &[(&str, Vec<u8>)]) -> std::io::Result<()> {
    let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let mut archive = Builder::new(GzEncoder::new(file, Compression::default()));
    for (name, content) in entries {
        let mut header = Header::new_gnu();
        header.set_size(u64::try_from(content.len()).unwrap_or(u64::MAX));
        header.set_mode(0o600);
        header.set_mtime(at);
        let name = format!("consign-bundle/{name}");
        archive.append_data(&mut header, name, content.as_slice())?;
    }
    let mut file = archive.into_inner()?.finish()?;
    file.flush()?;
    file.sync_all()
}

fn entries(
    findings: &Findings,
    config: Option<&Path>,
    api: Option<&mut Api>,
    log: Option<&Path>,
    got: &AtomicU64,
) -> Vec<(&'static str, Vec<u8>)> {
    let why = |e: &dyn std::fmt::Display| format!("not to be had: {e}\n").into_bytes();
    // What is wrong with a value may quote it.
    let mut findings = findings.clone();
    let pem = |check: &&mut Check| check.text.contains("-----BEGIN");
    for check in findings.checks.iter_mut().filter(pem) {
        check.text = REDACTED.into();
    }
    let found = serde_json::to_vec_pretty(&findings).unwrap_or_else(|e| why(&e));
    let mut entries = vec![("doctor.json", found)];
    if let Some(config) = config {
        let text = std::fs::read_to_string(config).map_err(|e| e.to_string());
        let safe = text.and_then(|text| redacted(&text));
        entries.push(("consign.toml", safe.map_or_else(|e| why(&e), String::into_bytes)));
    }
    if let Some(api) = api {
        for (name, target) in ASKED {
            let mut body = Vec::new();
            let fetched = api.fetch(target, &mut |_, piece| {
                body.extend_from_slice(piece);
                got.fetch_add(piece.len() as u64, Ordering::Relaxed);
                Ok(())
            });
            entries.push((name, fetched.map_or_else(|e| why(&e), |_| body)));
        }
    }
    if let Some(log) = log {
        entries.push(("log.txt", tail(log).unwrap_or_else(|e| why(&e))));
    }
    entries
}

/// The last lines of a file.
fn tail(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let end = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(end.saturating_sub(TAIL)))?;
    let mut bytes = Vec::new();
    file.take(TAIL).read_to_end(&mut bytes)?;
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    Ok(lines[lines.len().saturating_sub(LINES)..].concat())
}

/// A configuration without comments and without what could be a secret: commands, and whatever is called
/// a token, password or secret or looks like a key.
fn redacted(text: &str) -> Result<String, String> {
    let mut table: Table = text.parse().map_err(|_| "it is not TOML".to_string())?;
    redact_table(&mut table);
    Ok(table.to_string())
}

fn redact_table(table: &mut Table) {
    for (key, value) in table.iter_mut() {
        let secret = ["command", "token", "password", "secret"].iter().any(|w| key.contains(w));
        if secret { *value = Value::String(REDACTED.into()) } else { redact(value) }
    }
}

fn redact(value: &mut Value) {
    match value {
        Value::Table(table) => redact_table(table),
        Value::Array(values) => values.iter_mut().for_each(redact),
        Value::String(text) if text.contains("-----BEGIN") => *text = REDACTED.into(),
        Value::String(_)
        | Value::Integer(_)
        | Value::Float(_)
        | Value::Boolean(_)
        | Value::Datetime(_) => {}
    }
}

#[cfg(test)]
mod tests;
