//! Measures what cryptography costs: packets and whole handshakes.
//!
//! `cargo run --release -p quicket-handshake --example crypto_speed [PACKET_LENGTH]`

use std::hint::black_box;
use std::time::{Duration, Instant};

use quicket_engine::crypto::{
    Aead, CryptoProvider, Handshake, HandshakeEvent, HandshakeStart, Level, OpenJob, SealJob,
    Secret, TAG_LEN, TlsConfig,
};
use quicket_handshake::{AwsLcProvider, ClientTls, Identity, ServerTls};
use quicket_wire::Version;

/// A UDP payload that fills an Ethernet frame over IPv4, in bytes: measured unless told otherwise.
const PACKET_LEN: usize = 1_472;
/// First byte, a connection ID of 8 bytes and a packet number of 2.
const HEADER_LEN: usize = 11;
/// Runs of which the fastest counts.
const RUNS: usize = 10;

fn main() {
    let len = std::env::args().nth(1).and_then(|len| len.parse().ok()).unwrap_or(PACKET_LEN);
    let len = len.max(HEADER_LEN + TAG_LEN);
    let clock = cpu_mhz();
    print!("packets of {len} bytes; ");
    match clock {
        Some(mhz) => {
            println!("cycles at the {mhz:.0} MHz of /proc/cpuinfo; fastest of {RUNS} runs")
        }
        None => println!("fastest of {RUNS} runs"),
    }
    for aead in [Aead::Aes128Gcm, Aead::Aes256Gcm, Aead::ChaCha20Poly1305] {
        packets(aead, len, clock);
    }
    handshakes();
}

/// The mean time of `work` in the fastest of several runs of `count`.
fn fastest(count: u32, mut work: impl FnMut()) -> Duration {
    let run = |_| {
        let begin = Instant::now();
        (0..count).for_each(|_| work());
        begin.elapsed() / count
    };
    // The division above drops below a nanosecond; packets take hundreds.
    (0..RUNS).map(run).min().unwrap_or_default()
}

fn packets(aead: Aead, len: usize, clock: Option<f64>) {
    const COUNT: u32 = 20_000;
    let secret = Secret::new(aead, &vec![7; aead.secret_len()]).expect("a secret");
    let key = AwsLcProvider.packet_key(Version::V1, &secret);
    let header_key = AwsLcProvider.header_key(Version::V1, &secret);
    let mut packet = vec![0x40; len];
    let report = |what: &str, time: Duration| {
        let ns = time.as_nanos() as f64;
        let gbit = len as f64 * 8.0 / ns;
        let cycles = clock.map(|mhz| format!(", {:.2} cycles/byte", ns * mhz / 1e3 / len as f64));
        println!("{aead:?} {what}: {ns:.0} ns, {gbit:.1} Gbit/s{}", cycles.unwrap_or_default());
    };

    let mut packet_number = 0;
    let seal = fastest(COUNT, || {
        packet_number += 1;
        let mut job = SealJob { packet_number, header_len: HEADER_LEN, packet: &mut packet };
        key.seal(&mut job).expect("sealing works");
    });
    report("seal", seal);

    // Sealed once and copied each time, because opening overwrites; the copy is taken off.
    packet[HEADER_LEN..len - TAG_LEN].fill(1);
    let mut job = SealJob { packet_number: 1, header_len: HEADER_LEN, packet: &mut packet };
    key.seal(&mut job).expect("sealing works");
    let mut room = packet.clone();
    let copy = fastest(COUNT, || black_box(&mut room).copy_from_slice(black_box(&packet)));
    let open = fastest(COUNT, || {
        room.copy_from_slice(&packet);
        let mut job = OpenJob { packet_number: 1, header_len: HEADER_LEN, packet: &mut room };
        key.open(&mut job).expect("opening works");
    });
    report("open", open.saturating_sub(copy));

    let sample = [9; 16];
    let mask = fastest(COUNT, || {
        black_box(header_key.mask(black_box(&sample)));
    });
    println!("{aead:?} header mask: {} ns", mask.as_nanos());
    let derive = fastest(1_000, || {
        black_box(AwsLcProvider.packet_key(Version::V1, black_box(&secret)));
    });
    println!("{aead:?} packet key from secret: {} ns", derive.as_nanos());
}

fn handshakes() {
    let identity = Identity::self_signed(["localhost"]).expect("a certificate");
    let server = ServerTls::builder(identity.clone()).alpn(["speed"]).early_data(true);
    let server = server.build().expect("a server");
    let client = ClientTls::builder().pinned([identity.fingerprint()]).alpn(["speed"]);
    let client = client.build().expect("a client");
    let mut tickets = Vec::new();
    let full = fastest(100, || tickets.extend(shake(&client, &server, None)));
    println!("full handshake, both sides: {} us", full.as_micros());
    let resumed = fastest(100, || {
        let ticket = tickets.pop().expect("two tickets per full handshake");
        shake(&client, &server, Some(&ticket));
    });
    println!("resumed handshake with early data, both sides: {} us", resumed.as_micros());
    let ticket = tickets.pop().expect("tickets are left");
    let start = |resume| start(&client, resume, true).expect("a client starts");
    let fresh = fastest(100, || drop(start(None)));
    let resuming = fastest(100, || drop(start(Some(&ticket))));
    println!(
        "client start: {} us; with a stored ticket: {} us",
        fresh.as_micros(),
        resuming.as_micros()
    );
}

fn start(
    config: &dyn TlsConfig,
    resume: Option<&[u8]>,
    client: bool,
) -> Result<Box<dyn Handshake>, quicket_engine::crypto::HandshakeError> {
    let start = HandshakeStart {
        server_name: "localhost",
        peer: None,
        transport_parameters: &[],
        resume,
        early_data: true,
    };
    if client { config.start_client(&start) } else { config.start_server(&start) }
}

/// Shakes hands and returns the client's tickets.
fn shake(client: &ClientTls, server: &ServerTls, resume: Option<&[u8]>) -> Vec<Vec<u8>> {
    let mut parties = [
        start(client, resume, true).expect("a client starts"),
        start(server, None, false).expect("a server starts"),
    ];
    let mut tickets = Vec::new();
    let mut quiet = 0;
    for side in [0, 1].into_iter().cycle() {
        let messages = poll(&mut *parties[side], &mut tickets);
        quiet = if messages.is_empty() { quiet + 1 } else { 0 };
        if quiet == 2 {
            break;
        }
        for (level, bytes) in messages {
            parties[1 - side].read(level, &bytes).expect("the peer understands");
        }
    }
    tickets
}

fn poll(party: &mut dyn Handshake, tickets: &mut Vec<Vec<u8>>) -> Vec<(Level, Vec<u8>)> {
    let mut messages = Vec::new();
    while let Some(event) = party.poll().expect("the handshake goes on") {
        match event {
            HandshakeEvent::Send(level, bytes) => messages.push((level, bytes)),
            HandshakeEvent::SessionTicket(ticket) => tickets.push(ticket),
            _ => {}
        }
    }
    messages
}

fn cpu_mhz() -> Option<f64> {
    let info = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = info.lines().find(|line| line.starts_with("cpu MHz"))?;
    line.split(':').nth(1)?.trim().parse().ok()
}
