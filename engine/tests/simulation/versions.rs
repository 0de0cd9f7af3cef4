//! Versions: RFC 9000, Section 6; RFC 9368; RFC 9369.

use std::sync::{Arc, Mutex};

use quicket_engine::{ClientConfig, ConnectionError, Event};
use quicket_sim::app::{WorkApp, Workload};
use quicket_sim::datagram::Datagram;
use quicket_sim::sim::{Pair, PairOptions};
use quicket_wire::{EcnCodepoint, TransportErrorCode, Version};

use crate::support::{CLEAN, P2P, RTT, error_of, establish, ms, ok, pair, secs, time_of};

/// Reserved to exercise version negotiation (RFC 9000, Section 15).
const RESERVED: Version = Version(0x1a2a_3a4a);

fn versions(scenario: &str, first: Version, client: &[Version], server: &[Version]) -> PairOptions {
    let mut options = PairOptions::new(scenario);
    options.client.version = first;
    options.client.versions = client.to_vec();
    options.server_endpoint.versions = server.to_vec();
    options
}

#[test]
fn version_2_works_by_itself() {
    let mut pair = pair(versions(P2P, Version::V2, &[Version::V2], &[Version::V2]));
    pair.connect(Workload::requests(5, 5));
    establish(&mut pair);
    assert_eq!(pair.at_client().connection.version(), Version::V2);
    ok(pair.run(secs(10)));
    ok(pair.close());
}

/// RFC 9368, Section 2.3: the server moves to the client's favourite without a round trip.
#[test]
fn compatible_versions_are_negotiated_without_a_round_trip() {
    for (first, favourite) in [(Version::V1, Version::V2), (Version::V2, Version::V1)] {
        let both = [favourite, first];
        let mut pair = pair(versions(CLEAN, first, &both, &both));
        let start = pair.now();
        pair.connect(Workload::requests(5, 5));
        establish(&mut pair);
        for side in [pair.client, pair.server] {
            let version = pair.sim.host_mut(side).session().connection.version();
            assert_eq!(version, favourite);
        }
        let events = &pair.at_client().events;
        let done = time_of(events, |event| *event == Event::HandshakeComplete).unwrap();
        assert_eq!(done - start, RTT);
        ok(pair.run(secs(10)));
        ok(pair.close());
    }
}

#[test]
fn compatible_negotiation_survives_losses() {
    for way in ["up", "down"] {
        for lost in 1..=6 {
            let text = format!("delay=20ms; {way} drop={lost}");
            let both = [Version::V2, Version::V1];
            let mut pair = pair(versions(&text, Version::V1, &both, &both));
            pair.transfer(Workload::requests(3, 3), secs(9));
        }
    }
}

/// RFC 9368, Section 2.1: the client goes on with the best version that both speak. The first one
/// may be one that nobody has (RFC 9000, Section 6.3).
#[test]
fn a_client_goes_on_with_a_version_that_the_server_names() {
    let both = [Version::V2, Version::V1];
    for (first, server) in [
        (Version::V2, &[Version::V1][..]),
        (Version::V1, &[Version::V2]),
        (RESERVED, &[Version::V1]),
        (RESERVED, &both),
    ] {
        let mut pair = pair(versions(CLEAN, first, &both, server));
        let start = pair.now();
        pair.connect(Workload::requests(5, 5));
        establish(&mut pair);
        for side in [pair.client, pair.server] {
            let version = pair.sim.host_mut(side).session().connection.version();
            assert_eq!(version, server[0], "after {first}");
        }
        let events = &pair.at_client().events;
        let done = time_of(events, |event| *event == Event::HandshakeComplete).unwrap();
        assert_eq!(done - start, RTT + RTT, "one round trip more than the handshake");
        ok(pair.run(secs(10)));
        ok(pair.close());
    }
}

/// RFC 9368, Section 8: servers that know version 1 alone cannot confirm it.
#[test]
fn a_server_that_confirms_no_version_is_believed_for_version_1_alone() {
    let both = [Version::V2, Version::V1];
    for version in both {
        let mut options = versions(CLEAN, RESERVED, &both, &[version]);
        let transport = Arc::make_mut(&mut options.server.transport);
        transport.announced.version_information = Some(false);
        let mut pair = pair(options);
        pair.connect(Workload::none());
        if version == Version::V1 {
            establish(&mut pair);
            ok(pair.close());
            continue;
        }
        ok(pair.run_to_end(secs(30)));
        let error = error_of(&pair, pair.client);
        let Some(ConnectionError::Transport(error)) = error else { panic!("{error:?}") };
        assert_eq!(error.code, TransportErrorCode::VERSION_NEGOTIATION_ERROR);
    }
}

