//! The server role.

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use quiche::{Config, ConnectionId, Header, RecvInfo, Type};
use quicket_peer_common::streams::{Answers, DATAGRAM};
use quicket_peer_common::{input_ended, socket};
use quicket_workload::bench::Failure;
use quicket_workload::peer::{Event, ServerArguments, emit};

use crate::client::{flush, random_cid};
use crate::config;
use crate::over::Over;
use crate::stateless::Stateless;

/// Bytes of our connection IDs, which are those that clients choose at first.
const CID: usize = 16;
/// The least datagram that may start a connection (RFC 9000, Section 14.1).
const FIRST: usize = 1200;

pub fn run(arguments: &ServerArguments) -> Result<(), Failure> {
    let socket = UdpSocket::bind(arguments.listen)?;
    let local = socket.local_addr()?;
    let mut server = Server {
        socket,
        local,
        config: config::server(arguments)?,
        stateless: Stateless::new(arguments.reset_key.as_deref())?,
        retry: arguments.retry,
        folder: arguments.www.clone(),
        routes: HashMap::new(),
        served: HashMap::new(),
        next: 0,
    };
    emit(&Event::Listening { address: local });
    let ended = input_ended();
    while !ended.load(Ordering::Relaxed) {
        server.turn()?;
    }
    Ok(())
}

struct Server {
    socket: UdpSocket,
    local: SocketAddr,
    config: Config,
    stateless: Stateless,
    retry: bool,
    folder: Option<PathBuf>,
    /// Connection IDs of connections.
    routes: HashMap<ConnectionId<'static>, u64>,
    served: HashMap<u64, (Over, Answers)>,
    next: u64,
}

impl Server {
    /// Receives, and lets every connection do what it can.
    fn turn(&mut self) -> Result<(), Failure> {
        let timeouts = self.served.values().filter_map(|(over, _)| over.conn.timeout());
        let mut buffer = [0; DATAGRAM];
        if let Some((datagram, from)) = socket::receive(&self.socket, timeouts.min(), &mut buffer)?
        {
            self.received(datagram, from)?;
        }
        let numbers: Vec<u64> = self.served.keys().copied().collect();
        for number in numbers {
            self.serve(number)?;
        }
        Ok(())
    }

    fn received(&mut self, datagram: &mut [u8], from: SocketAddr) -> Result<(), Failure> {
        let length = datagram.len();
        let Ok(header) = Header::from_slice(datagram, CID) else { return Ok(()) };
        let known = self.routes.get(&header.dcid).copied();
        let number = match known {
            Some(number) => Some(number),
            None if header.ty == Type::Short => {
                let reset = self.stateless.reset(&header.dcid)?;
                if length > reset.len() {
                    socket::send(&self.socket, &reset, from)?;
                }
                None
            }
            None => self.accept(&header, length, from)?,
        };
        if let Some((over, _)) = number.and_then(|number| self.served.get_mut(&number)) {
            // What is wrong with a packet is no concern of the others.
            let _ = over.conn.recv(datagram, RecvInfo { from, to: self.local });
        }
        Ok(())
    }

    /// Answers a packet of no connection, or starts one.
    fn accept(
        &mut self,
        header: &Header<'_>,
        length: usize,
        from: SocketAddr,
    ) -> Result<Option<u64>, Failure> {
        let mut out = [0; DATAGRAM];
        if length < FIRST {
            return Ok(None);
        }
        if !quiche::version_is_supported(header.version) {
            let len = quiche::negotiate_version(&header.scid, &header.dcid, &mut out)?;
            socket::send(&self.socket, &out[..len], from)?;
            return Ok(None);
        }
        if header.ty != Type::Initial {
            return Ok(None);
        }
        let original = self.stateless.original(header, from);
        if self.retry && original.is_none() {
            let len = self.stateless.retry(header, from, &mut out)?;
            socket::send(&self.socket, &out[..len], from)?;
            return Ok(None);
        }
        // After a Retry it is the one that the Retry has named.
        let cid = match &original {
            Some(_) => ConnectionId::from_vec(header.dcid.to_vec()),
            None => random_cid()?,
        };
        self.config.set_stateless_reset_token(Some(self.stateless.reset_token(&cid)));
        let config = &mut self.config;
        let conn = quiche::accept(&cid, original.as_ref(), self.local, from, config)?;
        self.next += 1;
        self.routes.insert(cid, self.next);
        self.routes.insert(ConnectionId::from_vec(header.dcid.to_vec()), self.next);
        self.served.insert(self.next, (Over::new(conn)?, Answers::default()));
        Ok(Some(self.next))
    }

    fn serve(&mut self, number: u64) -> Result<(), Failure> {
        let Some((over, answers)) = self.served.get_mut(&number) else { return Ok(()) };
        let conn = &mut over.conn;
        if conn.timeout() == Some(Duration::ZERO) {
            conn.on_timeout();
        }
        if conn.is_established() || conn.is_in_early_data() {
            while conn.scids_left() > 0 {
                let cid = random_cid()?;
                conn.new_scid(&cid, self.stateless.reset_token(&cid), false)?;
                self.routes.insert(cid, number);
            }
            if !conn.is_closed()
                && !conn.is_draining()
                && let Err(failure) = answers.go_on(over, self.folder.as_deref())
            {
                emit(&Event::Error { message: format!("connection {number}: {failure}") });
                // Fails if it is closed already.
                let _ = over.conn.close(true, 1, b"failed");
            }
        }
        let conn = &mut over.conn;
        while let Some(cid) = conn.retired_scid_next() {
            self.routes.remove(&cid);
        }
        flush(&self.socket, conn)?;
        if conn.is_closed() {
            self.served.remove(&number);
            self.routes.retain(|_, route| *route != number);
        }
        Ok(())
    }
}
