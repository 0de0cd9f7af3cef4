//! Two stacks at one switch, without a network device.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::time::{Duration, Instant};

use common::{PATIENCE, Switch, pattern, until};
use quicket_tcp::{Options, Stack, TcpListener, TcpStream};

const ADDRESSES: [&str; 2] = ["127.0.0.1:0", "[::1]:0"];

fn listen(stack: &Stack, address: &str) -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(stack, address.parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// A connection between two stacks: the client's end and the server's.
fn pair(client: &Stack, server: &Stack, address: &str) -> (TcpStream, TcpStream) {
    let (listener, address) = listen(server, address);
    let client = TcpStream::connect_timeout(client, address, PATIENCE).unwrap();
    let (server, peer) = listener.accept().unwrap();
    assert_eq!((peer, address), (client.local_addr().unwrap(), client.peer_addr().unwrap()));
    for stream in [&client, &server] {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
    }
    (client, server)
}

fn two_stacks() -> (Switch, Stack, Stack) {
    let switch = Switch::start();
    let (one, other) = (switch.stack(), switch.stack());
    (switch, one, other)
}

#[test]
fn much_goes_both_ways_and_each_way_ends_by_itself() {
    let (_switch, one, other) = two_stacks();
    for address in ADDRESSES {
        let (mut client, mut server) = pair(&one, &other, address);
        let data = pattern(8 << 20);
        std::thread::scope(|scope| {
            let mut back = client.try_clone().unwrap();
            let reader = scope.spawn(move || {
                let mut all = Vec::new();
                back.read_to_end(&mut all).unwrap();
                all
            });
            scope.spawn(|| {
                let mut all = vec![0; 1 << 16];
                loop {
                    let len = server.read(&mut all).unwrap();
                    if len == 0 {
                        break;
                    }
                    server.write_all(&all[..len]).unwrap();
                }
                server.write_all(b"end").unwrap();
                server.shutdown(Shutdown::Write).unwrap();
            });
            client.write_all(&data).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            assert_eq!(client.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
            let all = reader.join().unwrap();
            assert_eq!(all.len(), data.len() + 3);
            assert!(all.starts_with(&data) && all.ends_with(b"end"));
        });
        assert_eq!(client.read(&mut [0; 9]).unwrap(), 0);
    }
}

#[test]
fn nobody_answers_with_a_reset_and_so_does_one_who_leaves_data_unread() {
    let (_switch, one, other) = two_stacks();
    for address in ADDRESSES {
        let (listener, address) = listen(&other, address);
        // Some connection keeps the address.
        let _kept = TcpStream::connect_timeout(&one, address, PATIENCE).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        drop(listener);
        let begun = Instant::now();
        let error = TcpStream::connect_timeout(&one, address, PATIENCE).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
        assert!(begun.elapsed() < PATIENCE / 2);
        drop(accepted);
        let (mut client, server) =
            pair(&one, &other, &address.to_string().replace(&address.port().to_string(), "0"));
        client.write_all(b"unread").unwrap();
        let mut one = [0];
        assert_eq!(server.peek(&mut one).unwrap(), 1);
        drop(server);
        let error = client.read(&mut one).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
        assert_eq!(client.read(&mut one).unwrap(), 0);
    }
}

#[test]
fn what_is_written_before_a_stream_is_dropped_arrives() {
    let (_switch, one, other) = two_stacks();
    let (mut client, mut server) = pair(&one, &other, ADDRESSES[0]);
    let data = pattern(200_000);
    client.write_all(&data).unwrap();
    drop(client);
    let mut all = Vec::new();
    server.read_to_end(&mut all).unwrap();
    assert!(all == data);
    drop(server);
    assert!(one.wait_until_over(PATIENCE) && other.wait_until_over(PATIENCE));
}

/// RFC 9293, Section 3.8.6.1.
#[test]
fn one_who_does_not_read_stops_the_other_one_until_he_does() {
    let (_switch, one, other) = two_stacks();
    let (mut client, mut server) = pair(&one, &other, ADDRESSES[0]);
    client.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    let data = pattern(4 << 20);
    let mut written = 0;
    let error = loop {
        match client.write(&data[written..]) {
            Ok(len) => written += len,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    // Both buffers are full.
    assert!((256 << 10..=512 << 10).contains(&written), "{written}");
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    client.set_write_timeout(Some(PATIENCE)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            client.write_all(&data[written..]).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
        });
        let mut all = Vec::new();
        server.read_to_end(&mut all).unwrap();
        assert!(all == data);
    });
}

#[test]
fn timeouts_hold_and_calls_that_are_not_to_wait_do_not() {
    let (_switch, one, other) = two_stacks();
    let (mut client, _server) = pair(&one, &other, ADDRESSES[0]);
    client.set_read_timeout(Some(Duration::from_millis(30))).unwrap();
    let begun = Instant::now();
    assert_eq!(client.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert!(begun.elapsed() >= Duration::from_millis(30));
    client.set_read_timeout(None).unwrap();
    client.set_nonblocking(true).unwrap();
    assert_eq!(client.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert!(client.set_read_timeout(Some(Duration::ZERO)).is_err());
    let (listener, _) = listen(&other, ADDRESSES[0]);
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}

/// Short connections, whose ends are used again while they are in TIME-WAIT.
#[test]
fn thousands_of_short_connections() {
    const COUNT: usize = 2000;
    let (_switch, one, other) = two_stacks();
    let (listener, address) = listen(&other, ADDRESSES[0]);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for stream in listener.incoming().take(COUNT) {
                let mut stream = stream.unwrap();
                let mut question = [0; 4];
                stream.read_exact(&mut question).unwrap();
                stream.write_all(&question).unwrap();
                // This side ends first.
                stream.shutdown(Shutdown::Write).unwrap();
                assert_eq!(stream.read(&mut question).unwrap(), 0);
            }
        });
        for number in 0..COUNT as u32 {
            let mut stream = TcpStream::connect_timeout(&one, address, PATIENCE).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.write_all(&number.to_be_bytes()).unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).unwrap();
            assert_eq!(answer, number.to_be_bytes());
        }
    });
    assert!(one.wait_until_over(PATIENCE) && other.wait_until_over(PATIENCE));
}

