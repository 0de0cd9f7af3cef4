//! Data in quantity: large, many, at once, under bad conditions.

mod common;

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use common::{Pattern, check, configs, configs_with, pair, pair_with};
use quicket::{
    Connection, Endpoint, EndpointConfig, Listener, ReadError, RecvStream, SendStream, Stream,
    TransportConfig, UdpConfig,
};

const MIB: usize = 1 << 20;

fn send(stream: &mut SendStream, seed: u64, len: usize) {
    let mut pattern = Pattern::new(seed);
    let mut left = len;
    let mut buffer = vec![0; 100_000];
    while left > 0 {
        let part = &mut buffer[..left.min(100_000)];
        pattern.fill(part);
        stream.write_all(part).unwrap();
        left -= part.len();
    }
    stream.finish().unwrap();
}

fn receive(stream: &mut RecvStream, seed: u64) -> usize {
    let mut pattern = Pattern::new(seed);
    let mut buffer = vec![0; 70_000];
    let mut total = 0;
    loop {
        let len = stream.read(&mut buffer).unwrap();
        if len == 0 {
            return total;
        }
        assert!(pattern.matches(&buffer[..len]), "wrong byte after {total}");
        total += len;
    }
}

/// Sends `len` bytes each way on one stream, at the same time.
fn exchange(stream: Stream, seeds: (u64, u64), len: usize) {
    let (mut sender, mut receiver) = stream.split();
    thread::scope(|scope| {
        scope.spawn(|| send(&mut sender, seeds.0, len));
        assert_eq!(receive(&mut receiver, seeds.1), len);
    });
}

fn both_ways(client: &Connection, server: &Connection, len: usize) {
    thread::scope(|scope| {
        scope.spawn(|| exchange(server.accept_bi().unwrap(), (2, 1), len));
        exchange(client.open_bi().unwrap(), (1, 2), len);
    });
}

#[test]
fn a_large_transfer_both_ways_arrives_intact() {
    let (client, server) = pair();
    both_ways(&client, &server, 64 * MIB);
}

#[test]
fn small_windows_and_buffers_slow_a_transfer_but_do_not_stop_it() {
    let transport = TransportConfig {
        initial_stream_window: 2000,
        max_stream_window: 2000,
        initial_receive_window: 3000,
        max_receive_window: 3000,
        stream_send_buffer: 1500,
        send_buffer: 1500,
        ..TransportConfig::default()
    };
    let (client, server) = pair_with(configs_with(transport));
    both_ways(&client, &server, 300_000);
}

#[test]
fn many_streams_one_after_the_other_and_at_once() {
    let (client, server) = pair();
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..2000 {
                let mut stream = server.accept_bi().unwrap();
                let request = stream.read_to_end(100).unwrap();
                stream.write_all(&request).unwrap();
            }
        });
        let mut open = Vec::new();
        for i in 0..2000_u32 {
            let mut stream = client.open_bi().unwrap();
            stream.write_all(&i.to_be_bytes()).unwrap();
            stream.finish().unwrap();
            open.push((i, stream));
            if open.len() == 50 {
                for (i, mut stream) in open.drain(..) {
                    assert_eq!(stream.read_to_end(4).unwrap(), i.to_be_bytes());
                }
            }
        }
    });
    client.close(0, b"");
}

/// The server fills the window of the connection on all of them in turns, while the client waits
/// for the rest of the first.
#[test]
fn many_streams_that_are_read_one_after_the_other_do_not_block_each_other() {
    const STREAMS: u64 = 100;
    const LEN: usize = 100_000;
    let (client, server) = pair();
    thread::scope(|scope| {
        scope.spawn(|| {
            let streams: Vec<_> = (0..STREAMS).map(|_| server.accept_bi().unwrap()).collect();
            thread::scope(|scope| {
                for stream in streams {
                    let seed = stream.id().into();
                    let (mut stream, _) = stream.split();
                    scope.spawn(move || send(&mut stream, seed, LEN));
                }
            });
            server.closed();
        });
        let mut streams: Vec<_> = (0..STREAMS).map(|_| client.open_bi().unwrap()).collect();
        for stream in &mut streams {
            stream.finish().unwrap();
        }
        for stream in streams {
            let seed = stream.id().into();
            let (_, mut stream) = stream.split();
            stream.set_read_timeout(Some(Duration::from_secs(20)));
            assert_eq!(receive(&mut stream, seed), LEN);
        }
        client.close(0, b"");
    });
}

