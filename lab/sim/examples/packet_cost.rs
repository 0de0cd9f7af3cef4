//! One upload between two engines in memory, without sockets, clocks and real ciphers: what is
//! left is the engine's own work for each packet.
//!
//! `scripts/packet-cost.py` counts its instructions. By hand:
//! `cargo run --release -p quicket-sim --example packet_cost -- 64` (MiB), and with `-- 64 100` on
//! a hundred streams at once.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use quicket_engine::time::{Duration, Time};
use quicket_engine::{
    ClientConfig, Connection, Datagram, Dir, EndpointConfig, ReadError, ServerConfig, StreamId,
    TransmitStatus, TransportConfig, WriteError,
};
use quicket_sim::attack::Party;
use quicket_sim::null_tls::{NullTls, NullTlsOptions};
use quicket_sim::test_crypto::TestCrypto;

/// What Ethernet carries.
const UDP_PAYLOAD: u16 = 1472;
/// As many datagrams as segmentation offload takes.
const SEGMENTS: usize = 44;
const BUFFER: usize = 65_536;
/// How long it takes to send that much at 17 Gbit/s.
const ROUND: Duration = Duration::from_micros(30);

struct Pair {
    now: Time,
    client: Party,
    server: Party,
    packets: u64,
    buffer: Vec<u8>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mebibytes: usize = std::env::args().nth(1).map_or(Ok(64), |text| text.parse())?;
    let mut pair = Pair::new()?;
    pair.handshake();
    let streams: usize = std::env::args().nth(2).map_or(Ok(1), |text| text.parse())?;
    let packets = pair.upload(mebibytes << 20, streams)?;
    println!("{packets} packets");
    Ok(())
}

fn transport() -> Arc<TransportConfig> {
    Arc::new(TransportConfig {
        initial_udp_payload_size: UDP_PAYLOAD,
        mtu_discovery: None,
        initial_stream_window: 1 << 20,
        initial_receive_window: 1 << 20,
        ..TransportConfig::default()
    })
}

impl Pair {
    fn new() -> Result<Self, Box<dyn Error>> {
        let at = |host| SocketAddr::from((Ipv4Addr::new(192, 0, 2, host), 4433));
        let tls = Arc::new(NullTls::new(1, NullTlsOptions::default()));
        let mut server = ServerConfig::new(tls.clone());
        server.transport = transport();
        let mut config = ClientConfig::new(tls);
        config.transport = transport();
        let endpoint = || EndpointConfig::new([1; 32], [2; 32]);
        let server = Party::new(at(1), endpoint(), Some(server), Arc::new(TestCrypto), 1);
        let mut client = Party::new(at(2), endpoint(), None, Arc::new(TestCrypto), 2);
        let now = Time::ZERO + Duration::from_secs(1);
        let (handle, connection) = client.endpoint.connect(now, config, at(1), None, "server")?;
        client.connections.insert(handle, connection);
        Ok(Self { now, client, server, packets: 0, buffer: vec![0; BUFFER] })
    }

    fn handshake(&mut self) {
        for _ in 0..20 {
            let (client, server) = (self.client.address, self.server.address);
            for mut sent in self.client.transmit(self.now) {
                self.server.receive(self.now, client, sent.ecn, &mut sent.data);
            }
            for mut sent in self.server.transmit(self.now) {
                self.client.receive(self.now, server, sent.ecn, &mut sent.data);
            }
            self.now += ROUND;
            self.client.handle_timeouts(self.now);
            self.server.handle_timeouts(self.now);
        }
    }

    /// Sends `total` bytes from the client to the server on so many streams; returns how many
    /// packets that took, both ways.
    fn upload(&mut self, total: usize, streams: usize) -> Result<u64, Box<dyn Error>> {
        let client = self.client.connection();
        let ids = (0..streams).map(|_| client.open(Dir::Uni)).collect::<Result<Vec<_>, _>>()?;
        let data = vec![7; BUFFER];
        let mut out = vec![0; BUFFER];
        let mut accepted = Vec::new();
        let (mut written, mut read) = (0, 0);
        while read < total {
            for id in &ids {
                let piece = data.len().min(total - written);
                match self.client.connection().write(*id, &data[..piece]) {
                    Ok(len) => written += len,
                    Err(WriteError::Blocked) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            self.pass_on(true);
            accepted.extend(std::iter::from_fn(|| self.server.connection().accept(Dir::Uni)));
            for id in &accepted {
                read += read_all(self.server.connection(), *id, &mut out)?;
            }
            self.pass_on(false);
            self.now += ROUND;
            self.client.handle_timeouts(self.now);
            self.server.handle_timeouts(self.now);
        }
        Ok(self.packets)
    }

    /// Carries what one side has to send to the other.
    fn pass_on(&mut self, up: bool) {
        let (from, to) = if up {
            (&mut self.client, &mut self.server)
        } else {
            (&mut self.server, &mut self.client)
        };
        let remote = from.address;
        let (from, to) = (from.connection(), to.connection());
        while let TransmitStatus::Ready(transmit) =
            from.poll_transmit(self.now, &mut self.buffer, SEGMENTS)
        {
            let (ecn, stride) = (transmit.ecn, transmit.segment_size);
            let mut data = &mut self.buffer[..transmit.len];
            self.packets += data.len().div_ceil(stride) as u64;
            while !data.is_empty() {
                let mut train = Datagram { remote, local: None, ecn, data };
                let used = to.handle_train(self.now, &mut train, stride);
                data = &mut train.data[used..];
            }
        }
        while from.poll_event().is_some() {}
        while to.poll_event().is_some() {}
    }
}

fn read_all(
    connection: &mut Connection,
    id: StreamId,
    out: &mut [u8],
) -> Result<usize, Box<dyn Error>> {
    let mut read = 0;
    loop {
        match connection.read(id, out) {
            Ok(outcome) => read += outcome.len,
            Err(ReadError::Blocked) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(read)
}
