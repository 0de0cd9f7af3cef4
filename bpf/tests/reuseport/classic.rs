//! The classic program.

use std::io;
use std::net::UdpSocket;
use std::os::unix::process::CommandExt;
use std::process::Command;

use quicket_bpf::{Door, OwnerProgram, attach_reuseport, detach_reuseport};
use quicket_steering::{HashKey, Owner, OwnerBits, Place, ServerId};

use super::{Group, WORKERS, codec, packet};
use quicket_testing::Rng;

const GENERATION: u8 = 3;

/// Every kind of datagram goes where the owner in its connection ID lives.
fn the_kernel_reads_owners_as_we_do(ip: &str) {
    let mut rng = Rng::new(7);
    for (block, bits) in [
        ((1, 5), OwnerBits::ONE_OCTET),
        ((1, 15), OwnerBits::ONE_OCTET),
        ((3, 13), OwnerBits::TWO_OCTETS),
        ((2, 9), OwnerBits::new(0, 8).unwrap()),
        ((4, 14), OwnerBits::ONE_OCTET),
    ] {
        let codecs = [codec(0, block, bits, true), codec(5, block, bits, false)];
        let generation = if bits.generations() > 1 { GENERATION } else { 0 };
        let group = Group::new(ip);
        let by_address = group.send(b"x");
        let program = OwnerProgram::new(&codecs, generation, WORKERS).unwrap();
        attach_reuseport(&group.sockets[1], &program).unwrap();
        let len = codecs[0].format().id_len();
        for _ in 0..300 {
            let codec = &codecs[rng.below(2) as usize];
            let owner = Owner {
                generation: if rng.below(4) == 0 {
                    rng.below(bits.generations() as u64) as u8
                } else {
                    generation
                },
                worker: rng.below(u64::from(WORKERS) + 1) as u16,
            };
            let mut server_id = vec![0; block.0];
            rng.fill(&mut server_id);
            let place = Place { server_id: ServerId::new(&server_id).unwrap(), owner: Some(owner) };
            let id = codec.mint(&place, &mut |out| rng.fill(out)).unwrap();
            let long = rng.below(2) == 0;
            let ours = owner.generation == generation && owner.worker < WORKERS;
            let expected = if ours { usize::from(owner.worker) } else { by_address };
            let packet = packet(&mut rng, id.as_slice(), long);
            assert_eq!(group.send(&packet), expected, "{owner} {packet:02x?}");
        }
        // What nobody of ours wrote: the owner that it seems to have decides, wherever it is.
        for _ in 0..300 {
            let mut id = vec![0; len];
            rng.fill(&mut id);
            let owner = codecs.iter().find_map(|codec| codec.owner(&id));
            let expected = owner
                .filter(|owner| owner.generation == generation && owner.worker < WORKERS)
                .map_or(by_address, |owner| usize::from(owner.worker));
            let long = rng.below(2) == 0;
            let packet = packet(&mut rng, &id, long);
            assert_eq!(group.send(&packet), expected, "{packet:02x?}");
        }
        // Connection IDs of other lengths, and datagrams that end before theirs does.
        for other in (0..=20).filter(|other| *other != len) {
            let mut id = vec![0; other];
            rng.fill(&mut id);
            let packet = packet(&mut rng, &id, true);
            assert_eq!(group.send(&packet), by_address, "{packet:02x?}");
        }
        for short in 0..=len {
            let mut octets = vec![0; short];
            rng.fill(&mut octets);
            assert_eq!(group.send(&octets), by_address, "{octets:02x?}");
        }
        detach_reuseport(&group.sockets[0]).unwrap();
        let place = Place {
            server_id: ServerId::new(&vec![9; block.0]).unwrap(),
            owner: Some(Owner { generation, worker: (by_address as u16 + 1) % WORKERS }),
        };
        let id = codecs[0].mint(&place, &mut |out| rng.fill(out)).unwrap();
        assert_eq!(group.send(&packet(&mut rng, id.as_slice(), false)), by_address);
    }
}

#[test]
fn the_kernel_reads_owners_as_we_do_over_ipv4() {
    the_kernel_reads_owners_as_we_do("127.0.0.1");
}

#[test]
fn the_kernel_reads_owners_as_we_do_over_ipv6() {
    the_kernel_reads_owners_as_we_do("[::1]");
}

