//! Session tickets as a server makes and opens them.
//!
//! A ticket holds the session itself, sealed (RFC 8446, Section 4.6.1, calls it "self-encrypted"),
//! so that any server with the key can resume it. rustls allows early data only to servers that
//! store sessions, because it cannot otherwise know whether a ticket was used before. So it is
//! given a store per connection: what it puts in, leaves sealed in place of the store's key in the
//! NewSessionTicket message; what it asks for is the sealed session itself, and whether early data
//! was offered with it before is kept track of here, before TLS sees the ClientHello: rustls can
//! then be told to resume without the early data.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
use std::task::Waker;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::{digest, hmac};
use quicket_wire::Version;
use rustls::pki_types::UnixTime;
use rustls::server::StoresServerSessions;

use super::policy::Chosen;
use super::promise::{Limits, PROMISE_LEN, Promise, version_of_client};
use super::replay::ProcessRegister;
use super::replay::{
    Beginning, Known, NAME_LEN, SharedBeginning, StrikeAnswer, StrikeRegister, TicketId, Unasked,
};
use crate::messages::{
    Framing, NewSessionTicket, first_ticket, offers_early_data, transport_parameters,
};

/// Keys that are still accepted beside the current one.
const MAX_OLD_KEYS: usize = 4;
/// Length of a key's name in tickets, in bytes.
const KEY_NAME_LEN: usize = 8;
/// Length of the time of issue in front of the sealed session, in bytes.
const TIME_LEN: usize = 8;

/// A key that protects session tickets. Whoever has it can read and make tickets: give it only to
/// servers that stand in for each other, and replace it now and then (RFC 8446, Appendix F.1).
#[derive(Clone)]
pub struct TicketKey([u8; 32]);

impl TicketKey {
    /// Derives a key from 32 or more secret bytes.
    ///
    /// # Errors
    ///
    /// If there are fewer; the error is their number.
    pub fn new(secret: &[u8]) -> Result<Self, usize> {
        if secret.len() < 32 {
            return Err(secret.len());
        }
        Ok(Self(mac(secret, b"quicket ticket key")))
    }

    /// A random key.
    pub fn random() -> Self {
        let mut bytes = [0; 32];
        crate::random::fill(&mut bytes);
        Self(bytes)
    }

    fn name(&self) -> [u8; KEY_NAME_LEN] {
        let mut name = [0; KEY_NAME_LEN];
        name.copy_from_slice(&mac(&self.0, b"name")[..KEY_NAME_LEN]);
        name
    }

    fn sealing_key(&self) -> LessSafeKey {
        let key = mac(&self.0, b"aes-256-gcm");
        LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &key).expect("key of the AEAD's length"))
    }
}

impl Drop for TicketKey {
    fn drop(&mut self) {
        self.0.fill(0);
        std::hint::black_box(&self.0);
    }
}

impl fmt::Debug for TicketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketKey").finish_non_exhaustive()
    }
}

fn mac(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), message);
    out.copy_from_slice(tag.as_ref());
    out
}

/// Under which conditions tickets are made and taken.
pub(super) struct TicketRules {
    /// In seconds.
    pub(super) lifetime: u32,
    /// Bytes that tell client authentication policies apart.
    pub(super) client_auth: Vec<u8>,
    /// Which tickets brought early data, if the application says that.
    pub(super) strikes: Option<Arc<dyn StrikeRegister>>,
    /// When that began, where it changes.
    pub(super) beginning: Option<SharedBeginning>,
    /// Whether tickets that may have been used before the register began bring early data in.
    pub(super) trust_earlier: bool,
    /// Other servers have the keys, too.
    pub(super) in_common: bool,
}

struct NamedKey {
    name: [u8; KEY_NAME_LEN],
    key: LessSafeKey,
}

impl From<&TicketKey> for NamedKey {
    fn from(key: &TicketKey) -> Self {
        Self { name: key.name(), key: key.sealing_key() }
    }
}

/// The keys of a configuration, and of those that were made of it.
struct Keys {
    /// The current one first.
    all: Vec<NamedKey>,
    /// The application gave them.
    given: bool,
}

/// Ticket keys of several configurations, which are replaced in all of them at once: of all programs that
/// stand in for each other. Clones are the same keys.
#[derive(Clone)]
pub struct TicketKeys(Arc<RwLock<Keys>>);

impl TicketKeys {
    /// Tickets are made with the first of these keys, and all are accepted. Without any, a random one is
    /// made.
    pub fn new(keys: impl IntoIterator<Item = TicketKey>) -> Self {
        let mut all: Vec<NamedKey> = keys.into_iter().map(|key| NamedKey::from(&key)).collect();
        let given = !all.is_empty();
        if !given {
            all.push(NamedKey::from(&TicketKey::random()));
        }
        Self(Arc::new(RwLock::new(Keys { all, given })))
    }

