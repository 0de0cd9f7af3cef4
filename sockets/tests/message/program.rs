//! Handshakes that the program performs, with a TLS library on its side of the socket.

use quicket::ServerTls;
use quicket::message::raw::{
    CRYPTO_SECRET_SIZE, CryptoSecret, Raw, TLS_CIPHER_AES_CCM_128, TLS_CIPHER_AES_GCM_128,
    TLS_CIPHER_AES_GCM_256, TLS_CIPHER_CHACHA20_POLY1305,
};
use quicket::message::{
    Config, CryptoLevel, Errno, EventType, MessageKind, MsgFlags, Notification, OptionName, Socket,
    StreamFlags, StreamInfo, TransportParam,
};
use quicket_engine::crypto::{
    Aead, Direction, Handshake, HandshakeEvent, HandshakeStart, Level, Secret, TlsConfig,
};

use crate::pair::{NEW_FIN, Tls, listener, recv, send, settle, socket};

/// A program with its TLS session.
struct Program {
    socket: Socket,
    tls: Box<dyn Handshake>,
    is_server: bool,
    complete: bool,
    /// What the library says only for its own use later.
    tickets: Vec<Vec<u8>>,
    early_data: Option<bool>,
    /// The key for sending at the Handshake level comes after what is received there, as GnuTLS
    /// has it with early data.
    sends_late: bool,
    late_secret: Option<Vec<u8>>,
    /// What the program says in place of what TLS read.
    peer_parameters: Option<Vec<u8>>,
}

fn level_number(level: Level) -> CryptoLevel {
    match level {
        Level::Initial => CryptoLevel::Initial,
        Level::EarlyData => CryptoLevel::Early,
        Level::Handshake => CryptoLevel::Handshake,
        Level::OneRtt => CryptoLevel::App,
    }
}

fn raw_secret(level: Level, direction: Direction, secret: &Secret) -> CryptoSecret {
    let mut bytes = [0; CRYPTO_SECRET_SIZE];
    bytes[..secret.as_bytes().len()].copy_from_slice(secret.as_bytes());
    CryptoSecret {
        send: u8::from(direction == Direction::Send),
        level: level_number(level).number(),
        kind: match secret.aead() {
            Aead::Aes128Gcm => TLS_CIPHER_AES_GCM_128,
            Aead::Aes256Gcm => TLS_CIPHER_AES_GCM_256,
            Aead::ChaCha20Poly1305 => TLS_CIPHER_CHACHA20_POLY1305,
            Aead::Aes128Ccm => TLS_CIPHER_AES_CCM_128,
        },
        secret: bytes,
    }
}

/// What TLS announces.
fn own_parameters(socket: &Socket) -> Vec<u8> {
    let mut parameters = vec![0; 512];
    let len = socket.get_option(OptionName::TransportParamExt.number(), &mut parameters).unwrap();
    parameters.truncate(len);
    parameters
}

impl Program {
    fn client(socket: &Socket, config: &dyn TlsConfig, resume: Option<&[u8]>) -> Self {
        let parameters = own_parameters(socket);
        let start = HandshakeStart {
            server_name: "localhost",
            peer: None,
            transport_parameters: &parameters,
            resume,
            early_data: resume.is_some(),
        };
        Self::new(socket, config.start_client(&start).unwrap(), false)
    }

    fn new(socket: &Socket, tls: Box<dyn Handshake>, is_server: bool) -> Self {
        Self {
            socket: socket.clone(),
            tls,
            is_server,
            complete: false,
            tickets: Vec::new(),
            early_data: None,
            sends_late: false,
            late_secret: None,
            peer_parameters: None,
        }
    }

    fn server(socket: &Socket, config: &dyn TlsConfig) -> Self {
        // The ClientHello can be received before the parameters are settled.
        let mut buffer = vec![0; 1 << 14];
        let hello = socket.recv_message(&mut buffer, MsgFlags::NONE).unwrap();
        assert_eq!(hello.kind, MessageKind::Handshake(CryptoLevel::Initial.number()));
        let parameters = own_parameters(socket);
        let start = HandshakeStart {
            server_name: "",
            peer: None,
            transport_parameters: &parameters,
            resume: None,
            early_data: true,
        };
        let mut this = Self::new(socket, config.start_server(&start).unwrap(), true);
        this.tls.read(Level::Initial, &buffer[..hello.len]).unwrap();
        this
    }

