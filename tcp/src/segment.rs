//! Segments of TCP, as far as somebody besides smoltcp has to read and write them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{IpProtocol, IpRepr, TcpControl, TcpPacket, TcpRepr, TcpSeqNumber};

const TCP: u8 = 6;
const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// Both ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ends {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
}

/// What a header of TCP says (RFC 9293, Section 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) source: u16,
    pub(crate) destination: u16,
    pub(crate) sequence: u32,
    pub(crate) acknowledgment: u32,
    pub(crate) window: u16,
    flags: u8,
    /// Octets of data.
    data: u32,
}

impl Header {
    /// Reads a segment. None if it is cut off.
    pub(crate) fn read(segment: &[u8]) -> Option<Self> {
        let header = segment.first_chunk::<20>()?;
        let word = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|n| header[at + n]));
        let data = segment.len().checked_sub(usize::from(header[12] >> 4) * 4)?;
        Some(Self {
            source: u16::from_be_bytes([header[0], header[1]]),
            destination: u16::from_be_bytes([header[2], header[3]]),
            sequence: word(4),
            acknowledgment: word(8),
            window: u16::from_be_bytes([header[14], header[15]]),
            flags: header[13],
            data: u32::try_from(data).ok()?,
        })
    }

    pub(crate) const fn is_syn(&self) -> bool {
        self.flags & SYN != 0
    }

    pub(crate) const fn is_fin(&self) -> bool {
        self.flags & FIN != 0
    }

    pub(crate) const fn is_rst(&self) -> bool {
        self.flags & RST != 0
    }

    pub(crate) const fn is_ack(&self) -> bool {
        self.flags & ACK != 0
    }

    /// Whether it asks for a connection.
    pub(crate) const fn is_request(&self) -> bool {
        self.flags & (SYN | ACK | RST | FIN) == SYN
    }

    pub(crate) const fn has_data(&self) -> bool {
        self.data > 0
    }

    /// Whether it has no data, SYN or FIN.
    pub(crate) fn is_empty(&self) -> bool {
        self.end() == self.sequence
    }

    /// The sequence number behind the segment: SYN and FIN have one each.
    pub(crate) fn end(&self) -> u32 {
        let controls = u32::from(self.is_syn()) + u32::from(self.is_fin());
        self.sequence.wrapping_add(self.data).wrapping_add(controls)
    }
}

/// By how many bits the windows of the segments after a SYN are shifted, if it says so (RFC 7323, Section 2.2).
pub(crate) fn window_scale(segment: &[u8]) -> Option<u8> {
    let len = usize::from(segment.get(12)? >> 4) * 4;
    let mut options = segment.get(20..len)?;
    loop {
        match *options {
            [0, ..] | [] => return None,
            [1, ..] => options = &options[1..],
            [3, 3, scale, ..] => return Some(scale),
            [_, len, ..] => options = options.get(usize::from(len.max(2))..)?,
            [_] => return None,
        }
    }
}

/// Octets of a packet before its segment, without extension headers of IPv6.
pub(crate) fn header_len(packet: &[u8]) -> usize {
    match packet.first() {
        Some(first) if first >> 4 == 4 => usize::from(first & 0xf) * 4,
        _ => 40,
    }
}

/// A segment that has come, where it stands in its frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment<'a> {
    /// The packet of IP, without what pads the frame.
    pub(crate) packet: &'a [u8],
    pub(crate) ends: Ends,
    pub(crate) header: Header,
}

impl<'a> Segment<'a> {
    /// Reads a frame, whose lengths and checksums the switch has checked. None if it is none of TCP, is from no address that
    /// may be answered (RFC 1122, Section 3.2.1.3), or has extension headers of IPv6.
    pub(crate) fn read(frame: &'a [u8]) -> Option<Self> {
        let (is_v4, packet) = quicket_packets::packet(frame)?;
        let ([source, destination], len): ([IpAddr; 2], _) = if is_v4 {
            let header = packet.first_chunk::<20>().filter(|header| header[9] == TCP)?;
            let [.., s0, s1, s2, s3, d0, d1, d2, d3] = *header;
            let len = usize::from(u16::from_be_bytes([header[2], header[3]]));
            let addresses = [[s0, s1, s2, s3].into(), [d0, d1, d2, d3].into()];
            (addresses, len)
        } else {
            let header = packet.first_chunk::<40>().filter(|header| header[6] == TCP)?;
            let len = 40 + usize::from(u16::from_be_bytes([header[4], header[5]]));
            let address = |at: usize| header[at..].first_chunk::<16>().copied().map(IpAddr::from);
            ([address(8)?, address(24)?], len)
        };
        if source.is_unspecified() || source.is_multicast() || source == Ipv4Addr::BROADCAST {
            return None;
        }
        let packet = packet.get(..len)?;
        let header = Header::read(packet.get(header_len(packet)..)?)?;
        let local = (destination, header.destination).into();
        Some(Self { packet, ends: Ends { local, remote: (source, header.source).into() }, header })
    }
}

