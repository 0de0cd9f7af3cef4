//! Frames of UDP that have come, put together to trains: datagrams of equal length from one address, with one mark.

use std::io::IoSliceMut;
use std::net::{IpAddr, SocketAddr};

use quicket_udp::{Arrival, MAX_SEGMENTS};
use quicket_wire::EcnCodepoint;

use crate::frame::{packet, step_over};

const UDP: u8 = 17;
const UDP_LEN: usize = 8;

/// A datagram of UDP, where it stands in its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Datagram<'a> {
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
    pub(crate) ecn: EcnCodepoint,
    pub(crate) payload: &'a [u8],
}

impl<'a> Datagram<'a> {
    /// Reads a frame, whose lengths and checksums the switch has checked. None if it is none of UDP.
    pub(crate) fn read(frame: &'a [u8]) -> Option<Self> {
        let (is_v4, packet) = packet(frame)?;
        let (ecn, addresses, segment): (_, [IpAddr; 2], _) = if is_v4 {
            let header = packet.first_chunk::<20>()?;
            let [.., s0, s1, s2, s3, d0, d1, d2, d3] = *header;
            let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
            let segment = packet.get(usize::from(header[0] & 0xf) * 4..total)?;
            let protocol = header[9];
            let addresses = [[s0, s1, s2, s3].into(), [d0, d1, d2, d3].into()];
            (header[1], addresses, (protocol == UDP).then_some(segment)?)
        } else {
            let header = packet.first_chunk::<40>()?;
            let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
            let rest = packet.get(40..)?.get(..len)?;
            let (protocol, segment) = match header[6] {
                UDP => (UDP, rest),
                first => step_over(first, rest).ok()?,
            };
            let source: [u8; 16] = header[8..24].try_into().ok()?;
            let destination: [u8; 16] = header[24..].try_into().ok()?;
            // The lower half of the traffic class (RFC 8200, Section 3).
            let addresses = [source.into(), destination.into()];
            (header[1] >> 4, addresses, (protocol == UDP).then_some(segment)?)
        };
        let [s0, s1, d0, d1, l0, l1, ..] = *segment.first_chunk::<UDP_LEN>()?;
        let len = usize::from(u16::from_be_bytes([l0, l1]));
        Some(Self {
            source: (addresses[0], u16::from_be_bytes([s0, s1])).into(),
            destination: (addresses[1], u16::from_be_bytes([d0, d1])).into(),
            ecn: EcnCodepoint::from_bits(ecn),
            payload: segment.get(UDP_LEN..len)?,
        })
    }
}

/// Fills buffers with trains.
pub(super) struct Gather<'a, 'b> {
    buffers: &'a mut [IoSliceMut<'b>],
    arrivals: &'a mut [Arrival],
    count: usize,
    /// Nothing can follow the last train: a shorter datagram has ended it, or as many are in it as may be.
    is_closed: bool,
}

