//! Keys that never leave a token (PKCS #11, version 2.40 or later).

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aws_lc_rs::digest::{self, digest};
use cryptoki::context::{CInitializeArgs, CInitializeFlags, Function, Pkcs11};
use cryptoki::error::{Error, RvError};
use cryptoki::mechanism::eddsa::{EddsaParams, EddsaSignatureScheme};
use cryptoki::mechanism::rsa::{PkcsMgfType, PkcsPssParams};
use cryptoki::mechanism::{Mechanism, MechanismType};
use cryptoki::object::{Attribute, AttributeType, KeyType, ObjectClass, ObjectHandle};
use cryptoki::session::{Session, SessionState, UserType};
use cryptoki::slot::Slot;
use cryptoki::types::AuthPin;
use rustls::SignatureScheme;
use rustls::pki_types::{AlgorithmIdentifier, alg_id};

use crate::keys::OTHERS;
use crate::protocol::TranscriptHash;
use crate::spki::{KeyKind, der, integer, verifies};
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
    /// Held while the token is asked to log in, which may take its time.
    login: Mutex<Login>,
    /// Held for no call of the token: signatures go on meanwhile.
    idle: Mutex<Vec<Session>>,
    /// How often sessions have ended: handles of before may be those of other objects by now.
    ended: AtomicU64,
}

#[derive(Default)]
struct Login {
    /// The one that the token has taken.
    pin: Option<Pin>,
    /// One that was read since, which comes first.
    fresh: Option<Pin>,
    /// One that the token has refused. After a few of them it takes none any more: it is not tried again.
    refused: Option<[u8; 32]>,
    /// As long as it is logged in, all sessions are.
    session: Option<Session>,
}

struct Pin {
    pin: AuthPin,
    /// Its SHA-256.
    hash: [u8; 32],
}

impl Login {
    /// Takes a PIN that was read.
    fn read(&mut self, pin: Pin) -> Result<(), KeyError> {
        if self.refused == Some(pin.hash) {
            let why = "the token has refused this PIN, and it is not tried again: write another one to its file, or \
                       start keyd again if the token takes it now";
            return Err(KeyError::Pin(why.to_owned()));
        }
        let is_known = self.pin.as_ref().is_some_and(|known| known.hash == pin.hash);
        self.fresh = (!is_known).then_some(pin);
        Ok(())
    }

    /// The token has taken the PIN that comes first.
    fn taken(&mut self) {
        self.pin = self.fresh.take().or(self.pin.take());
    }

    /// The token has refused it.
    fn refused(&mut self) {
        let refused = self.fresh.take().or_else(|| self.pin.take());
        self.refused = refused.map(|pin| pin.hash);
    }
}

/// Whether the token says that a PIN is wrong, or that it takes none.
fn is_about_pin(error: &Error) -> bool {
    use RvError as R;
    let Error::Pkcs11(why, _) = error else { return false };
    matches!(why, R::PinIncorrect | R::PinInvalid | R::PinLenRange | R::PinLocked | R::PinExpired)
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
        let (library, label) = (library.to_owned(), label.to_owned());
        let (login, idle) = (Mutex::default(), Mutex::default());
        let ended = AtomicU64::new(0);
        let inner = Inner { library, label, context, login, idle, ended };
        inner.initialize().map_err(|error| inner.failed(&error))?;
        Ok(Self(Arc::new(inner)))
    }

    /// Its private keys that sign: those of these labels, or all if there are none. Each has made a signature by which
    /// it is known to belong to its public half.
    ///
    /// # Errors
    ///
    /// If the token is not there, the PIN is wrong, or a label has no key for TLS 1.3.
    pub fn keys(&self, pin_file: &Path, labels: &[String]) -> Result<Vec<Key>, KeyError> {
        let inner = &self.0;
        let failed = |error: Error| inner.failed(&error);
        inner.login().read(read_pin(pin_file)?)?;
        // Its own session: signatures go on while the token is read.
        let session = inner.new_session().map_err(failed)?;
        let ended = inner.ended();
        let mut found = Vec::new();
        for handle in session.find_objects(&private()).map_err(failed)? {
            let object = match Object::read(&session, handle) {
                Ok(object) => object,
                Err(error) => {
                    // The token is there, and has something that is no business of this.
                    session.get_session_info().map_err(failed)?;
                    log::warn!("the token {:?} has a key that is not read: {error}", inner.label);
                    continue;
                }
            };
            if !labels.is_empty() && !labels.contains(&object.label) {
                continue;
            }
            let name = format!("{}/{}", inner.label, object.label);
            let label = object.label.clone();
            match self.key(&name, object, (ended, handle)) {
                Ok(key) => found.push((label, key)),
                Err(why) if labels.is_empty() => log::warn!("{name}: {why}"),
                Err(why) => return Err(KeyError::Unusable(name, why)),
            }
        }
        let missing = labels.iter().find(|label| !found.iter().any(|(known, _)| known == *label));
        match missing {
            Some(label) => {
                let why = "there is no private key with this label that signs";
                Err(KeyError::Unusable(format!("{}/{label}", inner.label), why.to_owned()))
            }
            None => Ok(found.into_iter().map(|(_, key)| key).collect()),
        }
    }

    /// A key that signs, and does so for the public half that it seems to have.
    fn key(&self, name: &str, object: Object, handle: (u64, ObjectHandle)) -> Result<Key, String> {
        let spki = object.spki.clone()?;
        let key = TokenKey { token: self.clone(), object, handle: Mutex::new(handle) };
        let key = Key::on_token(name.to_owned(), spki, key).map_err(|error| error.to_string())?;
        let scheme = key.kind().schemes()[0];
        let trial = TranscriptHash::new(&[0; 32]).ok_or("no transcript's hash")?;
        let signature = key.sign(scheme.into(), &trial)?;
        match verifies(key.spki(), scheme, &trial.content(), &signature) {
            true => Ok(key),
            false => Err("its signature is none by the public key with the same ID".to_owned()),
        }
    }
}

