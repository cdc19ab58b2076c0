//! Request targets: one spelling each, routed and signed as the bytes they are.

use alloc::string::String;
use alloc::vec::Vec;

use super::Fault;

/// A request target in its two parts, as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    /// The path; begins with `/`.
    pub path: &'a str,
    /// What stands behind the first `?`.
    pub query: &'a str,
}

impl<'a> Target<'a> {
    /// Cuts a target.
    #[must_use]
    pub fn of(raw: &'a str) -> Target<'a> {
        let (path, query) = raw.split_once('?').unwrap_or((raw, ""));
        Target { path, query }
    }

    /// The parts between the slashes, as they were written.
    pub fn segments(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.path.split('/').skip(1)
    }
}

/// The parameters of a query, decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    /// Reads `key=value&…`. Every key must be one of `known`.
    ///
    /// # Errors
    /// [`Fault::Query`] for an unknown key, a bad escape, bytes that are not UTF-8, and for a plus
    /// sign, which some read as a blank and others do not.
    pub fn parse(query: &str, known: &[&str]) -> Result<Query, Fault> {
        let mut pairs = Vec::new();
        for pair in query.split('&').filter(|p| !p.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if !known.contains(&key) {
                return Err(Fault::Query("a parameter this resource does not have"));
            }
            pairs.push((key.into(), decode(value)?));
        }
        Ok(Query { pairs })
    }

    /// The value of a parameter that may stand there once.
    ///
    /// # Errors
    /// [`Fault::Query`] when it stands there twice.
    pub fn one(&self, key: &str) -> Result<Option<&str>, Fault> {
        let mut all = self.all(key);
        let first = all.next();
        match all.next() {
            Some(_) => Err(Fault::Query("a parameter that is there twice")),
            None => Ok(first),
        }
    }

    /// The values of a parameter that may be repeated, in order.
    pub fn all<'a>(&'a self, key: &str) -> impl Iterator<Item = &'a str> {
        self.pairs.iter().filter(move |(k, _)| k == key).map(|(_, v)| v.as_str())
    }
}

/// Appends `text` as it stands in a query: unreserved characters as they are, all others escaped.
pub fn encode_component(text: &str, out: &mut String) {
    for byte in text.bytes() {
        if is_unreserved(byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            for nibble in [byte >> 4, byte & 15] {
                let digit = char::from_digit(u32::from(nibble), 16).unwrap_or('0');
                out.push(digit.to_ascii_uppercase());
            }
        }
    }
}

/// Judges the spelling of a target: a path without empty, `.` and `..` parts, without escapes for
/// characters that need none, and with upper-case escapes for those that do.
pub(super) fn check(raw: &str) -> Result<(), Fault> {
    let Target { path, query } = Target::of(raw);
    if !path.starts_with('/') {
        return Err(Fault::Target("it does not begin with a slash"));
    }
    let parts = path.split('/').skip(1);
    let last = parts.clone().count().saturating_sub(1);
    for (i, part) in parts.enumerate() {
        if part.is_empty() && i < last {
            return Err(Fault::Target("two slashes in a row"));
        }
        if part == "." || part == ".." {
            return Err(Fault::Target("a part that is a dot or two"));
        }
        path_part(part)?;
    }
    let mut rest = query.as_bytes();
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        if *byte == b'%' {
            escaped(&mut rest).ok_or(Fault::Target("an incomplete escape"))?;
        } else if !is_unreserved(*byte) && !b"!$&'()*+,;=:@/?".contains(byte) {
            return Err(Fault::Target("a character that must be escaped"));
        }
    }
    Ok(())
}

fn path_part(part: &str) -> Result<(), Fault> {
    let mut rest = part.as_bytes();
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        if *byte == b'%' {
            let upper = rest.iter().take(2).all(|b| !b.is_ascii_lowercase());
            let byte = escaped(&mut rest).ok_or(Fault::Target("an incomplete escape"))?;
            if !upper {
                return Err(Fault::Target("a lower-case escape"));
            }
            if is_unreserved(byte) || byte == b'/' || byte < 32 || byte == 127 {
                return Err(Fault::Target("an escape for a character that may not have one"));
            }
        } else if !is_unreserved(*byte) && !b"!$&'()*+,;=:@".contains(byte) {
            return Err(Fault::Target("a character that must be escaped"));
        }
    }
    Ok(())
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

/// Takes the two digits behind a percent sign.
fn escaped(rest: &mut &[u8]) -> Option<u8> {
    let (digits, behind) = rest.split_first_chunk::<2>()?;
    let [high, low] = digits.map(|d| char::from(d).to_digit(16));
    *rest = behind;
    u8::try_from((high? << 4) | low?).ok()
}

fn decode(value: &str) -> Result<String, Fault> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        match byte {
            b'+' => return Err(Fault::Query("a plus sign; write %20 for a blank, %2B for a plus")),
            b'%' => bytes.push(escaped(&mut rest).ok_or(Fault::Query("an incomplete escape"))?),
            _ => bytes.push(*byte),
        }
    }
    String::from_utf8(bytes).map_err(|_| Fault::Query("a value that is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn one_spelling_only() {
        let table = [
            ("/", true),
            ("/v1/segments", true),
            ("/v1/segments/", true),
            ("/v1/segments?name=a%20b&to=x", true),
            ("/a%20b", true),
            ("/?", true),
            ("*", false),
            ("", false),
            ("v1", false),
            ("http://h/v1", false),
            ("//v1", false),
            ("/v1//segments", false),
            ("/v1/../x", false),
            ("/v1/.", false),
            ("/v1/%2e%2e", false),
            ("/v1/%2E", false),
            ("/v1/%2Fx", false),
            ("/v1/%2fx", false),
            ("/v1/%c3%a4", false),
            ("/v1/%C3%A4", true),
            ("/v1/%41", false),
            ("/v1/%4", false),
            ("/v1/%", false),
            ("/v1/%00", false),
            ("/v1/%zz", false),
            ("/v1/ä", false),
            ("/v1/a\"b", false),
            ("/v1?x=%", false),
            ("/v1?x=%g0", false),
            ("/v1?x=ä", false),
            ("/v1?x=#", false),
            ("/v1#x", false),
        ];
        for (raw, good) in table {
            assert_eq!(check(raw).is_ok(), good, "{raw}");
        }
    }

    #[test]
    fn queries_are_judged_strictly() {
        let known = ["to", "name"];
        let query = Query::parse("to=a&name=%C3%A4%20b&to=c", &known).unwrap();
        assert_eq!(query.one("name"), Ok(Some("ä b")));
        assert_eq!(query.all("to").collect::<Vec<_>>(), ["a", "c"]);
        assert!(matches!(query.one("to"), Err(Fault::Query(_))));
        assert_eq!(Query::parse("", &known).unwrap().one("to"), Ok(None));
        for bad in ["x=1", "to=a+b", "to=%ff", "To=a"] {
            assert!(matches!(Query::parse(bad, &known), Err(Fault::Query(_))), "{bad}");
        }
    }

    #[test]
    fn every_text_survives_a_query() {
        fn survives(text: String) -> bool {
            let mut raw = "/x?name=".to_string();
            encode_component(&text, &mut raw);
            check(&raw) == Ok(())
                && Query::parse(Target::of(&raw).query, &["name"])
                    .is_ok_and(|q| q.one("name") == Ok(Some(text.as_str())))
        }
        quickcheck::quickcheck(survives as fn(String) -> bool);
    }
}
