//! What the machine can do without any relay: one TLS stream on loopback, plain writes and syncs.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use consign_storage_lmdb::LargeFile;
use rustix::fs::OFlags;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};

use super::{Load, failed};
use crate::exit::Failure;

/// How long each figure is measured, about.
const SPELL: Duration = Duration::from_millis(300);
/// Bytes written and read at a time.
const BLOCK: usize = 256 << 10;
/// From here on sites write and read past the page cache, and so does what they are compared with.
const LARGE: u64 = 64 << 20;
/// No more than that is written of one segment.
const LARGEST: u64 = 1 << 30;
/// Bytes written and read at a time then.
const LARGE_BLOCK: usize = 1 << 20;
/// Threads that read a large file, each its share of the blocks: as many as a site has.
const READERS: usize = 2;
/// What memory and places in the file are multiples of then.
const ALIGN: usize = 4_096;

/// Figures of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Raw {
    /// Bytes a second through one TLS stream on loopback, received and thrown away.
    pub tls: f64,
    /// Bytes a second written and synced in pieces of a size: the size, the rate.
    pub synced: Vec<(u64, f64)>,
    /// Bytes a second of a large piece that is written and synced while as much is read, past the page cache, as
    /// two sites on one disk do.
    pub copied: Vec<(u64, f64)>,
}

impl Raw {
    /// Measures in `dir`, with pieces of the sizes of these loads.
    ///
    /// # Errors
    /// When the disk or loopback cannot be used.
    pub fn measure(dir: &Path, loads: &[Load]) -> Result<Raw, Failure> {
        let tls = stream().map_err(|e| failed("the raw TLS stream", e))?;
        let mut raw = Raw { tls, synced: Vec::new(), copied: Vec::new() };
        for load in loads {
            let wrong = |e| failed("the raw writes", e);
            if load.size < LARGE {
                let rate = writes(&dir.join("raw"), load.size).map_err(wrong)?;
                raw.synced.push((load.size, rate));
            } else {
                let (synced, copied) = Raw::large(dir, load.size.min(LARGEST)).map_err(wrong)?;
                raw.synced.push((load.size, synced));
                raw.copied.push((load.size, copied));
            }
        }
        Ok(raw)
    }

    /// The middle of several measurements, figure by figure.
    ///
    /// # Panics
    /// When there are none.
    pub(super) fn median(all: &[Raw]) -> Raw {
        let first = all.first().expect("something was measured");
        let middle = |figure: &dyn Fn(&Raw) -> f64| {
            let mut figures: Vec<f64> = all.iter().map(figure).collect();
            figures.sort_by(f64::total_cmp);
            figures.get(figures.len() / 2).copied().unwrap_or_default()
        };
        let of = |figures: &[(u64, f64)], figure: fn(&Raw, u64) -> f64| {
            figures.iter().map(|(size, _)| (*size, middle(&|raw| figure(raw, *size)))).collect()
        };
        Raw {
            tls: middle(&|raw| raw.tls),
            synced: of(&first.synced, Raw::synced),
            copied: of(&first.copied, |raw, size| raw.copied(size).unwrap_or_default()),
        }
    }

    /// The synced rate of a size.
    #[must_use]
    pub fn synced(&self, size: u64) -> f64 {
        rate_of(&self.synced, size).unwrap_or_default()
    }

    /// The rate of a large size that is written while as much is read.
    #[must_use]
    pub fn copied(&self, size: u64) -> Option<f64> {
        rate_of(&self.copied, size)
    }

    /// A large file written and synced past the page cache, then another while the first is read: the rates of both.
    ///
    /// # Errors
    /// When the disk cannot be used.
    pub fn large(dir: &Path, size: u64) -> io::Result<(f64, f64)> {
        let (first, second) = (dir.join("raw"), dir.join("raw-2"));
        let begun = Instant::now();
        fill(&first, size)?;
        let synced = size as f64 / begun.elapsed().as_secs_f64();
        let begun = Instant::now();
        std::thread::scope(|scope| {
            let first = &first;
            let read = |share| scope.spawn(move || read(first, share));
            let readers: Vec<_> = (0..READERS).map(read).collect();
            fill(&second, size)?;
            readers.into_iter().try_for_each(|reader| {
                reader.join().map_err(|_| io::Error::other("a reader panicked"))?
            })
        })?;
        let copied = size as f64 / begun.elapsed().as_secs_f64();
        std::fs::remove_file(&first)?;
        std::fs::remove_file(&second)?;
        Ok((synced, copied))
    }
}

fn rate_of(figures: &[(u64, f64)], size: u64) -> Option<f64> {
    figures.iter().find(|(s, _)| *s == size).map(|(_, rate)| *rate)
}

