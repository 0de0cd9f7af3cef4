//! Listeners that share an address, and which of them clients reach.

use std::net::SocketAddr;

use quicket::message::{Config, ConnectionClose, Errno, OptionName, Socket, TransportParam};
use quicket::{ClientTls, ServerTls, SwitchConfig, Workers};

use crate::pair::{ANY, NEW_FIN, Tls, handshake, listener, recv, send, settle, socket};

fn listening(address: SocketAddr, alpn: &str) -> Result<Socket, Errno> {
    let listening = socket();
    listening.bind(address)?;
    if !alpn.is_empty() {
        listening.set_alpn(alpn.as_bytes())?;
    }
    listening.listen(4)?;
    Ok(listening)
}

/// A client that performs its handshake in the background.
fn connect(address: SocketAddr, tls: ClientTls) -> std::thread::JoinHandle<Result<Socket, Errno>> {
    std::thread::spawn(move || {
        let client = socket();
        client.connect(address)?;
        client.connect_tls(tls, "localhost").map(|()| client)
    })
}

fn accept(listening: &Socket, tls: ServerTls) -> Socket {
    let accepted = listening.accept().unwrap();
    accepted.accept_tls(tls).unwrap();
    accepted
}

#[test]
fn clients_reach_the_listener_of_their_protocol() {
    let tls = Tls::new();
    let smbd = listening(ANY.parse().unwrap(), "smbd, h3").unwrap();
    let address = smbd.local_addr();
    let ksmbd = listening(address, "ksmbd").unwrap();
    assert_eq!(ksmbd.local_addr(), address);
    for (name, listening, other) in
        [("smbd", &smbd, &ksmbd), ("ksmbd", &ksmbd, &smbd), ("h3", &smbd, &ksmbd)]
    {
        let client = connect(address, tls.client(name));
        let server = accept(listening, tls.server(name));
        let client = client.join().unwrap().unwrap();
        assert_eq!(client.negotiated_alpn().as_deref(), Some(name.as_bytes()));
        send(&client, name.as_bytes(), 0, NEW_FIN).unwrap();
        assert_eq!(recv(&server).0, name.as_bytes());
        assert!(!other.poll_state().readable);
    }
    assert_eq!(smbd.alpn(), b"smbd,h3");
}

/// UDP sockets of this machine that are bound to a port.
fn udp_sockets(port: u16) -> usize {
    let all = std::fs::read_to_string("/proc/net/udp").unwrap();
    all.lines().filter(|line| line.contains(&format!(":{port:04X} 00000000:0000"))).count()
}

/// Each connection lives at one of them, and its socket is like any other.
#[test]
fn an_address_has_as_many_workers_as_its_listener_asks_for() {
    const WORKERS: usize = 3;
    let tls = Tls::new();
    let listening = socket();
    let number = OptionName::Workers.number();
    for wrong in [&257_u32.to_ne_bytes()[..], &[1, 0]] {
        assert_eq!(listening.set_option(number, wrong), Err(Errno::EINVAL));
    }
    listening.set_option(number, &0_u32.to_ne_bytes()).unwrap();
    let cores = std::thread::available_parallelism().unwrap().get();
    assert_eq!(listening.workers(), cores.min(quicket::MAX_WORKERS));
    listening.set_option(number, &(WORKERS as u32).to_ne_bytes()).unwrap();
    listening.bind(ANY.parse().unwrap()).unwrap();
    assert_eq!(listening.set_workers(Workers::One), Err(Errno::EINVAL), "it is bound");
    listening.set_alpn(b"test").unwrap();
    listening.listen(64).unwrap();
    let address = listening.local_addr();
    assert_eq!((listening.workers(), udp_sockets(address.port())), (WORKERS, WORKERS));
    let mut value = [0; 4];
    assert_eq!(listening.get_option(number, &mut value), Ok(4));
    assert_eq!(u32::from_ne_bytes(value), WORKERS as u32);

    let mut clients = Vec::new();
    for number in 0..12_u8 {
        let client = socket();
        client.connect(address).unwrap();
        let (client, server) = handshake(&tls, &client, &listening);
        assert_eq!(server.local_addr(), address);
        assert_eq!(server.peer_addr().unwrap().port(), client.local_addr().port());
        clients.push((number, client, server));
    }
    // Each of them is served by whoever has it, after the listener is closed too.
    drop(listening);
    for (number, client, server) in &clients {
        send(client, &vec![*number; 40_000], 0, NEW_FIN).unwrap();
        let mut received = Vec::new();
        while received.len() < 40_000 {
            received.extend(recv(server).0);
        }
        assert!(received.iter().all(|octet| octet == number));
    }
    drop(clients);
    settle(|| udp_sockets(address.port()) == 0);
}

