//! The program on devices, and the parser: the same frames, and whether both understand them alike.

use std::collections::HashSet;
use std::os::fd::AsFd;
use std::sync::Arc;

use quicket_bpf::{TupleKey, TupleProgram, Tuples, Verdict};
use quicket_packets::{Reason, Tuple, tuples, tuples_of_device};
use rustix::net::{AddressFamily, SocketType};

use crate::frames::{TCP, UDP, random};
use quicket_testing::Rng;

fn tuple(address: &str, protocol: u8, port: u16) -> Tuple {
    Tuple { address: address.parse().unwrap(), protocol, port }
}

fn key(tuple: &Tuple) -> TupleKey {
    TupleKey::new(tuple.address, tuple.protocol, tuple.port)
}

/// The VLAN that is served, and this host's address of Ethernet there. Without a tag it is all zeros.
const SERVED: u16 = 5;
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];

/// What must become of a frame for a device whose address is all zeros, that of loopback or another one; none where either will do.
fn expected(frame: &[u8], registered: &HashSet<Tuple>, is_of_loopback: bool) -> Option<Verdict> {
    let ends = match tuples_of_device(frame) {
        Ok((Some(number), ..)) if number != SERVED || frame[..6] != MAC => {
            return Some(Verdict::Pass);
        }
        Ok((None, ..)) if frame[..6] != [0; 6] => return Some(Verdict::Pass),
        Ok((_, _, destination)) => destination,
        // The switch looks at checksums, and so does the system.
        Err(Reason::Checksum) => return None,
        Err(_) => return Some(Verdict::Pass),
    };
    let ip = (12..).step_by(4).find(|at| ![0x81, 0x88].contains(&frame[*at])).unwrap() + 2;
    let has_options = ends.address.is_ipv4() && frame[ip] != 0x45;
    let is_icmp = matches!(ends.protocol, 1 | 58);
    let may_come = is_of_loopback || !ends.address.is_loopback();
    let is_handed = registered.contains(&ends) && may_come && !has_options && !is_icmp;
    Some(if is_handed { Verdict::Redirect } else { Verdict::Pass })
}

#[test]
fn the_program_understands_frames_as_the_parser_does() {
    if !crate::is_permitted() {
        return;
    }
    let registered: HashSet<Tuple> = ["192.0.2.1", "2001:db8::1", "127.0.0.1", "::1"]
        .into_iter()
        .flat_map(|address| {
            let portless = [47, 50, 1, 58, 59].map(|protocol| tuple(address, protocol, 0));
            [UDP, TCP].map(|protocol| tuple(address, protocol, 53)).into_iter().chain(portless)
        })
        .collect();
    let table = Arc::new(Tuples::new(64).unwrap());
    registered.iter().for_each(|tuple| table.add(&key(tuple)).unwrap());
    let [program, of_loopback] =
        [TupleProgram::new([0; 6], &table), TupleProgram::of_loopback(&table)].map(Result::unwrap);
    let family = AddressFamily::from_raw(libc::AF_XDP as u16);
    let socket = rustix::net::socket(family, SocketType::RAW, None).unwrap();
    let mut rng = Rng::new(1);
    for (program, is_of_loopback) in [(&program, false), (&of_loopback, true)] {
        program.set_socket(0, socket.as_fd()).unwrap();
        program.set_vlan(SERVED, Some(MAC)).unwrap();
        let (mut handed, mut refused, mut within, mut of_vlan) = (0, 0, 0, 0);
        for n in 0..200_000 {
            let mut frame = random(&mut rng);
            // Few have the other VLAN's address, or that without a tag, where it does not belong.
            let is_tagged = frame[12..14] == [0x81, 0] && frame.get(15) == Some(&(SERVED as u8));
            if is_tagged != (rng.index(32) == 0) {
                frame[..6].copy_from_slice(&MAC);
            }
            let run = program.program().run(&frame, 1).unwrap();
            assert_eq!(run.packet, frame, "it was changed");
            let Some(expected) = expected(&frame, &registered, is_of_loopback) else { continue };
            let ends = tuples_of_device(&frame);
            assert_eq!(run.verdict, expected, "frame {n}, {ends:?}: {frame:02x?}");
            handed += u32::from(expected == Verdict::Redirect);
            refused += u32::from(expected == Verdict::Pass);
            of_vlan += u32::from(
                expected == Verdict::Redirect && ends.is_ok_and(|(number, ..)| number.is_some()),
            );
            within += u32::from(
                ends.is_ok_and(|(_, _, to)| to.address.is_loopback() && registered.contains(&to)),
            );
        }
        assert!(
            handed > 20_000 && refused > 50_000 && within > 5_000 && of_vlan > 200,
            "{handed} of 200,000 are handed over, {of_vlan} of them with a VLAN, {refused} not, {within} are for this host \
             alone"
        );
    }
    drop(of_loopback);
    // A tuple that has gone is the system's again, and so is all of a queue without a socket.
    program.set_vlan(SERVED, None).unwrap();
    let frame = std::iter::repeat_with(|| random(&mut rng))
        .find(|frame| expected(frame, &registered, false) == Some(Verdict::Redirect))
        .unwrap();
    let (_, destination) = tuples(&frame).unwrap();
    table.remove(&key(&destination)).unwrap();
    assert_eq!(program.program().run(&frame, 1).unwrap().verdict, Verdict::Pass);
    table.add(&key(&destination)).unwrap();
    assert_eq!(program.program().run(&frame, 1).unwrap().verdict, Verdict::Redirect);
    drop(socket);
    // A process that another test is just starting may have it open for a moment.
    crate::wire::until("a socket that is closed still gets frames", || {
        program.program().run(&frame, 1).unwrap().verdict == Verdict::Pass
    });
    // A frame to another machine.
    let mut other = frame;
    other[5] = 1;
    assert_eq!(program.program().run(&other, 1).unwrap().verdict, Verdict::Pass);
}

