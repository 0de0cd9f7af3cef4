//! What the integration tests share.
#![allow(dead_code, reason = "each test binary uses a part of it")]

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
