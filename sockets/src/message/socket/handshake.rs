//! The handshake: by the program, or by Quicket's own TLS.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;

use quicket_engine::crypto::{Aead, Direction, Level, Secret, TlsConfig};
use quicket_engine::{ClientConfig, ConnectionError, ServerConfig, TransportErrorCode};
use quicket_handshake::{ClientTls, ServerTls};
use quicket_wire::Version;

use super::{Patience, Phase, Session, Socket, State, state_of};
use crate::core::{Conn, Interest, Wakes};
use crate::message::bound::Bound;
use crate::message::errno::Errno;
use crate::message::notification::CryptoLevel;
use crate::message::raw::{
    CryptoSecret, TLS_CIPHER_AES_CCM_128, TLS_CIPHER_AES_GCM_128, TLS_CIPHER_AES_GCM_256,
    TLS_CIPHER_CHACHA20_POLY1305,
};
use crate::message::settings::{self, Settings};

/// The longest encoded transport parameters that TLS may hand over, in bytes.
const MAX_PARAMETERS: usize = 512;

/// Who performs the handshake.
struct Performer<'a> {
    tls: Arc<dyn TlsConfig>,
    server_name: &'a str,
    early_data: bool,
    /// The program itself.
    is_external: bool,
}

impl Socket {
    /// Has Quicket's TLS perform a client's handshake and waits for it. With a session of an
    /// earlier connection ([`Socket::set_session_ticket`]) it is resumed.
    ///
    /// # Errors
    ///
    /// As [`Socket::accept_tls`]; EHOSTUNREACH if the network says that there is no way to the
    /// server.
    pub fn connect_tls(
        &self,
        tls: impl Into<Arc<ClientTls>>,
        server_name: &str,
    ) -> Result<(), Errno> {
        self.begin_tls(tls.into(), server_name, false)?;
        self.wait_established()
    }

    /// Has Quicket's TLS begin a client's handshake. With a session that allows it, messages can
    /// be sent at once (0-RTT); **an attacker can replay them** (RFC 9001, Section 9.2).
    ///
    /// # Errors
    ///
    /// EINVAL without a connection of a client whose handshake has not begun.
    pub fn connect_tls_early(
        &self,
        tls: impl Into<Arc<ClientTls>>,
        server_name: &str,
    ) -> Result<(), Errno> {
        self.begin_tls(tls.into(), server_name, true)
    }

    /// Has Quicket's TLS perform a server's handshake and waits for it.
    ///
    /// # Errors
    ///
    /// EINVAL without a connection of the right side whose handshake has not begun; EAGAIN if it
    /// is under way when the socket does not wait (see [`Socket::wait_established`]);
    /// ECONNREFUSED, ECONNRESET, ETIMEDOUT or EPROTO if it comes to nothing.
    pub fn accept_tls(&self, tls: impl Into<Arc<ServerTls>>) -> Result<(), Errno> {
        let tls = tls.into();
        let session = self.control().session(Errno::EINVAL)?.clone();
        // Behind the switch, clients resume with all processes of the program.
        let shared = session.conn.core().core().sharing_tickets(&tls);
        let tls = shared.map_or(tls, Arc::new);
        self.begin(Performer { tls, server_name: "", early_data: true, is_external: false })?;
        self.wait_established()
    }

    fn begin_tls(
        &self,
        tls: Arc<dyn TlsConfig>,
        server_name: &str,
        early_data: bool,
    ) -> Result<(), Errno> {
        self.begin(Performer { tls, server_name, early_data, is_external: false }).map(drop)
    }

