//! Options, each with its own type.

use std::net::SocketAddr;

use quicket_engine::MigrationError;

use super::{Phase, Session, Socket, State, state_of, streams};
use crate::error::MigrateError;
use crate::message::alpn::Alpn;
use crate::message::errno::Errno;
use crate::message::ledger::{MAX_TICKET, number};
use crate::message::notification::EventType;
use crate::message::raw::{Config, ConnectionClose, ConnectionIdInfo, ErrInfo, TransportParam};
use crate::message::settings;

/// The shortest session ticket, in bytes.
const MIN_TICKET: usize = 64;
/// The longest session, in bytes: it may hold the server's certificates.
const MAX_SESSION: usize = 128 << 10;
/// The longest token, in bytes.
const MAX_TOKEN: usize = 120;

impl Socket {
    /// Whether notifications of a kind are received (EVENT); all are off at first.
    pub fn set_event(&self, kind: EventType, on: bool) {
        self.ledger().lock().inbox.want(kind, on);
    }

    /// Whether notifications of a kind are received.
    #[must_use]
    pub fn event(&self, kind: EventType) -> bool {
        self.ledger().lock().wants(kind)
    }

    /// Gives a stream up (STREAM_RESET).
    ///
    /// # Errors
    ///
    /// EINVAL unless the socket is established and the stream is open for sending; ENOSTR if it
    /// is closed.
    pub fn reset_stream(&self, info: ErrInfo) -> Result<(), Errno> {
        let session = self.established(Errno::EINVAL)?;
        let ledger = self.ledger();
        session.conn.act(|conn, _| {
            let id = streams::parse(info.stream_id)?;
            streams::for_reset(conn, ledger, id)?;
            conn.reset(id, u64::from(info.errcode)).map_err(|_| Errno::EINVAL)?;
            ledger.lock().release_stream(id);
            Ok(())
        })
    }

    /// Asks the peer to stop sending on a stream (STREAM_STOP_SENDING). What is here can be
    /// received; what comes until the peer does stop is dropped.
    ///
    /// # Errors
    ///
    /// EINVAL unless the socket is established and data of the stream is outstanding; ENOSTR if
    /// it is closed; EAGAIN if the peer was asked already.
    pub fn stop_sending(&self, info: ErrInfo) -> Result<(), Errno> {
        let session = self.established(Errno::EINVAL)?;
        session.conn.act(|conn, _| {
            let id = streams::parse(info.stream_id)?;
            streams::for_stop(&mut conn.engine, id)?;
            let asked = conn.engine.request_stop(id, u64::from(info.errcode));
            asked.map_err(|_| Errno::EINVAL)?;
            self.ledger().lock().inbox.stop_stream(&mut conn.engine, id);
            Ok(())
        })
    }

    /// The numbers of the peer's connection IDs (`dest`) or of this side's (CONNECTION_ID).
    ///
    /// # Errors
    ///
    /// EINVAL unless the socket is established.
    pub fn connection_id(&self, dest: bool) -> Result<ConnectionIdInfo, Errno> {
        let session = self.established(Errno::EINVAL)?;
        session.conn.look(|conn| {
            let (numbers, active) = if dest {
                let numbers = conn.engine.remote_cid_numbers();
                (numbers, numbers.active.unwrap_or(numbers.first))
            } else {
                let numbers = conn.engine.local_cid_numbers();
                (numbers, self.ledger().lock().active_local_cid(numbers))
            };
            Ok(ConnectionIdInfo {
                dest: u8::from(dest),
                active: number(active),
                prior_to: number(numbers.first),
            })
        })
    }

    /// Retires connection IDs, and chooses the one in use (CONNECTION_ID).
    ///
    /// # Errors
    ///
    /// EINVAL unless the socket is established and the numbers fit; EAGAIN while the connection
    /// moves, or the peer has yet to retire what it was asked to before.
    pub fn set_connection_id(&self, info: ConnectionIdInfo) -> Result<(), Errno> {
        let session = self.established(Errno::EINVAL)?;
        if info.dest == 0 {
            self.set_local_cid(&session, info)
        } else {
            set_remote_cid(&session, info)
        }
    }

