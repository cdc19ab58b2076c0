//! Values of configuration keys: what each kind of key takes, and in which words it refuses.
//!
//! Sizes and durations are strings with units, so that no key name has to carry one. The messages are
//! ours: they name the unit that is missing and the words that are allowed.

use std::fmt;
use std::net::SocketAddr;

use consign_core::id::{hex, unhex};
use consign_core::schedule::{Contact, ContactFault};
use consign_core::segment::is_site_name;
use toml::Spanned;
use toml::de::{DeArray, DeInteger, DeValue};

use super::fault::Code;
use super::units::{SIZES, TIMES, millis, quantity, size};

/// What a key takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The name of a site.
    Site,
    /// A path; relative ones start at the configuration file's directory.
    Path,
    /// A path, or `credential:NAME`.
    Credential,
    /// One of these words.
    Word(&'static [&'static str]),
    /// `true` or `false`.
    Switch,
    /// A whole number within bounds.
    Count {
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// A size within bounds, in bytes; `none` means no limit where that is allowed.
    Size {
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
        /// Whether the word `none` is allowed.
        none: bool,
    },
    /// A number of things as a whole number, or the word `none`.
    CountOrNone,
    /// A duration within bounds, in milliseconds; `none` means never where that is allowed.
    Time {
        /// Shortest.
        min: u64,
        /// Longest.
        max: u64,
        /// Whether the word `none` is allowed.
        none: bool,
    },
    /// A list of IP addresses with ports to listen on.
    Listen,
    /// `unix:PATH`.
    Socket,
    /// A loopback address to listen on, or `off`.
    Web,
    /// An address to listen on, or `off`.
    Pickup,
    /// `HOST:PORT` to connect to.
    Address,
    /// `sha256:` and 64 hex digits, or a list of such.
    Pin,
    /// Any string.
    Text,
    /// A list of strings.
    Texts,
    /// A list of contact windows.
    Windows,
}

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Names, paths, words, addresses.
    Text(String),
    /// A switch.
    Switch(bool),
    /// A count, bytes or milliseconds; `None` is the word `none`.
    Number(Option<u64>),
    /// Addresses to listen on.
    Listen(Vec<SocketAddr>),
    /// Fingerprints.
    Pins(Vec<[u8; 32]>),
    /// Strings.
    Texts(Vec<String>),
}

/// Why a value is refused; the key and the place are added by whoever knows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bad {
    /// Stable code.
    pub code: Code,
    /// Follows the key in the sentence: "must be …".
    pub problem: String,
    /// Short note under the value.
    pub label: String,
    /// What to write instead; may be empty.
    pub help: String,
    /// Which entry of a list is meant, from 0.
    pub nth: Option<usize>,
}

impl Bad {
    /// Without help.
    pub(super) fn new(code: Code, problem: impl Into<String>, label: impl Into<String>) -> Bad {
        let (problem, label) = (problem.into(), label.into());
        Bad { code, problem, label, help: String::new(), nth: None }
    }
    /// The same with help.
    pub(super) fn help(mut self, help: impl Into<String>) -> Bad {
        self.help = help.into();
        self
    }
    /// Of that entry of a list.
    fn nth(self, nth: usize) -> Bad {
        Bad { nth: Some(nth), ..self }
    }
    fn kind(kind: Kind, found: &str) -> Bad {
        let expected = kind.expected();
        Bad::new(Code::Type, format!("must be {expected}, not {found}"), found)
    }
}

impl Kind {
    /// What the key takes, for sentences and for the reference page.
    #[must_use]
    pub fn expected(self) -> String {
        match self {
            Kind::Site => "the name of a site".into(),
            Kind::Path => "a path".into(),
            Kind::Credential => "a path or `credential:NAME`".into(),
            Kind::Word(words) => words_list(words),
            Kind::Switch => "`true` or `false`".into(),
            Kind::Count { .. } => "a whole number".into(),
            Kind::CountOrNone => "a whole number or \"none\"".into(),
            Kind::Size { none: false, .. } => "a size with a unit, such as \"5GiB\"".into(),
            Kind::Size { none: true, .. } => {
                "a size with a unit, such as \"5GiB\", or \"none\"".into()
            }
            Kind::Time { none: false, .. } => "a duration with a unit, such as \"15m\"".into(),
            Kind::Time { none: true, .. } => {
                "a duration with a unit, such as \"15m\", or \"none\"".into()
            }
            Kind::Listen => "a list of addresses, such as [\"0.0.0.0:7400\"]".into(),
            Kind::Socket => "a socket, such as \"unix:/run/consign/admin.sock\"".into(),
            Kind::Web => "a loopback address, such as \"127.0.0.1:7411\", or \"off\"".into(),
            Kind::Pickup => "an address, such as \"0.0.0.0:7410\", or \"off\"".into(),
            Kind::Address => "an address, such as \"beta.example.net:7400\"".into(),
            Kind::Pin => "a fingerprint, `sha256:` and 64 hex digits, or a list of them".into(),
            Kind::Text => "a string".into(),
            Kind::Texts => "a list of strings".into(),
            Kind::Windows => "a list of windows, such as [\"Mon-Fri 22:00-06:00\", \"Sat\"]".into(),
        }
    }