    /// Waits until the handshake is complete.
    ///
    /// # Errors
    ///
    /// EINVAL without a connection; EAGAIN if it is under way and the socket does not wait, or
    /// not longer than the time for receiving; ECONNREFUSED, EHOSTUNREACH, ECONNRESET, ETIMEDOUT
    /// or EPROTO if it came to nothing.
    pub fn wait_established(&self) -> Result<(), Errno> {
        let (session, timeout) = {
            let control = self.control();
            let session = control.session(Errno::EINVAL)?.clone();
            (session, control.settings.receive_timeout)
        };
        let patience = Patience::new(self.is_nonblocking(), timeout);
        let settled = self.wait(&session, patience, |waiter| {
            session.conn.act_if(|conn, _| match &conn.ended {
                // The peer may have said what it had to say and left since.
                _ if conn.established => (Poll::Ready(Ok(())), false),
                Some(_) if conn.stranded => (Poll::Ready(Err(Errno::ECONNABORTED)), false),
                Some(ended) => (Poll::Ready(Err(Errno::from(ended))), false),
                None => {
                    conn.wait(Interest::Message, waiter);
                    // It may know already and have told nobody.
                    (Poll::Pending, conn.engine.is_established())
                }
            })
        });
        if settled.is_ok() {
            self.reach_preferred(&session);
        }
        settled
    }

