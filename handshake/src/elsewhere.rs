//! Private keys that are elsewhere: in another process, on a token, on another machine.
//!
//! TLS has no way to wait for a signature: its library asks for one in the midst of a call. So such a call is made by
//! a thread that may wait, one of the key's own ([`RemoteKey::run`]), and never by one that drives connections. Which
//! calls these are, only the library knows: it chooses the certificate, and whether a session is resumed, which takes
//! no signature. So the first call is made where connections are driven, within [`attempt`]; where a signature turns
//! out to be needed, the call ends there, and the handshake begins again with the same ClientHello within
//! [`on_thread`], elsewhere. Nothing has been sent by then. A ClientHello without a ticket is known to need one as soon
//! as the certificate is chosen, before any key exchange.

use std::cell::RefCell;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, SubjectPublicKeyInfoDer, alg_id};
use rustls::sign::{CertifiedKey, Signer, SigningKey};
use rustls::{SignatureAlgorithm, SignatureScheme};

use crate::certificates::certificates_from_pem;
use crate::messages::first_ticket;
use crate::{ConfigError, Identity};

/// A private key that is not in this process.
pub trait RemoteKey: fmt::Debug + Send + Sync {
    /// Signs what a server says with CertificateVerify (RFC 8446, Section 4.4.3). `content` is all of it; `scheme` is
    /// one of TLS' numbers, and one that a key of this type has. It is called by a job of [`Self::run`] and may wait,
    /// but not for ever.
    ///
    /// # Errors
    ///
    /// Why there is no signature, for the log. The client hears internal_error.
    fn sign(&self, scheme: u16, content: &[u8]) -> Result<Vec<u8>, String>;

    /// Has a thread that may wait do `job`, later. It is called by threads that must not wait, with nothing locked.
    /// What it does not have done any more, it drops: whoever waits for it hears of that.
    ///
    /// # Errors
    ///
    /// If too many wait already.
    fn run(&self, job: Box<dyn FnOnce() + Send>) -> Result<(), String>;

    /// Names the threads of [`Self::run`]: keys that name the same have them in common. Without a name a key has
    /// threads of its own.
    fn threads(&self) -> Option<usize> {
        None
    }
}

/// Why a call ends whose handshake needs a signature where nobody may wait.
const NOT_HERE: &str = "the signature is made elsewhere";

/// What this thread may do.
enum Place {
    /// Nothing of the kind: no signature is expected here.
    Anywhere,
    /// It must not wait.
    Attempt { may_resume: bool, needed: Needed },
    /// It may wait.
    Thread,
}

/// What a call has turned out to need.
#[derive(Clone, Debug, Default)]
pub struct Needed {
    /// The key of the certificate that was chosen, if it is elsewhere.
    pub chosen: Option<Arc<dyn RemoteKey>>,
    /// The call was ended for it.
    pub ended: bool,
}

thread_local! {
    static PLACE: RefCell<Place> = const { RefCell::new(Place::Anywhere) };
}

/// Sets what the thread may do while it is there.
struct Within(Place);

impl Within {
    fn new(place: Place) -> Self {
        Self(PLACE.replace(place))
    }

    fn leave(mut self) -> Place {
        PLACE.replace(std::mem::replace(&mut self.0, Place::Anywhere))
    }
}

impl Drop for Within {
    fn drop(&mut self) {
        PLACE.set(std::mem::replace(&mut self.0, Place::Anywhere));
    }
}

/// Makes a call of TLS on a thread that must not wait. `may_resume` says that the ClientHello has a ticket, so that it
/// may do without a signature.
pub fn attempt<T>(may_resume: bool, call: impl FnOnce() -> T) -> (T, Needed) {
    let within = Within::new(Place::Attempt { may_resume, needed: Needed::default() });
    let result = call();
    let needed = match within.leave() {
        Place::Attempt { needed, .. } => needed,
        Place::Anywhere | Place::Thread => Needed::default(),
    };
    (result, needed)
}

/// Makes a call of TLS on a thread that may wait.
pub fn on_thread<T>(call: impl FnOnce() -> T) -> T {
    let _within = Within::new(Place::Thread);
    call()
}

/// Whether a client's first records over TCP (RFC 8446, Section 5.1) have a ClientHello that offers a session, so that
/// the handshake may do without a signature.
pub fn offers_session(mut records: &[u8]) -> bool {
    const HANDSHAKE: u8 = 22;
    let mut message = Vec::new();
    while let Some(([HANDSHAKE, _, _, len @ ..], rest)) = records.split_first_chunk::<5>() {
        let (fragment, rest) = rest.split_at(usize::from(u16::from_be_bytes(*len)).min(rest.len()));
        message.extend_from_slice(fragment);
        records = rest;
    }
    first_ticket(&message).is_some()
}

/// A certificate with a key that is elsewhere was chosen. False if the call ends here.
pub(crate) fn may_go_on_with(key: &Arc<dyn RemoteKey>) -> bool {
    PLACE.with_borrow_mut(|place| match place {
        Place::Attempt { may_resume, needed } => {
            needed.chosen = Some(Arc::clone(key));
            needed.ended |= !*may_resume;
            *may_resume
        }
        Place::Anywhere | Place::Thread => true,
    })
}

/// Whether a thread may wait for a signature. Where not, the call ends here.
fn may_wait() -> bool {
    PLACE.with_borrow_mut(|place| match place {
        Place::Thread => true,
        Place::Attempt { needed, .. } => {
            needed.ended = true;
            false
        }
        Place::Anywhere => false,
    })
}

