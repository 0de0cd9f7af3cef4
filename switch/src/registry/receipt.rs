//! What proves to the next switch which owner number a program had.

use std::fmt;
use std::sync::Arc;

use quicket_engine::crypto::CryptoProvider;

use super::address::ListenAddress;

/// Length of the proof in bytes.
const PROOF_LEN: usize = 16;

/// Goes with an owner number. A program gives it back when it registers with a switch that was
/// started again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// Grows with every new registration, beyond the life of a switch: of two programs that once had the
    /// number, and of two generations of a program, the later one has the greater. Who comes back keeps
    /// it.
    pub incarnation: u64,
    /// A keyed hash of all that it says.
    pub proof: [u8; PROOF_LEN],
}

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receipt").field("incarnation", &self.incarnation).finish_non_exhaustive()
    }
}

/// What a receipt is about.
#[derive(Clone, Copy)]
pub(super) struct Subject {
    pub(super) address: ListenAddress,
    pub(super) generation: u8,
    pub(super) uid: u32,
}

/// Writes and checks receipts.
#[derive(Clone)]
pub struct Receipts {
    crypto: Arc<dyn CryptoProvider>,
    key: [u8; 32],
    incarnation: u64,
}

impl fmt::Debug for Receipts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receipts").finish_non_exhaustive()
    }
}

impl Receipts {
    /// With a key that the next switch will have too, and no program of another user. `begins` should be
    /// greater than in any switch before it, by more than they wrote receipts, which the time of day in
    /// nanoseconds is as long as it is not set back. Else those who come back say what is greater.
    #[must_use]
    pub fn new(crypto: Arc<dyn CryptoProvider>, key: [u8; 32], begins: u64) -> Self {
        Self { crypto, key, incarnation: begins }
    }

    /// `known` is the incarnation of who comes back and is believed.
    pub(super) fn issue(&mut self, subject: &Subject, known: Option<u64>) -> Receipt {
        // Who comes later is newer, also if the clock that this switch began with was set back.
        self.incarnation = match known {
            Some(known) => self.incarnation.max(known),
            None => self.incarnation.saturating_add(1),
        };
        let incarnation = known.unwrap_or(self.incarnation);
        Receipt { incarnation, proof: self.proof(subject, incarnation) }
    }

    /// Whether a switch with this key wrote it about this.
    pub(super) fn verify(&self, subject: &Subject, receipt: &Receipt) -> bool {
        let proof = self.proof(subject, receipt.incarnation);
        self.crypto.constant_time_eq(&proof, &receipt.proof)
    }

    fn proof(&self, subject: &Subject, incarnation: u64) -> [u8; PROOF_LEN] {
        let text = format!(
            "quicket switch receipt {} {} {} {} {incarnation}",
            subject.address,
            subject.address.only_v6(),
            subject.generation,
            subject.uid
        );
        let hash = self.crypto.keyed_hash(&self.key, text.as_bytes());
        let mut proof = [0; PROOF_LEN];
        proof.iter_mut().zip(hash).for_each(|(to, from)| *to = from);
        proof
    }
}
