//! The instructions that hand a frame to a socket by its destination: see `tuples`.
//!
//! They read a frame as the parser of the switch for packets does (`packets/src/frame.rs`), but for checksums, which the
//! switch checks, and options of IPv4. Offsets are from the header of Ethernet on, without tags; numbers are left
//! in network byte order where that does no harm.

use std::os::fd::BorrowedFd;

use crate::extended::{Assembler, Condition, Helper, Instruction, Operation, Register, Size};
use crate::labels::Label;
use crate::tuples::{KEY, VLAN_ENTRY};
use crate::xdp::{PASS, network};

use Register::{R0, R1, R2, R3, R6, R7, R8, R9, R10};

/// The maps that a program reads.
pub(crate) struct Maps<'a> {
    pub(crate) tuples: BorrowedFd<'a>,
    pub(crate) sockets: BorrowedFd<'a>,
    pub(crate) vlans: BorrowedFd<'a>,
}

/// Fields of `struct xdp_md` (linux/bpf.h).
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const QUEUE: i16 = 16;

/// The stack: a key, and the queue.
const ADDRESS: i16 = -24;
const PORT: i16 = ADDRESS + 16;
const PROTOCOL: i16 = ADDRESS + 18;
const NUMBER: i16 = ADDRESS - 8;
/// The number of a VLAN, where the key is written later.
const VLAN_NUMBER: i16 = ADDRESS;

/// Where the header of IP is.
const IP: i16 = 14;
/// The shortest frame, up to which a packet is padded.
const MIN_FRAME: i32 = 60;
/// Tags without a VLAN that are stepped over: as in the parser.
const MAX_TAGS: usize = 2;
/// Extension headers that are stepped over: as there.
const MAX_EXTENSIONS: usize = 8;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const VLAN: u16 = 0x8100;
const SERVICE_VLAN: u16 = 0x88a8;
/// The number of a VLAN in its tag (IEEE 802.1Q, Section 9.6): beside it is the priority.
const NUMBER_BITS: u16 = 0xfff;

const ICMP: i32 = 1;
const TCP: i32 = 6;
const UDP: i32 = 17;
const ICMPV6: i32 = 58;
const HOP_BY_HOP: i32 = 0;
const ROUTING: i32 = 43;
const FRAGMENT: i32 = 44;
const DESTINATION: i32 = 60;

/// Writes the program. R7 is where the header of Ethernet would be without tags, R8 the end of the frame, R9 where
/// the next header is, and R6 how many octets of the packet there are from there on.
pub(crate) fn write(
    mac: [u8; 6],
    is_of_loopback: bool,
    maps: &Maps<'_>,
) -> Option<Vec<Instruction>> {
    let mut program = Assembler::default();
    let [pass, v4, v6, transport, tagged] = std::array::from_fn(|_| program.label());
    program.load(Size::Word, R7, R1, DATA);
    program.load(Size::Word, R8, R1, DATA_END);
    program.load(Size::Word, R2, R1, QUEUE);
    program.store(Size::Double, R10, NUMBER, R2);
    write_room(&mut program, R7, IP, pass);
    write_ethernet(&mut program, mac, [v4, v6], tagged, pass);
    program.place(tagged);
    write_vlan(&mut program, maps, [v4, v6], pass);
    program.place(v4);
    if !is_of_loopback {
        write_not_loopback_v4(&mut program, pass);
    }
    write_v4(&mut program, pass);
    program.jump(transport);
    program.place(v6);
    if !is_of_loopback {
        write_not_loopback_v6(&mut program, pass);
    }
    write_v6(&mut program, transport, pass);
    program.place(transport);
    write_transport(&mut program, pass);
    program.load_map(R1, maps.tuples);
    program.double_with(Operation::Move, R2, R10);
    program.double(Operation::Add, R2, ADDRESS.into());
    program.call(Helper::MapLookup);
    program.jump_if(R0, Condition::Equal, 0, pass);
    // To the system, where that queue has no socket.
    program.load_map(R1, maps.sockets);
    program.load(Size::Double, R2, R10, NUMBER);
    program.word(Operation::Move, R3, PASS);
    program.call(Helper::RedirectMap);
    program.exit();
    program.place(pass);
    program.word(Operation::Move, R0, PASS);
    program.exit();
    program.finish()
}