    /// Its bounds in words, where it has any that are worth a word.
    #[must_use]
    pub fn bounds(self) -> Option<String> {
        let (min, max) = match self {
            Kind::Count { min, max } => (min.to_string(), max.to_string()),
            Kind::Size { min, max, .. } => (size(min), size(max)),
            Kind::Time { min, max, .. } => (millis(min), millis(max)),
            _ => return None,
        };
        Some(format!("from {min} to {max}"))
    }

    /// Reads a value as it stands in the file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(self, value: &DeValue<'_>) -> Result<Value, Bad> {
        match (self, value) {
            (Kind::Switch, DeValue::Boolean(on)) => Ok(Value::Switch(*on)),
            (Kind::Count { min, max }, DeValue::Integer(int)) => count(int, min, max),
            (Kind::CountOrNone, DeValue::Integer(int)) => count(int, 1, COUNT_MAX),
            (Kind::Listen, DeValue::Array(items)) => listen(&texts(self, items)?),
            (Kind::Texts, DeValue::Array(items)) => Ok(Value::Texts(texts(self, items)?)),
            (Kind::Windows, DeValue::Array(items)) => windows(texts(self, items)?),
            (Kind::Pin, DeValue::Array(items)) => pins(&texts(self, items)?),
            (Kind::Size { .. } | Kind::Time { .. }, DeValue::Integer(_) | DeValue::Float(_)) => {
                Err(Bad::kind(self, "a bare number").help("put a unit to it and quotes around it"))
            }
            (Kind::CountOrNone, DeValue::String(text)) if text == "none" => Ok(Value::Number(None)),
            (
                Kind::Switch
                | Kind::Count { .. }
                | Kind::CountOrNone
                | Kind::Listen
                | Kind::Texts
                | Kind::Windows,
                _,
            ) => Err(Bad::kind(self, found(value))),
            (_, DeValue::String(text)) => self.read_text(text),
            _ => Err(Bad::kind(self, found(value))),
        }
    }

    /// Reads a value from the environment or the command line; lists are separated by commas.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read_text(self, text: &str) -> Result<Value, Bad> {
        match self {
            Kind::Site if is_site_name(text) => Ok(Value::Text(text.into())),
            Kind::Site => {
                let rule =
                    "must be 1 to 128 characters of A-Z a-z 0-9 . _ -, not starting with . or -";
                Err(Bad::new(Code::Value, rule, "not a name for a site"))
            }
            Kind::Path | Kind::Credential | Kind::Text => not_empty(self, text),
            Kind::Word(words) => word(words, text),
            Kind::Switch => match text {
                "true" => Ok(Value::Switch(true)),
                "false" => Ok(Value::Switch(false)),
                _ => Err(Bad::kind(self, "something else")),
            },
            Kind::Count { min, max } => count_text(self, text, min, max),
            Kind::CountOrNone if text == "none" => Ok(Value::Number(None)),
            Kind::CountOrNone => count_text(self, text, 1, COUNT_MAX),
            Kind::Size { none: true, .. } | Kind::Time { none: true, .. } if text == "none" => {
                Ok(Value::Number(None))
            }
            Kind::Size { min, max, none } => {
                let bytes = quantity(text, SIZES, "B")?;
                bounded(bytes, min, max, none, size).map(Value::Number)
            }
            Kind::Time { min, max, none } => {
                let ms = quantity(text, TIMES, "s")?;
                bounded(ms, min, max, none, millis).map(Value::Number)
            }
            Kind::Listen => listen(&split(text)),
            Kind::Texts => Ok(Value::Texts(split(text))),
            Kind::Windows => windows(split(text)),
            Kind::Socket => socket(text),
            Kind::Web | Kind::Pickup if text == "off" => Ok(Value::Listen(Vec::new())),
            Kind::Web => web(text),
            Kind::Pickup => listen(&[text.to_owned()]),
            Kind::Address => address(text),
            Kind::Pin => pins(&split(text)),
        }
    }
}

