//! A site's card: in one line, what another has to know to join it: name, address, and the fingerprint
//! of the authority that signs.

use std::fmt;
use std::str::FromStr;

use consign_core::segment::is_site_name;

use crate::config::value::Kind;
use crate::exit::Failure;

use super::usage;

/// Begins every card.
const BEGINS: &str = "consign:";

/// `consign:NAME@HOST:PORT#sha256:HEX`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Card {
    /// The site's name.
    pub(crate) name: String,
    /// Where it is reached.
    pub(crate) address: String,
    /// `sha256:` and the digest of the authority's certificate.
    pub(crate) authority: String,
}

impl fmt::Display for Card {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{BEGINS}{}@{}#{}", self.name, self.address, self.authority)
    }
}

impl FromStr for Card {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Card, Failure> {
        let text = text.trim();
        let wrong = |why: String| {
            usage(format!("the card {text:?} cannot be used: {why}"))
                .help("`consign init` prints it in one line: consign:NAME@HOST:PORT#sha256:HEX")
        };
        let parts = text.strip_prefix(BEGINS).and_then(|rest| {
            let (name, rest) = rest.split_once('@')?;
            let (address, authority) = rest.split_once('#')?;
            Some((name, address, authority.to_ascii_lowercase()))
        });
        let Some((name, address, authority)) = parts else {
            return Err(wrong("a part is missing".into()));
        };
        if !is_site_name(name) {
            return Err(wrong(format!("{name:?} is not a name for a site")));
        }
        if let Err(bad) = Kind::Address.read_text(address) {
            return Err(wrong(bad.problem));
        }
        let hex = authority.strip_prefix("sha256:").unwrap_or_default();
        if hex.len() != 64 || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(wrong("it ends in no fingerprint".into()));
        }
        Ok(Card { name: name.into(), address: address.into(), authority })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_is_read_as_it_was_written_and_nothing_else_is_one() {
        let print = format!("sha256:{}", "ab".repeat(32));
        for address in ["alpha.example:7400", "192.0.2.1:7400", "[2001:db8::1]:7400"] {
            let (name, address) = ("alpha".to_string(), address.to_string());
            let card = Card { name, address, authority: print.clone() };
            assert_eq!(card.to_string().parse::<Card>(), Ok(card.clone()));
            let loud = card.to_string().replace("abab", "ABAB");
            assert_eq!(format!("  {loud}\n").parse::<Card>(), Ok(card));
        }
        let cases = [
            (String::new(), "a part is missing"),
            (format!("alpha@a:7400#{print}"), "a part is missing"),
            ("consign:alpha@a:7400".into(), "a part is missing"),
            (format!("consign:../a@a:7400#{print}"), "not a name"),
            (format!("consign:alpha@a#{print}"), "cannot be used"),
            ("consign:alpha@a:7400#sha256:abab".into(), "no fingerprint"),
            (format!("consign:alpha@a:7400#{print}0"), "no fingerprint"),
        ];
        for (text, why) in cases {
            let refused = text.parse::<Card>().expect_err(why);
            assert_eq!(refused.code, "CN0002");
            assert!(refused.message.contains(why), "{refused}");
        }
    }
}
