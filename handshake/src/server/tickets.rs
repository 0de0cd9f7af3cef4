//! Session tickets as a server makes and opens them.
//!
//! A ticket holds the session itself, sealed (RFC 8446, Section 4.6.1, calls it "self-encrypted"),
//! so that any server with the key can resume it. rustls allows early data only to servers that
//! store sessions, because it cannot otherwise know whether a ticket was used before. So it is
//! given a store per connection: what it puts in, leaves sealed in place of the store's key in the
//! NewSessionTicket message; what it asks for is the sealed session itself, and whether early data
//! was offered with it before is kept track of here.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::{digest, hmac};
use rustls::pki_types::UnixTime;
use rustls::server::StoresServerSessions;

use super::replay::UsedTickets;
use crate::messages::{Framing, NewSessionTicket};

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

/// The tickets of a server: keys, rules, and which tickets were used.
pub(super) struct Tickets {
    /// The current key first.
    keys: RwLock<Vec<NamedKey>>,
    lifetime: u32,
    /// Ties tickets to the rules without spelling these out in each.
    associated: [u8; 32],
    used: Mutex<UsedTickets>,
}

impl Tickets {
    pub(super) fn new(keys: Vec<TicketKey>, rules: TicketRules) -> Self {
        let mut keys: Vec<NamedKey> = keys.iter().map(NamedKey::from).collect();
        if keys.is_empty() {
            keys.push(NamedKey::from(&TicketKey::random()));
        }
        let mut associated = [0; 32];
        let context = [&b"quicket ticket 1"[..], &rules.client_auth].concat();
        associated.copy_from_slice(digest::digest(&digest::SHA256, &context).as_ref());
        Self {
            keys: RwLock::new(keys),
            lifetime: rules.lifetime,
            associated,
            used: Mutex::default(),
        }
    }

    pub(super) fn rotate(&self, key: TicketKey) {
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        keys.insert(0, NamedKey::from(&key));
        keys.truncate(1 + MAX_OLD_KEYS);
    }

    /// Key name, nonce, and sealed: time of issue and session.
    fn seal(&self, session: &[u8], now: u64) -> Option<Vec<u8>> {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        let current = keys.first()?;
        let mut nonce = [0; NONCE_LEN];
        crate::random::fill(&mut nonce);
        let mut sealed = now.to_be_bytes().to_vec();
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

    /// The session in a ticket that is genuine, made under these rules and not expired.
    fn open(&self, ticket: &[u8], now: u64, early_data: bool) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_first_chunk::<KEY_NAME_LEN>()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        let mut sealed = sealed.to_vec();
        let opened = {
            let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
            let key = &keys.iter().find(|key| key.name == *name)?.key;
            key.open_in_place(
                Nonce::assume_unique_for_key(*nonce),
                Aad::from(&self.associated),
                &mut sealed,
            )
            .ok()?
        };
        let (issued, session) = opened.split_first_chunk::<TIME_LEN>()?;
        let age = now.saturating_sub(u64::from_be_bytes(*issued));
        if age > u64::from(self.lifetime) {
            return None;
        }
        if early_data {
            let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
            if !used.first_use(*nonce, now) {
                return None;
            }
        }
        Some(session.to_vec())
    }
}

/// The tickets of one connection, in the guise of rustls' session store.
pub(crate) struct TicketIssuer {
    tickets: Arc<Tickets>,
    /// Whether early data would be accepted.
    early_data: bool,
    /// The client offered early data in its first ClientHello.
    early_data_offered: AtomicBool,
    /// What rustls has put in, by the key that it put in the message.
    issued: Mutex<Vec<(Vec<u8>, Vec<u8>)>>,
}

impl TicketIssuer {
    pub(super) fn new(tickets: Arc<Tickets>, early_data: bool) -> Self {
        Self {
            tickets,
            early_data,
            early_data_offered: AtomicBool::new(false),
            issued: Mutex::default(),
        }
    }

    pub(crate) fn set_early_data_offered(&self, offered: bool) {
        self.early_data_offered.store(offered, Ordering::Relaxed);
    }