/// What is different in a copy of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) sequence: Option<u32>,
    pub(crate) acknowledgment: Option<u32>,
    /// As it stands in the header.
    pub(crate) window: Option<u16>,
    /// It has no FIN.
    pub(crate) hides_end: bool,
}

impl Segment<'_> {
    /// A copy of the packet that is different. Its checksum is wrong then. None if nothing is.
    pub(crate) fn altered(&self, change: &Change) -> Option<Vec<u8>> {
        if *change == Change::default() {
            return None;
        }
        let (mut packet, begin) = (self.packet.to_vec(), header_len(self.packet));
        let header = packet.get_mut(begin..)?.first_chunk_mut::<20>()?;
        if let Some(sequence) = change.sequence {
            header[4..8].copy_from_slice(&sequence.to_be_bytes());
        }
        if let Some(acknowledgment) = change.acknowledgment {
            header[8..12].copy_from_slice(&acknowledgment.to_be_bytes());
        }
        if let Some(window) = change.window {
            header[14..16].copy_from_slice(&window.to_be_bytes());
        }
        if change.hides_end {
            header[13] &= !FIN;
        }
        Some(packet)
    }
}

/// A packet without data as the other side would send it: flag, sequence number, acknowledgment, and window as it stands in
/// the header.
pub(crate) fn bare(
    ends: &Ends,
    (control, sequence, acknowledgment, window): (TcpControl, u32, u32, u16),
) -> Vec<u8> {
    let theirs = Ends { local: ends.remote, remote: ends.local };
    let reply = Reply::Acknowledgment { sequence, acknowledgment, window };
    let (ip, mut tcp) = reply.headers(&theirs);
    tcp.control = control;
    let mut packet = vec![0; ip.buffer_len()];
    emit(&ip, &tcp, &mut packet);
    packet
}

/// A segment without data that this side sends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// The connection does not exist.
    Reset { sequence: u32, acknowledgment: Option<u32> },
    /// `window` as it stands in the header.
    Acknowledgment { sequence: u32, acknowledgment: u32, window: u16 },
}

impl Reply {
    /// What a segment to nobody is answered with (RFC 9293, Section 3.10.7.1). None for one that is a reset itself.
    pub(crate) fn to_nobody(header: &Header) -> Option<Self> {
        match header {
            header if header.is_rst() => None,
            header if header.is_ack() => {
                Some(Self::Reset { sequence: header.acknowledgment, acknowledgment: None })
            }
            header => Some(Self::Reset { sequence: 0, acknowledgment: Some(header.end()) }),
        }
    }

    /// The headers of IP and TCP.
    pub(crate) fn headers(self, ends: &Ends) -> (IpRepr, TcpRepr<'static>) {
        let (control, sequence, acknowledgment, window) = match self {
            Self::Reset { sequence, acknowledgment } => {
                (TcpControl::Rst, sequence, acknowledgment, 0)
            }
            Self::Acknowledgment { sequence, acknowledgment, window } => {
                (TcpControl::None, sequence, Some(acknowledgment), window)
            }
        };
        let number = |number: u32| TcpSeqNumber(number.cast_signed());
        let tcp = TcpRepr {
            src_port: ends.local.port(),
            dst_port: ends.remote.port(),
            control,
            seq_number: number(sequence),
            ack_number: acknowledgment.map(number),
            window_len: window,
            window_scale: None,
            max_seg_size: None,
            sack_permitted: false,
            sack_ranges: [None; 3],
            timestamp: None,
            payload: &[],
        };
        let (source, destination) = (ends.local.ip().into(), ends.remote.ip().into());
        let ip = IpRepr::new(source, destination, IpProtocol::Tcp, tcp.buffer_len(), 64);
        (ip, tcp)
    }
}

