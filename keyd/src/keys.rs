//! The keys of a process, by the hash of their public halves.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::SignatureScheme;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::{self, PemObject};
use rustls::sign::SigningKey;

use crate::protocol::TranscriptHash;
use crate::spki::KeyKind;
use crate::{KeyId, key_id};

/// The largest file with a key, in bytes.
const MAX_FILE: u64 = 64 << 10;
/// What neither a key nor a PIN has of modes: the group may read it at most.
pub(crate) const OTHERS: u32 = 0o027;
/// Keys of a process.
pub(crate) const MAX_KEYS: usize = 4096;

/// A private key that signs handshakes.
pub struct Key {
    name: String,
    spki: Vec<u8>,
    kind: KeyKind,
    held: Held,
}

/// Where it is.
enum Held {
    Here(Arc<dyn SigningKey>),
    #[cfg(feature = "pkcs11")]
    OnToken(crate::pkcs11::TokenKey),
}

impl Key {
    /// Reads a key from a file of PEM (PKCS #8, PKCS #1 or SEC 1), without a passphrase. Nobody but its owner, and perhaps
    /// the group, may be able to read it.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, others may read it, or its key signs nothing in TLS 1.3.
    pub fn of_file(path: &Path) -> Result<Self, KeyError> {
        use std::io::Read;
        use std::os::unix::fs::MetadataExt;
        let io = |error| KeyError::File(path.to_owned(), error);
        let wrong = |what: String| KeyError::Unusable(path.display().to_string(), what);
        let mut file = std::fs::File::open(path).map_err(io)?;
        let mode = file.metadata().map_err(io)?.mode();
        if mode & OTHERS != 0 {
            return Err(wrong(format!(
                "others may read it, or the group may change it (mode {:o}): chmod 640 is the most that a key has",
                mode & 0o777
            )));
        }
        let mut text = Vec::new();
        file.by_ref().take(MAX_FILE + 1).read_to_end(&mut text).map_err(io)?;
        if text.len() as u64 > MAX_FILE {
            return Err(wrong(format!("is larger than {} KiB", MAX_FILE >> 10)));
        }
        let key = PrivateKeyDer::from_pem_slice(&text);
        text.fill(0);
        let key = key.map_err(|error| match error {
            pem::Error::NoItemsFound => wrong("has no private key".to_owned()),
            other => wrong(other.to_string()),
        })?;
        let key = rustls::crypto::aws_lc_rs::sign::any_supported_type(&key);
        let key = key.map_err(|error| wrong(error.to_string()))?;
        let spki = key.public_key().ok_or_else(|| wrong("has no public half".to_owned()))?.to_vec();
        Self::new(path.display().to_string(), spki, Held::Here(key))
    }

    #[cfg(feature = "pkcs11")]
    pub(crate) fn on_token(
        name: String,
        spki: Vec<u8>,
        key: crate::pkcs11::TokenKey,
    ) -> Result<Self, KeyError> {
        Self::new(name, spki, Held::OnToken(key))
    }

    fn new(name: String, spki: Vec<u8>, held: Held) -> Result<Self, KeyError> {
        let kind = KeyKind::of_spki(&spki);
        let what = "RSA, ECDSA (P-256, P-384, P-521) and Ed25519 are the keys of TLS 1.3";
        let kind = kind.ok_or_else(|| KeyError::Unusable(name.clone(), what.to_owned()))?;
        Ok(Self { name, spki, kind, held })
    }

    /// What names it.
    pub fn id(&self) -> KeyId {
        key_id(&self.spki)
    }

    /// Its public half, a SubjectPublicKeyInfo in DER.
    pub fn spki(&self) -> &[u8] {
        &self.spki
    }

    /// What it signs with.
    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    /// True if it is on a token.
    pub fn is_on_token(&self) -> bool {
        !matches!(self.held, Held::Here(_))
    }

    /// Where it came from.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it makes signatures of a scheme.
    pub fn has_scheme(&self, scheme: u16) -> bool {
        self.kind.schemes().contains(&SignatureScheme::from(scheme))
    }

    /// The signature of a handshake.
    ///
    /// # Errors
    ///
    /// If the key cannot be used now, as a token that is gone.
    pub fn sign(&self, scheme: u16, hash: &TranscriptHash) -> Result<Vec<u8>, String> {
        let scheme = SignatureScheme::from(scheme);
        let content = hash.content();
        match &self.held {
            Held::Here(key) => {
                let signer = key.choose_scheme(&[scheme]).ok_or("another scheme")?;
                signer.sign(&content).map_err(|error| error.to_string())
            }
            #[cfg(feature = "pkcs11")]
            Held::OnToken(key) => key.sign(self.kind, scheme, &content),
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("id", &self.id()).field("name", &self.name).finish()
    }
}

/// Keys by what names them.
#[derive(Debug, Default)]
pub struct Keys(HashMap<KeyId, Key>);

impl Keys {
    /// Gathers keys. One that is there twice counts once.
    ///
    /// # Errors
    ///
    /// If there are none, or too many.
    pub fn new(keys: impl IntoIterator<Item = Key>) -> Result<Self, KeyError> {
        let keys: HashMap<KeyId, Key> = keys.into_iter().map(|key| (key.id(), key)).collect();
        match keys.len() {
            0 => Err(KeyError::None),
            1..=MAX_KEYS => Ok(Self(keys)),
            _ => Err(KeyError::TooMany),
        }
    }

    /// The key of a name.
    pub fn get(&self, id: &KeyId) -> Option<&Key> {
        self.0.get(id)
    }

    /// All of them.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Key> {
        self.0.values()
    }
}

/// Why keys cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum KeyError {
    /// A file cannot be read.
    File(PathBuf, io::Error),
    /// What a file or a token has is no key for this.
    Unusable(String, String),
    /// A token cannot be used.
    Token(String),
    /// A token takes a PIN for none of its own, or takes none any more.
    Pin(String),
    /// There is no key.
    None,
    /// There are more than 4,096.
    TooMany,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, error) => write!(f, "cannot read {}: {error}", path.display()),
            Self::Unusable(what, why) => write!(f, "{what}: {why}"),
            Self::Token(why) | Self::Pin(why) => f.write_str(why),
            Self::None => {
                f.write_str("there is no key: --key FILE, or --pkcs11 LIBRARY, names some")
            }
            Self::TooMany => write!(f, "there are more than {MAX_KEYS} keys"),
        }
    }
}

impl std::error::Error for KeyError {}
