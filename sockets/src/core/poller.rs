//! One turn of a leading thread: wait for the sockets or a deadline, then do what there is to do.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use quicket_engine::time::{Duration, Time};

use super::Core;
use super::held::none_held;
use super::lead::Seat;
use super::link::{Link, Links};
use super::postpone::Whose;
use super::receive::{Brought, Origin, Scratch};
use crate::config::MAX_SOCKETS;
use quicket_udp::Port;

/// How long sockets are left alone after receiving failed for a reason that is not the peer's.
pub(super) const PAUSE: Duration = Duration::from_millis(10);
/// How often callers may send before one of them looks for what has come in: one that asks many peers,
/// one after the other, would have the socket overflow with their answers.
const MOST_UNHEARD: u32 = 16;
/// The longest sleep; so that no deadline is too large for the kernel.
const LONGEST: Duration = Duration::from_secs(3600);

/// How long a thread lets more come that has just handed a long batch on to other workers, and nothing else was in it: it
/// has nothing to do with that, and would be woken for each train, and wake another.
const GATHERING: Duration = Duration::from_micros(100);
/// ... if its socket has so much room, in bytes as the system counts them, and the less the less it has: at 25 Gbit/s 300 KiB come
/// in that time, and take up to twice as much there.
const GATHERING_ROOM: usize = 1 << 20;
/// ... and not for less.
const SHORTEST_GATHERING: Duration = Duration::from_micros(20);

/// What a poll found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Readiness {
    /// One of the sockets at least has something.
    readable: bool,
    /// The switch beside one of them has.
    beside: bool,
    writable: bool,
    /// A signal ended it.
    interrupted: bool,
}

