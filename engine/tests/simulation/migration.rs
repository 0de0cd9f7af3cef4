//! Rebinding and migration: RFC 9000, Section 9.

use std::collections::BTreeMap;
use std::net::{SocketAddr, SocketAddrV6};
use std::sync::{Arc, Mutex};

use quicket_engine::Event;
use quicket_engine::time::Time;
use quicket_sim::app::Workload;
use quicket_sim::sim::{CLIENT_2, SERVER, SERVER_2};
use quicket_sim::sim::{Pair, PairOptions};

use crate::support::{CLEAN, P2P, establish, ms, ok, pair, secs, time_of};

fn moved(pair: &mut Pair) -> bool {
    let events = &pair.at_server().events;
    time_of(events, |event| matches!(event, Event::PathChanged { .. })).is_some()
}

fn two_paths(scenario: &str) -> PairOptions {
    let mut options = PairOptions::new(scenario);
    options.second_path = Some(options.scenario.clone());
    options
}

/// RFC 9000, Section 9.3.3: a NAT gives the client another port or address.
#[test]
fn rebinding_does_not_interrupt_a_transfer() {
    for rebind in ["port", "address"] {
        for direction in [Workload::download(3_000_000), Workload::upload(3_000_000)] {
            let text = format!("{P2P}; every 700ms rebind={rebind}");
            let mut pair = pair(PairOptions::new(&text));
            pair.connect(direction);
            ok(pair.run(secs(60)));
            assert!(moved(&mut pair), "{rebind}");
            assert!(pair.sim.network().nat_stats(pair.path).rebindings >= 3);
            ok(pair.close());
        }
    }
}

/// RFC 9000, Section 8.2.1: the MTU that was found stays, for a port alone has changed, but the
/// challenge must arrive wherever 1200 bytes do.
#[test]
fn the_challenge_after_a_rebinding_is_small_whatever_the_mtu() {
    let scenario = "delay=10ms rate=20mbit queue=100 mtu=65535; every 1500ms rebind=port";
    let mut pair = pair(PairOptions::new(scenario));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    pair.sim.network_mut().set_tap(move |_, datagram| {
        if datagram.src.port() == 443 {
            log.lock().unwrap().push((datagram.dst, datagram.payload.len()));
        }
        true
    });
    // Both send much, so that neither data nor the anti-amplification limit is what keeps the
    // challenge short.
    let work = Workload {
        request_len: (2_000_000, 2_000_000),
        response_len: (2_000_000, 2_000_000),
        ..Workload::requests(12, 4)
    };
    pair.connect(work);
    ok(pair.run(secs(60)));
    let seen = seen.lock().unwrap();
    let mut first = BTreeMap::new();
    for (to, len) in seen.iter() {
        first.entry(to).or_insert(*len);
    }
    assert!(first.len() >= 3, "{first:?}");
    assert!(seen.iter().any(|(_, len)| *len > 60_000), "a large MTU was found");
    assert!(first.values().all(|len| *len <= 1_200), "what comes first: {first:?}");
}

#[test]
fn rebinding_survives_loss_and_reordering() {
    for rebind in ["port", "address"] {
        let text = format!("{P2P}; loss=3% reorder=5%,20ms; every 600ms rebind={rebind}");
        // A client that only listens must say something now and then: when the packet is lost
        // that shows its new address, the server cannot know where it is.
        let options = PairOptions::new(&text).client_transport(|t| t.keep_alive = secs(5).into());
        let mut pair = pair(options);
        pair.connect(Workload { response_len: (0, 60_000), ..Workload::requests(60, 3) });
        ok(pair.run(secs(120)));
        ok(pair.close());
    }
}

#[test]
fn rebinding_during_the_handshake_is_survived_or_ends_it() {
    for at in [1, 30, 60, 101, 140] {
        let text = format!("delay=50ms; at {at}ms rebind=port");
        let mut pair = pair(PairOptions::new(&text));
        pair.connect(Workload::requests(3, 3));
        // RFC 9000, Section 9: an endpoint must not migrate before the handshake is confirmed;
        // what the server sends to the old binding is lost.
        let _ = pair.run(secs(30));
        ok(pair.close());
    }
}