/// Real processes that share an address are tests of the program `quicket`.
#[test]
fn what_a_program_is_called_at_the_switch_is_an_option() {
    let number = OptionName::Switch.number();
    let listening = socket();
    let mut value = [0; 64];
    assert_eq!((listening.program(), listening.get_option(number, &mut value)), (None, Ok(0)));
    for wrong in [&[b'x'; 65][..], b"two\nlines", b"\0", b"\xff"] {
        assert_eq!(listening.set_option(number, wrong), Err(Errno::EINVAL));
    }
    listening.set_option(number, b"").unwrap();
    let own = std::env::current_exe().unwrap();
    assert_eq!(listening.program().as_deref(), own.file_name().unwrap().to_str());
    listening.set_option(number, "büro".as_bytes()).unwrap();
    assert_eq!(listening.get_option(number, &mut value), Ok(5));
    assert_eq!(&value[..5], "büro".as_bytes());
    assert_eq!(listening.get_option(number, &mut value[..4]), Err(Errno::EINVAL));
    // Where nothing is to be started, the words say so.
    let nowhere = SwitchConfig::new("x").named("quicket-none").started_by(None);
    listening.set_switch(nowhere).unwrap();
    assert_eq!(listening.bind(ANY.parse().unwrap()), Err(Errno::ENOTCONN));
    assert!(listening.failure().unwrap().contains("quicket-none"));
    // A connection of one's own needs no switch.
    listening.connect(SocketAddr::new([127, 0, 0, 1].into(), 9)).unwrap();
    assert_eq!(listening.set_switch(SwitchConfig::new("x")), Err(Errno::EINVAL), "it is bound");
}

/// They wait at whichever worker, and the backlog is that of all.
#[test]
fn clients_that_nobody_accepted_are_turned_away_by_all_workers() {
    let tls = Tls::new();
    let listening = socket();
    listening.set_workers(Workers::Count(4)).unwrap();
    listening.bind(ANY.parse().unwrap()).unwrap();
    listening.set_alpn(b"test").unwrap();
    listening.listen(7).unwrap();
    let address = listening.local_addr();
    let clients: Vec<_> = (0..12).map(|_| connect(address, tls.client("test"))).collect();
    let refused = || clients.iter().filter(|client| client.is_finished()).count();
    settle(|| refused() == 4);
    drop(listening);
    for client in clients {
        let error = client.join().unwrap().unwrap_err();
        assert!(matches!(error, Errno::ECONNREFUSED | Errno::ECONNRESET), "{error:?}");
    }
}

#[test]
fn a_clients_favourite_decides_between_listeners() {
    let tls = Tls::new();
    let one = listening(ANY.parse().unwrap(), "one").unwrap();
    let address = one.local_addr();
    let two = listening(address, "two").unwrap();
    let client = connect(address, tls.client_of(&["none", "two", "one"]));
    let server = accept(&two, tls.server("two"));
    client.join().unwrap().unwrap();
    assert!(!one.poll_state().readable);
    drop(server);
}

#[test]
fn a_client_that_no_listener_speaks_to_is_turned_away() {
    let tls = Tls::new();
    let one = listening(ANY.parse().unwrap(), "one").unwrap();
    let address = one.local_addr();
    let client = connect(address, tls.client("two"));
    assert_eq!(client.join().unwrap().unwrap_err(), Errno::ECONNRESET);
    let client = connect(address, tls.client_without_alpn());
    assert_eq!(client.join().unwrap().unwrap_err(), Errno::ECONNRESET);
    assert!(!one.poll_state().readable);
    // A listener without protocols is there for those without.
    let open = listening(address, "").unwrap();
    let client = connect(address, tls.client_without_alpn());
    let _accepted = accept(&open, tls.server_without_alpn());
    client.join().unwrap().unwrap();
    let client = connect(address, tls.client("two"));
    assert_eq!(client.join().unwrap().unwrap_err(), Errno::ECONNRESET);
}

