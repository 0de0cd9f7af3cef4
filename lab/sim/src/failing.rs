//! A cipher that fails once, and remembers what it sealed.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use quicket_engine::crypto::{
    CipherError, CryptoProvider, HeaderKey, OpenJob, PacketKey, SealJob, Secret, TAG_LEN,
};
use quicket_wire::{ConnectionId, Header, PacketKind, Side, Version};

use crate::test_crypto::TestCrypto;

/// What becomes of the packets of a batch of which one cannot be sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batching {
    /// Those before it are sealed.
    OneByOne,
    /// None is.
    AllOrNone,
    /// All others are.
    AllOthers,
}

/// The packet that was not sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// What it was.
    pub kind: PacketKind,
    /// Its place in the batch.
    pub place: usize,
}

/// What a [`FailingCrypto`] did.
#[derive(Debug, Default)]
pub struct SealLog {
    packets: u64,
    tags: BTreeSet<[u8; TAG_LEN]>,
    refused: Option<Refused>,
}

impl SealLog {
    /// The packet that was not sealed, once it has come.
    pub fn refused(&self) -> Option<Refused> {
        self.refused
    }

    /// True if every packet of the datagram was sealed.
    pub fn is_sealed(&self, datagram: &[u8]) -> bool {
        let mut rest = datagram;
        while !rest.is_empty() {
            let Ok(header) = Header::parse(rest, 0) else { return false };
            let (packet, tail) = rest.split_at(header.end);
            rest = tail;
            if !packet.last_chunk().is_some_and(|tag| self.tags.contains(tag)) {
                return false;
            }
        }
        true
    }
}

/// A [`CryptoProvider`] over [`TestCrypto`] that refuses to seal one packet, the n-th of all.
pub struct FailingCrypto {
    fails_at: u64,
    batching: Batching,
    log: Arc<Mutex<SealLog>>,
}

impl FailingCrypto {
    /// One that fails at packet `fails_at`, counted from 0.
    pub fn new(fails_at: u64, batching: Batching) -> Self {
        Self { fails_at, batching, log: Arc::default() }
    }

    /// What it did.
    pub fn log(&self) -> Arc<Mutex<SealLog>> {
        self.log.clone()
    }
}

struct FailingKey {
    inner: Box<dyn PacketKey>,
    fails_at: u64,
    batching: Batching,
    log: Arc<Mutex<SealLog>>,
}

impl FailingKey {
    fn seal_at(&self, place: usize, job: &mut SealJob<'_>) -> Result<(), CipherError> {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let number = log.packets;
        log.packets += 1;
        if number == self.fails_at {
            let kind = Header::parse(job.packet, 0).map(|header| header.kind);
            log.refused = kind.ok().map(|kind| Refused { kind, place });
            return Err(CipherError::Failed);
        }
        self.inner.seal(job)?;
        log.tags.extend(job.packet.last_chunk().copied());
        Ok(())
    }
}

impl PacketKey for FailingKey {
    fn seal(&self, job: &mut SealJob<'_>) -> Result<(), CipherError> {
        self.seal_at(0, job)
    }

    fn seal_batch(&self, jobs: &mut [SealJob<'_>]) -> Result<usize, CipherError> {
        let first = self.log.lock().unwrap_or_else(PoisonError::into_inner).packets;
        let last = first.saturating_add(jobs.len() as u64);
        let fails = (first..last).contains(&self.fails_at);
        if fails && self.batching == Batching::AllOrNone {
            let place = self.fails_at.saturating_sub(first) as usize;
            let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
            log.packets = last;
            let kind = jobs.get(place).and_then(|job| Header::parse(job.packet, 0).ok());
            log.refused = kind.map(|header| Refused { kind: header.kind, place });
            return Err(CipherError::Failed);
        }
        let mut outcome = Ok(jobs.len());
        for (place, job) in jobs.iter_mut().enumerate() {
            if let Err(error) = self.seal_at(place, job) {
                outcome = Err(error);
                if self.batching == Batching::OneByOne {
                    break;
                }
            }
        }
        outcome
    }

    fn open(&self, job: &mut OpenJob<'_>) -> Result<usize, CipherError> {
        self.inner.open(job)
    }
}

impl CryptoProvider for FailingCrypto {
    fn initial_secrets(
        &self,
        version: Version,
        dcid: &ConnectionId,
        side: Side,
    ) -> (Secret, Secret) {
        TestCrypto.initial_secrets(version, dcid, side)
    }

    fn packet_key(&self, version: Version, secret: &Secret) -> Box<dyn PacketKey> {
        Box::new(FailingKey {
            inner: TestCrypto.packet_key(version, secret),
            fails_at: self.fails_at,
            batching: self.batching,
            log: self.log.clone(),
        })
    }

    fn header_key(&self, version: Version, secret: &Secret) -> Box<dyn HeaderKey> {
        TestCrypto.header_key(version, secret)
    }

    fn next_secret(&self, version: Version, secret: &Secret) -> Secret {
        TestCrypto.next_secret(version, secret)
    }

    fn retry_tag(
        &self,
        version: Version,
        original_dcid: &ConnectionId,
        packet: &[u8],
    ) -> [u8; TAG_LEN] {
        TestCrypto.retry_tag(version, original_dcid, packet)
    }

    fn seal_token(
        &self,
        key: &[u8; 32],
        nonce: &[u8; 12],
        buf: &mut [u8],
    ) -> Result<(), CipherError> {
        TestCrypto.seal_token(key, nonce, buf)
    }

    fn open_token(
        &self,
        key: &[u8; 32],
        nonce: &[u8; 12],
        buf: &mut [u8],
    ) -> Result<usize, CipherError> {
        TestCrypto.open_token(key, nonce, buf)
    }

    fn keyed_hash(&self, key: &[u8; 32], data: &[u8]) -> [u8; 32] {
        TestCrypto.keyed_hash(key, data)
    }

    fn constant_time_eq(&self, a: &[u8], b: &[u8]) -> bool {
        TestCrypto.constant_time_eq(a, b)
    }
}
