//! What goes wrong with TLS.

use alloc::string::String;

/// Why a TLS connection ends other than by close_notify from both sides.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsFault {
    /// This side's own set-up does not allow a connection.
    #[error("tls set-up: {0}")]
    Setup(String),
    /// The peer refused or ended the connection by an alert.
    #[error("the peer refused the connection: {0}")]
    Alert(String),
    /// What the peer sent is not TLS 1.3 as it should be.
    #[error("tls: {0}")]
    Protocol(String),
    /// The peer's certificate does not hold.
    #[error("certificate refused: {0}")]
    Certificate(String),
    /// The peer showed no certificate.
    #[error("the peer showed no certificate")]
    NoCertificate,
    /// The peer did not agree on this protocol.
    #[error("the peer does not speak consign/1 (no such ALPN protocol was agreed)")]
    Alpn,
    /// The certificate is good but its bearer is not welcome.
    #[error("{0}")]
    Unwelcome(String),
    /// The stream ended during the handshake.
    #[error("the connection ended during the tls handshake")]
    Unfinished,
    /// The stream ended without close_notify: whoever cut it, the data may not be whole.
    #[error("the connection was cut (no tls close_notify)")]
    Truncated,
    /// A record or handshake message is larger than this side keeps.
    #[error("a tls message of more than {held} bytes exceeds the limit of {limit}")]
    Oversized {
        /// Bytes kept so far.
        held: usize,
        /// Most bytes kept.
        limit: usize,
    },
}