    fn set_local_cid(&self, session: &Session, info: ConnectionIdInfo) -> Result<(), Errno> {
        session.conn.act(|conn, now| {
            let numbers = conn.engine.local_cid_numbers();
            let (prior_to, active) = (u64::from(info.prior_to), u64::from(info.active));
            if prior_to != 0 && (prior_to > numbers.last || prior_to <= numbers.first) {
                return Err(Errno::EINVAL);
            }
            let mut account = self.ledger().lock();
            if active != 0 {
                if active <= account.active_local_cid(numbers) || active > numbers.last {
                    return Err(Errno::EINVAL);
                }
                account.local_active = active;
            }
            drop(account);
            if prior_to != 0 && !conn.engine.retire_local_cids(now, prior_to) {
                return Err(Errno::EAGAIN);
            }
            Ok(())
        })
    }

    /// How the connection will end, or has ended (CONNECTION_CLOSE).
    #[must_use]
    pub fn connection_close(&self) -> ConnectionClose {
        self.ledger().lock().close
    }

    /// Code and words for the peer when this side ends the connection (CONNECTION_CLOSE). The
    /// frame type is always 0.
    pub fn set_connection_close(&self, close: &ConnectionClose) {
        self.ledger().lock().close = ConnectionClose::new(close.errcode, 0, close.words());
    }

    /// Moves the connection to another address of this side; before its handshake, tells a
    /// server's client where to move (CONNECTION_MIGRATION).
    ///
    /// # Errors
    ///
    /// EPIPE without a connection; EINVAL for port 0, the present address, one of another
    /// family, before the handshake of a client, and on a server after it, which QUIC does not
    /// let move (RFC 9000, Section 9); EAGAIN while a move is under way, or too early for one;
    /// else what the system says.
    pub fn migrate(&self, address: SocketAddr) -> Result<(), Errno> {
        let mut control = self.control();
        let address = control.accept_address(address)?;
        if address.port() == 0 || address.ip().is_unspecified() {
            return Err(Errno::EINVAL);
        }
        let state = control.state();
        let Phase::Connection(session) = &mut control.phase else { return Err(Errno::EPIPE) };
        if state == State::Closed {
            return Err(Errno::EPIPE);
        }
        let (local, is_migrating, peer) = session.conn.look(|conn| {
            let engine = &conn.engine;
            (engine.local(), engine.is_migrating(), engine.peer_transport_parameters())
        });
        if local == Some(address) {
            return Err(Errno::EINVAL);
        }
        if state == State::Establishing {
            let forbidden = peer.is_some_and(|peer| peer.disable_active_migration);
            if !session.is_server || session.begun || forbidden {
                return Err(Errno::EINVAL);
            }
            session.preferred = Some(address);
            return Ok(());
        }
        if session.is_server || local.is_some_and(|local| local.is_ipv6() != address.is_ipv6()) {
            return Err(Errno::EINVAL);
        }
        if is_migrating {
            return Err(Errno::EAGAIN);
        }
        let conn = session.conn.clone();
        drop(control);
        conn.migrate(address).map_err(|error| match error {
            MigrateError::Bind(error) => Errno::from(error.io_error()),
            MigrateError::Refused(
                MigrationError::HandshakeNotConfirmed
                | MigrationError::NoConnectionId
                | MigrationError::TooManyPaths,
            ) => Errno::EAGAIN,
            MigrateError::Refused(_) => Errno::EINVAL,
        })
    }

    /// Updates the keys of 1-RTT packets (KEY_UPDATE), as soon as the peer is known to know that
    /// the handshake is complete.
    ///
    /// # Errors
    ///
    /// EPIPE unless the socket is established; EINVAL while an update is under way.
    pub fn update_keys(&self) -> Result<(), Errno> {
        let session = self.established(Errno::EPIPE)?;
        session.conn.act(|conn, now| {
            if conn.engine.update_keys(now).is_ok() {
                return Ok(());
            }
            let mut account = self.ledger().lock();
            if conn.engine.is_confirmed() || account.key_update_due {
                return Err(Errno::EINVAL);
            }
            account.key_update_due = true;
            Ok(())
        })
    }