/// RFC 9002, Section 6.2.4: a client waits for the confirmation and sends but Handshake packets
/// again, for which the server has no keys any more: only 1-RTT packets show where it is now.
#[test]
fn a_client_that_waits_for_the_confirmation_is_found_after_a_rebinding() {
    let mut pair = pair(PairOptions::new("delay=50ms; at 155ms rebind=port"));
    pair.sim.network_mut().set_tap(|now, datagram| {
        let confirms = datagram.src.port() == 443 && datagram.payload[0] & 0x80 == 0;
        !confirms || now >= Time::ZERO + ms(600)
    });
    pair.connect(Workload::requests(3, 3));
    ok(pair.run(secs(10)));
    assert!(moved(&mut pair));
    ok(pair.close());
}

/// A server has filled its window with packets for a binding that is gone, and may send but little
/// to the new one: a challenge (RFC 9000, Section 8.2.1) goes first.
#[test]
fn a_full_window_does_not_keep_a_rebound_client_from_being_challenged() {
    let options = PairOptions::new("delay=50ms; at 2s rebind=port")
        .client_transport(|t| t.keep_alive = secs(1).into());
    let mut pair = pair(options);
    pair.sim.network_mut().set_tap(|now, datagram| {
        // Nothing but keep-alive packets comes out of the client for a while.
        let hidden = now > Time::ZERO + ms(250) && datagram.dst.port() == 443;
        !hidden || now > Time::ZERO + ms(2_100)
    });
    pair.connect(Workload::download(1_000_000));
    ok(pair.run(secs(20)));
    assert!(moved(&mut pair));
    ok(pair.close());
}

/// RFC 9000, Section 9.2: the client moves to another of its addresses.
#[test]
fn clients_migrate_when_they_want_to() {
    let mut pair = pair(two_paths(CLEAN));
    pair.connect(Workload::download(3_000_000));
    establish(&mut pair);
    let now = pair.now();
    let local = SocketAddr::new(CLIENT_2, 50_000);
    pair.at_client().connection.migrate(now, local).unwrap();
    ok(pair.run(secs(60)));
    assert!(moved(&mut pair));
    assert_eq!(pair.at_server().connection.remote(), local);
    let counters = pair.at_server().connection.stats().counters;
    assert_eq!(counters.path_changes, 1, "{counters:?}");
    ok(pair.close());
}

/// RFC 9000, Section 9.5: no connection ID is used on two paths.
#[test]
fn migration_uses_another_connection_id() {
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};

    let mut pair = pair(two_paths(CLEAN));
    let used: Arc<Mutex<BTreeMap<Vec<u8>, SocketAddr>>> = Arc::default();
    let seen = used.clone();
    let shared: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    let reused = shared.clone();
    pair.sim.network_mut().set_tap(move |_, datagram| {
        let short = datagram.payload[0] & 0x80 == 0;
        if short && datagram.dst.port() == 443 {
            let cid = datagram.payload[1..9].to_vec();
            let from = *seen.lock().unwrap().entry(cid.clone()).or_insert(datagram.src);
            if from != datagram.src {
                reused.lock().unwrap().push(cid);
            }
        }
        true
    });
    pair.connect(Workload::download(1_000_000));
    establish(&mut pair);
    let now = pair.now();
    pair.at_client().connection.migrate(now, SocketAddr::new(CLIENT_2, 50_000)).unwrap();
    ok(pair.run(secs(60)));
    assert!(used.lock().unwrap().len() >= 2);
    assert!(shared.lock().unwrap().is_empty());
    ok(pair.close());
}

/// RFC 9000, Sections 5.1.2 and 9.3.3: a client with nothing to say is followed, answers the challenge
/// on the path that it left, and retires the connection ID that it used there: within round trips,
/// not when the path is forgotten. What arrives there later costs no other.
#[test]
fn a_client_that_moved_retires_its_old_connection_id_at_once() {
    let mut pair = pair(two_paths(CLEAN));
    pair.connect(Workload::requests(1, 1));
    ok(pair.run(secs(5)));
    let before = pair.at_client().connection.remote_cid_numbers();
    assert_eq!((before.first, before.active), (0, Some(0)));
    let now = pair.now();
    let (old, new) =
        (pair.at_client().connection.local().unwrap(), SocketAddr::new(CLIENT_2, 50_000));
    pair.at_client().connection.migrate(now, new).unwrap();
    ok(pair.sim.run_for(ms(600)));
    assert_eq!(pair.at_server().connection.remote(), new);
    let after = pair.at_client().connection.remote_cid_numbers();
    assert_eq!((after.first, after.active, after.last), (1, Some(1), before.last + 1));

    pair.sim.network_mut().set_tap(move |_, datagram| {
        if datagram.src.port() == 443 {
            datagram.dst = old;
        }
        true
    });
    for _ in 0..5 {
        pair.at_server().connection.ping();
        ok(pair.sim.run_for(ms(400)));
    }
    ok(pair.sim.run_for(secs(10)));
    assert_eq!(pair.at_client().connection.remote_cid_numbers(), after);
    ok(pair.close());
}

