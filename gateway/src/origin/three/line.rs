//! Waiting for a stream, where a server allows no more requests at the moment (RFC 9000, Section 4.6).

use std::future::Future;

use tokio::time::{Duration, Instant, sleep};

use super::Pool;
use super::connection::Three;
use crate::origin::idle::Clock;

/// How often to look whether another connection has room.
const LOOK: Duration = Duration::from_millis(50);

/// How a request waits.
pub(super) struct Line<'a> {
    pub(super) pool: &'a Pool,
    /// Does not run meanwhile: the server has not been asked yet.
    pub(super) clock: &'a Clock,
    /// How long it waits at most, on all connections.
    pub(super) until: Instant,
}

/// Why a request waits no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// Another connection has room.
    Elsewhere,
    /// It has waited for as long as it may, and the server is there: it has much to do.
    Late,
    /// The server seems to be gone.
    Gone,
}

impl Line<'_> {
    /// Waits until a stream of `three` is opened.
    pub(super) async fn wait<T>(
        &self,
        three: &Three,
        opening: impl Future<Output = T>,
    ) -> Result<T, Left> {
        self.clock.hold();
        let outcome = tokio::select! {
            biased;
            opened = opening => Ok(opened),
            () = three.is_silent() => Err(Left::Gone),
            left = self.leaves(three) => Err(left),
        };
        self.clock.start();
        outcome
    }

    /// Waits until there is no point in waiting on this connection.
    async fn leaves(&self, three: &Three) -> Left {
        let before = three.heard();
        loop {
            sleep(LOOK.min(self.until.saturating_duration_since(Instant::now()))).await;
            if self.pool.has_room_beside(three) {
                return Left::Elsewhere;
            }
            if Instant::now() >= self.until {
                return if three.heard().is_silence_since(before) {
                    Left::Gone
                } else {
                    Left::Late
                };
            }
        }
    }
}
