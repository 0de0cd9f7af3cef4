//! A yardstick: what it costs to encapsulate and send on in the kernel, without a look at anything.
//!
//! The program puts the same headers in front of a packet as that of the balancer would, for one
//! server, a way and a flow that are constants in it. It checks nothing that the kernel does not
//! make it check, and leaves the packet as it came.

use std::io;
use std::net::Ipv4Addr;

use quicket_bpf::XdpProgram;
use quicket_bpf::extended::{Assembler, Condition, Helper, Instruction, Operation, Register, Size};
use quicket_gue::Sum;

use Register::{R0, R1, R2, R6, R7, R8, R9};

/// Fields of `struct xdp_md` (linux/bpf.h).
const DATA: i16 = 0;
const DATA_END: i16 = 4;
/// Where the header of IP is in a frame.
const IP: i16 = 14;
/// IPv4, UDP and GUE.
const OUTER: i16 = 20 + 8 + 4;
/// Answers of programs (`enum xdp_action`).
const DROP: u32 = 1;
const PASS: u32 = 2;
/// The port of GUE (draft-ietf-intarea-gue-09, Section 5.5).
const PORT: u16 = 6080;

/// Where all packets go.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way {
    /// The device that they leave by.
    pub(super) device: u32,
    /// The neighbour's address of Ethernet, and the device's own.
    pub(super) ethernet: [[u8; 6]; 2],
    /// The server, and this host.
    pub(super) ip: [Ipv4Addr; 2],
}

/// Loads the program.
pub(super) fn load(way: &Way) -> io::Result<XdpProgram> {
    let too_long = || io::Error::other("a label of the program is not placed");
    XdpProgram::load(&write(way).ok_or_else(too_long)?)
}

fn write(way: &Way) -> Option<Vec<Instruction>> {
    let mut program = Assembler::default();
    let (pass, lost) = (program.label(), program.label());
    program.double_with(Operation::Move, R6, R1);
    program.double(Operation::Move, R2, (-OUTER).into());
    program.call(Helper::XdpAdjustHead);
    program.jump_if(R0, Condition::NotEqual, 0, pass);
    program.load(Size::Word, R7, R6, DATA);
    program.load(Size::Word, R8, R6, DATA_END);
    // The verifier has to see that there is room: for all headers, and that of IP inside.
    program.double_with(Operation::Move, R2, R7);
    program.double(Operation::Add, R2, (IP + OUTER + 20).into());
    program.jump_if_with(R2, Condition::Greater, R8, lost);
    // How long the packet is inside.
    program.load(Size::Half, R9, R7, IP + OUTER + 2);
    program.half_from_big_endian(R9);
    write_ethernet_and_ip(&mut program, way);
    write_shim(&mut program);
    program.word(Operation::Move, R1, way.device);
    program.double(Operation::Move, R2, 0);
    program.call(Helper::Redirect);
    program.exit();
    for (label, answer) in [(pass, PASS), (lost, DROP)] {
        program.place(label);
        program.word(Operation::Move, R0, answer);
        program.exit();
    }
    program.finish()
}

/// Writes constants, four octets at a time and then two.
fn write_octets(program: &mut Assembler, at: i16, octets: &[u8]) {
    let (words, rest) = octets.as_chunks::<4>();
    for (at, word) in (at..).step_by(4).zip(words) {
        program.store_value(Size::Word, R7, at, i32::from_ne_bytes(*word));
    }
    if let [a, b] = rest {
        let at = at + (4 * words.len()) as i16;
        program.store_value(Size::Half, R7, at, u16::from_ne_bytes([*a, *b]).into());
    }
}

fn write_ethernet_and_ip(program: &mut Assembler, way: &Way) {
    let [to, from] = way.ip.map(|ip| ip.octets());
    // The length and the checksum come later. Not to be fragmented, 64 hops, UDP.
    let ip = [&[0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0], &from[..], &to].concat();
    // In any byte order (RFC 1071, Section 2 (B)).
    let sum = !Sum::new().bytes(&ip).checksum();
    write_octets(program, 0, &[&way.ethernet.concat()[..], &[8, 0], &ip].concat());
    write_len(program, IP + 2, OUTER);
    program.double(Operation::Add, R1, u16::from_ne_bytes(sum.to_be_bytes()).into());
    for _ in 0..2 {
        program.double_with(Operation::Move, R2, R1);
        program.double(Operation::ShiftRight, R2, 16);
        program.double(Operation::And, R1, 0xffff);
        program.double_with(Operation::Add, R1, R2);
    }
    program.double(Operation::Xor, R1, 0xffff);
    program.store(Size::Half, R7, IP + 10, R1);
}

/// Writes the length of the packet and so many octets more; leaves what was written in R1.
fn write_len(program: &mut Assembler, at: i16, more: i16) {
    program.double_with(Operation::Move, R1, R9);
    program.double(Operation::Add, R1, more.into());
    program.half_from_big_endian(R1);
    program.store(Size::Half, R7, at, R1);
}

/// UDP without a checksum and GUE, version 0, with IPv4 inside.
fn write_shim(program: &mut Assembler) {
    let [high, low] = PORT.to_be_bytes();
    write_octets(program, IP + 20, &[0xc0, 0, high, low, 0, 0, 0, 0, 0, 4, 0, 0]);
    write_len(program, IP + 20 + 4, 8 + 4);
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use quicket_bpf::Verdict;
    use quicket_gue::{Packet, decode};

    use super::*;
    use crate::netns;

    #[test]
    fn a_packet_comes_out_as_it_was_behind_whole_headers() {
        let way = Way {
            device: 1,
            ethernet: [[2, 0, 0, 0, 0, 7], [2, 0, 0, 0, 0, 1]],
            ip: [Ipv4Addr::new(10, 0, 0, 7), Ipv4Addr::new(10, 0, 0, 1)],
        };
        let program = match load(&way) {
            Err(error) if error.raw_os_error() == Some(nix::libc::EPERM) => {
                return netns::leave_out(&format!("XDP needs CAP_BPF: {error}"));
            }
            program => program.unwrap(),
        };
        for len in [0_u16, 1, 500, 1400] {
            let total = (28 + len).to_be_bytes();
            let mut packet = vec![0x45, 0xb9, total[0], total[1], 1, 2, 0, 0, 9, 17, 0, 0];
            packet.extend([198, 51, 100, 7, 192, 0, 2, 1, 0xc0, 1, 1, 0xbb]);
            packet.resize(28 + usize::from(len), 0xa5);
            let frame = [&[9; 12][..], &[8, 0], &packet].concat();
            let run = program.run(&frame, 1).unwrap();
            assert_eq!(run.verdict, Verdict::Redirect);
            let (ethernet, ip) = run.packet.split_at(14);
            assert_eq!(ethernet, [&way.ethernet.concat()[..], &[8, 0]].concat());
            let outer = Packet::parse(ip).unwrap();
            assert!(Sum::new().bytes(&ip[..20]).is_intact());
            assert_eq!(outer.bytes.len(), ip.len(), "the length is that of all");
            assert_eq!([outer.destination, outer.source], way.ip.map(IpAddr::from));
            assert_eq!(outer.ports(), Some((0xc000, PORT)));
            let udp = outer.payload();
            assert_eq!(u16::from_be_bytes([udp[4], udp[5]]), 8 + 4 + 28 + len);
            assert_eq!(decode(&udp[8..]).unwrap().payload, packet);
        }
        // Nothing is made of what is no packet of IP.
        assert_eq!(program.run(&[0; 20], 1).unwrap().verdict, Verdict::Drop);
    }
}