fn fill(path: &Path, size: u64) -> io::Result<()> {
    let block = vec![0xa5; LARGE_BLOCK];
    let mut file = LargeFile::new(File::create(path)?.into(), 0)?;
    for _ in 0..size / LARGE_BLOCK as u64 {
        file.append(&block)?;
    }
    file.sync()
}

/// Reads one share of a file's blocks, past the page cache where that is allowed.
fn read(path: &Path, share: usize) -> io::Result<()> {
    let direct = OFlags::DIRECT.bits().cast_signed();
    let file = match OpenOptions::new().read(true).custom_flags(direct).open(path) {
        Err(e) if e.kind() == io::ErrorKind::InvalidInput => File::open(path)?,
        other => other?,
    };
    let mut memory = vec![0; LARGE_BLOCK + ALIGN];
    let skip = memory.as_ptr().align_offset(ALIGN);
    let block = memory.get_mut(skip..skip + LARGE_BLOCK).unwrap_or_default();
    let mut at = (share * LARGE_BLOCK) as u64;
    while file.read_at(block, at)? > 0 {
        at += (READERS * LARGE_BLOCK) as u64;
    }
    Ok(())
}

/// Pieces of a size, appended and synced one by one.
fn writes(path: &Path, size: u64) -> io::Result<f64> {
    let block = vec![0xa5; usize::try_from(size).unwrap_or(BLOCK).clamp(1, BLOCK)];
    let begun = Instant::now();
    let mut file = File::create(path)?;
    let mut written = 0;
    while written == 0 || begun.elapsed() < SPELL {
        let mut left = size;
        while left > 0 {
            let len = usize::try_from(left).unwrap_or(BLOCK).min(block.len());
            file.write_all(block.get(..len).unwrap_or_default())?;
            left -= len as u64;
        }
        file.sync_data()?;
        written += size;
    }
    let rate = written as f64 / begun.elapsed().as_secs_f64();
    std::fs::remove_file(path)?;
    Ok(rate)
}

/// One stream with the cipher suite of peers, from one thread to another.
fn stream() -> io::Result<f64> {
    let (client, server) = configs().map_err(io::Error::other)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let receiver = std::thread::spawn(move || -> io::Result<(u64, Duration)> {
        let (mut socket, _) = listener.accept()?;
        let mut tls = ServerConnection::new(server).map_err(io::Error::other)?;
        let mut stream = rustls::Stream::new(&mut tls, &mut socket);
        let (mut block, mut got) = (vec![0; BLOCK], 0);
        // The clock runs from the first byte.
        let first = stream.read(&mut block)?;
        let begun = Instant::now();
        if first > 0 {
            loop {
                match stream.read(&mut block) {
                    Ok(0) => break,
                    Ok(len) => got += len as u64,
                    Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => break,
                    Err(e) => return Err(e),
                }
            }
        }
        Ok((got, begun.elapsed()))
    });
    let mut socket = TcpStream::connect(address)?;
    socket.set_nodelay(true)?;
    let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
    let mut tls = ClientConnection::new(client, name).map_err(io::Error::other)?;
    tls.set_buffer_limit(Some(2 * BLOCK));
    let block = vec![0xa5; BLOCK];
    let begun = Instant::now();
    while begun.elapsed() < SPELL {
        rustls::Stream::new(&mut tls, &mut socket).write_all(&block)?;
    }
    tls.send_close_notify();
    rustls::Stream::new(&mut tls, &mut socket).flush()?;
    socket.shutdown(std::net::Shutdown::Write)?;
    let over = receiver.join().map_err(|_| io::Error::other("the receiver panicked"))?;
    let (got, took) = over?;
    Ok(got as f64 / took.as_secs_f64())
}

/// Both ends, with the provider of peers; the client trusts just the one certificate.
fn configs() -> Result<(Arc<ClientConfig>, Arc<ServerConfig>), String> {
    let text = |e: &dyn std::fmt::Display| e.to_string();
    let key = rcgen::KeyPair::generate().map_err(|e| text(&e))?;
    let params =
        rcgen::CertificateParams::new(vec!["localhost".to_owned()]).map_err(|e| text(&e))?;
    let pem = params.self_signed(&key).map_err(|e| text(&e))?.pem();
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|e| text(&e))?;
    let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes());
    let key = key.map_err(|e| text(&e))?;
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).map_err(|e| text(&e))?;
    let provider = Arc::new(crate::tls::provider());
    let client = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|e| text(&e))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|e| text(&e))?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .map_err(|e| text(&e))?;
    server.send_tls13_tickets = 0;
    Ok((Arc::new(client), Arc::new(server)))
}