#[test]
fn going_on_with_another_version_survives_losses() {
    for way in ["up", "down"] {
        for lost in 1..=6 {
            let text = format!("delay=20ms; {way} drop={lost}");
            let both = [Version::V2, Version::V1];
            let mut pair = pair(versions(&text, RESERVED, &both, &[Version::V1]));
            pair.transfer(Workload::requests(3, 3), secs(9));
        }
    }
}

/// RFC 9000, Section 6.2: without a common version the connection ends with what the server
/// offers.
#[test]
fn incompatible_servers_say_what_they_speak() {
    let mut pair = pair(versions(CLEAN, Version::V2, &[Version::V2], &[Version::V1]));
    pair.connect(Workload::none());
    ok(pair.run_to_end(secs(10)));
    let Some(ConnectionError::VersionNegotiation { versions }) = error_of(&pair, pair.client)
    else {
        panic!("{:?}", error_of(&pair, pair.client));
    };
    assert_eq!(versions.iter().filter(|v| v.is_supported()).collect::<Vec<_>>(), [&Version::V1]);
    assert_eq!(pair.now().as_nanos(), 100_000_000, "one round trip");

    let config =
        ClientConfig { version: Version::V1, versions: vec![Version::V1], ..pair.config() };
    pair.connect_with(config, Box::new(WorkApp::new(Workload::requests(3, 3))));
    establish(&mut pair);
    assert_eq!(pair.at_client().connection.version(), Version::V1);
}

/// A Version Negotiation packet as an attacker would make it for the client's first packet.
fn forged(original: &Datagram, offered: &[Version]) -> Datagram {
    let bytes = &original.payload;
    let dcid_len = usize::from(bytes[5]);
    let dcid = &bytes[6..6 + dcid_len];
    let scid_at = 6 + dcid_len;
    let scid = &bytes[scid_at + 1..scid_at + 1 + usize::from(bytes[scid_at])];
    let mut payload = vec![0x80, 0, 0, 0, 0, scid.len() as u8];
    payload.extend_from_slice(scid);
    payload.push(dcid.len() as u8);
    payload.extend_from_slice(dcid);
    for version in offered {
        payload.extend_from_slice(&version.0.to_be_bytes());
    }
    Datagram { src: original.dst, dst: original.src, ecn: EcnCodepoint::NotEct, payload }
}

/// Connects; an attacker answers the client's first packet with a forged Version Negotiation
/// packet after `delay` milliseconds.
fn attacked(offered: &'static [Version], delay: u64) -> Pair {
    let both = [Version::V2, Version::V1];
    let mut pair = pair(versions(CLEAN, Version::V2, &both, &both));
    let first: Arc<Mutex<Option<Datagram>>> = Arc::default();
    let seen = first.clone();
    pair.sim.network_mut().set_tap(move |_, datagram| {
        seen.lock().unwrap().get_or_insert_with(|| datagram.clone());
        true
    });
    pair.connect(Workload::requests(3, 3));
    pair.sim.after(ms(delay), move |sim| {
        let datagram = first.lock().unwrap().clone().unwrap();
        let now = sim.now();
        sim.network_mut().send(now, forged(&datagram, offered));
    });
    pair
}

/// RFC 9000, Section 6.2: ignored when another packet was processed, or when it offers the
/// version in use.
#[test]
fn forged_version_negotiation_is_ignored_where_it_can_be() {
    for (offered, delay) in [(&[Version::V1][..], 150), (&[Version::V1, Version::V2], 1)] {
        let mut pair = attacked(offered, delay);
        ok(pair.run(secs(10)));
        assert_eq!(pair.at_client().connection.version(), Version::V2);
        ok(pair.close());
    }
}

/// Before anything was received the packet cannot be told from a true one, and sends the client
/// to another version, where it learns from the server that it was deceived (RFC 9368, Section 4);
/// nothing worse.
#[test]
fn forged_version_negotiation_ends_at_most_the_attempt() {
    let mut pair = attacked(&[Version::V1], 1);
    ok(pair.run_to_end(secs(30)));
    let error = error_of(&pair, pair.client);
    let Some(ConnectionError::Transport(error)) = error else { panic!("{error:?}") };
    assert_eq!(error.code, TransportErrorCode::VERSION_NEGOTIATION_ERROR);
}
