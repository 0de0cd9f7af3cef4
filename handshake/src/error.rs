//! Errors of configuration: what the caller, or the environment, got wrong and how to mend it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why a TLS configuration was not built.
#[non_exhaustive]
pub enum ConfigError {
    /// A file could not be read.
    File {
        /// Which one.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file for secrets cannot be opened to be written to.
    KeyLog {
        /// Which one.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A PEM file or text holds no certificate, or one that cannot be decoded.
    Certificate {
        /// Where it came from.
        origin: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A PEM file or text holds no private key, or one that cannot be used.
    PrivateKey {
        /// Where it came from.
        origin: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A list of revoked certificates cannot be read.
    RevocationList {
        /// Where it came from.
        origin: String,
        /// What is wrong with it.
        reason: String,
    },
    /// There is no trusted root to verify the peer with.
    NoRoots {
        /// What was tried.
        reason: String,
    },
    /// No pinned fingerprint was given although pinning was asked for.
    NoFingerprints,
    /// No application protocol was given (RFC 9001, Section 8.1).
    NoAlpn,
    /// An application protocol's name is empty or longer than 255 bytes (RFC 7301, Section 3.1).
    InvalidAlpn,
    /// No cipher suite or no key exchange group was given.
    NothingToOffer {
        /// Which of the two.
        what: &'static str,
    },
    /// The TLS library does not have a cipher suite. Programs that perform handshakes themselves
    /// can use it.
    CipherSuite {
        /// Its IANA name.
        name: &'static str,
    },
    /// A name for which a certificate was given is not a DNS name.
    InvalidServerName {
        /// The name.
        name: String,
    },
    /// A fingerprint is not 32 bytes of hexadecimal.
    InvalidFingerprint,
    /// The ticket lifetime is zero or above the seven days of RFC 8446, Section 4.6.1.
    InvalidTicketLifetime,
    /// TLS refused the configuration.
    Tls(rustls::Error),
    /// A certificate could not be generated.
    Generate(rcgen::Error),
}

impl ConfigError {
    pub(crate) fn file(path: &Path, source: io::Error) -> Self {
        Self::File { path: path.to_owned(), source }
    }
}

/// In words, for it is what a `main` that returns the error shows.
impl fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::File { .. } => "File",
            Self::KeyLog { .. } => "KeyLog",
            Self::Certificate { .. } => "Certificate",
            Self::PrivateKey { .. } => "PrivateKey",
            Self::RevocationList { .. } => "RevocationList",
            Self::NoRoots { .. } => "NoRoots",
            Self::NoFingerprints { .. } => "NoFingerprints",
            Self::NoAlpn { .. } => "NoAlpn",
            Self::InvalidAlpn { .. } => "InvalidAlpn",
            Self::NothingToOffer { .. } => "NothingToOffer",
            Self::CipherSuite { .. } => "CipherSuite",
            Self::InvalidServerName { .. } => "InvalidServerName",
            Self::InvalidFingerprint { .. } => "InvalidFingerprint",
            Self::InvalidTicketLifetime { .. } => "InvalidTicketLifetime",
            Self::Tls { .. } => "Tls",
            Self::Generate { .. } => "Generate",
        };
        write!(f, "{self} (ConfigError::{name})")
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, source } => {
                write!(f, "cannot read {}: {source}", path.display())
            }
            Self::KeyLog { path, source } => {
                write!(f, "cannot write TLS secrets to {}: {source}", path.display())
            }
            Self::Certificate { origin, reason } => write!(
                f,
                "{origin}: {reason}; give certificates as PEM (BEGIN CERTIFICATE), a chain with that of its owner first"
            ),
            Self::PrivateKey { origin, reason } => write!(
                f,
                "{origin}: {reason}; give an unencrypted RSA, ECDSA or Ed25519 key as PEM (BEGIN PRIVATE KEY) that belongs to the certificate"
            ),
            Self::RevocationList { origin, reason } => write!(
                f,
                "{origin}: {reason}; give lists of revoked certificates as PEM (BEGIN X509 CRL) or DER"
            ),
            Self::NoRoots { reason } => write!(
                f,
                "no trusted root certificates: {reason}; name a CA file, or pin the server's fingerprint"
            ),
            Self::NoFingerprints => {
                f.write_str("no fingerprint to pin; give at least one, such as sha256:<64 hex digits>")
            }
            Self::NoAlpn => f.write_str(
                "no application protocol; give at least one (RFC 9001, Section 8.1), or switch ALPN off explicitly",
            ),
            Self::InvalidAlpn => {
                f.write_str("an application protocol's name must have 1 to 255 bytes")
            }
            Self::NothingToOffer { what } => write!(f, "no {what} is left to offer; give at least one"),
            Self::CipherSuite { name } => {
                write!(f, "the TLS library has no {name}; leave it out")
            }
            Self::InvalidServerName { name } => {
                write!(f, "{name:?} is not a DNS name; give one such as example.org or *.example.org")
            }
            Self::InvalidFingerprint => {
                f.write_str("not a fingerprint; give sha256: and 64 hexadecimal digits")
            }
            Self::InvalidTicketLifetime => {
                f.write_str("a ticket's lifetime must be 1 second to 7 days (RFC 8446, Section 4.6.1)")
            }
            Self::Tls(error) => write!(f, "TLS refuses the configuration: {error}"),
            Self::Generate(error) => write!(f, "cannot generate a certificate: {error}"),
        }
    }
}

impl std::error::Error for ConfigError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::File { source, .. } | Self::KeyLog { source, .. } => Some(source),
            Self::Tls(error) => Some(error),
            Self::Generate(error) => Some(error),
            _ => None,
        }
    }
}

impl From<rustls::Error> for ConfigError {
    fn from(error: rustls::Error) -> Self {
        Self::Tls(error)
    }
}
