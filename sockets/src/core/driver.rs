//! The task that drives an endpoint in a tokio runtime.

use std::future::Future;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use ::tokio::io::Interest as Readiness;
use ::tokio::io::unix::AsyncFd;
use ::tokio::time::Sleep;
use quicket_engine::time::Time;

use super::Core;
use super::lead::{Background, Rank, Seat};
use super::link::Link;
use super::poller::PAUSE;
use super::postpone::Whose;
use super::receive::{Origin, Scratch};

/// Drives an endpoint until nobody needs it. Where a caller of the blocking API leads, it stands
/// aside.
///
/// When the runtime drops it before that, a thread takes over, so that connections can end in
/// order.
pub(crate) struct Driver {
    core: Arc<Core>,
    /// The endpoint's sockets as the runtime knows them.
    sockets: Vec<Registered>,
    sleep: Pin<Box<Sleep>>,
    /// The waker that the endpoint has.
    waker: Option<Waker>,
    /// The runtime cannot watch for room, as when there are no descriptors left: when to try to
    /// send again.
    retry_at: Option<Time>,
}

/// A socket and the runtime's handles of it, which tell when it is ready.
struct Registered {
    link: Arc<Link>,
    readable: AsyncFd<OwnedFd>,
    /// The switch has handed something over beside the socket.
    beside: Option<AsyncFd<OwnedFd>>,
    /// While somebody waits for room in the socket: otherwise the runtime would be told of room
    /// after each packet.
    writable: Option<AsyncFd<OwnedFd>>,
    /// While ICMP messages are waited for: the runtime tells of an error in the way in which it tells
    /// that nothing can be written any more, and for good.
    failing: Option<AsyncFd<OwnedFd>>,
}

impl Registered {
    fn new(link: &Arc<Link>) -> io::Result<Self> {
        let readable = register(link.socket.readable(), Readiness::READABLE)?;
        let port = link.socket.port_beside();
        let beside = port.map(|port| register(port.readable(), Readiness::READABLE)).transpose()?;
        Ok(Self { link: Arc::clone(link), readable, beside, writable: None, failing: None })
    }

    /// True if there is an ICMP message to be read; else the task is woken when there is.
    fn has_errors(&mut self, context: &mut Context<'_>) -> bool {
        if self.failing.is_none() {
            self.failing = register(self.link.socket.as_fd(), Readiness::READABLE).ok();
        }
        let Some(failing) = &self.failing else { return false };
        let ready = failing.poll_write_ready(context).is_ready();
        if ready {
            self.failing = None;
        }
        ready
    }

    /// True if the socket has room, or may have; else the task is woken when it has.
    fn is_writable(&mut self, context: &mut Context<'_>) -> io::Result<bool> {
        let io = match &self.writable {
            Some(io) => io,
            None => self.writable.insert(register(self.link.socket.as_fd(), Readiness::WRITABLE)?),
        };
        let ready = io.poll_write_ready(context).is_ready();
        if ready {
            self.writable = None;
            self.link.set_writable();
        }
        Ok(ready)
    }
}

// The newer functions are unsafe, for descriptors that are not what they say; an owned socket is.
#[allow(deprecated)]
fn register(descriptor: BorrowedFd<'_>, interest: Readiness) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(descriptor.try_clone_to_owned()?, interest)
}

impl Driver {
    /// A driver for the runtime in whose context this is called.
    pub(crate) fn new(core: Arc<Core>) -> io::Result<Self> {
        let mut this = Self {
            core,
            sockets: Vec::new(),
            sleep: Box::pin(::tokio::time::sleep(std::time::Duration::ZERO)),
            waker: None,
            retry_at: None,
        };
        this.register()?;
        Ok(this)
    }

    /// Registers the endpoint's present sockets and lets go of others.
    fn register(&mut self) -> io::Result<()> {
        let links = self.core.links();
        self.sockets.retain(|known| links.iter().any(|link| Arc::ptr_eq(link, &known.link)));
        for link in links.iter() {
            if !self.sockets.iter().any(|known| Arc::ptr_eq(link, &known.link)) {
                self.sockets.push(Registered::new(link)?);
            }
        }
        Ok(())
    }