#[test]
fn protocols_belong_to_one_listener_unless_both_share_the_port() {
    let first = listening(ANY.parse().unwrap(), "a,b").unwrap();
    let address = first.local_addr();
    assert_eq!(listening(address, "b,c").unwrap_err(), Errno::EADDRINUSE, "some of them");
    assert_eq!(listening(address, "a,b").unwrap_err(), Errno::EADDRINUSE, "all of them");
    let sharing = |alpn: &str| {
        let socket = socket();
        socket.bind(address).unwrap();
        socket.set_alpn(alpn.as_bytes()).unwrap();
        socket.set_reuse_port(true);
        socket.listen(4).map(|()| socket)
    };
    assert_eq!(sharing("a,b").unwrap_err(), Errno::EADDRINUSE, "the other does not share");
    let one = sharing("x,y").unwrap();
    let other = sharing("y,x").expect("the order means nothing");
    assert_eq!(sharing("y").unwrap_err(), Errno::EADDRINUSE);
    let tls = Tls::new();
    let client = connect(address, tls.client("x"));
    settle(|| one.poll_state().readable || other.poll_state().readable);
    let reached = if one.poll_state().readable { &one } else { &other };
    let _accepted = accept(reached, tls.server("x"));
    client.join().unwrap().unwrap();
    drop(first);
    settle(|| listening(address, "b,c").is_ok());
}

#[test]
fn a_full_backlog_turns_clients_away() {
    let tls = Tls::new();
    let listening = socket();
    listening.bind(ANY.parse().unwrap()).unwrap();
    listening.listen(1).unwrap();
    let address = listening.local_addr();
    // One more than the backlog may wait.
    let mut waiting: Vec<_> = (0..3)
        .map(|_| {
            let client = socket();
            client.connect(address).unwrap();
            client.connect_tls_early(tls.client("test"), "localhost").unwrap();
            client
        })
        .collect();
    settle(|| waiting.iter().any(|client| client.poll_state().hup));
    let refused = waiting.iter().position(|client| client.poll_state().hup).unwrap();
    assert_eq!(waiting.remove(refused).wait_established(), Err(Errno::ECONNREFUSED));
    let _accepted = [(); 2].map(|()| accept(&listening, tls.server("test")));
    for client in &waiting {
        client.wait_established().unwrap();
    }
    listening.listen(5).unwrap();
}

#[test]
fn zero_stops_listening_and_turns_away_who_waits() {
    let tls = Tls::new();
    let (listening, address) = listener();
    let client = connect(address, tls.client("test"));
    settle(|| listening.poll_state().readable);
    std::thread::scope(|scope| {
        let accepted = scope.spawn(|| {
            let idle = socket();
            idle.bind(ANY.parse().unwrap()).unwrap();
            idle.set_alpn(b"never").unwrap();
            idle.listen(1).unwrap();
            let other = idle.clone();
            let waiting = std::thread::spawn(move || other.accept().unwrap_err());
            idle.listen(0).unwrap();
            waiting.join().unwrap()
        });
        assert_eq!(accepted.join().unwrap(), Errno::EINVAL, "who waits to accept hears of it");
    });
    listening.listen(0).unwrap();
    assert_eq!(client.join().unwrap().unwrap_err(), Errno::ECONNREFUSED);
    assert_eq!(listening.accept().unwrap_err(), Errno::EINVAL);
    // It can begin again.
    listening.listen(2).unwrap();
    let client = socket();
    client.connect(address).unwrap();
    handshake(&tls, &client, &listening);
}

