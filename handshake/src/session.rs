//! One handshake: rustls' QUIC connection behind the engine's [`Handshake`].
//!
//! A server needs that connection no more once the handshake is complete and its tickets are made:
//! what is left of it then is a secret.

mod alert;
mod away;
mod done;
mod output;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use quicket_engine::crypto::{
    APPLICATION_LIMITS, Aead, Alert, Deferred, Direction, Handshake, HandshakeError,
    HandshakeEvent, HandshakeSummary, Level, Secret,
};
use rustls::quic::Connection;

use self::alert::default_alert;
pub(crate) use self::away::Again;
use self::away::{Away, Leaving};
use self::done::Done;
use crate::client::TicketReceiver;
use crate::elsewhere::{attempt, on_thread};
use crate::key_log::SecretTap;
use crate::messages::{Framing, first_ticket};
use crate::offer::group_name;
use crate::provider::Exporter;
use crate::psk;
use crate::server::{EarlyData, Question, TicketIssuer};
use crate::words;

/// What differs between the two sides.
pub(crate) enum Role {
    Client {
        /// Early data was offered and not answered yet.
        early_data_pending: bool,
        /// The ClientHello is out: a second one answers a HelloRetryRequest.
        hello_sent: bool,
        tickets: TicketReceiver,
        server_name: String,
    },
    Server {
        tickets: Arc<TicketIssuer>,
        /// Handed over with completion: before it, a server must not process 1-RTT packets
        /// (RFC 9001, Section 5.7).
        receive_secret: Option<Secret>,
        /// If a private key may be elsewhere.
        again: Option<Box<Again>>,
    },
}

/// A handshake in progress, or done.
pub(crate) enum Session {
    /// TLS may still have something to say.
    Running(Box<Running>),
    /// A server's, which a thread has that may wait for a signature.
    Away(Box<Away>),
    /// A server's, complete.
    Done(Done),
}

/// A handshake with all that TLS needs.
pub(crate) struct Running {
    tls: Connection,
    role: Role,
    tap: Arc<SecretTap>,
    framing: Framing,
    read_level: Level,
    write_level: Level,
    events: VecDeque<HandshakeEvent>,
    parameters_given: bool,
    complete: bool,
    failed: Option<HandshakeError>,
    /// Server: TLS gets the ClientHello once a register has answered.
    asking: Option<Asking>,
    /// Server: a thread is to go on that may wait for a signature.
    leaving: Option<Leaving>,
}

/// A register is asked about the ticket in a ClientHello.
struct Asking {
    question: Question,
    is_asked: bool,
    answer: Arc<OnceLock<bool>>,
    /// What TLS is to read then.
    hello: Vec<u8>,
}

impl Session {
    pub(crate) fn new(tls: Connection, role: Role, tap: Arc<SecretTap>) -> Self {
        Self::Running(Box::new(Running::new(tls, role, tap)))
    }

    /// Has the handshake go where a thread may wait, if it is to.
    fn leave(&mut self) {
        if let Self::Running(running) = self
            && let Some(leaving) = running.leaving.take()
            && let Self::Running(running) =
                std::mem::replace(self, Self::Away(Box::new(Away::nothing())))
        {
            *self = Self::Away(Box::new(Away::new(running, leaving)));
        }
    }
}

impl Running {
    fn new(tls: Connection, role: Role, tap: Arc<SecretTap>) -> Self {
        let mut session = Self {
            tls,
            role,
            tap,
            framing: Framing::default(),
            read_level: Level::Initial,
            write_level: Level::Initial,
            events: VecDeque::new(),
            parameters_given: false,
            complete: false,
            failed: None,
            asking: None,
            leaving: None,
        };
        session.start();
        session
    }

    /// A client's first flight.
    fn start(&mut self) {
        let early = self.early_secret();
        self.drain_output();
        if let Role::Client { early_data_pending, .. } = &mut self.role
            && let Some(early) = early
        {
            *early_data_pending = true;
            self.events.push_back(HandshakeEvent::Secret(Level::EarlyData, Direction::Send, early));
        }
    }

