//! What attack packets cost the victim: time and memory for each, with real packet protection.
//!
//! `cargo run --release -p quicket-handshake --example attack_cost`
//!
//! The attacker's own work (sealing) is done before the clock starts. One core, no sockets: what
//! the kernel needs for a datagram comes on top. docs/security.md has a table of the results.

use std::alloc::{GlobalAlloc, Layout, System};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::time::Instant;

use quicket_engine::crypto::Level;
use quicket_engine::time::{Duration, Time};
use quicket_engine::{
    Dir, EcnCodepoint, EndpointConfig, EndpointEvent, RetryPolicy, ServerConfig, Side, StreamId,
};
use quicket_handshake::AwsLcProvider;
use quicket_sim::attack::{Duel, DuelOptions, Party, Payload, Sent, Stage};
use quicket_wire::{ConnectionId, FrameEncode, StatelessResetToken, frame};

static HELD: AtomicIsize = AtomicIsize::new(0);

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: all is left to the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's promises are those that the system's allocator wants.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}

const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 443);
/// As many pieces as a connection may have, or nearly.
const PIECES: u64 = 16_200;
const START: Time = Time::from_nanos(1_000_000_000);

fn stranger(n: usize) -> SocketAddr {
    let [_, b, c, d] = (n as u32).to_be_bytes();
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(203, b, c, d)), 4_000)
}

/// Prints a row of the table: what one packet of `packets` cost.
fn report(name: &str, packets: usize, bytes: usize, took: std::time::Duration, held: isize) {
    let each = took.as_nanos() / packets as u128;
    let size = bytes / packets;
    println!("| {name} | {packets} | {size} | {each} | {held} |");
}

/// Runs an attack on an established connection, until all `packets` are delivered or the victim
/// ends it. `forge` makes a packet, and `answered` is what the attacker does about the answers.
fn attack(
    name: &str,
    packets: usize,
    mut forge: impl FnMut(&mut Duel, u64) -> Vec<u8>,
    mut answered: impl FnMut(&mut Duel, u64, &[Sent]),
) -> Duel {
    let mut options = DuelOptions::new(Side::Client);
    options.crypto = Arc::new(AwsLcProvider);
    let mut duel = Duel::new(options, Stage::Confirmed);
    let mut took = std::time::Duration::ZERO;
    let (mut bytes, mut sent) = (0, 0);
    let before = HELD.load(Ordering::Relaxed);
    for n in 0..packets as u64 {
        let mut packet = forge(&mut duel, n);
        bytes += packet.len();
        sent += 1;
        let start = Instant::now();
        duel.deliver(&mut packet);
        let answers = duel.answers();
        took += start.elapsed();
        answered(&mut duel, n, &answers);
        if duel.connection().is_closed() {
            break;
        }
        duel.now += Duration::from_micros(20);
    }
    let held = HELD.load(Ordering::Relaxed) - before;
    let end = if duel.connection().is_closed() { ", which end it" } else { "" };
    report(&format!("{name}{end}"), sent, bytes, took, held);
    duel
}

/// An attack by well-made packets, whose sender acknowledges now and then if it is `polite`.
fn connected(name: &str, packets: usize, polite: bool, make: impl Fn(u64) -> Payload) {
    let forge = |duel: &mut Duel, n| duel.forge.seal(Level::OneRtt, make(n).bytes());
    attack(name, packets, forge, |duel, n, answers| {
        for answer in answers {
            duel.forge.open(&answer.data);
        }
        if polite && n % 16 == 15 {
            duel.acknowledge();
        }
    });
}

fn many(frame: impl Fn(u64) -> Payload, count: u64) -> impl Fn(u64) -> Payload {
    move |n| {
        let each = (0..count).map(|k| frame(n * count + k));
        each.fold(Payload::new(), |all, one| all.raw(one.bytes()))
    }
}

fn of(frame: impl FrameEncode) -> Payload {
    Payload::of(&frame)
}

fn uni(index: u64) -> StreamId {
    StreamId::new(Side::Client, Dir::Uni, index)
}

fn piece(offset: u64) -> Payload {
    of(frame::Stream { id: uni(0), offset, fin: false, data: &[1] })
}

