//! Connections that move to other addresses (RFC 9000, Section 9).

mod common;

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use common::{Pattern, configs, exchange, pair_with};
use quicket::{Connection, Endpoint, Listener, MigrateError, ServerConfig};

/// Exchanges data until the server sees the client at another address.
fn exchange_until_moved(client: &Connection, server: &Connection, from: SocketAddr) -> SocketAddr {
    let deadline = Instant::now() + Duration::from_secs(10);
    while server.remote_addr() == from {
        assert!(Instant::now() < deadline, "still at {from}");
        exchange(client, server);
        thread::sleep(Duration::from_millis(2));
    }
    exchange(client, server);
    server.remote_addr()
}

#[test]
fn a_client_moves_to_a_socket_of_its_choice() {
    let (client, server) = pair_with(configs());
    exchange(&client, &server);
    let before = server.remote_addr();
    client.migrate("127.0.0.1:0".parse().unwrap()).unwrap();
    let after = exchange_until_moved(&client, &server, before);
    assert_ne!(before.port(), after.port());
    assert_eq!(client.path().local, Some(after));
    // And on, to a wildcard address.
    client.migrate("0.0.0.0:0".parse().unwrap()).unwrap();
    assert_ne!(exchange_until_moved(&client, &server, after), before);
}

#[test]
fn an_endpoint_moves_with_all_its_connections() {
    let (server, client) = configs();
    let listener = Listener::bind("127.0.0.1:0", server).unwrap();
    let endpoint = Endpoint::bind("127.0.0.1:0").unwrap();
    let pairs: Vec<_> = (0..3)
        .map(|_| {
            let address = listener.local_addr();
            let connection = endpoint.connect(address, "localhost", &client).unwrap();
            let accepted = listener.accept().unwrap();
            exchange(&connection, &accepted);
            (connection, accepted)
        })
        .collect();
    let before = endpoint.local_addr();
    endpoint.rebind("127.0.0.1:0".parse().unwrap()).unwrap();
    assert_ne!(endpoint.local_addr(), before);
    for (connection, accepted) in &pairs {
        assert_eq!(exchange_until_moved(connection, accepted, before), endpoint.local_addr());
    }
    let connection = endpoint.connect(listener.local_addr(), "localhost", &client).unwrap();
    let accepted = listener.accept().unwrap();
    assert_eq!(accepted.remote_addr(), endpoint.local_addr());
    exchange(&connection, &accepted);
}

#[test]
fn a_transfer_goes_on_while_the_client_moves() {
    let (client, server) = pair_with(configs());
    thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let (mut stream, mut pattern) = (server.accept_uni().unwrap(), Pattern::new(1));
            let (mut part, mut total) = (vec![0; 1 << 18], 0);
            loop {
                let length = stream.read(&mut part).unwrap();
                if length == 0 {
                    return total;
                }
                assert!(pattern.matches(&part[..length]), "other data after {total} bytes");
                total += length;
            }
        });
        let (mut stream, mut pattern) = (client.open_uni().unwrap(), Pattern::new(1));
        let (mut part, mut written) = (vec![0; 1 << 18], 0);
        let mut write_a_part = || {
            pattern.fill(&mut part);
            stream.write_all(&part).unwrap();
            written += part.len();
        };
        let deadline = Instant::now() + Duration::from_secs(60);
        for _ in 0..4 {
            let from = server.remote_addr();
            // Not possible while the last move is under way.
            while client.migrate("127.0.0.1:0".parse().unwrap()).is_err() {
                assert!(Instant::now() < deadline, "cannot leave {from}");
                write_a_part();
            }
            while server.remote_addr() == from {
                assert!(Instant::now() < deadline, "the server still sees {from}");
                write_a_part();
            }
            write_a_part();
        }
        stream.finish().unwrap();
        assert_eq!(stream.stopped().unwrap(), None);
        assert_eq!(reading.join().unwrap(), written);
    });
}

#[test]
fn servers_do_not_move_and_may_forbid_it() {
    let (client, server) = pair_with(configs());
    let error = server.migrate("127.0.0.1:0".parse().unwrap()).unwrap_err();
    assert!(matches!(error, MigrateError::Refused(_)), "{error:?}");
    drop((client, server));
    let (server, client): (ServerConfig, _) = configs();
    let (client, server) = pair_with((server.migration(false), client));
    exchange(&client, &server);
    let error = client.migrate("127.0.0.1:0".parse().unwrap()).unwrap_err();
    assert!(error.to_string().contains("server"), "{error}");
    exchange(&client, &server);
}

#[test]
fn a_client_moves_to_the_preferred_address_on_another_socket_of_the_server() {
    let endpoint = Endpoint::bind("127.0.0.1:0").unwrap();
    let preferred = endpoint.also_bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let (server, client) = configs();
    let listener = endpoint.listen(server.preferred_address(preferred)).unwrap();
    let first = endpoint.local_addr();
    let (client, server) = thread::scope(|scope| {
        let accepted = scope.spawn(|| listener.accept().unwrap());
        (Connection::connect(first, "localhost", &client).unwrap(), accepted.join().unwrap())
    });
    let deadline = Instant::now() + Duration::from_secs(30);
    while client.remote_addr() == first {
        assert!(Instant::now() < deadline, "the client is still at {first}");
        exchange(&client, &server);
        thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(client.remote_addr(), preferred);
    exchange(&client, &server);
}
