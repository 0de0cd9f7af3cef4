//! An address's socket that is lent to a worker: a switch in a thread of the test, workers that receive by hand, and one
//! that is killed.
#![cfg(target_os = "linux")]

#[path = "rig/program.rs"]
mod program;
mod rig;

use std::env;
use std::io::{Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use quicket_switch::client::{Membership, Options, Place};
use quicket_switch::daemon::Listener;
use quicket_switch::options::SocketOptions;
use quicket_switch::protocol::{Message, Refusal, Refused, encode};
use quicket_udp::ReceiveBuffers;
use quicket_wire::EcnCodepoint;
use serde_json::Value;
use socket2::SockRef;

use program::{Program, client, local};
use rig::{LONG, Switch};

/// A datagram of the bulk: a packet of a worker, whose last octets are a number.
fn numbered(packet: &[u8], number: u64) -> Vec<u8> {
    [packet, &number.to_be_bytes()].concat()
}

fn number_in(datagram: &[u8]) -> u64 {
    let (_, number) = datagram.split_last_chunk().expect("it has a number");
    u64::from_be_bytes(*number)
}

/// A worker that may borrow the address's socket, and reads what comes on a thread.
struct Reader {
    socket: Arc<quicket_udp::UdpSocket>,
    seen: Arc<Seen>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Seen {
    ends: AtomicBool,
    /// It does nothing for now.
    stands_still: AtomicBool,
    /// It reads what the switch says, and not the socket.
    lies: AtomicBool,
    /// Datagrams of its own that came by the channel, and from the socket.
    handed: AtomicU64,
    direct: AtomicU64,
    /// Datagrams of others that were handed back.
    strays: AtomicU64,
    /// Where the next one should begin.
    next: AtomicU64,
    /// How often an earlier one came behind a later one.
    disordered: AtomicU64,
}

/// A program with such a worker.
struct Borrowing {
    program: Program,
    reader: Reader,
    packet: Vec<u8>,
}

fn join(options: &Options, address: SocketAddr) -> (Program, Reader) {
    let place = Place {
        address,
        only_v6: false,
        workers: 1,
        steered: false,
        remains: false,
        options: SocketOptions::default(),
    };
    let joined = Membership::join(options, place, || UdpSocket::bind(address)).unwrap();
    let (member, mut inlets, socket) = joined;
    socket.set_nonblocking(true).unwrap();
    SockRef::from(&socket).set_recv_buffer_size(4 << 20).unwrap();
    let mut inlet = inlets.pop().unwrap();
    inlet.may_borrow(&socket).unwrap();
    let address = socket.local_addr().unwrap();
    let socket = Arc::new(quicket_udp::UdpSocket::behind(socket, Box::new(inlet)).unwrap());
    let program = Program { member, workers: Vec::new(), address };
    (program, Reader { socket, seen: Arc::default(), thread: None })
}

impl Borrowing {
    fn join(switch: &Switch, address: SocketAddr) -> Self {
        let (program, mut reader) = join(&switch.options(), address);
        let packet = program.packet(0, false);
        reader.start(packet.clone());
        Self { program, reader, packet }
    }

    /// Sends numbered datagrams until `is_so`, and no more than a socket has room for. Returns the number of the next.
    fn flood_until(&self, client: &UdpSocket, from: u64, is_so: impl Fn() -> bool) -> u64 {
        let begun = Instant::now();
        let mut number = from;
        while !is_so() {
            let came = || {
                let seen = &self.reader.seen;
                read(&seen.direct) + read(&seen.handed)
            };
            let before = came();
            for _ in 0..64 {
                client.send_to(&numbered(&self.packet, number), self.program.address).unwrap();
                number += 1;
            }
            let sent = Instant::now();
            while came() < before + 64 && sent.elapsed() < Duration::from_millis(5) {
                thread::sleep(Duration::from_micros(100));
            }
            assert!(begun.elapsed() < LONG, "it does not come to be");
        }
        number
    }

    /// Only where the switch has taken the socket back may something have come out of order.
    fn is_in_order(&self, switch: &Switch) {
        let said = switch.address();
        let ends = said["loan"]["count"].as_u64().unwrap() - u64::from(is_lent(&said));
        let disordered = read(&self.reader.seen.disordered);
        assert!(disordered <= ends, "{disordered} times: {said}");
    }

    fn is_lent(&self) -> bool {
        self.reader.socket.port_to_switch().unwrap().is_lent()
    }
}

impl Reader {
    fn start(&mut self, packet: Vec<u8>) {
        let (socket, seen) = (Arc::clone(&self.socket), Arc::clone(&self.seen));
        self.thread = Some(thread::spawn(move || {
            let mut buffers = ReceiveBuffers::new();
            while !seen.ends.load(Ordering::SeqCst) {
                let still = seen.stands_still.load(Ordering::SeqCst);
                if still || !receive(&socket, &mut buffers, &packet, &seen) {
                    thread::sleep(Duration::from_micros(100));
                }
            }
        }));
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.seen.ends.store(true, Ordering::SeqCst);
        if let Some(ended) = self.thread.take().map(JoinHandle::join)
            && !thread::panicking()
        {
            ended.unwrap();
        }
    }
}

/// Reads one batch, and hands back what is not `packet`'s. False if there was nothing.
fn receive(
    socket: &quicket_udp::UdpSocket,
    buffers: &mut ReceiveBuffers,
    packet: &[u8],
    seen: &Seen,
) -> bool {
    let port = socket.port_to_switch().unwrap();
    if seen.lies.load(Ordering::SeqCst) {
        let mut octets = vec![0; 65_536];
        let mut buffers = [std::io::IoSliceMut::new(&mut octets)];
        return port.receive(&mut buffers, &mut [quicket_udp::Arrival::default()]).is_ok();
    }
    let Ok(mut batch) = socket.receive(buffers) else { return false };
    let lent = batch.lent;
    for train in batch.trains() {
        let arrival = train.arrival();
        for datagram in train.bytes.chunks(arrival.stride) {
            if !datagram.starts_with(packet) {
                assert!(lent, "the switch does not hand over what is another's");
                port.hand_back(&quicket_udp::Arrival { len: datagram.len(), ..arrival }, datagram)
                    .unwrap();
                seen.strays.fetch_add(1, Ordering::SeqCst);
                continue;
            }
            assert_eq!(arrival.ecn, EcnCodepoint::Ect0);
            assert_eq!(arrival.local, Some(socket.local_addr()));
            assert!(arrival.remote.ip().is_loopback());
            let number = number_in(datagram);
            let next = seen.next.swap(number + 1, Ordering::SeqCst);
            seen.disordered.fetch_add(u64::from(number < next), Ordering::SeqCst);
            let count = if lent { &seen.direct } else { &seen.handed };
            count.fetch_add(1, Ordering::SeqCst);
        }
    }
    true
}

fn marked_client() -> UdpSocket {
    let client = client();
    SockRef::from(&client).set_tos_v4(EcnCodepoint::Ect0.bits().into()).unwrap();
    client
}

fn read(count: &AtomicU64) -> u64 {
    count.load(Ordering::SeqCst)
}

fn forwarding() -> Switch {
    Switch::named(Switch::new_name(), true)
}

/// Whether the switch says that the socket is lent.
fn is_lent(address: &Value) -> bool {
    address["loan"]["to"].is_object()
}

#[test]
fn what_comes_for_one_worker_it_reads_itself_in_order_and_with_all_that_is_known_of_it() {
    let switch = forwarding();
    let one = Borrowing::join(&switch, local());
    let client = marked_client();
    let seen = &one.reader.seen;
    let sent = one.flood_until(&client, 0, || read(&seen.direct) > 20_000);
    one.is_in_order(&switch);
    assert!(read(&seen.handed) > 0, "the first ones came by the channel");
    // With the last of them it ends, and is begun anew with the next.
    switch.wait_for("nothing comes any more", |address| !is_lent(address));
    let before = read(&seen.direct);
    one.flood_until(&client, sent, || read(&seen.direct) > before + 1000);
    one.is_in_order(&switch);
    let said = switch.wait_for("it has begun anew", |address| address["loan"]["count"] != 1);
    assert!(said["loan"]["count"].as_u64().unwrap() >= 2, "{said}");
}

/// While the socket is lent, others' datagrams come to them all the same, and those of nobody to the switch.
#[test]
fn what_is_anothers_comes_to_it_by_the_switch() {
    let switch = forwarding();
    let one = Borrowing::join(&switch, local());
    let other = switch.join_as(one.program.address, 1, false, || panic!("it is bound"));
    let client = marked_client();
    let mut sent = one.flood_until(&client, 0, || one.is_lent());
    let handed_back = || switch.address()["datagrams"]["handed_back"].as_u64().unwrap();
    let (begun, mut rounds) = (Instant::now(), 0_u64);
    // Now and then the switch takes the socket back in between, and has them at once.
    while handed_back() < 90 {
        assert!(begun.elapsed() < LONG, "after {rounds} rounds {} came back", handed_back());
        let round = rounds;
        rounds += 1;
        let direct = read(&one.reader.seen.direct);
        sent = one.flood_until(&client, sent, || read(&one.reader.seen.direct) > direct);
        let packet = numbered(&other.packet(0, false), round);
        client.send_to(&packet, other.address).unwrap();
        client.send_to(&[0x40; 60], other.address).unwrap();
        assert_eq!(other.workers[0].handed(), packet);
    }
    switch.wait_for("they are nobody's", |address| address["dropped"]["unroutable"] == rounds);
    // A flood for the other one: it is better off without.
    let packet = other.packet(0, false);
    let before = switch.address()["loan"]["count"].clone();
    let begun = Instant::now();
    while is_lent(&switch.address()) {
        for _ in 0..64 {
            client.send_to(&packet, other.address).unwrap();
        }
        assert!(begun.elapsed() < LONG);
    }
    assert!(before.as_u64().unwrap() > 0);
}

/// Has others wait for a worker that has the socket; each way, until the switch takes it back.
fn harms_nobody_for_long(harm: impl Fn(&Seen, bool)) {
    let switch = forwarding();
    let one = Borrowing::join(&switch, local());
    let other = switch.join_as(one.program.address, 1, false, || panic!("it is bound"));
    let client = marked_client();
    let sent = one.flood_until(&client, 0, || one.is_lent());
    harm(&one.reader.seen, true);
    let packet = other.packet(0, false);
    client.send_to(&numbered(&one.packet, sent), other.address).unwrap();
    client.send_to(&packet, other.address).unwrap();
    assert_eq!(other.workers[0].handed(), packet);
    // It is the switch who reads, and not lent again at once.
    assert!(!is_lent(&switch.address()));
    for number in 0..20 {
        let packet = numbered(&other.packet(0, false), number);
        client.send_to(&packet, other.address).unwrap();
        assert_eq!(other.workers[0].handed(), packet);
    }
    harm(&one.reader.seen, false);
    let handed = read(&one.reader.seen.handed);
    one.flood_until(&client, sent + 1, || read(&one.reader.seen.handed) > handed);
    one.flood_until(&client, sent + 1_000_000, || is_lent(&switch.address()));
}

#[test]
fn one_that_stands_still_holds_nobody_up_for_long() {
    harms_nobody_for_long(|seen, on| seen.stands_still.store(on, Ordering::SeqCst));
}

#[test]
fn one_that_only_says_that_it_reads_holds_nobody_up_for_long() {
    harms_nobody_for_long(|seen, on| seen.lies.store(on, Ordering::SeqCst));
}

/// A worker that reads its channel alone gets all that is its own by that, in order.
#[test]
fn who_cannot_borrow_goes_without() {
    let switch = forwarding();
    let one = switch.join_as(local(), 1, false, || UdpSocket::bind(local()));
    let client = client();
    let packet = one.packet(0, false);
    for number in 0..2000_u64 {
        let datagram = numbered(&packet, number);
        client.send_to(&datagram, one.address).unwrap();
        assert_eq!(one.workers[0].handed(), datagram);
    }
}

/// Who has the socket goes on when the switch is killed, and gives it to the next one.
#[test]
fn the_next_switch_has_the_socket_again() {
    let switch = forwarding();
    let one = Borrowing::join(&switch, local());
    let other = switch.join_as(one.program.address, 1, false, || panic!("it is bound"));
    let client = marked_client();
    let sent = one.flood_until(&client, 0, || one.is_lent());
    let name = switch.kill();
    let direct = read(&one.reader.seen.direct);
    let sent = one.flood_until(&client, sent, || read(&one.reader.seen.direct) > direct + 1000);
    // What is another's waits for the next switch.
    let packet = other.packet(0, false);
    let before = read(&one.reader.seen.strays);
    for number in 0..20 {
        client.send_to(&numbered(&packet, number), other.address).unwrap();
        client.send_to(&[0x40; 60], other.address).unwrap();
    }
    let sent = one.flood_until(&client, sent, || read(&one.reader.seen.strays) == before + 40);
    let switch = Switch::named(name, true);
    let begun = Instant::now();
    while one.is_lent() {
        assert!(begun.elapsed() < LONG, "it is not told");
        thread::sleep(Duration::from_millis(1));
    }
    switch.wait_for("what was handed back is read", |address| {
        address["datagrams"]["handed_back"].as_u64().is_some_and(|count| count >= 40)
    });
    // If the other one has come back later, the first of its own were nobody's yet.
    switch.wait_for("both are back", |address| {
        address["programs"].as_array().is_some_and(|programs| programs.len() == 2)
    });
    client.send_to(&numbered(&packet, 20), other.address).unwrap();
    let begun = Instant::now();
    while number_in(&other.workers[0].handed()) < 20 {
        assert!(begun.elapsed() < LONG, "it does not come");
    }
    let handed = read(&one.reader.seen.handed);
    let sent = one.flood_until(&client, sent, || read(&one.reader.seen.handed) > handed);
    one.flood_until(&client, sent, || is_lent(&switch.address()));
}

/// What reads the socket after a switch that was killed, and is refused by the next one, does not read on beside that.
#[test]
fn who_is_refused_by_the_next_switch_reads_no_more() {
    let switch = forwarding();
    let one = Borrowing::join(&switch, local());
    let client = marked_client();
    let sent = one.flood_until(&client, 0, || one.is_lent());
    let name = switch.kill();
    let direct = read(&one.reader.seen.direct);
    let sent = one.flood_until(&client, sent, || read(&one.reader.seen.direct) > direct + 100);
    assert!(one.is_lent());
    // One that speaks another version.
    let next = Listener::bind(&name).unwrap();
    let programs = UnixListener::from(next.as_fd().try_clone_to_owned().unwrap());
    let (why, text) = (Refusal::Version, "this switch speaks another version".to_owned());
    let refusal = encode(&Message::Refused(Refused { why, text })).unwrap();
    let begun = Instant::now();
    while one.is_lent() {
        assert!(begun.elapsed() < LONG, "it reads on");
        if let Ok((mut program, _)) = programs.accept() {
            program.set_nonblocking(false).unwrap();
            let _ = program.read(&mut vec![0; 65_536]).unwrap();
            program.write_all(&refusal).unwrap();
        }
        thread::sleep(Duration::from_millis(1));
    }
    drop((next, programs));
    // One that takes it.
    let switch = Switch::named(name, true);
    let handed = read(&one.reader.seen.handed);
    let sent = one.flood_until(&client, sent, || read(&one.reader.seen.handed) > handed);
    one.flood_until(&client, sent, || is_lent(&switch.address()));
}

/// The process of the next test; a test only by name.
#[test]
fn a_program_of_its_own_process() {
    let Some(name) = env::var_os("LENDING_SWITCH") else { return };
    let name = name.into_string().unwrap();
    let address = env::var("LENDING_ADDRESS").unwrap().parse().unwrap();
    let options = Options { name, program: None, label: "killed".into() };
    let (program, mut reader) = join(&options, address);
    let packet = program.packet(0, false);
    let text: String = packet.iter().map(|octet| format!("{octet:02x}")).collect();
    std::fs::write(env::var_os("LENDING_FILE").unwrap(), text).unwrap();
    reader.start(packet);
    loop {
        thread::park();
    }
}

/// What is killed at the end of the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn one_that_is_killed_while_it_reads_takes_nobody_with_it() {
    let switch = forwarding();
    let other = switch.join_as(local(), 1, false, || UdpSocket::bind(local()));
    let file = env::temp_dir().join(format!("quicket-lending-{}", std::process::id()));
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "a_program_of_its_own_process"]).stdout(Stdio::null());
    command.env("LENDING_SWITCH", &switch.name).env("LENDING_FILE", &file);
    let child = command.env("LENDING_ADDRESS", other.address.to_string()).spawn().unwrap();
    let mut child = Killed(child);
    let begun = Instant::now();
    let packet = loop {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let octets = text.as_bytes().chunks_exact(2);
        let octet = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16);
        let packet: Vec<u8> = octets.map(|pair| octet(pair).unwrap()).collect();
        if packet.len() == other.packet(0, false).len() {
            break packet;
        }
        assert!(begun.elapsed() < LONG, "the process does not come up");
        thread::sleep(Duration::from_millis(5));
    };
    let _ = std::fs::remove_file(&file);
    let client = marked_client();
    let flood = |number: u64| {
        for n in 0..64 {
            client.send_to(&numbered(&packet, 64 * number + n), other.address).unwrap();
        }
        thread::sleep(Duration::from_micros(200));
    };
    let begun = Instant::now();
    let mut number = 0;
    while !is_lent(&switch.address()) {
        flood(number);
        number += 1;
        assert!(begun.elapsed() < LONG, "it is not lent");
    }
    // In the middle of it.
    for round in 0..50 {
        flood(number + round);
    }
    child.0.kill().unwrap();
    let begun = Instant::now();
    for round in 0..100_u64 {
        let datagram = numbered(&other.packet(0, false), round);
        client.send_to(&datagram, other.address).unwrap();
    }
    // What it had just read is lost with it.
    let mut came = other.workers[0].handed();
    while number_in(&came) < 99 {
        assert!(begun.elapsed() < LONG, "they do not all come");
        came = other.workers[0].handed();
    }
    assert!(begun.elapsed() < Duration::from_secs(5));
    switch.wait_for("its number is dead", |address| {
        !is_lent(address) && address["generations_known_dead"] == 1
    });
}
