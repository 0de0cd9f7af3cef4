//! Floods of first packets, and what they make a server send (RFC 9000, Sections 8.1 and 14.1).

use std::collections::BTreeMap;
use std::net::SocketAddr;

use quicket_engine::time::{Duration, Time};
use quicket_engine::{
    Datagram, DropReason, EcnCodepoint, HANDSHAKES_WITHOUT_RETRY, ReplyRates, RetryPolicy, Route,
    Side, TransportError, TransportErrorCode,
};
use quicket_sim::attack::{DuelOptions, Party};
use quicket_wire::{Header, RetryPacket};

use crate::memory::growth;
use crate::support::{Flights, KIB, SERVER, START, server, stranger};

const NONE: EcnCodepoint = EcnCodepoint::NotEct;

/// Counts what goes to each address, and fails if it is more than three times what came.
#[derive(Default)]
struct Ledger(BTreeMap<SocketAddr, (usize, usize)>);

impl Ledger {
    fn receive(&mut self, server: &mut Party, n: u32, data: &mut [u8]) {
        self.0.entry(stranger(n)).or_default().0 += data.len();
        server.receive(START, stranger(n), NONE, data);
    }

    fn sent(&mut self, server: &mut Party, now: Time) -> usize {
        let sent = server.transmit(now);
        for datagram in &sent {
            let (received, sent) = self.0.entry(datagram.remote).or_default();
            *sent += datagram.data.len();
            assert!(*sent <= 3 * *received, "{sent} bytes for {received}");
        }
        sent.len()
    }
}

/// RFC 9000, Section 6.1: a server may limit what it sends in answer to versions that it does not
/// know. It goes on answering at that rate, and small ones not at all.
#[test]
fn unknown_versions_are_answered_at_a_rate() {
    let mut server = server(|_| {});
    let mut packet = Flights::new().next(START, &[]);
    packet[1..5].copy_from_slice(&0x1a2a_3a4a_u32.to_be_bytes());
    let mut answered = [0; 3];
    for (second, answered) in (0..).zip(&mut answered) {
        for n in 0..20_000 {
            let now = START + Duration::from_secs(second) + Duration::from_micros(50 * n);
            server.receive(now, stranger(n as u32), NONE, &mut packet.clone());
            *answered += server.transmit(now).len();
        }
    }
    assert!((1_000..=2_000).contains(&answered[0]), "{answered:?}");
    assert!(answered[1..].iter().all(|n| (900..=1_000).contains(n)), "{answered:?}");
    assert_eq!(server.endpoint.connections(), 0);
    let mut next = Flights::new().next(START, &[]);
    server.receive(START + Duration::from_secs(3), stranger(1), NONE, &mut next);
    assert_eq!(server.endpoint.connections(), 1, "known versions are served as before");
}

/// RFC 9000, Sections 8.1.2 and 8.1.3: packets that ask for a proof of address, or turn a client
/// away, may have been asked for in somebody else's name.
#[test]
fn retries_and_refusals_are_sent_at_a_rate() {
    let stolen = {
        let mut server = server(|config| config.retry = RetryPolicy::Always);
        server.receive(START, stranger(0), NONE, &mut Flights::new().next(START, &[]));
        let retry = server.transmit(START).remove(0).data;
        let header = Header::parse(&retry, 0).unwrap();
        RetryPacket::parse(&retry, &header).unwrap().token.to_vec()
    };
    let rates = ReplyRates::default();
    for (token, rate) in [(vec![], rates.retries), (stolen, rates.refusals)] {
        let mut server = server(|config| config.retry = RetryPolicy::Always);
        let packet = Flights::new().next(START, &token);
        let mut answered = [0; 3];
        let each_second = 2 * u64::from(rate);
        for (second, answered) in (0..).zip(&mut answered) {
            for n in 0..each_second {
                let within = Duration::from_nanos(1_000_000_000 / each_second * n);
                let now = START + Duration::from_secs(second) + within;
                server.receive(now, stranger(n as u32), NONE, &mut packet.clone());
                *answered += server.transmit(now).len() as u32;
            }
        }
        assert!((rate..=2 * rate).contains(&answered[0]), "{answered:?}");
        assert!(answered[1..].iter().all(|n| *n <= rate && *n > rate / 10 * 9), "{answered:?}");
        assert_eq!(server.endpoint.connections(), 0);
        let retries = if token.is_empty() { answered.iter().sum() } else { 0 };
        assert_eq!(server.endpoint.retries(), u64::from(retries));
    }
}

