//! The door of an address: while one program is alone there, the kernel brings it clients' first packets past the
//! switch; and what becomes of clients that are half-way through them when that changes.
#![cfg(target_os = "linux")]

#[path = "rig/program.rs"]
mod program;
mod rig;

use std::io;

use quicket_wire::ConnectionId;
use serde_json::Value;

use program::{Program, client, first_id, initial, local};
use rig::Switch;

impl Program {
    /// As an endpoint does that accepts a client.
    fn takes(&self, worker: usize, first: &ConnectionId) {
        self.member.ledger().unwrap().note(worker as u16, first);
    }

    fn has_nothing(&self) -> bool {
        let sockets = self.workers.iter().map(|worker| worker.socket.as_ref().unwrap());
        sockets.into_iter().all(|socket| {
            socket
                .recv(&mut [0; 2000])
                .is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
        })
    }
}

fn received(address: &Value) -> u64 {
    address["datagrams"]["received"].as_u64().unwrap()
}

#[test]
fn a_program_that_is_alone_gets_its_clients_past_the_switch() {
    for (address, workers) in [("127.0.0.1:0", 1), ("127.0.0.1:0", 3), ("[::1]:0", 3)] {
        let switch = Switch::new();
        let one = switch.join(address.parse().unwrap(), workers);
        assert!(!switch.is_open(), "it serves nothing yet");
        one.serve("app");
        switch.opens();
        let client = std::net::UdpSocket::bind(address).unwrap();
        let mut had = vec![0; workers];
        for number in 0..60 {
            client.send_to(&initial(number), one.address).unwrap();
            let worker = one.who_got(&initial(number));
            one.takes(worker, &first_id(number));
            had[worker] += 1;
            // All that is sent to a connection ID comes to one worker.
            let mut early = initial(number);
            early[0] = 0xd0;
            client.send_to(&early, one.address).unwrap();
            assert_eq!(one.who_got(&early), worker);
        }
        assert!(had.iter().all(|count| *count > 60 / workers / 3), "{had:?}");
        one.is_steered(&switch, &client);
        let said = switch.address();
        assert_eq!(received(&said), 0, "{said}");
        assert_eq!(said["programs"][0]["first_packets_by_kernel"], 60, "{said}");
        assert_eq!(said["programs"][0]["first_packets"], 0, "{said}");
        // Handshake packets of nobody, and versions that nobody knows, are the switch's.
        let mut other = initial(7);
        other[0] = 0xe0;
        client.send_to(&other, one.address).unwrap();
        switch.wait_for("it is nobody's", |address| address["dropped"]["unroutable"] == 1);
        let mut other = initial(7);
        other[1] = 0x1a;
        client.send_to(&other, one.address).unwrap();
        one.who_was_handed(&other);
    }
}

/// A second program comes: what the first one has, and what waits in its sockets, stays with it.
#[test]
fn who_is_half_way_when_another_program_comes_stays_where_it_is() {
    let switch = Switch::new();
    let one = switch.join(local(), 3);
    one.serve("app");
    switch.opens();
    let client = client();
    client.send_to(&initial(1), one.address).unwrap();
    let had = one.who_got(&initial(1));
    one.takes(had, &first_id(1));
    // It has not even read this one.
    client.send_to(&initial(3), one.address).unwrap();
    let two = switch.join(one.address, 1);
    assert!(switch.is_open(), "who has joined gets no clients yet");
    two.serve("other");
    assert!(!switch.is_open());
    // The switch has read it in its place, and knows whose it is.
    let unread = one.who_was_handed(&initial(3));
    assert!(one.has_nothing() && two.has_nothing());
    // More to the same connection IDs comes to the switch, and goes where the first ones are. None of it can be read.
    for (number, worker) in [(1, had), (3, unread)] {
        for _ in 0..2 {
            client.send_to(&initial(number), one.address).unwrap();
            assert_eq!(one.who_was_handed(&initial(number)), worker, "{number}");
        }
    }
    // Others are read.
    client.send_to(&initial(4), one.address).unwrap();
    let said = switch.wait_for("it was read", |address| address["dropped"]["unreadable"] == 1);
    assert_eq!((&said["datagrams"]["held"], &said["datagrams"]["by_pin"]), (&0.into(), &4.into()));
    assert!(one.has_nothing() && two.has_nothing());
}

/// A program that stands still has its clients all the same.
#[test]
fn clients_that_wait_in_the_sockets_of_a_program_that_stands_still_are_pinned_to_it() {
    let switch = Switch::new();
    let one = switch.join(local(), 2);
    one.serve("app");
    switch.opens();
    let client = client();
    for number in 0..100 {
        client.send_to(&initial(number), one.address).unwrap();
    }
    let two = switch.join(one.address, 1);
    two.serve("other");
    let said = switch.address();
    assert_eq!((received(&said), &said["datagrams"]["first_packets"]), (100, &100.into()));
    client.send_to(&initial(50), one.address).unwrap();
    switch.wait_for("it has a pin", |address| address["datagrams"]["by_pin"] == 1);
}

