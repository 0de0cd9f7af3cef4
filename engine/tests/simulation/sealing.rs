//! Ciphers that fail: nothing that they did not seal may leave.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use quicket_engine::crypto::CryptoProvider;
use quicket_engine::time::Time;
use quicket_engine::{
    ClientConfig, ConnectionError, Dir, EndpointConfig, Event, ServerConfig, StreamId,
    TransmitStatus,
};
use quicket_sim::attack::Party;
use quicket_sim::failing::{Batching, FailingCrypto, Refused, SealLog};
use quicket_sim::null_tls::{NullTls, NullTlsOptions};
use quicket_sim::offload::LateCrypto;
use quicket_sim::sim::PairOptions;
use quicket_sim::test_crypto::TestCrypto;
use quicket_wire::{EcnCodepoint, PacketKind, Side, TransportErrorCode};

use crate::support::{CLEAN, ms, secs, session};

const LEN: usize = 60_000;
const SEGMENTS: usize = 44;

/// A client that sends early data, a server that answers as much, and a cipher that fails.
struct World {
    now: Time,
    client: Party,
    server: Party,
    failing: Side,
    log: Arc<Mutex<SealLog>>,
    stream: StreamId,
    received: usize,
    answered: bool,
    buffer: Vec<u8>,
}

impl World {
    fn new(session: &[u8], failing: Side, late: bool, crypto: FailingCrypto) -> Self {
        let at = |host| SocketAddr::from((Ipv4Addr::new(192, 0, 2, host), 4433));
        let log = crypto.log();
        let bad: Arc<dyn CryptoProvider> = match late {
            true => Arc::new(LateCrypto::new(Arc::new(crypto), 5, Arc::default())),
            false => Arc::new(crypto),
        };
        let crypto = |side| if side == failing { bad.clone() } else { Arc::new(TestCrypto) };
        let tls = |seed| Arc::new(NullTls::new(seed, NullTlsOptions::default()));
        let mut config = ClientConfig::new(tls(1));
        (config.session, config.early_data) = (Some(session.to_vec()), true);
        let mut server = ServerConfig::new(tls(2));
        // All packets are of one size, and many.
        Arc::make_mut(&mut config.transport).mtu_discovery = None;
        Arc::make_mut(&mut server.transport).mtu_discovery = None;
        let endpoint = || EndpointConfig::new([1; 32], [2; 32]);
        let server = Party::new(at(1), endpoint(), Some(server), crypto(Side::Server), 1);
        let mut client = Party::new(at(2), endpoint(), None, crypto(Side::Client), 2);
        let now = Time::ZERO + secs(1);
        let (handle, mut connection) =
            client.endpoint.connect(now, config, at(1), None, "sim.example").expect("it can");
        let stream = connection.open(Dir::Bidi).expect("there is early data");
        assert_eq!(connection.write(stream, &[1; LEN]), Ok(LEN));
        client.connections.insert(handle, connection);
        let (received, answered, buffer) = (0, false, vec![0; 65_536]);
        Self { now, client, server, failing, log, stream, received, answered, buffer }
    }

    fn refused(&self) -> Option<Refused> {
        self.log.lock().unwrap().refused()
    }

    /// Carries all that `from` has to send; checks that the cipher has sealed it.
    fn carry(&mut self, from: Side) {
        let (from, to, watched) = match from {
            Side::Client => (&mut self.client, &mut self.server, self.failing == Side::Client),
            Side::Server => (&mut self.server, &mut self.client, self.failing == Side::Server),
        };
        let sender = from.address;
        while let Some(connection) = from.connections.values_mut().next() {
            let status = connection.poll_transmit(self.now, &mut self.buffer, SEGMENTS);
            let transmit = match status {
                TransmitStatus::Ready(transmit) => transmit,
                TransmitStatus::NotYet => continue,
                TransmitStatus::Idle => break,
            };
            let datagrams = self.buffer[..transmit.len].chunks_mut(transmit.segment_size);
            for datagram in datagrams {
                if watched {
                    let log = self.log.lock().unwrap();
                    assert_eq!(log.refused(), None, "something leaves after the failure");
                    assert!(log.is_sealed(datagram), "what leaves is sealed");
                }
                to.receive(self.now, sender, EcnCodepoint::NotEct, datagram);
            }
        }
    }

    fn round(&mut self) {
        self.carry(Side::Client);
        self.work();
        self.carry(Side::Server);
        self.work();
        self.now += ms(5);
        self.client.handle_timeouts(self.now);
        self.server.handle_timeouts(self.now);
    }

    /// The server answers what it has read; the client closes when it has the answer.
    fn work(&mut self) {
        let mut out = [0; 16_384];
        if let Some(server) = self.server.connections.values_mut().next() {
            while let Ok(read) = server.read(self.stream, &mut out) {
                self.received += read.len;
            }
            if self.received == LEN && !self.answered {
                self.answered = server.write(self.stream, &[2; LEN]) == Ok(LEN);
            }
        }
        let client = self.client.connection();
        while let Ok(read) = client.read(self.stream, &mut out) {
            self.received += read.len;
        }
        if self.received == 2 * LEN && client.is_confirmed() {
            client.close(self.now, 7, b"done");
        }
    }

    /// Runs until the cipher has failed and nothing can come of it any more, or all is done.
    fn run(&mut self) -> Option<Refused> {
        for _ in 0..2_000 {
            self.round();
            if self.refused().is_some() || self.client.connection().is_closed() {
                break;
            }
        }
        for _ in 0..20 {
            self.round();
        }
        let refused = self.refused();
        if refused.is_some() {
            self.check_end();
        }
        refused
    }

    /// RFC 9000, Section 20.1: the fault is ours, and the application hears so, unless it has
    /// closed the connection itself.
    fn check_end(&mut self) {
        let party = match self.failing {
            Side::Client => &mut self.client,
            Side::Server => &mut self.server,
        };
        let connection = party.connection();
        assert!(connection.is_drained());
        let events = std::iter::from_fn(|| connection.poll_event());
        let closed = events.filter_map(|event| match event {
            Event::Closed(error) => Some(error),
            _ => None,
        });
        let errors: Vec<ConnectionError> = closed.collect();
        match errors.as_slice() {
            [ConnectionError::Transport(error)] => {
                assert_eq!(error.code, TransportErrorCode::INTERNAL_ERROR);
            }
            [ConnectionError::Local { code: 7, .. }] => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn nothing_leaves_unsealed_whichever_packet_the_cipher_fails_at() {
    let session = session(PairOptions::new(CLEAN));
    for side in [Side::Client, Side::Server] {
        let (mut kinds, mut places, mut last) = (BTreeSet::new(), BTreeSet::new(), 0);
        let ways = [
            (Batching::OneByOne, false),
            (Batching::AllOrNone, false),
            (Batching::AllOthers, false),
            (Batching::OneByOne, true),
        ];
        for (batching, late) in ways {
            for n in 0.. {
                let crypto = FailingCrypto::new(n, batching);
                let Some(refused) = World::new(&session, side, late, crypto).run() else {
                    last = n;
                    break;
                };
                kinds.insert(refused.kind);
                places.insert(refused.place);
            }
            assert!(last > 50, "{side:?} sent only {last} packets");
        }
        for kind in [PacketKind::Initial, PacketKind::Handshake, PacketKind::OneRtt] {
            assert!(kinds.contains(&kind), "{side:?}: {kinds:?}");
        }
        assert_eq!(kinds.contains(&PacketKind::ZeroRtt), side == Side::Client);
        assert!((0..8).all(|place| places.contains(&place)), "{side:?}: {places:?}");
    }
}