    /// Transport parameters of the peer (`remote`) or of this side (TRANSPORT_PARAM).
    #[must_use]
    pub fn transport_param(&self, remote: bool) -> TransportParam {
        let control = self.control();
        if !remote {
            return control.settings.local;
        }
        let told = control.session(Errno::EINVAL).ok().and_then(|session| {
            session
                .conn
                .look(|conn| conn.engine.peer_transport_parameters())
                .map(|theirs| settings::param_of_peer(&theirs))
        });
        let assumed = TransportParam { remote: 1, ..TransportParam::default() };
        told.or(control.settings.remote).unwrap_or(assumed)
    }

    /// Sets transport parameters of this side, or what is known of the peer's for 0-RTT
    /// (TRANSPORT_PARAM). Zeros leave parameters as they are.
    ///
    /// # Errors
    ///
    /// EINVAL for values out of range, on an established socket, for this side's once they are
    /// announced, and for the peer's unless the handshake is under way.
    pub fn set_transport_param(&self, param: &TransportParam) -> Result<(), Errno> {
        let mut control = self.control();
        let state = control.state();
        let is_remote = param.remote != 0;
        if state == State::Established || (is_remote && state != State::Establishing) {
            return Err(Errno::EINVAL);
        }
        if !is_remote && control.has_begun() {
            return Err(Errno::EINVAL);
        }
        control.settings.set_param(param)?;
        let limit = control.settings.receive_buffer();
        drop(control);
        self.ledger().lock().inbox.set_limit(limit);
        Ok(())
    }

    /// How the connection behaves (CONFIG).
    #[must_use]
    pub fn config(&self) -> Config {
        self.control().settings.config
    }

    /// Sets how the connection behaves (CONFIG). Zeros leave settings as they are.
    ///
    /// # Errors
    ///
    /// EINVAL for values out of range, on an established socket, and for what concerns packets
    /// once the handshake has begun.
    pub fn set_config(&self, config: &Config) -> Result<(), Errno> {
        let mut control = self.control();
        if control.state() == State::Established {
            return Err(Errno::EINVAL);
        }
        let for_program = Config {
            payload_cipher_type: config.payload_cipher_type,
            receive_session_ticket: config.receive_session_ticket,
            certificate_request: config.certificate_request,
            stream_data_nodelay: config.stream_data_nodelay,
            ..Config::default()
        };
        if control.has_begun() && for_program != *config {
            return Err(Errno::EINVAL);
        }
        control.settings.set_config(config)
    }

    /// Client: the token for the connection, or after the handshake the one that came (TOKEN).
    ///
    /// # Errors
    ///
    /// EINVAL on a server.
    pub fn token(&self) -> Result<Vec<u8>, Errno> {
        if self.control().is_server() {
            return Err(Errno::EINVAL);
        }
        Ok(self.ledger().lock().token.clone())
    }

    /// Client: a token from an earlier connection. Server: sends the client a new one, whatever
    /// `token` is (TOKEN).
    ///
    /// # Errors
    ///
    /// Client: EINVAL unless it has 1 to 120 bytes. Server: EINVAL unless the socket is
    /// established; EAGAIN while one is on its way.
    pub fn set_token(&self, token: &[u8]) -> Result<(), Errno> {
        if self.control().is_server() {
            let session = self.established(Errno::EINVAL)?;
            let sent = session.conn.act(|conn, now| conn.engine.send_new_token(now));
            return if sent { Ok(()) } else { Err(Errno::EAGAIN) };
        }
        if token.is_empty() || token.len() > MAX_TOKEN {
            return Err(Errno::EINVAL);
        }
        self.ledger().lock().token = token.to_vec();
        Ok(())
    }

    /// The application protocols, separated by commas (ALPN).
    #[must_use]
    pub fn alpn(&self) -> Vec<u8> {
        self.control().settings.alpn.to_text()
    }

    /// Sets the application protocols, separated by commas (ALPN): those of the clients that a
    /// listener wants.
    ///
    /// # Errors
    ///
    /// EINVAL if there is none, for more than 128 bytes, and on a listener.
    pub fn set_alpn(&self, protocols: &[u8]) -> Result<(), Errno> {
        let mut control = self.control();
        if control.state() == State::Listening {
            return Err(Errno::EINVAL);
        }
        control.settings.alpn = Alpn::parse(protocols)?;
        Ok(())
    }

