//! Packets on their way to servers: gathered, and sent with as few calls as possible.

use std::io::IoSlice;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;

use crate::counters::{Counters, add};
use crate::snapshot::Snapshot;
use crate::sys::{self, BATCH, Message};

/// Most datagrams that the system makes of one message (UDP_MAX_SEGMENTS of Linux).
const MAX_SEGMENTS: usize = 64;
/// Most bytes of a message: what one packet of IPv4 holds.
const MAX_BYTES: usize = 65_507;
/// Parts of the messages of one call.
const PARTS: usize = 512;

/// A datagram to be sent: headers and payload, each in its buffer.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) header: Range<usize>,
    pub(crate) payload: Range<usize>,
}

impl Piece {
    fn len(&self) -> usize {
        self.header.len() + self.payload.len()
    }
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    /// Its index in the snapshot.
    pub(crate) server: usize,
    pub(crate) to: SocketAddr,
    /// The outer field.
    pub(crate) tos: u8,
}

/// Datagrams of one size to one server.
#[derive(Debug)]
struct Burst {
    way: Way,
    pieces: Range<usize>,
    segment: usize,
    bytes: usize,
    /// A shorter one is at its end.
    closed: bool,
}

/// A socket with what leaves by it next.
#[derive(Debug)]
pub(crate) struct Outbox {
    socket: OwnedFd,
    pieces: Vec<Piece>,
    bursts: Vec<Burst>,
    /// Whether the system takes several datagrams in one message.
    segments: bool,
}

impl Outbox {
    pub(crate) const fn new(socket: OwnedFd) -> Self {
        Self { socket, pieces: Vec::new(), bursts: Vec::new(), segments: true }
    }

    /// Adds a datagram; what is for the same server and as long goes with the one before.
    pub(crate) fn push(&mut self, way: Way, piece: Piece) {
        let len = piece.len();
        let at = self.pieces.len();
        self.pieces.push(piece);
        if self.segments
            && let Some(last) = self.bursts.last_mut()
            && last.takes(&way, len)
        {
            last.pieces.end = at + 1;
            last.bytes += len;
            last.closed = len < last.segment;
            return;
        }
        self.bursts.push(Burst {
            way,
            pieces: at..at + 1,
            segment: len,
            bytes: len,
            closed: false,
        });
    }

    /// Sends all that was added: `headers` and `payloads` are what the pieces lie in.
    pub(crate) fn flush(
        &mut self,
        headers: &[u8],
        payloads: &[u8],
        snapshot: &Snapshot,
        counters: &Counters,
    ) {
        let mut done = 0;
        while done < self.bursts.len() {
            match self.call(done, headers, payloads, counters) {
                Ok(sent) => {
                    for burst in &self.bursts[done..done + sent] {
                        self.count_sent(burst, snapshot, counters);
                    }
                    done += sent.max(1);
                }
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN | Errno::ENOBUFS) => {
                    let left = self.bursts[done..].iter().map(|burst| burst.pieces.len() as u64);
                    add(&counters.send_full, left.sum());
                    break;
                }
                Err(Errno::EINVAL | Errno::EIO | Errno::EOPNOTSUPP)
                    if self.bursts[done].pieces.len() > 1 =>
                {
                    log::warn!("segmentation offload is refused; datagrams are sent one by one");
                    self.segments = false;
                    self.split_from(done);
                }
                Err(error) => {
                    let counter = match error {
                        Errno::EMSGSIZE => &counters.too_big,
                        _ => &counters.send_refused,
                    };
                    add(counter, self.bursts[done].pieces.len() as u64);
                    done += 1;
                }
            }
        }
        self.pieces.clear();
        self.bursts.clear();
    }

    /// One call for bursts from `first` on.
    fn call(
        &self,
        first: usize,
        headers: &[u8],
        payloads: &[u8],
        counters: &Counters,
    ) -> Result<usize, Errno> {
        let mut parts = [IoSlice::new(&[]); PARTS];
        // Whole bursts, as many as there is room for.
        let begin = self.bursts[first].pieces.start;
        let fits = |burst: &&Burst| 2 * (burst.pieces.end - begin) <= PARTS;
        let bursts = self.bursts[first..].iter().take(BATCH).take_while(fits);
        let count = bursts.clone().count();
        let end = self.bursts[first + count - 1].pieces.end;
        for (pair, piece) in parts.chunks_exact_mut(2).zip(&self.pieces[begin..end]) {
            pair[0] = IoSlice::new(&headers[piece.header.clone()]);
            pair[1] = IoSlice::new(&payloads[piece.payload.clone()]);
        }
        let message = |burst: &Burst| Message {
            parts: &parts[2 * (burst.pieces.start - begin)..2 * (burst.pieces.end - begin)],
            to: burst.way.to,
            segment: (burst.pieces.len() > 1).then_some(burst.segment as u16),
            tos: burst.way.tos,
        };
        let mut messages = bursts.map(message);
        let batch: [Message<'_>; BATCH] = std::array::from_fn(|_| {
            let none = Message { parts: &[], to: self.bursts[first].way.to, segment: None, tos: 0 };
            messages.next().unwrap_or(none)
        });
        add(&counters.send_calls, 1);
        sys::send(self.socket.as_fd(), &batch[..count])
    }

    fn count_sent(&self, burst: &Burst, snapshot: &Snapshot, counters: &Counters) {
        let pieces = &self.pieces[burst.pieces.clone()];
        let payload: usize = pieces.iter().map(|piece| piece.payload.len()).sum();
        add(&counters.sent, pieces.len() as u64);
        if let Some(server) = snapshot.members().get(burst.way.server) {
            add(&server.counters.sent, pieces.len() as u64);
            add(&server.counters.sent_bytes, payload as u64);
        }
    }

    /// Makes a burst of each datagram.
    fn split_from(&mut self, first: usize) {
        let single = |(at, way): (usize, Way)| {
            let len = self.pieces[at].len();
            Burst { way, pieces: at..at + 1, segment: len, bytes: len, closed: true }
        };
        let all = self.bursts.split_off(first);
        let each = all.iter().flat_map(|burst| burst.pieces.clone().map(|at| (at, burst.way)));
        self.bursts.extend(each.map(single));
    }
}

impl Burst {
    fn takes(&self, way: &Way, len: usize) -> bool {
        !self.closed
            && self.way.server == way.server
            && self.way.tos == way.tos
            && len <= self.segment
            && self.pieces.len() < MAX_SEGMENTS
            && self.bytes + len <= MAX_BYTES
    }
}
