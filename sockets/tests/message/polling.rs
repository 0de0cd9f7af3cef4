//! What poll(2) would say.

use std::sync::Arc;
use std::task::Waker;

use quicket::message::{Errno, PollId, PollState, Shutdown, Socket, StreamFlags};
use quicket_testing::WakeCount;

use crate::pair::{NEW_FIN, Tls, handshake, listener, pair, recv, send, settle, socket};

const NOTHING: PollState = PollState { readable: false, writable: false, hup: false, err: false };
const ENDED: PollState = PollState { readable: true, writable: true, hup: true, err: true };
const WRITABLE: PollState = PollState { writable: true, ..NOTHING };

#[test]
fn each_state_shows() {
    let unused = Socket::new_v4();
    assert_eq!(unused.poll_state(), ENDED);
    let (listening, address) = listener();
    assert_eq!(listening.poll_state(), NOTHING);
    let client = socket();
    client.connect(address).unwrap();
    assert_eq!(client.poll_state(), NOTHING, "no limits are known yet");
    let (client, server) = handshake(&Tls::new(), &client, &listening);
    assert_eq!(server.poll_state(), WRITABLE);
    assert_eq!(client.poll_state(), WRITABLE);
    send(&client, b"x", 0, NEW_FIN).unwrap();
    settle(|| server.poll_state() == PollState { readable: true, ..WRITABLE });
    recv(&server);
    assert_eq!(server.poll_state(), WRITABLE);
    server.shutdown(Shutdown::Write).unwrap();
    assert_eq!(server.poll_state(), ENDED);
    settle(|| client.poll_state() == ENDED);
    listening.listen(0).unwrap();
    assert_eq!(listening.poll_state(), ENDED);
}

#[test]
fn a_listener_is_readable_once_a_client_is_there() {
    let (listening, address) = listener();
    let client = socket();
    client.connect(address).unwrap();
    std::thread::scope(|scope| {
        let tls = Tls::new();
        let connecting = {
            let tls = tls.client("test");
            let client = client.clone();
            scope.spawn(move || client.connect_tls(tls, "localhost"))
        };
        settle(|| listening.poll_state().readable);
        listening.set_nonblocking(true);
        let server = listening.accept().unwrap();
        assert!(!server.is_nonblocking(), "that is not passed on");
        assert_eq!(listening.accept().unwrap_err(), Errno::EAGAIN);
        assert!(!listening.poll_state().readable);
        assert!(server.poll_state().readable, "the ClientHello");
        server.accept_tls(tls.server("test")).unwrap();
        assert!(!server.poll_state().readable);
        connecting.join().unwrap().unwrap();
    });
}

#[test]
fn a_waker_is_woken_by_messages_and_by_the_end() {
    let (client, server) = pair();
    let count = Arc::new(WakeCount::default());
    let (id, waker) = (PollId::unique(), Waker::from(Arc::clone(&count)));
    let woken = || count.take() > 0;
    while server.poll_change(&id, &waker).readable {
        recv(&server);
    }
    send(&client, b"x", 0, NEW_FIN).unwrap();
    settle(|| woken() && server.poll_change(&id, &waker).readable || server.poll_state().readable);
    recv(&server);
    let _ = server.poll_change(&id, &waker);
    woken();
    let _ = server.poll_change(&id, &waker);
    client.shutdown(Shutdown::Both).unwrap();
    settle(woken);
    settle(|| server.poll_state().hup);
}

#[test]
fn a_listener_wakes_who_polls_it() {
    let (listening, address) = listener();
    let count = Arc::new(WakeCount::default());
    let (id, waker) = (PollId::unique(), Waker::from(Arc::clone(&count)));
    assert!(!listening.poll_change(&id, &waker).readable);
    let client = socket();
    client.connect(address).unwrap();
    client.set_nonblocking(true);
    let _ = client.connect_tls(Tls::new().client("test"), "localhost");
    settle(|| count.get() > 0);
    assert!(listening.poll_state().readable);
}

#[test]
fn queues_are_counted() {
    let (client, server) = pair();
    settle(|| client.bytes_to_send() == Ok(0));
    send(&client, &[7; 3000], 0, StreamFlags::NEW).unwrap();
    settle(|| server.bytes_to_receive() == Ok(3000));
    settle(|| client.bytes_to_send() == Ok(0));
    assert_eq!(client.bytes_unsent(), Ok(0));
    let mut buffer = [0; 1000];
    server.recv_message(&mut buffer, quicket::message::MsgFlags::NONE).unwrap();
    assert_eq!(server.bytes_to_receive(), Ok(2000));
}