#[test]
fn a_vlan_is_served_from_one_moment_to_another_and_no_other_one_is() {
    if !crate::is_permitted() {
        return;
    }
    let table = Arc::new(Tuples::new(4).unwrap());
    table.add(&key(&tuple("192.0.2.1", UDP, 53))).unwrap();
    let mut program = TupleProgram::new([0; 6], &table).unwrap();
    let family = AddressFamily::from_raw(libc::AF_XDP as u16);
    let socket = rustix::net::socket(family, SocketType::RAW, None).unwrap();
    program.set_socket(0, socket.as_fd()).unwrap();
    let mut slot = vec![0; 128];
    let [from, to] = ["192.0.2.9:9", "192.0.2.1:53"].map(|text| text.parse().unwrap());
    let len = quicket_packets::compose::udp(&mut slot, from, to, &[7; 18]).unwrap();
    let tagged = |mac: [u8; 6], tags: &[[u8; 4]]| {
        let mut frame = slot[..len].to_vec();
        frame[..6].copy_from_slice(&mac);
        tags.iter().rev().for_each(|tag| drop(frame.splice(12..12, *tag)));
        frame
    };
    let verdict = |program: &TupleProgram, frame: &[u8]| {
        let run = program.program().run(frame, 1).unwrap();
        assert_eq!(run.packet, frame, "it was changed");
        run.verdict
    };
    let wanted = tagged(MAC, &[[0x81, 0, 0xa0, SERVED as u8]]);
    assert_eq!(verdict(&program, &wanted), Verdict::Pass);
    program.set_vlan(SERVED, Some(MAC)).unwrap();
    assert_eq!(verdict(&program, &wanted), Verdict::Redirect);
    // Other numbers, tags of providers, more tags; another address of Ethernet, and that of the VLAN without its tag.
    let others = [
        tagged(MAC, &[[0x81, 0, 0, 6]]),
        tagged(MAC, &[[0x81, 0, 1, SERVED as u8]]),
        tagged(MAC, &[[0x88, 0xa8, 0, SERVED as u8]]),
        tagged(MAC, &[[0x81, 0, 0, 0], [0x81, 0, 0, SERVED as u8]]),
        tagged(MAC, &[[0x81, 0, 0, SERVED as u8], [0x81, 0, 0, 0]]),
        tagged(MAC, &[[0x81, 0, 0, SERVED as u8], [0x81, 0, 0, SERVED as u8]]),
        tagged([0; 6], &[[0x81, 0, 0, SERVED as u8]]),
        tagged(MAC, &[]),
        tagged(MAC, &[[0x81, 0, 0, 0]]),
    ];
    for other in &others {
        assert_eq!(verdict(&program, other), Verdict::Pass, "{other:x?}");
    }
    assert_eq!(verdict(&program, &tagged([0; 6], &[])), Verdict::Redirect);
    // A program that is made anew has the VLANs that there were.
    program.readdress([0, 0, 0, 0, 0, 1]).unwrap();
    assert_eq!(verdict(&program, &wanted), Verdict::Redirect);
    assert_eq!(verdict(&program, &tagged([0; 6], &[])), Verdict::Pass);
    program.set_vlan(SERVED, None).unwrap();
    assert_eq!(verdict(&program, &wanted), Verdict::Pass);
    assert!(program.set_vlan(4096, Some(MAC)).is_err());
}

/// A loose bound, as others use this machine: what grew with the number of tuples would take a thousand times as long.
#[test]
fn a_frame_costs_the_same_with_one_tuple_and_with_many() {
    if !crate::is_permitted() {
        return;
    }
    const MANY: u32 = 100_000;
    let mut slot = vec![0; 128];
    let [from, to] = ["192.0.2.9:9", "192.0.2.1:53"].map(|text| text.parse().unwrap());
    let len = quicket_packets::compose::udp(&mut slot, from, to, &[7; 18]).unwrap();
    let table = Arc::new(Tuples::new(MANY + 1).unwrap());
    let program = TupleProgram::new([0; 6], &table).unwrap();
    let family = AddressFamily::from_raw(libc::AF_XDP as u16);
    let socket = rustix::net::socket(family, SocketType::RAW, None).unwrap();
    program.set_socket(0, socket.as_fd()).unwrap();
    let fewest = || {
        let runs = (0..9).map(|_| program.program().run(&slot[..len], 20_000).unwrap().nanoseconds);
        runs.min().unwrap()
    };
    let wanted = key(&tuple("192.0.2.1", UDP, 53));
    let mut measured = Vec::new();
    for others in [0, MANY] {
        for n in 0..others {
            let address = std::net::Ipv4Addr::from_bits(0x0a00_0000 + n / 1000);
            table.add(&TupleKey::new(address.into(), UDP, (n % 1000) as u16)).unwrap();
        }
        let _ = table.remove(&wanted);
        let to_system = fewest();
        table.add(&wanted).unwrap();
        measured.push([to_system, fewest()]);
    }
    let [one, many] = measured[..] else { unreachable!() };
    for (one, many) in one.into_iter().zip(many) {
        assert!(many < 5 * one + 200, "{one} ns with one tuple, {many} with {MANY}");
    }
}