fn new_cid(n: u64) -> Payload {
    let bytes = n.to_be_bytes();
    let mut token = [0; 16];
    token[..8].copy_from_slice(&bytes);
    of(frame::NewConnectionId {
        sequence_number: n,
        retire_prior_to: n,
        connection_id: ConnectionId::new(&bytes).expect("eight bytes"),
        stateless_reset_token: StatelessResetToken(token),
    })
}

fn established() {
    let bulk = vec![1; 1_150];
    connected("stream data in order, for comparison", 220, true, |n| {
        of(frame::Stream { id: uni(0), offset: n * 1_150, fin: false, data: &bulk })
    });
    connected("PING", 100_000, true, |_| of(frame::Ping));
    connected("PING, never acknowledged", 100_000, false, |_| of(frame::Ping));
    connected("1150 PING in a packet", 20_000, true, |_| Payload::new().raw(&[1; 1_150]));
    connected("PADDING", 100_000, true, |_| Payload::new().raw(&[0; 1_150]));
    connected("PATH_CHALLENGE", 100_000, false, |n| {
        of(frame::PathChallenge { data: n.to_be_bytes() })
    });
    connected(
        "100 PATH_CHALLENGE in a packet",
        10_000,
        false,
        many(|n| of(frame::PathChallenge { data: n.to_be_bytes() }), 100),
    );
    pieces();
    connected("RESET_STREAM of all streams", 200, true, |n| {
        of(frame::ResetStream { id: uni(n), error_code: 0, final_size: 0 })
    });
    connected("STOP_SENDING, repeated", 100_000, true, |n| {
        of(frame::StopSending { id: StreamId::new(Side::Client, Dir::Bidi, 0), error_code: n })
    });
    connected("MAX_DATA in steps of one", 100_000, true, |n| {
        of(frame::MaxData { maximum: (1 << 30) + n })
    });
    connected("DATA_BLOCKED", 100_000, true, |n| of(frame::DataBlocked { limit: n }));
    connected("NEW_CONNECTION_ID that retires all before", 20_000, true, |n| new_cid(n + 10));
    connected(
        "CRYPTO, one-byte pieces",
        1_000,
        false,
        many(|n| of(frame::Crypto { offset: 5_000 + 2 * n, data: &[1] }), 150),
    );
    connected("DATAGRAM of no bytes", 100_000, true, |_| {
        of(frame::Datagram { data: &[], has_length: true })
    });
    gaps();
    key_updates();
    undecryptable();
}

/// Pieces of one byte beyond gaps, in three orders; and then one after another is joined to its
/// neighbour and another one made, in the midst of all.
fn pieces() {
    let packets = (PIECES / 150) as usize;
    let up = |n| piece(1 + 2 * n);
    let down = |n| piece(2 * PIECES - 2 * n);
    let random = |n: u64| piece(1 + 2 * (n.wrapping_mul(7_919) % PIECES));
    connected("one-byte pieces beyond gaps, upwards", packets, false, many(up, 150));
    connected("the same, downwards", packets, false, many(down, 150));
    connected("the same, at random", packets, false, many(random, 150));
    let churn = move |n: u64| {
        let Some(n) = n.checked_sub(PIECES) else { return up(n) };
        // Two pieces become one, and a new one begins where another gap was.
        let at = PIECES / 2 + n % (PIECES / 2);
        if n.is_multiple_of(2) { piece(at & !1) } else { piece(2 * PIECES + n) }
    };
    connected("the same, joined and made anew", 3 * packets, false, many(churn, 150));
}

/// Every other packet number, so that acknowledgments are long.
fn gaps() {
    let forge = |duel: &mut Duel, _| {
        duel.forge.next_number[2] += 1;
        duel.forge.seal(Level::OneRtt, &[1; 20])
    };
    attack("PING under every other packet number", 50_000, forge, |_, _, _| ());
}

fn key_updates() {
    let forge = |duel: &mut Duel, n: u64| {
        if n.is_multiple_of(2) {
            duel.forge.update_keys();
        }
        duel.forge.seal(Level::OneRtt, &[1; 20])
    };
    let mut duel = attack("key update in every second packet", 10_000, forge, |_, _, _| ());
    assert_eq!(duel.connection().stats().counters.key_updates, 5_000);
}

fn undecryptable() {
    let forge = |duel: &mut Duel, _| {
        let mut packet = duel.forge.seal(Level::OneRtt, &[1; 1_150]);
        if let Some(last) = packet.last_mut() {
            *last ^= 1;
        }
        packet
    };
    attack("packets that do not open", 100_000, forge, |_, _, _| ());
}

