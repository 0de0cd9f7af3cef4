//! A client whose network goes, comes, and becomes another: RFC 9000, Section 9.2.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use quicket_engine::time::Time;
use quicket_engine::{Event, MigrationError};
use quicket_sim::app::Workload;
use quicket_sim::sim::{CLIENT_2, Pair, PairOptions};

use quicket_wire::{Header, PacketKind};

use crate::support::{CLEAN, RTT, establish, ms, ok, pair, secs, time_of};

/// Where clients move to.
fn elsewhere() -> SocketAddr {
    SocketAddr::new(CLIENT_2, 50_000)
}

/// A download under way, by a client with a second address.
fn download(migration: bool) -> Pair {
    let mut options = PairOptions::new(CLEAN);
    options.second_path = Some(options.scenario.clone());
    options.server.migration = migration;
    let mut pair = pair(options);
    pair.connect(Workload::download(3_000_000));
    establish(&mut pair);
    ok(pair.sim.run_for(ms(300)));
    pair
}

/// From now on nothing comes from the client's first address, and nothing arrives there. What the server has sent to the
/// other one, and when first, is in what this returns.
fn cut_off(pair: &mut Pair) -> Arc<Mutex<Option<Time>>> {
    let gone = pair.at_client().connection.local().unwrap();
    let heard = Arc::new(Mutex::new(None));
    let first = Arc::clone(&heard);
    pair.sim.network_mut().set_tap(move |now, datagram| {
        if datagram.dst == elsewhere() && datagram.payload.len() > 1_000 {
            first.lock().unwrap().get_or_insert(now);
        }
        datagram.src != gone && datagram.dst != gone
    });
    heard
}

fn path_changes(pair: &mut Pair) -> u64 {
    pair.at_server().connection.stats().counters.path_changes
}

/// The server has the client's first packet from the other address after half a round trip, and goes on at once.
#[test]
fn a_download_goes_on_within_a_round_trip_after_the_address_is_gone() {
    let mut pair = download(true);
    let heard = cut_off(&mut pair);
    let now = pair.now();
    let before = pair.at_client().connection.remote_cid_numbers().active;
    pair.at_client().connection.move_at_once(now, elsewhere()).unwrap();
    ok(pair.run(secs(60)));
    let heard = heard.lock().unwrap().unwrap();
    assert!(heard <= now + RTT, "{:?}", heard.since(now));
    assert_eq!(path_changes(&mut pair), 1);
    assert_eq!(pair.at_server().connection.remote(), elsewhere());
    // RFC 9000, Section 9.5.
    assert_ne!(pair.at_client().connection.remote_cid_numbers().active, before);
    ok(pair.close());
}

/// RFC 9000, Section 18.2: what the server sees is what a NAT does that has forgotten the client.
#[test]
fn where_moves_are_forbidden_the_same_connection_id_comes_from_the_other_address() {
    let mut pair = download(false);
    let heard = cut_off(&mut pair);
    let now = pair.now();
    let refused = pair.at_client().connection.migrate(now, elsewhere());
    assert_eq!(refused, Err(MigrationError::DisabledByPeer));
    let before = pair.at_client().connection.remote_cid_numbers().active;
    pair.at_client().connection.move_at_once(now, elsewhere()).unwrap();
    ok(pair.run(secs(60)));
    assert!(heard.lock().unwrap().is_some());
    assert_eq!(pair.at_client().connection.remote_cid_numbers().active, before);
    ok(pair.close());
}

/// The address was not gone after all, and the other one leads nowhere.
#[test]
fn a_move_at_once_to_where_nothing_answers_is_undone() {
    let mut options = PairOptions::new(CLEAN);
    options.second_path = Some("delay=50ms loss=100%".parse().unwrap());
    let mut pair = pair(options);
    pair.connect(Workload { response_len: (1_000, 1_000), ..Workload::requests(100, 1) });
    establish(&mut pair);
    let (now, first) = (pair.now(), pair.at_client().connection.local());
    pair.at_client().connection.move_at_once(now, elsewhere()).unwrap();
    assert!(pair.at_client().connection.is_validating());
    ok(pair.run(secs(60)));
    assert_eq!(pair.at_client().connection.local(), first);
    let moves = |event: &Event| matches!(event, Event::PathChanged { .. });
    let moves = pair.at_client().events.iter().filter(|(_, event)| moves(event)).count();
    assert_eq!(moves, 2, "there and back");
    ok(pair.close());
}

/// RFC 9002, Section 6.2.1: the timeout has doubled again and again meanwhile.
#[test]
fn an_upload_goes_on_as_soon_as_the_network_is_back() {
    for tells in [true, false] {
        let mut pair = pair(PairOptions::new(CLEAN));
        pair.connect(Workload::upload(3_000_000));
        establish(&mut pair);
        ok(pair.sim.run_for(ms(300)));
        let back = pair.now() + secs(6);
        let sent = Arc::new(Mutex::new(None));
        let first = Arc::clone(&sent);
        pair.sim.network_mut().set_tap(move |now, datagram| {
            if now >= back && datagram.dst.port() == 443 {
                first.lock().unwrap().get_or_insert(now);
            }
            now >= back
        });
        ok(pair.sim.run_for(secs(6)));
        if tells {
            pair.at_client().connection.on_network_returned(back);
        }
        ok(pair.run(secs(60)));
        let waited = sent.lock().unwrap().unwrap().since(back);
        assert_eq!(waited < ms(50), tells, "{waited:?}");
        ok(pair.close());
    }
}

