//! Connections over QUIC, until the next generation takes them.

use std::sync::Arc;
use std::time::Duration;

use quicket::AcceptError;
use quicket::tokio::Listener;
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;

use super::Shared;
use super::admission::{hold, turn_away};

/// How long the listeners of other addresses may take to hear that the next generation has taken over: it may not have their
/// addresses any more. It is as long as a listener awaits clients that were on their way.
const OTHERS: Duration = Duration::from_secs(15);

/// The listeners of all addresses. Those that are not superseded take clients for as long as this is there.
pub(crate) struct Reception {
    listeners: Vec<Option<Arc<Listener>>>,
    /// Each ends with the number of its listener.
    tasks: JoinSet<(usize, Result<(), AcceptError>)>,
}

impl Reception {
    /// Takes connections from now on.
    pub(crate) fn new(listeners: Vec<Listener>, shared: &Arc<Shared>) -> Self {
        let listeners: Vec<_> = listeners.into_iter().map(Arc::new).collect();
        let mut tasks = JoinSet::new();
        for (at, listener) in listeners.iter().enumerate() {
            let (listener, shared) = (Arc::clone(listener), Arc::clone(shared));
            tasks.spawn(async move { (at, take(&listener, &shared).await) });
        }
        Self { listeners: listeners.into_iter().map(Some).collect(), tasks }
    }

    /// Returns when the next generation has taken over, at all addresses that it has.
    pub(crate) async fn take_all(&mut self) -> Result<(), AcceptError> {
        let mut superseded = vec![self.next().await?];
        let others = async {
            while superseded.len() < self.listeners.len() {
                superseded.push(self.next().await?);
            }
            Ok(())
        };
        if let Ok(ended) = timeout(OTHERS, others).await {
            ended?;
        }
        self.rest().await;
        // The others have clients that nobody takes.
        for (at, listener) in self.listeners.iter_mut().enumerate() {
            listener.take_if(|_| !superseded.contains(&at));
        }
        Ok(())
    }

    /// Takes no more connections. Who knocks is let wait as long as this is there.
    pub(crate) async fn rest(&mut self) {
        self.tasks.shutdown().await;
    }

    /// The next listener that is superseded.
    async fn next(&mut self) -> Result<usize, AcceptError> {
        match self.tasks.join_next().await {
            Some(Ok((at, ended))) => ended.map(|()| at),
            Some(Err(error)) => Err(lost(error)),
            // There are as many as listeners, of which there is one at least.
            None => Err(AcceptError::EndpointClosed),
        }
    }
}

/// A task has panicked, and so does who awaits it.
fn lost(error: JoinError) -> AcceptError {
    match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(_) => AcceptError::EndpointClosed,
    }
}

/// Takes connections until the next generation does.
async fn take(listener: &Listener, shared: &Arc<Shared>) -> Result<(), AcceptError> {
    loop {
        let connection = match listener.accept().await {
            Ok(connection) => connection,
            Err(AcceptError::Superseded) => return Ok(()),
            Err(error) => return Err(error),
        };
        match Arc::clone(&shared.room).try_acquire_owned() {
            Ok(permit) => {
                let shared = Arc::clone(shared);
                tokio::spawn(async move {
                    hold(connection, shared).await;
                    drop(permit);
                });
            }
            Err(_) => {
                shared.metrics.refused("too many connections");
                turn_away(&connection, "there are too many connections");
            }
        }
    }
}
