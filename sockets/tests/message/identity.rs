//! Connection IDs, keys, tokens and tickets.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use quicket::message::raw::ConnectionIdInfo;
use quicket::message::{Errno, EventType, MsgFlags, Notification, Socket, StreamFlags};
use quicket::{StrikeAnswer, StrikeRegister, TicketId};

use crate::pair::{
    NEW, NEW_FIN, Tls, handshake, listener, pair, pair_with, recv, send, settle, socket,
};

fn info(dest: u8, active: u32, prior_to: u32) -> ConnectionIdInfo {
    ConnectionIdInfo { dest, active, prior_to }
}

/// Both sides have issued their connection IDs.
fn issued(socket: &Socket) -> bool {
    // More than the last one cannot be retired, so that this changes nothing.
    socket.set_connection_id(info(1, 0, 7)) == Err(Errno::EINVAL)
        && socket.set_connection_id(info(1, 6, 7)) == Err(Errno::EINVAL)
        && socket.connection_id(true).is_ok_and(|info| info.active == 0)
}

fn works(client: &Socket, server: &Socket) {
    let stream = quicket::message::StreamInfo::new(-1, NEW_FIN);
    client.send_message(b"works", Some(stream), MsgFlags::NONE).unwrap();
    assert_eq!(recv(server).0, b"works");
    server.send_message(b"well", None, StreamFlags::FIN.into()).unwrap();
    assert_eq!(recv(client).0, b"well");
}

#[test]
fn our_connection_ids_are_retired_on_request() {
    for of_server in [false, true] {
        let (client, server) = pair();
        works(&client, &server);
        let socket = if of_server { &server } else { &client };
        assert_eq!(socket.connection_id(false), Ok(info(0, 0, 0)));
        settle(|| socket.set_connection_id(info(0, 0, 2)) == Ok(()));
        settle(|| socket.connection_id(false) == Ok(info(0, 2, 2)));
        assert_eq!(socket.set_connection_id(info(0, 0, 2)), Err(Errno::EINVAL), "retired");
        assert_eq!(socket.set_connection_id(info(0, 0, 99)), Err(Errno::EINVAL), "not issued");
        assert_eq!(socket.set_connection_id(info(0, 2, 5)), Err(Errno::EINVAL), "not above");
        assert_eq!(socket.set_connection_id(info(0, 99, 0)), Err(Errno::EINVAL));
        assert_eq!(socket.set_connection_id(info(0, 8, 5)), Ok(()));
        settle(|| socket.connection_id(false) == Ok(info(0, 8, 5)));
        works(&client, &server);
    }
}

#[test]
fn connection_ids_of_the_peer_are_retired_and_chosen() {
    let (client, server) = pair();
    works(&client, &server);
    settle(|| issued(&client));
    assert_eq!(client.connection_id(true), Ok(info(1, 0, 0)));
    assert_eq!(client.set_connection_id(info(1, 0, 2)), Ok(()));
    assert_eq!(client.connection_id(true), Ok(info(1, 2, 2)));
    works(&client, &server);
    assert_eq!(client.set_connection_id(info(1, 4, 0)), Ok(()));
    assert_eq!(client.connection_id(true), Ok(info(1, 4, 2)), "in use, the others not retired");
    assert_eq!(client.set_connection_id(info(1, 3, 0)), Err(Errno::EINVAL), "counts as used");
    assert_eq!(client.set_connection_id(info(1, 0, 2)), Err(Errno::EINVAL));
    works(&client, &server);
    assert_eq!(client.set_connection_id(info(1, 0, 4)), Ok(()));
    assert_eq!(client.connection_id(true), Ok(info(1, 4, 4)));
    works(&client, &server);
}

#[test]
fn retired_connection_ids_are_told_one_by_one_on_both_sides() {
    let (client, server) = pair();
    works(&client, &server);
    settle(|| issued(&client));
    for socket in [&client, &server] {
        socket.set_event(EventType::ConnectionId, true);
    }
    client.set_connection_id(info(1, 0, 2)).unwrap();
    let told = |socket| match Notification::from_bytes(&recv(socket).0) {
        Some(Notification::ConnectionId(info)) => info,
        other => panic!("{other:?}"),
    };
    assert_eq!(told(&client).prior_to, 1);
    assert_eq!(told(&client), info(1, 2, 2));
    assert_eq!(told(&server), info(0, 1, 1));
    assert_eq!(told(&server), info(0, 2, 2));
}

