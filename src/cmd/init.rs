//! `consign init`: authority, key, certificate, data directory and a commented configuration.
//!
//! Nothing is ever overwritten. With `--ca` the new site is signed by the authority of another one; if
//! that site's configuration lies beside it, it becomes a peer, and with `--introduce` it learns of the
//! new site, too, so that two sites on one machine need no editing.

mod card;
mod demo;
mod files;
mod join;
mod pickup;
mod report;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use consign_core::segment::is_site_name;

use crate::config::template::{self, Peer, quote};
use crate::config::value::Kind;
use crate::config::{self, FILE_NAME, Layers, Settings};
use crate::exit::{Exit, Failure, Global};
use crate::out;
use crate::pki::{AUTHORITY_LASTS, Authority, SITE_LASTS};
use crate::tls::identity::Site;
pub(crate) use card::Card;
pub(crate) use demo::DEMO_DIR;
use files::Made;
pub(crate) use join::{CARD, promised};
pub(crate) use report::Report;

/// Makes a site: keys, certificate, configuration.
#[derive(Args, Clone, Debug, Default)]
pub struct InitArgs {
    /// Where to make it [default: here]
    pub dir: Option<PathBuf>,
    /// Name of the site [default: the directory's name, or this machine's]
    #[arg(long)]
    pub name: Option<String>,
    /// Where peers connect to it [default: 0.0.0.0:7400, or a free port beside the site of --ca]
    #[arg(long, value_name = "IP:PORT")]
    pub listen: Option<SocketAddr>,
    /// Sign with this authority instead of a new one: the directory of another site, or its ca.pem
    #[arg(long, value_name = "DIR|FILE")]
    pub ca: Option<PathBuf>,
    /// Key of that authority [default: ca.key beside it]
    #[arg(long, value_name = "FILE", requires = "ca")]
    pub ca_key: Option<PathBuf>,
    /// Where shards are uploaded and picked up [default: nowhere]
    #[arg(long, value_name = "IP:PORT")]
    pub pickup: Option<SocketAddr>,
    /// A host name or address under which this site is reached, by other sites and by pickup clients: its card has the first, its certificate all; may be given more than once
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    pub host: Vec<String>,
    /// A site to exchange segments with; may be given more than once
    #[arg(long, value_name = "NAME=HOST:PORT", value_delimiter = ',')]
    pub peer: Vec<String>,
    /// Join the site of this card, in one line as its `init` printed it: makes a request instead of a certificate
    #[arg(long, value_name = "CARD", conflicts_with_all = ["ca", "introduce"])]
    pub join: Option<String>,
    /// Makes keys and certificates alone: for a configuration that is there already, such as a package's
    #[arg(long, conflicts_with_all = ["join", "introduce", "listen", "pickup", "peer"])]
    pub no_config: bool,
    /// Also make this site known to the one in the directory given by --ca
    #[arg(long, requires = "ca")]
    pub introduce: bool,
    /// Makes two sites that know each other, to try things with: in DIR or ./consign-demo, alpha at --listen, beta 100 ports above
    #[arg(long, conflicts_with_all = ["name", "ca", "pickup", "host", "peer", "join", "no_config"])]
    pub demo: bool,
    /// How long a new authority and the certificate last, if not as usual.
    #[arg(skip)]
    pub(crate) lasts: Option<Duration>,
    /// Keys that the configuration sets besides, as TOML.
    #[arg(skip)]
    pub(crate) set: Vec<(&'static str, String)>,
}

/// First port for peers.
const PORT: u16 = 7400;
/// Ports of further sites on one machine are this far apart.
const PORT_STEP: u16 = 100;

/// The status port is so far above that for peers.
const WEB_ABOVE: u16 = 11;

/// What there is to be made.
pub(crate) struct Plan {
    dir: PathBuf,
    name: String,
    listen: Option<SocketAddr>,
    pickup: Option<SocketAddr>,
    /// Under which name or address it is reached, if that was said.
    host: Option<String>,
    /// Keys and certificates alone.
    bare: bool,
    peers: Vec<Peer>,
    /// Directory and configuration of the site whose authority is used.
    sibling: Option<(PathBuf, Settings)>,
    /// The site to join.
    join: Option<Card>,
    /// Keys that the configuration sets besides, as TOML.
    set: Vec<(&'static str, String)>,
}

/// Runs the command.
///
/// # Errors
/// When something is there already, or an argument or the authority cannot be used.
pub fn run(args: &InitArgs, global: &Global) -> Result<(), Failure> {
    if args.demo {
        return demo::run(args, global);
    }
    let (plan, report) = make(args)?;
    if global.json {
        out::line(&report.json(&plan).to_string());
    } else {
        out::line(report.text(&plan).trim_end());
    }
    Ok(())
}

/// Makes a site without saying so.
///
/// # Errors
/// As [`run`].
pub(crate) fn make(args: &InitArgs) -> Result<(Plan, Report), Failure> {
    let plan = Plan::new(args)?;
    let report = plan.carry_out(args)?;
    Ok((plan, report))
}

fn usage(message: impl Into<String>) -> Failure {
    Failure::new(Exit::Usage, "CN0002", message)
}

impl Plan {
    fn new(args: &InitArgs) -> Result<Plan, Failure> {
        let dir = args.dir.clone().unwrap_or_else(|| ".".into());
        let name = match (&args.name, &args.dir) {
            (Some(name), _) => name.clone(),
            (None, Some(dir)) => {
                dir.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
            }
            (None, None) => machine_name(),
        };
        if !is_site_name(&name) {
            let rule = "1 to 128 characters of A-Z a-z 0-9 . _ -, not starting with . or -";
            let message = format!("{name:?} cannot name a site: a name has {rule}");
            return Err(usage(message).help("--name NAME gives it another"));
        }
        let sibling = match &args.ca {
            Some(ca) => sibling(ca, args.introduce)?,
            None => None,
        };
        let mut peers: Vec<Peer> = Vec::new();
        for text in &args.peer {
            peers.push(peer(text)?);
        }
        if let Some((_, other)) = &sibling {
            let known = peers.iter().any(|p| p.name == other.node.name);
            if let (false, Some(address)) = (known, reached_at(&other.listen)) {
                peers.push(Peer { name: other.node.name.clone(), address });
            }
        }
        let join: Option<Card> = args.join.as_deref().map(str::parse).transpose()?;
        if let Some(card) = join.as_ref().filter(|c| !peers.iter().any(|p| p.name == c.name)) {
            peers.push(Peer { name: card.name.clone(), address: card.address.clone() });
        }
        for (i, peer) in peers.iter().enumerate() {
            if peer.name == name {
                return Err(usage(format!("{name} cannot be its own peer")));
            }
            if peers.iter().take(i).any(|p| p.name == peer.name) {
                return Err(usage(format!("the peer {} is given twice", peer.name)));
            }
        }
        let listen = args.listen.or_else(|| Some(free_address(&sibling.as_ref()?.1)));
        let (pickup, bare, set) = (args.pickup, args.no_config, args.set.clone());
        let host = args.host.first().cloned();
        Ok(Plan { dir, name, listen, pickup, host, bare, peers, sibling, join, set })
    }