impl Identity {
    /// A certificate chain of a PEM file, whose private key is elsewhere: `key` finds it by the public half, a
    /// SubjectPublicKeyInfo in DER. Such an identity has nothing in [`Identity::key`] and [`Identity::key_pem`].
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or its first certificate has no key for TLS 1.3.
    pub fn with_key_elsewhere(
        chain: impl AsRef<Path>,
        key: impl FnOnce(&[u8]) -> Arc<dyn RemoteKey>,
    ) -> Result<Self, ConfigError> {
        let path = chain.as_ref();
        let pem = std::fs::read(path).map_err(|error| ConfigError::file(path, error))?;
        Self::elsewhere(&pem, path.display().to_string(), key)
    }

    /// The same of PEM text.
    ///
    /// # Errors
    ///
    /// If the first certificate has no key for TLS 1.3.
    pub fn from_pem_with_key_elsewhere(
        chain: &[u8],
        key: impl FnOnce(&[u8]) -> Arc<dyn RemoteKey>,
    ) -> Result<Self, ConfigError> {
        Self::elsewhere(chain, "certificate chain".to_owned(), key)
    }

    fn elsewhere(
        chain: &[u8],
        origin: String,
        key: impl FnOnce(&[u8]) -> Arc<dyn RemoteKey>,
    ) -> Result<Self, ConfigError> {
        let chain = certificates_from_pem(chain, &origin)?;
        let spki = public_key(&chain).ok_or_else(|| ConfigError::Certificate {
            origin: origin.clone(),
            reason: "its own certificate has no key of RSA, ECDSA or Ed25519".to_owned(),
        })?;
        let key = key(spki.as_ref());
        Ok(Self::of_remote(chain, key, origin))
    }
}

/// That of the first certificate.
fn public_key(chain: &[CertificateDer<'static>]) -> Option<SubjectPublicKeyInfoDer<'static>> {
    let own = webpki::EndEntityCert::try_from(chain.first()?).ok()?;
    let spki = own.subject_public_key_info().into_owned();
    schemes(&spki).map(|_| spki)
}

/// What a key signs, most wanted first (RFC 8446, Section 4.2.3).
fn schemes(
    spki: &SubjectPublicKeyInfoDer<'_>,
) -> Option<(SignatureAlgorithm, &'static [SignatureScheme])> {
    use SignatureScheme as S;
    const RSA: &[SignatureScheme] = &[S::RSA_PSS_SHA256, S::RSA_PSS_SHA384, S::RSA_PSS_SHA512];
    [
        (alg_id::RSA_ENCRYPTION, SignatureAlgorithm::RSA, RSA),
        (alg_id::ECDSA_P256, SignatureAlgorithm::ECDSA, &[S::ECDSA_NISTP256_SHA256]),
        (alg_id::ECDSA_P384, SignatureAlgorithm::ECDSA, &[S::ECDSA_NISTP384_SHA384]),
        (alg_id::ECDSA_P521, SignatureAlgorithm::ECDSA, &[S::ECDSA_NISTP521_SHA512]),
        (alg_id::ED25519, SignatureAlgorithm::ED25519, &[S::ED25519]),
    ]
    .into_iter()
    .find_map(|(id, algorithm, schemes)| {
        has_algorithm(spki.as_ref(), id.as_ref()).then_some((algorithm, schemes))
    })
}

/// Whether a SubjectPublicKeyInfo (RFC 5280, Section 4.1.2.7) begins with an AlgorithmIdentifier of this content.
fn has_algorithm(spki: &[u8], content: &[u8]) -> bool {
    // Both are a SEQUENCE; that of the algorithm is shorter than 128 bytes.
    let inner = match spki {
        [0x30, 0x82, _, _, inner @ ..] | [0x30, 0x81, _, inner @ ..] => inner,
        [0x30, len, inner @ ..] if *len < 0x80 => inner,
        _ => return false,
    };
    let Some((&[0x30, len], rest)) = inner.split_first_chunk() else { return false };
    rest.get(..usize::from(len)) == Some(content)
}

/// A chain with a key that is elsewhere, as the TLS library has it.
pub(crate) fn certified_key(
    chain: &[CertificateDer<'static>],
    key: &Arc<dyn RemoteKey>,
) -> Option<CertifiedKey> {
    let spki = public_key(chain)?;
    let (algorithm, schemes) = schemes(&spki)?;
    let key = Elsewhere { key: Arc::clone(key), algorithm, schemes, spki };
    Some(CertifiedKey::new(chain.to_vec(), Arc::new(key)))
}

#[derive(Debug)]
struct Elsewhere {
    key: Arc<dyn RemoteKey>,
    algorithm: SignatureAlgorithm,
    schemes: &'static [SignatureScheme],
    spki: SubjectPublicKeyInfoDer<'static>,
}

impl SigningKey for Elsewhere {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let scheme = *self.schemes.iter().find(|scheme| offered.contains(scheme))?;
        Some(Box::new(Signature { key: Arc::clone(&self.key), scheme }))
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        Some(SubjectPublicKeyInfoDer::from(self.spki.as_ref()))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        self.algorithm
    }
}

#[derive(Debug)]
struct Signature {
    key: Arc<dyn RemoteKey>,
    scheme: SignatureScheme,
}

impl Signer for Signature {
    fn sign(&self, content: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        if !may_wait() {
            return Err(rustls::Error::General(NOT_HERE.to_owned()));
        }
        let signed = self.key.sign(self.scheme.into(), content);
        signed.map_err(|why| rustls::Error::General(format!("no signature: {why}")))
    }

    fn scheme(&self) -> SignatureScheme {
        self.scheme
    }
}