    /// Whether early data was offered; false from the second call on.
    pub(crate) fn take_early_data_offered(&self) -> bool {
        self.early_data_offered.swap(false, Ordering::Relaxed)
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
        let sealed = self.tickets.seal(&session, UnixTime::now().as_secs())?;
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
        self.issued.lock().unwrap_or_else(PoisonError::into_inner).push((key, session));
        true
    }

    fn get(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn take(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let early_data = self.early_data && self.early_data_offered.load(Ordering::Relaxed);
        self.tickets.open(ticket, UnixTime::now().as_secs(), early_data)
    }

    fn can_cache(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tickets(keys: &[&TicketKey], client_auth: &[u8]) -> Tickets {
        let rules = TicketRules { lifetime: 100, client_auth: client_auth.to_vec() };
        Tickets::new(keys.iter().map(|key| (*key).clone()).collect(), rules)
    }

    #[test]
    fn a_ticket_opens_wherever_its_key_is_known_and_nowhere_else() {
        let (old, new) = (TicketKey::random(), TicketKey::random());
        let ticket = tickets(&[&old], &[]).seal(b"session", 1_000).unwrap();
        let open = |keys: &[&TicketKey]| tickets(keys, &[]).open(&ticket, 1_001, false);
        assert_eq!(open(&[&old]).as_deref(), Some(&b"session"[..]));
        assert_eq!(open(&[&new, &old]).as_deref(), Some(&b"session"[..]));
        assert_eq!(open(&[&new]), None);
        assert_eq!(open(&[]), None);
    }

    #[test]
    fn tickets_expire() {
        let tickets = tickets(&[], &[]);
        let ticket = tickets.seal(b"session", 1_000).unwrap();
        assert!(tickets.open(&ticket, 1_100, false).is_some());
        assert!(tickets.open(&ticket, 1_101, false).is_none());
    }

    #[test]
    fn a_ticket_made_without_client_authentication_does_not_open_where_it_is_required() {
        let key = TicketKey::random();
        let ticket = tickets(&[&key], &[0]).seal(b"session", 1_000).unwrap();
        assert!(tickets(&[&key], &[0]).open(&ticket, 1_000, false).is_some());
        assert!(tickets(&[&key], &[2]).open(&ticket, 1_000, false).is_none());
    }

    #[test]
    fn early_data_comes_in_once_per_ticket() {
        let tickets = tickets(&[], &[]);
        let ticket = tickets.seal(b"session", 1_000).unwrap();
        assert!(tickets.open(&ticket, 1_000, true).is_some());
        assert!(tickets.open(&ticket, 1_000, true).is_none());
        assert!(tickets.open(&ticket, 1_000, false).is_some());
    }

    #[test]
    fn rotation_keeps_old_tickets_good_for_a_while() {
        let tickets = tickets(&[], &[]);
        let ticket = tickets.seal(b"session", 1_000).unwrap();
        for _ in 0..MAX_OLD_KEYS {
            tickets.rotate(TicketKey::random());
            assert!(tickets.open(&ticket, 1_000, false).is_some());
        }
        tickets.rotate(TicketKey::random());
        assert!(tickets.open(&ticket, 1_000, false).is_none());
    }

    #[test]
    fn garbled_tickets_do_not_open() {
        let tickets = tickets(&[], &[]);
        let ticket = tickets.seal(b"session", 1_000).unwrap();
        for at in 0..ticket.len() {
            let mut garbled = ticket.clone();
            garbled[at] ^= 1;
            assert!(tickets.open(&garbled, 1_000, false).is_none(), "byte {at}");
            assert!(tickets.open(&ticket[..at], 1_000, false).is_none(), "{at} bytes");
        }
    }

    #[test]
    fn ticket_keys_need_enough_secret() {
        assert_eq!(TicketKey::new(&[1; 31]).unwrap_err(), 31);
        let (one, same) = (TicketKey::new(&[1; 32]).unwrap(), TicketKey::new(&[1; 32]).unwrap());
        assert_eq!(one.name(), same.name());
        assert_ne!(one.name(), TicketKey::new(&[1; 33]).unwrap().name());
    }
}
