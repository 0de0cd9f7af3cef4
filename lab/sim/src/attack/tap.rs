//! TLS that tells its secrets.

use std::sync::{Arc, Mutex};

use quicket_engine::crypto::{
    APPLICATION_LIMITS, Direction, Handshake, HandshakeError, HandshakeEvent, HandshakeStart,
    Level, Secret, TlsConfig,
};

/// The traffic secrets of one side, in the order in which TLS gave them away.
pub(super) type Secrets = Arc<Mutex<Vec<(Level, Direction, Secret)>>>;

/// A TLS configuration whose handshakes note their secrets.
pub(super) struct TappedTls {
    pub(super) inner: Arc<dyn TlsConfig>,
    pub(super) secrets: Secrets,
}

impl TappedTls {
    fn tap(&self, inner: Box<dyn Handshake>) -> Box<dyn Handshake> {
        Box::new(Tapped { inner, secrets: self.secrets.clone() })
    }
}

impl TlsConfig for TappedTls {
    fn start_client(
        &self,
        start: &HandshakeStart<'_>,
    ) -> Result<Box<dyn Handshake>, HandshakeError> {
        self.inner.start_client(start).map(|inner| self.tap(inner))
    }

    fn start_server(
        &self,
        start: &HandshakeStart<'_>,
    ) -> Result<Box<dyn Handshake>, HandshakeError> {
        self.inner.start_server(start).map(|inner| self.tap(inner))
    }
}

struct Tapped {
    inner: Box<dyn Handshake>,
    secrets: Secrets,
}

impl Handshake for Tapped {
    fn read(&mut self, level: Level, data: &[u8]) -> Result<(), HandshakeError> {
        self.inner.read(level, data)
    }

    fn poll(&mut self) -> Result<Option<HandshakeEvent>, HandshakeError> {
        let event = self.inner.poll()?;
        if let Some(HandshakeEvent::Secret(level, direction, secret)) = &event
            && let Ok(mut secrets) = self.secrets.lock()
        {
            secrets.push((*level, *direction, secret.clone()));
        }
        Ok(event)
    }

    fn alpn(&self) -> Option<&[u8]> {
        self.inner.alpn()
    }

    fn application_limits(&self) -> Option<[u64; APPLICATION_LIMITS]> {
        self.inner.application_limits()
    }

    fn export_keying_material(
        &self,
        label: &[u8],
        context: &[u8],
        out: &mut [u8],
    ) -> Result<(), HandshakeError> {
        self.inner.export_keying_material(label, context, out)
    }
}