    fn carry_out(&self, args: &InitArgs) -> Result<Report, Failure> {
        if let Some(card) = &self.join {
            return self.join(args, card);
        }
        let own_authority = args.ca.is_none();
        let mut made = Made::begin(&self.dir, own_authority, self.bare)?;
        let authority = match &args.ca {
            Some(ca) => read_authority(ca, args.ca_key.as_deref())?,
            None => {
                let (authority, pair) = Authority::lasting(args.lasts.unwrap_or(AUTHORITY_LASTS))?;
                made.secret("ca.key", &pair.key)?;
                authority
            }
        };
        let pair = authority.site(&self.name, &args.host, args.lasts.unwrap_or(SITE_LASTS))?;
        made.public("ca.pem", authority.certificate())?;
        made.secret("node.key", &pair.key)?;
        made.public("node.pem", &pair.certificate)?;
        if !self.bare {
            made.public(FILE_NAME, &self.configuration())?;
            // The configuration that was written must be one that `serve` takes.
            config::load(&self.dir.join(FILE_NAME), &Layers::default()).map_err(|f| f.failure())?;
        }
        let introduced = match &self.sibling {
            Some((dir, other)) if args.introduce => Some(self.introduce(dir, other)?),
            _ => None,
        };
        let until = valid_until(&pair.certificate);
        made.keep();
        let card = self.card(args, &authority).filter(|_| own_authority);
        Ok(Report { until, own_authority, introduced, card, joined: None })
    }

