//! Segments of TCP that leave together.
//!
//! What AF_XDP copies for the kernel goes through the rest of it frame by frame: on a virtual device, the system at the other
//! end takes each one up, answers and wakes whom it is for before the next one leaves. Segments of one flow that follow one another are put
//! together here into one frame that is longer than the MTU. It leaves by a packet socket, with a word for the device how it is to be
//! cut (as the system's own TCP does with what it sends). Devices that cannot do that have it cut by the system; both give the
//! frames that the port has sent, but for the identification of IPv4, which means nothing in packets that are not fragmented
//! (RFC 6864), and the checksum of TCP: a virtual device, which counts as one that completes it, hands frames on without.
//!
//! Only veth with one queue is sent to like this. With several, the system chooses one for a packet socket, and not the one
//! of AF_XDP: frames would come out of order.
//!
//! Nothing waits here longer than a turn of the switch. What is put together has been checked before, frame by frame.

use std::io;
use std::os::fd::OwnedFd;

use quicket_gue::Sum;
use rustix::io::Errno;
use rustix::net::{SendFlags, sockopt};

use crate::frame::ETHERNET_LEN;

/// Octets of a frame at most, with the header of Ethernet: the length of a packet has 16 bits.
const MAX_LEN: usize = 65_535;
/// Segments at most: as many as frames of a port in one turn.
const MAX_SEGMENTS: u32 = crate::batch::BATCH;
/// Octets of `struct virtio_net_hdr` (linux/virtio_net.h).
const VIRTUAL_LEN: usize = 10;
/// Its field `flags`: the device, or the system, is to complete a checksum.
const NEEDS_CHECKSUM: u8 = 1;
/// Its field `gso_type`.
const SEGMENTS_V4: u8 = 1;
const SEGMENTS_V6: u8 = 4;
/// Turns that frames wait for room at most.
const MAX_TURNS: u32 = 64;
/// What waits for the other end to take it up, in octets, as the kernel counts.
const SEND_BUFFER: usize = 16 << 20;

const TCP: u8 = 6;
/// Flags of TCP (RFC 9293, Section 3.1).
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
/// Where they are in its header, and its checksum.
const FLAGS: usize = 13;
const CHECKSUM: usize = 16;

/// A frame with data of TCP, and nothing unusual: where its parts are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    is_v4: bool,
    /// Where the header of TCP begins, where the data does, and where that ends.
    tcp: usize,
    data: usize,
    end: usize,
    sequence: u32,
    flags: u8,
}

impl Segment {
    /// Of a frame that has been checked; none if it is not to be put together with others.
    #[inline]
    pub(super) fn read(frame: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?));
        let packet = frame.get(ETHERNET_LEN..)?;
        let (is_v4, len, header) = match (word(12)?, packet) {
            // Without options, and never a fragment: so its identification means nothing.
            (0x800, [0x45, _, _, _, _, _, 0x40, 0, _, TCP, ..]) => (true, word(16)?, 20),
            (0x86dd, [_, _, _, _, _, _, TCP, ..]) => (false, word(18)?.checked_add(40)?, 40),
            _ => return None,
        };
        let tcp = ETHERNET_LEN + header;
        let [.., s0, s1, s2, s3, _, _, _, _, words, flags] =
            *frame.get(tcp..)?.first_chunk::<14>()?;
        let data = tcp + usize::from(words >> 4) * 4;
        let end = ETHERNET_LEN + usize::from(len);
        let is_plain = words & 0xf == 0 && flags & ACK != 0 && flags & !(ACK | PSH | FIN) == 0;
        let sequence = u32::from_be_bytes([s0, s1, s2, s3]);
        let is_whole = data >= tcp + 20 && data < end && end <= frame.len();
        (is_plain && is_whole).then_some(Self { is_v4, tcp, data, end, sequence, flags })
    }

    const fn len(&self) -> usize {
        self.end - self.data
    }
}

/// What is put together at the moment.
#[derive(Debug)]
struct Open {
    first: Segment,
    /// The queue by which the frames go.
    queue: usize,
    segments: u32,
    /// Where the next octet is put.
    end: usize,
    /// Nothing more comes behind it.
    is_closed: bool,
}

/// What leaves of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Leaving<'a> {
    /// A frame as it came, by this queue.
    One(usize, &'a [u8]),
    /// So many frames by this queue's device, behind what went there before.
    Many(usize, u32),
}

