//! A generator of frames and a sink, to measure with.
//!
//! Each frame has its flow, its number there, and a check of both, behind right headers and a right checksum. So a sink
//! can tell what was lost, what came twice, and what was not for it.

mod account;

use std::net::SocketAddr;
use std::time::Instant;

use quicket_gue::Sum;

use crate::compose;
use crate::frame::ETHERNET_LEN;

pub use account::{Account, MAX_FLOWS, WINDOW};

/// Octets of a frame's own data: its number, its flow, and a check.
const DATA: usize = 20;
/// What a frame takes of a wire beside the octets that it is counted with: preamble and gap, in octets.
const WIRE: usize = 20;
/// The shortest frame of a wire, in octets, with its checksum.
const SHORTEST: usize = 64;
/// What a bucket lets through at once after a pause, in nanoseconds of the wire.
const BURST: f64 = 10_000.0;

/// Octets of Ethernet, IP and UDP.
const fn headers(address: SocketAddr) -> usize {
    ETHERNET_LEN + if address.is_ipv4() { 20 } else { 40 } + 8
}

/// The shortest frame that has room for what a generator writes, in octets.
#[must_use]
pub const fn shortest(address: SocketAddr) -> usize {
    headers(address) + DATA
}

const fn check(number: u64, flow: u32) -> u64 {
    // All bits of both are in it.
    (number ^ (flow as u64).rotate_left(40)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The flow and the number that are in a frame's data, if it is as a generator has written it.
fn read_data(data: &[u8]) -> Option<(u32, u64)> {
    let data: &[u8; DATA] = data.first_chunk()?;
    let number = u64::from_le_bytes(*data.first_chunk()?);
    let flow = u32::from_le_bytes(*data[8..].first_chunk()?);
    (data[12..] == check(number, flow).to_le_bytes()).then_some((flow, number))
}

/// Writes the frames of a flow.
#[derive(Debug)]
pub struct Generator {
    template: Box<[u8]>,
    headers: usize,
    /// Of all that the checksum is over, without the data.
    sum: Sum,
    flow: u32,
    next: u64,
}

impl Generator {
    /// Of frames of UDP of `len` octets. None if that is less than [`shortest`] or more than a packet can be, or if one
    /// address is of IPv4 and the other is not.
    #[must_use]
    pub fn new(flow: u32, from: SocketAddr, to: SocketAddr, len: usize) -> Option<Self> {
        let headers = headers(from);
        let payload = vec![0; len.checked_sub(headers).filter(|payload| *payload >= DATA)?];
        let mut template = vec![0; len].into_boxed_slice();
        compose::udp(&mut template, from, to, &payload).filter(|written| *written == len)?;
        let checksum = *template.get(headers - 2..)?.first_chunk()?;
        let sum = Sum::new().add_u16(!u16::from_be_bytes(checksum));
        Some(Self { template, headers, sum, flow, next: 0 })
    }

    /// The same, whose next frame has that number.
    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn at(
        flow: u32,
        number: u64,
        from: SocketAddr,
        to: SocketAddr,
        len: usize,
    ) -> Option<Self> {
        Some(Self { next: number, ..Self::new(flow, from, to, len)? })
    }

    /// Writes the next frame. Returns its length; none if the slot is shorter.
    #[inline]
    pub fn write(&mut self, slot: &mut [u8]) -> Option<usize> {
        let frame = slot.get_mut(..self.template.len())?;
        frame.copy_from_slice(&self.template);
        let (head, rest) = frame.split_at_mut_checked(self.headers)?;
        let mut data = [0; DATA];
        data[..8].copy_from_slice(&self.next.to_le_bytes());
        data[8..12].copy_from_slice(&self.flow.to_le_bytes());
        data[12..].copy_from_slice(&check(self.next, self.flow).to_le_bytes());
        let checksum = match self.sum.bytes(&data).checksum() {
            // None at all (RFC 768).
            0 => 0xffff,
            checksum => checksum,
        };
        *rest.first_chunk_mut()? = data;
        *head.last_chunk_mut()? = checksum.to_be_bytes();
        self.next = self.next.wrapping_add(1);
        Some(self.template.len())
    }

    /// How many frames were written.
    #[must_use]
    pub const fn written(&self) -> u64 {
        self.next
    }
}

/// Reads the frames of flows whose numbers follow one another.
#[derive(Debug)]
pub struct Sink {
    headers: usize,
    len: usize,
    first: u32,
    expected: Box<[u64]>,
    /// Frames that came as they were written, once, and in order.
    pub received: u64,
    /// Frames that did not come, as later ones of their flow tell.
    pub lost: u64,
    /// Frames that came twice, late, changed, or for somebody else.
    pub wrong: u64,
}

impl Sink {
    /// Of `flows` flows from number `first` on, whose frames have `len` octets and go to an address of that kind.
    #[must_use]
    pub fn new(first: u32, flows: usize, to: SocketAddr, len: usize) -> Self {
        let expected = vec![0; flows].into();
        Self { headers: headers(to), len, first, expected, received: 0, lost: 0, wrong: 0 }
    }

    /// Reads a frame.
    #[inline]
    pub fn read(&mut self, frame: &[u8]) {
        if self.take(frame).is_none() {
            self.wrong += 1;
        }
    }

    #[inline]
    fn take(&mut self, frame: &[u8]) -> Option<()> {
        let data: &[u8; DATA] = frame.get(self.headers..)?.first_chunk()?;
        let number = u64::from_le_bytes(*data.first_chunk()?);
        let flow = u32::from_le_bytes(*data[8..].first_chunk()?);
        let is_whole = frame.len() == self.len && data[12..] == check(number, flow).to_le_bytes();
        let expected = self.expected.get_mut(flow.checked_sub(self.first)? as usize)?;
        if !is_whole || number < *expected {
            return None;
        }
        // Whoever sends may write any number.
        let next = number.checked_add(1)?;
        self.lost = self.lost.saturating_add(number - *expected);
        *expected = next;
        self.received += 1;
        Some(())
    }
}

/// A leaky bucket at the rate of a wire: what goes through it is never more than the wire would carry.
#[derive(Debug)]
pub struct Bucket {
    begun: Instant,
    /// Nanoseconds of a frame.
    each: f64,
    used: f64,
    burst: f64,
    /// Frames that had come by the last look ([`Bucket::take_waiting`]), and had to wait.
    waiting: u32,
}

impl Bucket {
    /// Of a wire with `gbit` Gbit/s, for frames of `len` octets, their checksum included.
    #[must_use]
    pub fn new(gbit: f64, len: usize) -> Self {
        let each = ((len.max(SHORTEST) + WIRE) * 8) as f64 / gbit;
        Self { begun: Instant::now(), each, used: 0.0, burst: BURST, waiting: 0 }
    }

    /// The same, with as many nanoseconds of the wire that may be used at once after a pause: otherwise ten microseconds.
    #[must_use]
    pub const fn with_burst(mut self, nanoseconds: u32) -> Self {
        self.burst = nanoseconds as f64;
        self
    }

    /// How many frames may go at once after a pause.
    #[must_use]
    pub fn most(&self) -> u32 {
        (self.burst / self.each) as u32
    }

    /// Takes the time of up to `most` frames. Returns how many may go now.
    #[inline]
    pub fn take(&mut self, most: u32) -> u32 {
        self.take_at(self.begun.elapsed().as_nanos() as f64, most)
    }

    /// Takes the time of `n` frames, [`Bucket::most`] at most, if all of them may go now. Returns whether they may.
    #[inline]
    pub fn take_all(&mut self, n: u32) -> bool {
        self.take_all_at(self.begun.elapsed().as_nanos() as f64, n)
    }

    #[inline]
    fn take_all_at(&mut self, now: f64, n: u32) -> bool {
        // A little more than that, so that no rounding stands between both.
        now - self.used > (f64::from(n) + 0.001) * self.each && self.take_at(now, n) == n
    }

    /// Takes the time of as many of `waiting` frames as have left by now, all of which have come. A wire goes on with those
    /// that wait while nobody looks: so a pause costs no time as long as the last look has left enough.
    #[inline]
    pub fn take_waiting(&mut self, waiting: u32) -> u32 {
        self.take_waiting_at(self.begun.elapsed().as_nanos() as f64, waiting)
    }

    #[inline]
    fn take_waiting_at(&mut self, now: f64, waiting: u32) -> u32 {
        let n = self.take_with(now, waiting, self.burst + f64::from(self.waiting) * self.each);
        self.waiting = waiting - n;
        n
    }

    #[inline]
    fn take_at(&mut self, now: f64, most: u32) -> u32 {
        self.take_with(now, most, self.burst)
    }

    /// Where so much time before now has not been lost.
    #[inline]
    fn take_with(&mut self, now: f64, most: u32, burst: f64) -> u32 {
        self.used = self.used.max(now - burst);
        let n = (((now - self.used) / self.each) as u32).min(most);
        self.used += f64::from(n) * self.each;
        n
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame;

    fn ends(v6: bool) -> [SocketAddr; 2] {
        let address = |port: u16| match v6 {
            true => format!("[2001:db8::{port}]:{port}").parse().unwrap(),
            false => format!("192.0.2.{port}:{port}").parse().unwrap(),
        };
        [address(7), address(9)]
    }

    #[test]
    fn frames_are_right_and_a_sink_tells_what_became_of_them() {
        for v6 in [false, true] {
            let [from, to] = ends(v6);
            for len in [shortest(from), 128, 1501] {
                assert!(Generator::new(3, from, to, shortest(from) - 1).is_none());
                let mut generator = Generator::new(3, from, to, len).unwrap();
                let mut sink = Sink::new(2, 2, to, len);
                let mut frames = vec![vec![0; len]; 300];
                for frame in &mut frames {
                    assert_eq!(generator.write(frame), Some(len));
                    let (source, destination) = frame::tuples(frame).unwrap();
                    assert_eq!((source.port, destination.port), (from.port(), to.port()));
                }
                assert_eq!((generator.written(), generator.write(&mut [0; 60])), (300, None));
                frames[..100].iter().for_each(|frame| sink.read(frame));
                frames[110..120].iter().for_each(|frame| sink.read(frame));
                assert_eq!((sink.received, sink.lost, sink.wrong), (110, 10, 0));
                // Twice, late, changed, cut off, and of another flow.
                sink.read(&frames[119]);
                sink.read(&frames[105]);
                frames[120][shortest(from) - 1] ^= 1;
                sink.read(&frames[120]);
                sink.read(&frames[121][..len - 1]);
                let mut other = Generator::new(4, from, to, len).unwrap();
                other.write(&mut frames[0]).unwrap();
                sink.read(&frames[0]);
                sink.read(&[]);
                assert_eq!((sink.received, sink.lost, sink.wrong), (110, 10, 6));
                // Of another flow that differs in its highest bit; and numbers that have no successor, or leave much out.
                let mut last = Generator::at(3, u64::MAX, from, to, len).unwrap();
                last.write(&mut frames[0]).unwrap();
                sink.read(&frames[0]);
                last.write(&mut frames[0]).unwrap();
                let at = headers(to) + 11;
                frames[0][at] ^= 0x80;
                sink.read(&frames[0]);
                assert_eq!((sink.received, sink.lost, sink.wrong), (110, 10, 8));
                for flow in [2, 3] {
                    let far = u64::MAX - 1;
                    let mut far = Generator::at(flow, far, from, to, len).unwrap();
                    far.write(&mut frames[0]).unwrap();
                    sink.read(&frames[0]);
                }
                assert_eq!((sink.received, sink.lost, sink.wrong), (112, u64::MAX, 8));
            }
        }
    }

    #[test]
    fn a_bucket_lets_through_what_the_wire_would_carry_and_pauses_are_lost() {
        let mut bucket = Bucket::new(10.0, 64);
        // 67.2 ns each.
        assert_eq!(bucket.take_at(6721.0, u32::MAX), 100);
        assert_eq!(bucket.take_at(6721.0, u32::MAX), 0);
        assert_eq!((bucket.take_at(13_441.0, 30), bucket.take_at(13_441.0, 99)), (30, 70));
        assert_eq!(bucket.take_at(1e9, u32::MAX), 148, "ten microseconds");
        let mut bucket = Bucket::new(10.0, 1518).with_burst(1_000_000);
        assert_eq!((bucket.most(), bucket.take_at(1e9, u32::MAX)), (812, 812));
        let mut bucket = Bucket::new(10.0, 64).with_burst(20_000);
        assert!(!bucket.take_all_at(13_439.0, 200) && bucket.take_all_at(13_441.0, 200));
        assert_eq!(bucket.take_at(13_442.0, u32::MAX), 0, "all of it was taken");
        // What waited has left meanwhile; what came in the pause has the time that is never lost.
        let mut bucket = Bucket::new(10.0, 64);
        assert_eq!(bucket.take_waiting_at(6721.0, 1100), 100);
        assert_eq!(bucket.take_waiting_at(6721.0 + 33_600.0, 1000), 500);
        assert_eq!(bucket.take_waiting_at(1e6, 4000), 500 + 148);
        assert_eq!(bucket.take_waiting_at(1e6 + 6720.0, 0), 0);
        assert_eq!(bucket.take_waiting_at(2e6, 4000), 148);
    }
}