#[test]
fn the_longest_program_is_taken() {
    let codecs: Vec<_> =
        (0..7).map(|number| codec(number, (3, 15), OwnerBits::ONE_OCTET, false)).collect();
    let group = Group::new("127.0.0.1");
    let program = OwnerProgram::new(&codecs, 0, WORKERS).unwrap();
    attach_reuseport(&group.sockets[0], &program).unwrap();
    let mut rng = Rng::new(1);
    for (worker, codec) in (0..WORKERS).cycle().zip(&codecs) {
        let place = Place {
            server_id: ServerId::new(&[1, 2, 3]).unwrap(),
            owner: Some(Owner { generation: 0, worker }),
        };
        let id = codec.mint(&place, &mut |out| rng.fill(out)).unwrap();
        assert_eq!(group.send(&packet(&mut rng, id.as_slice(), false)), usize::from(worker));
    }
}

/// Owners of several programs, each with a socket of its own behind the first one, which gets all else.
fn the_kernel_finds_each_owner_that_is_listed(ip: &str) {
    let mut rng = Rng::new(23);
    let bits = OwnerBits::new(8, 8).unwrap();
    let codec = codec(2, (1, 10), bits, true);
    let len = codec.format().id_len();
    let mut group = Group::new(ip);
    (WORKERS..12).for_each(|_| group.join());
    for round in 0..12 {
        // Few owners and many, next to each other and apart, with indices in any order.
        let mut sockets: Vec<(Owner, u16)> = Vec::new();
        for index in 1..=(round as u16).min(11) {
            let generation = if round % 2 == 0 { 7 } else { rng.next() as u8 };
            let owner = Owner { generation, worker: rng.below(6) as u16 };
            if sockets.iter().all(|(known, _)| *known != owner) {
                sockets.push((owner, index));
            }
        }
        attach_reuseport(
            &group.sockets[0],
            &OwnerProgram::among([&codec], &sockets, None).unwrap(),
        )
        .unwrap();
        let expected = |owner: Option<Owner>| {
            let known = sockets.iter().find(|(known, _)| Some(*known) == owner);
            known.map_or(0, |(_, index)| usize::from(*index))
        };
        for turn in 0..120 {
            let near = sockets.get(rng.below(12) as usize).map(|(owner, _)| *owner);
            let mut owner = near.unwrap_or(Owner { generation: rng.next() as u8, worker: 0 });
            owner.worker += u16::from(rng.below(3) == 0);
            let place = Place { server_id: ServerId::new(&[0]).unwrap(), owner: Some(owner) };
            let mut id = codec.mint(&place, &mut |out| rng.fill(out)).unwrap().as_slice().to_vec();
            if turn % 4 == 0 {
                rng.fill(&mut id);
            }
            let long = rng.below(2) == 0;
            let owner = Some(&codec).filter(|codec| id[0] >> 5 == codec.id().number());
            let expected = expected(owner.and_then(|codec| codec.owner(&id)));
            let packet = packet(&mut rng, &id, long);
            assert_eq!(group.send(&packet), expected, "{sockets:?} {packet:02x?}");
        }
        for other in (0..=20).filter(|other| *other != len) {
            let mut id = vec![0; other];
            rng.fill(&mut id);
            assert_eq!(group.send(&packet(&mut rng, &id, true)), 0);
        }
        for short in 0..=len {
            let mut octets = vec![0; short];
            rng.fill(&mut octets);
            assert_eq!(group.send(&octets), 0, "{octets:02x?}");
        }
    }
}

#[test]
fn the_kernel_finds_each_owner_that_is_listed_over_ipv4() {
    the_kernel_finds_each_owner_that_is_listed("127.0.0.1");
}

#[test]
fn the_kernel_finds_each_owner_that_is_listed_over_ipv6() {
    the_kernel_finds_each_owner_that_is_listed("[::1]");
}

/// A packet with a long header of a type, to a connection ID.
fn long(rng: &mut Rng, version: u32, kind: u8, id: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x80 | kind << 4 | (rng.next() as u8 & 0x4f)];
    packet.extend(version.to_be_bytes());
    packet.push(id.len() as u8);
    packet.extend(id);
    packet.resize(packet.len() + 30, 9);
    packet
}

