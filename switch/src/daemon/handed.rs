//! What other users have handed over is closed by threads of theirs ([`Clerk`]): the switch waits for none of it.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use quicket_clerk::{Clerk, Room};
use quicket_udp::Complaints;

use super::programs::Programs;
use crate::protocol::{Refusal, Refused};

/// Other users who are heard at a time.
pub const MAX_TENANTS: usize = 256;
/// Descriptors of a user, or of all together who are not let in, that wait to be closed. Who hands over more is thrown
/// out.
pub const MAX_HANDED: usize = 512;

/// The threads that close them.
#[derive(Debug)]
pub(super) struct Clerks {
    users: BTreeMap<u32, Clerk>,
    /// Of those who are not let in.
    porter: Option<Clerk>,
    /// What they may take on of messages.
    room: Room,
    complaints: Arc<Complaints>,
}

impl Clerks {
    pub(super) fn new(complaints: Arc<Complaints>) -> Self {
        Self { users: BTreeMap::new(), porter: None, room: Room::default(), complaints }
    }

    /// One that takes on the descriptors of a message while no other one does.
    fn start(&self) -> io::Result<Clerk> {
        Clerk::start_with(self.room.clone(), |never| match never {}, || {})
    }

    /// Whether nobody is let in before the porter has gone on: he could not be turned away.
    pub(super) fn is_door_blocked(&self) -> bool {
        self.porter.as_ref().is_some_and(|porter| porter.waiting() >= MAX_HANDED)
    }