impl<'a, 'b> Gather<'a, 'b> {
    pub(super) const fn new(
        buffers: &'a mut [IoSliceMut<'b>],
        arrivals: &'a mut [Arrival],
    ) -> Self {
        Self { buffers, arrivals, count: 0, is_closed: true }
    }

    /// How many trains there are.
    pub(super) const fn count(&self) -> usize {
        self.count
    }

    /// Takes a datagram. False if there is no room: it is to come again, with other buffers.
    pub(super) fn add(&mut self, datagram: &Datagram<'_>) -> bool {
        self.append(datagram) || self.begin(datagram)
    }

    /// Adds it to the last train, if it belongs there.
    fn append(&mut self, datagram: &Datagram<'_>) -> bool {
        let Datagram { source, destination, ecn, payload } = *datagram;
        let Some(at) = self.count.checked_sub(1).filter(|_| !self.is_closed) else { return false };
        let (Some(train), Some(buffer)) = (self.arrivals.get_mut(at), self.buffers.get_mut(at))
        else {
            return false;
        };
        let is_same = (train.remote, train.local, train.ecn) == (source, Some(destination), ecn);
        if !is_same || payload.is_empty() || payload.len() > train.stride {
            return false;
        }
        let Some(room) = buffer.get_mut(train.len..train.len + payload.len()) else { return false };
        room.copy_from_slice(payload);
        train.len += payload.len();
        self.is_closed = payload.len() < train.stride || train.len >= MAX_SEGMENTS * train.stride;
        true
    }

    /// Begins a train with it. One that no buffer could hold is left out.
    fn begin(&mut self, datagram: &Datagram<'_>) -> bool {
        let Datagram { source, destination, ecn, payload } = *datagram;
        let (Some(train), Some(buffer)) =
            (self.arrivals.get_mut(self.count), self.buffers.get_mut(self.count))
        else {
            return false;
        };
        let Some(room) = buffer.get_mut(..payload.len()) else { return true };
        room.copy_from_slice(payload);
        let (local, len) = (Some(destination), payload.len());
        *train = Arrival { remote: source, local, ecn, stride: len.max(1), len };
        self.count += 1;
        self.is_closed = len == 0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compose;

    const FROM: [&str; 2] = ["192.0.2.1:5", "[2001:db8::1]:5"];
    const TO: [&str; 2] = ["192.0.2.2:7", "[2001:db8::2]:7"];

    fn frame(at: usize, ecn: EcnCodepoint, payload: &[u8]) -> Vec<u8> {
        let mut slot = vec![0xff; 2048];
        let (from, to) = (FROM[at].parse().unwrap(), TO[at].parse().unwrap());
        let len = compose::marked_udp(&mut slot, from, to, ecn, payload).unwrap();
        slot.truncate(len);
        slot
    }

    #[test]
    fn what_is_composed_is_read_and_has_its_mark() {
        use EcnCodepoint::{Ce, Ect0, Ect1, NotEct};
        for at in 0..2 {
            for ecn in [NotEct, Ect0, Ect1, Ce] {
                for len in [0, 1, 17, 18, 19, 1200, 1900] {
                    let payload = vec![7; len];
                    let frame = frame(at, ecn, &payload);
                    crate::frame::check(&frame).unwrap();
                    let read = Datagram::read(&frame).unwrap();
                    let ends = (FROM[at].parse().unwrap(), TO[at].parse().unwrap());
                    assert_eq!((read.source, read.destination), ends);
                    assert_eq!((read.ecn, read.payload), (ecn, &payload[..]));
                    // Behind a priority tag, and cut off anywhere.
                    let mut tagged = frame.clone();
                    tagged.splice(12..12, [0x81, 0, 0xe0, 0]);
                    assert_eq!(Datagram::read(&tagged), Some(read));
                    let len = if at == 0 { 42 } else { 62 } + payload.len();
                    assert!((0..len).all(|len| Datagram::read(&frame[..len]).is_none()));
                }
            }
        }
    }

    #[test]
    fn what_is_no_datagram_of_udp_is_left_out() {
        let mut other = frame(0, EcnCodepoint::NotEct, b"tcp");
        other[23] = 6;
        assert_eq!(Datagram::read(&other), None);
        let mut other = frame(1, EcnCodepoint::NotEct, b"tcp");
        other[20] = 6;
        assert_eq!(Datagram::read(&other), None);
        // Hop-by-hop options of eight octets before it.
        let mut behind = frame(1, EcnCodepoint::Ce, b"behind");
        behind[20] = 0;
        behind[19] += 8;
        behind.splice(54..54, [UDP, 0, 1, 4, 0, 0, 0, 0]);
        let read = Datagram::read(&behind).unwrap();
        assert_eq!((read.payload, read.ecn), (&b"behind"[..], EcnCodepoint::Ce));
    }

    /// Adds datagrams of these lengths and marks; the trains that come of them, and how many were taken.
    fn gathered(all: &[(usize, EcnCodepoint)], rooms: &[usize]) -> (Vec<(usize, usize)>, usize) {
        let mut bytes: Vec<Vec<u8>> = rooms.iter().map(|room| vec![0; *room]).collect();
        let mut buffers: Vec<_> = bytes.iter_mut().map(|room| IoSliceMut::new(room)).collect();
        let mut arrivals = vec![Arrival::default(); rooms.len()];
        let mut gather = Gather::new(&mut buffers, &mut arrivals);
        let taken = all.iter().take_while(|(len, ecn)| {
            let frame = frame(0, *ecn, &vec![*len as u8; *len]);
            gather.add(&Datagram::read(&frame).unwrap())
        });
        let (taken, count) = (taken.count(), gather.count());
        let mut at = 0;
        for (train, buffer) in arrivals[..count].iter().zip(&buffers) {
            let mut left = &buffer[..train.len];
            while !left.is_empty() {
                let len = all[at].0;
                assert!(left[..len].iter().all(|byte| *byte == len as u8));
                (left, at) = (&left[len..], at + 1);
            }
            at += usize::from(train.len == 0);
        }
        (arrivals[..count].iter().map(|train| (train.stride, train.len)).collect(), taken)
    }

    #[test]
    fn trains_have_equal_lengths_and_one_mark() {
        let (not, ce) = (EcnCodepoint::NotEct, EcnCodepoint::Ce);
        let rooms = [1000; 4];
        let all = [(100, not), (100, not), (60, not), (60, not), (60, ce), (61, ce)];
        let trains = vec![(100, 260), (60, 60), (60, 60), (61, 61)];
        assert_eq!(gathered(&all, &rooms), (trains, 6));
        assert_eq!(gathered(&all, &rooms[..2]), (vec![(100, 260), (60, 60)], 4));
        // Without room for more, another one begins; what no buffer holds is left out.
        let all = [(300, not); 5];
        assert_eq!(gathered(&all, &[700, 700]), (vec![(300, 600), (300, 600)], 4));
        assert_eq!(gathered(&all, &[200]), (vec![], 5));
        // Nothing but a header.
        assert_eq!(gathered(&[(0, not), (0, not)], &rooms), (vec![(1, 0), (1, 0)], 2));
        let many = vec![(2, not); MAX_SEGMENTS + 1];
        let most = MAX_SEGMENTS * 2;
        assert_eq!(gathered(&many, &rooms), (vec![(2, most), (2, 2)], MAX_SEGMENTS + 1));
    }
}
