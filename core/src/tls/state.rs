//! One state of rustls's unbuffered connections, handled.

use alloc::string::{String, ToString};

use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, UnbufferedStatus, WriteTraffic,
};
use rustls::{AlertDescription, CertificateError};

use super::TlsFault;
use crate::sendbuf::SendBuffer;

/// What a record costs besides its content: header, content type, tag.
const RECORD_OVERHEAD: usize = 22;
/// Content of a full record.
const RECORD_CONTENT: usize = 16_384;

/// What a pass through rustls is for.
pub(super) enum Goal<'a> {
    /// Show plaintext to this.
    Read(&'a mut dyn FnMut(&[u8])),
    /// Encrypt this.
    Write(&'a [u8]),
    /// Say close_notify and drop what arrives.
    Close,
}

/// How to go on after a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// With the next state.
    Again,
    /// The same; the peer will send no more.
    PeerClosed,
    /// Not before more has arrived.
    Blocked,
    /// The goal is reached.
    Done,
}

/// Handles one state; how many bytes of the input are used up, and how to go on.
pub(super) fn act<D>(
    status: UnbufferedStatus<'_, '_, D>,
    goal: &mut Goal<'_>,
    out: &mut SendBuffer,
) -> (usize, Result<Next, TlsFault>) {
    let UnbufferedStatus { mut discard, state } = status;
    let next = match state {
        Err(error) => Err(fault_of(error)),
        Ok(ConnectionState::ReadTraffic(mut traffic)) => loop {
            match traffic.next_record() {
                None => break Ok(Next::Again),
                Some(Err(error)) => break Err(fault_of(error)),
                Some(Ok(record)) => {
                    discard = discard.saturating_add(record.discard);
                    match goal {
                        Goal::Read(plain) => plain(record.payload),
                        Goal::Close => {}
                        Goal::Write(_) => {
                            break Err(TlsFault::Protocol("written over unread data".to_string()));
                        }
                    }
                }
            }
        },
        Ok(ConnectionState::EncodeTlsData(mut data)) => {
            let written = fill(out, RECORD_CONTENT, |room| {
                data.encode(room).map_err(|e| match e {
                    EncodeError::InsufficientSize(size) => Short::Needs(size.required_size),
                    EncodeError::AlreadyEncoded => Short::Broken(e.to_string()),
                })
            });
            written.map(|()| Next::Again)
        }
        Ok(ConnectionState::TransmitTlsData(data)) => {
            data.done();
            Ok(Next::Again)
        }
        Ok(ConnectionState::WriteTraffic(traffic)) => match goal {
            Goal::Read(_) => Ok(Next::Blocked),
            Goal::Write(plain) => encrypt(traffic, plain, out).map(|()| Next::Done),
            Goal::Close => say_close(traffic, out).map(|()| Next::Done),
        },
        Ok(ConnectionState::BlockedHandshake) => Ok(Next::Blocked),
        Ok(ConnectionState::PeerClosed) => Ok(Next::PeerClosed),
        Ok(ConnectionState::Closed) => Ok(Next::Done),
        Ok(ConnectionState::ReadEarlyData(_)) => {
            Err(TlsFault::Protocol("early data is not allowed".to_string()))
        }
        // The enum of another crate may grow; what is not known is not safe to go on with.
        Ok(other) => Err(TlsFault::Protocol(alloc::format!("unexpected state {other:?}"))),
    };
    (discard, next)
}

/// Why rustls could not write.
enum Short {
    Needs(usize),
    Broken(String),
}

/// Lets `write` fill the spare room of `out`, with more room if it asks for it.
fn fill(
    out: &mut SendBuffer,
    guess: usize,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, Short>,
) -> Result<(), TlsFault> {
    let mut room = guess;
    for _ in 0..2 {
        match write(out.spare(room)) {
            Ok(written) => {
                out.commit(written);
                return Ok(());
            }
            Err(Short::Needs(needed)) => room = needed,
            Err(Short::Broken(why)) => return Err(TlsFault::Protocol(why)),
        }
    }
    Err(TlsFault::Protocol(alloc::format!("{room} bytes of room were not enough")))
}

fn encrypt<D>(
    mut traffic: WriteTraffic<'_, D>,
    plain: &[u8],
    out: &mut SendBuffer,
) -> Result<(), TlsFault> {
    let records = plain.len().div_ceil(RECORD_CONTENT);
    let guess = plain.len().saturating_add(records.saturating_mul(RECORD_OVERHEAD));
    fill(out, guess, |room| traffic.encrypt(plain, room).map_err(short))
}

fn say_close<D>(mut traffic: WriteTraffic<'_, D>, out: &mut SendBuffer) -> Result<(), TlsFault> {
    fill(out, 64, |room| traffic.queue_close_notify(room).map_err(short))
}

fn short(error: EncryptError) -> Short {
    match error {
        EncryptError::InsufficientSize(size) => Short::Needs(size.required_size),
        EncryptError::EncryptExhausted => Short::Broken(error.to_string()),
    }
}

/// rustls's error as one of ours.
#[allow(clippy::wildcard_enum_match_arm, reason = "an enum of another crate that grows")]
fn fault_of(error: rustls::Error) -> TlsFault {
    match error {
        // What a site says to a peer that it does not know, or whose certificate is not the pinned one.
        rustls::Error::AlertReceived(alert @ AlertDescription::CertificateUnknown) => {
            TlsFault::Alert(alloc::format!("it does not take this site as its peer ({alert:?})"))
        }
        rustls::Error::AlertReceived(alert) => TlsFault::Alert(alloc::format!("{alert:?}")),
        // The chain is good, and who set up the verifier does not want its bearer.
        rustls::Error::InvalidCertificate(CertificateError::Other(why)) => {
            TlsFault::Unwelcome(why.to_string())
        }
        rustls::Error::InvalidCertificate(why) => TlsFault::Certificate(why.to_string()),
        rustls::Error::NoCertificatesPresented => TlsFault::NoCertificate,
        rustls::Error::NoApplicationProtocol => TlsFault::Alpn,
        other => TlsFault::Protocol(other.to_string()),
    }
}
