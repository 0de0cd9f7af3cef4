//! Who takes frames off the port: a caller that waits, or the stack's thread.
//!
//! A caller that waits for a segment takes it off the port itself, so that no other thread has to be woken first. When it has what
//! it waited for it leaves the seat to nobody, as it is mostly back at once: until then the switch rings for nobody, and whoever
//! comes next finds what has come. The thread naps meanwhile, and takes the seat if nobody comes for [`HANDOVER`], which it sees
//! within a [`NAP`].

/// Microseconds since the stack began.
pub(crate) type Time = u64;

/// How long nobody may have had the seat before the thread takes it.
pub(crate) const HANDOVER: Time = 250;
/// How often the thread looks whether somebody still has it, as long as callers come and go.
const NAP: Time = 1000;
/// For how long callers do not take it again that were away while frames waited: at first, and at most.
const PENALTY: Time = 10_000;
const MAX_PENALTY: Time = 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    Nobody,
    Thread,
    Caller,
}

/// What the thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shift {
    /// Take frames.
    Lead,
    /// Look again after so many microseconds, or when it is roused.
    Nap(Time),
    /// Sleep until it is roused.
    Sleep,
}

/// Who has the seat, and how the thread hears that nobody has.
#[derive(Debug)]
pub(crate) struct Seat {
    holder: Holder,
    /// When a caller left last, and how many have.
    left: Time,
    leavings: u64,
    /// `leavings` when the thread looked last.
    seen: u64,
    /// The thread sleeps without end.
    is_thread_asleep: bool,
    /// Callers do not lead before.
    from: Time,
    penalty: Time,
}

impl Seat {
    /// The thread has it.
    pub(crate) const fn new() -> Self {
        Self {
            holder: Holder::Thread,
            left: 0,
            leavings: 0,
            seen: 0,
            is_thread_asleep: false,
            from: 0,
            penalty: PENALTY,
        }
    }

    /// Nobody takes frames, and the switch rings for nobody.
    pub(crate) const fn is_vacant(&self) -> bool {
        matches!(self.holder, Holder::Nobody)
    }

    pub(crate) const fn is_threads(&self) -> bool {
        matches!(self.holder, Holder::Thread)
    }

    /// The thread does not look at anything until it is roused.
    pub(crate) const fn is_thread_asleep(&self) -> bool {
        self.is_thread_asleep
    }

    /// A caller that waits takes the seat. Returns false if another one has it, or the thread is to keep it.
    pub(crate) fn take(&mut self, now: Time) -> bool {
        let may = match self.holder {
            Holder::Nobody => true,
            Holder::Thread => now >= self.from,
            Holder::Caller => false,
        };
        if may {
            self.holder = Holder::Caller;
        }
        may
    }

    /// A caller leaves it. Returns whether the thread is to be roused.
    pub(crate) fn leave(&mut self, now: Time) -> bool {
        if self.holder != Holder::Caller {
            return false;
        }
        self.holder = Holder::Nobody;
        self.left = now;
        self.leavings = self.leavings.wrapping_add(1);
        std::mem::take(&mut self.is_thread_asleep)
    }

    /// What the thread does next. `is_late`: frames have come that nobody has taken.
    pub(crate) fn shift(&mut self, now: Time, is_late: bool) -> Shift {
        self.is_thread_asleep = false;
        let have_come = self.leavings != self.seen;
        self.seen = self.leavings;
        match self.holder {
            Holder::Thread => Shift::Lead,
            Holder::Caller if have_come => {
                self.penalty = self.penalty.saturating_sub(NAP).max(PENALTY);
                Shift::Nap(NAP)
            }
            Holder::Caller => {
                self.is_thread_asleep = true;
                Shift::Sleep
            }
            Holder::Nobody => {
                let until = self.left.saturating_add(HANDOVER);
                if now < until {
                    return Shift::Nap(until - now);
                }
                self.holder = Holder::Thread;
                if is_late {
                    self.from = now.saturating_add(self.penalty);
                    self.penalty = (self.penalty * 2).min(MAX_PENALTY);
                }
                Shift::Lead
            }
        }
    }

    /// The thread takes the seat whoever has it: the stack ends.
    pub(crate) const fn claim(&mut self) {
        self.holder = Holder::Thread;
        self.is_thread_asleep = false;
    }
}
