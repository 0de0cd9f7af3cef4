//! Waiting for a turn, where a server over HTTP/2 takes no more requests at the moment (RFC 9113, Section 5.1.2), or there
//! are as many connections to it as there may be.

use std::sync::Arc;

use tokio::sync::{Mutex, Notify, Semaphore};
use tokio::time::{Duration, Instant, sleep, timeout_at};

use super::idle::Clock;

/// How often whoever is first looks for what nobody tells it: a limit that was raised, a connection that has ended.
const LOOK: Duration = Duration::from_millis(50);

/// Requests to one server that wait for a stream or a connection.
#[derive(Debug)]
pub(super) struct Line {
    places: Semaphore,
    /// Held by whoever is first, who alone looks for room: the others have theirs in the order in which they came.
    first: Mutex<()>,
    /// A stream has ended, or a connection has, or is idle.
    freed: Notify,
    max: usize,
}

/// Why a request waits no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// As many wait as may.
    Crowded,
    /// It has waited for as long as it may.
    Late,
}

impl Line {
    pub(super) fn new(max: usize) -> Arc<Self> {
        let (first, freed) = (Mutex::default(), Notify::new());
        Arc::new(Self { places: Semaphore::new(max), first, freed, max })
    }

    /// Whether others wait, who are to have what is free before those that come.
    pub(super) fn is_waited_in(&self) -> bool {
        self.places.available_permits() < self.max
    }

    /// There may be room for another request.
    pub(super) fn free(&self) {
        self.freed.notify_one();
    }

    /// Waits until `look` finds something, which is asked once all who came before have left. `clock` stands still meanwhile.
    pub(super) async fn wait<T>(
        &self,
        clock: &Clock,
        until: Instant,
        mut look: impl FnMut() -> Option<T>,
    ) -> Result<T, Left> {
        let place = self.places.try_acquire().map_err(|_| Left::Crowded)?;
        clock.hold();
        let found = timeout_at(until, async {
            let first = self.first.lock().await;
            loop {
                if let Some(found) = look() {
                    break (found, first);
                }
                tokio::select! {
                    () = self.freed.notified() => {}
                    () = sleep(LOOK) => {}
                }
            }
        });
        let found = found.await;
        clock.start();
        drop(place);
        found.map(|(found, _first)| found).map_err(|_| Left::Late)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::time::advance;

    const SECOND: Duration = Duration::from_secs(1);

    /// Takes one of what is there, if there is any.
    fn take(room: &AtomicUsize) -> Option<()> {
        let less = |there: usize| there.checked_sub(1);
        room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).ok().map(drop)
    }

    #[tokio::test(start_paused = true)]
    async fn who_came_first_has_the_first_stream_and_the_clock_stands_still() {
        let (line, room) = (Line::new(3), Arc::new(AtomicUsize::new(0)));
        let (said, mut heard) = tokio::sync::mpsc::unbounded_channel();
        for number in 0..3 {
            let (line, room, said) = (Arc::clone(&line), Arc::clone(&room), said.clone());
            tokio::spawn(async move {
                let clock = Clock::now();
                let until = Instant::now() + SECOND * 60;
                line.wait(&clock, until, || clock.is_held().then(|| take(&room))?).await.unwrap();
                assert!(!clock.is_held());
                said.send(number).unwrap();
            });
            tokio::task::yield_now().await;
        }
        assert!(line.is_waited_in());
        let begun = Instant::now();
        for number in 0..3 {
            room.store(1, Ordering::Relaxed);
            line.free();
            assert_eq!(heard.recv().await, Some(number));
        }
        assert!(begun.elapsed() < LOOK, "it was told at once");
        tokio::task::yield_now().await;
        assert!(!line.is_waited_in());
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_tells_of_is_found_soon() {
        let (line, room) = (Line::new(1), Arc::new(AtomicUsize::new(0)));
        let waiting = tokio::spawn({
            let (line, room) = (Arc::clone(&line), Arc::clone(&room));
            let until = Instant::now() + SECOND;
            async move { line.wait(&Clock::now(), until, || take(&room)).await }
        });
        tokio::task::yield_now().await;
        room.store(1, Ordering::Relaxed);
        advance(LOOK).await;
        assert_eq!(waiting.await.unwrap(), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_ever_and_no_more_than_may() {
        let line = Line::new(1);
        let (clock, begun) = (Clock::now(), Instant::now());
        let wait = || line.wait(&clock, begun + SECOND, || None::<()>);
        let (first, second) = tokio::join!(wait(), wait());
        assert_eq!((first, second), (Err(Left::Late), Err(Left::Crowded)));
        assert_eq!(begun.elapsed(), SECOND);
        assert!(!line.is_waited_in() && !clock.is_held());
    }
}
