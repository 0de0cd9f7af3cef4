//! The packets of one train of datagrams, one after the other.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;

use quicket_gue::vnet::{Partial, Vnet};
use quicket_gue::{Packet, RemoteChecksum};

use crate::carrier::Received;
use crate::inbound::{Opened, Outer};
use crate::segments::{Malformed, segments};
use crate::sources::Source;
use crate::udp::{self, Train};

/// A train, and what has been taken from it.
#[derive(Debug)]
pub(crate) struct Arrivals {
    buffer: Vec<u8>,
    train: Option<(Source, Train)>,
    /// Where in it the next datagram begins.
    at: usize,
    /// Packets that were opened: the tunnel, and where they are.
    packets: VecDeque<(usize, Place)>,
    /// Packets of one that the system has joined: no more than the train has bytes, and their headers.
    parts: Vec<u8>,
}

#[derive(Debug)]
enum Place {
    Buffer(Range<usize>),
    Parts(Range<usize>),
}

impl Default for Arrivals {
    fn default() -> Self {
        Self {
            buffer: vec![0; udp::BUFFER],
            train: None,
            at: 0,
            packets: VecDeque::new(),
            parts: Vec::new(),
        }
    }
}

impl Arrivals {
    /// Whether a new train has to come.
    pub(crate) fn is_over(&self) -> bool {
        self.train.is_none() && self.packets.is_empty()
    }

    /// Takes a train.
    pub(crate) fn receive(
        &mut self,
        source: Source,
        receive: impl FnOnce(&mut [u8]) -> io::Result<Train>,
    ) -> io::Result<()> {
        let train = receive(&mut self.buffer)?;
        self.at = train.start;
        self.train = Some((source, train));
        Ok(())
    }

    /// Opens the next datagram of the train, if there is one.
    ///
    /// # Errors
    ///
    /// The tunnel of a packet that the system has joined, and that cannot be taken apart again.
    pub(crate) fn open(
        &mut self,
        open: impl FnOnce(Source, Outer, &mut [u8]) -> Option<Opened>,
    ) -> Result<(), usize> {
        let Some((source, train)) = &self.train else { return Ok(()) };
        let (source, outer) = (*source, train.outer);
        let at = self.at;
        let end = train.bytes.min(at + train.stride.max(1));
        self.at = end;
        if end >= train.bytes {
            self.train = None;
        }
        if at >= end {
            return Ok(());
        }
        let Some(opened) = open(source, outer, &mut self.buffer[at..end]) else { return Ok(()) };
        let range = at + opened.range.start..at + opened.range.end;
        self.accept(Opened { range, ..opened })
    }

    /// Makes whole packets of one that may have an open checksum, or stand for several.
    fn accept(&mut self, opened: Opened) -> Result<(), usize> {
        let Opened { tunnel, range, link, partial, joined, .. } = opened;
        let link = range.start - link..range.start;
        if let Some(joined) = joined {
            let packet = Packet::parse(&self.buffer[range]).map_err(|_| tunnel)?;
            self.parts.clear();
            let (buffer, parts, packets) = (&self.buffer, &mut self.parts, &mut self.packets);
            let vnet = Vnet { partial, offload: Some(joined.offload) };
            return segments(&packet, vnet, false, |segment| {
                let start = parts.len();
                parts.extend_from_slice(&buffer[link.clone()]);
                parts.extend_from_slice(segment.headers);
                parts.extend_from_slice(&packet.bytes[segment.payload]);
                packets.push_back((tunnel, Place::Parts(start..parts.len())));
                Ok(())
            })
            .map_err(|Malformed| tunnel);
        }
        if let Some(partial) = partial {
            complete(&mut self.buffer[range.clone()], partial);
        }
        self.packets.push_back((tunnel, Place::Buffer(link.start..range.end)));
        Ok(())
    }

