//! Whether a request comes from the page itself, as the browser that sends it says.

use consign_core::http::Headers;

/// Why it does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Elsewhere {
    /// There is no `Origin`, or more than one: no page sent it.
    Nowhere,
    /// It comes from there.
    Origin(String),
    /// The browser says how the sender stands to the page: `cross-site`, `same-site`, `none`.
    Site(String),
}

/// Judges the fields of a request whose `Host` is a name of this machine.
///
/// # Errors
/// When it does not come from a page under this very host and port.
pub fn is_here(headers: &Headers) -> Result<(), Elsewhere> {
    let origin = headers.text("origin").ok_or(Elsewhere::Nowhere)?;
    let host = headers.text("host").unwrap_or_default();
    let here = origin.strip_prefix("http://").is_some_and(|from| from.eq_ignore_ascii_case(host));
    if host.is_empty() || !here {
        return Err(Elsewhere::Origin(origin.into()));
    }
    // Older browsers do not send it.
    if headers.all("sec-fetch-site").next().is_none() {
        return Ok(());
    }
    match headers.text("sec-fetch-site") {
        Some("same-origin") => Ok(()),
        other => Err(Elsewhere::Site(other.unwrap_or_default().into())),
    }
}

impl std::fmt::Display for Elsewhere {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Elsewhere::Nowhere => f.write_str("an act needs an Origin field, from the page itself"),
            Elsewhere::Origin(from) => write!(f, "{from:?} is not where this page is"),
            Elsewhere::Site(site) => write!(f, "the browser says {site:?}, not \"same-origin\""),
        }
    }
}

#[cfg(test)]
mod tests {
    use consign_core::http::{Conn, Event, Limits};
    use consign_core::time::Now;

    use super::*;

    fn judged(fields: &str) -> Result<(), Elsewhere> {
        let text = format!("POST /v1/acts HTTP/1.1\r\n{fields}\r\n");
        let mut input = text.as_bytes();
        let mut conn = Conn::new(Limits::default(), Now::default());
        match conn.read(Now::default(), &mut input, &mut Vec::new()) {
            Some(Event::Head(request)) => is_here(&request.headers),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_the_page_itself_under_the_same_host_and_port() {
        let host = "Host: 127.0.0.1:7411\r\n";
        let origin = |from: &str| Err(Elsewhere::Origin(from.into()));
        let site = |word: &str| Err(Elsewhere::Site(word.into()));
        let table = [
            ("Origin: http://127.0.0.1:7411", Ok(())),
            ("Origin: http://127.0.0.1:7411\r\nSec-Fetch-Site: same-origin", Ok(())),
            ("", Err(Elsewhere::Nowhere)),
            ("Sec-Fetch-Site: same-origin", Err(Elsewhere::Nowhere)),
            ("Origin: null", origin("null")),
            ("Origin: http://evil.example", origin("http://evil.example")),
            ("Origin: https://127.0.0.1:7411", origin("https://127.0.0.1:7411")),
            // Another server of this machine is another origin, although it is the same site.
            ("Origin: http://127.0.0.1:8080", origin("http://127.0.0.1:8080")),
            ("Origin: http://127.0.0.1", origin("http://127.0.0.1")),
            ("Origin: http://localhost:7411", origin("http://localhost:7411")),
            (
                "Origin: http://127.0.0.1:7411.evil.example",
                origin("http://127.0.0.1:7411.evil.example"),
            ),
            (
                "Origin: http://127.0.0.1:7411\r\nOrigin: http://127.0.0.1:7411",
                Err(Elsewhere::Nowhere),
            ),
            ("Origin: http://127.0.0.1:7411\r\nSec-Fetch-Site: same-site", site("same-site")),
            ("Origin: http://127.0.0.1:7411\r\nSec-Fetch-Site: cross-site", site("cross-site")),
            ("Origin: http://127.0.0.1:7411\r\nSec-Fetch-Site: none", site("none")),
        ];
        for (fields, expected) in table {
            let lines = if fields.is_empty() { host.into() } else { format!("{host}{fields}\r\n") };
            assert_eq!(judged(&lines), expected, "{fields}");
        }
    }

    #[test]
    fn every_reason_is_a_sentence() {
        for why in [Elsewhere::Nowhere, Elsewhere::Origin("x".into()), Elsewhere::Site("y".into())]
        {
            assert!(why.to_string().len() > 20, "{why:?}");
        }
    }
}
