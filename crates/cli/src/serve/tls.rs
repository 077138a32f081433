//! The certificate of a server, which is read again after SIGHUP.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use clap::Args;
use gristmill_hub::crypto_provider;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::failure::Failure;
use crate::verbosity::Verbosity;

#[derive(Args)]
pub(crate) struct TlsArgs {
    /// Encrypt connections with this certificate: a PEM file with the certificate, followed by its chain. SIGHUP reads
    /// the file again.
    #[arg(long, value_name = "FILE", requires = "tls_key", help_heading = "Address and access")]
    tls_cert: Option<PathBuf>,
    /// The private key of the certificate, a PEM file.
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = "Address and access")]
    tls_key: Option<PathBuf>,
}

/// The certificate that connections get from now on.
#[derive(Debug)]
pub(super) struct Certificate {
    files: [PathBuf; 2],
    provider: Arc<CryptoProvider>,
    now: RwLock<Arc<CertifiedKey>>,
}

impl TlsArgs {
    /// Whether connections are encrypted.
    pub(super) fn is_set(&self) -> bool {
        self.tls_cert.is_some()
    }

    /// The certificate, if connections are encrypted.
    pub(super) fn read(&self) -> Result<Option<Arc<Certificate>>, Failure> {
        let (Some(certificate), Some(key)) = (&self.tls_cert, &self.tls_key) else { return Ok(None) };
        let provider = crypto_provider()?;
        let files = [certificate.clone(), key.clone()];
        let now = RwLock::new(Arc::new(read(&files, &provider)?));
        Ok(Some(Arc::new(Certificate { files, provider, now })))
    }
}

impl Certificate {
    /// The settings of connections.
    pub(super) fn config(self: &Arc<Self>) -> Result<Arc<ServerConfig>, Failure> {
        let config =
            ServerConfig::builder_with_provider(self.provider.clone()).with_safe_default_protocol_versions()?;
        let mut config = config.with_no_client_auth().with_cert_resolver(self.clone());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    /// Reads the files again. Files that are wrong leave the certificate that holds.
    pub(super) fn reload(&self, log: Verbosity) {
        match read(&self.files, &self.provider) {
            Ok(new) => {
                *self.now.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(new);
                log.info(format_args!("the certificate was read again"));
            }
            Err(failure) => tracing::error!("the certificate is unchanged: {}", failure.message()),
        }
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.now.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

fn read([certificate, key]: &[PathBuf; 2], provider: &CryptoProvider) -> Result<CertifiedKey, Failure> {
    let wrong = |option: &str, path: &Path, error: &dyn Display| {
        Failure::new(format!("{option} {}: {error}; use a PEM file", path.display()))
    };
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.map_err(|error| wrong("--tls-cert", certificate, &error))?;
    if chain.is_empty() {
        return Err(wrong("--tls-cert", certificate, &"there is no certificate"));
    }
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong("--tls-key", key, &error))?;
    CertifiedKey::from_der(chain, secret, provider).map_err(|error| {
        let (certificate, key) = (certificate.display(), key.display());
        Failure::new(format!("--tls-cert {certificate} and --tls-key {key}: {error}; use a certificate and its key"))
    })
}
