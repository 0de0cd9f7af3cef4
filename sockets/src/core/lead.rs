//! Who receives: one leader at a time.
//!
//! A thread that waits in a blocking call receives for the whole endpoint meanwhile, so that the
//! answer to a request reaches it without a detour over another thread. What drives the endpoint
//! in the background (a thread, or a task of an async runtime) keeps away as long as callers do
//! its work, and takes over [`HANDOVER`] after the last of them stopped.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::Waker;
use std::thread::Thread;

use quicket_engine::time::{Duration, Time};

use super::parker::Kick;
use super::receive::Scratch;

/// How long nobody may have led before the background takes over.
pub(super) const HANDOVER: Duration = Duration::from_millis(1);

/// Who should lead rather than whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Rank {
    /// Nobody leads.
    Vacant,
    /// The background driver.
    Background,
    /// A caller that waits for something rare, such as the next connection.
    Patient,
    /// A caller that waits for data.
    Eager,
}

/// What drives the endpoint when no caller does.
#[derive(Debug)]
pub(crate) enum Background {
    /// A thread of ours, to be unparked.
    Thread(Thread),
    /// A task, to be woken.
    Task(Waker),
}

thread_local! {
    /// This thread leads.
    static LEADS: Cell<bool> = const { Cell::new(false) };
}

/// The leader's seat and the way to get hold of it.
pub(crate) struct Leadership {
    seat: Mutex<Scratch>,
    /// Rank of whoever has the seat.
    rank: AtomicU8,
    /// Somebody of higher rank waits for the seat.
    wanted: AtomicBool,
    /// When a caller last left the seat, in nanoseconds.
    left: AtomicU64,
    /// When a leader that sleeps looks again at what was postponed, in nanoseconds; 0 if it does
    /// so before it sleeps.
    looks_at: AtomicU64,
    /// Something was to be postponed while somebody led.
    is_watched_for: AtomicBool,
    /// The background sleeps until a caller leaves the seat.
    background_sleeps: AtomicBool,
    background: Mutex<Option<Background>>,
    kick: Arc<Kick>,
}

/// The right to receive for the endpoint.
pub(crate) struct Seat<'a> {
    leadership: &'a Leadership,
    scratch: Option<MutexGuard<'a, Scratch>>,
    rank: Rank,
    /// The holder waits for an answer that may come at once.
    pub(super) spins: bool,
    /// The time at the end of the holder's last turn.
    pub(super) now: Time,
}

impl Leadership {
    pub(super) fn new(kick: Kick) -> Self {
        Self {
            seat: Mutex::new(Scratch::default()),
            rank: AtomicU8::new(Rank::Vacant as u8),
            wanted: AtomicBool::new(false),
            left: AtomicU64::new(0),
            looks_at: AtomicU64::new(0),
            is_watched_for: AtomicBool::new(false),
            background_sleeps: AtomicBool::new(false),
            background: Mutex::new(None),
            kick: Arc::new(kick),
        }
    }

    /// What gets the leader out of its poll.
    pub(super) const fn kick(&self) -> &Arc<Kick> {
        &self.kick
    }

    /// True if nobody leads, so that the background will soon unless a caller does.
    pub(super) fn is_vacant(&self) -> bool {
        self.rank.load(Ordering::SeqCst) == Rank::Vacant as u8
    }

    /// For whoever has put something on the list of what was postponed: true if it will be looked
    /// at soon without anybody's doing. Else a leader sleeps, and will sleep for shorter next time.
    pub(super) fn looks_soon(&self, now: Time) -> bool {
        if self.is_vacant() {
            return true;
        }
        if !self.is_watched_for.load(Ordering::SeqCst) {
            self.is_watched_for.store(true, Ordering::SeqCst);
        }
        self.looks_at.load(Ordering::SeqCst) <= (now + HANDOVER).as_nanos()
    }

    /// A leader is going to sleep, but will look at what was postponed before: how long it may
    /// sleep, if somebody relies on it.
    pub(super) fn plan_look(&self, now: Time) -> Option<Time> {
        let look = self.is_watched_for.swap(false, Ordering::SeqCst).then_some(now + HANDOVER);
        self.looks_at.store(look.map_or(u64::MAX, Time::as_nanos), Ordering::SeqCst);
        look
    }