    fn configuration(&self) -> String {
        let mut set = vec![
            ("node.name", quote(&self.name)),
            ("node.data_dir", quote(files::DATA)),
            ("tls.ca", quote("ca.pem")),
            ("tls.cert", quote("node.pem")),
            ("tls.key", quote("node.key")),
        ];
        if let Some(listen) = self.listen {
            set.push(("listen.peers", format!("[\"{listen}\"]")));
            set.push(("listen.web", format!("\"{}\"", Plan::page(listen))));
        }
        if let Some(pickup) = self.pickup {
            set.push(("listen.pickup", format!("\"{pickup}\"")));
        }
        set.extend(self.set.iter().cloned());
        template::render(&set, &self.peers)
    }

    /// Where the page of a site is that listens there: sites on one machine must differ in this port, too.
    fn page(listen: SocketAddr) -> SocketAddr {
        let port = listen.port().checked_add(WEB_ABOVE).filter(|_| listen.port() != 0);
        let here = Some(listen.ip()).filter(IpAddr::is_loopback);
        SocketAddr::new(here.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)), port.unwrap_or(0))
    }

    /// How other sites on this machine reach this one.
    fn as_peer(&self) -> Peer {
        let listen = self.listen.unwrap_or(SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT)));
        let address = reached_at(&[listen]).unwrap_or_default();
        Peer { name: self.name.clone(), address }
    }

    /// Whether it is for another machine: a peer of its is reached over the network.
    fn is_elsewhere(&self) -> bool {
        self.peers.iter().any(|p| !is_this_machine(&p.address))
    }

    /// What its peers have to know: HOST stands where only they can say how this site is reached.
    fn to_tell(&self) -> Peer {
        if let Some(host) = &self.host {
            let port = self.listen.map_or(PORT, |a| a.port());
            return Peer { name: self.name.clone(), address: reached_as(host, port) };
        }
        let unspecified = self.listen.is_none_or(|a| a.ip().is_unspecified());
        if unspecified && self.is_elsewhere() {
            let port = self.listen.map_or(PORT, |a| a.port());
            return Peer { name: self.name.clone(), address: format!("HOST:{port}") };
        }
        self.as_peer()
    }

    /// Adds this site to the peers of the other; the file is replaced whole or not at all.
    fn introduce(&self, dir: &Path, other: &Settings) -> Result<bool, Failure> {
        if other.node.peers.iter().any(|p| p.name == self.name) {
            return Ok(false);
        }
        let file = dir.join(FILE_NAME);
        let io = |e: std::io::Error| {
            Failure::new(Exit::Failed, "CN0323", format!("{} was not changed: {e}", file.display()))
        };
        let old = std::fs::read_to_string(&file).map_err(io)?;
        let new = format!("{}\n\n{}", old.trim_end(), self.as_peer().lines());
        config::parse(&file, &new, &Layers::default()).map_err(|faults| {
            let why = faults.failure().message;
            let message = format!("{} was not changed: {why}", file.display());
            Failure::new(Exit::Failed, "CN0323", message)
        })?;
        config::replace(&file, &new).map_err(io)?;
        Ok(true)
    }
}

/// The site in whose directory the authority lies, if its configuration is there and good.
fn sibling(ca: &Path, needed: bool) -> Result<Option<(PathBuf, Settings)>, Failure> {
    let dir = if ca.is_dir() { ca.to_path_buf() } else { parent(ca) };
    let file = dir.join(FILE_NAME);
    match config::load(&file, &Layers::default()) {
        Ok(settings) => Ok(Some((dir, settings))),
        Err(faults) if needed => {
            let failure = faults.failure();
            let message =
                format!("--introduce needs a good {}: {}", file.display(), failure.message);
            Err(Failure::new(Exit::Failed, "CN0323", message).help(failure.help))
        }
        Err(_) => Ok(None),
    }
}

fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => ".".into(),
    }
}