    /// Why the connection ended, in words; `None` while it lives, and if this side closed it. Without
    /// a connection: why the switch refused the socket an address or clients, if it did.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        let control = self.control();
        let Ok(session) = control.session(Errno::ENOTCONN) else { return control.refusal.clone() };
        session.conn.look(|conn| match conn.ended.as_ref()? {
            ConnectionError::Local { .. } if conn.stranded => {
                Some("this host's address has changed during the handshake".to_owned())
            }
            ConnectionError::Local { .. } => None,
            // What TLS says is more than the code of its alert.
            ended => Some(match conn.engine.handshake_error() {
                Some(tls) => tls.to_string(),
                None => ended.to_string(),
            }),
        })
    }

    /// A client's socket for IPv6 can be in both families, and follows its server from one to the
    /// other.
    fn reach_preferred(&self, session: &Session) {
        let is_in_both = {
            let control = self.control();
            control.is_v6 && !control.settings.only_v6
        };
        if is_in_both && !session.is_server {
            session.conn.reach_other_family();
        }
    }

    /// The application protocol that Quicket's TLS settled; `None` before, and if the program
    /// performs the handshake.
    #[must_use]
    pub fn negotiated_alpn(&self) -> Option<Vec<u8>> {
        let control = self.control();
        let session = control.session(Errno::EINVAL).ok()?;
        let alpn = session.conn.look(|conn| Some(conn.engine.handshake_summary()?.alpn.clone()));
        alpn.filter(|alpn| !alpn.is_empty())
    }

    /// The server name that the client asks for: known to a server before its handshake.
    #[must_use]
    pub fn requested_server_name(&self) -> Option<String> {
        let control = self.control();
        let session = control.session(Errno::EINVAL).ok()?;
        session.conn.look(|conn| {
            let hello = conn.engine.held_client_hello()?;
            Some(quicket_wire::ClientHello::parse(hello).ok()?.server_name()?.to_owned())
        })
    }

    /// Begins the handshake with the program's TLS, if it has not begun.
    pub(super) fn begin_external(&self) -> Result<Session, Errno> {
        let tls = Arc::new(self.ledger().mailbox.clone());
        self.begin(Performer { tls, server_name: "", early_data: false, is_external: true })
    }

    /// A client that remembers the server's parameters can write before its handshake: what it
    /// writes is sent with the key of early data, or after the handshake.
    pub(super) fn begin_early(&self) -> Result<(), Errno> {
        let remembered = {
            let control = self.control();
            let Phase::Connection(session) = &control.phase else { return Ok(()) };
            control.settings.remote.filter(|_| !session.is_server && !session.begun)
        };
        let Some(remembered) = remembered else { return Ok(()) };
        let session = self.begin_external()?;
        session.conn.act(|conn, _| {
            conn.engine.remember_parameters(settings::remembered(&remembered));
        });
        Ok(())
    }

    /// Begins the handshake with what is set now; goes on with it if it is the program's and has
    /// begun.
    fn begin(&self, performer: Performer<'_>) -> Result<Session, Errno> {
        // Fired when `control` is let go.
        let mut wakes = Wakes::default();
        let begun = self.begin_into(performer, &mut wakes);
        wakes.fire();
        begun
    }

    fn begin_into(&self, performer: Performer<'_>, wakes: &mut Wakes) -> Result<Session, Errno> {
        let mut control = self.control();
        let (settings, bound) = (control.settings.clone(), control.bound.clone());
        let Phase::Connection(session) = &mut control.phase else { return Err(Errno::EINVAL) };
        if session.begun {
            let is_external = performer.is_external && self.ledger().lock().external_tls;
            return if is_external { Ok(session.clone()) } else { Err(Errno::EINVAL) };
        }
        if session.conn.look(|conn| state_of(conn)) == State::Closed {
            return Err(Errno::EINVAL);
        }
        if let (Some(preferred), Some(bound)) = (session.preferred, &bound) {
            bind_preferred(bound, preferred)?;
        }
        session.begun = true;
        let session = session.clone();
        {
            let mut account = self.ledger().lock();
            account.external_tls = performer.is_external;
            if !performer.is_external {
                account.inbox.drop_handshake();
            }
        }
        if session.is_server {
            let config = server_config(&settings, session.preferred, &performer);
            session
                .conn
                .act_into(wakes, |conn, now| conn.engine.accept_handshake_with(now, config));
            return Ok(session);
        }
        let config = self.client_config(&settings, &performer);
        let begun = session.conn.act_into(wakes, |conn, now| {
            conn.engine.start_handshake(now, config, performer.server_name)
        });
        begun.map(|()| session).map_err(|error| {
            log::debug!("{error}");
            Errno::EPROTO
        })
    }

    fn client_config(&self, settings: &Settings, performer: &Performer<'_>) -> ClientConfig {
        let account = self.ledger().lock();
        let mut config = ClientConfig::new(Arc::clone(&performer.tls));
        config.transport = settings.transport();
        config.version = settings.version().unwrap_or(Version::V1);
        config.versions = settings.versions();
        config.token.clone_from(&account.token);
        if !performer.is_external && !account.ticket.is_empty() {
            config.session = Some(account.ticket.clone());
        }
        config.early_data = performer.early_data;
        config
    }

    /// A traffic secret of the program's TLS (CRYPTO_SECRET). With both of [`CryptoLevel::App`]
    /// the socket is established.
    ///
    /// # Errors
    ///
    /// EINVAL unless the handshake is under way, for [`CryptoLevel::Initial`], and for cipher
    /// suites that there are not; EPIPE if what waited for the secret ended the
    /// connection.
    pub fn set_crypto_secret(&self, secret: &CryptoSecret) -> Result<(), Errno> {
        self.establishing()?;
        let level = match CryptoLevel::from_number(secret.level) {
            Some(CryptoLevel::App) => Level::OneRtt,
            Some(CryptoLevel::Handshake) => Level::Handshake,
            Some(CryptoLevel::Early) => Level::EarlyData,
            Some(CryptoLevel::Initial) | None => return Err(Errno::EINVAL),
        };
        let aead = match secret.kind {
            TLS_CIPHER_AES_GCM_128 => Aead::Aes128Gcm,
            TLS_CIPHER_AES_GCM_256 => Aead::Aes256Gcm,
            TLS_CIPHER_AES_CCM_128 => Aead::Aes128Ccm,
            TLS_CIPHER_CHACHA20_POLY1305 => Aead::ChaCha20Poly1305,
            _ => return Err(Errno::EINVAL),
        };
        let bytes = secret.secret.get(..aead.secret_len()).unwrap_or_default();
        let key = Secret::new(aead, bytes).ok_or(Errno::EINVAL)?;
        let direction = if secret.send == 0 { Direction::Receive } else { Direction::Send };
        let session = self.begin_external()?;
        let is_client_early =
            (level, direction, session.is_server) == (Level::EarlyData, Direction::Send, false);
        let remembered = self.control().settings.remote;
        let ledger = self.ledger();
        ledger.mailbox.set_secret(level, direction, key);
        if (level, direction) == (Level::OneRtt, Direction::Receive) {
            ledger.lock().forget_session();
        }
        session.conn.act(|conn, now| {
            if let (true, Some(param)) = (is_client_early, remembered) {
                conn.engine.remember_parameters(settings::remembered(&param));
            }
            conn.engine.handshake_progressed(now);
        });
        match session.conn.look(|conn| state_of(conn)) {
            State::Closed => Err(Errno::EPIPE),
            _ => Ok(()),
        }
    }

    /// This side's transport parameters, encoded for the program's TLS (TRANSPORT_PARAM_EXT).
    /// They are settled by this.
    ///
    /// # Errors
    ///
    /// EINVAL unless the handshake is under way.
    pub fn transport_param_ext(&self) -> Result<Vec<u8>, Errno> {
        self.establishing()?;
        self.begin_external()?;
        self.ledger().mailbox.parameters().ok_or(Errno::EINVAL)
    }

    /// The peer's transport parameters, as the program's TLS got them (TRANSPORT_PARAM_EXT).
    ///
    /// # Errors
    ///
    /// EINVAL unless the handshake is under way, for more than 512 bytes, and for parameters
    /// that are not valid, which end the connection.
    pub fn set_transport_param_ext(&self, encoded: &[u8]) -> Result<(), Errno> {
        self.establishing()?;
        if encoded.len() > MAX_PARAMETERS {
            return Err(Errno::EINVAL);
        }
        let session = self.begin_external()?;
        self.ledger().mailbox.set_peer_parameters(encoded);
        session.conn.act(|conn, now| conn.engine.handshake_progressed(now));
        self.reach_preferred(&session);
        let closed = |conn: &mut Conn| match &conn.ended {
            Some(ConnectionError::Transport(error))
                if error.code == TransportErrorCode::VERSION_NEGOTIATION_ERROR =>
            {
                Err(Errno::EPROTONOSUPPORT)
            }
            Some(_) => Err(Errno::EINVAL),
            None => Ok(()),
        };
        session.conn.look(closed)
    }

    fn establishing(&self) -> Result<(), Errno> {
        match self.control().state() {
            State::Establishing => Ok(()),
            _ => Err(Errno::EINVAL),
        }
    }
}

