//! A certificate authority and a server certificate, made anew for each use.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

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
        let folder = tempfile::Builder::new().prefix("quicket-certificates").tempdir()?;

        let mut authority = CertificateParams::new(Vec::new())?;
        authority.distinguished_name.push(DnType::CommonName, "Quicket lab authority");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let authority_key = KeyPair::generate()?;
        let authority_pem = authority.self_signed(&authority_key)?.pem();
        let issuer = Issuer::new(authority, authority_key);

        let mut server = CertificateParams::new(vec!["localhost".to_owned()])?;
        server.distinguished_name.push(DnType::CommonName, "Quicket lab server");
        server.use_authority_key_identifier_extension = true;
        server.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let server_key = KeyPair::generate()?;
        let server_pem = server.signed_by(&server_key, &issuer)?.pem();

        let made = Self { folder };
        std::fs::write(made.authority(), authority_pem)?;
        std::fs::write(made.certificate(), server_pem)?;
        std::fs::write(made.key(), server_key.serialize_pem())?;
        Ok(made)
    }

    /// The authority's certificate, for clients to trust.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.file("authority.pem")
    }

    /// The server's certificate.
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        self.file("server.pem")
    }

    /// The server's private key, PKCS #8.
    #[must_use]
    pub fn key(&self) -> PathBuf {
        self.file("server.key")
    }

    fn file(&self, name: &str) -> PathBuf {
        Path::join(self.folder.path(), name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quicket_workload::bench::{Cipher, client_config, server_config};

    #[test]
    fn rustls_takes_them_for_both_ends_and_they_go_with_the_value() {
        let made = Certificates::generate().unwrap();
        server_config(Cipher::Aes128Gcm, &made.certificate(), &made.key()).unwrap();
        client_config(Cipher::Aes128Gcm, &made.authority()).unwrap();
        let file = made.key();
        drop(made);
        assert!(!file.exists());
    }
}
