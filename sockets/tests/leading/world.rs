//! An endpoint without protocol: numbers come in, and each is mail for one party.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::task::{Wake, Waker};

use quicket_engine::time::{Duration, Time};
use quicket_wire::EcnCodepoint;

use crate::kick::Kick;
use crate::lead::{Background, Caller, Entrance, Leadership, Rank, Seat, Token};
use crate::mailbox::{Mailbox, Parcels};
use crate::parker::{CurrentThread, Parker};
use crate::sync::{Arc, AtomicBool, Mutex, Ordering, thread};
use shuttle::sync::Condvar;

/// Who receives while no caller does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Driven {
    Nobody,
    Thread,
    Task,
}

pub(crate) struct World {
    lead: Leadership<Tray>,
    driven: Driven,
    socket: Mutex<VecDeque<usize>>,
    boxes: Vec<Mutex<MailBox>>,
    /// Where other workers leave mail.
    mailbox: Mailbox,
    /// What drives as a task.
    task: Arc<Task>,
    over: AtomicBool,
    forgets: AtomicBool,
    /// Leaders sleep without a look into the mailbox.
    forgets_mailbox: AtomicBool,
}

#[derive(Default)]
struct MailBox {
    mails: usize,
    waiter: Option<Who>,
}

enum Who {
    Thread(Arc<Parker>),
    Task(Waker),
}

/// The leader's token: wakers that are to be called when the seat is left.
#[derive(Default)]
pub(crate) struct Tray(Vec<Waker>);

impl Token for Tray {
    type Rest = Vec<Waker>;

    fn has_rest(&self) -> bool {
        !self.0.is_empty()
    }

    fn take_rest(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.0)
    }

    fn finish(rest: Vec<Waker>) {
        rest.into_iter().for_each(Waker::wake);
    }
}

/// Something that is run when it was woken.
pub(crate) struct Task {
    woken: Mutex<bool>,
    changed: Condvar,
    /// What somebody else's waker may do: take the seat.
    meddles_with: Option<Arc<World>>,
}

impl Task {
    fn new(meddles_with: Option<Arc<World>>) -> Arc<Self> {
        Arc::new(Self { woken: Mutex::new(false), changed: Condvar::new(), meddles_with })
    }

    /// Sleeps until woken.
    pub(crate) fn wait(&self) {
        let mut woken = self.woken.lock().unwrap();
        while !*woken {
            woken = self.changed.wait(woken).unwrap();
        }
        *woken = false;
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        if let Some(world) = &self.meddles_with {
            drop(world.lead.try_enter(Rank::Eager, Time::ZERO));
        }
        *self.woken.lock().unwrap() = true;
        self.changed.notify_all();
    }
}

impl World {
    pub(crate) fn new(parties: usize, driven: Driven) -> Arc<Self> {
        Arc::new(Self {
            lead: Leadership::new(Tray::default(), Kick::default()),
            driven,
            socket: Mutex::new(VecDeque::new()),
            boxes: (0..parties).map(|_| Mutex::default()).collect(),
            mailbox: Mailbox::default(),
            task: Task::new(None),
            over: AtomicBool::new(false),
            forgets: AtomicBool::new(false),
            forgets_mailbox: AtomicBool::new(false),
        })
    }

    /// From now on, who gives up waiting does not say so.
    pub(crate) fn forget_places(&self) {
        self.forgets.store(true, Ordering::SeqCst);
    }

    /// From now on, leaders sleep without a look into the mailbox.
    pub(crate) fn forget_mailbox(&self) {
        self.forgets_mailbox.store(true, Ordering::SeqCst);
    }

    /// Another worker has mail for one party.
    pub(crate) fn hand_over(&self, number: usize) {
        let mut parcels = Parcels::default();
        let remote = ([127, 0, 0, 1], 9).into();
        parcels.add((remote, None), EcnCodepoint::NotEct, 1, &[number as u8]);
        if self.mailbox.push(&mut parcels).wake {
            self.lead.interrupt();
        }
    }

    /// Whoever leads may sleep: nothing is in the mailbox.
    fn may_sleep(&self) -> bool {
        self.forgets_mailbox.load(Ordering::SeqCst) || self.mailbox.fall_asleep()
    }

    /// Looks at the mailbox for a moment, as who does not sleep yet: nobody wakes it.
    fn watch(&self) -> bool {
        (0..2).any(|_| {
            thread::yield_now();
            self.mailbox.has_mail()
        })
    }

    /// Hands out what other workers left.
    fn take_mail(&self, seat: &mut Seat<'_, Tray>) {
        let mut parcels = Parcels::default();
        self.mailbox.take(&mut parcels);
        let numbers: Vec<_> = parcels.trains().map(|(.., bytes)| usize::from(bytes[0])).collect();
        numbers.into_iter().for_each(|number| self.give(number, seat));
    }

    /// Mail for one party arrives.
    pub(crate) fn send(&self, number: usize) {
        self.socket.lock().unwrap().push_back(number);
        self.lead.kick().set_readable(true);
        // The runtime tells by edges.
        if self.driven == Driven::Task {
            Arc::clone(&self.task).wake();
        }
    }