/// What is waited for beside the sockets themselves.
#[derive(Clone, Copy)]
enum Apart<'a> {
    /// Room in a socket that the switch reads, or in a port.
    Room(&'a Link),
    /// What the switch hands over.
    Port(&'a dyn Port),
}

impl Core {
    /// Waits until there is something to do, but no longer than `limit`, and does it. True if a
    /// signal ended the wait.
    pub(super) fn turn(&self, seat: &mut Seat<'_, Box<Scratch>>, limit: Option<Time>) -> bool {
        let links = self.links();
        if seat.scratch().is_some_and(|scratch| scratch.work.wakes.take_woke_others()) {
            // They have work to do, perhaps on this processor.
            std::thread::yield_now();
        }
        // Who interrupts it ends that, too.
        if std::mem::take(&mut seat.gathers)
            && let Some(time) = self.may_gather(&links, limit)
            && self.lead.kick().sleep(Some(time.into()))
        {
            return true;
        }
        let now = self.clock.now();
        let look = self.lead.plan_look(now);
        if let Some(scratch) = seat.scratch() {
            scratch.brought = Brought::default();
            self.catch_up(now, Whose::Own, &mut scratch.work.wakes);
            scratch.work.wakes.fire_threads();
        }
        let paused = seat.scratch().and_then(|scratch| scratch.end_pause(now));
        let look = earlier(look, self.postponed.first(|entry| entry.due));
        let deadline = self.fall_asleep(earlier(earlier(limit, paused), look));
        let came = seat.spins && self.spin_on(&links, seat, now, deadline);
        let ready = if came {
            Readiness::default()
        } else {
            let no_mail = self.has_no_mail();
            let wait = deadline.map_or(LONGEST, |at| at.since(now));
            let wait = if no_mail { wait } else { Duration::ZERO };
            self.wait(&links, paused.is_none(), wait)
        };
        self.wake_up();
        self.lead.has_woken();
        let Some(scratch) = seat.scratch() else { return ready.interrupted };
        if ready.readable {
            // A socket may have been added meanwhile.
            for link in self.links().in_order_of_moves() {
                self.receive_from(&link.socket, Origin::Socket, scratch);
            }
        }
        if ready.beside {
            self.receive_beside(scratch);
        }
        self.take_mail(scratch);
        let (now, gathers) =
            (self.act(scratch, Whose::Own, ready.writable), scratch.brought.only_hands_on());
        (seat.now, seat.gathers) = (now, gathers);
        ready.interrupted
    }

    /// How long more may be let come: none if the sockets have no room for that, or something else is to be done
    /// meanwhile, or at `limit`.
    fn may_gather(&self, links: &Links, limit: Option<Time>) -> Option<Duration> {
        let room = links.iter().map(|link| link.room).min()?.min(GATHERING_ROOM) as u64;
        let nanos = GATHERING.as_nanos() * room / GATHERING_ROOM as u64;
        let time = Some(Duration::from_nanos(nanos)).filter(|time| *time >= SHORTEST_GATHERING)?;
        let until = self.clock.now() + time;
        let deadlines = self.deadlines();
        let due = earlier(deadlines.timers.earliest(), deadlines.links_end);
        drop(deadlines);
        let due = earlier(due, self.postponed.first(|entry| entry.due));
        earlier(due, limit).is_none_or(|due| due > until).then_some(time)
    }

    /// Watches the socket and the mailbox for a moment, if there is but one socket and nothing else to
    /// wait for; true if something came. What came to the socket was processed.
    fn spin_on(
        &self,
        links: &Links,
        seat: &mut Seat<'_, Box<Scratch>>,
        now: Time,
        deadline: Option<Time>,
    ) -> bool {
        let mut sockets = links.iter();
        let (Some(link), None) = (sockets.next(), sockets.next()) else { return false };
        let Some(scratch) = seat.scratch() else { return false };
        let free = scratch.paused_until.is_none() && !self.wants_writable();
        free && self.spin(&link.socket, scratch, now, deadline)
    }

    /// Receives what the switch has handed over beside the sockets; true if that is all.
    pub(super) fn receive_beside(&self, scratch: &mut Scratch) -> bool {
        let links = self.links();
        let mut beside = links.iter().filter(|link| link.socket.port_beside().is_some());
        beside.all(|link| self.receive_from(&link.socket, Origin::Switch, scratch))
    }

    /// Receives and sees to errors; true if the socket is empty now.
    pub(super) fn receive_from(
        &self,
        socket: &quicket_udp::UdpSocket,
        by: Origin,
        scratch: &mut Scratch,
    ) -> bool {
        self.unheard.store(0, Ordering::Relaxed);
        let received = self.receive(socket, by, scratch);
        if socket.may_have_errors() {
            self.on_errors(socket, &mut scratch.work.wakes);
        }
        received.unwrap_or_else(|error| {
            self.complaints.warn(format_args!(
                "nothing can be received on {}: {error}; it is tried again until it can",
                socket.local_addr()
            ));
            scratch.paused_until = Some(self.clock.now() + PAUSE);
            true
        })
    }

    /// Counts that a caller has sent; true if many have since somebody received.
    pub(super) fn is_unheard(&self) -> bool {
        self.unheard.fetch_add(1, Ordering::Relaxed) >= MOST_UNHEARD
    }

    /// Receives what is there, unless somebody leads and does so anyway, and does what is late. For callers that
    /// send for long without ever waiting: acknowledgments that nobody reads keep memory in use, and the
    /// round trip looks longer than it is. The background keeps away meanwhile. Waits for nobody.
    pub(super) fn glance(&self, now: Time) {
        // A function of the application may run with a connection locked for which something came.
        if !none_held() {
            return;
        }
        let Some(mut seat) = self.lead.visit(now) else { return };
        let Some(scratch) = seat.scratch() else { return };
        if scratch.end_pause(now).is_none() {
            for link in self.links().in_order_of_moves() {
                self.receive_from(&link.socket, Origin::Socket, scratch);
            }
            self.receive_beside(scratch);
        }
        seat.now = self.act(scratch, Whose::Late, false);
    }

    /// Does what there is to do beside receiving; returns the time.
    pub(super) fn act(&self, scratch: &mut Scratch, whose: Whose, writable: bool) -> Time {
        let now = self.clock.now();
        let wakes = &mut scratch.work.wakes;
        self.catch_up(now, whose, wakes);
        if writable {
            self.on_writable(now, wakes);
        }
        self.expire(now, wakes);
        wakes.fire_threads();
        now
    }

    /// Announces that the leader sleeps, and until when.
    pub(super) fn fall_asleep(&self, limit: Option<Time>) -> Option<Time> {
        let mut deadlines = self.deadlines();
        let deadline = earlier(deadlines.timers.earliest(), limit);
        let deadline = earlier(deadline, deadlines.links_end);
        deadlines.asleep_until = deadline.unwrap_or(Time::from_nanos(u64::MAX));
        deadline
    }

    /// Announces that the leader is awake: nobody needs to wake it.
    pub(super) fn wake_up(&self) {
        self.deadlines().asleep_until = Time::ZERO;
    }

    /// True if somebody waits for room in the kernel's send buffer.
    pub(super) fn wants_writable(&self) -> bool {
        !self.blocked.is_empty()
    }

    /// True if somebody waits for room in a socket that is not among `links` any more, or is about
    /// to say in which: sending shows where it belongs.
    pub(super) fn waits_nowhere(&self, links: &Links) -> bool {
        self.wants_writable() && !links.iter().any(|link| link.is_full())
    }

    fn wait(&self, links: &Links, receive: bool, timeout: Duration) -> Readiness {
        let kick = self.lead.kick();
        let mut sockets = links.iter();
        let count = sockets.len();
        // What is readable and what is writable are one descriptor, but where the switch reads (one link
        // at most) or hands over what it reads beside the socket (one, too), and with a port. Of several ports without
        // room one is watched: their switch makes room for all.
        let mut apart = None;
        let mut fds: [PollFd<'_>; MAX_SOCKETS + 2] =
            std::array::from_fn(|at| match sockets.next() {
                Some(link) => {
                    let mut events = PollFlags::empty();
                    events.set(PollFlags::POLLIN, receive);
                    // Sockets that nobody waits for have room all the time.
                    if link.is_full() && link.socket.is_behind_port() {
                        apart = Some(Apart::Room(link));
                    } else {
                        events.set(PollFlags::POLLOUT, link.is_full());
                    }
                    if let (true, Some(port)) = (receive, link.socket.port_beside()) {
                        apart = Some(Apart::Port(port));
                    }
                    PollFd::new(link.socket.readable(), events)
                }
                None if at == count => PollFd::new(kick.as_fd(), PollFlags::POLLIN),
                None => match apart {
                    Some(Apart::Room(link)) => PollFd::new(link.socket.as_fd(), PollFlags::POLLOUT),
                    Some(Apart::Port(port)) => PollFd::new(port.readable(), PollFlags::POLLIN),
                    None => PollFd::new(kick.as_fd(), PollFlags::empty()),
                },
            });
        let used = count + 1 + usize::from(apart.is_some());
        let nowhere = self.waits_nowhere(links);
        let timeout = if nowhere { Duration::ZERO } else { timeout };
        let timeout = TimeSpec::from(std::time::Duration::from(timeout.min(LONGEST)));
        match ppoll(fds.get_mut(..used).unwrap_or_default(), Some(timeout), None) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Readiness { interrupted: true, ..Readiness::default() },
            Err(error) => {
                // Out of memory: nothing to do but to try again, and not too often.
                self.complaints.warn(format_args!("poll failed: {}", io::Error::from(error)));
                std::thread::sleep(PAUSE.into());
                return Readiness::default();
            }
        }
        let mut ready = Readiness { writable: nowhere, ..Readiness::default() };
        for (fd, link) in fds.iter().take(count).zip(links.iter()) {
            let found = fd.revents().unwrap_or(PollFlags::empty());
            // An error that waits on the socket is taken by receiving.
            let failed = found.intersects(PollFlags::POLLERR | PollFlags::POLLHUP);
            if failed {
                link.socket.note_error();
            }
            ready.readable |= receive && (failed || found.contains(PollFlags::POLLIN));
            if found.contains(PollFlags::POLLOUT) {
                link.set_writable();
                ready.writable = true;
            }
        }
        match apart.filter(|_| fds.get(count + 1).and_then(PollFd::any).unwrap_or(false)) {
            Some(Apart::Room(link)) => {
                link.set_writable();
                ready.writable = true;
            }
            Some(Apart::Port(_)) => ready.beside = true,
            None => {}
        }
        if fds.get(count).and_then(PollFd::any).unwrap_or(false) {
            kick.clear();
        }
        ready
    }
}

fn earlier(a: Option<Time>, b: Option<Time>) -> Option<Time> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, UdpSocket};
    use std::sync::Arc;

    use nix::libc::MSG_MORE;
    use socket2::SockRef;

    use super::*;
    use crate::config::EndpointConfig;
    use crate::core::lead::Rank;
    use crate::core::{CoreRef, Link};
    use crate::ops;
    use crate::{ClientConfig, ClientTls};

    const SOME_TIME: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(20);
    const ROOM: Readiness =
        Readiness { readable: false, beside: false, writable: true, interrupted: false };

    fn local() -> SocketAddr {
        "127.0.0.1:0".parse().unwrap()
    }

    /// An endpoint that nobody drives, with a connection that waits for room: the send buffer is
    /// full of a datagram to `sink` that is not complete.
    fn waiting_endpoint(sink: SocketAddr) -> CoreRef {
        let core = ops::endpoint(local(), EndpointConfig::default()).unwrap();
        let link = Arc::clone(core.links().current().unwrap());
        let socket = SockRef::from(&*link.socket);
        socket.set_send_buffer_size(1).unwrap();
        socket.send_to_with_flags(&[0; 3_000], &sink.into(), MSG_MORE).unwrap();
        link.socket.faults.on_sending(Errno::EAGAIN);
        let tls = ClientTls::builder().dangerous_no_verification().alpn(["test"]).build().unwrap();
        core.connect(sink, "localhost", &ClientConfig::new(tls), false).unwrap();
        assert!(core.wants_writable());
        core.lead.kick().clear();
        core
    }

    #[test]
    fn a_socket_that_has_room_does_not_wake_who_waits_for_another() {
        let socket = UdpSocket::bind(local()).unwrap();
        let sink = socket.local_addr().unwrap();
        let core = waiting_endpoint(sink);
        core.change_links(|links, _| {
            Some(links.added(Link::bind(local(), &core.udp_config()).unwrap()))
        });
        core.lead.kick().clear();
        let links = core.links();
        assert_eq!(core.wait(&links, true, SOME_TIME), Readiness::default());

        let full = links.current().unwrap();
        SockRef::from(&*full.socket).send_to(&[0; 8], &sink.into()).unwrap();
        assert_eq!(core.wait(&links, true, LONG), ROOM);
        assert!(!full.is_full(), "whoever finds no room says so again");
    }

    #[test]
    fn who_waits_for_room_in_a_socket_that_is_gone_tries_another_at_once() {
        let socket = UdpSocket::bind(local()).unwrap();
        let sink = socket.local_addr().unwrap();
        let core = waiting_endpoint(sink);
        let other = Links::new(Link::bind(local(), &core.udp_config()).unwrap());
        assert_eq!(core.wait(&other, true, LONG), ROOM);
    }

    #[test]
    fn more_is_let_come_only_where_there_are_time_and_room() {
        let core = ops::endpoint(local(), EndpointConfig::default()).unwrap();
        let links = |room| {
            let mut link = Link::bind(local(), &core.udp_config()).unwrap();
            link.room = room;
            Links::new(link)
        };
        let roomy = links(GATHERING_ROOM);
        assert_eq!(core.may_gather(&roomy, None), Some(GATHERING));
        assert_eq!(core.may_gather(&links(1 << 30), None), Some(GATHERING));
        // As much as net.core.rmem_max usually allows.
        let some = core.may_gather(&links(2 * 212_992), None).unwrap();
        assert!(some < GATHERING && some > SHORTEST_GATHERING, "{some:?}");
        assert_eq!(core.may_gather(&links(4096), None), None);
        assert_eq!(core.may_gather(&links(0), None), None, "it is not known");
        let after = |time| Some(core.clock().now() + time);
        assert_eq!(core.may_gather(&roomy, after(LONG)), Some(GATHERING));
        assert_eq!(core.may_gather(&roomy, after(Duration::ZERO)), None);
        assert_eq!(core.may_gather(&roomy, after(GATHERING)), None);
        // A connection that waits for its timer.
        let sink = UdpSocket::bind(local()).unwrap().local_addr().unwrap();
        let core = waiting_endpoint(sink);
        let timer = core.deadlines().timers.earliest().unwrap();
        while core.clock().now() < timer {
            std::thread::sleep(GATHERING.into());
        }
        let roomy = Links::new(Link::bind(local(), &core.udp_config()).unwrap());
        assert_eq!(core.may_gather(&roomy, None), None);
    }

    /// Who leads later knows nothing of what an earlier one has handed on.
    #[test]
    fn a_seat_is_taken_without_a_pause() {
        let core = ops::endpoint(local(), EndpointConfig::default()).unwrap();
        let enter = || core.lead.try_enter(Rank::Background, core.clock().now()).unwrap();
        let mut seat = enter();
        seat.gathers = true;
        drop(seat);
        assert!(!enter().gathers);
    }

    #[test]
    fn who_sends_and_sends_looks_for_what_has_come() {
        let socket = UdpSocket::bind(local()).unwrap();
        let core = ops::endpoint(local(), EndpointConfig::default()).unwrap();
        let tls = ClientTls::builder().dangerous_no_verification().alpn(["test"]).build().unwrap();
        let peer = socket.local_addr().unwrap();
        let conn = core.connect(peer, "localhost", &ClientConfig::new(tls), false).unwrap();
        socket.send_to(&[0; 40], core.local_addr()).unwrap();
        let received = || {
            let mut seat = core.lead.try_enter(Rank::Background, core.clock().now()).unwrap();
            seat.scratch().unwrap().received
        };
        assert_eq!(received(), 0, "nobody drives the endpoint");
        (0..=MOST_UNHEARD).for_each(|_| conn.act(|_, _| ()));
        assert_eq!(received(), 1);
        assert!(!core.is_unheard(), "it is counted anew");
    }
}