    /// Replaces them: from now on tickets are made with the first of these, and those of no other keys
    /// are accepted. Nothing changes if there is none.
    pub fn replace(&self, keys: impl IntoIterator<Item = TicketKey>) {
        let all: Vec<NamedKey> = keys.into_iter().map(|key| NamedKey::from(&key)).collect();
        if !all.is_empty() {
            *self.write() = Keys { all, given: true };
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Keys> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Keys> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketKeys").finish_non_exhaustive()
    }
}

/// The tickets of a server: keys, rules, and which tickets were used.
pub(super) struct Tickets {
    keys: TicketKeys,
    /// What servers have in common that stand in for each other: tickets are made with these keys, unless the
    /// application has given others.
    common: Option<TicketKeys>,
    lifetime: u32,
    /// Ties tickets to the rules without spelling these out in each.
    associated: [u8; 32],
    strikes: Arc<dyn StrikeRegister>,
    /// The application gave the register.
    own_register: bool,
    known: Known,
    trust_earlier: bool,
    /// Other servers have the keys, and may ask another register.
    in_common: bool,
}

impl Tickets {
    pub(super) fn new(keys: TicketKeys, rules: TicketRules) -> Self {
        let mut associated = [0; 32];
        let context = [&b"quicket ticket 3"[..], &rules.client_auth].concat();
        associated.copy_from_slice(digest::digest(&digest::SHA256, &context).as_ref());
        let own_register = rules.strikes.is_some();
        let strikes = rules.strikes.unwrap_or_else(|| Arc::new(ProcessRegister::new()));
        let known = match rules.beginning.filter(|_| own_register) {
            Some(beginning) => Known::Shared(beginning),
            None => Known::Once(strikes.beginning()),
        };
        Self {
            keys,
            common: None,
            lifetime: rules.lifetime,
            associated,
            strikes,
            own_register,
            known,
            trust_earlier: rules.trust_earlier,
            in_common: rules.in_common,
        }
    }

    /// The same with keys and a register that are common to several servers, as far as the application has given none.
    /// Whether others have `common` and ask another register, `known` says.
    pub(super) fn shared(
        &self,
        common: &TicketKeys,
        register: Arc<dyn StrikeRegister>,
        known: Known,
    ) -> Self {
        let (strikes, known) = match self.own_register {
            true => (Arc::clone(&self.strikes), self.known.clone()),
            false => (register, known),
        };
        // Whoever has the application's keys does not ask this register because of that.
        Self { strikes, known, in_common: self.in_common, ..self.with_common(common) }
    }

    /// The same with keys that are common to several servers, as far as the application has given none.
    pub(super) fn with_common(&self, common: &TicketKeys) -> Self {
        // Locked twice by one thread, the same keys might wait for who replaces them in between.
        let is_own = Arc::ptr_eq(&self.keys.0, &common.0);
        Self {
            keys: self.keys.clone(),
            common: (!is_own).then(|| common.clone()),
            lifetime: self.lifetime,
            associated: self.associated,
            strikes: Arc::clone(&self.strikes),
            own_register: self.own_register,
            known: self.known.clone(),
            trust_earlier: self.trust_earlier,
            in_common: true,
        }
    }

    /// False if the key is the current one already.
    pub(super) fn rotate(&self, key: TicketKey) -> bool {
        let key = NamedKey::from(&key);
        let mut keys = self.keys.write();
        keys.given = true;
        let keys = &mut keys.all;
        if keys.first().is_some_and(|current| current.name == key.name) {
            return false;
        }
        // It may have been the current one before.
        keys.retain(|known| known.name != key.name);
        keys.insert(0, key);
        keys.truncate(1 + MAX_OLD_KEYS);
        true
    }

    /// The keys of one's own, and those in common.
    fn read(&self) -> (RwLockReadGuard<'_, Keys>, Option<RwLockReadGuard<'_, Keys>>) {
        (self.keys.read(), self.common.as_ref().map(TicketKeys::read))
    }

    /// The name of the register, for new tickets; zeros for one without a beginning.
    fn register(&self) -> [u8; NAME_LEN] {
        self.beginning().map_or([0; NAME_LEN], |beginning| beginning.name())
    }

    /// When the register began, as far as that tells of uses anywhere.
    fn beginning(&self) -> Option<Beginning> {
        let beginning = self.known.beginning();
        match self.in_common && !self.own_register {
            true => beginning.map(Beginning::among_others),
            false => beginning,
        }
    }