/// Reads an authority: its certificate or the directory it lies in, and its key, beside it unless named.
///
/// # Errors
/// When one of them cannot be read or used.
pub(crate) fn read_authority(ca: &Path, key: Option<&Path>) -> Result<Authority, Failure> {
    let certificate = if ca.is_dir() { ca.join("ca.pem") } else { ca.to_path_buf() };
    let key = key.map_or_else(|| parent(&certificate).join("ca.key"), Path::to_path_buf);
    let read = |path: &Path| {
        std::fs::read_to_string(path).map_err(|e| {
            let message = format!("{} cannot be read: {e}", path.display());
            let help = "--ca names the directory of a site that `consign init` made with its own \
                        authority, or a ca.pem with --ca-key";
            Failure::new(Exit::Failed, "CN0311", message).help(help)
        })
    };
    Authority::from_pem(&read(&certificate)?, &read(&key)?)
}

fn peer(text: &str) -> Result<Peer, Failure> {
    let (name, address) = text
        .split_once('=')
        .ok_or_else(|| usage(format!("--peer {text:?} is not NAME=HOST:PORT")))?;
    if !is_site_name(name) {
        return Err(usage(format!("--peer {text:?}: {name:?} is not a name for a site")));
    }
    let bad =
        |b: config::value::Bad| usage(format!("--peer {text:?}: {} ({})", b.problem, b.label));
    Kind::Address.read_text(address).map_err(bad)?;
    Ok(Peer { name: name.into(), address: address.into() })
}

/// `HOST:PORT`, an address of version 6 in brackets.
fn reached_as(host: &str, port: u16) -> String {
    match host.parse::<IpAddr>() {
        Ok(ip) => SocketAddr::new(ip, port).to_string(),
        Err(_) => format!("{host}:{port}"),
    }
}

/// Whether an address leads nowhere but to this machine.
fn is_this_machine(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let ip = host.trim_matches(['[', ']']).parse::<IpAddr>();
    ip.map_or(host == "localhost", |ip| ip.is_loopback())
}

/// How a site that listens there is reached from this machine.
fn reached_at(listen: &[SocketAddr]) -> Option<String> {
    let mut address = *listen.iter().find(|a| a.port() != 0)?;
    if address.ip().is_unspecified() {
        address.set_ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    Some(address.to_string())
}

/// An address beside those that the other site and its peers on this machine use.
fn free_address(other: &Settings) -> SocketAddr {
    let mut used: Vec<u16> = other.listen.iter().map(SocketAddr::port).collect();
    used.extend(other.node.peers.iter().filter_map(|p| {
        let address: SocketAddr = p.address.parse().ok()?;
        address.ip().is_loopback().then_some(address.port())
    }));
    let mut port = PORT;
    while used.contains(&port) {
        port = port.checked_add(PORT_STEP).unwrap_or(PORT + 1);
    }
    let local = other.listen.iter().map(SocketAddr::ip).find(|ip| ip.is_loopback());
    SocketAddr::new(local.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)), port)
}

/// How others reach a site that listens there: by the name of this machine unless an address is said.
///
/// # Errors
/// When it listens nowhere, or nobody could tell where.
pub(crate) fn reached_by_others(listen: &[SocketAddr]) -> Result<String, Failure> {
    let named = |address: &SocketAddr| match address.ip().is_unspecified() {
        true => format!("{}:{}", machine_name(), address.port()),
        false => address.to_string(),
    };
    listen.iter().find(|address| address.port() != 0).map(named).ok_or_else(|| {
        let message = "this site listens on no address that others could be told";
        Failure::new(Exit::Failed, "CN0582", message).help("listen.peers names one")
    })
}

/// The first label of this machine's name.
fn machine_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    name.split('.').next().unwrap_or_default().to_owned()
}

fn valid_until(certificate: &str) -> i64 {
    let der = x509_parser::pem::parse_x509_pem(certificate.as_bytes());
    let site = der.ok().and_then(|(_, pem)| Site::read(&pem.contents).ok());
    site.map_or(0, |site| site.not_after)
}

/// A path as it can be typed into a shell.
pub(crate) fn shown(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@%:,".contains(c);
    let text = text.trim_end_matches('/');
    if text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}