    fn fail(&mut self, alert: Alert, reason: String) -> HandshakeError {
        let error = HandshakeError { alert, reason };
        self.failed = Some(error.clone());
        self.events.clear();
        error
    }

    /// A client has nothing to say behind its ClientHello before that is answered. While a register is
    /// asked nothing is kept that nobody counts.
    fn fail_too_early(&mut self) -> HandshakeError {
        let reason = "CRYPTO data behind the ClientHello, before it was answered";
        self.fail(Alert::UNEXPECTED_MESSAGE, reason.to_owned())
    }

    fn tls_error(&mut self, error: &rustls::Error) -> HandshakeError {
        let alert =
            self.tls.alert().map_or_else(|| default_alert(error), |alert| Alert(alert.into()));
        let server = match &self.role {
            Role::Client { server_name, .. } => Some(server_name.as_str()),
            Role::Server { .. } => None,
        };
        let reason = words::of(error, server);
        self.fail(alert, reason)
    }

    /// RFC 9001, Section 4.1.3: TLS takes data of one level at a time and says when it wants the
    /// next.
    fn check_level(&mut self, level: Level) -> Result<(), HandshakeError> {
        if level == self.read_level {
            return Ok(());
        }
        let reason =
            format!("CRYPTO data at level {level:?} while TLS reads level {:?}", self.read_level);
        Err(self.fail(Alert::UNEXPECTED_MESSAGE, reason))
    }

    /// Feeds rustls, and looks into the messages that it does not report on.
    fn feed(&mut self, level: Level, data: &[u8]) -> Result<(), HandshakeError> {
        let first_hello = self.framing.complete == 0 && level == Level::Initial;
        let result = match &mut self.role {
            Role::Client { tickets, .. } if level == Level::OneRtt => {
                let (result, psks) = psk::capture(|| self.tls.read_hs(data));
                let mut psks = psks.into_iter();
                self.framing.read(data, true, |message| tickets.receive(message, &mut psks));
                result
            }
            Role::Client { .. } => {
                self.framing.read(data, false, |_| {});
                self.tls.read_hs(data)
            }
            Role::Server { tickets, again, .. } => {
                let mut early_data = None;
                self.framing.read(data, first_hello, |message| {
                    // What comes behind the ClientHello has no say.
                    if early_data.is_none() {
                        early_data = Some(tickets.read_client_hello(message));
                    }
                });
                let hello = match again.as_mut().filter(|_| level == Level::Initial) {
                    None => Cow::Borrowed(data),
                    Some(again) => match again.gather(data, self.framing.complete) {
                        Ok(Some(hello)) => Cow::Owned(hello),
                        Ok(None) => return Ok(()),
                        Err(()) => {
                            let reason = "a ClientHello that is too long".to_owned();
                            return Err(self.fail(Alert::UNEXPECTED_MESSAGE, reason));
                        }
                    },
                };
                match early_data {
                    None | Some(EarlyData::None) => {}
                    Some(EarlyData::Refuse) => self.reject_early_data(),
                    Some(EarlyData::Ask(question)) => {
                        if self.framing.complete > 1 || self.framing.is_within_message() {
                            return Err(self.fail_too_early());
                        }
                        let (answer, hello) = (Arc::default(), hello.into_owned());
                        let is_asked = false;
                        self.asking = Some(Asking { question, is_asked, answer, hello });
                        return Ok(());
                    }
                }
                return self.read_at_server(level, &hello);
            }
        };
        result.map_err(|error| self.tls_error(&error))
    }

