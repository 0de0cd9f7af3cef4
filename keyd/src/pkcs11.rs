//! Keys that never leave a token (PKCS #11, version 2.40 or later).

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aws_lc_rs::digest::{self, digest};
use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
use cryptoki::error::{Error, RvError};
use cryptoki::mechanism::eddsa::{EddsaParams, EddsaSignatureScheme};
use cryptoki::mechanism::rsa::{PkcsMgfType, PkcsPssParams};
use cryptoki::mechanism::{Mechanism, MechanismType};
use cryptoki::object::{Attribute, AttributeType, KeyType, ObjectClass, ObjectHandle};
use cryptoki::session::{Session, UserType};
use cryptoki::slot::Slot;
use cryptoki::types::AuthPin;
use rustls::SignatureScheme;
use rustls::pki_types::{AlgorithmIdentifier, alg_id};

use crate::spki::{KeyKind, der, integer};
use crate::{Key, KeyError};

/// The longest PIN, in bytes.
const MAX_PIN: u64 = 256;
/// Sessions that are kept for signatures to come.
const MAX_IDLE: usize = 64;

/// A token. Clones are the same one.
#[derive(Clone)]
pub struct Token(Arc<Inner>);

struct Inner {
    library: PathBuf,
    label: String,
    context: Pkcs11,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    pin: Option<AuthPin>,
    /// As long as it is there, all sessions are logged in.
    login: Option<Session>,
    idle: Vec<Session>,
}

impl Token {
    /// Loads the library of a token, which is found by its label.
    ///
    /// # Errors
    ///
    /// If the library cannot be loaded.
    pub fn open(library: &Path, label: &str) -> Result<Self, KeyError> {
        let failed = |error: Error| KeyError::Token(format!("{}: {error}", library.display()));
        let context = Pkcs11::new(library).map_err(failed)?;
        let flags = CInitializeFlags::OS_LOCKING_OK;
        match context.initialize(CInitializeArgs::new(flags)) {
            // For another token of it.
            Ok(()) | Err(Error::Pkcs11(RvError::CryptokiAlreadyInitialized, _)) => {}
            Err(error) => return Err(failed(error)),
        }
        let (library, label) = (library.to_owned(), label.to_owned());
        Ok(Self(Arc::new(Inner { library, label, context, state: Mutex::default() })))
    }

    /// Its private keys that sign: those of these labels, or all if there are none.
    ///
    /// # Errors
    ///
    /// If the token is not there, the PIN is wrong, or a label has no key for TLS 1.3.
    pub fn keys(&self, pin_file: &Path, labels: &[String]) -> Result<Vec<Key>, KeyError> {
        let pin = read_pin(pin_file)?;
        let inner = &self.0;
        let failed = |error: Error| inner.failed(&error);
        let mut state = inner.lock();
        state.pin = Some(pin);
        inner.log_in(&mut state).map_err(failed)?;
        let session = state.login.as_ref().ok_or_else(|| inner.failed(&Error::InvalidValue))?;
        let template = [
            Attribute::Class(ObjectClass::PRIVATE_KEY),
            Attribute::Sign(true),
            Attribute::Token(true),
        ];
        let mut found = Vec::new();
        for handle in session.find_objects(&template).map_err(failed)? {
            let (label, spki) = describe(session, handle).map_err(failed)?;
            if !labels.is_empty() && !labels.contains(&label) {
                continue;
            }
            let name = format!("{}/{label}", inner.label);
            match spki {
                Some(spki) => {
                    let key = TokenKey { token: self.clone(), handle };
                    found.push((label, Key::on_token(name, spki, key)?));
                }
                None if labels.is_empty() => {
                    log::warn!(
                        "{name}: no key for TLS 1.3, or its public half is not on the token"
                    );
                }
                None => {
                    let why = "it is no key for TLS 1.3, or its public half is not on the token";
                    return Err(KeyError::Unusable(name, why.to_owned()));
                }
            }
        }
        drop(state);
        let missing = labels.iter().find(|label| !found.iter().any(|(known, _)| known == *label));
        match missing {
            Some(label) => {
                let why = "there is no private key with this label that signs";
                Err(KeyError::Unusable(format!("{}/{label}", inner.label), why.to_owned()))
            }
            None => Ok(found.into_iter().map(|(_, key)| key).collect()),
        }
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("label", &self.0.label).finish_non_exhaustive()
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, error: &Error) -> KeyError {
        let library = self.library.display();
        KeyError::Token(format!("the token {:?} of {library}: {error}", self.label))
    }