/// What the application refuses or sends away counts as well.
#[test]
fn attempts_that_the_application_turns_away_are_answered_at_the_same_rate() {
    let mut flights = Flights::new();
    let first = flights.next(START, &[]);
    let rates = ReplyRates { retries: 5, refusals: 7, ..ReplyRates::default() };
    let DuelOptions { mut endpoint, server, crypto, .. } = DuelOptions::new(Side::Client);
    endpoint.replies_per_second = rates;
    let mut server = Party::new(SERVER, endpoint, Some(server), crypto, 1);
    let mut reply = Vec::new();
    let mut answered = [0, 0];
    for n in 0..40 {
        let mut datagram =
            Datagram { remote: stranger(n), local: None, ecn: NONE, data: &mut first.clone() };
        let route = server.endpoint.route(START, 0, &mut datagram, &mut reply);
        let Route::Incoming(attempt) = route else { panic!("{route:?}") };
        let kind = n as usize % 2;
        let written = match kind {
            0 => server.endpoint.retry(START, attempt, &mut reply),
            _ => server.endpoint.refuse(START, attempt, &mut reply),
        };
        answered[kind] += u32::from(written.is_some());
    }
    assert_eq!(answered, [rates.retries, rates.refusals]);
    assert_eq!(server.endpoint.retries(), u64::from(rates.retries));
}

/// A handshake that never ends costs a bounded sum for ten seconds, and three bytes for one.
#[test]
fn unfinished_handshakes_cost_little_and_end() {
    const FLIGHTS: u32 = 500;
    let mut server = server(|_| {});
    let mut ledger = Ledger::default();
    let mut flights = Flights::new();
    let mut datagrams: Vec<_> = (0..FLIGHTS).map(|_| flights.next(START, &[])).collect();
    let grown = growth(&mut server, |server| {
        for (n, data) in (0..).zip(&mut datagrams) {
            ledger.receive(server, n, data);
            ledger.sent(server, START);
        }
    });
    assert_eq!(server.connections.len(), FLIGHTS as usize);
    let each = grown / FLIGHTS as isize;
    assert!(each < 24 * KIB, "{each} bytes for each unfinished handshake");
    let mut now = START;
    while let Some(at) = server.next_timeout() {
        now = now.max(at);
        server.handle_timeouts(now);
        ledger.sent(&mut server, now);
        server.bury();
    }
    assert!(now - START <= Duration::from_secs(20), "{:?}", now - START);
    assert_eq!((server.connections.len(), server.endpoint.connections()), (0, 0));
}

/// A spoofed address gets one Retry for each packet, smaller than it; nothing is remembered.
#[test]
fn a_flood_of_first_packets_costs_no_memory_where_retry_is_asked_for() {
    let mut server = server(|config| config.retry = RetryPolicy::Always);
    let mut ledger = Ledger::default();
    let mut flights = Flights::new();
    let mut datagrams: Vec<_> = (0..2_000).map(|_| flights.next(START, &[])).collect();
    // What the ledger needs for itself comes before.
    ledger.0.extend((0..2_000).map(|n| (stranger(n), (0, 0))));
    let grown = growth(&mut server, |server| {
        for (n, data) in (0..).zip(&mut datagrams) {
            let len = data.len();
            ledger.receive(server, n, data);
            let sent = server.transmit(START);
            assert!(matches!(&sent[..], [retry] if retry.data.len() < len));
        }
    });
    assert_eq!(server.endpoint.connections(), 0);
    assert!(grown < KIB, "{grown} bytes");
}