    /// Lets the endpoint wake this task.
    fn announce(&mut self, context: &Context<'_>) {
        let waker = context.waker();
        if !self.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            self.waker = Some(waker.clone());
            self.core.lead.set_background(Some(Background::Task(waker.clone())));
        }
    }

    /// Receives from all sockets that have something; true if one of them may have more.
    fn receive(&mut self, context: &mut Context<'_>, seat: &mut Seat<'_, Box<Scratch>>) -> bool {
        let mut more = false;
        for link in self.core.links().in_order_of_moves() {
            let known = self.sockets.iter().find(|known| Arc::ptr_eq(link, &known.link));
            // The runtime does not take one that is not known.
            let Some(Registered { readable, beside, .. }) = known else { continue };
            let beside = beside.iter().map(|beside| (beside, Origin::Switch));
            for (ready, by) in [(readable, Origin::Socket)].into_iter().chain(beside) {
                let Some(scratch) = seat.scratch() else { return false };
                more |= self.receive_from(context, (ready, by), link, scratch);
            }
        }
        more
    }

    /// Receives what has come to a socket, or beside it; true if there may be more.
    fn receive_from(
        &self,
        context: &mut Context<'_>,
        (readable, by): (&AsyncFd<OwnedFd>, Origin),
        link: &Link,
        scratch: &mut Scratch,
    ) -> bool {
        while let Poll::Ready(Ok(mut ready)) = readable.poll_read_ready(context) {
            if scratch.paused_until.is_some() {
                return false;
            }
            if !self.core.receive_from(&link.socket, by, scratch) {
                return true;
            }
            // It is empty for now; of what comes from now on the runtime tells anew. Not so of
            // what the system has refused to hand out.
            if scratch.paused_until.is_none() {
                ready.clear_ready();
            }
        }
        false
    }

    /// Reads what ICMP says, while there are attempts that it may concern.
    fn take_errors(&mut self, context: &mut Context<'_>, seat: &mut Seat<'_, Box<Scratch>>) {
        for socket in &mut self.sockets {
            if !self.core.attempts.any() {
                socket.failing = None;
                continue;
            }
            // It tells again of what is left.
            while socket.has_errors(context) {
                let Some(scratch) = seat.scratch() else { return };
                self.core.take_errors(&socket.link.socket, &mut scratch.work.wakes);
            }
        }
    }

    /// True if somebody waits for room in a socket and there is some now.
    fn is_writable(&mut self, context: &mut Context<'_>) -> bool {
        if !self.core.wants_writable() {
            return false;
        }
        let mut writable = self.core.waits_nowhere(&self.core.links());
        let mut watched = true;
        for socket in &mut self.sockets {
            if !socket.link.is_full() {
                socket.writable = None;
                continue;
            }
            writable |= socket.is_writable(context).unwrap_or_else(|error| {
                self.core.complaints.warn(format_args!(
                    "the runtime does not watch the endpoint's socket: {error}"
                ));
                watched = false;
                false
            });
        }
        let now = self.core.clock().now();
        if watched {
            self.retry_at = None;
        } else if self.retry_at.is_none_or(|at| at <= now) {
            self.retry_at = Some(now + PAUSE);
            return true;
        }
        writable
    }

    /// Sleeps until `deadline`; ready when it has come.
    fn poll_deadline(&mut self, context: &mut Context<'_>, deadline: Option<Time>) -> Poll<()> {
        let Some(deadline) = deadline else { return Poll::Pending };
        let instant = ::tokio::time::Instant::from_std(self.core.clock().instant_of(deadline));
        if self.sleep.deadline() != instant {
            self.sleep.as_mut().reset(instant);
        }
        self.sleep.as_mut().poll(context)
    }

    /// One round of work; ready when there is more at once.
    fn turn(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Err(error) = self.register() {
            self.core
                .complaints
                .warn(format_args!("the runtime does not take the endpoint's socket: {error}"));
        }
        let core = Arc::clone(&self.core);
        let now = core.clock().now();
        // A caller that leads wakes this task when it leaves and none follows.
        let Some(mut seat) = core.lead.try_enter(Rank::Background, now) else {
            return Poll::Pending;
        };
        core.wake_up();
        if let Some(scratch) = seat.scratch() {
            scratch.end_pause(now);
        }
        let more = self.receive(context, &mut seat);
        self.take_errors(context, &mut seat);
        let writable = self.is_writable(context);
        if let Some(scratch) = seat.scratch() {
            core.take_mail(scratch);
            seat.now = core.act(scratch, Whose::All, writable);
        }
        if more || (core.wants_writable() && self.is_writable(context)) {
            return Poll::Ready(());
        }
        let retry_at = self.retry_at.filter(|_| core.wants_writable());
        let paused = seat.scratch().and_then(|scratch| scratch.paused_until);
        let deadline = core.fall_asleep(retry_at.into_iter().chain(paused).min());
        if !core.has_no_mail() {
            return Poll::Ready(());
        }
        drop(seat);
        self.poll_deadline(context, deadline)
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.announce(context);
        if self.core.is_over() {
            return Poll::Ready(());
        }
        if self.turn(context).is_ready() {
            // Others get their turn in between.
            context.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.core.lead.set_background(None);
        if !self.core.is_over()
            && let Err(error) = self.core.start_thread()
        {
            log::warn!("an endpoint lost its runtime and no thread could take over: {error}");
            self.core.end();
        }
    }
}