/// Largest count of anything.
const COUNT_MAX: u64 = 1 << 48;

fn split(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|t| !t.is_empty()).map(str::to_owned).collect()
}

fn found(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

fn not_empty(kind: Kind, text: &str) -> Result<Value, Bad> {
    if text.is_empty() || text.contains('\0') {
        return Err(Bad::new(Code::Value, format!("must be {}", kind.expected()), "empty"));
    }
    Ok(Value::Text(text.into()))
}

/// Words in a sentence: "`a`, `b` or `c`".
fn words_list(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|w| format!("\"{w}\"")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}

fn word(words: &[&str], text: &str) -> Result<Value, Bad> {
    if words.contains(&text) {
        return Ok(Value::Text(text.into()));
    }
    let bad = Bad::new(Code::Value, format!("must be {}", words_list(words)), "not one of them");
    Err(match similar(text, words.iter().copied()) {
        Some(word) => bad.help(format!("a similar word exists: \"{word}\"")),
        None => bad,
    })
}

/// The candidate that looks most like `text`, if any looks much like it.
pub fn similar<'a>(text: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let text = text.to_ascii_lowercase();
    candidates
        .map(|c| (strsim::normalized_damerau_levenshtein(&text, c), c))
        .filter(|(likeness, _)| *likeness >= 0.6)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, c)| c)
}

fn count(int: &DeInteger<'_>, min: u64, max: u64) -> Result<Value, Bad> {
    let digits: String = int.as_str().chars().filter(|c| *c != '_').collect();
    let number = i128::from_str_radix(&digits, int.radix()).unwrap_or(i128::MAX);
    number_in(number, min, max)
}

fn count_text(kind: Kind, text: &str, min: u64, max: u64) -> Result<Value, Bad> {
    let number = text.parse().map_err(|_| Bad::kind(kind, "something else"))?;
    number_in(number, min, max)
}

fn number_in(number: i128, min: u64, max: u64) -> Result<Value, Bad> {
    match u64::try_from(number) {
        Ok(n) if (min..=max).contains(&n) => Ok(Value::Number(Some(n))),
        _ if number < i128::from(min) => {
            let label = if number < 0 { "negative".into() } else { format!("less than {min}") };
            Err(Bad::new(Code::Range, format!("must be at least {min}"), label))
        }
        _ => {
            Err(Bad::new(Code::Range, format!("must be at most {max}"), format!("more than {max}")))
        }
    }
}

fn bounded(
    amount: u64,
    min: u64,
    max: u64,
    none: bool,
    show: fn(u64) -> String,
) -> Result<Option<u64>, Bad> {
    if amount < min {
        let label = if amount == 0 {
            "0 is not \"unlimited\"".into()
        } else {
            format!("less than {}", show(min))
        };
        let problem = if min <= 1 {
            "must be more than 0".into()
        } else {
            format!("must be at least {}", show(min))
        };
        let bad = Bad::new(Code::Range, problem, label);
        return Err(if none { bad.help("write \"none\" for no limit") } else { bad });
    }
    if amount > max {
        let problem = format!("must be at most {}", show(max));
        return Err(Bad::new(Code::Range, problem, format!("more than {}", show(max))));
    }
    Ok(Some(amount))
}

fn texts(kind: Kind, items: &DeArray<'_>) -> Result<Vec<String>, Bad> {
    let read = |(nth, item): (usize, &Spanned<DeValue<'_>>)| match item.get_ref() {
        DeValue::String(text) => Ok(text.to_string()),
        other => Err(Bad::kind(kind, &format!("a list with {} in it", found(other))).nth(nth)),
    };
    items.iter().enumerate().map(read).collect()
}

fn windows(texts: Vec<String>) -> Result<Value, Bad> {
    let read = |(nth, text)| Contact::parse(&[text]).map_err(|fault| (nth, fault));
    let Err((nth, fault)) = texts.iter().enumerate().try_for_each(|each| read(each).map(drop))
    else {
        return Ok(Value::Texts(texts));
    };
    let ContactFault { text, word, problem } = fault;
    let found = if word.is_empty() { text } else { word };
    let which = match texts.len() {
        1 => String::new(),
        many => format!(", window {} of {many}", nth + 1),
    };
    let problem = format!("cannot be read{which}: {problem}");
    let help = "days such as Mon-Fri or Sat,Sun, hours such as 22:00-06:00, and a zone such as \
                +02:00; without a zone it is UTC";
    Err(Bad::new(Code::Value, problem, format!("{found:?}")).help(help).nth(nth))
}

