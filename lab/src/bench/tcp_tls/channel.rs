//! A TLS connection over a TCP socket.

use std::io::{Read, Write};
use std::net::TcpStream;

use quicket_workload::bench::tcp::Peer;
use quicket_workload::bench::{Failure, Link};
use rustls::HandshakeKind;
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, UnbufferedStatus};

/// Bytes read from the socket at once, at most.
const READ: usize = 256 * 1024;
/// Bytes of application data encrypted for one write, at most.
const WRITE: usize = 128 * 1024;
/// Room for what TLS adds to `WRITE` bytes, and for a flight of the handshake.
const OVERHEAD: usize = 16 * 1024;

/// Either end of a TLS connection.
pub(in crate::bench) trait Tls {
    type Data;

    fn process<'c, 'i>(
        &'c mut self,
        incoming: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self::Data>;

    fn suite(&self) -> Option<rustls::SupportedCipherSuite>;

    fn is_handshaking(&self) -> bool;

    fn kind(&self) -> Option<HandshakeKind>;
}

macro_rules! tls {
    ($connection:ty, $data:ty) => {
        impl Tls for $connection {
            type Data = $data;

            fn process<'c, 'i>(
                &'c mut self,
                incoming: &'i mut [u8],
            ) -> UnbufferedStatus<'c, 'i, Self::Data> {
                self.process_tls_records(incoming)
            }

            fn suite(&self) -> Option<rustls::SupportedCipherSuite> {
                self.negotiated_cipher_suite()
            }

            fn is_handshaking(&self) -> bool {
                rustls::CommonState::is_handshaking(self)
            }

            fn kind(&self) -> Option<HandshakeKind> {
                self.handshake_kind()
            }
        }
    };
}

tls!(UnbufferedClientConnection, ClientConnectionData);
tls!(UnbufferedServerConnection, ServerConnectionData);

/// What a thread needs to serve one connection after the other.
pub(in crate::bench) struct Buffers {
    incoming: Vec<u8>,
    start: usize,
    end: usize,
    outgoing: Vec<u8>,
}

impl Default for Buffers {
    fn default() -> Self {
        Self { incoming: vec![0; READ], start: 0, end: 0, outgoing: vec![0; WRITE + OVERHEAD] }
    }
}

/// A TLS connection over a TCP socket. It has no buffers, so that an idle one takes little memory.
pub(in crate::bench) struct Channel<T> {
    tcp: TcpStream,
    tls: T,
}

impl<T: Tls> Channel<T> {
    /// Does the handshake.
    pub(super) fn establish(
        tcp: TcpStream,
        tls: T,
        buffers: &mut Buffers,
    ) -> Result<Self, Failure> {
        buffers.start = 0;
        buffers.end = 0;
        let mut channel = Self { tcp, tls };
        while !channel.handshake_step(buffers)? {}
        Ok(channel)
    }

    /// Goes on with the handshake; returns whether it is complete.
    fn handshake_step(&mut self, buffers: &mut Buffers) -> Result<bool, Failure> {
        let Buffers { incoming, start, end, outgoing, .. } = buffers;
        let mut ready = 0;
        loop {
            let UnbufferedStatus { discard, state, .. } =
                self.tls.process(&mut incoming[*start..*end]);
            let mut blocked = false;
            let mut complete = false;
            match state? {
                ConnectionState::EncodeTlsData(mut data) => {
                    ready += data.encode(&mut outgoing[ready..])?;
                }
                ConnectionState::TransmitTlsData(data) => {
                    self.tcp.write_all(&outgoing[..ready])?;
                    ready = 0;
                    data.done();
                }
                ConnectionState::BlockedHandshake => blocked = true,
                ConnectionState::WriteTraffic(_)
                | ConnectionState::ReadTraffic(_)
                // The client's last message of the handshake and its farewell in one.
                | ConnectionState::PeerClosed => complete = true,
                other => return Err(format!("the handshake ends in {other:?}").into()),
            }
            *start += discard;
            if complete && self.tls.is_handshaking() {
                return Err("the peer closed during the handshake".into());
            }
            if complete {
                // A ticket, for instance, if the first request has come with the last message of
                // the handshake.
                self.tcp.write_all(&outgoing[..ready])?;
                return Ok(true);
            }
            if blocked {
                return match self.receive(buffers)? {
                    Peer::Open => Ok(false),
                    Peer::Closed => Err("the peer closed during the handshake".into()),
                };
            }
        }
    }

