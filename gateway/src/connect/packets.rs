//! Local packets as datagrams. Each sender has a connection of its own, so that the origin sees each as another
//! client, as it would without this between.

use std::collections::HashMap;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quicket::DatagramError;
use quicket::tokio::Connection;
use tokio::net::UdpSocket;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::time::sleep;

use super::{Error, Event, Local, Say, Server};
use crate::carry::Meter;

/// Senders at once; packets of others are lost.
const MAX_FLOWS: usize = 1024;
/// Packets of a sender that wait.
const MAX_WAITING: usize = 64;
/// A flow ends when nothing has come in either direction for so long.
const IDLE: Duration = Duration::from_secs(60);
/// Packets that come so soon after a failed attempt are lost: the next makes another one.
const PAUSE: Duration = Duration::from_secs(1);
/// The largest payload of UDP, in bytes.
const MAX_PACKET: usize = 65_535;

/// Carries packets until `stop` is ready.
pub(super) async fn run(
    socket: UdpSocket,
    local: &Local,
    server: Server,
    say: Say,
    stop: impl Future<Output = ()>,
) -> Result<(), Error> {
    let mut stop = std::pin::pin!(stop);
    // Whether it will do at all is said now, and not with the first packet.
    tokio::select! {
        first = connect(&server, &say) => first?.close(0, b""),
        () = &mut stop => return Ok(()),
    }
    say(&Event::Listening(local.clone()));
    let flows = Flows { socket: Arc::new(socket), server, say, senders: HashMap::new() };
    tokio::select! {
        ended = flows.run() => ended.map_err(|error| Error::Local(local.clone(), error)),
        () = &mut stop => Ok(()),
    }
}

async fn connect(server: &Server, say: &Say) -> Result<Connection, Error> {
    let connection = server.connect(false, say).await?;
    match connection.max_datagram_size() {
        Some(_) => Ok(connection),
        None => {
            connection.close(0, b"");
            Err(Error::NoDatagrams)
        }
    }
}

struct Flows {
    socket: Arc<UdpSocket>,
    server: Server,
    say: Say,
    senders: HashMap<SocketAddr, Sender<Vec<u8>>>,
}

impl Flows {
    async fn run(mut self) -> std::io::Result<()> {
        let mut buffer = vec![0; MAX_PACKET];
        loop {
            let (len, from) = match self.socket.recv_from(&mut buffer).await {
                Ok(received) => received,
                // ICMP has said that a sender is there no more.
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => continue,
                Err(error) => return Err(error),
            };
            let packet = buffer.get(..len).unwrap_or_default().to_vec();
            if let Some(sender) = self.sender(from) {
                // Where too many wait, this one is lost, as on any network.
                let _ = sender.try_send(packet);
            }
        }
    }

    /// The flow of a sender, if there is room for it.
    fn sender(&mut self, from: SocketAddr) -> Option<&Sender<Vec<u8>>> {
        if self.senders.get(&from).is_none_or(Sender::is_closed) {
            if self.senders.len() >= MAX_FLOWS {
                self.senders.retain(|_, sender| !sender.is_closed());
            }
            if self.senders.len() >= MAX_FLOWS {
                return None;
            }
            let (sender, packets) = mpsc::channel(MAX_WAITING);
            let flow =
                Flow { socket: Arc::clone(&self.socket), peer: from, say: Arc::clone(&self.say) };
            tokio::spawn(flow.run(self.server.clone(), packets));
            self.senders.insert(from, sender);
        }
        self.senders.get(&from)
    }
}

/// The packets of one sender.
struct Flow {
    socket: Arc<UdpSocket>,
    peer: SocketAddr,
    say: Say,
}

impl Flow {
    async fn run(self, server: Server, mut packets: Receiver<Vec<u8>>) {
        let connection = tokio::select! {
            connected = connect(&server, &self.say) => connected,
            // Whoever asked for it is gone: no packet can come.
            () = self.abandoned(&packets) => return,
        };
        match connection {
            Ok(connection) => {
                self.carry(&connection, &mut packets).await;
                connection.close(0, b"");
            }
            Err(error) => {
                (self.say)(&Event::Failed(error, PAUSE));
                sleep(PAUSE).await;
            }
        }
    }

    async fn abandoned(&self, packets: &Receiver<Vec<u8>>) {
        while !packets.is_closed() {
            sleep(PAUSE).await;
        }
    }

    async fn carry(&self, connection: &Connection, packets: &mut Receiver<Vec<u8>>) {
        let meter = Meter::new();
        let out = async {
            let mut told = false;
            while let Some(packet) = packets.recv().await {
                meter.went(packet.len());
                match connection.send_latest_datagram(&packet) {
                    Err(DatagramError::TooLarge { .. }) if !told => {
                        told = true;
                        (self.say)(&Event::TooLarge(packet.len()));
                    }
                    Err(DatagramError::Lost(_)) => return,
                    // Lost, as on any network.
                    _ => {}
                }
            }
        };
        let home = async {
            while let Ok(datagram) = connection.recv_datagram().await {
                meter.came(datagram.len());
                // Whoever does not listen any more misses it.
                let _ = self.socket.send_to(&datagram, self.peer).await;
            }
        };
        tokio::select! {
            () = out => {}
            () = home => {}
            () = meter.idle(IDLE) => {}
        }
    }
}
