//! Two connected sockets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quicket::message::{Errno, Message, MsgFlags, Socket, StreamFlags, StreamInfo};
use quicket::{ClientTls, Identity, ServerTls, StrikeRegister};

use crate::relay::Relay;

pub(crate) const ANY: &str = "127.0.0.1:0";
/// Longer than anything takes here.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Configurations of both sides that trust each other.
pub(crate) struct Tls {
    identity: Identity,
}

impl Tls {
    pub(crate) fn new() -> Self {
        Self { identity: Identity::self_signed(["localhost"]).unwrap() }
    }

    pub(crate) fn server(&self, alpn: &str) -> ServerTls {
        ServerTls::builder(self.identity.clone()).alpn([alpn]).early_data(true).build().unwrap()
    }

    /// Like [`Tls::server`], with a register that is asked about early data.
    pub(crate) fn server_with(&self, alpn: &str, register: Arc<dyn StrikeRegister>) -> ServerTls {
        let tls = ServerTls::builder(self.identity.clone()).alpn([alpn]).early_data(true);
        tls.strike_register(register).build().unwrap()
    }

    pub(crate) fn server_without_alpn(&self) -> ServerTls {
        ServerTls::builder(self.identity.clone()).without_alpn().build().unwrap()
    }

    pub(crate) fn client(&self, alpn: &str) -> ClientTls {
        self.client_of(&[alpn])
    }

    pub(crate) fn client_of(&self, alpn: &[&str]) -> ClientTls {
        let pins = [self.identity.fingerprint()];
        ClientTls::builder().pinned(pins).alpn(alpn).build().unwrap()
    }

    pub(crate) fn client_without_alpn(&self) -> ClientTls {
        let pins = [self.identity.fingerprint()];
        ClientTls::builder().pinned(pins).without_alpn().build().unwrap()
    }
}

/// A socket that gives up in the end, so that no test hangs.
pub(crate) fn socket() -> Socket {
    let socket = Socket::new_v4();
    socket.set_receive_timeout(Some(PATIENCE));
    socket.set_send_timeout(Some(PATIENCE));
    socket
}

/// A socket that listens for any client, and its address.
pub(crate) fn listener() -> (Socket, SocketAddr) {
    let listening = socket();
    listening.bind(ANY.parse().unwrap()).unwrap();
    listening.listen(8).unwrap();
    let address = listening.local_addr();
    (listening, address)
}

/// A client and a server, established by Quicket's TLS.
pub(crate) fn pair() -> (Socket, Socket) {
    pair_with(|_| (), |_| ())
}

/// Like [`pair`]; `client` and `listener` prepare the sockets.
pub(crate) fn pair_with(client: impl Fn(&Socket), listen: impl Fn(&Socket)) -> (Socket, Socket) {
    let tls = Tls::new();
    let listening = socket();
    listening.bind(ANY.parse().unwrap()).unwrap();
    listen(&listening);
    listening.listen(8).unwrap();
    let connecting = socket();
    client(&connecting);
    connecting.connect(listening.local_addr()).unwrap();
    handshake(&tls, &connecting, &listening)
}

/// Like [`pair`], with a relay between both.
pub(crate) fn pair_by_relay(client: impl Fn(&Socket)) -> (Socket, Socket, Relay) {
    let (listening, address) = listener();
    let relay = Relay::to(address);
    let connecting = socket();
    client(&connecting);
    connecting.connect(relay.address).unwrap();
    let (connected, accepted) = handshake(&Tls::new(), &connecting, &listening);
    (connected, accepted, relay)
}

/// Performs a handshake by Quicket's TLS.
pub(crate) fn handshake(tls: &Tls, connecting: &Socket, listening: &Socket) -> (Socket, Socket) {
    std::thread::scope(|scope| {
        let accepted = scope.spawn(|| {
            let accepted = listening.accept().unwrap();
            accepted.accept_tls(tls.server("test")).unwrap();
            accepted
        });
        connecting.connect_tls(tls.client("test"), "localhost").unwrap();
        (connecting.clone(), accepted.join().unwrap())
    })
}

/// Receives a message whole.
pub(crate) fn recv(socket: &Socket) -> (Vec<u8>, Message) {
    let mut buffer = vec![0; 1 << 16];
    let message = socket.recv_message(&mut buffer, MsgFlags::NONE).unwrap();
    buffer.truncate(message.len);
    (buffer, message)
}

pub(crate) const NEW: StreamFlags = StreamFlags::NEW;
pub(crate) const NEW_FIN: StreamFlags = StreamFlags::NEW.union(StreamFlags::FIN);

/// Sends data of a stream.
pub(crate) fn send(
    socket: &Socket,
    data: &[u8],
    stream_id: i64,
    flags: StreamFlags,
) -> Result<usize, Errno> {
    socket.send_message(data, Some(StreamInfo::new(stream_id, flags)), MsgFlags::NONE)
}

/// Waits until something holds that follows from packets under way.
#[track_caller]
pub(crate) fn settle(mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "it does not come to hold");
        std::thread::sleep(Duration::from_millis(1));
    }
}
