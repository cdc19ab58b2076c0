//! How fast bytes go through a runtime over TLS on loopback, beside rustls alone in the same run.
//!
//! Four streams of 1 GiB each, taken in turns, the median of several: rustls's buffered connections with
//! large buffers; rustls by way of `TlsConn` and blocking sockets; the runtime as receiver of the first's
//! sender; the runtime as sender to the second's receiver. The CPU time is that of both ends together,
//! and steadier than the rate where others use the machine.

use std::io::{BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use consign_core::driver::MakeSession;
use consign_core::sendbuf::SendBuffer;
use consign_core::session::{Session, SessionCommand, SessionInput, SessionOut};
use consign_core::time::{Instant as CoreInstant, Now};
use consign_core::tls::{TlsConn, TlsSetup};
use rustls::{ClientConnection, ServerConnection, StreamOwned};

use crate::shared::pki::Ca;
use crate::shared::support::{Beta, Setting, client, listen};

const LENGTH: u64 = 1 << 30;
const PIECE: usize = 256 << 10;
const ROUNDS: usize = 5;

/// Counts what it gets; tells when it was all.
struct Sink(u64, mpsc::Sender<()>);

impl Session for Sink {
    fn step(&mut self, _: Now, input: SessionInput<'_>, out: &mut SessionOut) {
        match input {
            SessionInput::Bytes(bytes) => self.0 += bytes.len() as u64,
            SessionInput::Eof => {
                assert_eq!(self.0, LENGTH);
                self.1.send(()).unwrap();
                out.close = true;
            }
            SessionInput::Command(SessionCommand::Close { .. }) => out.close = true,
            _ => {}
        }
    }
    fn next_deadline(&self) -> Option<CoreInstant> {
        None
    }
    fn wants_read(&self) -> bool {
        true
    }
}

/// Sends as fast as it is asked to, once it has got a byte.
struct Source(u64);

impl Session for Source {
    fn step(&mut self, _: Now, input: SessionInput<'_>, out: &mut SessionOut) {
        match input {
            SessionInput::Bytes(_) => self.0 = LENGTH,
            SessionInput::Room(room) if self.0 > 0 => {
                let n = usize::try_from(self.0).unwrap().min(room);
                out.bytes.resize(out.bytes.len() + n, 7);
                self.0 -= n as u64;
                out.close = self.0 == 0;
            }
            SessionInput::Command(SessionCommand::Close { .. }) => out.close = true,
            _ => {}
        }
    }
    fn next_deadline(&self) -> Option<CoreInstant> {
        None
    }
    fn wants_read(&self) -> bool {
        true
    }
}

fn tuned(
    mut tls: StreamOwned<ClientConnection, TcpStream>,
) -> StreamOwned<ClientConnection, TcpStream> {
    tls.conn.set_buffer_limit(Some(PIECE * 2));
    tls.sock.set_nodelay(true).unwrap();
    tls
}

fn send(tls: &mut StreamOwned<ClientConnection, TcpStream>) {
    let piece = vec![7u8; PIECE];
    for _ in 0..LENGTH / PIECE as u64 {
        tls.write_all(&piece).unwrap();
    }
    tls.conn.send_close_notify();
    tls.flush().unwrap();
    tls.sock.shutdown(Shutdown::Write).unwrap();
}

fn receive(tls: &mut impl Read) {
    let (mut buffer, mut total) = (vec![0u8; PIECE], 0u64);
    loop {
        match tls.read(&mut buffer).unwrap() {
            0 => break,
            n => total += n as u64,
        }
    }
    assert_eq!(total, LENGTH);
}

fn buffered(ca: &Ca) -> Duration {
    let (listener, site) = (listen(), ca.site("beta"));
    let config = Arc::new(ca.server(&site, &[b"consign/1"]));
    let address = listener.local_addr().unwrap();
    let receiver = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let conn = ServerConnection::new(config).unwrap();
        receive(&mut StreamOwned::new(conn, Duplex(BufReader::with_capacity(PIECE, stream))));
    });
    let mut tls = tuned(client(address, ca, Some(&ca.site("alpha")), &[b"consign/1"]));
    tls.conn.complete_io(&mut tls.sock).unwrap();
    let began = Instant::now();
    send(&mut tls);
    receiver.join().unwrap();
    began.elapsed()
}

struct Duplex(BufReader<TcpStream>);

impl Read for Duplex {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Duplex {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.get_mut().write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        self.0.get_mut().flush()
    }
}