/// RFC 9000, Section 9.3.2: a path that cannot be validated is given up.
#[test]
fn migration_to_a_dead_path_is_undone() {
    let mut options = PairOptions::new(CLEAN);
    options.second_path = Some("delay=50ms loss=100%".parse().unwrap());
    let mut pair = pair(options);
    pair.connect(Workload { response_len: (1_000, 1_000), ..Workload::requests(200, 1) });
    establish(&mut pair);
    let now = pair.now();
    pair.at_client().connection.migrate(now, SocketAddr::new(CLIENT_2, 50_000)).unwrap();
    ok(pair.run(secs(120)));
    let failed = time_of(&pair.at_client().events, |e| matches!(e, Event::PathFailed { .. }));
    assert!(failed.is_some());
    ok(pair.close());
}

/// RFC 9000, Section 9.1: servers that forbid it in their parameters.
#[test]
fn migration_is_refused_where_the_server_forbids_it() {
    let mut options = two_paths(CLEAN);
    options.server.migration = false;
    let mut pair = pair(options);
    pair.connect(Workload::requests(5, 1));
    establish(&mut pair);
    let now = pair.now();
    let local = SocketAddr::new(CLIENT_2, 50_000);
    assert!(pair.at_client().connection.migrate(now, local).is_err());
    ok(pair.run(secs(30)));
    ok(pair.close());
}

/// RFC 9000, Section 9.6.
#[test]
fn clients_move_to_the_preferred_address() {
    let mut options = two_paths(CLEAN);
    let SocketAddr::V4(preferred) = SocketAddr::new(SERVER_2, 443) else { unreachable!() };
    options.server.preferred_address_v4 = Some(preferred);
    let mut pair = pair(options);
    pair.connect(Workload { response_len: (1_000, 50_000), ..Workload::requests(40, 2) });
    establish(&mut pair);
    ok(pair.run(secs(60)));
    assert_eq!(pair.at_client().connection.remote(), SocketAddr::V4(preferred));
    ok(pair.close());
}

/// RFC 9000, Section 18.2: disable_active_migration forbids neither to act on preferred_address, nor moves after that.
#[test]
fn clients_that_must_not_move_go_to_the_preferred_address_and_move_from_there() {
    let mut options = two_paths(CLEAN);
    let SocketAddr::V4(preferred) = SocketAddr::new(SERVER_2, 443) else { unreachable!() };
    options.server.preferred_address_v4 = Some(preferred);
    options.server.migration = false;
    let mut pair = pair(options);
    pair.connect(Workload { response_len: (1_000, 50_000), ..Workload::requests(200, 2) });
    establish(&mut pair);
    ok(pair.sim.run_for(secs(2)));
    assert_eq!(pair.at_client().connection.remote(), SocketAddr::V4(preferred));
    let (now, local) = (pair.now(), SocketAddr::new(CLIENT_2, 50_000));
    pair.at_client().connection.migrate(now, local).unwrap();
    ok(pair.run(secs(120)));
    assert_eq!(pair.at_server().connection.remote(), local);
    ok(pair.close());
}

/// RFC 9000, Section 5.1: who chose the empty connection ID knows its peer by the address alone.
#[test]
fn clients_of_zero_length_connection_ids_leave_preferred_addresses_alone() {
    let mut options = two_paths(CLEAN);
    let SocketAddr::V4(preferred) = SocketAddr::new(SERVER_2, 443) else { unreachable!() };
    options.server.preferred_address_v4 = Some(preferred);
    options.client_endpoint.cid_generator = Arc::new(quicket_engine::RandomConnectionIds::new(0));
    let mut pair = pair(options);
    let tried = Arc::new(Mutex::new(0));
    let count = tried.clone();
    pair.sim.network_mut().set_tap(move |_, datagram| {
        *count.lock().unwrap() += u32::from(datagram.dst.ip() == SERVER_2);
        true
    });
    pair.connect(Workload { response_len: (1_000, 50_000), ..Workload::requests(40, 2) });
    ok(pair.run(secs(60)));
    assert_eq!(*tried.lock().unwrap(), 0);
    ok(pair.close());
}