    /// Does what TLS asks for.
    fn drive(&mut self) {
        // Its register answers at once.
        while let Some(call) = self.tls.poll_deferred() {
            call(std::task::Waker::noop());
        }
        while let Some(event) = self.tls.poll().unwrap() {
            let socket = &self.socket;
            match event {
                HandshakeEvent::Send(level, data) => {
                    let level = level_number(level);
                    assert_eq!(socket.send_handshake(&data, level, MsgFlags::NONE), Ok(data.len()));
                }
                HandshakeEvent::Secret(level, direction, secret) => {
                    let secret = raw_secret(level, direction, &secret).to_bytes();
                    let late = self.sends_late && level == Level::Handshake;
                    if late && direction == Direction::Send {
                        self.late_secret = Some(secret);
                        continue;
                    }
                    socket.set_option(OptionName::CryptoSecret.number(), &secret).unwrap();
                }
                HandshakeEvent::PeerTransportParameters(encoded) => {
                    let encoded = self.peer_parameters.take().unwrap_or(encoded);
                    let option = OptionName::TransportParamExt.number();
                    socket.set_option(option, &encoded).unwrap();
                }
                HandshakeEvent::Complete(_) => self.complete = true,
                HandshakeEvent::SessionTicket(ticket) => self.tickets.push(ticket),
                HandshakeEvent::EarlyData(accepted) => self.early_data = Some(accepted),
            }
        }
    }

    /// Performs the handshake to its end.
    fn perform(mut self) -> Self {
        self.drive();
        while !self.complete {
            let (data, message) = recv(&self.socket);
            let MessageKind::Handshake(number) = message.kind else {
                // Early data may come before the end of it.
                panic!("{message:?}")
            };
            let level = match CryptoLevel::from_number(number).unwrap() {
                CryptoLevel::Initial => Level::Initial,
                CryptoLevel::Handshake => Level::Handshake,
                other => panic!("{other:?}"),
            };
            if level == Level::Handshake
                && let Some(secret) = self.late_secret.take()
            {
                // Acknowledgments have long been due.
                std::thread::sleep(std::time::Duration::from_millis(30));
                self.socket.set_option(OptionName::CryptoSecret.number(), &secret).unwrap();
            }
            self.tls.read(level, &data).unwrap();
            self.drive();
        }
        assert!(self.socket.is_established(), "server: {}", self.is_server);
        self
    }

    /// Hands a ticket from the socket to TLS.
    fn take_ticket(&mut self) -> Vec<u8> {
        settle(|| self.socket.session_ticket().is_ok_and(|ticket| !ticket.is_empty()));
        let message = self.socket.session_ticket().unwrap();
        self.tls.read(Level::OneRtt, &message).unwrap();
        self.drive();
        self.tickets.pop().unwrap()
    }
}

/// Both sides perform their handshakes.
fn perform(
    client: &Socket,
    listening: &Socket,
    tls: &Tls,
    resume: Option<&[u8]>,
    server: &ServerTls,
) -> (Program, Program) {
    std::thread::scope(|scope| {
        let accepted = scope.spawn(|| {
            let accepted = listening.accept().unwrap();
            Program::server(&accepted, server).perform()
        });
        let client = Program::client(client, &tls.client("test"), resume).perform();
        (client, accepted.join().unwrap())
    })
}

fn echo(client: &Socket, server: &Socket) {
    send(client, b"question", 0, NEW_FIN).unwrap();
    assert_eq!(recv(server).0, b"question");
    server.send_message(b"answer", None, StreamFlags::FIN.into()).unwrap();
    assert_eq!(recv(client).0, b"answer");
}

#[test]
fn programs_on_both_sides_establish_a_connection() {
    let (tls, (listening, address)) = (Tls::new(), listener());
    let connecting = socket();
    connecting.connect(address).unwrap();
    let (client, server) = perform(&connecting, &listening, &tls, None, &tls.server("test"));
    assert_eq!(client.socket.negotiated_alpn(), None, "the program knows");
    echo(&client.socket, &server.socket);
}