/// Floods of first packets.
fn flood(name: &str, count: usize, retry: RetryPolicy, change: impl Fn(&mut Vec<u8>)) {
    let DuelOptions { endpoint, client, server, .. } = DuelOptions::new(Side::Client);
    let crypto = Arc::new(AwsLcProvider);
    let server = ServerConfig { retry, ..server };
    let mut server = Party::new(SERVER, endpoint, Some(server), crypto.clone(), 1);
    let config = EndpointConfig::new([8; 32], [9; 32]);
    let mut clients = Party::new(stranger(0), config, None, crypto, 2);
    let mut datagrams: Vec<Vec<u8>> = (0..count)
        .map(|_| {
            let config = client.clone();
            let started = clients.endpoint.connect(START, config, SERVER, None, "sim.example");
            let (handle, connection) = started.expect("the client starts");
            clients.connections.insert(handle, connection);
            let mut sent = clients.transmit(START);
            clients.connections.clear();
            clients.endpoint.handle_event(handle, EndpointEvent::Drained);
            let mut data = sent.remove(0).data;
            change(&mut data);
            data
        })
        .collect();
    let bytes = datagrams.iter().map(Vec::len).sum();
    let before = HELD.load(Ordering::Relaxed);
    let mut took = std::time::Duration::ZERO;
    let mut answered = 0;
    for (n, data) in datagrams.iter_mut().enumerate() {
        let start = Instant::now();
        server.receive(START, stranger(n), EcnCodepoint::NotEct, data);
        if let Some(entry) = server.connections.last_entry() {
            let (handle, mut connection) = entry.remove_entry();
            let mut buffer = [0; 1_500];
            while let quicket_engine::TransmitStatus::Ready(transmit) =
                connection.poll_transmit(START, &mut buffer, 1)
            {
                answered += transmit.len;
            }
            server.connections.insert(handle, connection);
        } else {
            drop(server.transmit(START));
        }
        took += start.elapsed();
    }
    let held = HELD.load(Ordering::Relaxed) - before;
    report(&format!("{name}; {answered} bytes of handshakes answered"), count, bytes, took, held);
}

/// Datagrams of no connection.
fn strangers(name: &str, count: usize, make: impl Fn(usize) -> Vec<u8>) {
    let DuelOptions { endpoint, server, .. } = DuelOptions::new(Side::Client);
    let mut server = Party::new(SERVER, endpoint, Some(server), Arc::new(AwsLcProvider), 1);
    let mut datagrams: Vec<Vec<u8>> = (0..count).map(make).collect();
    let bytes = datagrams.iter().map(Vec::len).sum();
    let before = HELD.load(Ordering::Relaxed);
    let start = Instant::now();
    for (n, data) in datagrams.iter_mut().enumerate() {
        let now = START + Duration::from_micros(n as u64);
        server.receive(now, stranger(n), EcnCodepoint::NotEct, data);
        drop(server.transmit(now));
    }
    let took = start.elapsed();
    report(name, count, bytes, took, HELD.load(Ordering::Relaxed) - before);
}

fn main() {
    println!("| attack | packets | bytes each | ns each | bytes held after |");
    println!("| --- | ---: | ---: | ---: | ---: |");
    flood(
        "first packets, without Retry (TLS is a pretended one)",
        2_000,
        RetryPolicy::Never,
        |_| {},
    );
    flood("first packets, with Retry", 20_000, RetryPolicy::Always, |_| {});
    flood("first packets that do not open", 20_000, RetryPolicy::Never, |data| {
        let last = data.len() - 1;
        data[last] ^= 1;
    });
    strangers("short headers of no connection", 100_000, |n| vec![0x40 | (n as u8 & 0x3f); 60]);
    strangers("unknown versions", 100_000, |n| {
        let mut data = vec![n as u8; 1_200];
        data[..6].copy_from_slice(&[0xc0, 0x1a, 0x2a, 0x3a, 0x4a, 8]);
        data[14] = 8;
        data
    });
    strangers("random bytes", 100_000, |n| {
        (0..1_200).map(|at: usize| (n.wrapping_mul(31).wrapping_add(at * at) >> 3) as u8).collect()
    });
    established();
}