/// A hand-driven connection: `out` is written whenever there is any.
fn hand(setup: &TlsSetup, stream: &mut TcpStream, dials: bool) -> (TlsConn, SendBuffer) {
    let mut out = SendBuffer::new();
    let mut conn = match dials {
        true => TlsConn::client(setup, "beta", &mut out).unwrap(),
        false => TlsConn::server(setup).unwrap(),
    };
    let mut buffer = vec![0; PIECE];
    loop {
        stream.write_all(out.pending()).unwrap();
        out.sent(out.len());
        if !conn.is_handshaking() {
            break;
        }
        let n = stream.read(&mut buffer).unwrap();
        conn.receive(&mut buffer[..n], &mut out, &mut |_| ()).unwrap();
    }
    conn.open();
    (conn, out)
}

fn unbuffered(ca: &Ca) -> Duration {
    let listener = listen();
    let (alpha, beta) = (ca.setup(&ca.site("alpha")), ca.setup(&ca.site("beta")));
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let receiver = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut conn, mut out) = hand(&beta, &mut stream, false);
        drain(&mut conn, &mut out, &mut stream);
    });
    stream.set_nodelay(true).unwrap();
    let (mut conn, mut out) = hand(&alpha, &mut stream, true);
    let began = Instant::now();
    let piece = vec![7u8; PIECE];
    for _ in 0..LENGTH / PIECE as u64 {
        conn.send(&piece, &mut out).unwrap();
        stream.write_all(out.pending()).unwrap();
        out.sent(out.len());
    }
    conn.close(&mut out).unwrap();
    stream.write_all(out.pending()).unwrap();
    receiver.join().unwrap();
    began.elapsed()
}

fn into_runtime(beta: &Beta, told: &Mutex<mpsc::Receiver<()>>) -> Duration {
    let mut tls = tuned(beta.client("alpha"));
    tls.conn.complete_io(&mut tls.sock).unwrap();
    let began = Instant::now();
    send(&mut tls);
    told.lock().unwrap().recv().unwrap();
    began.elapsed()
}

fn out_of_runtime(beta: &Beta) -> Duration {
    let setup = beta.ca.setup(&beta.ca.site("gamma"));
    let mut stream = beta.raw();
    let (mut conn, mut out) = hand(&setup, &mut stream, true);
    let began = Instant::now();
    conn.send(b"x", &mut out).unwrap();
    stream.write_all(out.pending()).unwrap();
    out.sent(out.len());
    drain(&mut conn, &mut out, &mut stream);
    began.elapsed()
}

/// Reads to the peer's close_notify.
fn drain(conn: &mut TlsConn, out: &mut SendBuffer, stream: &mut TcpStream) {
    let (mut buffer, mut total) = (vec![0; PIECE], 0u64);
    while !conn.peer_closed() {
        let n = stream.read(&mut buffer).unwrap();
        let mut count = |bytes: &[u8]| total += bytes.len() as u64;
        conn.receive(&mut buffer[..n], out, &mut count).unwrap();
    }
    assert_eq!(total, LENGTH);
}

/// Measures and prints.
pub fn run(name: &str) {
    let (tell, told) = mpsc::channel();
    let session: MakeSession = Arc::new(move |info| match &info.identity {
        Some(peer) if peer.name == "gamma" => Box::new(Source(0)),
        _ => Box::new(Sink(0, tell.clone())),
    });
    let beta = Beta::start(Setting { session, ..Setting::default() });
    let told = Mutex::new(told);
    let mut times: [Vec<Duration>; 4] = Default::default();
    let mut cpus: [Vec<Duration>; 4] = Default::default();
    for _ in 0..ROUNDS {
        for (i, (times, cpus)) in times.iter_mut().zip(&mut cpus).enumerate() {
            let before = cpu();
            times.push(match i {
                0 => buffered(&beta.ca),
                1 => unbuffered(&beta.ca),
                2 => into_runtime(&beta, &told),
                _ => out_of_runtime(&beta),
            });
            cpus.push(cpu() - before);
        }
    }
    let median = |times: &mut Vec<Duration>| {
        times.sort();
        times[times.len() / 2].as_secs_f64()
    };
    let seconds = times.each_mut().map(median);
    let cpus = cpus.each_mut().map(median);
    let best = seconds[0].min(seconds[1]);
    let labels = ["rustls, buffered", "rustls, unbuffered", "into the runtime", "out of it"];
    println!("{name}: 1 GiB over TLS on loopback, median of {ROUNDS}, interleaved");
    for ((label, seconds), cpu) in labels.iter().zip(seconds).zip(cpus) {
        let (rate, ratio) = (LENGTH as f64 / seconds / 1e6, best / seconds);
        println!(
            "  {label:20} {rate:6.0} MB/s, {ratio:4.2} of the better rustls; {cpu:5.2} s of CPU"
        );
    }
}

/// CPU time of this process so far.
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap()
}