    /// Reads once from the socket.
    fn receive(&mut self, buffers: &mut Buffers) -> Result<Peer, Failure> {
        let Buffers { incoming, start, end, .. } = buffers;
        if *start == *end {
            (*start, *end) = (0, 0);
        } else if *start > READ / 2 {
            incoming.copy_within(*start..*end, 0);
            (*start, *end) = (0, *end - *start);
        }
        let length = self.tcp.read(&mut incoming[*end..])?;
        *end += length;
        Ok(if length == 0 { Peer::Closed } else { Peer::Open })
    }

    /// Hands all complete records that are there to `sink`; reads from the socket first if there
    /// is none.
    pub(super) fn records(
        &mut self,
        buffers: &mut Buffers,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<Peer, Failure> {
        loop {
            let Buffers { incoming, start, end, .. } = buffers;
            let UnbufferedStatus { mut discard, state, .. } =
                self.tls.process(&mut incoming[*start..*end]);
            let mut progress = true;
            let mut peer = Peer::Open;
            match state? {
                ConnectionState::ReadTraffic(mut traffic) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record?;
                        discard += record.discard;
                        sink(record.payload);
                    }
                }
                ConnectionState::WriteTraffic(_) => progress = false,
                // The handshake has written it already.
                ConnectionState::TransmitTlsData(data) => {
                    data.done();
                    *start += discard;
                    continue;
                }
                ConnectionState::PeerClosed | ConnectionState::Closed => peer = Peer::Closed,
                other => return Err(format!("unexpected while reading: {other:?}").into()),
            }
            *start += discard;
            if progress || peer == Peer::Closed {
                return Ok(peer);
            }
            if self.receive(buffers)? == Peer::Closed {
                return Ok(Peer::Closed);
            }
        }
    }

    /// Encrypts and writes `data`.
    pub(super) fn write(&mut self, buffers: &mut Buffers, data: &[u8]) -> Result<(), Failure> {
        for chunk in data.chunks(WRITE) {
            let Buffers { incoming, start, end, outgoing, .. } = &mut *buffers;
            let length = loop {
                let UnbufferedStatus { discard, state, .. } =
                    self.tls.process(&mut incoming[*start..*end]);
                let length = match state? {
                    ConnectionState::WriteTraffic(mut traffic) => {
                        Some(traffic.encrypt(chunk, outgoing)?)
                    }
                    // The handshake has written it already.
                    ConnectionState::TransmitTlsData(data) => {
                        data.done();
                        None
                    }
                    other => return Err(format!("unexpected while writing: {other:?}").into()),
                };
                *start += discard;
                if let Some(length) = length {
                    break length;
                }
            };
            self.tcp.write_all(&outgoing[..length])?;
        }
        Ok(())
    }

    /// Says goodbye.
    pub(super) fn close(mut self, buffers: &mut Buffers) -> Result<(), Failure> {
        let UnbufferedStatus { state, .. } = self.tls.process(&mut []);
        if let ConnectionState::WriteTraffic(mut traffic) = state? {
            let length = traffic.queue_close_notify(&mut buffers.outgoing)?;
            self.tcp.write_all(&buffers.outgoing[..length])?;
        }
        Ok(())
    }

    /// Whether the handshake used a ticket.
    pub(super) fn resumed(&self) -> bool {
        self.tls.kind() == Some(HandshakeKind::Resumed)
    }

    /// What can be told of the connection.
    pub(super) fn link(&self) -> Link {
        let name = |suite: rustls::SupportedCipherSuite| {
            // rustls spells TLS_AES_128_GCM_SHA256 with the version in it.
            suite.suite().as_str().map(|name| name.replacen("TLS13_", "TLS_", 1))
        };
        Link { cipher: self.tls.suite().and_then(name), ..Link::default() }
    }
}
