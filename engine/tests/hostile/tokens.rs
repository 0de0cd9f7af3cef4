//! Address tokens: forged, stolen and used twice (RFC 9000, Section 8.1).

use quicket_engine::crypto::Level;
use quicket_engine::{Datagram, DropReason, EcnCodepoint, Endpoint, RetryPolicy, Route, Side};
use quicket_sim::attack::{Duel, DuelOptions, Party, Stage};
use quicket_wire::{Frame, Frames, Header, PacketKind, RetryPacket};

use crate::memory::growth;
use crate::support::{Flights, KIB, SERVER, START, server, stranger};

const NONE: EcnCodepoint = EcnCodepoint::NotEct;

fn hard() -> Party {
    server(|config| config.retry = RetryPolicy::Always)
}

/// What a server makes of a first packet.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Accepted,
    Retried,
    Closed,
}

fn verdict(server: &mut Party, n: u32, mut data: Vec<u8>) -> Verdict {
    let before = server.connections.len();
    server.receive(START, stranger(n), NONE, &mut data);
    if server.connections.len() > before {
        drop(server.transmit(START));
        return Verdict::Accepted;
    }
    let sent = server.transmit(START);
    let [answer] = &sent[..] else { panic!("one answer: {sent:?}") };
    match Header::parse(&answer.data, 0).unwrap().kind {
        PacketKind::Retry => Verdict::Retried,
        PacketKind::Initial => Verdict::Closed,
        kind => panic!("{kind:?}"),
    }
}

#[test]
fn forged_tokens_prove_nothing_and_cost_nothing() {
    let mut server = hard();
    let mut flights = Flights::new();
    let tokens = (0..200_u8).map(|n| vec![n; usize::from(n) + 1]);
    let datagrams: Vec<_> = tokens.map(|token| flights.next(START, &token)).collect();
    let grown = growth(&mut server, |server| {
        for (n, data) in (0..).zip(&datagrams) {
            assert_eq!(verdict(server, n, data.clone()), Verdict::Retried);
        }
    });
    assert!(grown < KIB, "{grown} bytes");
}

/// The Retry token that a client gets for its first packet, and the whole flow of a client.
fn retry_token(server: &mut Party, flights: &mut Flights, n: u32) -> Vec<u8> {
    let mut data = flights.next(START, &[]);
    server.receive(START, stranger(n), NONE, &mut data);
    let sent = server.transmit(START);
    let header = Header::parse(&sent[0].data, 0).unwrap();
    RetryPacket::parse(&sent[0].data, &header).unwrap().token.to_vec()
}

/// RFC 9000, Section 8.1.2: from another address, or for another connection, it is refused.
#[test]
fn stolen_retry_tokens_are_refused_without_state() {
    let mut server = hard();
    let mut flights = Flights::new();
    let token = retry_token(&mut server, &mut flights, 1);
    let attempts: Vec<_> = (0..100).map(|_| flights.next(START, &token)).collect();
    let grown = growth(&mut server, |server| {
        for (n, data) in (1..).zip(&attempts) {
            assert_eq!(verdict(server, n, data.clone()), Verdict::Closed);
        }
    });
    assert_eq!(server.endpoint.connections(), 0);
    assert!(grown < KIB, "{grown} bytes");
}

/// A client that is turned away for want of room can come again with its token.
#[test]
fn a_full_house_uses_no_token_up() {
    let (tokens, client) = new_tokens();
    let DuelOptions { mut endpoint, server, crypto, .. } = DuelOptions::new(Side::Client);
    endpoint.max_incoming = 1;
    let mut server = Party::new(SERVER, endpoint, Some(server), crypto, 1).endpoint;
    let mut flights = Flights::new();
    let mut route = |server: &mut Endpoint, remote, token: &[u8]| {
        let data = &mut flights.next(START, token)[..];
        let mut datagram = Datagram { remote, local: Some(SERVER), ecn: NONE, data };
        server.route(START, 1_700_000_001, &mut datagram, &mut Vec::new())
    };
    let Route::Incoming(first) = route(&mut server, stranger(1), &[]) else {
        panic!("room for one")
    };
    let second = route(&mut server, client, &tokens[0]);
    assert!(matches!(second, Route::Dropped(DropReason::Limit)), "{second:?}");
    server.ignore(first);
    let Route::Incoming(again) = route(&mut server, client, &tokens[0]) else {
        panic!("room again")
    };
    assert!(again.address_validated(), "the token is as good as before");
}

/// Tokens that a server gave to an honest client.
fn new_tokens() -> (Vec<Vec<u8>>, std::net::SocketAddr) {
    let mut tokens = Vec::new();
    let mut duel = Duel::new(DuelOptions::new(Side::Client), Stage::Handshake);
    let address = duel.address;
    // The client's Finished, made by the rules, ends the handshake.
    duel.finish();
    for opened in duel.opened_answers().iter().filter(|opened| opened.level == Level::OneRtt) {
        for frame in Frames::new(&opened.payload) {
            if let Ok(Frame::NewToken(frame)) = frame {
                tokens.push(frame.token.to_vec());
            }
        }
    }
    (tokens, address)
}

/// RFC 9000, Section 8.1.4: a token is good once.
#[test]
fn a_token_that_is_used_again_proves_nothing() {
    let (tokens, address) = new_tokens();
    assert_eq!(tokens.len(), 2, "the server gives two");
    let mut server = hard();
    let mut flights = Flights::new();
    let attempt = |server: &mut Party, data: &mut Vec<u8>, from| {
        let before = server.connections.len();
        server.receive(START, from, NONE, data);
        drop(server.transmit(START));
        server.connections.len() > before
    };
    // A register as young as this one cannot know what was used before it.
    let mut early = flights.next(START, &tokens[0]);
    assert!(!attempt(&mut server, &mut early, stranger(9)), "not from elsewhere");
    let mut first = flights.next(START, &tokens[0]);
    let mut again = flights.next(START, &tokens[0]);
    assert!(attempt(&mut server, &mut first, address), "good once");
    assert!(!attempt(&mut server, &mut again, address), "and not again");
}
