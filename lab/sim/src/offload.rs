//! Wrappers that make cryptography answer late, as when it runs on another processor.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quicket_engine::crypto::{
    CipherError, CryptoProvider, Handshake, HandshakeError, HandshakeEvent, HandshakeStart,
    HeaderKey, Level, OpenJob, PacketKey, SealJob, Secret, TAG_LEN, TlsConfig,
};
use quicket_engine::time::{Duration, Time};
use quicket_wire::{ConnectionId, Side, Version};

use crate::clock::SimClock;

/// How long a cipher needs that was not ready.
const CIPHER_DELAY: Duration = Duration::from_micros(20);

/// A [`CryptoProvider`] whose packet keys answer [`CipherError::NotYet`] every n-th time. They ask
/// the clock to be asked again a little later.
pub struct LateCrypto {
    inner: Arc<dyn CryptoProvider>,
    every: u64,
    clock: Arc<SimClock>,
    refused: Arc<AtomicU64>,
}

impl LateCrypto {
    /// Wraps `inner`; each key answers "not yet" to every `every`-th call, from the `every`-th on.
    /// `every` is 2 or more, for the answer to come at last.
    ///
    /// # Panics
    /// If `every` is less than 2.
    pub fn new(inner: Arc<dyn CryptoProvider>, every: u64, clock: Arc<SimClock>) -> Self {
        assert!(every >= 2, "a cipher that is never ready would stop the connection");
        Self { inner, every, clock, refused: Arc::default() }
    }

    /// How many calls were answered with "not yet".
    pub fn refused(&self) -> Arc<AtomicU64> {
        self.refused.clone()
    }
}

struct LateKey {
    inner: Box<dyn PacketKey>,
    every: u64,
    seals: AtomicU64,
    opens: AtomicU64,
    clock: Arc<SimClock>,
    refused: Arc<AtomicU64>,
}

impl LateKey {
    fn is_ready(&self, calls: &AtomicU64) -> Result<(), CipherError> {
        let call = calls.fetch_add(1, Ordering::Relaxed) + 1;
        if call.is_multiple_of(self.every) {
            self.refused.fetch_add(1, Ordering::Relaxed);
            self.clock.wake_at(self.clock.now() + CIPHER_DELAY);
            return Err(CipherError::NotYet);
        }
        Ok(())
    }
}

impl PacketKey for LateKey {
    fn seal(&self, job: &mut SealJob<'_>) -> Result<(), CipherError> {
        self.is_ready(&self.seals)?;
        self.inner.seal(job)
    }

    fn open(&self, job: &mut OpenJob<'_>) -> Result<usize, CipherError> {
        self.is_ready(&self.opens)?;
        self.inner.open(job)
    }
}

impl CryptoProvider for LateCrypto {
    fn initial_secrets(
        &self,
        version: Version,
        dcid: &ConnectionId,
        side: Side,
    ) -> (Secret, Secret) {
        self.inner.initial_secrets(version, dcid, side)
    }

    fn packet_key(&self, version: Version, secret: &Secret) -> Box<dyn PacketKey> {
        Box::new(LateKey {
            inner: self.inner.packet_key(version, secret),
            every: self.every,
            seals: AtomicU64::new(0),
            opens: AtomicU64::new(0),
            clock: self.clock.clone(),
            refused: self.refused.clone(),
        })
    }

    fn header_key(&self, version: Version, secret: &Secret) -> Box<dyn HeaderKey> {
        self.inner.header_key(version, secret)
    }

    fn next_secret(&self, version: Version, secret: &Secret) -> Secret {
        self.inner.next_secret(version, secret)
    }

    fn retry_tag(
        &self,
        version: Version,
        original_dcid: &ConnectionId,
        packet: &[u8],
    ) -> [u8; TAG_LEN] {
        self.inner.retry_tag(version, original_dcid, packet)
    }

    fn seal_token(
        &self,
        key: &[u8; 32],
        nonce: &[u8; 12],
        buf: &mut [u8],
    ) -> Result<(), CipherError> {
        self.inner.seal_token(key, nonce, buf)
    }

    fn open_token(
        &self,
        key: &[u8; 32],
        nonce: &[u8; 12],
        buf: &mut [u8],
    ) -> Result<usize, CipherError> {
        self.inner.open_token(key, nonce, buf)
    }

    fn keyed_hash(&self, key: &[u8; 32], data: &[u8]) -> [u8; 32] {
        self.inner.keyed_hash(key, data)
    }

