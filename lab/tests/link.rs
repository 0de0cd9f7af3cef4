//! Quicket's endpoints over an impaired link.

use std::io::Write;
use std::net::IpAddr;

use quicket::{
    ClientConfig, ClientTls, Connection, EcnState, Identity, Listener, ServerConfig, ServerTls,
};
use quicket_lab::link::{Options, Report, RunningLink};
use quicket_sim::nat::Rebind;

const LENGTH: usize = 1 << 20;

/// A client's and a server's connection through a link, and what is between them.
struct Pair {
    client: Connection,
    server: Connection,
    link: RunningLink,
    _listener: Listener,
}

impl Pair {
    fn over(scenario: &str) -> Self {
        let identity = Identity::self_signed(["localhost"]).unwrap();
        let tls = ClientTls::builder().pinned([identity.fingerprint()]).alpn(["test"]);
        let client = ClientConfig::new(tls.build().unwrap());
        let tls = ServerTls::builder(identity).alpn(["test"]).build().unwrap();
        let listener = Listener::bind("127.0.0.1:0", ServerConfig::new(tls)).unwrap();
        let options = Options::new(listener.local_addr(), scenario.parse().unwrap());
        let link = RunningLink::start(&options).unwrap();
        let (client, server) = std::thread::scope(|scope| {
            let accepted = scope.spawn(|| listener.accept().unwrap());
            let connected = Connection::connect(link.address(), "localhost", &client).unwrap();
            (connected, accepted.join().unwrap())
        });
        Self { client, server, link, _listener: listener }
    }

    /// The client sends bytes, the server sends them back.
    fn echo(&self, bytes: &[u8]) {
        std::thread::scope(|scope| {
            let answering = scope.spawn(|| {
                let mut stream = self.server.accept_bi().unwrap();
                let request = stream.read_to_end(LENGTH).unwrap();
                stream.write_all(&request).unwrap();
                stream.finish().unwrap();
            });
            let mut stream = self.client.open_bi().unwrap();
            stream.write_all(bytes).unwrap();
            stream.finish().unwrap();
            let answer = stream.read_to_end(LENGTH).unwrap();
            assert!(answer == bytes, "the echo differs");
            answering.join().unwrap();
        });
    }

    fn finish(self) -> Report {
        self.client.close(0, b"");
        self.server.closed();
        self.link.finish().unwrap()
    }
}

/// Bytes of which no two places look alike.
fn pattern() -> Vec<u8> {
    (0..LENGTH as u32 / 4).flat_map(|i| i.wrapping_mul(0x9e37_79b9).to_be_bytes()).collect()
}

#[test]
fn a_transfer_survives_loss_corruption_reordering_and_copies() {
    let text = "delay=1ms loss=3% corrupt=1% reorder=3%,2ms duplicate=3% mtu=1500";
    let pair = Pair::over(text);
    pair.echo(&pattern());
    let dropped = pair.server.stats().counters.packets_dropped;
    let report = pair.finish();
    for way in [&report.up, &report.down] {
        assert!(way.lost > 0 && way.corrupted > 0 && way.reordered > 0 && way.duplicated > 0);
        assert!(way.offered > LENGTH as u64 / 1500, "{report:?}");
        assert_eq!(way.refused, 0);
    }
    assert!(dropped > 0, "corrupted packets and copies came to the server");
}

#[test]
fn a_connection_survives_rebindings_of_port_and_address() {
    let pair = Pair::over("");
    pair.echo(b"before");
    let first = pair.server.remote_addr();
    assert_ne!(first.port(), pair.link.address().port());

    pair.link.rebind(Rebind::Port);
    pair.echo(&pattern());
    let second = pair.server.remote_addr();
    assert_eq!(second.ip(), first.ip());
    assert_ne!(second.port(), first.port());

    pair.link.rebind(Rebind::Address);
    pair.echo(&pattern());
    assert_eq!(pair.server.remote_addr().ip(), "127.64.0.1".parse::<IpAddr>().unwrap());

    assert!(pair.server.stats().counters.path_changes >= 2);
    let nat = pair.finish().nat;
    assert_eq!((nat.bindings, nat.rebindings), (3, 2));
}

#[test]
fn ecn_works_through_the_link_and_bleaching_is_noticed() {
    for (text, state) in [("", EcnState::Capable), ("ecn=bleach", EcnState::Failed)] {
        let pair = Pair::over(text);
        pair.echo(&pattern());
        assert_eq!(pair.client.stats().path.ecn, state, "{text:?}");
        let report = pair.finish();
        assert_eq!(report.up.ecn_rewritten > 0, state == EcnState::Failed);
    }
}