fn listen(items: &[String]) -> Result<Value, Bad> {
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for (nth, item) in items.iter().enumerate() {
        let address = item.parse().map_err(|_| {
            let problem = format!("has `{item}`, which is not an IP address with a port");
            Bad::new(Code::Value, problem, "an IP address and a port are needed")
                .help("for example \"0.0.0.0:7400\" or \"[::]:7400\"")
                .nth(nth)
        })?;
        if addresses.contains(&address) {
            let bad = Bad::new(Code::Double, format!("has `{item}` twice"), "twice");
            return Err(bad.nth(nth));
        }
        addresses.push(address);
    }
    Ok(Value::Listen(addresses))
}

fn web(text: &str) -> Result<Value, Bad> {
    let bad =
        |label: &str| Bad::new(Code::Value, format!("must be {}", Kind::Web.expected()), label);
    let address: SocketAddr = text.parse().map_err(|_| bad("not an IP address with a port"))?;
    if !address.ip().is_loopback() {
        return Err(bad("reachable from other machines").help("it has no login, so it stays here"));
    }
    Ok(Value::Listen(vec![address]))
}

/// Longest path of a Unix socket in bytes.
pub const SOCKET_PATH_MAX: usize = 107;

fn socket(text: &str) -> Result<Value, Bad> {
    match text.strip_prefix("unix:") {
        Some(path) if !path.is_empty() && !path.contains('\0') => Ok(Value::Text(path.into())),
        _ => Err(Bad::new(
            Code::Value,
            format!("must be {}", Kind::Socket.expected()),
            "not `unix:PATH`",
        )),
    }
}

fn address(text: &str) -> Result<Value, Bad> {
    let bad =
        |label: &str| Bad::new(Code::Value, format!("must be {}", Kind::Address.expected()), label);
    let (host, port) = text.rsplit_once(':').ok_or_else(|| bad("the port is missing"))?;
    if host.is_empty() {
        return Err(bad("the host is missing"));
    }
    let bracketed = host.starts_with('[') && host.ends_with(']');
    if host.contains(':') && !bracketed {
        return Err(bad("an IPv6 address needs brackets").help(format!("[{host}]:{port}")));
    }
    if host.contains(|c: char| c.is_whitespace() || c.is_control() || c == '/') {
        return Err(bad("not a host name"));
    }
    match port.parse::<u16>() {
        Ok(0) => Err(bad("port 0 cannot be dialled")),
        Ok(_) => Ok(Value::Text(text.into())),
        Err(_) => Err(bad("not a port")),
    }
}

fn pins(texts: &[String]) -> Result<Value, Bad> {
    let bad = |found| Bad::new(Code::Value, format!("must be {}", Kind::Pin.expected()), found);
    if texts.is_empty() {
        return Err(bad("none".into()).help("leave the key out to take any certificate"));
    }
    let mut pins = Vec::new();
    for text in texts {
        let hex = text.strip_prefix("sha256:").map(|h| h.replace(':', ""));
        let pin = hex.and_then(|h| unhex::<32>(&h));
        let pin = pin.ok_or_else(|| bad(format!("{} characters", text.chars().count())))?;
        if pins.contains(&pin) {
            return Err(Bad::new(Code::Double, "has a fingerprint twice", "twice"));
        }
        pins.push(pin);
    }
    Ok(Value::Pins(pins))
}

/// A fingerprint as the configuration words it.
pub(crate) fn worded(digest: &[u8; 32]) -> String {
    format!("sha256:{}", hex(digest))
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Text(text) => f.write_str(text),
            Value::Switch(on) => write!(f, "{on}"),
            Value::Number(Some(n)) => write!(f, "{n}"),
            Value::Number(None) => f.write_str("none"),
            Value::Listen(addresses) => write!(f, "{addresses:?}"),
            Value::Pins(pins) => {
                f.write_str(&pins.iter().map(worded).collect::<Vec<_>>().join(","))
            }
            Value::Texts(texts) => write!(f, "{texts:?}"),
        }
    }
}