#[test]
fn accepted_sockets_have_the_settings_of_their_listener() {
    let tls = Tls::new();
    let listening = socket();
    listening.bind(ANY.parse().unwrap()).unwrap();
    let param = TransportParam { max_data: 54_321, ..TransportParam::default() };
    listening.set_transport_param(&param).unwrap();
    let config = Config { congestion_control_algo: 1, ..Config::default() };
    listening.set_config(&config).unwrap();
    listening.set_send_buffer(77_777);
    listening.set_receive_buffer(88_888);
    listening.set_alpn(b"test").unwrap();
    listening.listen(1).unwrap();
    let client = socket();
    client.connect(listening.local_addr()).unwrap();
    let (client, server) = handshake(&tls, &client, &listening);
    assert_eq!(server.transport_param(false).max_data, 54_321);
    assert_eq!(client.transport_param(true).max_data, 54_321);
    assert_eq!(server.config().congestion_control_algo, 1);
    assert_eq!((server.send_buffer(), server.receive_buffer()), (77_777, 88_888));
    assert_eq!(server.alpn(), b"test");
    assert_eq!(server.connection_close(), ConnectionClose::default());
}

#[test]
fn clients_share_an_address_with_a_listener_and_with_each_other() {
    let tls = Tls::new();
    let (listening, address) = listener();
    let (other_listening, other_address) = listener();
    let clients: Vec<_> = (0..2)
        .map(|_| {
            let client = socket();
            client.bind(other_address).unwrap();
            client.connect(address).unwrap();
            let (client, server) = handshake(&tls, &client, &listening);
            assert_eq!(client.local_addr(), other_address);
            assert_eq!(server.peer_addr(), Ok(other_address));
            (client, server)
        })
        .collect();
    for (number, (client, server)) in clients.iter().enumerate() {
        let text = [number as u8; 9];
        send(client, &text, 0, NEW_FIN).unwrap();
        assert_eq!(recv(server).0, text);
    }
    drop(other_listening);
    // What is open goes on, and the address is free once the last has gone.
    send(&clients[0].0, b"on", 4, NEW_FIN).unwrap();
    assert_eq!(recv(&clients[0].1).0, b"on");
    drop(clients);
    drop(listening);
    settle(|| std::net::UdpSocket::bind(other_address).is_ok());
    settle(|| std::net::UdpSocket::bind(address).is_ok());
}

#[test]
fn an_address_can_be_taken_again_at_once() {
    let (listening, address) = listener();
    for _ in 0..20 {
        let again = socket();
        drop(again);
    }
    drop(listening);
    for _ in 0..20 {
        let again = socket();
        again.bind(address).unwrap();
        again.listen(1).unwrap();
    }
}

/// A socket that is bound to all addresses of a family.
fn anywhere(address: &str) -> Socket {
    let address: SocketAddr = address.parse().unwrap();
    let socket = if address.is_ipv6() { Socket::new_v6() } else { Socket::new_v4() };
    socket.bind(address).unwrap();
    socket
}

#[test]
fn a_listener_for_ipv6_serves_both_families() {
    let tls = Tls::new();
    let listening = Socket::new_v6();
    listening.set_receive_timeout(Some(crate::pair::PATIENCE));
    listening.bind("[::]:0".parse().unwrap()).unwrap();
    listening.listen(4).unwrap();
    let port = listening.local_addr().port();
    for (client, host) in [
        (socket(), "127.0.0.1"),
        (Socket::new_v6(), "::1"),
        (Socket::new_v6(), "127.0.0.1"),
        (Socket::new_v6(), "::ffff:127.0.0.1"),
        (anywhere("0.0.0.0:0"), "127.0.0.1"),
        (anywhere("[::]:0"), "127.0.0.1"),
        (anywhere("[::]:0"), "::1"),
    ] {
        client.set_receive_timeout(Some(crate::pair::PATIENCE));
        client.connect(SocketAddr::new(host.parse().unwrap(), port)).unwrap();
        assert!(!client.local_addr().ip().is_unspecified(), "the route has settled it");
        let (client, server) = handshake(&tls, &client, &listening);
        send(&client, host.as_bytes(), 0, NEW_FIN).unwrap();
        assert_eq!(recv(&server).0, host.as_bytes());
        let canonical = |address: SocketAddr| (address.ip().to_canonical(), address.port());
        assert_eq!(server.peer_addr().map(canonical), Ok(canonical(client.local_addr())));
        assert_eq!(server.peer_addr().map(|address| address.is_ipv4()), Ok(host.contains('.')));
        assert_eq!(client.peer_addr().map(|address| address.is_ipv4()), Ok(host.contains('.')));
    }
}