/// Frames of a device that are put together.
#[derive(Debug)]
pub(super) struct Trains {
    socket: OwnedFd,
    builder: Builder,
    /// What was closed and is still to leave: its queue, and how many frames.
    waiting: Option<(usize, u32)>,
    /// For how many turns it has been.
    turns: u32,
}

impl Trains {
    /// For a device.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub(super) fn new(device: u32) -> io::Result<Self> {
        let socket = quicket_bpf::train_socket(device)?;
        // Without the privilege to, what leaves is bounded by what every socket has.
        let _ = sockopt::set_socket_send_buffer_size_force(&socket, SEND_BUFFER);
        Ok(Self { socket, builder: Builder::new(), waiting: None, turns: 0 })
    }

    /// What the device cuts: frames shorter than `size` octets, into `segments` at most.
    pub(super) fn limit(&mut self, size: u32, segments: u32) {
        self.builder.limit(size, segments);
    }

    /// Keeps for the next turn what [`Trains::close`] has said to be many. Returns false if it has been kept for long.
    pub(super) fn wait(&mut self, queue: usize, n: u32) -> bool {
        self.turns += 1;
        self.waiting = (self.turns <= MAX_TURNS).then_some((queue, n));
        self.is_waiting()
    }

    pub(super) const fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// As [`Builder::append`].
    #[inline]
    pub(super) fn append(&mut self, frame: &[u8], segment: &Segment, queue: usize) -> bool {
        self.builder.append(frame, segment, queue)
    }

    /// As [`Builder::begin`].
    #[inline]
    pub(super) fn begin(&mut self, frame: &[u8], segment: Segment, queue: usize) -> bool {
        self.turns = 0;
        self.builder.begin(frame, segment, queue)
    }

    /// As [`Builder::close`], after what was kept.
    #[inline]
    pub(super) fn close(&mut self) -> Option<Leaving<'_>> {
        match self.waiting.take() {
            Some((queue, n)) => Some(Leaving::Many(queue, n)),
            None => self.builder.close(),
        }
    }

    /// Sends what [`Trains::close`] has said to be many.
    ///
    /// # Errors
    ///
    /// `EAGAIN` and `ENOBUFS` when there is no room yet; `ENXIO` and `ENODEV` when the device has gone.
    pub(super) fn send(&self) -> Result<(), Errno> {
        let flags = SendFlags::DONTWAIT;
        loop {
            match rustix::net::send(&self.socket, self.builder.octets(), flags) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Puts frames together.
#[derive(Debug)]
struct Builder {
    /// A header for the system, and one frame.
    buffer: Box<[u8]>,
    open: Option<Open>,
    /// Octets of what was closed.
    len: usize,
    /// Octets of a frame, and segments, at most.
    max_len: usize,
    max_segments: u32,
}

impl Builder {
    fn new() -> Self {
        let buffer = vec![0; VIRTUAL_LEN + MAX_LEN].into();
        let (max_len, max_segments) = (MAX_LEN, MAX_SEGMENTS);
        Self { buffer, open: None, len: 0, max_len, max_segments }
    }

    /// As [`Trains::limit`].
    fn limit(&mut self, size: u32, segments: u32) {
        self.max_len = MAX_LEN.min(size.saturating_sub(1) as usize);
        self.max_segments = MAX_SEGMENTS.min(segments);
    }

    /// The header for the system, and the frame, once it is closed.
    fn octets(&self) -> &[u8] {
        self.buffer.get(..self.len).unwrap_or_default()
    }

    /// Puts a frame behind those that are there, if it is the next one of their flow. Returns whether it was.
    #[inline]
    fn append(&mut self, frame: &[u8], segment: &Segment, queue: usize) -> bool {
        let Some(open) = &mut self.open else { return false };
        let first = open.first;
        let gone = open.segments.wrapping_mul(first.len() as u32);
        let follows = !open.is_closed
            && open.queue == queue
            && segment.sequence == first.sequence.wrapping_add(gone)
            && segment.len() <= first.len()
            && open.segments < self.max_segments
            && open.end + segment.len() <= VIRTUAL_LEN + self.max_len;
        if !follows || !is_alike(self.buffer.get(VIRTUAL_LEN..), frame, &first, segment) {
            return false;
        }
        let data = frame.get(segment.data..segment.end);
        let place = self.buffer.get_mut(open.end..open.end + segment.len());
        let (Some(data), Some(place)) = (data, place) else { return false };
        place.copy_from_slice(data);
        open.end += data.len();
        open.segments += 1;
        // What stands in the header for all is said by the last one.
        if let Some(flags) = self.buffer.get_mut(VIRTUAL_LEN + first.tcp + FLAGS) {
            *flags |= segment.flags;
        }
        open.is_closed = segment.flags != ACK || segment.len() < first.len();
        true
    }

    /// Begins with a frame. What was there is closed. Returns whether it has room.
    #[inline]
    fn begin(&mut self, frame: &[u8], segment: Segment, queue: usize) -> bool {
        let end = VIRTUAL_LEN + segment.end;
        let parts = (frame.get(..segment.end), self.buffer.get_mut(VIRTUAL_LEN..end));
        let (Some(frame), Some(place)) = parts else { return false };
        place.copy_from_slice(frame);
        let is_closed = segment.flags != ACK;
        self.open = Some(Open { first: segment, queue, segments: 1, end, is_closed });
        true
    }

    /// Nothing more is put together with what is there; none if nothing is.
    #[inline]
    fn close(&mut self) -> Option<Leaving<'_>> {
        let Open { first, queue, segments, end, .. } = self.open.take()?;
        self.len = end;
        if segments == 1 {
            return Some(Leaving::One(queue, self.buffer.get(VIRTUAL_LEN..end)?));
        }
        self.write_headers(&first)?;
        Some(Leaving::Many(queue, segments))
    }

    /// Writes what is different from the first frame.
    fn write_headers(&mut self, first: &Segment) -> Option<()> {
        let Segment { is_v4, tcp, data, .. } = *first;
        let (header, frame) = self.buffer.get_mut(..self.len)?.split_at_mut_checked(VIRTUAL_LEN)?;
        let kind = if is_v4 { SEGMENTS_V4 } else { SEGMENTS_V6 };
        header[..2].copy_from_slice(&[NEEDS_CHECKSUM, kind]);
        // Octets of headers and of each segment; from where on the checksum is, and where in that.
        let numbers = [data, first.len(), tcp, CHECKSUM];
        for (place, number) in header[2..].chunks_exact_mut(2).zip(numbers) {
            place.copy_from_slice(&(number as u16).to_ne_bytes());
        }
        let (packet, tcp) = (frame.get_mut(ETHERNET_LEN..)?, tcp - ETHERNET_LEN);
        let len = packet.len();
        let addresses = if is_v4 {
            packet.get_mut(2..4)?.copy_from_slice(&(len as u16).to_be_bytes());
            packet.get_mut(10..12)?.fill(0);
            let sum = Sum::new().bytes(packet.get(..tcp)?).checksum();
            packet.get_mut(10..12)?.copy_from_slice(&sum.to_be_bytes());
            12..20
        } else {
            packet.get_mut(4..6)?.copy_from_slice(&((len - tcp) as u16).to_be_bytes());
            8..40
        };
        // The sum of the pseudo-header alone: the rest is added by who completes it.
        let sum = Sum::new().bytes(packet.get(addresses)?).add_u16(TCP.into());
        let sum = sum.add_u32((len - tcp) as u32).folded();
        packet.get_mut(tcp + CHECKSUM..tcp + CHECKSUM + 2)?.copy_from_slice(&sum.to_be_bytes());
        Some(())
    }
}

/// Whether the headers of two frames of a flow differ only in what is different in each.
#[inline]
fn is_alike(buffer: Option<&[u8]>, frame: &[u8], first: &Segment, next: &Segment) -> bool {
    let Some(before) = buffer else { return false };
    if (first.is_v4, first.data) != (next.is_v4, next.data) {
        return false;
    }
    let Segment { tcp, data, .. } = *next;
    let is_same = |from: usize, to: usize| match (before.get(from..to), frame.get(from..to)) {
        (Some(one), Some(other)) => one == other,
        _ => false,
    };
    let ip = ETHERNET_LEN;
    let is_same_packet = match next.is_v4 {
        // Length, identification and checksum.
        true => is_same(0, ip + 2) && is_same(ip + 6, ip + 10) && is_same(ip + 12, tcp + 4),
        // Length.
        false => is_same(0, ip + 4) && is_same(ip + 6, tcp + 4),
    };
    // Sequence number, flags, checksum.
    is_same_packet
        && is_same(tcp + 8, tcp + FLAGS)
        && is_same(tcp + FLAGS + 1, tcp + CHECKSUM)
        && is_same(tcp + CHECKSUM + 2, data)
}

#[cfg(test)]
#[path = "trains_tests.rs"]
mod tests;
