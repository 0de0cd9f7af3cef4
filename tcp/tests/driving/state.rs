//! A stack without TCP: frames are numbers, and each is mail for one caller.

use std::collections::VecDeque;
use std::io::ErrorKind;

use shuttle::sync::{Condvar, Mutex};

use crate::bed::Sleeper;
use crate::driving::Step;
use crate::listening::Listening;
use crate::seat::{Seat, Shift};
use crate::sync::Arc;
use crate::watch::Watched;

/// Microseconds that pass whenever somebody looks at the clock.
const TICK: u64 = 100;

/// What is made wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    RousesNobody,
    InterruptsNobody,
    NeverTakesOver,
    CallsNobody,
    CallsOffAll,
}

/// A frame that is a connection, and not mail.
pub(crate) const CONNECTION: usize = usize::MAX;
/// Connections that may wait to be accepted: enough for all cases.
const BACKLOG: usize = 16;

/// A connection.
pub(crate) type Id = usize;

#[derive(Debug)]
pub(crate) enum Wake {
    One(Arc<Condvar>),
    All(Arc<Condvar>),
    Watch(crate::watch::Ring),
}

impl Wake {
    pub(crate) fn wake(self) {
        match self {
            Self::One(sleepers) => sleepers.notify_one(),
            Self::All(sleepers) => sleepers.notify_all(),
            Self::Watch(ring) => ring.ring(),
        }
    }
}

/// The switch's end: a ring, and its bell.
#[derive(Debug, Default)]
pub(crate) struct Ring(Mutex<Frames>);

#[derive(Debug, Default)]
struct Frames {
    frames: VecDeque<usize>,
    /// The other side has said that it sleeps.
    is_asleep: bool,
    is_rung: bool,
    is_closed: bool,
    /// Who polls the bell.
    sleepers: Vec<Arc<Sleeper>>,
}

impl Ring {
    /// What the switch does with a frame: it rings only for a side that sleeps.
    pub(crate) fn send(&self, to: usize) {
        let mut this = self.0.lock().unwrap();
        this.frames.push_back(to);
        if std::mem::take(&mut this.is_asleep) {
            this.is_rung = true;
            this.sleepers.iter().for_each(|sleeper| sleeper.wake());
        }
    }

    pub(crate) fn close(&self) {
        let mut this = self.0.lock().unwrap();
        this.is_closed = true;
        this.sleepers.iter().for_each(|sleeper| sleeper.wake());
    }

    pub(crate) fn left(&self) -> usize {
        self.0.lock().unwrap().frames.len()
    }

    pub(crate) fn listen(&self, sleeper: &Arc<Sleeper>) {
        let mut this = self.0.lock().unwrap();
        if this.is_rung || this.is_closed {
            sleeper.wake();
        }
        this.sleepers.push(Arc::clone(sleeper));
    }

    /// Returns whether the bell has rung, or the switch has gone.
    pub(crate) fn listen_no_more(&self, sleeper: &Arc<Sleeper>) -> bool {
        let mut this = self.0.lock().unwrap();
        this.sleepers.retain(|other| !Arc::ptr_eq(other, sleeper));
        this.is_rung || this.is_closed
    }
}

#[derive(Debug)]
pub(crate) struct Bell(pub(crate) Arc<Ring>);

impl Bell {
    /// The switch takes everything at once.
    pub(crate) fn ring(&self) -> Result<(), ()> {
        Ok(())
    }

    pub(crate) fn hush(&self) -> Result<(), ()> {
        let mut frames = self.0.0.lock().unwrap();
        frames.is_rung = false;
        if frames.is_closed { Err(()) } else { Ok(()) }
    }
}

#[derive(Debug, Default)]
struct MailBox {
    mails: usize,
    sleepers: usize,
    changed: Arc<Condvar>,
}

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) seat: Seat,
    pub(crate) leader: Option<Arc<Condvar>>,
    pub(crate) is_abandoned: bool,
    pub(crate) is_over: bool,
    ring: Arc<Ring>,
    boxes: Vec<MailBox>,
    pub(crate) listening: Listening,
    /// How many have come.
    connections: usize,
    woken: Vec<Wake>,
    is_asleep: bool,
    now: u64,
    fault: Option<Fault>,
}

impl Core {
    pub(crate) fn new(ring: Arc<Ring>, callers: usize, fault: Option<Fault>) -> Self {
        Self {
            seat: Seat::new(),
            leader: None,
            is_abandoned: false,
            is_over: false,
            ring,
            boxes: (0..callers).map(|_| MailBox::default()).collect(),
            listening: Listening::new(BACKLOG),
            connections: 0,
            woken: Vec::new(),
            is_asleep: false,
            now: 0,
            fault,
        }
    }

    pub(crate) fn take(&mut self, number: usize) -> bool {
        let mails = &mut self.boxes[number].mails;
        let has = *mails > 0;
        *mails -= usize::from(has);
        has
    }

