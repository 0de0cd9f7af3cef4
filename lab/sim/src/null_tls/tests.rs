use super::*;
use quicket_engine::crypto::{Direction, HandshakeEvent, HandshakeSummary};

/// One side and what it said.
struct Peer {
    tls: Box<dyn Handshake>,
    secrets: Vec<(Level, Direction, Vec<u8>)>,
    parameters: Option<Vec<u8>>,
    early_data: Vec<bool>,
    summary: Option<HandshakeSummary>,
    tickets: Vec<Vec<u8>>,
}

impl Peer {
    fn new(tls: Box<dyn Handshake>) -> Self {
        Self {
            tls,
            secrets: Vec::new(),
            parameters: None,
            early_data: Vec::new(),
            summary: None,
            tickets: Vec::new(),
        }
    }

    /// Takes all events and returns what is to be sent.
    fn drain(&mut self) -> Result<Vec<(Level, Vec<u8>)>, HandshakeError> {
        let mut out = Vec::new();
        while let Some(event) = self.tls.poll()? {
            match event {
                HandshakeEvent::Send(level, bytes) => out.push((level, bytes)),
                HandshakeEvent::Secret(level, direction, secret) => {
                    self.secrets.push((level, direction, secret.as_bytes().to_vec()));
                }
                HandshakeEvent::PeerTransportParameters(p) => self.parameters = Some(p),
                HandshakeEvent::EarlyData(accepted) => self.early_data.push(accepted),
                HandshakeEvent::Complete(summary) => self.summary = Some(*summary),
                HandshakeEvent::SessionTicket(ticket) => self.tickets.push(ticket),
            }
        }
        Ok(out)
    }

    fn secret(&self, level: Level, direction: Direction) -> Option<&Vec<u8>> {
        self.secrets.iter().find(|(l, d, _)| (*l, *d) == (level, direction)).map(|(_, _, s)| s)
    }
}

/// Runs both sides until nothing is left to say; the error with the name of who met it.
fn run(client: &mut Peer, server: &mut Peer) -> Result<(), (&'static str, HandshakeError)> {
    loop {
        let up = client.drain().map_err(|e| ("client", e))?;
        for (level, bytes) in &up {
            // In pieces, as CRYPTO frames may cut anywhere.
            for piece in bytes.chunks(7) {
                server.tls.read(*level, piece).map_err(|e| ("server", e))?;
            }
        }
        let down = server.drain().map_err(|e| ("server", e))?;
        for (level, bytes) in &down {
            client.tls.read(*level, bytes).map_err(|e| ("client", e))?;
        }
        if up.is_empty() && down.is_empty() {
            return Ok(());
        }
    }
}

fn pair(client: NullTlsOptions, server: NullTlsOptions, resume: Option<&[u8]>) -> (Peer, Peer) {
    let start = |parameters| HandshakeStart {
        server_name: "sim.example",
        peer: None,
        transport_parameters: parameters,
        resume,
        early_data: true,
    };
    let client = NullTls::new(1, client).start_client(&start(b"client parameters")).unwrap();
    let server = NullTls::new(2, server).start_server(&start(b"server parameters")).unwrap();
    (Peer::new(client), Peer::new(server))
}

fn options() -> NullTlsOptions {
    NullTlsOptions::default()
}

fn with_fault(message: MessageKind, what: Misbehaviour) -> NullTlsOptions {
    NullTlsOptions { fault: Some(Fault { message, what }), ..options() }
}

#[test]
fn both_sides_agree_on_everything() {
    for aead in Aead::ALL {
        let server = NullTlsOptions { aead, ..options() };
        let client = NullTlsOptions { aead, ..options() };
        let (mut client, mut server) = pair(client, server, None);
        run(&mut client, &mut server).unwrap();
        for level in [Level::Handshake, Level::OneRtt] {
            let sent = client.secret(level, Direction::Send).unwrap();
            assert_eq!(sent.len(), aead.secret_len());
            assert_eq!(Some(sent), server.secret(level, Direction::Receive));
            let received = client.secret(level, Direction::Receive);
            assert_eq!(received, server.secret(level, Direction::Send));
            assert_ne!(Some(sent), received);
        }
        assert_eq!(client.parameters.as_deref(), Some(&b"server parameters"[..]));
        assert_eq!(server.parameters.as_deref(), Some(&b"client parameters"[..]));
        let at_client = client.summary.clone().unwrap();
        let at_server = server.summary.clone().unwrap();
        assert_eq!((&at_client.alpn, at_client.resumed), (&b"sim".to_vec(), false));
        assert_eq!(at_client.alpn, at_server.alpn);
        assert_eq!(at_server.server_name.as_deref(), Some("sim.example"));
        assert_eq!(at_client.peer_certificates[0].len(), 900);
        assert_eq!(client.tickets.len(), 2);
        assert!(client.early_data.is_empty());
        let export = |peer: &Peer| {
            let mut out = [0; 20];
            peer.tls.export_keying_material(b"label", b"context", &mut out).unwrap();
            out
        };
        assert_eq!(export(&client), export(&server));
    }
}