/// The door is the next generation's only once nobody may be half-way with the one before.
#[test]
fn a_generation_that_is_replaced_keeps_who_is_half_way() {
    let switch = Switch::new();
    let one = switch.join(local(), 1);
    one.replace("app");
    switch.opens();
    let client = client();
    client.send_to(&initial(1), one.address).unwrap();
    one.takes(one.who_got(&initial(1)), &first_id(1));
    let next = switch.join(one.address, 1);
    next.replace("app");
    client.send_to(&initial(1), one.address).unwrap();
    client.send_to(&initial(2), one.address).unwrap();
    one.who_was_handed(&initial(1));
    next.who_was_handed(&initial(2));
    assert!(!switch.is_open());
    // Now nobody is with the one before.
    let Program { member, workers, .. } = one;
    drop((member, workers));
    switch.opens();
    client.send_to(&initial(3), next.address).unwrap();
    assert_eq!(next.who_got(&initial(3)), 0);
}

#[test]
fn the_door_opens_again_for_who_is_left_and_shuts_for_who_leaves() {
    let switch = Switch::new();
    let one = switch.join(local(), 2);
    let two = switch.join(one.address, 1);
    one.serve("app");
    switch.opens();
    let client = client();
    for _ in 0..3 {
        two.serve("other");
        assert!(!switch.is_open());
        // Gets no more clients, and stays.
        two.member.cease();
        switch.opens();
        client.send_to(&initial(1), one.address).unwrap();
        one.who_got(&initial(1));
    }
    // Of a conflict nobody notices anything.
    assert_eq!(
        two.member.serve(program::serve("app")).unwrap_err().kind(),
        io::ErrorKind::AddrInUse
    );
    assert!(switch.is_open());
    client.send_to(&initial(9), one.address).unwrap();
    let Program { member, workers, address } = one;
    drop((member, workers));
    // What it has not read is the switch's to judge: nobody serves.
    switch.wait_for("it was read", |address| address["dropped"]["not_served"] == 1);
    assert!(!switch.is_open());
    two.serve("app");
    switch.opens();
    client.send_to(&initial(5), address).unwrap();
    two.who_got(&initial(5));
}

/// The kernel goes on by itself; and the next switch finds whose clients are half-way.
#[test]
fn clients_come_in_while_there_is_no_switch() {
    let switch = Switch::new();
    let one = switch.join(local(), 2);
    one.serve("app");
    switch.opens();
    let client = client();
    let name = switch.kill();
    client.send_to(&initial(1), one.address).unwrap();
    let had = one.who_got(&initial(1));
    one.takes(had, &first_id(1));
    let switch = Switch::named(name, false);
    // Those that come back have their time; until then the kernel goes on as it did.
    client.send_to(&initial(2), one.address).unwrap();
    one.who_got(&initial(2));
    switch.opens();
    let two = switch.join(one.address, 1);
    two.serve("other");
    client.send_to(&initial(1), one.address).unwrap();
    assert_eq!(one.who_was_handed(&initial(1)), had);
    let said = switch.address();
    assert_eq!(said["programs"][0]["first_packets_by_kernel"], 1, "{said}");
}

#[test]
fn without_the_kernels_help_there_is_no_door() {
    let name = std::env::temp_dir().join(format!("quicket-no-door-{}", std::process::id()));
    let switch = Switch::named(name.to_str().unwrap().to_owned(), true);
    let one = switch.join(local(), 1);
    one.serve("app");
    client().send_to(&initial(1), one.address).unwrap();
    one.who_was_handed(&initial(1));
    assert!(!switch.is_open());
    assert!(one.member.ledger().is_none(), "it would be counted twice");
    drop((one, switch));
    // A program that wants no socket of its own.
    let switch = Switch::new();
    let one = switch.join_as(local(), 1, false, || std::net::UdpSocket::bind(local()));
    one.serve("app");
    client().send_to(&initial(1), one.address).unwrap();
    one.who_was_handed(&initial(1));
    assert!(!switch.is_open());
}

/// The switch has given it nothing, and peers know its number all the same.
#[test]
fn peers_of_who_had_the_door_and_is_gone_are_reset_and_its_number_rests() {
    let switch = Switch::new();
    let one = switch.join(local(), 1);
    let two = switch.join(one.address, 1);
    one.serve("app");
    switch.opens();
    let generation = one.member.generation();
    let packet = one.packet(0, false);
    let client = client();
    client.set_read_timeout(Some(rig::LONG)).unwrap();
    let Program { member, workers, .. } = one;
    drop((member, workers));
    let said =
        switch.wait_for("it has left", |said| said["programs"].as_array().unwrap().len() == 1);
    assert_eq!(said["generations_known_dead"], 1, "{said}");
    client.send_to(&packet, two.address).unwrap();
    let mut reset = [0; 2000];
    let (len, from) = client.recv_from(&mut reset).unwrap();
    assert!(from == two.address && len < packet.len() && reset[0] & 0xc0 == 0x40, "{len} {from}");
    assert_ne!(switch.join(two.address, 1).member.generation(), generation);
}
