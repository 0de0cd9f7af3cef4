//! The client role: which connections there are, and what is done over each.

use std::time::{Duration, Instant};

use quicket_workload::bench::Failure;
use quicket_workload::peer::{ALPN_ECHO, ALPN_H3, ClientArguments, Event, Facts, emit};

use super::Connection;
use super::downloads::Downloads;
use super::echo::Echo;

/// How long to wait for a session ticket.
const TICKET_PATIENCE: Duration = Duration::from_secs(2);
/// No error, in HTTP/3 (RFC 9114, Section 8.1); the other protocols define no codes.
const H3_NO_ERROR: u64 = 0x100;

/// Does what can be done now; true when all is done.
type Work<'a> = &'a mut dyn FnMut(&mut dyn Connection) -> Result<bool, Failure>;

/// A connection that is to be made, and closed when all is done over it.
pub struct Attempt<'a> {
    /// The session that it resumes.
    pub session: Option<Vec<u8>>,
    /// The code to close it with.
    pub code: u64,
    number: u64,
    work: Work<'a>,
    wants_ticket: bool,
    /// Since when the work is done.
    done: Option<Instant>,
}

impl Attempt<'_> {
    /// Reports the complete handshake.
    pub fn report(&self) {
        emit(&Event::Connection { connection: self.number, facts: Facts::default() });
    }

    /// Does what can be done now; true when the connection is to be closed.
    ///
    /// # Errors
    ///
    /// When the work fails.
    pub fn go_on(&mut self, conn: &mut dyn Connection, has_ticket: bool) -> Result<bool, Failure> {
        if self.done.is_none() && (self.work)(conn)? {
            self.done = Some(Instant::now());
        }
        let waits = self.wants_ticket && !has_ticket;
        Ok(self.done.is_some_and(|since| !waits || since.elapsed() > TICKET_PATIENCE))
    }

    /// Whether the work is done.
    pub fn is_done(&self) -> bool {
        self.done.is_some()
    }
}

/// Does what a client is told. `connect` makes a connection, and returns its session.
///
/// # Errors
///
/// When a connection fails, or what is done over it.
pub fn run(
    arguments: &ClientArguments,
    connect: &(impl Fn(Attempt<'_>) -> Result<Option<Vec<u8>>, Failure> + Sync),
) -> Result<(), Failure> {
    let code = if arguments.alpn == ALPN_H3 { H3_NO_ERROR } else { 0 };
    let download = |number, paths: &[String], session, wants_ticket| {
        let mut downloads = Downloads::new(number, arguments.out.clone(), paths);
        let work = &mut |conn: &mut dyn Connection| {
            if arguments.alpn == ALPN_H3 {
                downloads.go_on_http3(conn, &arguments.server_name)
            } else {
                downloads.go_on(conn)
            }
        };
        connect(Attempt { session, code, number, work, wants_ticket, done: None })
    };
    let alone = |(number, path)| {
        let path = std::slice::from_ref(path);
        download(number, path, None, false).map(drop)
    };
    let paths = arguments.download.as_slice();
    if arguments.unknown_version {
        download(1, &[], None, false)?;
    } else if arguments.one_by_one {
        (1..).zip(paths).try_for_each(alone)?;
    } else if arguments.parallel {
        std::thread::scope(|scope| {
            let start = |path| scope.spawn(move || alone(path));
            let threads: Vec<_> = (1..).zip(paths).map(start).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, Result<(), Failure>>| {
                thread.join().unwrap_or_else(|_| Err("a thread has panicked".into()))
            };
            threads.into_iter().try_for_each(join)
        })?;
    } else if arguments.resume || arguments.early_data {
        let (first, rest) = paths.split_at_checked(1).unwrap_or((paths, &[]));
        let session = download(1, first, None, true)?;
        download(2, rest, session, false)?;
    } else if arguments.alpn == ALPN_ECHO {
        let mut echo = Echo::new(arguments);
        let work = &mut |conn: &mut dyn Connection| echo.go_on(conn);
        connect(Attempt { session: None, code, number: 1, work, wants_ticket: false, done: None })?;
    } else {
        download(1, paths, None, false)?;
    }
    emit(&Event::Done);
    Ok(())
}