/// Goes on at `pass` unless the frame has `len` octets from `from` on.
fn write_room(program: &mut Assembler, from: Register, len: i16, pass: Label) {
    program.double_with(Operation::Move, R2, from);
    program.double(Operation::Add, R2, len.into());
    program.jump_if_with(R2, Condition::Greater, R8, pass);
}

/// Leaves alone what is for other machines, and steps over priority tags. Goes on at `vlan` with what may be of one: what has a
/// tag with a number before all else, and what is for another address of Ethernet, as a VLAN may have its own.
fn write_ethernet(
    program: &mut Assembler,
    mac: [u8; 6],
    families: [Label; 2],
    vlan: Label,
    pass: Label,
) {
    let [a, b, c, d, e, f] = mac;
    program.load(Size::Word, R1, R7, 0);
    program.jump_if_word(R1, Condition::NotEqual, u32::from_ne_bytes([a, b, c, d]), vlan);
    program.load(Size::Half, R1, R7, 4);
    program.jump_if(R1, Condition::NotEqual, u16::from_ne_bytes([e, f]).into(), vlan);
    for tags in 0..=MAX_TAGS {
        program.load(Size::Half, R1, R7, 12);
        for (kind, family) in [IPV4, IPV6].into_iter().zip(families) {
            program.jump_if(R1, Condition::Equal, network(kind), family);
        }
        if tags < MAX_TAGS {
            let tagged = program.label();
            program.jump_if(R1, Condition::Equal, network(VLAN), tagged);
            program.jump_if(R1, Condition::NotEqual, network(SERVICE_VLAN), pass);
            program.place(tagged);
            write_room(program, R7, IP + 4, pass);
            program.load(Size::Half, R1, R7, IP);
            let numbered = if tags == 0 { vlan } else { pass };
            program.jump_if(R1, Condition::AnyOf, network(NUMBER_BITS), numbered);
            program.double(Operation::Add, R7, 4);
        }
    }
    program.jump(pass);
}

/// Steps over the tag of a VLAN that is served, in a frame for its address of Ethernet, right before the packet; leaves all else
/// alone.
fn write_vlan(program: &mut Assembler, maps: &Maps<'_>, families: [Label; 2], pass: Label) {
    const { assert!(VLAN_ENTRY == 8) };
    program.load(Size::Half, R1, R7, 12);
    program.jump_if(R1, Condition::NotEqual, network(VLAN), pass);
    write_room(program, R7, IP + 4, pass);
    program.load(Size::Half, R1, R7, IP);
    program.half_from_big_endian(R1);
    program.double(Operation::And, R1, NUMBER_BITS.into());
    program.store(Size::Word, R10, VLAN_NUMBER, R1);
    program.load_map(R1, maps.vlans);
    program.double_with(Operation::Move, R2, R10);
    program.double(Operation::Add, R2, VLAN_NUMBER.into());
    program.call(Helper::MapLookup);
    program.jump_if(R0, Condition::Equal, 0, pass);
    program.load(Size::Octet, R1, R0, 6);
    program.jump_if(R1, Condition::Equal, 0, pass);
    for (size, at) in [(Size::Word, 0), (Size::Half, 4)] {
        program.load(size, R1, R0, at);
        program.load(size, R2, R7, at);
        program.jump_if_with(R1, Condition::NotEqual, R2, pass);
    }
    program.double(Operation::Add, R7, 4);
    program.load(Size::Half, R1, R7, 12);
    for (kind, family) in [IPV4, IPV6].into_iter().zip(families) {
        program.jump_if(R1, Condition::Equal, network(kind), family);
    }
    program.jump(pass);
}

