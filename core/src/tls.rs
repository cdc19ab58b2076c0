//! The sans-IO TLS wrapper: the only file that knows rustls.

use alloc::string::String;
use alloc::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, ServerConfig};

use crate::session::Identity;

/// Reads a peer's identity from its verified certificate chain, or says why it is not welcome.
pub type Identify = Arc<dyn Fn(&[CertificateDer<'_>]) -> Result<Identity, String> + Send + Sync>;

/// How this site meets its peers.
#[derive(Clone)]
pub struct TlsSetup {
    /// For dialling.
    pub client: Arc<ClientConfig>,
    /// For listening.
    pub server: Arc<ServerConfig>,
    /// Who the other side is.
    pub identify: Identify,
}