    /// A leader no longer sleeps.
    pub(super) fn has_woken(&self) {
        self.looks_at.store(0, Ordering::SeqCst);
    }

    /// Gets a leader of any kind to look again.
    pub(super) fn interrupt(&self) {
        if !self.is_vacant() {
            self.kick.kick();
        }
        self.wake_task();
    }

    /// Gets whatever drives in the background to look again, for the last time.
    pub(super) fn end(&self) {
        self.interrupt();
        if let Some(Background::Thread(thread)) =
            &*self.background.lock().unwrap_or_else(PoisonError::into_inner)
        {
            thread.unpark();
        }
    }

    /// Says who drives in the background.
    pub(super) fn set_background(&self, background: Option<Background>) {
        *self.background.lock().unwrap_or_else(PoisonError::into_inner) = background;
    }

    /// Takes the seat if it is free, or from a leader of lower rank. Not for a thread that leads
    /// already, and has called the application's code: it would wait for itself.
    pub(super) fn take(&self, rank: Rank, now: Time) -> Option<Seat<'_>> {
        if LEADS.get() {
            return None;
        }
        self.take_vacant(rank, now).or_else(|| self.displace(rank, now))
    }

    /// Takes the seat if it is free.
    fn take_vacant(&self, rank: Rank, now: Time) -> Option<Seat<'_>> {
        let scratch = match self.seat.try_lock() {
            Ok(scratch) => scratch,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(self.seated(scratch, rank, now))
    }

    fn displace(&self, rank: Rank, now: Time) -> Option<Seat<'_>> {
        let lower = || self.rank.load(Ordering::SeqCst) < rank as u8;
        if !lower() || self.wanted.swap(true, Ordering::SeqCst) {
            return None;
        }
        // Another caller may have taken over between the two looks; it cleared `wanted` after
        // it set its rank, so that it shows now.
        if !lower() {
            self.wanted.store(false, Ordering::SeqCst);
            return None;
        }
        self.kick.kick();
        let scratch = self.seat.lock().unwrap_or_else(PoisonError::into_inner);
        let seat = self.seated(scratch, rank, now);
        self.wanted.store(false, Ordering::SeqCst);
        Some(seat)
    }

    fn seated<'a>(&'a self, scratch: MutexGuard<'a, Scratch>, rank: Rank, now: Time) -> Seat<'a> {
        self.rank.store(rank as u8, Ordering::SeqCst);
        LEADS.set(true);
        Seat { leadership: self, scratch: Some(scratch), rank, spins: false, now }
    }

    /// For the background: how long to keep away, or `None` to take the seat now.
    pub(super) fn keep_away(&self, now: Time) -> Option<Duration> {
        let left = Time::from_nanos(self.left.load(Ordering::SeqCst));
        if !self.is_vacant() {
            return Some(HANDOVER);
        }
        let idle = now.since(left);
        (left != Time::ZERO && idle < HANDOVER)
            .then(|| Duration::from_nanos(HANDOVER.as_nanos() - idle.as_nanos()))
    }

    /// For the background thread: true if it may sleep until [`Seat`]'s drop wakes it, because
    /// one and the same caller has led ever since `left`.
    pub(super) fn sleep_until_left(&self, left: u64) -> bool {
        self.background_sleeps.store(true, Ordering::SeqCst);
        let may = self.rank.load(Ordering::SeqCst) > Rank::Background as u8
            && self.left.load(Ordering::SeqCst) == left;
        if !may {
            self.background_sleeps.store(false, Ordering::SeqCst);
        }
        may
    }

    /// When a caller last left the seat: a stamp for [`Leadership::sleep_until_left`].
    pub(super) fn left(&self) -> u64 {
        self.left.load(Ordering::SeqCst)
    }

    fn on_left(&self) {
        let sleeps = self.background_sleeps.swap(false, Ordering::SeqCst);
        match &*self.background.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(Background::Thread(thread)) if sleeps => thread.unpark(),
            // A task hears of datagrams by edges, which went to the caller.
            Some(Background::Task(waker)) => waker.wake_by_ref(),
            _ => {}
        }
    }

    /// Gets a task that drives in the background to look again.
    pub(super) fn wake_task(&self) {
        if let Some(Background::Task(waker)) =
            &*self.background.lock().unwrap_or_else(PoisonError::into_inner)
        {
            waker.wake_by_ref();
        }
    }
}