fn server_config(
    settings: &Settings,
    preferred: Option<SocketAddr>,
    performer: &Performer<'_>,
) -> Arc<ServerConfig> {
    let mut config = ServerConfig::new(Arc::clone(&performer.tls));
    config.transport = settings.transport();
    config.early_data = performer.early_data;
    config.new_tokens = 1;
    config.migration = settings.local.disable_active_migration == 0;
    config.preferred_version = settings.version();
    match preferred {
        Some(SocketAddr::V4(v4)) => config.preferred_address_v4 = Some(v4),
        Some(SocketAddr::V6(v6)) => config.preferred_address_v6 = Some(v6),
        None => {}
    }
    Arc::new(config)
}

/// Has the endpoint receive at the address to which clients will move.
fn bind_preferred(bound: &Bound, address: SocketAddr) -> Result<(), Errno> {
    let core = bound.core.core();
    if core.links().iter().any(|link| link.socket.local_addr() == address) {
        return Ok(());
    }
    let added = bound.core.also_bind(address);
    added.map(drop).map_err(|error| Errno::from(error.io_error()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{MsgFlags, StreamFlags};

    #[test]
    fn an_end_that_was_received_but_not_told_is_awaited() {
        let nobody = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let socket = Socket::new_v4();
        socket.connect(nobody.local_addr().unwrap()).unwrap();
        socket.set_nonblocking(true);
        let session = socket.control().session(Errno::EINVAL).unwrap().clone();
        // What a thread does that receives: the connection knows more than its sockets.
        session.conn.act_if(|conn, now| {
            conn.engine.close(now, 0, b"");
            ((), false)
        });
        assert_eq!(socket.wait_established(), Err(Errno::EAGAIN));
        let received = socket.recv_message(&mut [0; 9], MsgFlags::NONE);
        assert_eq!(received.map(drop), Err(Errno::EAGAIN), "a notification may come");
        assert_eq!(socket.send_message(b"x", None, StreamFlags::NEW.into()), Err(Errno::EPIPE));
        session.conn.act(|_, _| ());
        assert_eq!(socket.wait_established(), Err(Errno::EPIPE), "this side closed it");
    }
}