#[test]
fn first_packets_that_do_not_open_leave_nothing() {
    let mut server = server(|_| {});
    let mut flights = Flights::new();
    let mut datagrams: Vec<_> = (0..1_000).map(|_| flights.next(START, &[])).collect();
    let grown = growth(&mut server, |server| {
        for (n, data) in (0..).zip(&mut datagrams) {
            let last = data.len() - 1;
            data[last] ^= 1;
            server.receive(START, stranger(n), NONE, data);
            assert!(server.transmit(START).is_empty());
        }
    });
    assert_eq!((server.invalid, server.endpoint.connections()), (1_000, 0));
    assert!(grown < KIB, "{grown} bytes");
}

/// The limit turns Retry on when it is needed, and the flood stops there.
#[test]
fn retry_begins_where_too_many_handshakes_are_unfinished() {
    let mut server = server(|config| config.retry = RetryPolicy::AboveHandshakes(50));
    let mut flights = Flights::new();
    for n in 0..500 {
        let mut data = flights.next(START, &[]);
        server.receive(START, stranger(n), NONE, &mut data);
        drop(server.transmit(START));
    }
    assert_eq!(server.connections.len(), 51);
}

/// Their connections are there for three probe timeouts (RFC 9000, Section 10.2).
#[test]
fn handshakes_that_have_failed_count_until_nothing_is_left_of_them() {
    let mut server = server(|config| config.retry = RetryPolicy::AboveHandshakes(50));
    let mut flights = Flights::new();
    let mut flood = |server: &mut Party, now| {
        for n in 0..500 {
            let mut data = flights.next(now, &[]);
            server.receive(now, stranger(n), NONE, &mut data);
            for connection in server.connections.values_mut() {
                connection.abort(now, TransportError::new(TransportErrorCode::INTERNAL_ERROR, ""));
            }
            drop(server.transmit(now));
        }
        assert_eq!(server.connections.len(), 51);
    };
    flood(&mut server, START);
    let mut now = START;
    while let Some(at) = server.next_timeout() {
        now = now.max(at);
        server.handle_timeouts(now);
        server.bury();
    }
    assert_eq!(server.connections.len(), 0);
    flood(&mut server, now);
}

/// That is so where nothing else was said.
#[test]
fn a_flood_of_first_packets_leaves_a_bounded_number_of_handshakes() {
    let mut server = server(|_| {});
    let mut flights = Flights::new();
    for n in 0..1_000 {
        let mut data = flights.next(START, &[]);
        server.receive(START, stranger(n), NONE, &mut data);
        drop(server.transmit(START));
    }
    assert_eq!(server.connections.len(), HANDSHAKES_WITHOUT_RETRY + 1);
}

/// Attempts that the application does not decide on hold a bounded number of bytes, however
/// large their datagrams are.
#[test]
fn attempts_that_wait_hold_a_bounded_number_of_bytes() {
    let mut server = server(|config| config.retry = RetryPolicy::Never);
    let mut flights = Flights::new();
    let mut first = flights.next(START, &[]);
    // What follows the first packet is anything.
    first.resize(60_000, 0);
    let mut attempts = Vec::with_capacity(4_096);
    let grown = growth(&mut server, |server| {
        for n in 0..1_000 {
            let mut datagram =
                Datagram { remote: stranger(n), local: None, ecn: NONE, data: &mut first.clone() };
            let route = server.endpoint.route(START, 0, &mut datagram, &mut Vec::new());
            if let Route::Incoming(attempt) = route {
                attempts.push(attempt);
            }
        }
    });
    assert_eq!(attempts.len(), (8 << 20) / 60_000);
    assert!(grown <= 9 * 1_024 * KIB, "{grown} bytes");
    attempts.drain(..).for_each(|attempt| server.endpoint.ignore(attempt));
    let mut datagram =
        Datagram { remote: stranger(1), local: None, ecn: NONE, data: &mut first.clone() };
    let route = server.endpoint.route(START, 0, &mut datagram, &mut Vec::new());
    assert!(matches!(route, Route::Incoming(_)), "there is room again");
}