    pub(crate) fn left(&self, number: usize) -> usize {
        self.boxes[number].mails
    }

    pub(crate) fn bring(&mut self, number: usize) {
        let letters = &mut self.boxes[number];
        letters.mails += 1;
        if letters.sleepers > 0 {
            self.woken.push(Wake::All(Arc::clone(&letters.changed)));
        }
    }

    /// A connection has come, and its handshake is complete (`Connections::follow`).
    fn establish(&mut self) {
        let turn = self.listening.turn();
        self.listening.begin(self.connections);
        self.connections += 1;
        self.listening.establish(turn, &mut self.woken);
        if self.fault == Some(Fault::CallsNobody) {
            self.woken.retain(|wake| !matches!(wake, Wake::One(_)));
        }
    }

    pub(crate) fn step_of_listener(&mut self, step: Step) -> Arc<Condvar> {
        if step == Step::Serves && self.fault == Some(Fault::CallsOffAll) {
            self.woken.clear();
        }
        self.listening.step(step, &mut self.woken)
    }

    pub(crate) fn watch_listener(&mut self, watched: Watched) {
        let wake = self.listening.watched.insert(watched).note();
        self.woken.extend(wake);
    }

    pub(crate) fn step(&mut self, number: usize, step: Step) -> Arc<Condvar> {
        let letters = &mut self.boxes[number];
        match step {
            Step::Sleeps | Step::Leads => letters.sleepers += 1,
            Step::Wakes | Step::Follows => letters.sleepers -= 1,
            Step::Serves => {}
        }
        Arc::clone(&letters.changed)
    }

    pub(crate) fn turn(&mut self) -> bool {
        // One at a time, so that there is more sometimes.
        let (next, more) = {
            let mut ring = self.ring.0.lock().unwrap();
            (ring.frames.pop_front(), !ring.frames.is_empty())
        };
        match next {
            Some(CONNECTION) => self.establish(),
            Some(to) => self.bring(to),
            None => {}
        }
        more
    }

    pub(crate) fn has_frames(&self) -> bool {
        self.ring.left() > 0
    }

    pub(crate) fn fall_asleep(&mut self) -> Option<Option<std::time::Duration>> {
        let mut ring = self.ring.0.lock().unwrap();
        if !ring.frames.is_empty() {
            return None;
        }
        ring.is_asleep = true;
        self.is_asleep = true;
        Some(None)
    }

    pub(crate) fn wake(&mut self) {
        self.ring.0.lock().unwrap().is_asleep = false;
        self.is_asleep = false;
    }

    pub(crate) const fn is_asleep(&self) -> bool {
        self.is_asleep
    }

    pub(crate) fn flush(&mut self) -> bool {
        false
    }

    pub(crate) fn take_woken(&mut self) -> Vec<Wake> {
        std::mem::take(&mut self.woken)
    }

    pub(crate) fn must_interrupt(&mut self) -> (bool, bool) {
        let is_own = |leader: &Arc<Condvar>| {
            self.woken.iter().any(|wake| match wake {
                Wake::One(other) | Wake::All(other) => Arc::ptr_eq(other, leader),
                Wake::Watch(_) => false,
            })
        };
        let interrupts = self.fault != Some(Fault::InterruptsNobody);
        (false, interrupts && self.leader.as_ref().is_some_and(is_own))
    }

    pub(crate) fn must_rouse(&self) -> bool {
        false
    }

    pub(crate) fn has_surplus(&self) -> bool {
        false
    }

    pub(crate) fn is_empty(&self) -> bool {
        true
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.is_abandoned || self.is_over
    }

    pub(crate) fn fail(&mut self, _: ErrorKind) {
        self.is_over = true;
        let all = self.boxes.iter().map(|letters| Wake::All(Arc::clone(&letters.changed)));
        self.woken.extend(all);
        // As `Connections::fail` does.
        self.woken.push(Wake::All(self.listening.changed.clone()));
        self.woken.extend(self.listening.watched.iter().filter_map(Watched::note));
    }

    fn now(&mut self) -> u64 {
        self.now += TICK;
        self.now
    }

    pub(crate) fn take_seat(&mut self) -> bool {
        let now = self.now();
        !self.is_over && self.seat.take(now)
    }

    pub(crate) fn leave_seat(&mut self) -> bool {
        let now = self.now();
        self.seat.leave(now) && self.fault != Some(Fault::RousesNobody)
    }

    pub(crate) fn shift(&mut self) -> Shift {
        if self.has_ended() {
            self.seat.claim();
            return Shift::Lead;
        }
        let (now, is_late) = (self.now(), self.has_frames());
        match self.seat.shift(now, is_late) {
            Shift::Nap(_) if self.fault == Some(Fault::NeverTakesOver) => Shift::Sleep,
            shift => shift,
        }
    }
}
