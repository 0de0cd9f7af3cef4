//! The client role.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use aws_lc_rs::rand;
use quiche::{Connection, ConnectionId, RecvInfo};
use quicket_peer_common::streams::{DATAGRAM, Downloads, Echo};
use quicket_workload::bench::Failure;
use quicket_workload::peer::{ALPN_ECHO, ALPN_H3, ClientArguments, Event, Facts, emit};

use crate::config;
use crate::http3::Http3;

/// Bytes of our connection IDs.
const CID: usize = 16;
/// The longest sleep, and how long to wait for a session ticket.
const NAP: Duration = Duration::from_millis(100);
const TICKET_PATIENCE: Duration = Duration::from_secs(2);

/// What is done over a connection.
pub trait Work {
    /// Does what can be done now; true when all is done.
    fn go_on(&mut self, conn: &mut Connection) -> Result<bool, Failure>;
}

/// Nothing but the handshake.
struct Nothing;

impl Work for Nothing {
    fn go_on(&mut self, _: &mut Connection) -> Result<bool, Failure> {
        Ok(true)
    }
}

pub fn run(arguments: &ClientArguments) -> Result<(), Failure> {
    let client = Client { arguments };
    let paths = arguments.download.as_slice();
    if arguments.unknown_version {
        client.connect(1, &mut Nothing, None, false)?;
    } else if arguments.one_by_one {
        for (number, path) in (1..).zip(paths) {
            client.download(number, std::slice::from_ref(path), None, false)?;
        }
    } else if arguments.parallel {
        std::thread::scope(|scope| {
            let start = |(number, path)| {
                let work = move || client.download(number, std::slice::from_ref(path), None, false);
                scope.spawn(move || work().map(|_| ()))
            };
            let threads: Vec<_> = (1..).zip(paths).map(start).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, Result<(), Failure>>| {
                thread.join().unwrap_or_else(|_| Err("a thread has panicked".into()))
            };
            threads.into_iter().try_for_each(join)
        })?;
    } else if arguments.resume || arguments.early_data {
        let (first, rest) = paths.split_at_checked(1).unwrap_or((paths, &[]));
        let session = client.download(1, first, None, true)?;
        client.download(2, rest, session, false)?;
    } else if arguments.alpn == ALPN_ECHO {
        client.connect(1, &mut Echo::new(arguments), None, false)?;
    } else {
        client.download(1, paths, None, false)?;
    }
    emit(&Event::Done);
    Ok(())
}

#[derive(Clone, Copy)]
struct Client<'a> {
    arguments: &'a ClientArguments,
}

impl Client<'_> {
    fn download(
        self,
        number: u64,
        paths: &[String],
        session: Option<Vec<u8>>,
        wants_ticket: bool,
    ) -> Result<Option<Vec<u8>>, Failure> {
        let out = self.arguments.out.clone();
        let mut downloads = Downloads::new(number, out, paths);
        if self.arguments.alpn == ALPN_H3 {
            let authority = self.arguments.server_name.clone();
            let mut http3 = Http3::new(authority, downloads);
            return self.connect(number, &mut http3, session, wants_ticket);
        }
        self.connect(number, &mut downloads, session, wants_ticket)
    }

    /// Connects, does the work and closes; returns a session for the next connection.
    fn connect(
        self,
        number: u64,
        work: &mut dyn Work,
        session: Option<Vec<u8>>,
        wants_ticket: bool,
    ) -> Result<Option<Vec<u8>>, Failure> {
        let arguments = self.arguments;
        let local = if arguments.connect.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
        let socket = UdpSocket::bind(local)?;
        let local = socket.local_addr()?;
        let mut config = config::client(arguments)?;
        let cid = random_cid()?;
        let name = Some(arguments.server_name.as_str());
        let mut conn = quiche::connect(name, &cid, local, arguments.connect, &mut config)?;
        if let Some(file) = config::key_log()? {
            conn.set_keylog(Box::new(file));
        }
        if let Some(session) = session {
            conn.set_session(&session)?;
        }
        let mut drive = Drive { socket, local, number, wants_ticket, told: false, done: None };
        drive.run(&mut conn, work, if arguments.alpn == ALPN_H3 { 0x100 } else { 0 })?;
        Ok(conn.session().map(<[u8]>::to_vec))
    }
}

