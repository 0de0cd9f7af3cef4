//! The client role.

use quicket_peer_common::streams::client::{self, Attempt};
use quicket_workload::bench::Failure;
use quicket_workload::peer::ClientArguments;
use tquic::Connection;
use tquic::h3::connection::Http3Connection;

use crate::config;
use crate::drive::{Drive, News, is_ready};
use crate::over::Over;

pub fn run(arguments: &ClientArguments) -> Result<(), Failure> {
    client::run(arguments, &|attempt| connect(arguments, attempt))
}

/// Connects, does the work and closes; returns a session for the next connection.
fn connect(arguments: &ClientArguments, attempt: Attempt<'_>) -> Result<Option<Vec<u8>>, Failure> {
    let local = if arguments.connect.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
    let mut drive = Drive::new(local.parse()?, config::client(arguments)?, false)?;
    let (name, local) = (arguments.server_name.as_str(), drive.local());
    let (remote, session) = (arguments.connect, attempt.session.as_deref());
    let index = drive.endpoint.connect(local, remote, Some(name), session, None, None)?;
    let mut task = Task { attempt, http3: None, session: None };
    loop {
        if let Some(conn) = drive.endpoint.conn_get_mut(index) {
            task.go_on(conn)?;
        }
        drive.turn()?;
        for news in drive.news.try_iter() {
            match news {
                News::Begun(_) => {}
                News::Established => task.attempt.report(),
                News::Ended(..) if task.attempt.is_done() => return Ok(task.session),
                News::Ended(_, reason) => {
                    let reason = reason.unwrap_or_else(|| "no reason is known".to_owned());
                    return Err(format!("the connection has ended: {reason}").into());
                }
            }
        }
    }
}

/// What is left to do over a connection.
struct Task<'a> {
    attempt: Attempt<'a>,
    http3: Option<Http3Connection>,
    /// For the next connection.
    session: Option<Vec<u8>>,
}

impl Task<'_> {
    fn go_on(&mut self, conn: &mut Connection) -> Result<(), Failure> {
        if !is_ready(conn) {
            return Ok(());
        }
        self.session = conn.session().map(<[u8]>::to_vec);
        let has_ticket = self.session.is_some();
        let over = &mut Over { conn, http3: &mut self.http3 };
        if self.attempt.go_on(over, has_ticket)? && conn.is_established() {
            match conn.close(true, self.attempt.code, b"done") {
                Ok(()) | Err(tquic::Error::Done) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
