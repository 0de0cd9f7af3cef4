//! Moving a connection to other addresses.

use std::net::SocketAddr;

use quicket::message::{
    Errno, EventType, MessageKind, MsgFlags, Notification, Socket, StreamFlags, StreamInfo,
    TransportParam,
};

use quicket_testing::free_port;

use crate::pair::{ANY, NEW_FIN, Tls, handshake, listener, pair, pair_with, recv, settle, socket};

/// An address that nobody uses.
pub(crate) fn free_address() -> SocketAddr {
    ([127, 0, 0, 1], free_port()).into()
}

fn works(client: &Socket, server: &Socket) {
    let stream = StreamInfo::new(-1, NEW_FIN);
    client.send_message(b"works", Some(stream), MsgFlags::NONE).unwrap();
    assert_eq!(data(server), b"works");
    server.send_message(b"well", None, StreamFlags::FIN.into()).unwrap();
    assert_eq!(data(client), b"well");
}

/// The next stream data.
fn data(socket: &Socket) -> Vec<u8> {
    loop {
        let (data, message) = recv(socket);
        if matches!(message.kind, MessageKind::Stream(_)) {
            return data;
        }
    }
}

fn moved(socket: &Socket) -> u8 {
    match Notification::from_bytes(&recv(socket).0) {
        Some(Notification::ConnectionMigration(local)) => local,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_client_moves_and_both_sides_are_told() {
    let (client, server) = pair();
    works(&client, &server);
    for socket in [&client, &server] {
        socket.set_event(EventType::ConnectionMigration, true);
    }
    let (before, after) = (client.local_addr(), free_address());
    settle(|| client.migrate(after) == Ok(()));
    assert_eq!(moved(&client), 1, "this side's address");
    assert_eq!(client.local_addr(), after);
    works(&client, &server);
    settle(|| server.peer_addr() == Ok(after));
    assert_ne!(before, after);
    assert_eq!(client.migrate(after), Err(Errno::EINVAL), "already there");
}

#[test]
fn the_server_is_told_that_its_client_has_moved() {
    let (client, server) = pair();
    works(&client, &server);
    server.set_event(EventType::ConnectionMigration, true);
    let after = free_address();
    settle(|| client.migrate(after) == Ok(()));
    settle(|| client.local_addr() == after);
    let stream = StreamInfo::new(-1, NEW_FIN);
    client.send_message(b"from there", Some(stream), MsgFlags::NONE).unwrap();
    assert_eq!(moved(&server), 0, "the peer's address");
    assert_eq!(data(&server), b"from there");
}

#[test]
fn moves_that_cannot_be_are_refused() {
    let (client, server) = pair();
    works(&client, &server);
    assert_eq!(client.migrate("127.0.0.1:0".parse().unwrap()), Err(Errno::EINVAL));
    assert_eq!(client.migrate("[::1]:9".parse().unwrap()), Err(Errno::EINVAL));
    assert_eq!(client.migrate(client.local_addr()), Err(Errno::EINVAL));
    assert_eq!(server.migrate(free_address()), Err(Errno::EINVAL), "servers do not move");
    let taken = std::net::UdpSocket::bind(ANY).unwrap();
    settle(|| client.migrate(taken.local_addr().unwrap()) == Err(Errno::EADDRINUSE));
    works(&client, &server);
}

#[test]
fn a_server_that_forbids_moves_is_obeyed() {
    let (client, server) = pair_with(
        |_| (),
        |socket| {
            let param = TransportParam { disable_active_migration: 1, ..Default::default() };
            socket.set_transport_param(&param).unwrap();
        },
    );
    works(&client, &server);
    assert_eq!(client.transport_param(true).disable_active_migration, 1);
    assert_eq!(client.migrate(free_address()), Err(Errno::EINVAL));
}

#[test]
fn a_client_moves_to_the_preferred_address_of_its_server() {
    let (tls, (listening, address)) = (Tls::new(), listener());
    let preferred = free_address();
    let client = socket();
    client.set_event(EventType::ConnectionMigration, true);
    client.connect(address).unwrap();
    assert_eq!(client.migrate(preferred), Err(Errno::EINVAL), "a client has none");
    let server = std::thread::scope(|scope| {
        let accepted = scope.spawn(|| {
            let accepted = listening.accept().unwrap();
            accepted.migrate(preferred).unwrap();
            accepted.accept_tls(tls.server("test")).unwrap();
            accepted
        });
        client.connect_tls(tls.client("test"), "localhost").unwrap();
        accepted.join().unwrap()
    });
    settle(|| client.peer_addr() == Ok(preferred));
    works(&client, &server);
    assert_eq!(server.local_addr(), preferred);
    // Others still begin where the server listens.
    let other = socket();
    other.connect(address).unwrap();
    let (other, server) = handshake(&tls, &other, &listening);
    works(&other, &server);
    assert_eq!(other.peer_addr(), Ok(address));
}