/// A connection on its socket.
struct Drive {
    socket: UdpSocket,
    local: SocketAddr,
    number: u64,
    wants_ticket: bool,
    /// The handshake was reported.
    told: bool,
    /// Since when the work is done.
    done: Option<Instant>,
}

impl Drive {
    fn run(
        &mut self,
        conn: &mut Connection,
        work: &mut dyn Work,
        code: u64,
    ) -> Result<(), Failure> {
        while !conn.is_closed() {
            if conn.is_established() && !self.told {
                self.told = true;
                let connection = self.number;
                emit(&Event::Connection { connection, facts: Facts::default() });
            }
            if (conn.is_established() || conn.is_in_early_data()) && !conn.is_draining() {
                self.work(conn, work, code)?;
            }
            flush(&self.socket, conn)?;
            self.receive(conn)?;
        }
        if self.done.is_some() {
            return Ok(());
        }
        let error = conn.peer_error().or(conn.local_error());
        Err(match error {
            Some(error) => format!("the connection has ended: {error:?}").into(),
            None if conn.is_timed_out() => "the server has fallen silent".into(),
            None => "the connection has ended".into(),
        })
    }

    fn work(
        &mut self,
        conn: &mut Connection,
        work: &mut dyn Work,
        code: u64,
    ) -> Result<(), Failure> {
        // More connection IDs than the first, for a server whose path to us changes.
        while conn.scids_left() > 0 {
            let token = u128::from_be_bytes(random()?);
            conn.new_scid(&random_cid()?, token, false)?;
        }
        if self.done.is_none() && work.go_on(conn)? {
            self.done = Some(Instant::now());
        }
        let Some(since) = self.done else { return Ok(()) };
        let waits = self.wants_ticket && conn.session().is_none();
        if conn.is_established() && (!waits || since.elapsed() > TICKET_PATIENCE) {
            match conn.close(true, code, b"done") {
                Ok(()) | Err(quiche::Error::Done) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn receive(&self, conn: &mut Connection) -> Result<(), Failure> {
        let wait = conn.timeout().unwrap_or(NAP).clamp(Duration::from_millis(1), NAP);
        self.socket.set_read_timeout(Some(wait))?;
        let mut buffer = [0; DATAGRAM];
        match self.socket.recv_from(&mut buffer) {
            Ok((len, from)) => {
                // What is wrong with a packet is no concern of the others; what ends the connection
                // shows there.
                let info = RecvInfo { from, to: self.local };
                let _ = conn.recv(&mut buffer[..len], info);
            }
            Err(error) if is_nothing(error.kind()) => {}
            Err(error) => return Err(error.into()),
        }
        if conn.timeout() == Some(Duration::ZERO) {
            conn.on_timeout();
        }
        Ok(())
    }
}

/// Packets of a connection that is closed: if a probe is due at that moment, quiche writes others
/// without end.
pub const GOODBYES: usize = 4;

/// Sends all that may be sent now.
pub fn flush(socket: &UdpSocket, conn: &mut Connection) -> Result<(), Failure> {
    let mut buffer = [0; DATAGRAM];
    let most = if conn.local_error().is_some() { GOODBYES } else { usize::MAX };
    for _ in 0..most {
        match conn.send(&mut buffer) {
            Ok((len, info)) => match socket.send_to(&buffer[..len], info.to) {
                Ok(_) => {}
                Err(error) if is_nothing(error.kind()) => {}
                Err(error) => return Err(error.into()),
            },
            Err(quiche::Error::Done) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Nothing came, or what went before found nobody.
pub fn is_nothing(kind: ErrorKind) -> bool {
    use ErrorKind::{ConnectionRefused, Interrupted, TimedOut, WouldBlock};
    matches!(kind, WouldBlock | TimedOut | Interrupted | ConnectionRefused)
}

pub fn random<const N: usize>() -> Result<[u8; N], Failure> {
    let mut bytes = [0; N];
    rand::fill(&mut bytes).map_err(|_| "there are no random numbers")?;
    Ok(bytes)
}

pub fn random_cid() -> Result<ConnectionId<'static>, Failure> {
    Ok(ConnectionId::from_vec(random::<CID>()?.to_vec()))
}
