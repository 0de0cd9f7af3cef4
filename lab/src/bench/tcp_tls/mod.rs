//! TLS 1.3 over TCP as a contender of the benchmark: rustls without its own buffers, blocking
//! sockets.
//!
//! rustls' buffered interface reads 4 KiB at a time, which would measure system calls. Over the
//! unbuffered one, records are decrypted where the kernel put them, many to a read, and many are
//! encrypted to a write.

mod channel;

use std::net::TcpStream;
use std::sync::Arc;

use quicket_workload::bench::tcp::{Peer, Protocol};
use quicket_workload::bench::{
    Assignment, Failure, Link, Role, SERVER_NAME, Session, Unsupported, client_config,
    server_config,
};
use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::{ClientConfig, ServerConfig};

use channel::{Buffers, Channel};

/// TLS 1.3 by rustls.
pub(super) enum Rustls {
    Client(Arc<ClientConfig>),
    Server(Arc<ServerConfig>),
}

/// A connection at either end.
pub(super) enum RustlsChannel {
    Client(Channel<UnbufferedClientConnection>),
    Server(Channel<UnbufferedServerConnection>),
}

impl Protocol for Rustls {
    type Channel = RustlsChannel;
    type Buffers = Buffers;

    fn new(assignment: &Assignment) -> Result<Self, Failure> {
        let conditions = assignment.conditions;
        Ok(match &assignment.role {
            Role::Client { roots, .. } => Self::Client(Arc::new(client_config(conditions, roots)?)),
            Role::Server { certificate, key, .. } => {
                Self::Server(Arc::new(server_config(conditions, certificate, key)?))
            }
        })
    }

    fn connect(
        &self,
        tcp: TcpStream,
        session: Session,
        buffers: &mut Buffers,
    ) -> Result<RustlsChannel, Failure> {
        let Self::Client(config) = self else { return Err("not a client".into()) };
        if session == Session::Early {
            return Err(Unsupported("no early data over TCP").into());
        }
        let tls = UnbufferedClientConnection::new(config.clone(), SERVER_NAME.try_into()?)?;
        let channel = Channel::establish(tcp, tls, buffers)?;
        if session == Session::Resumed && !channel.resumed() {
            return Err("the server did not resume the session".into());
        }
        Ok(RustlsChannel::Client(channel))
    }

    fn accept(&self, tcp: TcpStream, buffers: &mut Buffers) -> Result<RustlsChannel, Failure> {
        let Self::Server(config) = self else { return Err("not a server".into()) };
        let tls = UnbufferedServerConnection::new(config.clone())?;
        Ok(RustlsChannel::Server(Channel::establish(tcp, tls, buffers)?))
    }

    fn write(
        channel: &mut RustlsChannel,
        buffers: &mut Buffers,
        data: &[u8],
    ) -> Result<(), Failure> {
        match channel {
            RustlsChannel::Client(channel) => channel.write(buffers, data),
            RustlsChannel::Server(channel) => channel.write(buffers, data),
        }
    }

    fn read(
        channel: &mut RustlsChannel,
        buffers: &mut Buffers,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<Peer, Failure> {
        match channel {
            RustlsChannel::Client(channel) => channel.records(buffers, sink),
            RustlsChannel::Server(channel) => channel.records(buffers, sink),
        }
    }

    fn close(channel: RustlsChannel, buffers: &mut Buffers) -> Result<(), Failure> {
        match channel {
            RustlsChannel::Client(channel) => channel.close(buffers),
            RustlsChannel::Server(channel) => channel.close(buffers),
        }
    }

    fn link(channel: &RustlsChannel) -> Link {
        match channel {
            RustlsChannel::Client(channel) => channel.link(),
            RustlsChannel::Server(channel) => channel.link(),
        }
    }
}
