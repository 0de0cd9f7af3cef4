//! The extended program with its table. Ordinary users hear that they may not load it.

use std::collections::HashMap;
use std::io;
use std::net::UdpSocket;

use quicket_bpf::{LoadError, OwnerProgram, OwnerTable, attach_reuseport};
use quicket_steering::{Codec, Owner, OwnerBits, Place, ServerId};

use super::{Group, Rng, WORKERS, codec, packet};

/// A table, if this process may have one.
fn table<'a>(codecs: impl IntoIterator<Item = &'a Codec>) -> Option<OwnerTable> {
    match OwnerTable::new(codecs) {
        Ok(table) => Some(table),
        Err(error) if !nix::unistd::geteuid().is_root() => {
            assert!(error.to_string().contains("CAP_BPF"), "{error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn mint(rng: &mut Rng, codec: &Codec, owner: Owner) -> Vec<u8> {
    let mut server_id = vec![0; codec.format().server_id_len()];
    rng.fill(&mut server_id);
    let place = Place { server_id: ServerId::new(&server_id).unwrap(), owner: Some(owner) };
    codec.mint(&place, &mut |out| rng.fill(out)).unwrap().as_slice().to_vec()
}

/// Two generations: the first four sockets are the old one's, the next four the new one's.
fn two_generations(ip: &str) -> Option<(Group, OwnerTable, [Codec; 2])> {
    let codecs = [
        codec(1, (2, 14), OwnerBits::ONE_OCTET, true),
        codec(6, (3, 13), OwnerBits::ONE_OCTET, false),
    ];
    let mut group = Group::new(ip);
    (0..WORKERS).for_each(|_| group.join());
    let table = table(&codecs)?;
    for (at, socket) in (0..).zip(&group.sockets) {
        let owner = Owner { generation: (at / WORKERS) as u8 + 9, worker: at % WORKERS };
        table.place(owner, socket).unwrap();
    }
    Some((group, table, codecs))
}

fn both_generations_get_what_is_theirs(ip: &str) {
    let Some((group, table, codecs)) = two_generations(ip) else { return };
    table.set_newest(10, WORKERS).unwrap();
    table.attach(&group.sockets[3]).unwrap();
    let mut rng = Rng(11);
    let newest = usize::from(WORKERS)..2 * usize::from(WORKERS);
    let by_address = group.send(b"a first datagram");
    assert!(newest.contains(&by_address));
    for _ in 0..400 {
        let codec = &codecs[rng.below(2) as usize];
        let owner = Owner {
            generation: 8 + rng.below(4) as u8,
            worker: rng.below(u64::from(WORKERS) + 1) as u16,
        };
        let expected = match owner {
            Owner { generation: generation @ (9 | 10), worker } if worker < WORKERS => {
                usize::from(generation - 9) * usize::from(WORKERS) + usize::from(worker)
            }
            _ => by_address,
        };
        let id = mint(&mut rng, codec, owner);
        let long = rng.below(2) == 0;
        let packet = packet(&mut rng, &id, long);
        assert_eq!(group.send(&packet), expected, "{owner} {packet:02x?}");
    }
    // What is too short, of another length, or follows no configuration.
    for len in 0..=21 {
        let mut octets = vec![0; len];
        rng.fill(&mut octets);
        octets.iter_mut().skip(1).take(1).for_each(|octet| *octet = 0x40);
        let at = group.send(&octets);
        assert!(newest.contains(&at), "{octets:02x?}");
        let packet = packet(&mut rng, octets.get(..len.min(17)).unwrap(), true);
        assert!(newest.contains(&group.send(&packet)), "{packet:02x?}");
    }
}

#[test]
fn both_generations_get_what_is_theirs_over_ipv4() {
    both_generations_get_what_is_theirs("127.0.0.1");
}

#[test]
fn both_generations_get_what_is_theirs_over_ipv6() {
    both_generations_get_what_is_theirs("[::1]");
}

#[test]
fn first_datagrams_go_to_the_newest_generation_and_spread_there() {
    let Some((mut group, table, _)) = two_generations("127.0.0.1") else { return };
    table.attach(&group.sockets[0]).unwrap();
    for (generation, sockets) in [(9, 0..4), (10, 4..8), (9, 0..4)] {
        table.set_newest(generation, WORKERS).unwrap();
        let mut counts = HashMap::new();
        for _ in 0..200 {
            group.client = UdpSocket::bind("127.0.0.1:0").unwrap();
            let at = group.send(b"from yet another port");
            assert!(sockets.contains(&at), "{at} is not of generation {generation}");
            *counts.entry(at).or_insert(0) += 1;
        }
        assert!(counts.len() == 4 && counts.values().all(|count| *count > 20), "{counts:?}");
    }
}

/// Places are keys, not indices: they do not shift when a socket closes. What went to it goes to
/// the newest generation.
#[test]
fn a_closed_socket_disturbs_no_other() {
    let Some((mut group, table, codecs)) = two_generations("127.0.0.1") else { return };
    table.set_newest(10, WORKERS).unwrap();
    table.attach(&group.sockets[0]).unwrap();
    let mut rng = Rng(5);
    drop(group.sockets.remove(1));
    for worker in 0..WORKERS {
        let id = mint(&mut rng, &codecs[0], Owner { generation: 9, worker });
        let at = group.send(&packet(&mut rng, &id, false));
        match worker {
            0 => assert_eq!(at, 0),
            1 => assert!((3..7).contains(&at), "{at}"),
            _ => assert_eq!(at, usize::from(worker) - 1),
        }
    }
    let missing = table.remove(Owner { generation: 9, worker: 1 }).unwrap_err();
    assert_eq!(missing.kind(), io::ErrorKind::NotFound, "{missing}");
    table.remove(Owner { generation: 9, worker: 2 }).unwrap();
    let id = mint(&mut rng, &codecs[0], Owner { generation: 9, worker: 2 });
    assert!((3..7).contains(&group.send(&packet(&mut rng, &id, false))));
}

#[test]
fn what_does_not_fit_is_refused() {
    let codec_of = |bits| codec(0, (1, 15), bits, false);
    let small = codec_of(OwnerBits::ONE_OCTET);
    let other = codec(1, (1, 15), OwnerBits::new(2, 6).unwrap(), false);
    let error = OwnerTable::new([&small, &other]).unwrap_err();
    assert!(matches!(error, LoadError::Program(_)), "{error}");
    assert!(error.to_string().contains("configuration 1"), "{error}");
    let Some(table) = table([&small]) else { return };
    let unbound = UdpSocket::bind("127.0.0.1:0").unwrap();
    let owner = Owner { generation: 0, worker: 0 };
    assert_eq!(table.place(owner, &unbound).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    let group = Group::new("127.0.0.1");
    let nobody = Owner { generation: 16, worker: 0 };
    let error = table.place(nobody, &group.sockets[0]).unwrap_err();
    assert!(error.to_string().contains("does not fit"), "{error}");
    assert_eq!(table.set_newest(0, 0).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    assert_eq!(table.set_newest(0, 17).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    assert_eq!(table.attach(&unbound).unwrap_err().kind(), io::ErrorKind::InvalidInput);
}

/// A program of one kind takes the place of the other without a datagram being lost.
#[test]
fn programs_replace_each_other() {
    let Some((group, table, codecs)) = two_generations("127.0.0.1") else { return };
    table.set_newest(10, WORKERS).unwrap();
    let classic = OwnerProgram::new(&codecs, 10, WORKERS).unwrap();
    let mut rng = Rng(3);
    for _ in 0..20 {
        // The classic one counts sockets: worker 1 is the second of the group.
        attach_reuseport(&group.sockets[0], &classic).unwrap();
        let id = mint(&mut rng, &codecs[1], Owner { generation: 10, worker: 1 });
        assert_eq!(group.send(&packet(&mut rng, &id, false)), 1);
        table.attach(&group.sockets[7]).unwrap();
        assert_eq!(group.send(&packet(&mut rng, &id, false)), 5);
    }
}
