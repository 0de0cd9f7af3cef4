//! Registers and removes the tuples of a port.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use quicket_ring::Layout;
use rustix::io::Errno;

use crate::ask::{ask, hear, hear_until, say, wait_for_room};
use crate::counters::Counters;
use crate::protocol::{Answer, Request, Sizes};
use crate::queue::Queue;
use crate::tuple::Tuple;

/// Answers that nobody waits for, at most: the switch closes a connection whose answers have no room.
const MAX_OWED: usize = 16;

/// Registers and removes the tuples of a port: asks the switch, and waits for its answer.
#[derive(Debug)]
pub struct Registrar {
    control: OwnedFd,
    /// Answers that nobody waits for, and that are still to come, before all others.
    owed: VecDeque<Owed>,
    /// A tuple that came too late, until the switch has room for its removal: before that nothing else is registered, so that
    /// there are never two.
    late: Option<Tuple>,
    /// What was reserved by who has opened the connection.
    reserved: Vec<Tuple>,
}

/// What such an answer is to.
#[derive(Clone, Copy, Debug)]
enum Owed {
    Removal,
    /// Who asked was told that it took too long: he has no tuple by it.
    Registration,
}

impl Registrar {
    pub(crate) const fn new(control: OwnedFd) -> Self {
        Self { control, owed: VecDeque::new(), late: None, reserved: Vec::new() }
    }

    /// That of a connection which somebody else has opened, with what he has reserved.
    pub(crate) fn handed(control: OwnedFd) -> io::Result<Self> {
        let mut this = Self::new(control);
        loop {
            let request = Request::Reserved { at: this.reserved.len() as u32 };
            match this.ask(request)? {
                (Answer::Registered(tuple), _) => this.reserved.push(tuple),
                (Answer::Refused { code, .. }, _) if code == Errno::NOENT.raw_os_error() => {
                    return Ok(this);
                }
                (answer, _) => return Err(answer.into_error()),
            }
        }
    }

    /// The tuples that were reserved for this port before it was opened ([`Port::open_on`](crate::client::Port::open_on)), in
    /// their order. None where it was opened by a path.
    #[must_use]
    pub fn reserved(&self) -> &[Tuple] {
        &self.reserved
    }

    /// Registers a tuple that was reserved. Given back by [`Registrar::remove`], it is reserved again.
    ///
    /// # Errors
    ///
    /// `NotFound` when it was not reserved; `ResourceBusy` when it is this port's already, or has an owner.
    pub fn claim(&mut self, tuple: Tuple) -> io::Result<Tuple> {
        match self.ask(Request::Claim(tuple))? {
            (Answer::Registered(tuple), _) => Ok(tuple),
            (answer, _) => Err(answer.into_error()),
        }
    }

