//! Real connections over a link, captured and decrypted.

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use quicket::{
    Aead, ClientConfig, ClientTls, Connection, Identity, KeyLogFile, Listener, RetryPolicy,
    ServerConfig, ServerTls, Version as QuicVersion,
};
use quicket_sim::nat::Rebind;
use quicket_wire::Version;

use super::*;
use crate::link::{Options, RunningLink};

/// What is sent each way.
const LENGTH: usize = 100_000;

/// How two ends are set up.
struct Setup {
    aead: Aead,
    retry: RetryPolicy,
    version: QuicVersion,
    /// The NAT takes another port in between.
    rebind: bool,
}

/// What was captured at the client and at the server, and the secrets.
struct Recording {
    sides: [(Vec<Datagram>, SocketAddr); 2],
    keys: String,
}

impl Recording {
    fn traces(&self) -> [Trace; 2] {
        self.sides
            .each_ref()
            .map(|(datagrams, server)| Trace::new(datagrams, &[*server], &self.keys))
    }
}

/// Has data echoed over a captured link, before and after a key update.
fn record(setup: &Setup) -> Recording {
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys");
    let identity = Identity::self_signed(["localhost"]).unwrap();
    let log = Arc::new(KeyLogFile::open(&keys).unwrap());
    let tls = ClientTls::builder().pinned([identity.fingerprint()]).alpn(["test"]);
    let tls = tls.cipher_suites(&[setup.aead]).key_log(log).build().unwrap();
    let client = ClientConfig::new(tls).versions(setup.version, [setup.version]);
    let tls = ServerTls::builder(identity).alpn(["test"]).build().unwrap();
    let server = ServerConfig::new(tls).retry(setup.retry);
    let listener = Listener::bind("127.0.0.1:0", server).unwrap();
    let options = Options {
        capture: Some(folder.path().to_owned()),
        ..Options::new(listener.local_addr(), "mtu=1500".parse().unwrap())
    };
    let link = RunningLink::start(&options).unwrap();
    let (address, server) = (link.address(), listener.local_addr());
    // Not joined: where the client fails, it would wait for ever.
    std::thread::spawn(move || serve(&listener));
    let connection = Connection::connect(address, "localhost", &client).unwrap();
    for round in 0..2 {
        let mut stream = connection.open_bi().unwrap();
        stream.write_all(&[7; LENGTH]).unwrap();
        stream.finish().unwrap();
        assert_eq!(stream.read_to_end(LENGTH).unwrap(), [7; LENGTH]);
        if setup.rebind {
            link.rebind(Rebind::Port);
        }
        while round == 0 && connection.update_keys().is_err() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    connection.close(0, b"");
    drop(connection);
    link.finish().unwrap();
    let read = |name: &str| pcap::read(&Path::join(folder.path(), name)).unwrap();
    let sides = [(read("client.pcap"), address), (read("server.pcap"), server)];
    Recording { sides, keys: std::fs::read_to_string(&keys).unwrap() }
}

fn serve(listener: &Listener) {
    let connection = listener.accept().unwrap();
    while let Ok(mut stream) = connection.accept_bi() {
        let request = stream.read_to_end(LENGTH).unwrap();
        stream.write_all(&request).unwrap();
        stream.finish().unwrap();
    }
}

/// Every packet that has frames was opened, and each end's data is all there.
fn check(trace: &Trace, setup: &Setup) {
    assert_eq!(trace.ciphers, [Some(setup.aead)]);
    for from_client in [true, false] {
        let mut data = CryptoData::up_to(LENGTH);
        for packet in trace.packets.iter().filter(|packet| packet.from_client == from_client) {
            let opened = packet.content.is_some();
            assert_eq!(opened, packet.kind.carries_frames(), "{packet:?}");
            for frame in packet.frames() {
                if let Frame::Stream(stream) = frame
                    && stream.id.as_u64() == 0
                {
                    data.add(stream.offset, stream.data);
                }
            }
        }
        assert_eq!(data.contiguous(), [7; LENGTH]);
        let updated = |packet: &Packet| packet.content.as_ref().is_some_and(|it| it.key_phase);
        assert!(trace.of(PacketKind::OneRtt, from_client).any(updated));
    }
}

#[test]
fn every_packet_is_opened_across_key_updates_with_every_cipher() {
    for aead in [Aead::Aes128Gcm, Aead::Aes256Gcm, Aead::ChaCha20Poly1305] {
        let setup =
            Setup { aead, retry: RetryPolicy::Never, version: QuicVersion::V1, rebind: false };
        for trace in record(&setup).traces() {
            check(&trace, &setup);
        }
    }
}

#[test]
fn retry_version_2_and_rebindings_are_followed() {
    let setup = Setup {
        aead: Aead::Aes128Gcm,
        retry: RetryPolicy::Always,
        version: QuicVersion::V2,
        rebind: true,
    };
    for trace in record(&setup).traces() {
        check(&trace, &setup);
        assert_eq!(trace.of(PacketKind::Retry, false).count(), 1);
        assert!(trace.of(PacketKind::Initial, true).all(|packet| packet.version == Version::V2));
    }
}

#[test]
fn without_secrets_only_initial_packets_are_opened() {
    let setup = Setup {
        aead: Aead::Aes128Gcm,
        retry: RetryPolicy::Never,
        version: QuicVersion::V1,
        rebind: false,
    };
    let recording = Recording { keys: String::new(), ..record(&setup) };
    for trace in recording.traces() {
        assert!(trace.packets.iter().any(|packet| packet.kind == PacketKind::OneRtt));
        for packet in trace.packets {
            assert_eq!(packet.content.is_some(), packet.kind == PacketKind::Initial);
        }
    }
}