/// RFC 9000, Section 6: the same ClientHello goes out again, in a version that the server has.
#[test]
fn a_version_that_the_server_does_not_have_costs_a_program_a_round_trip_alone() {
    let (tls, (listening, address)) = (Tls::new(), listener());
    let connecting = socket();
    let version = 0x1a2a_3a4a;
    connecting.set_config(&Config { version, ..Config::default() }).unwrap();
    // The ClientHello cannot say which version it will be sent with (RFC 9368, Section 4).
    let parameters = TransportParam { disable_compatible_version: 1, ..TransportParam::default() };
    connecting.set_transport_param(&parameters).unwrap();
    connecting.connect(address).unwrap();
    let (client, server) = perform(&connecting, &listening, &tls, None, &tls.server("test"));
    echo(&client.socket, &server.socket);
}

#[test]
fn what_comes_before_the_key_to_acknowledge_it_is_acknowledged_later() {
    let (tls, (listening, address)) = (Tls::new(), listener());
    let connecting = socket();
    connecting.connect(address).unwrap();
    let server = std::thread::scope(|scope| {
        let accepted = scope.spawn(|| {
            let accepted = listening.accept().unwrap();
            Program::server(&accepted, &tls.server("test")).perform()
        });
        let mut client = Program::client(&connecting, &tls.client("test"), None);
        client.sends_late = true;
        client.perform();
        accepted.join().unwrap()
    });
    echo(&connecting, &server.socket);
}

#[test]
fn a_program_and_quickets_tls_understand_each_other() {
    let (tls, (listening, address)) = (Tls::new(), listener());
    let client = socket();
    client.connect(address).unwrap();
    let server = std::thread::scope(|scope| {
        let accepted = scope.spawn(|| {
            let accepted = listening.accept().unwrap();
            assert_eq!(accepted.requested_server_name().as_deref(), Some("localhost"));
            Program::server(&accepted, &tls.server("test")).perform()
        });
        client.connect_tls(tls.client("test"), "localhost").unwrap();
        accepted.join().unwrap()
    });
    echo(&client, &server.socket);
    let client = socket();
    client.connect(address).unwrap();
    let server = std::thread::scope(|scope| {
        let accepted = scope.spawn(|| {
            let accepted = listening.accept().unwrap();
            accepted.accept_tls(tls.server("test")).unwrap();
            accepted
        });
        Program::client(&client, &tls.client("test"), None).perform();
        accepted.join().unwrap()
    });
    echo(&client, &server);
}

#[test]
fn parameters_can_be_set_until_they_are_asked_for() {
    let (tls, (listening, address)) = (Tls::new(), listener());
    let param = |max_data| TransportParam { max_data, ..TransportParam::default() };
    let client = socket();
    client.connect(address).unwrap();
    client.set_transport_param(&param(11_111)).unwrap();
    client.transport_param_ext().unwrap();
    assert_eq!(client.set_transport_param(&param(9999)), Err(Errno::EINVAL), "announced");
    let server = std::thread::scope(|scope| {
        let accepted = scope.spawn(|| {
            let accepted = listening.accept().unwrap();
            accepted.set_transport_param(&param(22_222)).unwrap();
            Program::server(&accepted, &tls.server("test")).perform().socket
        });
        Program::client(&client, &tls.client("test"), None).perform();
        accepted.join().unwrap()
    });
    assert_eq!(client.transport_param(true).max_data, 22_222);
    assert_eq!(server.transport_param(true).max_data, 11_111);
    assert_eq!(client.transport_param(false).max_data, 11_111);
    assert_eq!(server.transport_param(false).max_data, 22_222);
    assert_eq!(client.set_transport_param(&param(0)), Err(Errno::EINVAL), "established");
    assert_eq!(client.transport_param_ext(), Err(Errno::EINVAL));
    assert_eq!(client.set_transport_param_ext(b""), Err(Errno::EINVAL));
}