impl Seat<'_> {
    /// True if somebody of higher rank waits for the seat.
    pub(super) fn is_wanted(&self) -> bool {
        self.leadership.wanted.load(Ordering::SeqCst)
    }

    /// The leader's buffers.
    pub(super) fn scratch(&mut self) -> Option<&mut Scratch> {
        self.scratch.as_deref_mut()
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let leadership = self.leadership;
        let caller = self.rank > Rank::Background;
        if caller {
            // Never 0, which stands for "no caller yet".
            let now = self.now.as_nanos().max(leadership.left.load(Ordering::SeqCst) + 1);
            leadership.left.store(now, Ordering::SeqCst);
        }
        leadership.rank.store(Rank::Vacant as u8, Ordering::SeqCst);
        LEADS.set(false);
        drop(self.scratch.take());
        if caller {
            leadership.on_left();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;

    fn leadership() -> Leadership {
        Leadership::new(Kick::new().unwrap())
    }

    const NOW: Time = Time::from_nanos(5_000_000);

    #[test]
    fn only_one_leads_and_equals_do_not_displace_each_other() {
        let leadership = leadership();
        let seat = leadership.take(Rank::Eager, NOW).unwrap();
        assert!(leadership.take(Rank::Eager, NOW).is_none());
        assert!(leadership.take(Rank::Patient, NOW).is_none());
        assert!(!seat.is_wanted());
        drop(seat);
        assert!(leadership.take(Rank::Background, NOW).is_some());
    }

    #[test]
    fn a_higher_rank_displaces_a_lower_one() {
        let leadership = leadership();
        let seat = leadership.take(Rank::Background, NOW).unwrap();
        let (sender, receiver) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                let seat = leadership.take(Rank::Eager, NOW);
                sender.send(seat.is_some()).unwrap();
            });
            while !seat.is_wanted() {
                thread::yield_now();
            }
            drop(seat);
            assert!(receiver.recv().unwrap());
        });
        assert!(!leadership.wanted.load(Ordering::SeqCst));
    }

    #[test]
    fn a_leader_that_is_relied_on_sleeps_no_longer_than_a_handover() {
        let leadership = leadership();
        assert!(leadership.looks_soon(NOW), "nobody leads: whoever comes looks first");
        let _seat = leadership.take(Rank::Eager, NOW).unwrap();
        assert_eq!(leadership.plan_look(NOW), None);
        assert!(!leadership.looks_soon(NOW), "it may sleep for long");
        leadership.has_woken();
        assert!(leadership.looks_soon(NOW), "it looks before it sleeps");
        assert_eq!(leadership.plan_look(NOW), Some(NOW + HANDOVER));
        assert!(leadership.looks_soon(NOW + Duration::from_micros(10)));
        leadership.has_woken();
        assert_eq!(leadership.plan_look(NOW), Some(NOW + HANDOVER));
        leadership.has_woken();
        assert_eq!(leadership.plan_look(NOW), None, "nobody has relied on it since");
    }

    #[test]
    fn the_background_keeps_away_while_callers_lead_and_for_a_while_after() {
        let leadership = leadership();
        assert_eq!(leadership.keep_away(NOW), None);
        let mut seat = leadership.take(Rank::Eager, NOW).unwrap();
        assert_eq!(leadership.keep_away(NOW), Some(HANDOVER));
        let stamp = leadership.left();
        assert!(leadership.sleep_until_left(stamp));
        seat.now = NOW + Duration::from_micros(10);
        drop(seat);
        assert!(!leadership.sleep_until_left(leadership.left()));
        let after = NOW + Duration::from_micros(310);
        assert_eq!(leadership.keep_away(after), Some(Duration::from_micros(700)));
        assert_eq!(leadership.keep_away(NOW + Duration::from_millis(2)), None);
    }
}