/// What private keys are found by that sign.
fn private() -> [Attribute; 3] {
    [Attribute::Class(ObjectClass::PRIVATE_KEY), Attribute::Sign(true), Attribute::Token(true)]
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("label", &self.0.label).finish_non_exhaustive()
    }
}

impl Inner {
    fn login(&self) -> MutexGuard<'_, Login> {
        self.login.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Session>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, error: &Error) -> KeyError {
        let what = format!("the token {:?} of {}", self.label, self.library.display());
        match is_about_pin(error) {
            true => KeyError::Pin(format!("{what}: {error}; this PIN is not tried again")),
            false => KeyError::Token(format!("{what}: {error}")),
        }
    }

    fn initialize(&self) -> Result<(), Error> {
        let flags = CInitializeFlags::OS_LOCKING_OK;
        match self.context.initialize(CInitializeArgs::new(flags)) {
            // For another token of it.
            Ok(()) | Err(Error::Pkcs11(RvError::CryptokiAlreadyInitialized, _)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn slot(&self) -> Result<Slot, Error> {
        for slot in self.context.get_slots_with_initialized_token()? {
            if self.context.get_token_info(slot)?.label() == self.label {
                return Ok(slot);
            }
        }
        Err(Error::Pkcs11(RvError::TokenNotPresent, Function::GetTokenInfo))
    }

    /// Begins anew with the token, unless all is well.
    fn log_in(&self) -> Result<(), Error> {
        let is_well = |session: &Session| {
            let info = session.get_session_info();
            let state = info.map(|info| info.session_state());
            matches!(state, Ok(SessionState::RoUser | SessionState::RwUser))
        };
        let mut login = self.login();
        if login.session.as_ref().is_some_and(is_well) {
            return Ok(());
        }
        self.forget();
        login.session = None;
        let Some(Pin { pin, .. }) = login.fresh.as_ref().or(login.pin.as_ref()) else {
            return Err(Error::Pkcs11(RvError::PinIncorrect, Function::Login));
        };
        let session = self.context.open_ro_session(self.slot()?)?;
        match session.login(UserType::User, Some(pin)) {
            Ok(()) => login.taken(),
            // That says nothing of the PIN.
            Err(Error::Pkcs11(RvError::UserAlreadyLoggedIn, _)) => {}
            Err(error) => {
                if is_about_pin(&error) {
                    login.refused();
                }
                return Err(error);
            }
        }
        login.session = Some(session);
        Ok(())
    }

    /// Ends sessions that are kept, and with them what handles mean.
    fn forget(&self) {
        self.ended.fetch_add(1, Ordering::AcqRel);
        let all = std::mem::take(&mut *self.idle());
        drop(all);
    }

    fn ended(&self) -> u64 {
        self.ended.load(Ordering::Acquire)
    }

    fn new_session(&self) -> Result<Session, Error> {
        self.log_in()?;
        self.context.open_ro_session(self.slot()?)
    }

    fn session(&self) -> Result<Session, Error> {
        let kept = self.idle().pop();
        kept.map_or_else(|| self.new_session(), Ok)
    }

    fn keep(&self, session: Session) {
        let mut idle = self.idle();
        if idle.len() < MAX_IDLE {
            idle.push(session);
        }
    }
}

fn read_pin(path: &Path) -> Result<Pin, KeyError> {
    use std::os::unix::fs::MetadataExt;
    let io = |error| KeyError::File(path.to_owned(), error);
    let wrong = |why: &str| KeyError::Unusable(path.display().to_string(), why.to_owned());
    let file = std::fs::File::open(path).map_err(io)?;
    if file.metadata().map_err(io)?.mode() & OTHERS != 0 {
        return Err(wrong(
            "others may read the PIN, or the group may change it: chmod 640 is the most that it has",
        ));
    }
    let mut pin = String::new();
    file.take(MAX_PIN + 1).read_to_string(&mut pin).map_err(io)?;
    let trimmed = pin.trim_end_matches(['\r', '\n']);
    match trimmed.is_empty() || trimmed.len() as u64 > MAX_PIN {
        true => Err(wrong("a PIN has 1 to 256 bytes")),
        false => {
            let mut hash = [0; 32];
            hash.copy_from_slice(digest(&digest::SHA256, trimmed.as_bytes()).as_ref());
            Ok(Pin { pin: AuthPin::from(trimmed), hash })
        }
    }
}

/// A private key, as the token describes it.
struct Object {
    label: String,
    /// CKA_ID, which the public half has, too.
    id: Vec<u8>,
    /// The public half, if that is on the token, and of a type that TLS 1.3 has.
    spki: Result<Vec<u8>, String>,
}

impl Object {
    fn read(session: &Session, handle: ObjectHandle) -> Result<Self, Error> {
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
        const NONE: &str = "it is no key for TLS 1.3, or its public half is not on the token";
        let spki = match kind {
            Some(KeyType::RSA) => rsa(session, handle)?.ok_or_else(|| NONE.to_owned()),
            Some(KeyType::EC | KeyType::EC_EDWARDS) if id.is_empty() => {
                Err("it has no ID (CKA_ID) by which its public half is found".to_owned())
            }
            Some(kind @ (KeyType::EC | KeyType::EC_EDWARDS)) => {
                let template = [
                    Attribute::Class(ObjectClass::PUBLIC_KEY),
                    Attribute::KeyType(kind),
                    Attribute::Id(id.clone()),
                ];
                match session.find_objects(&template)?[..] {
                    [public] => curve(session, public)?.ok_or_else(|| NONE.to_owned()),
                    [] => Err(NONE.to_owned()),
                    _ => Err("more than one public key has its ID (CKA_ID)".to_owned()),
                }
            }
            _ => Err(NONE.to_owned()),
        };
        Ok(Self { label, id, spki })
    }

    /// Where the same key is now: a handle lives no longer than the login.
    fn find(&self, session: &Session) -> Result<ObjectHandle, Error> {
        let mut template = private().to_vec();
        template.push(Attribute::Id(self.id.clone()));
        for handle in session.find_objects(&template)? {
            // Of several with this ID, the one with this public half.
            if Self::read(session, handle)
                .is_ok_and(|it| it.label == self.label && it.spki == self.spki)
            {
                return Ok(handle);
            }
        }
        Err(Error::Pkcs11(RvError::KeyHandleInvalid, Function::FindObjects))
    }
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
    object: Object,
    /// With how often sessions had ended when it was found.
    handle: Mutex<(u64, ObjectHandle)>,
}

impl TokenKey {
    pub(crate) fn sign(
        &self,
        kind: KeyKind,
        scheme: SignatureScheme,
        content: &[u8],
    ) -> Result<Vec<u8>, String> {
        let inner = &self.token.0;
        let attempt = |session: Session, handle| {
            let signature = sign(&session, handle, scheme, content)?;
            inner.keep(session);
            Ok::<_, Error>(signature)
        };
        let find = |session: &Session, ended| {
            let handle = self.object.find(session)?;
            *self.handle.lock().unwrap_or_else(PoisonError::into_inner) = (ended, handle);
            Ok::<_, Error>(handle)
        };
        let signed = inner.session().and_then(|session| {
            // Behind the session, which may have been the first after others ended.
            let ended = inner.ended();
            let (found, handle) = *self.handle.lock().unwrap_or_else(PoisonError::into_inner);
            let handle = if found == ended { handle } else { find(&session, ended)? };
            attempt(session, handle)
        });
        // Sessions and handles end when a token was taken out or logged out, or what has it was started again.
        let signed = signed.or_else(|error| {
            if is_about_pin(&error) {
                return Err(error);
            }
            if let Error::Pkcs11(RvError::CryptokiNotInitialized, _) = error {
                inner.initialize()?;
            }
            inner.forget();
            let session = inner.new_session()?;
            let handle = find(&session, inner.ended())?;
            attempt(session, handle)
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
