//! Datagrams that one worker of an endpoint received and that another one owns.
//!
//! Checked by `tests/leading`, which includes this file.

use std::net::SocketAddr;

use quicket_wire::EcnCodepoint;

use super::sync::{AtomicBool, Mutex, MutexGuard, Ordering, PoisonError};

/// How many bytes wait for a worker at most: as many as its socket's receive buffer should hold. What
/// one system call brings always fits into an empty mailbox.
pub(super) const MAILBOX_BYTES: usize = 4 << 20;
/// How many trains of datagrams wait for a worker at most.
pub(super) const MAILBOX_TRAINS: usize = 4096;
/// More memory than this is given back when it was not needed.
pub(super) const KEPT: usize = 256 << 10;

/// Trains of datagrams, one behind the other.
#[derive(Debug, Default)]
pub(crate) struct Parcels {
    pub(super) bytes: Vec<u8>,
    trains: Vec<Parcel>,
}

/// One train as it was received.
#[derive(Clone, Copy, Debug)]
struct Parcel {
    remote: SocketAddr,
    local: Option<SocketAddr>,
    ecn: EcnCodepoint,
    stride: usize,
    len: usize,
}

impl Parcel {
    const fn datagrams(&self) -> u64 {
        self.len.div_ceil(self.stride) as u64
    }
}

/// A train in its place: sender, address of ours, mark, size of each datagram but the last, all bytes.
pub(crate) type InPlace<'a> = (SocketAddr, Option<SocketAddr>, EcnCodepoint, usize, &'a mut [u8]);

impl Parcels {
    pub(crate) const fn is_empty(&self) -> bool {
        self.trains.is_empty()
    }

    /// Adds a train: `stride` is the size of each of its datagrams but the last.
    pub(crate) fn add(
        &mut self,
        (remote, local): (SocketAddr, Option<SocketAddr>),
        ecn: EcnCodepoint,
        stride: usize,
        bytes: &[u8],
    ) {
        self.bytes.extend_from_slice(bytes);
        let stride = stride.max(1);
        self.trains.push(Parcel { remote, local, ecn, stride, len: bytes.len() });
    }

    /// How many datagrams there are.
    pub(crate) fn datagrams(&self) -> u64 {
        self.trains.iter().map(Parcel::datagrams).sum()
    }

    /// Goes through the trains, in the order in which they were added.
    pub(crate) fn trains(&mut self) -> impl Iterator<Item = InPlace<'_>> {
        let mut rest = &mut *self.bytes;
        self.trains.iter().map(move |train| {
            let (bytes, more) = std::mem::take(&mut rest).split_at_mut(train.len);
            rest = more;
            (train.remote, train.local, train.ecn, train.stride, bytes)
        })
    }

    /// Empties it; memory that was not needed goes back.
    pub(crate) fn clear(&mut self) {
        if self.bytes.capacity() > KEPT && self.bytes.len() < self.bytes.capacity() / 4 {
            *self = Self::default();
        }
        self.bytes.clear();
        self.trains.clear();
    }

    /// Moves what fits here from `other`, which is empty afterwards. Returns how many datagrams did
    /// not fit.
    fn append(&mut self, other: &mut Self) -> u64 {
        let (mut lost, mut at) = (0, 0);
        for train in &other.trains {
            let bytes = other.bytes.get(at..at + train.len).unwrap_or_default();
            at += train.len;
            let fits = self.bytes.len() + train.len <= MAILBOX_BYTES;
            if fits && self.trains.len() < MAILBOX_TRAINS {
                self.bytes.extend_from_slice(bytes);
                self.trains.push(*train);
            } else {
                lost += train.datagrams();
            }
        }
        other.clear();
        lost
    }
}

/// Where other workers leave datagrams for one.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    inbox: Mutex<Inbox>,
    /// There is something in it, for those who look again and again. Changed with the lock held.
    has_mail: AtomicBool,
}

#[derive(Debug, Default)]
struct Inbox {
    parcels: Parcels,
    /// Whoever empties it sleeps, and is to be woken for the first parcel.
    asleep: bool,
}

/// What came of [`Mailbox::push`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pushed {
    /// The owner is to be woken.
    pub(crate) wake: bool,
    /// How many datagrams are lost: the mailbox is full.
    pub(crate) lost: u64,
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves parcels; `parcels` is empty afterwards. Waits for nobody but who looks into it.
    pub(crate) fn push(&self, parcels: &mut Parcels) -> Pushed {
        let mut inbox = self.lock();
        self.has_mail.store(true, Ordering::Relaxed);
        let lost = if inbox.parcels.is_empty() {
            // Whoever emptied it left its buffers here.
            std::mem::swap(&mut inbox.parcels, parcels);
            0
        } else {
            inbox.parcels.append(parcels)
        };
        Pushed { wake: std::mem::take(&mut inbox.asleep), lost }
    }

    /// Takes all parcels out; `into` must be empty. Whoever does so is awake.
    pub(crate) fn take(&self, into: &mut Parcels) {
        let mut inbox = self.lock();
        inbox.asleep = false;
        self.has_mail.store(false, Ordering::Relaxed);
        std::mem::swap(&mut inbox.parcels, into);
    }

    /// Whether there is something to take, without a lock. It may show late; [`Self::fall_asleep`] misses
    /// nothing.
    pub(crate) fn has_mail(&self) -> bool {
        self.has_mail.load(Ordering::Relaxed)
    }

    /// Whoever empties it is about to sleep: it is woken for what comes from now on. False if there
    /// is something already.
    pub(crate) fn fall_asleep(&self) -> bool {
        let mut inbox = self.lock();
        inbox.asleep = inbox.parcels.is_empty();
        inbox.asleep
    }
}
