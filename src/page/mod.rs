//! The web page: one HTML file in the binary, what browsers are told about it, and who may act from it.
//!
//! Everybody on this machine may look at it (`listen.web` is loopback only): names of peers, counts,
//! sizes, ages and last errors, never names or ids of segments. Who wants to act opens the link that
//! `consign page` prints: its one-time code becomes a token that lives in the tab and in the memory of
//! the process, and opens nothing but the retry of dead letters.

pub mod links;
pub mod origin;

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

/// The page.
pub const HTML: &str = include_str!("page.html");

/// Its media type.
pub const TYPE: &str = "text/html; charset=utf-8";

/// What browsers let it do, besides its style, its script and its icon: talk to where it came from.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let (style, script) = (hash_of(inside("style")), hash_of(inside("script")));
    format!(
        "default-src 'none'; style-src 'sha256-{style}'; script-src 'sha256-{script}'; \
         img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    )
});

/// Fields of the answer that it comes with, besides its type and `Cache-Control: no-store`.
#[must_use]
pub fn fields() -> [(&'static str, &'static str); 4] {
    [
        ("Content-Security-Policy", POLICY.as_str()),
        ("X-Content-Type-Options", "nosniff"),
        ("Referrer-Policy", "no-referrer"),
        ("Cross-Origin-Resource-Policy", "same-origin"),
    ]
}

/// What stands in the only element of that name, byte for byte: that is what browsers hash.
fn inside(element: &str) -> &'static str {
    let (open, close) = (format!("<{element}>"), format!("</{element}>"));
    let rest = HTML.split_once(&open).map_or("", |(_, rest)| rest);
    rest.split_once(&close).map_or("", |(text, _)| text)
}

fn hash_of(text: &str) -> String {
    STANDARD.encode(Sha256::digest(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_one_file_whose_style_and_script_are_hashed() {
        for element in ["style", "script"] {
            assert_eq!(HTML.matches(&format!("<{element}")).count(), 1, "{element}");
            assert!(inside(element).len() > 1000, "{element}");
            let hash = format!("'sha256-{}'", hash_of(inside(element)));
            assert!(POLICY.contains(&hash), "{element}");
        }
        assert_eq!(hash_of(""), "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
    }

    #[test]
    fn nothing_in_it_needs_what_the_policy_forbids() {
        // Attributes with style or script in them, other files, other hosts, and markup from strings.
        let forbidden = [
            " style=",
            " onclick=",
            " onload=",
            " src=",
            "@import",
            "url(",
            "https://",
            "innerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "<form",
            "<iframe",
            "<base",
        ];
        for word in forbidden {
            assert!(!HTML.contains(word), "{word}");
        }
        let hosts: Vec<_> = HTML.match_indices("http://").map(|(at, _)| &HTML[at..]).collect();
        assert!(hosts.iter().all(|h| h.starts_with("http://www.w3.org/")), "{hosts:?}");
        assert!(POLICY.starts_with("default-src 'none'; ") && !POLICY.contains("unsafe"));
    }
}