/// What a client sends after its first datagram, before the application has decided, is kept for it: so much and no
/// more, and nothing of others.
#[test]
fn what_follows_a_first_datagram_waits_with_it() {
    let mut server = server(|config| config.retry = RetryPolicy::Never);
    let mut first = Flights::new().next(START, &[]);
    let route = |server: &mut Party, remote, data: &mut [u8]| {
        let mut datagram = Datagram { remote, local: None, ecn: NONE, data };
        server.endpoint.route(START, 0, &mut datagram, &mut Vec::new())
    };
    let Route::Incoming(attempt) = route(&mut server, stranger(1), &mut first.clone()) else {
        panic!("a first packet begins an attempt");
    };
    // A 0-RTT packet (RFC 9000, Section 17.2.3) to the same connection ID.
    let mut early = first.clone();
    early[0] = 0xd0 | early[0] & 0x0f;
    for kept in 0..20 {
        let data = if kept % 2 == 0 { &mut early } else { &mut first };
        match route(&mut server, stranger(1), data) {
            Route::Waiting => assert!(kept < 10),
            Route::Dropped(DropReason::Limit) => assert!(kept >= 10),
            other => panic!("{other:?}"),
        }
    }
    let other = route(&mut server, stranger(2), &mut early);
    assert!(matches!(other, Route::Dropped(DropReason::Unexpected)), "{other:?}");
    server.endpoint.ignore(attempt);
    let late = route(&mut server, stranger(1), &mut early);
    assert!(matches!(late, Route::Dropped(DropReason::Unexpected)), "{late:?}");
    assert!(matches!(route(&mut server, stranger(1), &mut first), Route::Incoming(_)));
}

/// RFC 9000, Section 14.1: small datagrams start nothing.
#[test]
fn small_first_packets_are_dropped() {
    let mut server = server(|_| {});
    let mut data = Flights::new().next(START, &[]);
    server.receive(START, stranger(1), NONE, &mut data[..1_199]);
    assert!(server.transmit(START).is_empty());
    assert_eq!(server.endpoint.connections(), 0);
}

/// Every answer that needs no state is smaller than what it answers, or three times as large at
/// most; resets are rare besides (RFC 9000, Sections 6, 8.1 and 10.3).
#[test]
fn stateless_answers_amplify_nothing() {
    let mut server = server(|config| config.retry = RetryPolicy::Always);
    let mut first = Flights::new().next(START, &[]);
    let mut resets = 0;
    for n in 0..3_000_u32 {
        let len = 1 + (n as usize % 1_400);
        let mut data = vec![0x5a; len];
        match n % 3 {
            // Short headers of no connection.
            0 => data[0] = 0x40,
            // An unknown version.
            1 => {
                data[0] = 0xc0;
                data.iter_mut().skip(1).take(4).for_each(|byte| *byte = 0x1a);
                data.iter_mut().skip(5).take(1).for_each(|byte| *byte = 8);
                data.iter_mut().skip(14).take(1).for_each(|byte| *byte = 8);
            }
            // A first packet.
            _ => {
                first[20] = n as u8;
                data.clone_from(&first);
            }
        }
        let len = data.len();
        server.receive(START, stranger(n), NONE, &mut data);
        for answer in server.transmit(START) {
            assert!(answer.data.len() < len, "{} for {len}, kind {}", answer.data.len(), n % 3);
            resets += usize::from(n % 3 == 0);
        }
    }
    assert!((1..=1_000).contains(&resets), "{resets} resets at once");
}