/// Writes a packet of both headers.
pub(crate) fn emit(ip: &IpRepr, tcp: &TcpRepr<'_>, packet: &mut [u8]) {
    let checksums = ChecksumCapabilities::default();
    ip.emit(&mut *packet, &checksums);
    let mut segment = TcpPacket::new_unchecked(&mut packet[ip.header_len()..]);
    tcp.emit(&mut segment, &ip.src_addr(), &ip.dst_addr(), &checksums);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(local: &str, remote: &str) -> Ends {
        Ends { local: local.parse().unwrap(), remote: remote.parse().unwrap() }
    }

    fn frame(reply: Reply, ends: &Ends) -> Vec<u8> {
        let (ip, tcp) = reply.headers(ends);
        let mut frame = vec![0; 14 + ip.buffer_len()];
        let kind: u16 = if ends.local.is_ipv4() { 0x800 } else { 0x86dd };
        frame[12..14].copy_from_slice(&kind.to_be_bytes());
        emit(&ip, &tcp, &mut frame[14..]);
        frame
    }

    /// RFC 7323, Section 2.2; RFC 9293, Section 3.1.
    #[test]
    fn the_scale_of_windows_is_found_among_options() {
        let scale = |options: &[u8]| {
            let mut segment = [0; 32];
            segment[12] = 8 << 4;
            segment[20..20 + options.len()].copy_from_slice(options);
            window_scale(&segment)
        };
        assert_eq!(scale(&[2, 4, 5, 180, 1, 3, 3, 7]), Some(7));
        for without in
            [&[][..], &[0, 3, 3, 7], &[4, 0, 3], &[2, 200, 3, 3, 7], &[1; 12], &[9, 11, 3, 3, 7]]
        {
            assert_eq!(scale(without), None, "{without:?}");
        }
        assert_eq!(window_scale(&[0xff; 20]), None);
    }

    #[test]
    fn what_is_written_is_what_the_switch_lets_pass_and_what_is_read() {
        for ends in [
            ends("192.0.2.1:80", "198.51.100.7:1024"),
            ends("[2001:db8::1]:80", "[2001:db8::2]:65535"),
        ] {
            let reply =
                Reply::Acknowledgment { sequence: 0xffff_ffff, acknowledgment: 7, window: 0 };
            let mut frame = frame(reply, &ends);
            let (source, destination) = quicket_packets::tuples(&frame).unwrap();
            assert_eq!((source.address, source.port), (ends.local.ip(), ends.local.port()));
            assert_eq!(
                (destination.address, destination.port),
                (ends.remote.ip(), ends.remote.port())
            );
            // What pads it does not count as data.
            frame.resize(100, 0);
            let segment = Segment::read(&frame).unwrap();
            let read = Ends { local: segment.ends.remote, remote: segment.ends.local };
            assert_eq!((read, segment.header.end()), (ends, 0xffff_ffff));
            assert!(segment.header.is_ack() && !segment.header.is_rst());
            for len in 0..frame.len().min(54) {
                assert!(Segment::read(&frame[..len]).is_none(), "{len}");
            }
        }
    }

    /// RFC 9293, Section 3.10.7.1.
    #[test]
    fn segments_to_nobody_are_answered_with_a_reset() {
        let header = |flags| Header {
            source: 1,
            destination: 2,
            sequence: 100,
            acknowledgment: 7,
            window: 0,
            flags,
            data: 10,
        };
        let reset = |sequence, acknowledgment| Some(Reply::Reset { sequence, acknowledgment });
        assert_eq!(Reply::to_nobody(&header(SYN)), reset(0, Some(111)));
        assert_eq!(Reply::to_nobody(&header(0)), reset(0, Some(110)));
        assert_eq!(Reply::to_nobody(&header(SYN | ACK)), reset(7, None));
        assert_eq!(Reply::to_nobody(&header(RST)), None);
        assert_eq!(Reply::to_nobody(&header(RST | ACK)), None);
    }
}