    /// Has TLS of a server read on; or a thread that may wait, if it needs a signature of a key that is elsewhere.
    fn read_at_server(&mut self, level: Level, data: &[u8]) -> Result<(), HandshakeError> {
        let again = match &mut self.role {
            Role::Server { again: Some(again), .. } if level == Level::Initial => again,
            _ => return self.tls.read_hs(data).map_err(|error| self.tls_error(&error)),
        };
        let (result, key) = match again.key.clone() {
            // After a HelloRetryRequest there is no beginning again.
            Some(key) => (Ok(()), Some(key)),
            None => {
                let may_resume = first_ticket(data).is_some();
                if !may_resume && let Some(key) = again.foresee(data) {
                    again.key = Some(Arc::clone(&key));
                    self.leaving = Some(Leaving { key, hello: data.to_vec() });
                    return Ok(());
                }
                let (result, needed) = attempt(may_resume, || self.tls.read_hs(data));
                again.key = needed.chosen;
                (result, again.key.clone().filter(|_| needed.ended))
            }
        };
        let Some(key) = key else { return result.map_err(|error| self.tls_error(&error)) };
        if result.is_err() {
            match again.connection() {
                Ok(tls) => self.tls = tls,
                Err(error) => return Err(self.tls_error(&error)),
            }
            self.tap.forget();
        }
        self.leaving = Some(Leaving { key, hello: data.to_vec() });
        Ok(())
    }

    /// The same, where the thread may wait.
    fn read_on_thread(&mut self, hello: &[u8]) -> Result<(), HandshakeError> {
        let result = on_thread(|| self.tls.read_hs(hello));
        result.map_err(|error| self.tls_error(&error))?;
        self.collect(Level::Initial);
        Ok(())
    }

    fn reject_early_data(&mut self) {
        if let Role::Server { again: Some(again), .. } = &mut self.role {
            again.refuses = true;
        }
        if let Connection::Server(server) = &mut self.tls {
            server.reject_early_data();
        }
    }

    /// Goes on with the ClientHello once the register has answered.
    fn heed_answer(&mut self) -> Result<(), HandshakeError> {
        let answered = |asking: &mut Asking| asking.answer.get().is_some();
        let Some(asking) = self.asking.take_if(answered) else { return Ok(()) };
        let first = asking.answer.get() == Some(&true);
        let knows = match &self.role {
            Role::Server { tickets, .. } => tickets.still_knows(&asking.question),
            Role::Client { .. } => false,
        };
        if !(first && knows) {
            self.reject_early_data();
        }
        self.read_at_server(Level::Initial, &asking.hello)?;
        if self.leaving.is_none() {
            self.collect(Level::Initial);
        }
        Ok(())
    }

    /// The register is to be asked, if it was not.
    fn question(&mut self) -> Option<Deferred> {
        let asking = self.asking.as_mut().filter(|asking| !asking.is_asked)?;
        asking.is_asked = true;
        let (question, place) = (asking.question.clone(), Arc::clone(&asking.answer));
        Some(Box::new(move |waker| question.ask(place, waker.clone())))
    }

    /// Turns what rustls has learnt into events.
    fn collect(&mut self, level: Level) {
        match self.role {
            Role::Client { .. } => {
                if level == Level::Handshake && self.framing.complete > 0 {
                    // EncryptedExtensions is the first message of this level.
                    self.give_parameters();
                    self.answer_early_data(None);
                }
                self.drain_output();
                self.check_complete();
                self.give_tickets();
            }
            Role::Server { .. } => {
                if level == Level::Initial && self.framing.complete > 0 {
                    self.give_parameters();
                    self.decide_early_data();
                }
                self.check_complete();
                self.drain_output();
            }
        }
    }

    fn give_parameters(&mut self) {
        if self.parameters_given {
            return;
        }
        if let Some(parameters) = self.tls.quic_transport_parameters() {
            self.parameters_given = true;
            let parameters = parameters.to_vec();
            self.events.push_back(HandshakeEvent::PeerTransportParameters(parameters));
        }
    }

    /// The early traffic secret, if rustls holds one that counts.
    fn early_secret(&self) -> Option<Secret> {
        self.tls.zero_rtt_keys()?;
        let aead = self.aead()?;
        let secrets = self.tap.secrets();
        Secret::new(aead, secrets.early.as_ref()?.as_bytes())
    }