    /// Registers the first of the tuples that were reserved which has this protocol, address and port and is not the port's yet.
    /// Port 0 stands for any.
    ///
    /// # Errors
    ///
    /// `AddrInUse` when the port has all of these; `AddrNotAvailable` when none was reserved.
    pub fn claim_one(&mut self, protocol: u8, address: SocketAddr) -> io::Result<Tuple> {
        let is_it = |tuple: &&Tuple| {
            let Tuple { address: ip, protocol: of, port } = **tuple;
            let is_port = address.port() == 0 || port == address.port();
            of == protocol && ip == address.ip().to_canonical() && is_port
        };
        let candidates: Vec<Tuple> = self.reserved.iter().filter(is_it).copied().collect();
        if candidates.is_empty() {
            let why = format!(
                "{address} was not reserved for this program: quicket switch open --tuple does"
            );
            return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, why));
        }
        for tuple in candidates {
            match self.claim(tuple) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
                claimed => return claimed,
            }
        }
        Err(io::ErrorKind::AddrInUse.into())
    }

    /// As [`Port::register`](crate::client::Port::register).
    ///
    /// # Errors
    ///
    /// Those of [`Port::register`](crate::client::Port::register).
    pub fn register(&mut self, socket: impl AsFd) -> io::Result<Tuple> {
        self.register_until(socket, None)
    }

    /// The same, with a time by which the switch has to have answered: `TimedOut` then, and the tuple is given back if it
    /// comes later.
    pub(crate) fn register_until(
        &mut self,
        socket: impl AsFd,
        until: Option<Instant>,
    ) -> io::Result<Tuple> {
        self.settle_until(until)?;
        if !say(self.control.as_fd(), Request::Register, &[socket.as_fd()])? {
            return Err(Errno::AGAIN.into());
        }
        match hear_until(self.control.as_fd(), until) {
            Ok((Answer::Registered(tuple), _)) => Ok(tuple),
            Ok((answer, _)) => Err(answer.into_error()),
            Err(error) => {
                if error.kind() == io::ErrorKind::TimedOut {
                    self.owed.push_back(Owed::Registration);
                }
                Err(error)
            }
        }
    }

    /// As [`Port::remove`](crate::client::Port::remove).
    ///
    /// # Errors
    ///
    /// Those of [`Port::remove`](crate::client::Port::remove).
    pub fn remove(&mut self, tuple: Tuple) -> io::Result<()> {
        self.order(Request::Remove(tuple))
    }

    /// Gives a tuple back without waiting for the answer. What is asked after it is answered after it, too; that the port does not
    /// own the tuple is not said. Returns false, with this tuple still the port's, while the switch has 16 of them to answer, or takes
    /// no more requests: to be tried again later. One that was registered too late for who asked for it is given back first, and is
    /// kept for the next call if there is no room for that either.
    ///
    /// # Errors
    ///
    /// When the switch has gone.
    pub fn start_removal(&mut self, tuple: Tuple) -> io::Result<bool> {
        while !self.owed.is_empty()
            && let Some((answer, _)) = hear(self.control.as_fd())?
        {
            self.take_owed(answer);
        }
        if !self.give_back()? || self.owed.len() >= MAX_OWED {
            return Ok(false);
        }
        self.ask_removal(tuple)
    }

    /// Gives back what came too late. Returns false if the switch has no room for that yet.
    fn give_back(&mut self) -> io::Result<bool> {
        if let Some(tuple) = self.late
            && self.ask_removal(tuple)?
        {
            self.late = None;
        }
        Ok(self.late.is_none())
    }

    fn ask_removal(&mut self, tuple: Tuple) -> io::Result<bool> {
        let is_sent = say(self.control.as_fd(), Request::Remove(tuple), &[])?;
        if is_sent {
            self.owed.push_back(Owed::Removal);
        }
        Ok(is_sent)
    }

    /// Takes the next answer that nobody waits for. A tuple that has come too late is to be given back.
    fn take_owed(&mut self, answer: Answer) {
        if let (Some(Owed::Registration), Answer::Registered(tuple)) =
            (self.owed.pop_front(), answer)
        {
            self.late = Some(tuple);
        }
    }

    /// Waits until the switch has answered all that nobody waited for, such as [`Registrar::start_removal`].
    ///
    /// # Errors
    ///
    /// When the switch has gone.
    pub fn settle(&mut self) -> io::Result<()> {
        self.settle_until(None)
    }

    fn settle_until(&mut self, until: Option<Instant>) -> io::Result<()> {
        loop {
            let has_room = self.give_back()?;
            if !self.owed.is_empty() {
                let (answer, _) = hear_until(self.control.as_fd(), until)?;
                self.take_owed(answer);
            } else if has_room {
                return Ok(());
            } else {
                wait_for_room(self.control.as_fd(), until)?;
            }
        }
    }

    /// As [`Port::add_queue`](crate::client::Port::add_queue).
    ///
    /// # Errors
    ///
    /// Those of [`Port::add_queue`](crate::client::Port::add_queue).
    pub fn add_queue(&mut self, layout: Layout) -> io::Result<Queue> {
        let (answer, descriptors) = self.ask(Request::AddQueue(Sizes::of(layout)))?;
        Queue::made(answer, descriptors, layout)
    }

    /// As [`Port::counters`](crate::client::Port::counters).
    ///
    /// # Errors
    ///
    /// Those of [`Port::counters`](crate::client::Port::counters).
    pub fn counters(&mut self) -> io::Result<Counters> {
        match self.ask(Request::Count)? {
            (Answer::Counted(counters), _) => Ok(*counters),
            (answer, _) => Err(answer.into_error()),
        }
    }

    /// Asks for what is answered with no more than that it is done.
    pub(crate) fn order(&mut self, request: Request) -> io::Result<()> {
        match self.ask(request)? {
            (Answer::Done, _) => Ok(()),
            (answer, _) => Err(answer.into_error()),
        }
    }

    /// Asks, once all others have been answered, and waits for the answer.
    pub(crate) fn ask(&mut self, request: Request) -> io::Result<(Answer, Vec<OwnedFd>)> {
        self.settle()?;
        ask(self.control.as_fd(), request, &[])
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use rustix::net::{AddressFamily, SocketFlags, SocketType};

    use super::*;
    use crate::local;
    use crate::protocol::MAX_MESSAGE;

    fn pair() -> (Registrar, OwnedFd) {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let flags = SocketFlags::CLOEXEC;
        let (ours, switch) = rustix::net::socketpair(family, kind, flags, None).unwrap();
        (Registrar::new(ours), switch)
    }

    fn tuple(port: u16) -> Tuple {
        Tuple { address: Ipv4Addr::LOCALHOST.into(), protocol: 6, port }
    }

    fn answer(switch: &OwnedFd, answer: Answer) {
        local::send(switch.as_fd(), &answer.encode(), &[]).unwrap();
    }

    fn asked(switch: &OwnedFd) -> Result<Request, Errno> {
        let mut buffer = [0; MAX_MESSAGE];
        let received = quicket_clerk::receive_message(switch.as_fd(), &mut buffer);
        received.map(|(len, _)| Request::decode(&buffer[..len]).unwrap())
    }

    #[test]
    fn an_answer_that_comes_too_late_is_nobody_elses_and_its_tuple_is_given_back() {
        for late in [Answer::Registered(tuple(7)), Answer::refuse(Errno::BUSY, "it has an owner")] {
            let (mut registrar, switch) = pair();
            let until = Instant::now() + Duration::from_millis(20);
            let error = registrar.register_until(&switch, Some(until)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
            assert_eq!(asked(&switch), Ok(Request::Register));
            // Nothing else is asked while that may still come.
            let until = Some(Instant::now() + Duration::from_millis(20));
            let error = registrar.register_until(&switch, until).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
            assert_eq!(asked(&switch), Err(Errno::AGAIN), "nothing was sent");
            let is_given_back = matches!(late, Answer::Registered(_));
            answer(&switch, late);
            if is_given_back {
                answer(&switch, Answer::Done);
            }
            answer(&switch, Answer::Registered(tuple(8)));
            assert_eq!(registrar.register(&switch).unwrap(), tuple(8));
            if is_given_back {
                assert_eq!(asked(&switch), Ok(Request::Remove(tuple(7))));
            }
            assert_eq!(asked(&switch), Ok(Request::Register));
        }
    }

    #[test]
    fn a_tuple_that_came_too_late_is_kept_until_there_is_room_to_give_it_back() {
        let (mut registrar, switch) = pair();
        let soon = || Some(Instant::now() + Duration::from_millis(20));
        let is_late = |error: io::Error| error.kind() == io::ErrorKind::TimedOut;
        assert!(is_late(registrar.register_until(&switch, soon()).unwrap_err()));
        assert_eq!(asked(&switch), Ok(Request::Register));
        // A switch that reads nothing any more.
        let mut unread = 0;
        while say(registrar.control.as_fd(), Request::Count, &[]).unwrap() {
            unread += 1;
        }
        answer(&switch, Answer::Registered(tuple(7)));
        assert!(!registrar.start_removal(tuple(8)).unwrap());
        assert!(
            is_late(registrar.register_until(&switch, soon()).unwrap_err()),
            "it waits for room"
        );
        // What there is room for first is the tuple that nobody has.
        (0..unread).for_each(|_| assert_eq!(asked(&switch), Ok(Request::Count)));
        assert_eq!(asked(&switch), Err(Errno::AGAIN), "nothing else was sent");
        assert!(registrar.start_removal(tuple(8)).unwrap());
        assert_eq!(asked(&switch), Ok(Request::Remove(tuple(7))));
        assert_eq!(asked(&switch), Ok(Request::Remove(tuple(8))));
        (0..2).for_each(|_| answer(&switch, Answer::Done));
        registrar.settle().unwrap();
        assert_eq!(asked(&switch), Err(Errno::AGAIN), "it is given back once");
    }

    #[test]
    fn settling_waits_for_room_to_give_a_tuple_back() {
        let (mut registrar, switch) = pair();
        registrar.late = Some(tuple(7));
        let mut unread = 0;
        while say(registrar.control.as_fd(), Request::Count, &[]).unwrap() {
            unread += 1;
        }
        std::thread::scope(|scope| {
            let settled = scope.spawn(|| registrar.settle());
            (0..unread).for_each(|_| assert_eq!(asked(&switch), Ok(Request::Count)));
            let given_back = loop {
                match asked(&switch) {
                    Err(Errno::AGAIN) => std::thread::yield_now(),
                    given_back => break given_back,
                }
            };
            assert_eq!(given_back, Ok(Request::Remove(tuple(7))));
            answer(&switch, Answer::Done);
            settled.join().unwrap().unwrap();
        });
    }

    #[test]
    fn answers_that_nobody_waits_for_come_before_others_and_are_so_many() {
        let (mut registrar, switch) = pair();
        let answer = |with| answer(&switch, with);
        let asked = || asked(&switch);
        for port in 0..16 {
            assert!(registrar.start_removal(tuple(port)).unwrap());
            assert_eq!(asked(), Ok(Request::Remove(tuple(port))));
        }
        assert!(!registrar.start_removal(tuple(16)).unwrap());
        assert_eq!(asked(), Err(Errno::AGAIN), "nothing was sent");
        // Whatever the answer is, there is room for another one.
        answer(Answer::refuse(Errno::NOENT, "it is not this port's"));
        assert!(registrar.start_removal(tuple(16)).unwrap());
        assert_eq!(asked(), Ok(Request::Remove(tuple(16))));
        // What is asked now is answered behind all of them.
        (0..16).for_each(|_| answer(Answer::Done));
        let mut counters = Counters::default();
        counters.sent = 3;
        answer(Answer::Counted(counters.into()));
        assert_eq!(registrar.counters().unwrap(), counters);
        assert_eq!(asked(), Ok(Request::Count));
        registrar.settle().unwrap();
        drop(switch);
        let error = registrar.start_removal(tuple(1)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
    }
}
