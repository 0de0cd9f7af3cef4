//! The client role.

use std::time::{Duration, Instant};

use quicket_peer_common::streams::{Downloads, Echo};
use quicket_workload::bench::Failure;
use quicket_workload::peer::{ALPN_ECHO, ALPN_H3, ClientArguments, Event, Facts, emit};
use tquic::Connection;

use crate::config;
use crate::drive::{Drive, News};
use crate::http3::Http3;
use crate::over::Over;

/// How long to wait for a session ticket.
const TICKET_PATIENCE: Duration = Duration::from_secs(2);

/// What is done over a connection.
pub trait Work {
    /// Does what can be done now; true when all is done.
    fn go_on(&mut self, conn: &mut Connection) -> Result<bool, Failure>;
}

impl Work for Downloads {
    fn go_on(&mut self, conn: &mut Connection) -> Result<bool, Failure> {
        Self::go_on(self, &mut Over(conn))
    }
}

impl Work for Echo {
    fn go_on(&mut self, conn: &mut Connection) -> Result<bool, Failure> {
        Self::go_on(self, &mut Over(conn))
    }
}

pub fn run(arguments: &ClientArguments) -> Result<(), Failure> {
    let client = Client { arguments };
    let paths = arguments.download.as_slice();
    if arguments.one_by_one {
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
        let mut drive = Drive::new(local.parse()?, config::client(arguments)?, false)?;
        let (name, local) = (arguments.server_name.as_str(), drive.local());
        let session = session.as_deref();
        let remote = arguments.connect;
        let index = drive.endpoint.connect(local, remote, Some(name), session, None, None)?;
        let mut task = Task { number, wants_ticket, done: None, session: None };
        let code = if arguments.alpn == ALPN_H3 { 0x100 } else { 0 };
        loop {
            if let Some(conn) = drive.endpoint.conn_get_mut(index) {
                task.go_on(conn, work, code)?;
            }
            drive.turn()?;
            for news in drive.news.try_iter() {
                match news {
                    News::Begun(_) => {}
                    News::Established => {
                        let connection = task.number;
                        emit(&Event::Connection { connection, facts: Facts::default() });
                    }
                    News::Ended(..) if task.done.is_some() => return Ok(task.session),
                    News::Ended(_, reason) => {
                        let reason = reason.unwrap_or_else(|| "no reason is known".to_owned());
                        return Err(format!("the connection has ended: {reason}").into());
                    }
                }
            }
        }
    }
}

/// What is left to do over a connection.
struct Task {
    number: u64,
    wants_ticket: bool,
    /// Since when the work is done.
    done: Option<Instant>,
    session: Option<Vec<u8>>,
}

impl Task {
    fn go_on(
        &mut self,
        conn: &mut Connection,
        work: &mut dyn Work,
        code: u64,
    ) -> Result<(), Failure> {
        let ready = conn.is_established() || conn.is_in_early_data();
        if !ready || conn.is_closing() || conn.is_draining() || conn.is_closed() {
            return Ok(());
        }
        if self.done.is_none() && work.go_on(conn)? {
            self.done = Some(Instant::now());
        }
        self.session = conn.session().map(<[u8]>::to_vec);
        let Some(since) = self.done else { return Ok(()) };
        let waits = self.wants_ticket && self.session.is_none();
        if conn.is_established() && (!waits || since.elapsed() > TICKET_PATIENCE) {
            match conn.close(true, code, b"done") {
                Ok(()) | Err(tquic::Error::Done) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