    fn slot(&self) -> Result<Slot, Error> {
        for slot in self.context.get_slots_with_initialized_token()? {
            if self.context.get_token_info(slot)?.label() == self.label {
                return Ok(slot);
            }
        }
        Err(Error::Pkcs11(RvError::TokenNotPresent, cryptoki::context::Function::GetTokenInfo))
    }

    /// Begins anew with the token, unless all is well.
    fn log_in(&self, state: &mut State) -> Result<(), Error> {
        let is_well = |session: &Session| session.get_session_info().is_ok();
        if state.login.as_ref().is_some_and(is_well) {
            return Ok(());
        }
        state.idle.clear();
        state.login = None;
        let session = self.context.open_ro_session(self.slot()?)?;
        match session.login(UserType::User, state.pin.as_ref()) {
            Ok(()) | Err(Error::Pkcs11(RvError::UserAlreadyLoggedIn, _)) => {}
            Err(error) => return Err(error),
        }
        state.login = Some(session);
        Ok(())
    }

    fn session(&self) -> Result<Session, Error> {
        let mut state = self.lock();
        if let Some(session) = state.idle.pop() {
            return Ok(session);
        }
        self.log_in(&mut state)?;
        drop(state);
        self.context.open_ro_session(self.slot()?)
    }

    fn keep(&self, session: Session) {
        let mut state = self.lock();
        if state.idle.len() < MAX_IDLE {
            state.idle.push(session);
        }
    }
}

fn read_pin(path: &Path) -> Result<AuthPin, KeyError> {
    use std::os::unix::fs::MetadataExt;
    let io = |error| KeyError::File(path.to_owned(), error);
    let wrong = |why: &str| KeyError::Unusable(path.display().to_string(), why.to_owned());
    let file = std::fs::File::open(path).map_err(io)?;
    if file.metadata().map_err(io)?.mode() & 0o007 != 0 {
        return Err(wrong(
            "everybody may read or change the PIN: chmod 640 is the most that it has",
        ));
    }
    let mut pin = String::new();
    file.take(MAX_PIN + 1).read_to_string(&mut pin).map_err(io)?;
    let trimmed = pin.trim_end_matches(['\r', '\n']);
    match trimmed.is_empty() || trimmed.len() as u64 > MAX_PIN {
        true => Err(wrong("a PIN has 1 to 256 bytes")),
        false => Ok(AuthPin::from(trimmed)),
    }
}

/// The label of a private key, and its public half, if that is on the token, too, and of a type that TLS 1.3 has.
fn describe(session: &Session, handle: ObjectHandle) -> Result<(String, Option<Vec<u8>>), Error> {
    let wanted = [AttributeType::Label, AttributeType::Id, AttributeType::KeyType];
    let (mut label, mut id, mut kind) = (String::new(), Vec::new(), None);
    for attribute in session.get_attributes(handle, &wanted)? {
        match attribute {
            Attribute::Label(bytes) => label = String::from_utf8_lossy(&bytes).into_owned(),
            Attribute::Id(bytes) => id = bytes,
            Attribute::KeyType(found) => kind = Some(found),
            _ => {}
        }
    }
    let spki = match kind {
        Some(KeyType::RSA) => rsa(session, handle)?,
        Some(kind @ (KeyType::EC | KeyType::EC_EDWARDS)) => {
            let template = [
                Attribute::Class(ObjectClass::PUBLIC_KEY),
                Attribute::KeyType(kind),
                Attribute::Id(id),
            ];
            match session.find_objects(&template)?.first() {
                Some(public) => curve(session, *public)?,
                None => None,
            }
        }
        _ => None,
    };
    Ok((label, spki))
}

/// SubjectPublicKeyInfo (RFC 5280, Section 4.1.2.7).
fn spki(algorithm: AlgorithmIdentifier, key: &[u8]) -> Vec<u8> {
    let algorithm = der(0x30, &[algorithm.as_ref()]);
    der(0x30, &[&algorithm, &der(0x03, &[&[0], key])])
}

fn rsa(session: &Session, handle: ObjectHandle) -> Result<Option<Vec<u8>>, Error> {
    let (mut modulus, mut exponent) = (None, None);
    let wanted = [AttributeType::Modulus, AttributeType::PublicExponent];
    for attribute in session.get_attributes(handle, &wanted)? {
        match attribute {
            Attribute::Modulus(bytes) => modulus = Some(bytes),
            Attribute::PublicExponent(bytes) => exponent = Some(bytes),
            _ => {}
        }
    }
    Ok(modulus.zip(exponent).map(|(modulus, exponent)| {
        let key = der(0x30, &[&integer(&modulus), &integer(&exponent)]);
        spki(alg_id::RSA_ENCRYPTION, &key)
    }))
}

