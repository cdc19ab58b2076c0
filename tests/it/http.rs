//! The least of an HTTP client: one request on a Unix socket, read to the end.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// An answer.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

/// Sends one GET and reads the answer.
///
/// # Errors
/// When nobody answers, or not in HTTP, or not to the end.
pub(crate) fn get(socket: &Path, target: &str) -> io::Result<Reply> {
    exchange(socket, "GET", target, &[])
}

/// Sends one POST and reads the answer.
///
/// # Errors
/// As for [`get`].
pub(crate) fn post(socket: &Path, target: &str, body: &[u8]) -> io::Result<Reply> {
    exchange(socket, "POST", target, body)
}

fn exchange(socket: &Path, method: &str, target: &str, body: &[u8]) -> io::Result<Reply> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    stream.set_write_timeout(Some(Duration::from_secs(60)))?;
    let length = body.len();
    write!(
        stream,
        "{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Length: {length}\r\n\r\n"
    )?;
    // A refusal may come, and the other side close, before all of the body is taken.
    let _ = stream.write_all(body);
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    parse(&bytes).ok_or_else(|| io::Error::other(format!("a broken answer to {target}")))
}

fn parse(bytes: &[u8]) -> Option<Reply> {
    let end = bytes.windows(4).position(|w| w == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let status = head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let body = &bytes[end + 4..];
    let field = |name: &str| {
        head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    };
    let body = match (field("transfer-encoding"), field("content-length")) {
        (Some("chunked"), None) => unchunk(body)?,
        (None, Some(length)) => {
            (body.len() == length.parse::<usize>().ok()?).then(|| body.to_vec())?
        }
        _ => return None,
    };
    Some(Reply { status, body })
}

fn unchunk(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|w| w == b"\r\n")?;
        let size = std::str::from_utf8(&rest[..end]).ok()?.split(';').next()?;
        let size = usize::from_str_radix(size.trim(), 16).ok()?;
        rest = &rest[end + 2..];
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(rest.get(..size)?);
        rest = rest.get(size..)?.strip_prefix(b"\r\n")?;
    }
}