/// RFC 9000, Section 9.5: no connection ID is used towards two addresses, even if only the port
/// differs.
#[test]
fn a_preferred_port_gets_a_connection_id_of_its_own() {
    let mut options = two_paths(CLEAN);
    let SocketAddr::V4(preferred) = SocketAddr::new(SERVER, 444) else { unreachable!() };
    options.server.preferred_address_v4 = Some(preferred);
    let mut pair = pair(options);
    pair.connect(Workload { response_len: (1_000, 50_000), ..Workload::requests(40, 2) });
    ok(pair.run(secs(60)));
    let client = &pair.at_client().connection;
    assert_eq!(client.remote(), SocketAddr::V4(preferred));
    // The one of preferred_address (RFC 9000, Section 5.1.1).
    assert_eq!(client.remote_cid_numbers().active, Some(1));
    ok(pair.close());
}

/// RFC 9000, Section 9.6: a client selects one of the addresses; here, there is one in the other IP
/// family only.
#[test]
fn clients_move_to_a_preferred_address_of_the_other_family_if_they_can() {
    for (reachable, in_time) in [(true, true), (true, false), (false, false)] {
        let mut options = two_paths(CLEAN);
        let preferred: SocketAddrV6 = "[2001:db8::2]:443".parse().unwrap();
        let local: SocketAddr = "[2001:db8::1]:50000".parse().unwrap();
        options.second_addresses = [local.ip(), (*preferred.ip()).into()];
        options.server.preferred_address_v6 = Some(preferred);
        let mut pair = pair(options);
        pair.connect(Workload { response_len: (1_000, 50_000), ..Workload::requests(40, 2) });
        let now = pair.now();
        if reachable && in_time {
            pair.at_client().connection.reach_other_family(now, local);
        }
        establish(&mut pair);
        let now = pair.now();
        let wished = pair.at_client().connection.preferred_other_family();
        assert!(wished == Some(preferred.into()) || reachable && in_time, "{wished:?}");
        if reachable && !in_time {
            pair.at_client().connection.reach_other_family(now, local);
        }
        ok(pair.run(secs(60)));
        let client = pair.at_client();
        let path = (client.connection.local(), client.connection.remote());
        assert_eq!(path == (Some(local), preferred.into()), reachable, "{path:?}");
        ok(pair.close());
    }
}

#[test]
fn dead_preferred_addresses_are_not_used() {
    let mut options = PairOptions::new(CLEAN);
    options.second_path = Some("delay=50ms loss=100%".parse().unwrap());
    let SocketAddr::V4(preferred) = SocketAddr::new(SERVER_2, 443) else { unreachable!() };
    options.server.preferred_address_v4 = Some(preferred);
    let mut pair = pair(options);
    pair.connect(Workload { response_len: (1_000, 1_000), ..Workload::requests(100, 1) });
    ok(pair.run(secs(60)));
    assert_ne!(pair.at_client().connection.remote(), SocketAddr::V4(preferred));
    ok(pair.close());
}

/// RFC 9000, Section 9.3.1 and 9.3.3: an attacker forwards a packet from elsewhere.
#[test]
fn packets_forwarded_by_an_attacker_do_not_steal_the_connection() {
    let mut pair = pair(two_paths(CLEAN));
    let mut count = 0;
    pair.sim.network_mut().set_tap(move |_, datagram| {
        if datagram.dst.port() == 443 && datagram.payload[0] & 0x80 == 0 {
            count += 1;
            if count % 20 == 0 {
                datagram.src = SocketAddr::new(CLIENT_2, 6_666);
            }
        }
        true
    });
    pair.connect(Workload { response_len: (1_000, 1_000), ..Workload::requests(200, 2) });
    ok(pair.run(secs(120)));
    ok(pair.sim.run_for(ms(2_000)));
    let client = pair.sim.host(pair.client).address();
    pair.at_client().connection.ping();
    ok(pair.sim.run_for(secs(3)));
    assert_eq!(pair.at_server().connection.remote(), client);
    ok(pair.close());
}