#[test]
fn threads_share_a_connection() {
    let (client, server) = pair();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let mut stream = server.accept_bi().unwrap();
                    let mut seed = [0; 8];
                    stream.read_exact(&mut seed).unwrap();
                    let seed = u64::from_be_bytes(seed);
                    assert_eq!(receive(stream.recv(), seed), 200_000);
                    send(stream.send(), seed + 1, 200_000);
                }
            });
        }
        for thread in 0..8_u64 {
            let client = &client;
            scope.spawn(move || {
                for i in 0..20 {
                    let seed = thread * 1000 + i;
                    let mut stream = client.open_bi().unwrap();
                    stream.write_all(&seed.to_be_bytes()).unwrap();
                    send(stream.send(), seed, 200_000);
                    assert_eq!(receive(stream.recv(), seed + 1), 200_000);
                }
            });
        }
    });
}

/// A server that checks and answers on each connection until it ends.
fn serve(listener: &Listener, connections: usize) {
    thread::scope(|scope| {
        for _ in 0..connections {
            let connection = listener.accept().unwrap();
            scope.spawn(move || {
                while let Ok(mut stream) = connection.accept_bi() {
                    assert_eq!(receive(stream.recv(), 5), 20_000);
                    send(stream.send(), 6, 20_000);
                }
            });
        }
    });
}

fn request(connection: &Connection) {
    let mut stream = connection.open_bi().unwrap();
    send(stream.send(), 5, 20_000);
    assert_eq!(receive(stream.recv(), 6), 20_000);
}

#[test]
fn a_hundred_connections_at_once() {
    let (server, client) = configs();
    let listener = Listener::bind("127.0.0.1:0", server).unwrap();
    let address = listener.local_addr();
    let endpoint = Endpoint::bind("127.0.0.1:0").unwrap();
    thread::scope(|scope| {
        scope.spawn(|| serve(&listener, 100));
        for _ in 0..100 {
            scope.spawn(|| {
                let connection = endpoint.connect(address, "localhost", &client).unwrap();
                request(&connection);
                request(&connection);
                connection.close(0, b"");
            });
        }
    });
    endpoint.wait_idle();
}

fn endpoint(address: &str, udp: UdpConfig) -> Endpoint {
    Endpoint::bind_with(address, EndpointConfig { udp, ..EndpointConfig::default() }).unwrap()
}

/// A transfer between endpoints whose sockets are made in some way.
fn transfer_over(client_address: &str, server_address: &str, to: &str, udp: &UdpConfig) {
    let (server, client) = configs();
    let listener = endpoint(server_address, udp.clone()).listen(server).unwrap();
    let to = SocketAddr::new(to.parse().unwrap(), listener.local_addr().port());
    let endpoint = endpoint(client_address, udp.clone());
    thread::scope(|scope| {
        let accepted = scope.spawn(|| listener.accept().unwrap());
        let connection = endpoint.connect(to, "localhost", &client).unwrap();
        let accepted = accepted.join().unwrap();
        both_ways(&connection, &accepted, 4 * MIB);
        assert_eq!(connection.remote_addr(), to);
        assert_eq!(accepted.remote_addr().ip(), to.ip());
        assert_eq!(accepted.path().local.map(|local| local.ip()), Some(to.ip()));
    });
}

#[test]
fn ipv4_and_ipv6_and_both_on_one_socket() {
    let udp = UdpConfig::default();
    transfer_over("127.0.0.1:0", "127.0.0.1:0", "127.0.0.1", &udp);
    transfer_over("0.0.0.0:0", "0.0.0.0:0", "127.0.0.1", &udp);
    transfer_over("[::1]:0", "[::1]:0", "::1", &udp);
    transfer_over("[::]:0", "[::]:0", "127.0.0.1", &udp);
    transfer_over("[::]:0", "[::]:0", "::1", &udp);
    transfer_over("127.0.0.1:0", "[::]:0", "127.0.0.1", &udp);
}

#[test]
fn without_segmentation_offload() {
    let udp = UdpConfig { segmentation_offload: false, ..UdpConfig::default() };
    transfer_over("127.0.0.1:0", "127.0.0.1:0", "127.0.0.1", &udp);
}