#[test]
fn keys_are_updated_once_at_a_time() {
    let (client, server) = pair();
    works(&client, &server);
    assert_eq!(client.update_keys(), Ok(()));
    assert_eq!(client.update_keys(), Err(Errno::EINVAL), "the last one is under way");
    works(&client, &server);
    settle(|| client.update_keys() == Ok(()));
    works(&client, &server);
    settle(|| server.update_keys() == Ok(()));
    works(&client, &server);
}

#[test]
fn a_key_update_asked_for_early_happens_when_it_may() {
    let (client, server) = pair();
    // The handshake may not be confirmed yet.
    assert_eq!(client.update_keys(), Ok(()));
    server.set_event(EventType::KeyUpdate, true);
    works_after_update(&client, &server);
}

fn works_after_update(client: &Socket, server: &Socket) {
    let start = std::time::Instant::now();
    loop {
        let stream = quicket::message::StreamInfo::new(-1, NEW_FIN);
        client.send_message(b"x", Some(stream), MsgFlags::NONE).unwrap();
        let (bytes, message) = recv(server);
        if message.kind == quicket::message::MessageKind::Notification {
            assert_eq!(Notification::from_bytes(&bytes), Some(Notification::KeyUpdate(1)));
            return;
        }
        assert!(start.elapsed() < crate::pair::PATIENCE);
    }
}

#[test]
fn a_token_proves_the_address_on_the_next_connection() {
    let validate = |socket: &Socket| {
        let config = quicket::message::Config { validate_peer_address: 1, ..Default::default() };
        socket.set_config(&config).unwrap();
    };
    let listening = socket();
    listening.bind(crate::pair::ANY.parse().unwrap()).unwrap();
    validate(&listening);
    listening.listen(4).unwrap();
    let address = listening.local_addr();
    let tls = Tls::new();
    let first = socket();
    first.connect(address).unwrap();
    let (first, server) = handshake(&tls, &first, &listening);
    works(&first, &server);
    settle(|| !first.token().unwrap().is_empty());
    let token = first.token().unwrap();
    assert!(token.len() <= 120);
    let second = socket();
    second.set_token(&token).unwrap();
    assert_eq!(second.token(), Ok(token));
    second.connect(address).unwrap();
    let (second, server) = handshake(&tls, &second, &listening);
    works(&second, &server);
    assert_eq!(socket().set_token(b""), Err(Errno::EINVAL));
    assert_eq!(socket().set_token(&[0; 121]), Err(Errno::EINVAL));
    assert_eq!(server.token(), Err(Errno::EINVAL));
}

#[test]
fn one_token_is_on_its_way_at_a_time() {
    let (client, server) = pair();
    works(&client, &server);
    // Each may be acknowledged before the next is asked for, but not always.
    settle(|| server.set_token(b"").is_ok() && server.set_token(b"") == Err(Errno::EAGAIN));
    settle(|| server.set_token(b"") == Ok(()));
}

