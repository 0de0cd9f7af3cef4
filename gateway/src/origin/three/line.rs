//! Waiting for a stream, where a server allows no more requests at the moment (RFC 9000, Section 4.6).

use std::future::Future;
use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Duration, Instant, sleep};

use super::Pool;
use super::connection::Three;
use crate::origin::idle::Clock;

/// How often to look whether another connection has room.
const LOOK: Duration = Duration::from_millis(50);
/// What a server may need to allow another stream once one has ended. Who waited for less cannot tell that it will not.
const MOMENT: Duration = Duration::from_millis(500);

/// How a request waits.
pub(super) struct Line<'a> {
    pub(super) pool: &'a Pool,
    /// Does not run meanwhile: the server has not been asked yet.
    pub(super) clock: &'a Clock,
    /// How long it waits at most, on all connections.
    pub(super) until: Instant,
}

/// The place of a request among those that wait, which it keeps from one connection to the next until it has a stream.
pub(super) type Place = Option<OwnedSemaphorePermit>;

/// Why a request waits no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// Another connection has room, or may be made.
    Elsewhere,
    /// As many wait as may.
    Crowded,
    /// It has waited for as long as it may, and the server is there: it has much to do.
    Late,
    /// It has waited for as long as it may, and the server is there and has nothing to do.
    Stuck,
    /// The server seems to be gone.
    Gone,
}

impl Line<'_> {
    /// Waits until a stream of `three` is opened.
    pub(super) async fn wait<T>(
        self,
        three: &Three,
        opening: impl Future<Output = T>,
        place: &mut Place,
    ) -> Result<T, Left> {
        let Line { pool, clock, until } = self;
        if place.is_none() {
            let waiting = Arc::clone(&pool.waiting).try_acquire_owned();
            *place = Some(waiting.map_err(|_| Left::Crowded)?);
        }
        clock.hold();
        // Nothing else may be under way that it acknowledges.
        three.ping();
        let outcome = tokio::select! {
            biased;
            opened = opening => Ok(opened),
            () = three.is_silent() => Err(Left::Gone),
            left = leaves(pool, three, until) => Err(left),
        };
        clock.start();
        outcome
    }
}

/// Waits until there is no point in waiting on this connection.
async fn leaves(pool: &Pool, three: &Three, until: Instant) -> Left {
    let (begun, heard, granted) = (Instant::now(), three.heard(), three.granted());
    loop {
        sleep(LOOK.min(until.saturating_duration_since(Instant::now()))).await;
        if Instant::now() >= until {
            let is_at_work = three.streams() > 0 || three.granted() != granted;
            return match three.heard().is_silence_since(heard) {
                true => Left::Gone,
                false if is_at_work || begun.elapsed() < MOMENT => Left::Late,
                false => Left::Stuck,
            };
        }
        if !three.is_open() || pool.has_room_beside(three) {
            return Left::Elsewhere;
        }
    }
}