    /// Key name, nonce, and sealed: time of issue, register, promise and session.
    fn seal(&self, session: &[u8], promise: &Promise, now: u64) -> Option<Vec<u8>> {
        let (keys, common) = self.read();
        let common = common.as_ref().filter(|_| !keys.given);
        let current = common.unwrap_or(&keys).all.first()?;
        let mut nonce = [0; NONCE_LEN];
        crate::random::fill(&mut nonce);
        let mut sealed = now.to_be_bytes().to_vec();
        sealed.extend_from_slice(&self.register());
        sealed.extend_from_slice(&promise.encode());
        sealed.extend_from_slice(session);
        current
            .key
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(&self.associated),
                &mut sealed,
            )
            .ok()?;
        Some([&current.name[..], &nonce, &sealed].concat())
    }

    /// What a genuine ticket made under these rules holds.
    fn open(&self, ticket: &[u8]) -> Option<OpenTicket> {
        let (name, rest) = ticket.split_first_chunk::<KEY_NAME_LEN>()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        let mut sealed = sealed.to_vec();
        let opened = {
            let (keys, common) = self.read();
            let common = common.iter().flat_map(|common| &common.all);
            let mut keys = keys.all.iter().chain(common);
            let key = &keys.find(|key| key.name == *name)?.key;
            key.open_in_place(
                Nonce::assume_unique_for_key(*nonce),
                Aad::from(&self.associated),
                &mut sealed,
            )
            .ok()?
        };
        let (issued, opened) = opened.split_first_chunk::<TIME_LEN>()?;
        let (register, opened) = opened.split_first_chunk::<NAME_LEN>()?;
        let (promise, session) = opened.split_first_chunk::<PROMISE_LEN>()?;
        Some(OpenTicket {
            id: *nonce,
            issued: u64::from_be_bytes(*issued),
            register: *register,
            promise: Promise::decode(promise)?,
            session: session.to_vec(),
        })
    }

    /// What is in a ticket that may be resumed now in a connection of `version`.
    fn resumable(&self, ticket: &[u8], version: Version, now: u64) -> Option<OpenTicket> {
        let ticket = self.open(ticket)?;
        let expired = now.saturating_sub(ticket.issued) > u64::from(self.lifetime);
        (!expired && ticket.promise.version == version).then_some(ticket)
    }

    /// The session in a ticket that may be resumed.
    fn resume(&self, ticket: &[u8], version: Version, now: u64) -> Option<Vec<u8>> {
        Some(self.resumable(ticket, version, now)?.session)
    }

    /// Whether a ticket brings early data into a connection that promises `promise`, as far as that is known here:
    /// whether it did so before, the register knows.
    ///
    /// An onlooker who copies a ticket from its ClientHello can use it up, as it can drop that
    /// ClientHello: the owner then loses a round trip, nothing else.
    fn brings_early_data(
        &self,
        ticket: &[u8],
        version: Version,
        promise: &Promise,
        now: u64,
    ) -> EarlyData {
        let Some(ticket) = self.resumable(ticket, version, now) else {
            return self.refuse(Unasked::NotResumed);
        };
        if !promise.keeps(&ticket.promise) {
            return self.refuse(Unasked::Promised);
        }
        // Of a ticket from the future the age cannot be told, by which old copies are refused.
        if ticket.issued > now {
            return self.refuse(Unasked::Future);
        }
        let OpenTicket { id, issued, register, .. } = ticket;
        let strikes = Arc::clone(&self.strikes);
        let question = Question { strikes, id, issued, register, now };
        match self.knows_uses_of(&question) {
            true => EarlyData::Ask(question),
            false => self.refuse(Unasked::OtherRegister),
        }
    }

    fn refuse(&self, why: Unasked) -> EarlyData {
        // As in `Question::ask`.
        let _ = catch_unwind(AssertUnwindSafe(|| self.strikes.refused(why)));
        EarlyData::Refuse
    }

    fn knows_uses_of(&self, question: &Question) -> bool {
        let Question { issued, register, now, .. } = question;
        let beginning = || self.beginning();
        self.trust_earlier || beginning().is_none_or(|began| began.covers(register, *issued, *now))
    }
}

/// What becomes of early data.
pub(crate) enum EarlyData {
    /// There is none, or TLS refuses it by itself.
    None,
    /// It is not read.
    Refuse,
    /// The register is to say so.
    Ask(Question),
}

/// What a register is asked about a ticket.
#[derive(Clone)]
pub(crate) struct Question {
    strikes: Arc<dyn StrikeRegister>,
    id: TicketId,
    /// In seconds since 1970.
    issued: u64,
    /// Which register was asked by who made the ticket.
    register: [u8; NAME_LEN],
    now: u64,
}

impl Question {
    /// Asks for an answer that is left in `place`.
    pub(crate) fn ask(self, place: Arc<OnceLock<bool>>, waker: Waker) {
        let answer = StrikeAnswer::new(place, waker);
        // The thread serves others too. Its hook has told of a panic; who panics does not know: the answer is dropped.
        let ask = || self.strikes.ask(&self.id, self.now, answer);
        let _ = catch_unwind(AssertUnwindSafe(ask));
    }
}