#[test]
fn a_session_ticket_is_told_and_resumed_with_early_data() {
    let (tls, (listening, address)) = (Tls::new(), listener());
    let server_tls = tls.server("test");
    let first = socket();
    first.set_event(EventType::NewSessionTicket, true);
    first.connect(address).unwrap();
    let (mut client, server) = perform(&first, &listening, &tls, None, &server_tls);
    let (bytes, message) = recv(&first);
    assert_eq!(message.kind, MessageKind::Notification);
    let Some(Notification::NewSessionTicket(told)) = Notification::from_bytes(&bytes) else {
        panic!("{bytes:?}")
    };
    assert_eq!(first.session_ticket(), Ok(told));
    let session = client.take_ticket();
    let remembered = first.transport_param(true);
    drop((client, server, first));

    let second = socket();
    second.connect(address).unwrap();
    second.set_transport_param(&remembered).unwrap();
    let next = StreamInfo::new(-1, StreamFlags::NONE);
    let opened = second.open_stream(next).map(|info| info.stream_id);
    assert_eq!(opened, Ok(0), "before the handshake has begun");
    assert_eq!(send(&second, b"first", 0, NEW_FIN), Ok(5));
    let mut client = Program::client(&second, &tls.client("test"), Some(&session));
    client.drive();
    assert_eq!(send(&second, b"early", 4, NEW_FIN), Ok(5), "before the server has answered");
    let accepted = listening.accept().unwrap();
    let server = std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let mut server = Program::server(&accepted, &server_tls);
            server.drive();
            // What came early is kept until the handshake is complete.
            let mut buffer = [0; 64];
            let early = accepted.recv_message(&mut buffer, MsgFlags::PEEK | MsgFlags::DONTWAIT);
            assert!(!matches!(early.map(|early| early.kind), Ok(MessageKind::Stream(_))));
            server.perform()
        });
        let client = client.perform();
        assert_eq!(client.early_data, Some(true));
        server.join().unwrap()
    });
    assert_eq!(recv(&server.socket).0, b"first");
    assert_eq!(recv(&server.socket).0, b"early");
}

#[test]
fn invalid_parameters_of_the_peer_end_the_connection() {
    let (_listening, address) = listener();
    let client = socket();
    client.connect(address).unwrap();
    client.transport_param_ext().unwrap();
    assert_eq!(client.set_transport_param_ext(&[0xff; 7]), Err(Errno::EINVAL));
    assert!(client.poll_state().hup);
    assert_eq!(client.connection_close().errcode, 0x08);
}

#[test]
fn a_programs_word_counts_and_not_the_parameters_inside_of_the_client_hello() {
    let (tls, (listening, address)) = (Tls::new(), listener());
    let client = socket();
    client.connect(address).unwrap();
    let server = std::thread::scope(|scope| {
        let accepted = scope.spawn(|| {
            let accepted = listening.accept().unwrap();
            let mut server = Program::server(&accepted, &tls.server("test"));
            // As TLS that wraps them, or agrees on them by other means.
            server.peer_parameters = Some(own_parameters(&client));
            server.perform().socket
        });
        let parameters = own_parameters(&client);
        let start = HandshakeStart {
            server_name: "localhost",
            peer: None,
            // A parameter that is longer than what is there.
            transport_parameters: &[0x04, 0x08, 0xff],
            resume: None,
            early_data: false,
        };
        assert!(!parameters.is_empty());
        let session = tls.client("test").start_client(&start).unwrap();
        Program::new(&client, session, false).perform();
        accepted.join().unwrap()
    });
    echo(&client, &server);
}

#[test]
fn tls_messages_in_pieces_arrive_whole() {
    let (tls, (listening, address)) = (Tls::new(), listener());
    let client = socket();
    client.connect(address).unwrap();
    let mut program = Program::client(&client, &tls.client("test"), None);
    let Some(HandshakeEvent::Send(Level::Initial, hello)) = program.tls.poll().unwrap() else {
        panic!()
    };
    let (first, rest) = hello.split_at(50);
    client.send_handshake(first, CryptoLevel::Initial, MsgFlags::MORE).unwrap();
    assert!(!listening.poll_state().readable, "more is to follow");
    client.send_handshake(rest, CryptoLevel::Initial, MsgFlags::NONE).unwrap();
    let accepted = listening.accept().unwrap();
    let mut buffer = [0; 40];
    let mut received = Vec::new();
    loop {
        let message = accepted.recv_message(&mut buffer, MsgFlags::NONE).unwrap();
        assert_eq!(message.kind, MessageKind::Handshake(CryptoLevel::Initial.number()));
        received.extend_from_slice(&buffer[..message.len]);
        if message.eor {
            break;
        }
    }
    assert_eq!(received, hello);
}