#[test]
fn a_session_is_resumed_with_early_data() {
    let (tls, (listening, address)) = (Tls::new(), listener());
    let server_tls = Arc::new(tls.server("test"));
    let connect = |ticket: Option<Vec<u8>>| {
        let client = socket();
        if let Some(ticket) = ticket {
            client.set_session_ticket(&ticket).unwrap();
            assert_eq!(client.session_ticket(), Ok(vec![]), "only while connecting");
        }
        client.connect(address).unwrap();
        client
    };
    let first = connect(None);
    assert_eq!(first.session_ticket(), Ok(vec![]));
    let accept = |client: &Socket| {
        let accepted = listening.accept().unwrap();
        accepted.accept_tls(Arc::clone(&server_tls)).unwrap();
        client.wait_established().unwrap();
        accepted
    };
    first.connect_tls_early(tls.client("test"), "localhost").unwrap();
    let server = accept(&first);
    works(&first, &server);
    settle(|| !first.session_ticket().unwrap().is_empty());
    let ticket = first.session_ticket().unwrap();
    assert_eq!(first.session(), Ok(ticket.clone()));
    assert_eq!(first.set_session(&ticket), Err(Errno::EINVAL), "too late");
    assert_eq!(server.session(), Err(Errno::EINVAL));
    assert_eq!(server.set_session(&ticket), Err(Errno::EINVAL));
    assert_eq!(socket().session(), Err(Errno::EINVAL));
    assert_eq!(socket().set_session(&[]), Err(Errno::EINVAL));
    // Longer than the option takes.
    assert_eq!(socket().set_session(&[0; 5000]), Ok(()));
    let second = connect(Some(ticket.clone()));
    assert_eq!(second.session_ticket(), Ok(ticket));
    second.connect_tls_early(tls.client("test"), "localhost").unwrap();
    assert_eq!(send(&second, b"early", 0, NEW_FIN), Ok(5));
    let server = accept(&second);
    assert_eq!(recv(&server).0, b"early");
    for bad in [63, 4097] {
        assert_eq!(second.set_session_ticket(&vec![0; bad]), Err(Errno::EINVAL));
    }
}

/// Is asked about early data of a connection, and uses that connection.
#[derive(Debug, Default)]
struct Curious {
    socket: Mutex<Option<Socket>>,
    asked: AtomicUsize,
}

impl StrikeRegister for Curious {
    fn ask(&self, _: &TicketId, _: u64, answer: StrikeAnswer) {
        let socket = self.socket.lock().unwrap().clone().expect("the socket of the connection");
        assert!(!socket.is_established());
        assert_eq!(socket.bytes_to_send(), Ok(0));
        let sent = send(&socket, b"x", 1, NEW | StreamFlags::DONTWAIT);
        assert!(sent.is_err(), "there are no keys yet");
        socket.set_event(EventType::StreamUpdate, true);
        self.asked.fetch_add(1, Ordering::SeqCst);
        answer.give(true);
    }
}

#[test]
fn a_strike_register_may_use_the_connection_that_asks() {
    let (tls, (listening, address)) = (Tls::new(), listener());
    let register = Arc::new(Curious::default());
    let server_tls = Arc::new(tls.server_with("test", register.clone()));
    let connect = |ticket: Option<Vec<u8>>| {
        let client = socket();
        if let Some(ticket) = &ticket {
            client.set_session_ticket(ticket).unwrap();
        }
        client.connect(address).unwrap();
        client.connect_tls_early(tls.client("test"), "localhost").unwrap();
        if ticket.is_some() {
            assert_eq!(send(&client, b"early", 0, NEW_FIN), Ok(5));
        }
        let accepted = listening.accept().unwrap();
        *register.socket.lock().unwrap() = Some(accepted.clone());
        accepted.accept_tls(Arc::clone(&server_tls)).unwrap();
        client.wait_established().unwrap();
        (client, accepted)
    };
    let (client, server) = connect(None);
    works(&client, &server);
    settle(|| !client.session_ticket().unwrap().is_empty());
    let (_client, server) = connect(Some(client.session_ticket().unwrap()));
    assert_eq!(register.asked.load(Ordering::SeqCst), 1);
    assert!(server.event(EventType::StreamUpdate), "what it did has come to pass");
    while recv(&server).0 != b"early" {}
}

#[test]
fn a_server_has_a_master_key_of_tickets_for_each_client() {
    let (_client, server) = pair();
    let key = server.session_ticket().unwrap();
    assert_eq!(key.len(), 64);
    assert_eq!(server.session_ticket(), Ok(key.clone()));
    server.set_session_ticket(&[7; 64]).unwrap();
    assert_eq!(server.session_ticket(), Ok(vec![7; 64]));
    let (_client, other) = pair_with(|_| (), |_| ());
    assert_ne!(other.session_ticket().unwrap(), key, "another listener, another key");
}
