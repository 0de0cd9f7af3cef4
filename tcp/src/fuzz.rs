//! Bytes of strangers, for fuzzing: frames, what keeps segments from smoltcp, and whole connections. Each function panics if what it
//! finds is not as it should be.

use std::net::IpAddr;

use smoltcp::wire::{TcpControl, TcpPacket};

use crate::screen::{
    Numbers, Verdict, counts_beside_window, is_acknowledged_before, is_end_ahead, judge,
};
use crate::segment::{Change, Ends, Header, Reply, Segment};

#[cfg(test)]
#[path = "../../fuzz/replay.rs"]
mod replay;

const TCP: u8 = 6;
const ETHERNET: usize = 14;

/// Segments are read as smoltcp and the switch read them, what is answered can be read, and none that is not acceptable ends a
/// connection.
///
/// The first byte chooses whether the rest is a frame, a packet of IPv4 or IPv6 from its protocol's header on, numbers and a
/// header, or what comes to a listener.
pub fn segments(input: &[u8]) {
    let Some((choice, bytes)) = input.split_first() else { return };
    match choice % 5 {
        0 => frame(bytes),
        1 => frame(&wrap(true, bytes)),
        2 => frame(&wrap(false, bytes)),
        3 => screen(bytes),
        _ => crate::connections::fuzz::run(bytes),
    }
}

fn frame(frame: &[u8]) {
    let checked = quicket_packets::tuples(frame);
    let read = Segment::read(frame);
    if let Some(segment) = read {
        is_read_alike(frame, &segment);
        answers(&segment);
    }
    // What the switch lets through is read in the same way, but for what the stack does not answer.
    let Ok((source, destination)) = checked else { return };
    let expected = Ends {
        local: (destination.address, destination.port).into(),
        remote: (source.address, source.port).into(),
    };
    match read {
        Some(segment) => assert_eq!((segment.ends, source.protocol), (expected, TCP)),
        None if source.protocol == TCP => {
            let (is_v4, packet) = quicket_packets::packet(frame).expect("it has been accepted");
            let has_extensions = !is_v4 && packet[6] != TCP;
            let is_broadcast = source.address == IpAddr::V4(std::net::Ipv4Addr::BROADCAST);
            let is_nobodys = source.address.is_unspecified() || source.address.is_multicast();
            assert!(has_extensions || is_broadcast || is_nobodys, "it is not read");
        }
        None => {}
    }
}

/// smoltcp finds the same in the segment.
fn is_read_alike(frame: &[u8], segment: &Segment<'_>) {
    let Segment { packet, ends, header } = *segment;
    assert!(packet.len() + ETHERNET <= frame.len());
    let octets = &packet[crate::segment::header_len(packet)..];
    let theirs = TcpPacket::new_checked(octets);
    if octets[12] >> 4 >= 5 {
        let theirs = theirs.expect("it is whole");
        assert_eq!((theirs.src_port(), theirs.dst_port()), (ends.remote.port(), ends.local.port()));
        assert_eq!(theirs.seq_number().0.cast_unsigned(), header.sequence);
        assert_eq!(theirs.ack_number().0.cast_unsigned(), header.acknowledgment);
        assert_eq!((theirs.window_len(), theirs.syn()), (header.window, header.is_syn()));
        let flags = [theirs.fin(), theirs.rst(), theirs.ack()];
        assert_eq!(flags, [header.is_fin(), header.is_rst(), header.is_ack()]);
        let end = header.sequence.wrapping_add(theirs.segment_len() as u32);
        assert_eq!(header.end(), end);
    }
    assert_eq!(segment.altered(&Change::default()), None);
    let change = Change {
        sequence: Some(!header.sequence),
        acknowledgment: Some(!header.acknowledgment),
        window: Some(!header.window),
        hides_end: true,
    };
    let altered = segment.altered(&change).expect("it is different");
    assert_eq!(altered.len(), packet.len());
    let again = Header::read(&altered[crate::segment::header_len(&altered)..]).expect("as long");
    assert_eq!(
        (again.sequence, again.acknowledgment, again.window, again.is_fin()),
        (!header.sequence, !header.acknowledgment, !header.window, false)
    );
    let of = |header: Header| {
        let flags = [header.is_syn(), header.is_rst(), header.is_ack(), header.has_data()];
        (header.source, header.destination, flags)
    };
    assert_eq!(of(again), of(header));
    let len = header.end().wrapping_sub(header.sequence);
    let again = again.end().wrapping_sub(again.sequence);
    assert_eq!(again, len - u32::from(header.is_fin()));
}