    /// Client: passes on the server's answer; `known` if it is plain without asking rustls.
    fn answer_early_data(&mut self, known: Option<bool>) {
        let Role::Client { early_data_pending, .. } = &mut self.role else { return };
        if !std::mem::take(early_data_pending) {
            return;
        }
        let accepted = known.unwrap_or_else(|| match &self.tls {
            Connection::Client(client) => client.is_early_data_accepted(),
            Connection::Server(_) => false,
        });
        self.events.push_back(HandshakeEvent::EarlyData(accepted));
    }

    /// Server: says once whether early data that was offered will be read.
    fn decide_early_data(&mut self) {
        let Role::Server { tickets, .. } = &self.role else { return };
        if !tickets.take_early_data_offered() {
            return;
        }
        let secret = self.early_secret();
        self.events.push_back(HandshakeEvent::EarlyData(secret.is_some()));
        if let Some(secret) = secret {
            self.events.push_back(HandshakeEvent::Secret(
                Level::EarlyData,
                Direction::Receive,
                secret,
            ));
        }
    }

    fn check_complete(&mut self) {
        if self.complete || self.tls.is_handshaking() {
            return;
        }
        self.complete = true;
        self.enter(Level::OneRtt);
        if let Role::Server { receive_secret, .. } = &mut self.role
            && let Some(secret) = receive_secret.take()
        {
            self.events.push_back(HandshakeEvent::Secret(
                Level::OneRtt,
                Direction::Receive,
                secret,
            ));
        }
        let summary = self.summary();
        let group = self.tls.negotiated_key_exchange_group().map(|group| group.name());
        let suite = self.aead().zip(group);
        if let Role::Client { tickets, .. } = &mut self.role {
            tickets.set_session(&summary, suite);
        }
        self.events.push_back(HandshakeEvent::Complete(Box::new(summary)));
    }

    fn give_tickets(&mut self) {
        if let Role::Client { tickets, .. } = &mut self.role {
            while let Some(ticket) = tickets.next() {
                self.events.push_back(HandshakeEvent::SessionTicket(ticket));
            }
        }
    }

    /// From now on TLS reads messages of `level`.
    fn enter(&mut self, level: Level) {
        if self.read_level != level {
            self.read_level = level;
            self.framing = Framing::default();
        }
    }

    fn aead(&self) -> Option<Aead> {
        psk::aead(self.tls.negotiated_cipher_suite()?.suite())
    }

    fn summary(&self) -> HandshakeSummary {
        use rustls::HandshakeKind;
        let server_name = match (&self.role, &self.tls) {
            (Role::Client { server_name, .. }, _) => Some(server_name.clone()),
            (_, Connection::Server(server)) => server.server_name().map(str::to_owned),
            _ => None,
        };
        let certificates = self.tls.peer_certificates().unwrap_or_default();
        HandshakeSummary {
            alpn: self.tls.alpn_protocol().unwrap_or_default().to_vec(),
            cipher_suite: self.aead().map_or("", Aead::cipher_suite),
            key_exchange: self
                .tls
                .negotiated_key_exchange_group()
                .map_or("", |group| group_name(group.name())),
            peer_certificates: certificates.iter().map(|der| der.to_vec()).collect(),
            server_name,
            resumed: self.tls.handshake_kind() == Some(HandshakeKind::Resumed),
        }
    }
}