/// What begins a connection goes to the program with the door, to the worker that the keyed hash says, and nothing else
/// does: owners that are listed come first, and the rest goes to the first socket.
fn the_kernel_brings_first_packets_through_the_door(ip: &str) {
    const V1: u32 = 1;
    const V2: u32 = 0x6b33_43cf;
    let mut rng = Rng::new(31);
    let codec = codec(2, (1, 10), OwnerBits::new(8, 8).unwrap(), true);
    let mut group = Group::new(ip);
    (WORKERS..8).for_each(|_| group.join());
    let owner = Owner { generation: 9, worker: 0 };
    for workers in [1, 3] {
        let door = Door { first: 4, workers, key: HashKey::new(*b"firstkey") };
        let program = OwnerProgram::among([&codec], &[(owner, 2)], Some(&door)).unwrap();
        attach_reuseport(&group.sockets[0], &program).unwrap();
        let mut seen = [0; 8];
        for _ in 0..400 {
            let mut id = vec![0; rng.below(24) as usize];
            rng.fill(&mut id);
            // Not of this configuration: no owner is seen in it by chance.
            if let Some(octet) = id.first_mut() {
                *octet |= 0xe0;
            }
            let kind = rng.below(4) as u8;
            let version = [V1, V2, 0, 0x1a2a_3a4a][rng.below(4) as usize];
            let begins = match version {
                V1 => kind == 0 || kind == 1,
                V2 => kind == 1 || kind == 2,
                _ => false,
            };
            let fits = (8..=20).contains(&id.len());
            let expected = if begins && fits { usize::from(door.socket(&id).unwrap()) } else { 0 };
            let packet = long(&mut rng, version, kind, &id);
            let came = group.send(&packet);
            assert_eq!(came, expected, "{workers} {packet:02x?}");
            seen[came] += 1;
        }
        let theirs = &seen[4..4 + usize::from(workers)];
        assert!(theirs.iter().all(|count| *count > 10), "{seen:?}");
        // An owner that is listed has what is its own, and short headers of nobody go to the first socket.
        let place = Place { server_id: ServerId::new(&[0]).unwrap(), owner: Some(owner) };
        let id = codec.mint(&place, &mut |out| rng.fill(out)).unwrap();
        assert_eq!(group.send(&long(&mut rng, V1, 0, id.as_slice())), 2);
        assert_eq!(group.send(&[0x40; 60]), 0);
        // One that is not is a client's choice.
        let place = Place { owner: Some(Owner { generation: 8, ..owner }), ..place };
        let id = codec.mint(&place, &mut |out| rng.fill(out)).unwrap();
        let expected = usize::from(door.socket(id.as_slice()).unwrap());
        assert_eq!(group.send(&long(&mut rng, V1, 0, id.as_slice())), expected);
        // Cut off before it is known what it is.
        for len in 0..6 {
            let packet = long(&mut rng, V1, 0, &[7; 12]);
            assert_eq!(group.send(&packet[..len]), 0, "{len}");
        }
    }
    attach_reuseport(
        &group.sockets[0],
        &OwnerProgram::among([&codec], &[(owner, 2)], None).unwrap(),
    )
    .unwrap();
    assert_eq!(group.send(&long(&mut rng, V1, 0, &[7; 12])), 0, "it is shut");
}

#[test]
fn the_kernel_brings_first_packets_through_the_door_over_ipv4() {
    the_kernel_brings_first_packets_through_the_door("127.0.0.1");
}

#[test]
fn the_kernel_brings_first_packets_through_the_door_over_ipv6() {
    the_kernel_brings_first_packets_through_the_door("[::1]");
}

#[test]
fn a_socket_that_shares_no_port_is_refused() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let codec = codec(0, (1, 15), OwnerBits::ONE_OCTET, false);
    let program = OwnerProgram::new([&codec], 0, 1).unwrap();
    let error = attach_reuseport(&socket, &program).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
    let error = detach_reuseport(&socket).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
}

/// The test above in a process of an ordinary user, if this is root's.
#[test]
fn an_ordinary_user_may_attach() {
    if !nix::unistd::geteuid().is_root() {
        return the_kernel_reads_owners_as_we_do("127.0.0.1");
    }
    let output = Command::new("/proc/self/exe")
        .args(["--exact", "classic::the_kernel_reads_owners_as_we_do_over_ipv4"])
        .uid(65_534)
        .gid(65_534)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
