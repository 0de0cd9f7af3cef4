//! What carries requests and answers.

pub(crate) mod quic;
pub(crate) mod tcp;

use std::sync::Arc;

use super::Run;
use super::download::{Answered, Job};
use super::report::ConnectionReport;
use crate::exit::{Failure, Kind};

/// A connection to a server.
pub(crate) enum Link {
    /// HTTP/3, or HTTP/0.9.
    Quic(quic::Link),
    /// HTTP/2, or HTTP/1.1.
    Tcp(tcp::Link),
}

impl Link {
    /// Fetches a file.
    pub(crate) fn fetch(
        &self,
        job: Job,
        run: Arc<Run>,
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<Answered, Failure>> + Send>> {
        match self {
            Self::Quic(link) => Box::pin(link.fetch(job, run)),
            Self::Tcp(link) => Box::pin(link.fetch(job, run)),
        }
    }

    /// The failure is one of a connection that never came about: another way may be free.
    pub(crate) fn was_never_there(&self, failure: &Failure) -> bool {
        failure.kind == Kind::Connection
            && matches!(self, Self::Quic(link) if !link.is_established())
    }

    /// Closes the connection; what is to be said of it.
    pub(crate) async fn close(self) -> ConnectionReport {
        match self {
            Self::Quic(link) => link.close().await,
            Self::Tcp(link) => link.close(),
        }
    }
}
