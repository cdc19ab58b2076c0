//! Where a relay is: `http://HOST[:PORT]` or `https://HOST[:PORT]`.

use std::fmt;

/// A relay's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relay {
    /// Whether TLS is spoken.
    pub tls: bool,
    /// Name or address, without brackets, lower-case.
    pub host: String,
    /// Port.
    pub port: u16,
    /// The Host field, which signatures cover.
    pub authority: String,
}

impl fmt::Display for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority)
    }
}

impl Relay {
    /// Reads a URL.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Relay, String> {
        let wrong = || format!("{text:?} is not http://HOST[:PORT] or https://HOST[:PORT]");
        let lower = text.to_ascii_lowercase();
        let (tls, rest) = match (lower.strip_prefix("https://"), lower.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (None, Some(rest)) => (false, rest),
            (None, None) => return Err(wrong()),
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match authority.strip_prefix('[') {
            Some(inner) => {
                let (host, port) = inner.split_once(']').ok_or_else(wrong)?;
                host.parse::<std::net::Ipv6Addr>().map_err(|_| wrong())?;
                (host, port)
            }
            None => match authority.find(':') {
                Some(at) => authority.split_at(at),
                None => (authority, ""),
            },
        };
        let named = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b':');
        if host.is_empty() || !host.bytes().all(named) {
            return Err(wrong());
        }
        let default = if tls { 443 } else { 80 };
        let port = match port.strip_prefix(':') {
            None if port.is_empty() => default,
            None => return Err(wrong()),
            Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => {
                digits.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)?
            }
            Some(_) => return Err(wrong()),
        };
        let bare = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let authority = if port == default { bare } else { format!("{bare}:{port}") };
        Ok(Relay { tls, host: host.to_owned(), port, authority })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let table = [
            ("http://relay.example", (false, "relay.example", 80, "relay.example")),
            ("HTTPS://Relay.Example:7410/", (true, "relay.example", 7410, "relay.example:7410")),
            ("https://relay.example:443", (true, "relay.example", 443, "relay.example")),
            ("http://127.0.0.1:7410", (false, "127.0.0.1", 7410, "127.0.0.1:7410")),
            ("http://[::1]:7410", (false, "::1", 7410, "[::1]:7410")),
            ("https://[fe80::1]", (true, "fe80::1", 443, "[fe80::1]")),
        ];
        for (text, (tls, host, port, authority)) in table {
            let relay = Relay::parse(text).unwrap();
            assert_eq!((relay.tls, relay.host.as_str(), relay.port), (tls, host, port), "{text}");
            assert_eq!(relay.authority, authority);
            assert_eq!(Relay::parse(&relay.to_string()), Ok(relay));
        }
        let bad = [
            "",
            "relay.example",
            "ftp://x",
            "http://",
            "http:///",
            "http://a:b",
            "http://a:0",
            "http://a:70000",
            "http://a:+1",
            "http://a/b",
            "http://a?b",
            "http://u@a",
            "http://a b",
            "http://[::1",
            "http://[x]",
            "http://a:1:2",
            "http://[::1]7",
        ];
        for text in bad {
            assert!(Relay::parse(text).is_err(), "{text}");
        }
    }
}
