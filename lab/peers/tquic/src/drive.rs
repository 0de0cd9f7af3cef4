//! An endpoint on its socket.

use std::net::{SocketAddr, UdpSocket};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use quicket_peer_common::streams::DATAGRAM;
use quicket_peer_common::{files, socket};
use quicket_workload::bench::Failure;
use tquic::{Config, Connection, Endpoint, PacketInfo, PacketSendHandler, TransportHandler};

/// What an endpoint tells of its connections, by their index in it.
pub enum News {
    Begun(u64),
    /// Established, or ended: with the reason, unless it is this end's.
    Established,
    Ended(u64, Option<String>),
}

pub struct Drive {
    socket: Rc<Socket>,
    pub endpoint: Endpoint,
    pub news: Receiver<News>,
}

impl Drive {
    pub fn new(address: SocketAddr, config: Config, is_server: bool) -> Result<Self, Failure> {
        let socket = UdpSocket::bind(address)?;
        let local = socket.local_addr()?;
        let socket = Rc::new(Socket { socket, local });
        let (sender, news) = channel();
        let handler = Box::new(Handler { news: sender });
        let endpoint = Endpoint::new(Box::new(config), is_server, handler, socket.clone());
        Ok(Self { socket, endpoint, news })
    }

    pub fn local(&self) -> SocketAddr {
        self.socket.local
    }

    /// Sends what is to be sent, and receives what has come.
    pub fn turn(&mut self) -> Result<(), Failure> {
        self.endpoint.process_connections()?;
        let Socket { socket, local: dst } = &*self.socket;
        let mut buffer = [0; DATAGRAM];
        if let Some((datagram, src)) =
            socket::receive(socket, self.endpoint.timeout(), &mut buffer)?
        {
            let info = PacketInfo { src, dst: *dst, time: Instant::now() };
            // What is wrong with a packet is no concern of the others; what ends a connection shows
            // there.
            let _ = self.endpoint.recv(datagram, &info);
        }
        self.endpoint.on_timeout(Instant::now());
        Ok(self.endpoint.process_connections()?)
    }
}

struct Socket {
    socket: UdpSocket,
    local: SocketAddr,
}

impl PacketSendHandler for Socket {
    fn on_packets_send(&self, packets: &[(Vec<u8>, PacketInfo)]) -> tquic::Result<usize> {
        for (packet, info) in packets {
            let sent = socket::send(&self.socket, packet, info.dst);
            sent.map_err(|error| tquic::Error::InvalidOperation(error.to_string()))?;
        }
        Ok(packets.len())
    }
}

/// Whether anything can be done over a connection.
pub fn is_ready(conn: &Connection) -> bool {
    let begun = conn.is_established() || conn.is_in_early_data();
    begun && !conn.is_closing() && !conn.is_draining() && !conn.is_closed()
}

struct Handler {
    news: Sender<News>,
}

impl Handler {
    fn tell(&self, news: News) {
        // Nobody listens any more while the process ends.
        let _ = self.news.send(news);
    }
}

impl TransportHandler for Handler {
    fn on_conn_created(&mut self, conn: &mut Connection) {
        if let Ok(Some(file)) = files::key_log() {
            conn.set_keylog(Box::new(file));
        }
        self.tell(News::Begun(conn.index().unwrap_or_default()));
    }

    fn on_conn_established(&mut self, _: &mut Connection) {
        self.tell(News::Established);
    }

    fn on_conn_closed(&mut self, conn: &mut Connection) {
        let error = conn.peer_error().or(conn.local_error()).map(|error| format!("{error:?}"));
        let silence = conn.is_idle_timeout() || conn.is_handshake_timeout();
        let reason = if conn.is_reset() {
            Some("a stateless reset has come".to_owned())
        } else if silence {
            Some("the other end has fallen silent".to_owned())
        } else {
            error
        };
        self.tell(News::Ended(conn.index().unwrap_or_default(), reason));
    }

    fn on_stream_created(&mut self, _: &mut Connection, _: u64) {}

    fn on_stream_readable(&mut self, _: &mut Connection, _: u64) {}

    fn on_stream_writable(&mut self, _: &mut Connection, _: u64) {}

    fn on_stream_closed(&mut self, _: &mut Connection, _: u64) {}

    fn on_new_token(&mut self, _: &mut Connection, _: Vec<u8>) {}
}