/// The content of a ticket.
struct OpenTicket {
    id: TicketId,
    /// In seconds since 1970.
    issued: u64,
    /// Which register was asked by who made the ticket.
    register: [u8; NAME_LEN],
    promise: Promise,
    session: Vec<u8>,
}

/// The tickets of one connection, in the guise of rustls' session store.
pub(crate) struct TicketIssuer {
    tickets: Arc<Tickets>,
    /// Whether early data would be accepted.
    early_data: bool,
    /// What tickets promise that are made here, and what those may have promised that bring early data in.
    promise: Promise,
    /// The application's part of it.
    application: Arc<Limits>,
    hello: Mutex<Hello>,
    /// What rustls has put in, by the key that it put in the message.
    issued: Mutex<Vec<(Vec<u8>, Vec<u8>)>>,
    /// What is asked of the client, if that depends on its ClientHello.
    chosen: Option<Arc<Chosen>>,
}

/// What the client's first ClientHello says.
#[derive(Clone, Copy, Default)]
struct Hello {
    early_data: bool,
    version: Option<Version>,
}

impl TicketIssuer {
    pub(super) fn new(
        tickets: Arc<Tickets>,
        early_data: bool,
        promise: Promise,
        application: Arc<Limits>,
        chosen: Option<Arc<Chosen>>,
    ) -> Self {
        let (hello, issued) = (Mutex::default(), Mutex::default());
        Self { tickets, early_data, promise, application, hello, issued, chosen }
    }

    /// What the application has to announce.
    pub(crate) fn application(&self) -> &Arc<Limits> {
        &self.application
    }

    fn may_resume(&self) -> bool {
        self.chosen.as_ref().is_none_or(|chosen| chosen.may_resume())
    }

    fn hello(&self) -> MutexGuard<'_, Hello> {
        self.hello.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks into the client's first message, before TLS gets it: what becomes of the early data in it.
    /// It is accepted with the first ticket only (RFC 8446, Section 4.2.10).
    pub(crate) fn read_client_hello(&self, message: &[u8]) -> EarlyData {
        let hello = Hello {
            early_data: offers_early_data(message),
            version: transport_parameters(message).and_then(version_of_client),
        };
        *self.hello() = hello;
        if !(self.early_data && hello.early_data) {
            return EarlyData::None;
        }
        let Some(ticket) = first_ticket(message) else {
            return self.tickets.refuse(Unasked::NotResumed);
        };
        let now = UnixTime::now().as_secs();
        self.tickets.brings_early_data(ticket, self.version(hello), &self.promise, now)
    }

    /// Whether the register that has answered knows the uses of the ticket still: another may have taken
    /// its place meanwhile.
    pub(crate) fn still_knows(&self, question: &Question) -> bool {
        self.tickets.knows_uses_of(question)
    }

    /// The version of the client's first flight. A client that does not say cannot have changed it
    /// (RFC 9368, Section 2.3).
    fn version(&self, hello: Hello) -> Version {
        hello.version.unwrap_or(self.promise.version)
    }

    /// Whether early data was offered; false from the second call on.
    pub(crate) fn take_early_data_offered(&self) -> bool {
        std::mem::take(&mut self.hello().early_data)
    }

    /// Puts sealed sessions into NewSessionTicket messages; other messages stay as they are.
    pub(crate) fn seal_messages(&self, messages: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(messages.len());
        Framing::default().read(messages, true, |message| {
            match NewSessionTicket::decode(message) {
                Some(ticket) => out.extend(self.seal_message(ticket).unwrap_or_default()),
                None => out.extend_from_slice(message),
            }
        });
        out
    }

    fn seal_message(&self, message: NewSessionTicket<'_>) -> Option<Vec<u8>> {
        let session = {
            let mut issued = self.issued.lock().unwrap_or_else(PoisonError::into_inner);
            let at = issued.iter().position(|(key, _)| key == message.ticket)?;
            issued.swap_remove(at).1
        };
        let sealed = self.tickets.seal(&session, &self.promise, UnixTime::now().as_secs())?;
        NewSessionTicket { lifetime: self.tickets.lifetime, ticket: &sealed, ..message }.encode()
    }
}

impl fmt::Debug for TicketIssuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketIssuer").finish_non_exhaustive()
    }
}

impl StoresServerSessions for TicketIssuer {
    fn put(&self, key: Vec<u8>, session: Vec<u8>) -> bool {
        if !self.may_resume() {
            return false;
        }
        self.issued.lock().unwrap_or_else(PoisonError::into_inner).push((key, session));
        true
    }

    fn get(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn take(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        if !self.may_resume() {
            return None;
        }
        let version = self.version(*self.hello());
        self.tickets.resume(ticket, version, UnixTime::now().as_secs())
    }

    fn can_cache(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