    /// Mail for a thread comes from another thread of the process.
    pub(crate) fn bring(&self, number: usize) {
        if let Some(Who::Thread(parker)) = self.put(number) {
            parker.wake_now();
        }
    }

    /// Hands out what is there, if nobody leads. Waits for nobody. For the background it comes often.
    pub(crate) fn glance(&self) {
        if let Some(mut seat) = self.lead.visit(Time::from_nanos(1)) {
            self.hand_out(&mut seat);
        }
    }

    fn put(&self, number: usize) -> Option<Who> {
        let mut mail_box = self.boxes[number].lock().unwrap();
        mail_box.mails += 1;
        mail_box.waiter.take()
    }

    /// Waits for mail.
    pub(crate) fn receive(&self, number: usize, rank: Rank, interruptible: bool) {
        let thread = CurrentThread::new();
        while !self.wait(number, rank, &thread, interruptible) {}
    }

    /// Waits for mail once.
    pub(crate) fn try_receive(&self, number: usize, rank: Rank) {
        self.wait(number, rank, &CurrentThread::new(), true);
    }

    fn wait(&self, number: usize, rank: Rank, thread: &CurrentThread, interruptible: bool) -> bool {
        thread.reset();
        {
            let mut mail_box = self.boxes[number].lock().unwrap();
            if mail_box.mails > 0 {
                mail_box.mails -= 1;
                return true;
            }
            mail_box.waiter = Some(Who::Thread(Arc::clone(thread.parker())));
        }
        if self.forgets.load(Ordering::SeqCst) && interruptible {
            if let Entrance::Queue(place) = self.lead.enter(rank, Time::ZERO, thread) {
                std::mem::forget(place);
            }
            return false;
        }
        let caller = Caller { thread, rank, deadline: None, interruptible };
        self.lead.wait(
            &caller,
            Time::ZERO,
            || {},
            |seat| {
                if interruptible && self.socket.lock().unwrap().is_empty() {
                    return ControlFlow::Break(true);
                }
                self.turn(seat);
                ControlFlow::Continue(())
            },
        );
        false
    }

    /// Watches for something, then waits for it, and hands it out.
    fn turn(&self, seat: &mut Seat<'_, Tray>) {
        if !self.watch() && self.may_sleep() {
            self.lead.kick().poll();
        }
        self.hand_out(seat);
        self.take_mail(seat);
    }

    fn hand_out(&self, seat: &mut Seat<'_, Tray>) {
        let numbers = {
            let mut socket = self.socket.lock().unwrap();
            self.lead.kick().set_readable(false);
            std::mem::take(&mut *socket)
        };
        numbers.into_iter().for_each(|number| self.give(number, seat));
    }

    fn give(&self, number: usize, seat: &mut Seat<'_, Tray>) {
        match self.put(number) {
            Some(Who::Thread(parker)) => parker.wake_now(),
            Some(Who::Task(waker)) => seat.scratch().unwrap().0.push(waker),
            None => {}
        }
    }

    /// Has a task hear of a party's next mail.
    pub(crate) fn register_task(self: &Arc<Self>, number: usize) -> Arc<Task> {
        let task = Task::new(Some(Arc::clone(self)));
        let waker = Waker::from(Arc::clone(&task));
        self.boxes[number].lock().unwrap().waiter = Some(Who::Task(waker));
        task
    }

    pub(crate) fn start_background(self: &Arc<Self>) -> Option<thread::JoinHandle<()>> {
        let world = Arc::clone(self);
        match self.driven {
            Driven::Nobody => None,
            Driven::Thread => Some(thread::spawn(move || world.drive_as_thread())),
            Driven::Task => {
                let waker = Waker::from(Arc::clone(&self.task));
                self.lead.set_background(Some(Background::Task(waker)));
                Some(thread::spawn(move || world.drive_as_task()))
            }
        }
    }

    fn drive_as_thread(&self) {
        self.lead.set_background(Some(Background::Thread(thread::current())));
        // Some time passes between two looks at the clock, so that a vacancy ends.
        let clock = Mutex::new(Time::ZERO);
        let now = || {
            let mut clock = clock.lock().unwrap();
            *clock += Duration::from_millis(2);
            (!self.over.load(Ordering::SeqCst)).then_some(*clock)
        };
        let rest = |time: Option<Duration>| match time {
            Some(_) => thread::yield_now(),
            None => thread::park(),
        };
        self.lead.work(now, rest, |seat| self.turn(seat));
    }

    fn drive_as_task(&self) {
        while !self.over.load(Ordering::SeqCst) {
            if let Some(mut seat) = self.lead.try_enter(Rank::Background, Time::ZERO) {
                self.hand_out(&mut seat);
                self.take_mail(&mut seat);
                if !self.may_sleep() {
                    continue;
                }
            }
            self.task.wait();
        }
    }

    /// Ends what drives in the background.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
        self.lead.end();
    }
}
