//! TLS configurations.

use std::path::Path;
use std::sync::Arc;

use quicket_workload::bench::Failure;
use quicket_workload::peer::{ClientArguments, ServerArguments};
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, KeyLogFile, RootCertStore, ServerConfig, version};
use s2n_quic::provider::tls::rustls::{Client, Server};

pub fn server(arguments: &ServerArguments) -> Result<Server, Failure> {
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
    Ok(Server::from(config))
}

pub fn client(arguments: &ClientArguments) -> Result<Client, Failure> {
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
    if !arguments.resume {
        config.resumption = Resumption::disabled();
    }
    Ok(Client::from(config))
}

fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, Failure> {
    Ok(CertificateDer::pem_file_iter(path)?.collect::<Result<_, _>>()?)
}

fn roots(path: &Path) -> Result<RootCertStore, Failure> {
    let mut roots = RootCertStore::empty();
    for root in chain(path)? {
        roots.add(root)?;
    }
    Ok(roots)
}
