//! Origins of a protocol in which a client asks for a number of bytes, and clients of theirs.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use quicket::steering::{Place, RoutableConnectionIds};
use quicket::tokio::{Connection, Endpoint, Stream};
use quicket::{ClientConfig, ClientTls, EndpointConfig, Identity, KeyExchange, ServerConfig};
use quicket_member::{Site as Ids, aes, server_id};

use super::behind::content;

/// How connection IDs of origins are written.
pub(crate) const IDS: &str = "config 0 server-id 4 nonce 12 key 8f95f09245765f80256934e50c66207f\n";

/// A server that ends connections itself.
pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    /// From where its clients seemed to come, and come now.
    seen: Arc<Mutex<Vec<Connection>>>,
    _endpoint: Endpoint,
}

impl Origin {
    /// With a certificate for a name, as `NAME.pem`. With a server ID it writes it into its connection IDs.
    pub(crate) async fn start(dir: &Path, name: &str, id: Option<&str>) -> Self {
        let identity = Identity::self_signed([name]).unwrap();
        std::fs::write(dir.join(format!("{name}.pem")), identity.chain_pem()).unwrap();
        let mut sockets = EndpointConfig::default();
        if let Some(id) = id {
            let codec = Ids::parse(IDS).unwrap().issuer(&aes).unwrap();
            let place = Place { server_id: server_id(id).unwrap(), owner: None };
            sockets = sockets.connection_ids(RoutableConnectionIds::new(codec, place).unwrap());
        }
        let endpoint = Endpoint::bind_with("127.0.0.1:0", sockets).await.unwrap();
        let config = ServerConfig::with_identity(identity, ["bytes"]).unwrap();
        let listener = endpoint.listen(config).unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&seen);
        tokio::spawn(async move {
            while let Ok(connection) = listener.accept().await {
                noted.lock().unwrap().push(connection.clone());
                tokio::spawn(async move {
                    while let Ok(stream) = connection.accept_bi().await {
                        tokio::spawn(answer(stream));
                    }
                });
            }
        });
        Self { address: endpoint.local_addr(), seen, _endpoint: endpoint }
    }

    /// From where clients come now, as the origin sees it.
    pub(crate) fn clients(&self) -> Vec<SocketAddr> {
        self.seen.lock().unwrap().iter().map(Connection::remote_addr).collect()
    }
}

async fn answer(mut stream: Stream) {
    let Ok(asked) = stream.read_to_end(8).await else { return };
    let asked = usize::from_be_bytes(asked.try_into().unwrap());
    if stream.send().write_all(&content(asked)).await.is_ok() {
        let _ = stream.finish();
    }
}

/// Asks for so many bytes.
pub(crate) async fn ask(connection: &Connection, bytes: usize) -> Stream {
    let mut stream = connection.open_bi().await.unwrap();
    stream.send().write_all(&bytes.to_be_bytes()).await.unwrap();
    stream.finish().unwrap();
    stream
}

/// Gets so many bytes, and looks at each.
pub(crate) async fn get(connection: &Connection, bytes: usize) {
    let got = ask(connection, bytes).await.read_to_end(bytes + 1).await.unwrap();
    assert!(got == content(bytes), "{} of {bytes}", got.len());
}

/// A client that takes no other certificate than that of an origin.
pub(crate) fn trusts(dir: &Path, name: &str, exchange: KeyExchange) -> ClientConfig {
    let tls = ClientTls::builder().ca_file(dir.join(format!("{name}.pem"))).alpn(["bytes"]);
    ClientConfig::new(tls.key_exchange(&[exchange]).build().unwrap())
}
