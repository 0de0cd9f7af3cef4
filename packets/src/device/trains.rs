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

use quicket_gue::super_packet::{Most, Segment, SuperPacket};
use quicket_gue::vnet::{Offload, VNET_LEN};
use rustix::io::Errno;
use rustix::net::{SendFlags, sockopt};

use crate::frame::ETHERNET_LEN;

/// Octets of a frame at most, with the header of Ethernet: the length of a packet has 16 bits.
const MAX_LEN: usize = 65_535;
/// Segments at most: as many as frames of a port in one turn.
const MAX_SEGMENTS: u32 = crate::batch::BATCH;
/// Turns that frames wait for room at most.
const MAX_TURNS: u32 = 64;
/// What waits for the other end to take it up, in octets, as the kernel counts.
const SEND_BUFFER: usize = 16 << 20;
/// Where the frame begins in what the system gets, and the packet in that.
const FRAME: usize = VNET_LEN;
const PACKET: usize = FRAME + ETHERNET_LEN;

/// A frame with data of TCP, and nothing unusual; none if it is not to be put together with others. It has been checked.
#[inline]
pub(super) fn read(frame: &[u8]) -> Option<Segment> {
    let has_type = |is_v4: bool| match frame.get(12..ETHERNET_LEN) {
        Some([0x08, 0x00]) => is_v4,
        Some([0x86, 0xdd]) => !is_v4,
        _ => false,
    };
    let segment = Segment::read(frame.get(ETHERNET_LEN..)?)?;
    (segment.offload == Offload::Tcp && has_type(segment.is_v4)).then_some(segment)
}

/// What is put together at the moment.
#[derive(Debug)]
struct Open {
    whole: SuperPacket,
    /// The queue by which the frames go.
    queue: usize,
    /// Where the next octet is put.
    end: usize,
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

    /// The same by another socket, for tests of what that refuses.
    #[cfg(test)]
    pub(super) fn send_by(&mut self, socket: OwnedFd) {
        self.socket = socket;
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
    most: Most,
}

impl Builder {
    fn new() -> Self {
        let buffer = vec![0; FRAME + MAX_LEN].into();
        let most = Most { packets: MAX_SEGMENTS, len: MAX_LEN - ETHERNET_LEN };
        Self { buffer, open: None, len: 0, most }
    }

    /// As [`Trains::limit`].
    fn limit(&mut self, size: u32, segments: u32) {
        let len = MAX_LEN.min(size.saturating_sub(1) as usize).saturating_sub(ETHERNET_LEN);
        self.most = Most { packets: MAX_SEGMENTS.min(segments), len };
    }

    /// The header for the system, and the frame, once it is closed.
    fn octets(&self) -> &[u8] {
        self.buffer.get(..self.len).unwrap_or_default()
    }

    /// Puts a frame behind those that are there, if it is the next one of their flow. Returns whether it was.
    #[inline]
    fn append(&mut self, frame: &[u8], segment: &Segment, queue: usize) -> bool {
        let Some(open) = self.open.as_mut().filter(|open| open.queue == queue) else {
            return false;
        };
        let Some((filled, room)) = self.buffer.split_at_mut_checked(open.end) else {
            return false;
        };
        let Some((link, packet)) = frame.split_at_checked(ETHERNET_LEN) else { return false };
        let data = packet.get(segment.headers..segment.end);
        let place = room.get_mut(..segment.payload());
        let (Some(data), Some(place)) = (data, place) else { return false };
        let (Some(before), Some(first)) = (filled.get(FRAME..PACKET), filled.get(PACKET..)) else {
            return false;
        };
        if before != link || !open.whole.take(first, segment, packet, self.most) {
            return false;
        }
        place.copy_from_slice(data);
        open.end += data.len();
        true
    }

    /// Begins with a frame. What was there is closed. Returns whether it has room.
    #[inline]
    fn begin(&mut self, frame: &[u8], segment: Segment, queue: usize) -> bool {
        let end = PACKET + segment.end;
        let parts = (frame.get(..end - FRAME), self.buffer.get_mut(FRAME..end));
        let (Some(frame), Some(place)) = parts else { return false };
        place.copy_from_slice(frame);
        self.open = Some(Open { whole: SuperPacket::new(segment), queue, end });
        true
    }

    /// Nothing more is put together with what is there; none if nothing is.
    #[inline]
    fn close(&mut self) -> Option<Leaving<'_>> {
        let Open { whole, queue, end } = self.open.take()?;
        self.len = end;
        if whole.packets() == 1 {
            return Some(Leaving::One(queue, self.buffer.get(FRAME..end)?));
        }
        let vnet = whole.write_headers(self.buffer.get_mut(PACKET..end)?)?;
        let first = whole.first();
        let link = ETHERNET_LEN as u16;
        let header = vnet.after(link).encode(first.is_v4, first.headers as u16 + link);
        self.buffer.get_mut(..FRAME)?.copy_from_slice(&header);
        Some(Leaving::Many(queue, whole.packets()))
    }
}

#[cfg(test)]
#[path = "trains_tests.rs"]
pub(super) mod tests;