#[test]
fn sessions_resume_with_early_data_accepted_or_refused() {
    let (mut client, mut server) = pair(options(), options(), None);
    run(&mut client, &mut server).unwrap();
    let ticket = client.tickets.remove(0);
    let refusing = NullTlsOptions { early_data: false, ..options() };
    let stranger = NullTlsOptions { ticket_key: 99, ..options() };
    let retrying = NullTlsOptions { hello_retry: true, ..options() };
    for (options_of_server, resumed, accepted) in [
        (options(), true, true),
        (refusing, true, false),
        (stranger, false, false),
        (retrying, true, false),
    ] {
        let (mut client, mut server) = pair(options(), options_of_server, Some(&ticket));
        run(&mut client, &mut server).unwrap();
        assert_eq!(client.early_data, [accepted]);
        assert_eq!(server.early_data, [accepted]);
        assert_eq!(client.summary.as_ref().unwrap().resumed, resumed);
        let early = server.secret(Level::EarlyData, Direction::Receive);
        assert_eq!(early.is_some(), accepted);
        if accepted {
            assert_eq!(client.secret(Level::EarlyData, Direction::Send), early);
        }
    }
    let (mut client, mut server) = pair(options(), options(), Some(b"garbled"));
    run(&mut client, &mut server).unwrap();
    assert!(!client.summary.unwrap().resumed);
}

#[test]
fn client_certificates_are_asked_for_as_configured() {
    for (auth, len, outcome) in [
        (ClientAuth::Optional, None, Ok(0)),
        (ClientAuth::Optional, Some(500), Ok(1)),
        (ClientAuth::Required, Some(500), Ok(1)),
        (ClientAuth::Required, None, Err(Alert(116))),
    ] {
        let client = NullTlsOptions { client_certificate_len: len, ..options() };
        let server = NullTlsOptions { client_auth: auth, ..options() };
        let (mut client, mut server) = pair(client, server, None);
        let result = run(&mut client, &mut server);
        let certificates = result
            .map(|()| server.summary.unwrap().peer_certificates.len())
            .map_err(|(_, error)| error.alert);
        assert_eq!(certificates, outcome);
    }
}

#[test]
fn without_a_common_protocol_the_server_refuses() {
    let client = NullTlsOptions { alpn: vec![b"other".to_vec()], ..options() };
    let (mut client, mut server) = pair(client, options(), None);
    let (who, error) = run(&mut client, &mut server).unwrap_err();
    assert_eq!((who, error.alert), ("server", Alert::NO_APPLICATION_PROTOCOL));
}

#[test]
fn faults_are_noticed_by_the_peer() {
    use MessageKind::{ClientHello, EncryptedExtensions, Finished, ServerHello};
    use Misbehaviour::{At, Before, Garble, Refuse};

    let unexpected = Alert::UNEXPECTED_MESSAGE;
    let cases = [
        (false, ServerHello, Refuse(Alert(40)), "client", Alert(40)),
        (true, ClientHello, Refuse(Alert(42)), "server", Alert(42)),
        (true, Finished, Garble, "client", Alert(51)),
        (false, Finished, Garble, "server", Alert(51)),
        (true, EncryptedExtensions, At(Level::Initial), "client", unexpected),
        (false, Finished, At(Level::OneRtt), "server", unexpected),
        (true, MessageKind::NewSessionTicket, Before(MessageKind::KeyUpdate), "client", unexpected),
    ];
    for (at_server, message, what, blames, alert) in cases {
        let faulty = with_fault(message, what.clone());
        let (client, server) = if at_server { (options(), faulty) } else { (faulty, options()) };
        let (mut client, mut server) = pair(client, server, None);
        let (who, error) = run(&mut client, &mut server).unwrap_err();
        assert_eq!((who, error.alert), (blames, alert), "{message:?} {what:?}");
    }
}

#[test]
fn withheld_messages_and_floods_never_complete() {
    for what in [Misbehaviour::Withhold, Misbehaviour::Flood(100_000)] {
        let faulty = with_fault(MessageKind::Certificate, what);
        let (mut client, mut server) = pair(options(), faulty, None);
        run(&mut client, &mut server).unwrap();
        assert!(client.summary.is_none() && server.summary.is_none());
    }
}

#[test]
fn transport_parameters_can_be_left_out_or_replaced() {
    let client = NullTlsOptions { parameters: ParameterFault::Omit, ..options() };
    let server =
        NullTlsOptions { parameters: ParameterFault::Replace(b"odd".to_vec()), ..options() };
    let (mut client, mut server) = pair(client, server, None);
    run(&mut client, &mut server).unwrap();
    assert_eq!(client.parameters.as_deref(), Some(&b"odd"[..]));
    assert_eq!(server.parameters, None);
}

#[test]
fn sizes_are_as_chosen() {
    let client = NullTlsOptions { client_hello_len: 3_000, ..options() };
    let server = NullTlsOptions { certificate_len: 5_000, ..options() };
    let (mut client, mut server) = pair(client, server, None);
    let hello = client.drain().unwrap();
    assert_eq!(hello[0].1.len(), 3_000);
    server.tls.read(Level::Initial, &hello[0].1).unwrap();
    let flight = server.drain().unwrap();
    assert!(flight.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() > 5_000);
}

#[test]
fn failures_stay() {
    let (mut client, _) = pair(options(), options(), None);
    let first = client.tls.read(Level::Handshake, &[1]).unwrap_err();
    assert_eq!(client.tls.read(Level::Initial, &[1]).unwrap_err().reason, first.reason);
    client.drain().unwrap_err();
}
