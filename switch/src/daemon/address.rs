//! An address: its socket and its secrets.

use std::io;
use std::sync::Arc;

use quicket_steering::{Codec, Configurations, HashKey, ServerId};
use quicket_udp::{Sender, UdpConfig, UdpSocket};

use super::Aes128;
use crate::protocol::Secrets;
use crate::registry::ListenAddress;
use crate::router::Reader;

/// An address that the switch reads.
#[derive(Debug)]
pub(super) struct Address {
    pub(super) listen: ListenAddress,
    pub(super) socket: Arc<UdpSocket>,
    pub(super) sender: Sender,
    pub(super) secrets: Secrets,
    pub(super) counters: Counters,
}

/// What became of the datagrams of an address, beside what the router counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    /// Came to the socket.
    pub(super) received: u64,
    /// Were handed to programs.
    pub(super) forwarded: u64,
    /// Were lost because their program was slow.
    pub(super) lost: u64,
}

impl Address {
    pub(super) fn new(
        listen: ListenAddress,
        socket: std::net::UdpSocket,
        secrets: Secrets,
    ) -> io::Result<Self> {
        let socket = Arc::new(UdpSocket::new(socket)?);
        let sender = Sender::new(Arc::clone(&socket), &UdpConfig::default())?;
        Ok(Self { listen, socket, sender, secrets, counters: Counters::default() })
    }
}

/// How connection IDs are read that were made with these secrets.
pub(super) fn reader(secrets: &Secrets, aes_128: Aes128) -> io::Result<Reader> {
    let wrong = |text: String| io::Error::new(io::ErrorKind::InvalidData, text);
    let format = Secrets::format().map_err(|error| wrong(error.to_string()))?;
    let none = || wrong("no such configuration".to_owned());
    let id = secrets.configuration().ok_or_else(none)?;
    let mask = HashKey::new(secrets.mask.0);
    let codec = Codec::new(id, format, Some(aes_128(&secrets.key.0)), mask);
    Ok(Reader { configurations: Configurations::new(codec), server_id: ServerId::new(&[0]) })
}