/// Loads a length from the header of IP into R6.
fn write_len(program: &mut Assembler, at: i16) {
    program.load(Size::Half, R6, R7, at);
    program.half_from_big_endian(R6);
    // Kernels such as 6.1 take what has been turned round for any number, which they do not let be added to where the packet is.
    program.double(Operation::And, R6, 0xffff);
}

/// Leaves alone a packet of R6 octets that is cut off, or has something behind it that does not pad it.
fn write_end(program: &mut Assembler, pass: Label) {
    let whole = program.label();
    program.double_with(Operation::Move, R1, R7);
    program.double(Operation::Add, R1, IP.into());
    program.double_with(Operation::Add, R1, R6);
    program.jump_if_with(R1, Condition::Greater, R8, pass);
    program.double(Operation::Add, R1, 1);
    program.jump_if_with(R1, Condition::Greater, R8, whole);
    // Tags do not count: they may have come after what pads it.
    program.double_with(Operation::Move, R1, R7);
    program.double(Operation::Add, R1, MIN_FRAME);
    program.jump_if_with(R1, Condition::Less, R8, pass);
    program.place(whole);
}

/// Copies the address at `at` to `to` of the key.
fn write_address(program: &mut Assembler, at: i16, to: i16, words: i16) {
    for word in 0..words {
        program.load(Size::Word, R1, R7, IP + at + 4 * word);
        program.store(Size::Word, R10, ADDRESS + to + 4 * word, R1);
    }
}

/// Leaves alone what goes to 127.0.0.0/8: the system drops it (RFC 1122, Section 3.2.1.3).
fn write_not_loopback_v4(program: &mut Assembler, pass: Label) {
    write_room(program, R7, IP + 20, pass);
    program.load(Size::Octet, R1, R7, IP + 16);
    program.jump_if(R1, Condition::Equal, 127, pass);
}

/// Leaves alone what goes to `::1`: the system drops it (RFC 4291, Section 2.5.3).
fn write_not_loopback_v6(program: &mut Assembler, pass: Label) {
    write_room(program, R7, IP + 40, pass);
    write_not(program, 24, &[0, 0, 0, 1], pass);
}

fn write_v4(program: &mut Assembler, pass: Label) {
    write_room(program, R7, IP + 20, pass);
    // No options.
    program.load(Size::Octet, R1, R7, IP);
    program.jump_if(R1, Condition::NotEqual, 0x45, pass);
    // No fragment: neither more to come nor an offset.
    program.load(Size::Half, R1, R7, IP + 6);
    program.jump_if(R1, Condition::AnyOf, network(0x3fff), pass);
    write_len(program, IP + 2);
    program.jump_if(R6, Condition::Less, 20, pass);
    write_end(program, pass);
    program.double(Operation::Subtract, R6, 20);
    program.store_value(Size::Double, R10, ADDRESS, 0);
    let mapped = i32::from_ne_bytes([0, 0, 0xff, 0xff]);
    program.store_value(Size::Word, R10, ADDRESS + 8, mapped);
    write_address(program, 16, 12, 1);
    program.double_with(Operation::Move, R9, R7);
    program.double(Operation::Add, R9, (IP + 20).into());
    program.load(Size::Octet, R3, R7, IP + 9);
}

