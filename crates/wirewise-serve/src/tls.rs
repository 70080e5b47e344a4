// SPDX-License-Identifier: Apache-2.0
//! Encryption of `listen`: the files that the configuration names, and what new connections are encrypted by.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use wirewised::error::{Error, Result};
use wirewised::files;

/// A chain of certificates, or those of all authorities that a system trusts.
const LARGEST: u64 = 1 << 20;

/// The `tls` of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Files {
    /// PEM: the service's own certificate first, then those between it and its authority.
    certificate: PathBuf,
    /// PEM, without a passphrase.
    key: PathBuf,
    /// PEM: without a certificate that one of these signed, nobody gets as far as showing a token.
    client_ca: Option<PathBuf>,
}

impl Files {
    /// Makes its paths absolute.
    pub fn relative_to(&mut self, folder: &Path) {
        for path in [&mut self.certificate, &mut self.key].into_iter().chain(&mut self.client_ca) {
            *path = folder.join(&*path);
        }
    }

    /// What the files say, if they fit together.
    pub fn read(&self) -> Result<Arc<ServerConfig>> {
        let provider = Arc::new(default_provider());
        let failed = |why: rustls::Error| {
            Error::input(format!(
                "`tls`: {} and {}: {why}; the key has to be that of the first certificate",
                self.certificate.display(),
                self.key.display()
            ))
        };
        // Older versions are for clients that are ten years old.
        let versions = &[&rustls::version::TLS13];
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)
            .map_err(failed)?;
        let builder = match &self.client_ca {
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates("client_ca", path)? {
                    roots.add(certificate).map_err(|error| refused("client_ca", path, &error))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                builder
                    .with_client_cert_verifier(verifier.map_err(|error| refused("client_ca", path, &error))?)
            }
            None => builder.with_no_client_auth(),
        };
        let chain = certificates("certificate", &self.certificate)?;
        let mut config = builder.with_single_cert(chain, key(&self.key)?).map_err(failed)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

fn refused(name: &str, path: &Path, why: &dyn std::fmt::Display) -> Error {
    Error::input(format!("`tls`: `{name}: {}`: {why}", path.display()))
}

fn certificates(name: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let text = files::read(path, LARGEST)?;
    let read: std::result::Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(&text).collect();
    let read = read.map_err(|error| refused(name, path, &error))?;
    if read.is_empty() {
        return Err(refused(name, path, &"has no certificate in PEM form (-----BEGIN CERTIFICATE-----)"));
    }
    Ok(read)
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_slice(&files::read(path, LARGEST)?).map_err(|error| match error {
        pem::Error::NoItemsFound => {
            refused("key", path, &"has no private key in PEM form without a passphrase")
        }
        error => refused("key", path, &error),
    })
}

/// What connections are encrypted by from now on; those that are there keep what they began with.
#[derive(Debug)]
pub struct Current(Mutex<Arc<ServerConfig>>);

impl Current {
    pub fn new(config: Arc<ServerConfig>) -> Self {
        Self(Mutex::new(config))
    }

    pub fn change(&self, config: Arc<ServerConfig>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = config;
    }

    pub async fn encrypt(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let config = Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner));
        TlsAcceptor::from(config).accept(stream).await
    }
}