    /// That of those who are not let in; none if the system has no thread left.
    pub(super) fn porter(&mut self) -> io::Result<&Clerk> {
        if self.porter.is_none() {
            self.porter = Some(self.start()?);
        }
        self.porter.as_ref().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Has a user whom the switch hears have one.
    pub(super) fn engage(&mut self, uid: u32, programs: &Programs) -> Result<(), Refused> {
        if !self.users.contains_key(&uid) {
            let here = programs.users();
            self.users.retain(|uid, clerk| clerk.waiting() > 0 || here.contains(uid));
            // Root may ask how it is, whoever is here.
            if uid != 0 && self.users.len() >= MAX_TENANTS {
                let text = format!("the switch has programs of {MAX_TENANTS} users: end some");
                return Err(Refused { why: Refusal::Full, text });
            }
        }
        match self.of_user(uid) {
            Some(clerk) if clerk.waiting() >= MAX_HANDED => {
                let text = format!(
                    "user {uid} has handed over {MAX_HANDED} descriptors that are not closed yet: close them"
                );
                Err(Refused { why: Refusal::Full, text })
            }
            Some(_) => Ok(()),
            None => {
                let text = "the switch can start no thread: ask again".to_owned();
                Err(Refused { why: Refusal::Later, text })
            }
        }
    }

    /// That of a user; none if the system has no thread left.
    pub(super) fn of_user(&mut self, uid: u32) -> Option<Clerk> {
        if let Some(clerk) = self.users.get(&uid) {
            return Some(clerk.clone());
        }
        match self.start() {
            Ok(clerk) => Some(self.users.entry(uid).or_insert(clerk).clone()),
            Err(error) => {
                self.complaints.warn(format_args!("no thread for user {uid}: {error}"));
                None
            }
        }
    }

    /// ... or if there is no thread left for him, that of strangers.
    pub(super) fn closer(&mut self, uid: u32) -> Option<Clerk> {
        self.of_user(uid).or_else(|| self.porter().ok().cloned())
    }

    /// Whether more waits to be closed of a user than may.
    pub(super) fn have_too_much(&self, uid: u32) -> bool {
        self.users.get(&uid).is_some_and(|clerk| clerk.waiting() >= MAX_HANDED)
    }

    /// Has a user's clerk be another one.
    #[cfg(test)]
    fn replace(&mut self, uid: u32, clerk: Clerk) {
        self.users.insert(uid, clerk);
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::os::fd::{AsFd, OwnedFd};
    use std::time::{Duration, Instant};

    use quicket_clerk::testing::lingering;
    use quicket_udp::Port;

    use super::*;
    use crate::daemon::entrance::DEAF;
    use crate::daemon::testing::{self, System};
    use crate::daemon::{Daemon, MAX_CONNECTIONS_OF_TENANT};
    use crate::options::SocketOptions;
    use crate::protocol::{
        Join, Kin, MAX_MESSAGE, Message, Question, Reply, Request, VERSION, encode,
    };
    use crate::rule::Rule;
    use crate::sys;

    /// Far below the time for which what is handed over lingers.
    const LONG: Duration = Duration::from_secs(20);

    fn ask(request: Request) -> Vec<u8> {
        encode(&Question { version: VERSION, number: 1, request }).unwrap()
    }

    fn join(kin: Option<Kin>) -> Request {
        let address = "127.0.0.1:28444".parse().unwrap();
        Request::Join(Join { kin, ..testing::join(address) })
    }

    /// Sends a message with a descriptor that waits when it is closed, and keeps no copy.
    fn hand(to: &impl AsFd, bytes: &[u8]) -> TcpStream {
        let (one, other) = lingering();
        sys::send_with(to.as_fd(), bytes, &[one.as_fd()]).unwrap();
        other
    }

    fn hear(from: &OwnedFd) -> Option<Message> {
        let mut buffer = vec![0; MAX_MESSAGE];
        let (len, _) = sys::receive_with(from.as_fd(), &mut buffer).ok()?;
        Message::decode(&buffer[..len]).ok()
    }

    fn until(system: &mut System, what: &str, is_so: impl Fn(&Daemon) -> bool) {
        let begun = Instant::now();
        while !is_so(&system.daemon) {
            system.daemon.step();
            assert!(begun.elapsed() < LONG, "{what}");
        }
    }

    #[test]
    fn what_waits_when_it_is_closed_has_the_switch_wait_nowhere() {
        let mut system = System::new("handed", Rule::default());
        let begun = Instant::now();
        let asker = system.connect();
        let mut ends = vec![hand(&asker, &ask(Request::Status))];
        until(&mut system, "a request that takes none", |daemon| daemon.programs.len() == 1);
        while hear(&asker).is_none() {
            system.daemon.step();
        }
        let junk = system.connect();
        ends.push(hand(&junk, b"junk"));
        // Behind what is no message, which nobody reads any more.
        ends.push(hand(&junk, b"junk"));
        (0..9).for_each(|_| system.daemon.step());
        assert_eq!(system.daemon.programs.len(), 1, "who talks nonsense has gone");
        let wrong = system.connect();
        ends.push(hand(&wrong, &ask(join(None))));
        let refused = loop {
            system.daemon.step();
            match hear(&wrong) {
                Some(Message::Answer { reply: Reply::Refused(refused), .. }) => break refused,
                other => assert!(other.is_none() && begun.elapsed() < LONG, "{other:?}"),
            }
        };
        assert!(refused.text.contains("no local socket") || refused.text.contains("not a local"));
        let (member, inlets, _) = system.join(SocketOptions::default()).unwrap();
        let seats = |daemon: &Daemon| daemon.programs.listeners().count();
        assert_eq!(seats(&system.daemon), 1);
        ends.push(hand(&inlets[0].writable(), &[0; 60]));
        until(&mut system, "who hands something over by a channel", |daemon| seats(daemon) == 0);
        let others: Vec<_> = (0..MAX_CONNECTIONS_OF_TENANT).map(|_| system.connect()).collect();
        let last = system.connect();
        ends.push(hand(&last, b"who is not let in"));
        let refused = loop {
            system.daemon.step();
            match hear(&last) {
                Some(Message::Refused(refused)) => break refused,
                other => assert!(other.is_none() && begun.elapsed() < LONG, "{other:?}"),
            }
        };
        assert!(refused.text.contains("has 64 programs here"), "{refused:?}");
        assert!(begun.elapsed() < LONG);
        drop((ends, member, others));
    }

    /// What is not local is asked nothing that may wait.
    #[test]
    fn what_ends_with_a_family_is_a_local_socket() {
        let mut system = System::new("lifelines", Rule::default());
        let program = system.connect();
        let (channel, _theirs) = crate::channel::channel().unwrap();
        let kin = Kin {
            family: crate::protocol::Hex([1; 16]),
            attention: crate::protocol::Attention::Busy,
        };
        let (wrong, _end) = lingering();
        let both = [channel.writable(), wrong.as_fd()];
        sys::send_with(program.as_fd(), &ask(join(Some(kin))), &both).unwrap();
        drop(wrong);
        let begun = Instant::now();
        let refused = loop {
            system.daemon.step();
            match hear(&program) {
                Some(Message::Answer { reply: Reply::Refused(refused), .. }) => break refused,
                other => assert!(other.is_none() && begun.elapsed() < LONG, "{other:?}"),
            }
        };
        assert!(refused.text.contains("what ends with a family"), "{refused:?}");
    }

    #[test]
    fn who_hands_over_more_than_is_closed_is_thrown_out_and_not_let_in() {
        let mut system = System::new("too-much", Rule::default());
        let uid = nix::unistd::geteuid().as_raw();
        let program = system.connect();
        until(&mut system, "he is let in", |daemon| daemon.programs.len() == 1);
        system.daemon.users.clerks.replace(uid, Clerk::stuck(MAX_HANDED - 1));
        let file = std::fs::File::open("/dev/null").unwrap();
        sys::send_with(program.as_fd(), &ask(Request::Status), &[file.as_fd()]).unwrap();
        until(&mut system, "he is thrown out", |daemon| daemon.programs.len() == 0);
        let again = system.connect();
        (0..3).for_each(|_| system.daemon.step());
        let Some(Message::Refused(refused)) = hear(&again) else { panic!() };
        assert!(refused.text.contains("not closed yet"), "{refused:?}");
        // Those who are not let in have a bound together, and then nobody is taken.
        system.daemon.users.clerks.porter = Some(Clerk::stuck(MAX_HANDED));
        system.daemon.users.clerks.users.clear();
        let _waits = system.connect();
        (0..3).for_each(|_| system.daemon.step());
        assert!(system.daemon.programs.len() == 0 && system.daemon.entrance.is_deaf());
        system.daemon.users.clerks.porter = None;
        std::thread::sleep(DEAF);
        system.daemon.entrance.hear_again(&system.daemon.events);
        until(&mut system, "he is let in then", |daemon| daemon.programs.len() == 1);
    }

    #[test]
    fn clerks_of_users_who_are_gone_make_room_for_others() {
        let mut clerks = Clerks::new(Arc::default());
        let nobody = Programs::default();
        // They have something to do still.
        (1..=MAX_TENANTS as u32).for_each(|uid| clerks.replace(uid, Clerk::stuck(1)));
        let refused = clerks.engage(1000, &nobody).unwrap_err();
        assert_eq!(refused.why, Refusal::Full);
        assert!(clerks.engage(0, &nobody).is_ok(), "root may ask");
        clerks.replace(7, Clerk::stuck(0));
        clerks.replace(8, Clerk::stuck(0));
        assert!(clerks.engage(1000, &nobody).is_ok());
        assert!(!clerks.users.contains_key(&7));
        assert!(!clerks.have_too_much(1000));
        clerks.replace(1000, Clerk::stuck(MAX_HANDED));
        assert!(clerks.have_too_much(1000) && clerks.engage(1000, &nobody).is_err());
    }
}
