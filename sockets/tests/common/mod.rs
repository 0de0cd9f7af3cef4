//! What the integration tests share.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::io::{Read as _, Write as _};

use quicket::{
    ClientConfig, ClientTls, Connection, Identity, Listener, ServerConfig, ServerTls,
    TransportConfig,
};

pub(crate) const ALPN: &[&str] = &["test"];

/// A server's and a client's configuration that trust each other.
pub(crate) fn configs() -> (ServerConfig, ClientConfig) {
    configs_with(TransportConfig::default())
}

/// Like [`configs`], with limits.
pub(crate) fn configs_with(transport: TransportConfig) -> (ServerConfig, ClientConfig) {
    let identity = Identity::self_signed(["localhost"]).unwrap();
    let client = ClientTls::builder().pinned([identity.fingerprint()]).alpn(ALPN).build().unwrap();
    let server = ServerTls::builder(identity).alpn(ALPN).early_data(true).build().unwrap();
    (
        ServerConfig::new(server).transport(transport.clone()),
        ClientConfig::new(client).transport(transport),
    )
}

/// A connection over loopback, both ends.
pub(crate) fn pair() -> (Connection, Connection) {
    pair_with(configs())
}

/// Like [`pair`], with configurations.
pub(crate) fn pair_with(
    (server, client): (ServerConfig, ClientConfig),
) -> (Connection, Connection) {
    let listener = Listener::bind("127.0.0.1:0", server).unwrap();
    let address = listener.local_addr();
    std::thread::scope(|scope| {
        let accepted = scope.spawn(|| listener.accept().unwrap());
        let connected = Connection::connect(address, "localhost", &client).unwrap();
        (connected, accepted.join().unwrap())
    })
}

/// Bytes that depend on a seed and their place.
pub(crate) struct Pattern(u64);

impl Pattern {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u8 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as u8
    }

    pub(crate) fn fill(&mut self, out: &mut [u8]) {
        out.fill_with(|| self.next());
    }

    pub(crate) fn matches(&mut self, bytes: &[u8]) -> bool {
        bytes.iter().all(|&byte| byte == self.next())
    }
}

/// Both ends agree on what they settled, and live.
pub(crate) fn check(client: &Connection, server: &Connection) {
    let (ours, theirs) = (client.handshake().unwrap(), server.handshake().unwrap());
    assert_eq!(ours.alpn, theirs.alpn);
    assert_eq!(ours.version, theirs.version);
    assert_eq!(ours.cipher_suite, theirs.cipher_suite);
    assert_eq!(client.close_reason(), None);
    assert_eq!(server.close_reason(), None);
}

/// A small request and its answer.
pub(crate) fn exchange(client: &Connection, server: &Connection) {
    let mut stream = client.open_bi().unwrap();
    stream.write_all(b"ping").unwrap();
    let mut accepted = server.accept_bi().unwrap();
    accepted.read_exact(&mut [0; 4]).unwrap();
    accepted.write_all(b"pong").unwrap();
    stream.read_exact(&mut [0; 4]).unwrap();
}
