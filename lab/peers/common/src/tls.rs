//! TLS by rustls as the command line asks for it.

use std::path::Path;
use std::sync::Arc;

use quicket_workload::bench::Failure;
use quicket_workload::peer::{ClientArguments, ServerArguments};
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, KeyLogFile, RootCertStore, ServerConfig, version};

/// A server's configuration.
///
/// # Errors
///
/// When the files cannot be read or do not belong together.
pub fn server(arguments: &ServerArguments) -> Result<ServerConfig, Failure> {
    let provider = Arc::new(default_provider());
    let config = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&version::TLS13])?;
    let config = match &arguments.client_ca {
        Some(file) => {
            let roots = Arc::new(roots(file)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
            config.with_client_cert_verifier(verifier.build()?)
        }
        None => config.with_no_client_auth(),
    };
    let key = PrivateKeyDer::from_pem_file(&arguments.key)?;
    let mut config = config.with_single_cert(chain(&arguments.cert)?, key)?;
    config.key_log = Arc::new(KeyLogFile::new());
    config.alpn_protocols = arguments.alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    Ok(config)
}

/// A client's configuration.
///
/// # Errors
///
/// When the files cannot be read or do not belong together.
pub fn client(arguments: &ClientArguments) -> Result<ClientConfig, Failure> {
    let mut provider = default_provider();
    if arguments.chacha20 {
        provider.cipher_suites = vec![TLS13_CHACHA20_POLY1305_SHA256];
    }
    let config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&version::TLS13])?
        .with_root_certificates(roots(&arguments.ca)?);
    let mut config = match (&arguments.cert, &arguments.key) {
        (Some(file), Some(key)) => {
            config.with_client_auth_cert(chain(file)?, PrivateKeyDer::from_pem_file(key)?)?
        }
        _ => config.with_no_client_auth(),
    };
    config.alpn_protocols = vec![arguments.alpn.as_bytes().to_vec()];
    config.key_log = Arc::new(KeyLogFile::new());
    Ok(config)
}

/// The certificates in a file, to be trusted.
///
/// # Errors
///
/// When they cannot be read.
pub fn roots(file: &Path) -> Result<RootCertStore, Failure> {
    let mut roots = RootCertStore::empty();
    for root in chain(file)? {
        roots.add(root)?;
    }
    Ok(roots)
}

fn chain(file: &Path) -> Result<Vec<CertificateDer<'static>>, Failure> {
    Ok(CertificateDer::pem_file_iter(file)?.collect::<Result<_, _>>()?)
}
