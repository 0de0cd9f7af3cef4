//! Two connected sockets.

use std::time::Duration;

use quicket::message::{Message, MsgFlags, Socket};
use quicket::{ClientTls, Identity, ServerTls};

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

    pub(crate) fn client(&self, alpn: &str) -> ClientTls {
        let pins = [self.identity.fingerprint()];
        ClientTls::builder().pinned(pins).alpn([alpn]).build().unwrap()
    }
}

/// A socket that gives up in the end, so that no test hangs.
pub(crate) fn socket() -> Socket {
    let socket = Socket::new_v4();
    socket.set_receive_timeout(Some(PATIENCE));
    socket.set_send_timeout(Some(PATIENCE));
    socket
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
    connecting.connect(listening.local_addr().unwrap()).unwrap();
    handshake(&tls, &connecting, &listening)
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
