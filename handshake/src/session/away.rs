//! A server's handshake that a thread has which may wait for a signature ([`crate::elsewhere`]).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use quicket_engine::crypto::{Alert, Deferred, HandshakeError};
use rustls::ServerConfig;
use rustls::quic::{Connection, ServerConnection, Version};

use super::Running;
use crate::elsewhere::RemoteKey;
use crate::messages::MAX_MESSAGE_LEN;
use crate::server::Certificates;

/// What a server needs whose handshakes may begin again elsewhere.
pub(crate) struct Again {
    config: Arc<ServerConfig>,
    parameters: Vec<u8>,
    certificates: Arc<Certificates>,
    /// What has come of a ClientHello. TLS gets it as a whole.
    hello: Vec<u8>,
    /// ClientHellos that TLS has got; there is a second one after a HelloRetryRequest.
    pub(super) taken: u64,
    /// Early data was refused.
    pub(super) refuses: bool,
    /// The key of the certificate that the first one has chosen.
    pub(super) key: Option<Arc<dyn RemoteKey>>,
}

impl Again {
    pub(crate) fn new(
        config: Arc<ServerConfig>,
        parameters: Vec<u8>,
        certificates: Arc<Certificates>,
    ) -> Self {
        let hello = Vec::new();
        Self { config, parameters, certificates, hello, taken: 0, refuses: false, key: None }
    }

    /// The key that a ClientHello needs for sure, which offers no session: it spares the attempt to do without.
    pub(super) fn foresee(&self, hello: &[u8]) -> Option<Arc<dyn RemoteKey>> {
        let hello = quicket_wire::ClientHello::parse(hello).ok()?;
        self.certificates.elsewhere(hello.server_name())
    }

    /// Another piece has come; `complete` messages are there. All of a ClientHello, once it is there.
    pub(super) fn gather(&mut self, piece: &[u8], complete: u64) -> Result<Option<Vec<u8>>, ()> {
        self.hello.extend_from_slice(piece);
        if complete > self.taken {
            self.taken = complete;
            return Ok(Some(std::mem::take(&mut self.hello)));
        }
        if self.hello.len() > MAX_MESSAGE_LEN { Err(()) } else { Ok(None) }
    }

    /// TLS that has read nothing.
    pub(super) fn connection(&self) -> Result<Connection, rustls::Error> {
        let config = Arc::clone(&self.config);
        let mut tls = ServerConnection::new(config, Version::V1, self.parameters.clone())?;
        if self.refuses {
            tls.reject_early_data();
        }
        Ok(Connection::Server(tls))
    }
}

/// What a handshake leaves for.
pub(super) struct Leaving {
    pub(super) key: Arc<dyn RemoteKey>,
    /// What TLS is to read there.
    pub(super) hello: Vec<u8>,
}

/// A handshake that is elsewhere.
pub(crate) struct Away {
    job: Option<(Arc<dyn RemoteKey>, Job)>,
    back: Arc<Back>,
    failed: Option<HandshakeError>,
}

/// Where it comes back to.
#[derive(Default)]
struct Back(Mutex<Option<Returned>>);

enum Returned {
    With(Box<Running>, Result<(), HandshakeError>),
    /// The thread has not done it.
    Lost(String),
}

impl Back {
    fn lock(&self) -> MutexGuard<'_, Option<Returned>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn internal(reason: String) -> HandshakeError {
    HandshakeError { alert: Alert::INTERNAL_ERROR, reason }
}

impl Away {
    pub(super) fn new(running: Box<Running>, Leaving { key, hello }: Leaving) -> Self {
        let back = Arc::<Back>::default();
        let job = Job { running: Some(running), hello, back: Arc::clone(&back), waker: None };
        Self { job: Some((key, job)), back, failed: None }
    }

    /// What stands there for a moment.
    pub(super) fn nothing() -> Self {
        Self { job: None, back: Arc::default(), failed: None }
    }

    /// What a thread is to do, if none was told.
    pub(super) fn take_job(&mut self) -> Option<Deferred> {
        let (key, mut job) = self.job.take()?;
        let back = Arc::clone(&self.back);
        Some(Box::new(move |waker| {
            job.waker = Some(waker.clone());
            // This thread serves others, too; its hook has told of a panic, and the job was dropped by it.
            let run = || key.run(Box::new(move || job.run()));
            if let Ok(Err(why)) = catch_unwind(AssertUnwindSafe(run)) {
                *back.lock() = Some(Returned::Lost(why));
            }
        }))
    }

    /// The handshake, once it is back.
    ///
    /// # Errors
    ///
    /// If it has failed there, or never was.
    pub(super) fn take(&mut self) -> Result<Option<Box<Running>>, HandshakeError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        match self.back.lock().take() {
            None => Ok(None),
            Some(Returned::With(running, Ok(()))) => Ok(Some(running)),
            Some(Returned::With(_, Err(error))) => Err(self.failed.insert(error).clone()),
            Some(Returned::Lost(why)) => {
                let error = internal(format!("no signature: {why}"));
                Err(self.failed.insert(error).clone())
            }
        }
    }

    /// A client has nothing to say before it has an answer.
    pub(super) fn fail_too_early(&mut self) -> HandshakeError {
        let reason = "CRYPTO data behind the ClientHello, before it was answered".to_owned();
        self.failed.insert(HandshakeError { alert: Alert::UNEXPECTED_MESSAGE, reason }).clone()
    }
}

/// What a thread does that may wait. If it is dropped instead, that is told.
struct Job {
    running: Option<Box<Running>>,
    hello: Vec<u8>,
    back: Arc<Back>,
    waker: Option<Waker>,
}

impl Job {
    fn run(mut self) {
        // If this panics, the job has nothing to bring back, and is dropped.
        let Some(mut running) = self.running.take() else { return };
        let result = running.read_on_thread(&self.hello);
        *self.back.lock() = Some(Returned::With(running, result));
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let mut back = self.back.lock();
        if back.is_none() {
            let why = "nobody had the time to wait for it".to_owned();
            *back = Some(Returned::Lost(why));
        }
        drop(back);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}