impl Running {
    fn read(&mut self, level: Level, data: &[u8]) -> Result<(), HandshakeError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if data.is_empty() {
            return Ok(());
        }
        self.check_level(level)?;
        if self.asking.take().is_some() {
            return Err(self.fail_too_early());
        }
        self.feed(level, data)?;
        if self.asking.is_none() && self.leaving.is_none() {
            self.collect(level);
        }
        Ok(())
    }

    /// What remains of a server's handshake that is complete: rustls has made the tickets with the
    /// answer to the client's Finished, and clients have nothing to say after that.
    fn finish(&mut self) -> Option<Done> {
        let Role::Server { tickets, .. } = &self.role else { return None };
        if !self.complete {
            return None;
        }
        let application = Arc::clone(tickets.application());
        let secret = self.tap.secrets().exporter.take();
        let exporter = Exporter::new(self.aead()?, secret?.as_bytes())?;
        let alpn = self.tls.alpn_protocol().unwrap_or_default();
        let events = std::mem::take(&mut self.events);
        Some(Done::new(events, alpn.into(), application, exporter, self.tap.take_lines()))
    }

    fn alpn(&self) -> Option<&[u8]> {
        let read =
            self.complete || matches!(self.role, Role::Server { .. }) && self.parameters_given;
        read.then(|| self.tls.alpn_protocol().unwrap_or_default())
    }

    fn server_name(&self) -> Option<&str> {
        match &self.tls {
            Connection::Server(server) if self.alpn().is_some() => server.server_name(),
            _ => None,
        }
    }

    fn export_keying_material(
        &self,
        label: &[u8],
        context: &[u8],
        out: &mut [u8],
    ) -> Result<(), HandshakeError> {
        self.tls.export_keying_material(out, label, Some(context)).map(|_| ()).map_err(|error| {
            HandshakeError { alert: Alert::INTERNAL_ERROR, reason: error.to_string() }
        })
    }
}

impl Handshake for Session {
    fn read(&mut self, level: Level, data: &[u8]) -> Result<(), HandshakeError> {
        match self {
            Self::Running(running) => {
                running.read(level, data)?;
                if let Some(done) = running.finish() {
                    *self = Self::Done(done);
                }
                self.leave();
                Ok(())
            }
            Self::Away(_) if data.is_empty() => Ok(()),
            Self::Away(away) => Err(away.fail_too_early()),
            Self::Done(done) => done.read(data),
        }
    }

    fn poll(&mut self) -> Result<Option<HandshakeEvent>, HandshakeError> {
        if let Self::Away(away) = self
            && let Some(running) = away.take()?
        {
            *self = Self::Running(running);
        }
        match self {
            Self::Running(running) => {
                if let Some(error) = &running.failed {
                    return Err(error.clone());
                }
                running.heed_answer()?;
                let event = running.events.pop_front();
                self.leave();
                Ok(event)
            }
            Self::Away(_) => Ok(None),
            Self::Done(done) => done.poll(),
        }
    }

    fn alpn(&self) -> Option<&[u8]> {
        match self {
            Self::Running(running) => running.alpn(),
            Self::Away(_) => None,
            Self::Done(done) => Some(done.alpn()),
        }
    }

    fn server_name(&self) -> Option<&str> {
        match self {
            Self::Running(running) => running.server_name(),
            // The summary has it.
            Self::Away(_) | Self::Done(_) => None,
        }
    }

    fn application_limits(&self) -> Option<[u64; APPLICATION_LIMITS]> {
        match self {
            Self::Running(running) => match &running.role {
                Role::Server { tickets, .. } => Some(**tickets.application()),
                Role::Client { .. } => None,
            },
            Self::Away(_) => None,
            Self::Done(done) => Some(*done.application()),
        }
    }

    fn export_keying_material(
        &self,
        label: &[u8],
        context: &[u8],
        out: &mut [u8],
    ) -> Result<(), HandshakeError> {
        match self {
            Self::Running(running) => running.export_keying_material(label, context, out),
            Self::Away(_) => {
                let reason = "the handshake is not complete".to_owned();
                Err(HandshakeError { alert: Alert::INTERNAL_ERROR, reason })
            }
            Self::Done(done) => done.export_keying_material(label, context, out),
        }
    }

    fn poll_deferred(&mut self) -> Option<Deferred> {
        match self {
            Self::Running(running) => running.question().or_else(|| running.tap.take_lines()),
            Self::Away(away) => away.take_job(),
            Self::Done(done) => done.poll_deferred(),
        }
    }

    fn waits(&self) -> bool {
        matches!(self, Self::Running(running) if running.asking.is_some())
    }

    fn stop_waiting(&mut self) {
        if let Self::Running(running) = self
            && let Some(asking) = &running.asking
        {
            let _ = asking.answer.set(false);
        }
    }
}