/// Steps over extension headers (RFC 8200, Section 4.1) as the parser does; leaves the protocol in R3.
fn write_v6(program: &mut Assembler, transport: Label, pass: Label) {
    write_room(program, R7, IP + 40, pass);
    program.load(Size::Octet, R1, R7, IP);
    program.double(Operation::And, R1, 0xf0);
    program.jump_if(R1, Condition::NotEqual, 0x60, pass);
    for address in [8, 24] {
        write_not_mapped(program, address, pass);
    }
    write_address(program, 24, 0, 4);
    write_len(program, IP + 4);
    program.double(Operation::Add, R6, 40);
    write_end(program, pass);
    program.double(Operation::Subtract, R6, 40);
    program.double_with(Operation::Move, R9, R7);
    program.double(Operation::Add, R9, (IP + 40).into());
    program.load(Size::Octet, R3, R7, IP + 6);
    for at in 0..=MAX_EXTENSIONS {
        let extension = program.label();
        program.jump_if(R3, Condition::Equal, FRAGMENT, pass);
        program.jump_if(R3, Condition::Equal, ROUTING, pass);
        program.jump_if(R3, Condition::Equal, HOP_BY_HOP, if at == 0 { extension } else { pass });
        program.jump_if(R3, Condition::NotEqual, DESTINATION, transport);
        program.place(extension);
        if at == MAX_EXTENSIONS {
            program.jump(pass);
            return;
        }
        write_room(program, R9, 2, pass);
        program.load(Size::Octet, R3, R9, 0);
        program.load(Size::Octet, R1, R9, 1);
        program.double(Operation::Add, R1, 1);
        program.double(Operation::ShiftLeft, R1, 3);
        program.jump_if_with(R1, Condition::Greater, R6, pass);
        program.double_with(Operation::Subtract, R6, R1);
        program.double_with(Operation::Add, R9, R1);
    }
}

/// Leaves alone an address of IPv4 in the form of IPv6: it would be that of IPv4 in the table.
fn write_not_mapped(program: &mut Assembler, at: i16, pass: Label) {
    write_not(program, at, &[0, 0, 0xffff], pass);
}

/// Leaves alone a packet whose address at `at` begins with these words.
fn write_not(program: &mut Assembler, at: i16, words: &[u32], pass: Label) {
    let other = program.label();
    for (word, value) in words.iter().enumerate() {
        program.load(Size::Word, R1, R7, IP + at + 4 * word as i16);
        let value = u32::from_ne_bytes(value.to_be_bytes());
        program.jump_if_word(R1, Condition::NotEqual, value, other);
    }
    program.jump(pass);
    program.place(other);
}

/// Completes the key by the protocol in R3 and the port of the header at R9.
fn write_transport(program: &mut Assembler, pass: Label) {
    const { assert!(KEY == 20) };
    let [udp, tcp, done] = std::array::from_fn(|_| program.label());
    program.store_value(Size::Half, R10, PORT, 0);
    program.store(Size::Half, R10, PROTOCOL, R3);
    if cfg!(target_endian = "big") {
        program.store(Size::Octet, R10, PROTOCOL, R3);
        program.store_value(Size::Octet, R10, PROTOCOL + 1, 0);
    }
    program.jump_if(R3, Condition::Equal, UDP, udp);
    program.jump_if(R3, Condition::Equal, TCP, tcp);
    // The system's, whoever has a socket for it.
    program.jump_if(R3, Condition::Equal, ICMP, pass);
    program.jump_if(R3, Condition::Equal, ICMPV6, pass);
    program.jump(done);
    program.place(udp);
    write_room(program, R9, 8, pass);
    program.load(Size::Half, R1, R9, 4);
    program.half_from_big_endian(R1);
    program.jump_if(R1, Condition::Less, 8, pass);
    program.jump_if_with(R1, Condition::NotEqual, R6, pass);
    program.load(Size::Half, R1, R9, 2);
    program.store(Size::Half, R10, PORT, R1);
    program.jump(done);
    program.place(tcp);
    write_room(program, R9, 20, pass);
    program.jump_if(R6, Condition::Less, 20, pass);
    program.load(Size::Octet, R1, R9, 12);
    program.double(Operation::ShiftRight, R1, 4);
    program.double(Operation::ShiftLeft, R1, 2);
    program.jump_if(R1, Condition::Less, 20, pass);
    program.jump_if_with(R1, Condition::Greater, R6, pass);
    program.load(Size::Half, R1, R9, 2);
    program.store(Size::Half, R10, PORT, R1);
    program.place(done);
}