    fn constant_time_eq(&self, a: &[u8], b: &[u8]) -> bool {
        self.inner.constant_time_eq(a, b)
    }
}

/// A [`TlsConfig`] whose handshakes give their events late, as when signatures are made elsewhere.
/// They ask the clock to be polled again then.
pub struct LateTls {
    inner: Arc<dyn TlsConfig>,
    clock: Arc<SimClock>,
    delay: Duration,
}

impl LateTls {
    /// Wraps `inner`: every event comes `delay` after the wrapped handshake had it.
    pub fn new(inner: Arc<dyn TlsConfig>, clock: Arc<SimClock>, delay: Duration) -> Self {
        Self { inner, clock, delay }
    }

    fn wrap(&self, inner: Box<dyn Handshake>) -> Box<dyn Handshake> {
        let (clock, delay) = (self.clock.clone(), self.delay);
        Box::new(LateHandshake { inner, clock, delay, waiting: VecDeque::new() })
    }
}

impl TlsConfig for LateTls {
    fn start_client(
        &self,
        start: &HandshakeStart<'_>,
    ) -> Result<Box<dyn Handshake>, HandshakeError> {
        self.inner.start_client(start).map(|inner| self.wrap(inner))
    }

    fn start_server(
        &self,
        start: &HandshakeStart<'_>,
    ) -> Result<Box<dyn Handshake>, HandshakeError> {
        self.inner.start_server(start).map(|inner| self.wrap(inner))
    }
}

struct LateHandshake {
    inner: Box<dyn Handshake>,
    clock: Arc<SimClock>,
    delay: Duration,
    waiting: VecDeque<(Time, HandshakeEvent)>,
}

impl Handshake for LateHandshake {
    fn read(&mut self, level: Level, data: &[u8]) -> Result<(), HandshakeError> {
        self.inner.read(level, data)
    }

    fn poll(&mut self) -> Result<Option<HandshakeEvent>, HandshakeError> {
        let now = self.clock.now();
        while let Some(event) = self.inner.poll()? {
            self.clock.wake_at(now + self.delay);
            self.waiting.push_back((now + self.delay, event));
        }
        match self.waiting.front() {
            Some((at, _)) if *at <= now => Ok(self.waiting.pop_front().map(|(_, event)| event)),
            _ => Ok(None),
        }
    }

    fn export_keying_material(
        &self,
        label: &[u8],
        context: &[u8],
        out: &mut [u8],
    ) -> Result<(), HandshakeError> {
        self.inner.export_keying_material(label, context, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::null_tls::{NullTls, NullTlsOptions};
    use crate::test_crypto::TestCrypto;

    #[test]
    fn every_nth_call_is_put_off_and_leaves_the_packet_alone() {
        let crypto = LateCrypto::new(Arc::new(TestCrypto), 3, Arc::default());
        let (secret, _) = crypto.initial_secrets(Version::V1, &ConnectionId::EMPTY, Side::Client);
        let key = crypto.packet_key(Version::V1, &secret);
        let mut packet = [0; 50];
        let results: Vec<bool> = (0..6)
            .map(|number| {
                let before = packet;
                let job =
                    &mut SealJob { packet_number: number, header_len: 9, packet: &mut packet };
                let done = key.seal(job).is_ok();
                assert!(done || packet == before);
                done
            })
            .collect();
        assert_eq!(results, [true, true, false, true, true, false]);
        assert_eq!(crypto.refused().load(Ordering::Relaxed), 2);
    }

    #[test]
    fn events_come_when_their_time_has_come() {
        let clock = Arc::new(SimClock::default());
        let inner = Arc::new(NullTls::new(1, NullTlsOptions::default()));
        let tls = LateTls::new(inner, clock.clone(), Duration::from_millis(5));
        let start = HandshakeStart {
            server_name: "sim.example",
            peer: None,
            transport_parameters: &[],
            resume: None,
            early_data: false,
        };
        let mut client = tls.start_client(&start).unwrap();
        assert!(client.poll().unwrap().is_none());
        let due = clock.next_wake().unwrap();
        assert_eq!(due, Time::ZERO + Duration::from_millis(5));
        clock.advance_to(due);
        assert!(matches!(client.poll(), Ok(Some(HandshakeEvent::Send(Level::Initial, _)))));
        assert!(client.poll().unwrap().is_none());
    }
}