/// A download that begins, by a client whose first address goes after so long. What is under way arrives.
fn handshake_cut_off(after: u64) -> Pair {
    let mut options = PairOptions::new(CLEAN);
    options.second_path = Some(options.scenario.clone());
    let mut pair = pair(options);
    pair.connect(Workload::download(300_000));
    ok(pair.sim.run_for(ms(after)));
    cut_off(&mut pair);
    let now = pair.now();
    pair.at_client().connection.rebind(now, elsewhere());
    pair
}

/// The client has completed its handshake, and the server too: but the client has not heard that (HANDSHAKE_DONE).
#[test]
fn a_client_whose_address_goes_before_the_handshake_is_confirmed_goes_on_from_another() {
    let mut pair = handshake_cut_off(160);
    assert!(!pair.at_client().connection.is_confirmed());
    assert!(pair.at_server().connection.is_confirmed());
    ok(pair.run(secs(60)));
    assert_eq!(path_changes(&mut pair), 1);
    assert_eq!(pair.at_server().connection.remote(), elsewhere());
    ok(pair.close());
}

/// The server has answered, and waits for the rest of the handshake, which comes from the other address.
#[test]
fn a_server_completes_its_handshake_by_what_comes_from_elsewhere() {
    let mut pair = handshake_cut_off(99);
    assert!(
        pair.at_client().connection.is_handshaking() || !pair.at_client().connection.is_confirmed()
    );
    ok(pair.run(secs(60)));
    assert_eq!(path_changes(&mut pair), 1);
    assert_eq!(pair.at_server().connection.remote(), elsewhere());
    ok(pair.close());
}

/// A download whose client's Handshake packets reach the server from another address: copies that somebody has sent on, faster
/// than the client's own. Where `whole`, other packets in the same datagrams do, too.
fn handshake_forwarded(whole: bool) -> Pair {
    let mut options = PairOptions::new(CLEAN);
    options.second_path = Some(options.scenario.clone());
    let mut pair = pair(options);
    pair.sim.network_mut().set_tap(move |_, datagram| {
        if datagram.dst.port() == 443
            && let Some(end) = end_of_handshake(&datagram.payload)
        {
            datagram.src = elsewhere();
            datagram.payload.truncate(if whole { usize::MAX } else { end });
        }
        // Who sends them on answers nothing.
        datagram.dst != elsewhere()
    });
    pair.connect(Workload::download(3_000_000));
    pair
}

/// Where the Handshake packets of a client's datagram end, if it has some.
fn end_of_handshake(datagram: &[u8]) -> Option<usize> {
    let (mut end, mut found) = (0, false);
    while let Ok(header) = Header::parse(&datagram[end..], 8).as_ref()
        && header.is_long()
    {
        found |= header.kind == PacketKind::Handshake;
        end += header.end;
    }
    found.then_some(end)
}

/// RFC 9000, Section 8.1: who has Handshake keys has read what was sent to the client's address. That address is
/// validated, from wherever the packet came, and the server is limited no more.
#[test]
fn a_handshake_that_others_complete_validates_the_address_of_the_client() {
    for whole in [false, true] {
        let mut pair = handshake_forwarded(whole);
        ok(pair.run(secs(5)));
        let client = pair.sim.host(pair.client).address();
        assert_eq!(pair.at_server().connection.remote(), client);
        assert!(pair.at_server().connection.stats().path.mtu > 1_400, "the MTU was searched for");
        ok(pair.close());
    }
}

/// The server has heard nothing from the first address.
#[test]
fn a_client_whose_address_goes_before_the_server_has_heard_of_it_connects_from_another() {
    let mut options = PairOptions::new(CLEAN);
    options.second_path = Some(options.scenario.clone());
    let mut pair = pair(options);
    pair.sim
        .network_mut()
        .set_tap(|_, datagram| datagram.src.ip() == CLIENT_2 || datagram.dst.ip() == CLIENT_2);
    pair.connect(Workload::download(300_000));
    ok(pair.sim.run_for(secs(2)));
    let now = pair.now();
    pair.at_client().connection.rebind(now, elsewhere());
    establish(&mut pair);
    assert!(pair.now() <= now + RTT + RTT, "{:?}", pair.now().since(now));
    ok(pair.run(secs(60)));
    assert_eq!(path_changes(&mut pair), 0);
    ok(pair.close());
}

/// Nothing moves before the handshake is confirmed (RFC 9000, Section 9), nor on servers.
#[test]
fn who_cannot_move_says_so() {
    let mut pair = pair(PairOptions::new(CLEAN));
    pair.connect(Workload::requests(1, 1));
    let now = pair.now();
    let early = pair.at_client().connection.move_at_once(now, elsewhere());
    assert_eq!(early, Err(MigrationError::HandshakeNotConfirmed));
    establish(&mut pair);
    let now = pair.now();
    let server = pair.at_server().connection.move_at_once(now, elsewhere());
    assert_eq!(server, Err(MigrationError::NotClient));
    let established = |event: &Event| *event == Event::HandshakeConfirmed;
    assert!(time_of(&pair.at_client().events, established).is_some());
    ok(pair.run(secs(10)));
    ok(pair.close());
}