fn curve(session: &Session, handle: ObjectHandle) -> Result<Option<Vec<u8>>, Error> {
    let (mut parameters, mut point) = (Vec::new(), Vec::new());
    let wanted = [AttributeType::EcParams, AttributeType::EcPoint];
    for attribute in session.get_attributes(handle, &wanted)? {
        match attribute {
            Attribute::EcParams(bytes) => parameters = bytes,
            Attribute::EcPoint(bytes) => point = bytes,
            _ => {}
        }
    }
    let known = [alg_id::ECDSA_P256, alg_id::ECDSA_P384, alg_id::ECDSA_P521];
    // What names a curve is the end of its AlgorithmIdentifier.
    let named =
        |id: &&AlgorithmIdentifier| !parameters.is_empty() && id.as_ref().ends_with(&parameters);
    // OID 1.3.101.112, or its name in a PrintableString.
    let is_ed25519 =
        parameters == alg_id::ED25519.as_ref() || parameters == der(0x13, &[b"edwards25519"]);
    let algorithm = match known.iter().find(named) {
        Some(algorithm) => *algorithm,
        None if is_ed25519 => alg_id::ED25519,
        None => return Ok(None),
    };
    // An OCTET STRING; some tokens give what is in it.
    let bare = match point.as_slice() {
        [0x04, len, bare @ ..] if usize::from(*len) == bare.len() => bare,
        [0x04, 0x81, len, bare @ ..] if usize::from(*len) == bare.len() => bare,
        other => other,
    };
    Ok((!bare.is_empty()).then(|| spki(algorithm, bare)))
}

/// A key of a token.
pub(crate) struct TokenKey {
    token: Token,
    handle: ObjectHandle,
}

impl TokenKey {
    pub(crate) fn sign(
        &self,
        kind: KeyKind,
        scheme: SignatureScheme,
        content: &[u8],
    ) -> Result<Vec<u8>, String> {
        let inner = &self.token.0;
        let attempt = || {
            let session = inner.session()?;
            let signature = sign(&session, self.handle, scheme, content)?;
            inner.keep(session);
            Ok::<_, Error>(signature)
        };
        // Sessions end when a token was taken out, or what has it was started again.
        let signed = attempt().or_else(|_| {
            inner.lock().idle.clear();
            attempt()
        });
        let signature = signed.map_err(|error| inner.failed(&error).to_string())?;
        match kind {
            KeyKind::Rsa | KeyKind::Ed25519 => Ok(signature),
            KeyKind::P256 | KeyKind::P384 | KeyKind::P521 => {
                // Two numbers of one length each; TLS has them in DER (RFC 8446, Section 4.2.3).
                let (r, s) = signature.split_at(signature.len() / 2);
                Ok(der(0x30, &[&integer(r), &integer(s)]))
            }
        }
    }
}

fn sign(
    session: &Session,
    key: ObjectHandle,
    scheme: SignatureScheme,
    content: &[u8],
) -> Result<Vec<u8>, Error> {
    use SignatureScheme as S;
    let pss = |hash_alg, mgf, s_len: u64| {
        Mechanism::RsaPkcsPss(PkcsPssParams { hash_alg, mgf, s_len: s_len.into() })
    };
    // A salt is as long as the hash (RFC 8446, Section 4.2.3).
    let (mechanism, hash) = match scheme {
        S::RSA_PSS_SHA256 => {
            (pss(MechanismType::SHA256, PkcsMgfType::MGF1_SHA256, 32), Some(&digest::SHA256))
        }
        S::RSA_PSS_SHA384 => {
            (pss(MechanismType::SHA384, PkcsMgfType::MGF1_SHA384, 48), Some(&digest::SHA384))
        }
        S::RSA_PSS_SHA512 => {
            (pss(MechanismType::SHA512, PkcsMgfType::MGF1_SHA512, 64), Some(&digest::SHA512))
        }
        S::ECDSA_NISTP256_SHA256 => (Mechanism::Ecdsa, Some(&digest::SHA256)),
        S::ECDSA_NISTP384_SHA384 => (Mechanism::Ecdsa, Some(&digest::SHA384)),
        S::ECDSA_NISTP521_SHA512 => (Mechanism::Ecdsa, Some(&digest::SHA512)),
        S::ED25519 => (Mechanism::Eddsa(EddsaParams::new(EddsaSignatureScheme::Ed25519)), None),
        _ => return Err(Error::InvalidValue),
    };
    match hash {
        Some(hash) => session.sign(&mechanism, key, digest(hash, content).as_ref()),
        None => session.sign(&mechanism, key, content),
    }
}
