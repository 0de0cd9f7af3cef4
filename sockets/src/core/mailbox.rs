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

/// Trains of at least so many bytes are handed over as they lie, if all of them goes to one worker: others are copied. A
/// mailbox has room for as many bytes as their buffers have.
pub(super) const WHOLE: usize = 16 << 10;
/// Buffers of such trains that are kept for the next ones.
const MOST_SPARE: usize = 8;

/// What a train was received into: its bytes come first.
type Buffer = Box<[u8]>;

/// Trains of datagrams, one behind the other.
#[derive(Debug, Default)]
pub(crate) struct Parcels {
    pub(super) bytes: Vec<u8>,
    trains: Vec<Parcel>,
    /// Those trains that were not copied, in their order.
    whole: Vec<Buffer>,
    /// Where those are that have yet to be put there ([`Self::fill`]).
    places: Vec<usize>,
    /// Buffers of earlier ones.
    spare: Vec<Buffer>,
}

/// One train as it was received.
#[derive(Clone, Copy, Debug)]
struct Parcel {
    remote: SocketAddr,
    local: Option<SocketAddr>,
    ecn: EcnCodepoint,
    stride: usize,
    len: usize,
    /// In a buffer of its own, and not among the bytes of others.
    is_whole: bool,
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
        let (len, is_whole) = (bytes.len(), false);
        self.trains.push(Parcel { remote, local, ecn, stride, len, is_whole });
    }

    /// Adds a train of `len` bytes that lies at a place from which it is to be taken ([`Self::fill`]).
    pub(crate) fn add_whole(
        &mut self,
        (remote, local): (SocketAddr, Option<SocketAddr>),
        ecn: EcnCodepoint,
        stride: usize,
        (len, place): (usize, usize),
    ) {
        let (stride, is_whole) = (stride.max(1), true);
        self.trains.push(Parcel { remote, local, ecn, stride, len, is_whole });
        self.places.push(place);
    }

    /// Puts the buffers of trains here that lie elsewhere: `take` gives that of a place, for which it gets a spare one, if
    /// there is one.
    pub(crate) fn fill(&mut self, mut take: impl FnMut(usize, Option<Buffer>) -> Option<Buffer>) {
        for place in self.places.drain(..) {
            let buffer = take(place, self.spare.pop());
            self.whole.push(buffer.unwrap_or_default());
        }
    }

    /// Lets go of the buffers of earlier trains.
    pub(crate) fn drop_spare(&mut self) {
        self.spare = Vec::new();
    }

    /// How much memory the trains take.
    fn held(&self) -> usize {
        self.bytes.len() + self.whole.iter().map(|buffer| buffer.len()).sum::<usize>()
    }

    /// How many datagrams there are.
    pub(crate) fn datagrams(&self) -> u64 {
        self.trains.iter().map(Parcel::datagrams).sum()
    }

    /// Goes through the trains, in the order in which they were added.
    pub(crate) fn trains(&mut self) -> impl Iterator<Item = InPlace<'_>> {
        let (mut rest, mut whole) = (&mut *self.bytes, self.whole.iter_mut());
        self.trains.iter().map(move |train| {
            let bytes = if train.is_whole {
                let buffer = whole.next().and_then(|buffer| buffer.get_mut(..train.len));
                buffer.unwrap_or_default()
            } else {
                let (bytes, more) = std::mem::take(&mut rest).split_at_mut(train.len);
                rest = more;
                bytes
            };
            (train.remote, train.local, train.ecn, train.stride, bytes)
        })
    }

    /// Empties it; memory that was not needed goes back.
    pub(crate) fn clear(&mut self) {
        if self.bytes.capacity() > KEPT && self.bytes.len() < self.bytes.capacity() / 4 {
            self.bytes = Vec::new();
        }
        if self.whole.is_empty() {
            self.spare.clear();
        }
        self.spare.append(&mut self.whole);
        self.spare.truncate(MOST_SPARE);
        self.forget();
    }

    fn forget(&mut self) {
        self.bytes.clear();
        self.trains.clear();
        self.places.clear();
    }

    /// Moves what fits here from `other`, which is empty afterwards. Returns how many datagrams did
    /// not fit.
    fn append(&mut self, other: &mut Self) -> u64 {
        let (mut lost, mut at, mut held) = (0, 0, self.held());
        let mut whole = other.whole.drain(..);
        for train in &other.trains {
            let buffer = if train.is_whole { whole.next() } else { None };
            let len = buffer.as_ref().map_or(train.len, |buffer| buffer.len());
            let fits = held + len <= MAILBOX_BYTES && self.trains.len() < MAILBOX_TRAINS;
            if fits {
                held += len;
                self.trains.push(*train);
            } else {
                lost += train.datagrams();
            }
            match buffer {
                Some(buffer) if fits => self.whole.push(buffer),
                Some(_) => {}
                None => {
                    let bytes = other.bytes.get(at..at + train.len).unwrap_or_default();
                    at += train.len;
                    self.bytes.extend_from_slice(if fits { bytes } else { &[] });
                }
            }
        }
        drop(whole);
        other.forget();
        // Whoever adds the next ones has the buffers of those that are done with.
        other.spare.append(&mut self.spare);
        other.spare.truncate(MOST_SPARE);
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
