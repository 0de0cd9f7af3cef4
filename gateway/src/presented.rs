//! The certificates that clients get: those of the file, and those that were ordered.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::UNIX_EPOCH;

use quicket::{ConfigError, Fingerprint, Identity, ServerTls};
use quicket_handshake::ServerTlsBuilder;

use crate::acme::{Context, Wanted};
use crate::metrics::{CertificateLabel, Metrics};
use crate::snapshot::Certificates;

/// A certificate that is ordered.
#[derive(Clone, Debug)]
pub(crate) struct Ordered {
    pub(crate) wanted: Arc<Wanted>,
    pub(crate) identity: Identity,
    /// It is self-signed, and stands in the place of one that is yet to come.
    pub(crate) stands_in: bool,
}

/// The certificates that clients get.
#[derive(Debug)]
pub(crate) struct Presented(Mutex<Shown>);

impl Presented {
    pub(crate) fn new(shown: Shown) -> Self {
        Self(Mutex::new(shown))
    }

    /// Who reads the file again holds this.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Shown> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// They themselves.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    of_file: Certificates,
    ordered: Vec<Ordered>,
    /// What is counted of them.
    counted: Vec<CertificateLabel>,
}

impl Shown {
    pub(crate) fn new(of_file: Certificates, ordered: Vec<Ordered>) -> Self {
        Self { of_file, ordered, counted: Vec::new() }
    }

    pub(crate) fn ordered(&self) -> &[Ordered] {
        &self.ordered
    }

    /// True if the file had it.
    pub(crate) fn has(&self, identity: &Identity) -> bool {
        let wanted: Fingerprint = identity.fingerprint();
        self.of_file.iter().any(|(_, identity)| identity.fingerprint() == wanted)
    }

    /// With the names for which clients get them; the first is everybody's who asks for another name.
    fn all(&self) -> Certificates {
        let ordered = self.ordered.iter().map(|it| (it.wanted.names.clone(), it.identity.clone()));
        self.of_file.iter().cloned().chain(ordered).collect()
    }

    /// TLS with them; nothing if there is no certificate.
    pub(crate) fn tls(
        &self,
        alpn: Vec<String>,
        and: impl FnOnce(ServerTlsBuilder) -> ServerTlsBuilder,
    ) -> Option<Result<ServerTls, ConfigError>> {
        let all = self.all();
        let mut builder = ServerTls::builder(all.first()?.1.clone()).alpn(alpn).early_data(true);
        for (names, identity) in all {
            builder = builder.certificate_for(names, identity);
        }
        Some(and(builder).build())
    }

    /// Has clients get others from now on.
    ///
    /// # Errors
    ///
    /// If one of them cannot be used: then they get those from before.
    pub(crate) fn replace(&mut self, next: Self, tls: &ServerTls) -> Result<(), ConfigError> {
        let all = next.all();
        if let Some((_, first)) = all.first() {
            tls.replace_certificates(first, &all)?;
        }
        *self = Self { counted: std::mem::take(&mut self.counted), ..next };
        Ok(())
    }

    /// Has clients get a certificate that was ordered, if it is one of those that are wanted still.
    ///
    /// # Errors
    ///
    /// If it cannot be used: then they get the one from before.
    pub(crate) fn order(
        &mut self,
        wanted: &Wanted,
        identity: Identity,
        context: &Context,
    ) -> Result<(), ConfigError> {
        let is_it = |ordered: &&mut Ordered| ordered.wanted.id == wanted.id;
        let mut ordered = self.ordered.clone();
        let Some(place) = ordered.iter_mut().find(is_it) else { return Ok(()) };
        if !place.stands_in && place.identity.fingerprint() == identity.fingerprint() {
            return Ok(());
        }
        (place.identity, place.stands_in) = (identity, false);
        self.replace(Self::new(self.of_file.clone(), ordered), &context.tls)?;
        self.count(&context.metrics);
        Ok(())
    }

    /// Counts when they end.
    pub(crate) fn count(&mut self, metrics: &Metrics) {
        let name = |names: &[String], identity: &Identity| {
            names.first().cloned().unwrap_or_else(|| identity.fingerprint().to_string())
        };
        let end = |identity: &Identity| {
            let end = identity.not_after()?.duration_since(UNIX_EPOCH).ok()?;
            i64::try_from(end.as_secs()).ok()
        };
        let of_file = self.of_file.iter().map(|(names, identity)| {
            (CertificateLabel::new(name(names, identity), identity), end(identity).unwrap_or(0))
        });
        let ordered = self.ordered.iter().map(|ordered| {
            // One that stands in is no certificate: it has ended long ago, so to say.
            let end = end(&ordered.identity).filter(|_| !ordered.stands_in).unwrap_or(0);
            (CertificateLabel::new(ordered.wanted.name().to_owned(), &ordered.identity), end)
        });
        let next: Vec<_> = of_file.chain(ordered).collect();
        metrics.certificates(&self.counted, &next);
        self.counted = next.into_iter().map(|(label, _)| label).collect();
    }
}