/// What a segment to nobody is answered with is let through by the switch, and answered by nobody (RFC 9293, Section 3.10.7.1).
fn answers(segment: &Segment<'_>) {
    let Segment { ends, header, .. } = *segment;
    let Some(reply) = Reply::to_nobody(&header) else { return assert!(header.is_rst()) };
    let (ip, tcp) = reply.headers(&ends);
    assert_eq!(tcp.control, TcpControl::Rst);
    let mut frame = vec![0; ETHERNET + ip.buffer_len()];
    let kind: u16 = if ends.local.is_ipv4() { 0x800 } else { 0x86dd };
    frame[12..ETHERNET].copy_from_slice(&kind.to_be_bytes());
    crate::segment::emit(&ip, &tcp, &mut frame[ETHERNET..]);
    // From an address that is none, nothing leaves.
    let Ok((source, destination)) = quicket_packets::tuples(&frame) else {
        let is_mapped = |ip: IpAddr| ip.to_canonical() != ip;
        return assert!(is_mapped(ends.local.ip()) || is_mapped(ends.remote.ip()));
    };
    assert_eq!((source.address, source.port), (ends.local.ip(), ends.local.port()));
    assert_eq!((destination.address, destination.port), (ends.remote.ip(), ends.remote.port()));
    if let Some(reset) = Segment::read(&frame) {
        assert!(Reply::to_nobody(&reset.header).is_none(), "no answer to an answer");
    }
}

/// A frame with a segment whose lengths and checksums are right.
fn wrap(is_v4: bool, segment: &[u8]) -> Vec<u8> {
    use smoltcp::wire::{IpAddress, IpProtocol, IpRepr};
    let address = |last: u8| match is_v4 {
        true => IpAddress::v4(192, 0, 2, last),
        false => IpAddress::v6(0x2001, 0xdb8, 0, 0, 0, 0, 0, last.into()),
    };
    let (source, destination) = (address(2), address(1));
    let ip = IpRepr::new(source, destination, IpProtocol::Tcp, segment.len(), 64);
    let mut frame = vec![0; ETHERNET + ip.buffer_len()];
    frame[12..ETHERNET].copy_from_slice(if is_v4 { &[8, 0] } else { &[0x86, 0xdd] });
    ip.emit(&mut frame[ETHERNET..], &smoltcp::phy::ChecksumCapabilities::default());
    let at = ETHERNET + ip.header_len();
    frame[at..].copy_from_slice(segment);
    if segment.len() >= 20 {
        TcpPacket::new_unchecked(&mut frame[at..]).fill_checksum(&source, &destination);
    }
    frame
}

/// Numbers, and a header that is judged by them.
fn screen(bytes: &[u8]) {
    let Some((words, rest)) = bytes.split_first_chunk::<20>() else { return };
    let Some((said, segment)) = rest.split_first_chunk::<2>() else { return };
    let Some(header) = Header::read(segment) else { return };
    let word = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|n| words[at * 4 + n]));
    let numbers = Numbers {
        sent: word(0),
        acknowledged: word(1),
        reach: word(3) % (crate::MAX_BUFFER as u32 + 1),
        expected: word(2),
        // No buffer is longer.
        window: word(3) % (crate::MAX_BUFFER as u32 + 1),
        owes_end: word(4) & 1 != 0,
        has_heard_end: word(4) & 2 != 0,
    };
    let ahead = header.sequence.wrapping_sub(numbers.expected);
    let verdict = judge(&header, &numbers);
    match (header.is_rst(), verdict) {
        // RFC 5961, Section 3.2.
        (true, Verdict::Show) => assert_eq!(ahead, 0),
        (true, Verdict::Challenge) => assert!(ahead > 0 && ahead < numbers.window),
        (true, Verdict::Drop) => assert!(ahead > 0 && ahead >= numbers.window),
        (true, Verdict::Strip) => panic!("a reset has no data"),
        (false, Verdict::Show) => {
            let beyond = header.acknowledgment.wrapping_sub(numbers.sent).cast_signed();
            assert!(!header.is_ack() || beyond <= 0, "what was not sent is acknowledged");
            assert!(!header.is_syn(), "RFC 5961, Section 4");
            let is_new = header.end().wrapping_sub(numbers.expected).cast_signed() > 0;
            let is_taken = header.is_ack() && header.end() != header.sequence && is_new;
            let is_near = ahead < numbers.window;
            assert!(!(numbers.has_heard_end && is_taken && is_near), "behind the end");
        }
        (false, Verdict::Challenge) => assert!(header.is_ack() || header.is_syn()),
        (false, Verdict::Strip) => assert!(numbers.has_heard_end && header.is_ack()),
        // Nothing is lost with it.
        (false, Verdict::Drop) => {
            assert!(header.is_ack() && numbers.owes_end && header.end() == header.sequence);
            assert_eq!(header.acknowledgment, numbers.acknowledged);
        }
    }
    if is_acknowledged_before(&header, &numbers) {
        let behind = numbers.acknowledged.wrapping_sub(header.acknowledgment);
        assert!(header.is_ack() && !header.is_rst() && header.end() != header.sequence);
        assert!(behind > 0 && behind <= numbers.reach);
    }
    if is_end_ahead(&header, &numbers) {
        assert!(header.is_ack() && header.is_fin() && !header.is_rst());
        assert!(header.end() == header.sequence.wrapping_add(1) && ahead > 0);
    }
    let said = u16::from_be_bytes(*said);
    if counts_beside_window(&header, &numbers, said) {
        assert!(said == 0 && header.is_ack() && !header.is_rst() && !header.is_fin());
        let off = ahead.min(ahead.wrapping_neg());
        assert!(header.end() == header.sequence && off > 0 && off <= numbers.window);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_of_strangers_are_read_alike_and_harm_no_connection() {
        replay::replay("tcp", segments);
    }
}
