//! What proves to the next switch which owner number a program had.

use std::fmt;
use std::sync::Arc;

use quicket_engine::crypto::CryptoProvider;

use super::address::ListenAddress;
use super::names::Names;

/// Length of a proof in bytes.
const PROOF_LEN: usize = 16;

/// Proves to the next switch what a program served, as a [`Receipt`] proves its owner number: a keyed hash of
/// that, and of the names.
pub type Deed = [u8; PROOF_LEN];

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

/// What a deed is about.
#[derive(Clone, Copy)]
pub(super) struct Serving<'a> {
    pub(super) subject: Subject,
    pub(super) incarnation: u64,
    pub(super) program: &'a str,
    pub(super) names: &'a Names,
    pub(super) reuse_port: bool,
    pub(super) replace: bool,
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

    /// Whether a switch with this key wrote the deed.
    pub(super) fn verify_deed(&self, serving: &Serving<'_>, deed: &Deed) -> bool {
        self.crypto.constant_time_eq(&self.deed(serving), deed)
    }

    pub(super) fn deed(&self, serving: &Serving<'_>) -> Deed {
        let Serving { subject, incarnation, program, names, reuse_port, replace } = *serving;
        let mut text = format!(
            "quicket switch deed {} {reuse_port} {replace} {} {} ",
            number(&subject, incarnation),
            names.protocols().len(),
            names.servers().len()
        )
        .into_bytes();
        // Each with its length: no two lists are one text.
        let mut put = |octets: &[u8]| {
            text.extend_from_slice(&(octets.len() as u64).to_be_bytes());
            text.extend_from_slice(octets);
        };
        put(program.as_bytes());
        names.protocols().iter().for_each(|each| put(each.as_bytes()));
        names.servers().iter().for_each(|each| put(each.to_string().as_bytes()));
        self.hash(&text)
    }

    fn proof(&self, subject: &Subject, incarnation: u64) -> [u8; PROOF_LEN] {
        self.hash(format!("quicket switch receipt {}", number(subject, incarnation)).as_bytes())
    }

    fn hash(&self, text: &[u8]) -> [u8; PROOF_LEN] {
        let hash = self.crypto.keyed_hash(&self.key, text);
        let mut proof = [0; PROOF_LEN];
        proof.iter_mut().zip(hash).for_each(|(to, from)| *to = from);
        proof
    }
}

/// Which number of which address somebody has.
fn number(subject: &Subject, incarnation: u64) -> String {
    let Subject { address, generation, uid } = subject;
    format!("{address} {} {generation} {uid} {incarnation}", address.only_v6())
}
