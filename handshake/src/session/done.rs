//! What is left of a server's handshake that is complete.

use std::collections::VecDeque;
use std::sync::Arc;

use quicket_engine::crypto::{Alert, Deferred, HandshakeError, HandshakeEvent};

use crate::provider::Exporter;
use crate::server::Limits;

/// The last events, and what may be asked for later.
pub(crate) struct Done {
    events: VecDeque<HandshakeEvent>,
    alpn: Box<[u8]>,
    application: Arc<Limits>,
    exporter: Exporter,
    deferred: Option<Deferred>,
    failed: bool,
}

impl Done {
    pub(super) fn new(
        events: VecDeque<HandshakeEvent>,
        alpn: Box<[u8]>,
        application: Arc<Limits>,
        exporter: Exporter,
        deferred: Option<Deferred>,
    ) -> Self {
        Self { events, alpn, application, exporter, deferred, failed: false }
    }

    pub(super) fn poll_deferred(&mut self) -> Option<Deferred> {
        self.deferred.take()
    }

    /// No message of a client may follow its Finished: certificates after the handshake and
    /// KeyUpdate are forbidden (RFC 9001, Sections 4.4 and 6), and tickets come from servers.
    pub(super) fn read(&mut self, data: &[u8]) -> Result<(), HandshakeError> {
        if data.is_empty() && !self.failed {
            return Ok(());
        }
        self.failed = true;
        self.events = VecDeque::new();
        Err(unexpected())
    }

    pub(super) fn poll(&mut self) -> Result<Option<HandshakeEvent>, HandshakeError> {
        if self.failed {
            return Err(unexpected());
        }
        let event = self.events.pop_front();
        if self.events.is_empty() {
            self.events.shrink_to_fit();
        }
        Ok(event)
    }

    pub(super) fn alpn(&self) -> &[u8] {
        &self.alpn
    }

    pub(super) fn application(&self) -> &Limits {
        &self.application
    }

    pub(super) fn export_keying_material(
        &self,
        label: &[u8],
        context: &[u8],
        out: &mut [u8],
    ) -> Result<(), HandshakeError> {
        self.exporter.export(label, context, out)
    }
}

fn unexpected() -> HandshakeError {
    HandshakeError {
        alert: Alert::UNEXPECTED_MESSAGE,
        reason: "the client sent a TLS message after the handshake".to_owned(),
    }
}
