//! The kernel's choice among programs: a switch in a thread of the test, and programs that receive by hand.
#![cfg(target_os = "linux")]

#[path = "rig/program.rs"]
mod program;
mod rig;

use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use quicket_udp::{Arrival, Port};
use serde_json::Value;
use socket2::{Domain, SockRef, Socket, Type};

use program::{Program, client, local};
use rig::{LONG, Switch};

#[test]
fn the_kernel_brings_each_worker_what_is_its_own() {
    for address in ["127.0.0.1:0", "[::]:0", "[::1]:0"] {
        let switch = Switch::new();
        let one = switch.join(address.parse().unwrap(), 3);
        let two = switch.join(one.address, 1);
        let mut here = one.address;
        if here.ip().is_unspecified() {
            here.set_ip([127, 0, 0, 1].into());
        }
        let client =
            UdpSocket::bind(if here.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" }).unwrap();
        let [one, two] = [one, two].map(|program| Program { address: here, ..program });
        for _ in 0..3 {
            one.is_steered(&switch, &client);
            two.is_steered(&switch, &client);
        }
        let said = switch.address();
        assert_eq!(
            (&said["kernel"]["helps"], &said["kernel"]["owners"]),
            (&true.into(), &4.into())
        );
        assert_eq!(said["kernel"]["trouble"], Value::Null);
    }
}

/// Where there are several programs, a client's first packet comes to the switch, and so does one of nobody.
#[test]
fn all_else_comes_to_the_switch() {
    let switch = Switch::new();
    let program = switch.join(local(), 1);
    let other = switch.join(program.address, 1);
    program.serve("app");
    other.serve("other");
    let client = client();
    client.send_to(&program::initial(1), program.address).unwrap();
    client.send_to(&[0x40; 60], program.address).unwrap();
    switch.wait_for("it is nobody's", |address| address["dropped"]["unroutable"] == 1);
    // It may have waited for a moment, since one program was alone just before.
    switch.wait_for("it was read", |address| address["dropped"]["unreadable"] == 1);
}

/// What comes to the wrong program, such as behind others in one train, goes to the right one.
#[test]
fn what_is_anothers_goes_back_to_the_switch_and_to_its_owner() {
    let switch = Switch::new();
    let one = switch.join(local(), 1);
    let two = switch.join(one.address, 1);
    let packet = two.packet(0, false);
    let remote = "127.0.0.1:9".parse().unwrap();
    let train = Arrival { remote, stride: packet.len(), ..Arrival::default() };
    one.workers[0].inlet.hand_back(&train, &packet).unwrap();
    assert_eq!(two.workers[0].handed(), packet);
    // Its own comes back once: nobody hands that back.
    let own = one.packet(0, false);
    one.workers[0].inlet.hand_back(&Arrival { stride: own.len(), ..train }, &own).unwrap();
    assert_eq!(one.workers[0].handed(), own);
    let said = switch.address();
    assert_eq!(said["datagrams"]["handed_back"], 2);
    assert_eq!(said["datagrams"]["received"], 0);
    // Who closes its end is not asked for ever.
    let Program { member, workers, .. } = one;
    drop(workers);
    two.is_steered(&switch, &client());
    drop(member);
}

#[test]
fn a_thousand_programs_that_come_and_go_use_one_socket() {
    let switch = Switch::new();
    let stays = switch.join(local(), 1);
    let client = client();
    for turn in 0..1000 {
        let comes = switch.join(stays.address, 1);
        if turn % 100 == 0 {
            comes.is_steered(&switch, &client);
            stays.is_steered(&switch, &client);
        }
        drop(comes);
        switch
            .wait_for("it has left", |address| address["programs"].as_array().unwrap().len() == 1);
    }
    assert_eq!(switch.address()["kernel"]["sockets"], 2);
}

#[test]
fn sixty_four_programs_on_a_port_are_steered() {
    let switch = Switch::new();
    let mut programs = vec![switch.join(local(), 1)];
    for _ in 1..64 {
        programs.push(switch.join(programs[0].address, 1));
    }
    let client = client();
    programs.iter().for_each(|program| program.is_steered(&switch, &client));
    // Those that are left have their sockets still, in whatever order others go.
    let mut at = 5;
    while programs.len() > 8 {
        at = (at * 7 + 3) % programs.len();
        drop(programs.swap_remove(at));
    }
    switch.wait_for("they have left", |address| address["kernel"]["owners"] == 8);
    programs.iter().for_each(|program| program.is_steered(&switch, &client));
    assert_eq!(switch.address()["kernel"]["sockets"], 64);
}

/// A packet to a program that has gone is answered by the switch, to whichever socket it came.
#[test]
fn sockets_whose_program_has_gone_are_read() {
    let switch = Switch::new();
    let stays = switch.join(local(), 1);
    let goes = switch.join(stays.address, 2);
    let client = client();
    goes.is_steered(&switch, &client);
    // The switch has heard that it has peers.
    let packet = goes.packet(0, false);
    let remote = "127.0.0.1:9".parse().unwrap();
    let train = Arrival { remote, stride: packet.len(), ..Arrival::default() };
    goes.workers[0].inlet.hand_back(&train, &packet).unwrap();
    assert_eq!(goes.workers[0].handed(), packet);
    let packet = goes.packet(1, false);
    let Program { member, workers, .. } = goes;
    // It was not read, and its socket stays with the switch.
    client.send_to(&packet, stays.address).unwrap();
    let strayed = stays.packet(0, false);
    drop((member, workers));
    switch.wait_for("it has left", |address| address["kernel"]["owners"] == 1);
    let said = switch.wait_for("it was read", |address| address["datagrams"]["received"] == 1);
    assert_eq!(said["datagrams"]["stateless_resets"], 1, "{said}");
    client.send_to(&strayed, stays.address).unwrap();
    assert_eq!(stays.workers[0].direct(), strayed);
}

/// Connections go on while there is no switch, and the next one takes over as it is.
#[test]
fn programs_receive_without_a_switch_and_the_next_one_knows_their_sockets() {
    let switch = Switch::new();
    let one = switch.join(local(), 2);
    let goes = switch.join(one.address, 1);
    let two = switch.join(one.address, 1);
    let client = client();
    let name = switch.kill();
    // One ends without anybody's notice; nothing shifts.
    drop(goes);
    let direct = || {
        for (program, worker) in [(&one, 0), (&one, 1), (&two, 0)] {
            let packet = program.packet(worker, false);
            client.send_to(&packet, program.address).unwrap();
            assert_eq!(program.workers[usize::from(worker)].direct(), packet);
        }
    };
    direct();
    // What is handed back waits for the next one. Its owner is back by then: a datagram to somebody who
    // comes back later than the one who hands it over would be lost.
    let stray = one.packet(1, false);
    let remote = "127.0.0.1:9".parse().unwrap();
    let train = Arrival { remote, stride: stray.len(), ..Arrival::default() };
    one.workers[0].inlet.hand_back(&train, &stray).unwrap();
    let switch = Switch::named(name, false);
    direct();
    assert_eq!(one.workers[1].handed(), stray);
    let all = |address: &Value| address["kernel"]["owners"] == 3;
    let said = switch.wait_for("all are back", all);
    assert_eq!(said["kernel"]["sockets"], 4, "{said}");
    direct();
    // Who has not come back may be late.
    let three = switch.join(one.address, 1);
    three.is_steered(&switch, &client);
    one.is_steered(&switch, &client);
    assert_eq!(switch.address()["kernel"]["sockets"], 5);
}

#[test]
fn without_the_kernels_help_everything_is_forwarded() {
    let client = client();
    let name = std::env::temp_dir().join(format!("quicket-forward-test-{}", std::process::id()));
    let switch = Switch::named(name.to_str().unwrap().to_owned(), true);
    let program = switch.join(local(), 2);
    assert!(program.workers.iter().all(|worker| worker.socket.is_none()));
    program.is_forwarded(&client);
    let said = switch.address();
    assert_eq!(said["kernel"]["helps"], false);
    assert!(said["kernel"]["trouble"].as_str().unwrap().contains("forward"), "{said}");
    drop((program, switch));
    // A program that wants none, beside one that does.
    let switch = Switch::new();
    let plain = switch.join_as(local(), 1, false, || UdpSocket::bind(local()));
    let steered = switch.join(plain.address, 1);
    plain.is_forwarded(&client);
    steered.is_steered(&switch, &client);
}

/// A socket of a socket unit with ReusePort=yes, perhaps: others get a part of what comes.
#[test]
fn an_address_that_others_share_is_left_as_it_is() {
    let switch = Switch::new();
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
    socket.set_reuse_port(true).unwrap();
    socket.bind(&local().into()).unwrap();
    let socket = UdpSocket::from(socket);
    let address = socket.local_addr().unwrap();
    let program = switch.join_as(address, 1, true, || socket.try_clone());
    assert!(program.workers[0].socket.is_none());
    program.is_forwarded(&client());
    let said = switch.address();
    assert!(said["kernel"]["trouble"].as_str().unwrap().contains("shares its port"), "{said}");
}

/// Somebody else's socket among those of programs: the kernel counts it, too.
#[test]
fn a_stranger_among_the_sockets_costs_those_who_come_the_kernels_help_and_nobody_a_datagram() {
    let switch = Switch::new();
    let one = switch.join(local(), 1);
    let stranger = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
    stranger.set_reuse_port(true).unwrap();
    stranger.bind(&one.address.into()).unwrap();
    let client = client();
    let two = switch.join(one.address, 1);
    assert!(two.workers[0].socket.is_none());
    one.is_steered(&switch, &client);
    two.is_forwarded(&client);
    let said = switch.address();
    assert!(said["kernel"]["trouble"].as_str().unwrap().contains("did not come"), "{said}");
    drop(stranger);
    let three = switch.join(one.address, 1);
    three.is_steered(&switch, &client);
    one.is_steered(&switch, &client);
}

/// An address that ends leaves nothing behind at a socket that others have, such as the service manager.
#[test]
fn a_socket_that_was_handed_over_is_as_it_was_once_all_have_left() {
    let switch = Switch::new();
    let socket = UdpSocket::bind(local()).unwrap();
    let address = socket.local_addr().unwrap();
    for _ in 0..3 {
        let program = switch.join_as(address, 1, true, || socket.try_clone());
        program.is_steered(&switch, &client());
        assert!(SockRef::from(&socket).reuse_port().unwrap());
        drop(program);
        let begun = Instant::now();
        while SockRef::from(&socket).reuse_port().unwrap() {
            assert!(begun.elapsed() < LONG, "it shares its port still");
            thread::sleep(Duration::from_millis(2));
        }
    }
}