#[test]
fn socket_buffers_of_a_few_packets() {
    let udp = UdpConfig { receive_buffer: 8192, send_buffer: 4096, ..UdpConfig::default() };
    transfer_over("127.0.0.1:0", "127.0.0.1:0", "127.0.0.1", &udp);
}

#[test]
fn an_address_of_the_other_family_is_refused_with_advice() {
    let (_, client) = configs();
    let endpoint = Endpoint::bind("127.0.0.1:0").unwrap();
    let error = endpoint.connect("[::1]:9".parse().unwrap(), "localhost", &client).unwrap_err();
    assert!(error.to_string().contains("[::]"), "{error}");
}

#[test]
fn received_bytes_can_be_read_in_place() {
    let (client, server) = pair();
    thread::scope(|scope| {
        scope.spawn(|| send(&mut client.open_uni().unwrap(), 9, 3 * MIB));
        let mut stream = server.accept_uni().unwrap();
        let mut pattern = Pattern::new(9);
        let mut total = 0;
        // Takes a part of what it sees each time: the rest is seen again.
        while let Some(taken) = stream
            .read_chunk(|bytes, _| {
                let take = bytes.len().min(3333);
                assert!(pattern.matches(&bytes[..take]));
                take
            })
            .unwrap()
        {
            total += taken;
        }
        assert_eq!(total, 3 * MIB);
    });
    check(&client, &server);
}

#[test]
fn received_bytes_can_be_taken_and_kept() {
    let (client, server) = pair();
    let chunks = thread::scope(|scope| {
        scope.spawn(|| send(&mut client.open_uni().unwrap(), 9, 3 * MIB));
        let mut stream = server.accept_uni().unwrap();
        let mut chunks = Vec::new();
        // What is left of a chunk that was looked at is taken as well.
        let mut looked = [0; 5];
        stream.read_exact(&mut looked).unwrap();
        assert_eq!(stream.read_chunk(|bytes, _| bytes.len().min(1)).unwrap(), Some(1));
        while let Some(chunk) = stream.take_chunk().unwrap() {
            assert!((1..=64 << 10).contains(&chunk.len()));
            // Some are let go of meanwhile, by another thread.
            chunks.push(if chunks.len() % 3 == 2 {
                let len = chunk.len();
                scope.spawn(move || drop(chunk));
                Err(len)
            } else {
                Ok(chunk)
            });
        }
        assert_eq!(stream.take_chunk().unwrap().map(|chunk| chunk.len()), None, "it has ended");
        chunks
    });
    check(&client, &server);
    drop((client, server));
    // They outlive the connection.
    let mut pattern = Pattern::new(9);
    let skip = |pattern: &mut Pattern, len| pattern.fill(&mut vec![0; len]);
    skip(&mut pattern, 6);
    for chunk in chunks {
        match chunk {
            Ok(chunk) => assert!(pattern.matches(&chunk)),
            Err(len) => skip(&mut pattern, len),
        }
    }
}

#[test]
fn streams_that_are_reset_make_room_for_others() {
    // However they are read, and whether they are read at all (RFC 9000, Section 4.6).
    let transport = TransportConfig { max_streams_uni: 2, ..TransportConfig::default() };
    let (client, server) = pair_with(configs_with(transport));
    // Where there is no room, opening fails instead of waiting for ever.
    client.set_timeout(Some(Duration::from_secs(10)));
    server.set_timeout(Some(Duration::from_secs(10)));
    for round in 0..30 {
        let mut sender = client.open_uni().unwrap();
        sender.write_all(b"a part").unwrap();
        sender.reset(round).unwrap();
        let mut receiver = server.accept_uni().unwrap();
        let mut out = [0; 10];
        let error = loop {
            let read = match round % 4 {
                0 => receiver.read_chunk(|bytes, _| bytes.len()),
                1 => receiver.read_some(&mut out).map(Some),
                2 => receiver.take_chunk().map(|chunk| chunk.map(|chunk| chunk.len())),
                _ => break None,
            };
            if let Err(error) = read {
                break Some(error);
            }
        };
        let told = (round % 4 < 3).then_some(ReadError::Reset(round));
        assert_eq!(error, told);
    }
}