/// Then this side has the connections in TIME-WAIT, each with a port.
#[test]
fn clients_may_end_first() {
    const COUNT: usize = 300;
    let (_switch, one, other) = two_stacks();
    let (listener, address) = listen(&other, ADDRESSES[0]);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for stream in listener.incoming().take(COUNT) {
                let mut all = Vec::new();
                stream.unwrap().read_to_end(&mut all).unwrap();
                assert_eq!(all, b"all");
            }
        });
        for _ in 0..COUNT {
            let mut stream = TcpStream::connect_timeout(&one, address, PATIENCE).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.write_all(b"all").unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        }
    });
}

#[test]
fn times_without_end_and_addresses_of_one_link_are_no_fault_of_the_stacks() {
    let (_switch, one, other) = two_stacks();
    let (listener, address) = listen(&other, ADDRESSES[0]);
    let mut client = TcpStream::connect_timeout(&one, address, Duration::MAX).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    client.set_read_timeout(Some(Duration::MAX)).unwrap();
    server.write_all(b"x").unwrap();
    client.read_exact(&mut [0]).unwrap();
    for wrong in ["[fe80::1]:80", "[::ffff:127.0.0.1]:80"] {
        let error = TcpStream::connect(&one, wrong.parse().unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
}

#[test]
fn an_address_is_the_systems_again_once_nobody_has_it() {
    let (_switch, one, other) = two_stacks();
    let (client, server) = pair(&one, &other, ADDRESSES[0]);
    let address = server.local_addr().unwrap();
    assert!(std::net::TcpListener::bind(address).is_err());
    // Whoever is of the same stack may listen there again.
    let again = TcpListener::bind(&other, address).unwrap();
    let error = TcpListener::bind(&other, address).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    drop(again);
    drop(client);
    drop(server);
    until("the system does not get it back", || std::net::TcpListener::bind(address).is_ok());
}

#[test]
fn without_a_switch_all_calls_fail() {
    let (switch, one, other) = two_stacks();
    let (mut client, mut server) = pair(&one, &other, ADDRESSES[0]);
    let (listener, address) = listen(&other, ADDRESSES[0]);
    std::thread::scope(|scope| {
        let read = scope.spawn(|| client.read(&mut [0]).unwrap_err().kind());
        let accept = scope.spawn(|| listener.accept().unwrap_err().kind());
        switch.end();
        assert_eq!(read.join().unwrap(), ErrorKind::ConnectionReset);
        assert_eq!(accept.join().unwrap(), ErrorKind::ConnectionReset);
    });
    assert_eq!(server.write(b"x").unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert!(TcpStream::connect_timeout(&one, address, PATIENCE).is_err());
}

#[test]
fn options_and_addresses_that_cannot_be_are_refused_with_a_reason() {
    let switch = Switch::start();
    for options in [
        Options { mtu: 500, ..Options::default() },
        Options { mtu: 1 << 15, ..Options::default() },
        Options { receive_buffer: 0, ..Options::default() },
        Options { send_buffer: 1 << 30, ..Options::default() },
        Options { ring: 1000, ..Options::default() },
    ] {
        let error = Stack::with_options(&switch.path, options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{options:?}: {error}");
    }
    let error = Stack::open("/nowhere/packets").unwrap_err();
    assert!(error.to_string().contains("quicket switch packets starts one"), "{error}");
    let stack = switch.stack();
    let error = TcpListener::bind(&stack, "0.0.0.0:0".parse().unwrap()).unwrap_err();
    assert!(error.to_string().contains("bound to all addresses"), "{error}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let error = TcpListener::bind(&stack, taken.local_addr().unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse, "{error}");
}

/// Ports of one host may have longer packets than a network.
#[test]
fn other_sizes_work_too() {
    let switch = Switch::start();
    let large = Options { mtu: 16_000, receive_buffer: 1 << 20, ..Options::default() };
    let small = Options { mtu: 1280, receive_buffer: 4096, send_buffer: 4096, ring: 16 };
    for (one, other) in [(large, large), (small, small), (small, large)] {
        let (one, other) = (switch.stack_with(one), switch.stack_with(other));
        let (mut client, mut server) = pair(&one, &other, ADDRESSES[1]);
        let data = pattern(1 << 20);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                client.write_all(&data).unwrap();
                client.shutdown(Shutdown::Write).unwrap();
            });
            let mut all = Vec::new();
            server.read_to_end(&mut all).unwrap();
            assert!(all == data);
        });
    }
}