    /// Copies the next packet to a buffer; it remains if there is no room.
    pub(crate) fn take(&mut self, buffer: &mut [u8]) -> io::Result<Option<Received>> {
        let Some((tunnel, place)) = self.packets.front() else { return Ok(None) };
        let bytes = match place {
            Place::Buffer(range) => &self.buffer[range.clone()],
            Place::Parts(range) => &self.parts[range.clone()],
        };
        let len = bytes.len();
        let Some(room) = buffer.get_mut(..len) else {
            let message = format!("the packet has {len} bytes, the buffer {}", buffer.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        };
        room.copy_from_slice(bytes);
        let tunnel = *tunnel;
        self.packets.pop_front();
        Ok(Some(Received { tunnel, len }))
    }
}

/// Writes a checksum that was left open: it lies within the packet, as what it is of does.
fn complete(bytes: &mut [u8], partial: Partial) {
    let offset = partial.start.saturating_add(partial.offset);
    let done = RemoteChecksum { start: partial.start, offset }.apply(bytes);
    // That of UDP is at 6. Zero means "no checksum" there (RFC 768).
    let field = bytes.get_mut(usize::from(offset)..).and_then(|rest| rest.first_chunk_mut());
    if let (Ok(()), 6, Some(field @ [0, 0])) = (done, partial.offset, field) {
        *field = [0xff; 2];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inbound::Joined;
    use crate::testing::{is_intact, tcp, udp};
    use quicket_gue::vnet::Offload;
    use quicket_gue::{Sum, protocol, pseudo_header};

    /// A train of these datagrams, of which all but the last have one length.
    fn arrivals(datagrams: &[Vec<u8>]) -> Arrivals {
        let mut arrivals = Arrivals::default();
        let source = [192, 0, 2, 1].into();
        let bytes = datagrams.concat();
        let outer = Outer { source, destination: None, tos: 0 };
        let train = Train { outer, start: 0, bytes: bytes.len(), stride: datagrams[0].len() };
        let receive = |buffer: &mut [u8]| {
            buffer[..bytes.len()].copy_from_slice(&bytes);
            Ok(train)
        };
        arrivals.receive(Source::Port(0), receive).unwrap();
        arrivals
    }

    fn opened(range: Range<usize>) -> Opened {
        Opened { tunnel: 3, range, link: 0, partial: None, joined: None, suspicious: false }
    }

    fn all(mut arrivals: Arrivals, open: impl Fn(&mut [u8]) -> Option<Opened>) -> Vec<Vec<u8>> {
        let (mut packets, mut buffer) = (Vec::new(), vec![0; 65_535]);
        while !arrivals.is_over() {
            arrivals.open(|_, _, datagram| open(datagram)).unwrap();
            while let Some(Received { tunnel: 3, len }) = arrivals.take(&mut buffer).unwrap() {
                packets.push(buffer[..len].to_vec());
            }
        }
        packets
    }

    /// With the sum of the pseudo-header where the checksum of TCP or UDP will be.
    fn left_open(v4: bool, mut packet: Vec<u8>) -> (Vec<u8>, Partial) {
        let start = if v4 { 20 } else { 40 };
        let (offset, number) = match packet[if v4 { 9 } else { 6 }] {
            protocol::TCP => (16, protocol::TCP),
            _ => (6, protocol::UDP),
        };
        let (source, destination) = crate::testing::addresses(v4);
        let len = (packet.len() - start) as u32;
        let sum = pseudo_header(source, destination, number, len).folded();
        packet[start + offset..start + offset + 2].copy_from_slice(&sum.to_be_bytes());
        (packet, Partial { start: start as u16, offset: offset as u16 })
    }

    #[test]
    fn each_datagram_of_a_train_has_its_turn() {
        let datagrams = [udp(true, &[1; 99]), udp(true, &[2; 99]), udp(true, &[3; 98])];
        let packets = all(arrivals(&datagrams), |datagram| Some(opened(0..datagram.len())));
        assert_eq!(packets, datagrams);
        let second = |datagram: &mut [u8]| (datagram[40] == 2).then(|| opened(0..datagram.len()));
        assert_eq!(all(arrivals(&datagrams), second), [udp(true, &[2; 99])]);
    }

    #[test]
    fn open_checksums_are_completed_and_are_never_none() {
        for v4 in [true, false] {
            // One of these has the checksum 0, which is written as its other form.
            let payloads = (0..=u16::MAX).map(|number| number.to_be_bytes());
            let mut zeros = 0;
            for payload in payloads {
                let (mut packet, partial) = left_open(v4, udp(v4, &payload));
                complete(&mut packet, partial);
                let at = if v4 { 26 } else { 46 };
                assert_ne!(packet[at..at + 2], [0, 0]);
                zeros += u32::from(packet[at..at + 2] == [0xff; 2]);
                assert_eq!(
                    packet[at..at + 2] == [0xff; 2],
                    udp(v4, &payload)[at..at + 2] == [0; 2]
                );
            }
            assert_eq!(zeros, 1);
            let (packet, partial) = left_open(v4, tcp(v4, 1, 0x10, &[7; 333]));
            let open = |datagram: &mut [u8]| {
                Some(Opened { partial: Some(partial), ..opened(0..datagram.len()) })
            };
            assert_eq!(all(arrivals(&[packet]), open), [tcp(v4, 1, 0x10, &[7; 333])]);
        }
    }

    #[test]
    fn what_the_system_has_joined_is_taken_apart() {
        for v4 in [true, false] {
            let (packet, partial) = left_open(v4, tcp(v4, 1, 0x18, &[7; 3000]));
            let headers = if v4 { 40 } else { 60 };
            let joined = Joined { headers, offload: (Offload::Tcp, 1400) };
            let open = |datagram: &mut [u8]| {
                let range = 0..datagram.len();
                Some(Opened { partial: Some(partial), joined: Some(joined), ..opened(range) })
            };
            let packets = all(arrivals(&[packet]), open);
            let lens: Vec<_> = packets.iter().map(|one| one.len() - usize::from(headers)).collect();
            assert_eq!(lens, [1400, 1400, 200]);
            assert!(packets.iter().all(|packet| is_intact(packet)));
        }
        // It cannot be: somebody counts it.
        let joined = Joined { headers: 28, offload: (Offload::Tcp, 1400) };
        let mut arrivals = arrivals(&[udp(true, &[1; 99])]);
        let result = arrivals.open(|_, _, datagram| {
            Some(Opened { joined: Some(joined), ..opened(0..datagram.len()) })
        });
        assert_eq!((result, arrivals.is_over()), (Err(3), true));
    }

    #[test]
    fn a_packet_remains_until_there_is_room_for_it() {
        let packet = udp(true, &[1; 99]);
        let mut arrivals = arrivals(&[[&[9; 14][..], &packet].concat()]);
        let len = packet.len() + 14;
        let frame = Opened { link: 14, ..opened(14..len) };
        arrivals.open(|_, _, _| Some(frame)).unwrap();
        let mut buffer = vec![0; len];
        let error = arrivals.take(&mut buffer[1..]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert_eq!(arrivals.take(&mut buffer).unwrap(), Some(Received { tunnel: 3, len }));
        assert_eq!((&buffer[..14], &buffer[14..]), (&[9; 14][..], &packet[..]));
        assert!(arrivals.is_over());
    }

    #[test]
    fn checksums_of_tests_are_right() {
        let (packet, _) = left_open(true, udp(true, b"x"));
        assert!(!is_intact(&packet) && is_intact(&udp(true, b"x")));
        assert!(Sum::new().bytes(&udp(true, b"x")[..20]).is_intact());
    }
}
