//! A certificate authority and certificates of both ends, made anew for each use.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};

/// Certificates between the authority and the server of a long chain.
const INTERMEDIATES: usize = 4;
/// An extension that means nothing, of the arc for examples (RFC 7229), and its length in bytes.
const BALLAST: &[u64] = &[1, 3, 6, 1, 5, 5, 7, 13, 1];
const BALLAST_LEN: usize = 1700;

/// PEM files of an authority and of a server certificate for `localhost`, ECDSA P-256.
#[derive(Debug)]
pub struct Certificates {
    folder: tempfile::TempDir,
}

impl Certificates {
    /// Makes them in a temporary folder that is removed on drop.
    ///
    /// # Errors
    ///
    /// When the files cannot be written, or a key cannot be made.
    pub fn generate() -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        Self::with_intermediates(0)
    }

    fn with_intermediates(count: usize) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let folder = tempfile::Builder::new().prefix("quicket-certificates").tempdir()?;
        let key = KeyPair::generate()?;
        let authority = authority("Quicket lab authority")?;
        let authority_pem = authority.self_signed(&key)?.pem();
        let mut issuer = Issuer::new(authority, key);
        let mut chain = Vec::new();
        for number in 0..count {
            let mut intermediate = authority_of_chain(number)?;
            intermediate.use_authority_key_identifier_extension = true;
            let key = KeyPair::generate()?;
            chain.push(intermediate.signed_by(&key, &issuer)?.pem());
            issuer = Issuer::new(intermediate, key);
        }

        let (server, server_key) = leaf("Quicket lab server", ExtendedKeyUsagePurpose::ServerAuth)?;
        chain.push(server.signed_by(&server_key, &issuer)?.pem());
        chain.reverse();
        let (client, client_key) = leaf("Quicket lab client", ExtendedKeyUsagePurpose::ClientAuth)?;
        let client_pem = client.signed_by(&client_key, &issuer)?.pem();

        let made = Self { folder };
        std::fs::write(made.authority(), authority_pem)?;
        std::fs::write(made.certificate(), chain.concat())?;
        std::fs::write(made.key(), server_key.serialize_pem())?;
        std::fs::write(made.client_certificate(), client_pem)?;
        std::fs::write(made.client_key(), client_key.serialize_pem())?;
        Ok(made)
    }

    /// As [`generate`](Self::generate), with a chain of more than 7.5 kB, which is more than a
    /// server may send to an address that is not validated.
    ///
    /// # Errors
    ///
    /// When the files cannot be written, or a key cannot be made.
    pub fn long_chain() -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        Self::with_intermediates(INTERMEDIATES)
    }

    /// The authority's certificate, for clients to trust.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.file("authority.pem")
    }

    /// The server's certificate, then those of authorities between it and the one to trust.
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        self.file("server.pem")
    }

    /// The server's private key, PKCS #8.
    #[must_use]
    pub fn key(&self) -> PathBuf {
        self.file("server.key")
    }

    /// A client's certificate, of the last authority of the chain.
    #[must_use]
    pub fn client_certificate(&self) -> PathBuf {
        self.file("client.pem")
    }

    /// The client's private key, PKCS #8.
    #[must_use]
    pub fn client_key(&self) -> PathBuf {
        self.file("client.key")
    }

    fn file(&self, name: &str) -> PathBuf {
        Path::join(self.folder.path(), name)
    }
}

/// The parameters and the key of an end's certificate for `localhost`.
fn leaf(
    name: &str,
    usage: ExtendedKeyUsagePurpose,
) -> Result<(CertificateParams, KeyPair), rcgen::Error> {
    let mut leaf = CertificateParams::new(vec!["localhost".to_owned()])?;
    leaf.distinguished_name.push(DnType::CommonName, name);
    leaf.use_authority_key_identifier_extension = true;
    leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    leaf.extended_key_usages = vec![usage];
    Ok((leaf, KeyPair::generate()?))
}

/// The parameters of a certificate authority.
fn authority(name: &str) -> Result<CertificateParams, rcgen::Error> {
    let mut authority = CertificateParams::new(Vec::new())?;
    authority.distinguished_name.push(DnType::CommonName, name);
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(authority)
}

/// One with a certificate that is large for the sake of it. Verifiers do not permit chains as long
/// as many small ones would make.
fn authority_of_chain(number: usize) -> Result<CertificateParams, rcgen::Error> {
    let mut authority = authority(&format!("Quicket lab authority {number}"))?;
    let ballast = CustomExtension::from_oid_content(BALLAST, vec![0x04; BALLAST_LEN]);
    authority.custom_extensions.push(ballast);
    Ok(authority)
}

#[cfg(test)]
mod tests {
    use super::*;
    use quicket_workload::bench::{Conditions, client_config, server_config};

    #[test]
    fn rustls_takes_them_for_both_ends_and_they_go_with_the_value() {
        let made = Certificates::generate().unwrap();
        server_config(Conditions::default(), &made.certificate(), &made.key()).unwrap();
        client_config(Conditions::default(), &made.authority()).unwrap();
        let file = made.key();
        drop(made);
        assert!(!file.exists());
    }

    #[test]
    fn a_long_chain_is_longer_than_an_unvalidated_address_may_get() {
        let made = Certificates::long_chain().unwrap();
        let chain = std::fs::read_to_string(made.certificate()).unwrap();
        assert_eq!(chain.matches("BEGIN CERTIFICATE").count(), INTERMEDIATES + 1);
        // Of four bytes in PEM, three are of the certificate.
        assert!(chain.len() * 3 / 4 > 7500 + 300);
        server_config(Conditions::default(), &made.certificate(), &made.key()).unwrap();
    }
}
