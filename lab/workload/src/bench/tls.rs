//! The one TLS configuration of all implementations over rustls 0.23.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig, version};

use super::{ALPN, Cipher, Conditions, Failure};

/// One cipher suite and one key exchange group, so that nothing else can be negotiated.
fn provider(cipher: Cipher) -> Arc<CryptoProvider> {
    let suite = match cipher {
        Cipher::Aes128Gcm => aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256,
        Cipher::Aes256Gcm => aws_lc_rs::cipher_suite::TLS13_AES_256_GCM_SHA384,
        Cipher::Chacha20Poly1305 => aws_lc_rs::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    };
    Arc::new(CryptoProvider {
        cipher_suites: vec![suite],
        kx_groups: vec![aws_lc_rs::kx_group::X25519],
        ..aws_lc_rs::default_provider()
    })
}

/// A server's configuration: TLS 1.3, X25519; unless the conditions ask for session tickets, none,
/// so that each handshake is a full one and nothing is sent after it. With tickets, 0-RTT too.
///
/// # Errors
///
/// When the files cannot be read or do not belong together.
pub fn server_config(
    conditions: Conditions,
    certificate: &Path,
    key: &Path,
) -> Result<ServerConfig, Failure> {
    let chain = CertificateDer::pem_file_iter(certificate)?.collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_file(key)?;
    let mut config = ServerConfig::builder_with_provider(provider(conditions.cipher))
        .with_protocol_versions(&[&version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.send_tls13_tickets = usize::from(conditions.tickets);
    Ok(config)
}

/// A client's configuration: TLS 1.3, X25519, full verification of the server's chain.
///
/// # Errors
///
/// When the file cannot be read.
pub fn client_config(conditions: Conditions, roots: &Path) -> Result<ClientConfig, Failure> {
    let mut store = RootCertStore::empty();
    for root in CertificateDer::pem_file_iter(roots)? {
        store.add(root?)?;
    }
    let mut config = ClientConfig::builder_with_provider(provider(conditions.cipher))
        .with_protocol_versions(&[&version::TLS13])?
        .with_root_certificates(store)
        .with_no_client_auth();
    config.alpn_protocols = vec![ALPN.to_vec()];
    if !conditions.tickets {
        config.resumption = rustls::client::Resumption::disabled();
    }
    Ok(config)
}