    /// Client: the session to resume while connecting, and then the ticket that came, empty
    /// before it does. Server: the master key of tickets (SESSION_TICKET).
    ///
    /// # Errors
    ///
    /// EPIPE on a listener, and on a server without a connection.
    pub fn session_ticket(&self) -> Result<Vec<u8>, Errno> {
        let control = self.control();
        let state = control.state();
        if state == State::Listening {
            return Err(Errno::EPIPE);
        }
        let account = self.ledger().lock();
        if !control.is_server() {
            let counts = state == State::Establishing || account.ticket_ready;
            return Ok(if counts { account.ticket.clone() } else { Vec::new() });
        }
        if state == State::Closed {
            return Err(Errno::EPIPE);
        }
        if !account.ticket.is_empty() {
            return Ok(account.ticket.clone());
        }
        drop(account);
        let session = control.session(Errno::EPIPE)?;
        let bound = control.bound.as_ref().ok_or(Errno::EPIPE)?;
        let client = session.conn.look(|conn| conn.engine.remote().ip());
        Ok(bound.hub.ticket_key(client))
    }

    /// Client: the session to resume. Server: the master key of tickets, for a program that
    /// performs the handshake; Quicket's TLS has keys of its own (SESSION_TICKET).
    ///
    /// # Errors
    ///
    /// EINVAL unless it has 64 to 4096 bytes.
    pub fn set_session_ticket(&self, ticket: &[u8]) -> Result<(), Errno> {
        if !(MIN_TICKET..=MAX_TICKET).contains(&ticket.len()) {
            return Err(Errno::EINVAL);
        }
        self.ledger().lock().ticket = ticket.to_vec();
        Ok(())
    }

    /// Client: what resumes the session in another connection, by Quicket's TLS; empty before it
    /// came.
    ///
    /// # Errors
    ///
    /// EINVAL unless the socket is, or was, a client's.
    pub fn session(&self) -> Result<Vec<u8>, Errno> {
        let control = self.control();
        if control.is_server() || matches!(control.phase, Phase::Idle) {
            return Err(Errno::EINVAL);
        }
        let account = self.ledger().lock();
        Ok(if account.ticket_ready { account.ticket.clone() } else { Vec::new() })
    }

    /// Client: a session of an earlier connection, before the handshake. Other than
    /// [`Socket::set_session_ticket`] it takes all that [`Socket::session`] gives.
    ///
    /// # Errors
    ///
    /// EINVAL on a server, once the handshake has begun, without bytes and for more than 128 KiB.
    pub fn set_session(&self, session: &[u8]) -> Result<(), Errno> {
        let control = self.control();
        let is_long = session.len() > MAX_SESSION;
        if control.is_server() || control.has_begun() || session.is_empty() || is_long {
            return Err(Errno::EINVAL);
        }
        self.ledger().lock().ticket = session.to_vec();
        Ok(())
    }

    /// The connection, if it is established.
    fn established(&self, error: Errno) -> Result<Session, Errno> {
        let session = self.control().session(error)?.clone();
        match session.conn.look(|conn| state_of(conn)) {
            State::Established => Ok(session),
            _ => Err(error),
        }
    }
}

impl super::Control {
    /// True once parameters are announced.
    const fn has_begun(&self) -> bool {
        match &self.phase {
            Phase::Connection(session) => session.begun,
            Phase::Idle | Phase::Listening(_) | Phase::Inherited(_) => false,
        }
    }
}

fn set_remote_cid(session: &Session, info: ConnectionIdInfo) -> Result<(), Errno> {
    session.conn.act(|conn, now| {
        let engine = &mut conn.engine;
        if engine.is_migrating() {
            return Err(Errno::EAGAIN);
        }
        let numbers = engine.remote_cid_numbers();
        let (prior_to, active) = (u64::from(info.prior_to), u64::from(info.active));
        if prior_to != 0 && (prior_to > numbers.last || prior_to <= numbers.first) {
            return Err(Errno::EINVAL);
        }
        if active != 0 {
            let present = numbers.active.unwrap_or(numbers.first);
            if active <= present || !engine.use_remote_cid(now, active) {
                return Err(Errno::EINVAL);
            }
        }
        if prior_to != 0 {
            engine.retire_remote_cids(now, prior_to);
        }
        Ok(())
    })
}
