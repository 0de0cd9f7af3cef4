//! Listeners that children have from a process that has the address's socket to itself.
//!
//! Nobody divides datagrams there, until a child accepts or polls: it calls the process that has the endpoint, whose
//! *steward* leaves the socket to the switch. The listener is one of many from then on, and so is the child's. Connections
//! that the endpoint had go on in it. Where that process has gone, nobody reads the socket, and the child brings it to
//! the switch itself.

use std::fmt;
use std::io::{self, Read};
use std::net::{Shutdown, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::socket::{MsgFlags, recv, send};
use quicket_switch::first_packet::PARK_TIME;

use super::{Control, Phase, Socket};
use crate::message::bound::{Bound, Wanted};
use crate::message::errno::Errno;
use crate::ops;
use crate::switched::SwitchConfig;

/// How long a child waits for the process that has the endpoint, which may have to start the switch.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long an endpoint without a listener stays at the switch that it has left its socket to.
const STAY: Duration = Duration::from_secs(PARK_TIME.as_secs());
/// What a child says.
const CALL: u8 = 1;

/// Leaves an endpoint's socket to the switch, once a child asks for it: [`serve`](Self::serve) is to be called on a
/// thread of its own. It keeps the endpoint as long as any process has the listener.
pub struct Steward {
    /// Hangs up when the last process has let go of the listener.
    calls: UnixStream,
    bound: Bound,
}

/// What a child has to call the steward with: the same for all, and no more.
#[derive(Clone)]
pub(super) struct Summons {
    /// Hangs up when the steward has done its work, or its process has gone. What it has failed with lies there.
    bell: Arc<UnixStream>,
    /// The address's socket.
    socket: Arc<UdpSocket>,
}

impl Summons {
    /// What a child has inherited.
    pub(super) fn inherited(bell: OwnedFd, socket: OwnedFd) -> Self {
        Self { bell: Arc::new(bell.into()), socket: Arc::new(socket.into()) }
    }

    pub(super) fn descriptors(&self) -> [RawFd; 2] {
        [self.bell.as_raw_fd(), self.socket.as_raw_fd()]
    }

    pub(super) fn socket(&self) -> Arc<UdpSocket> {
        Arc::clone(&self.socket)
    }

    /// Waits until the address is shared, or nobody has it.
    ///
    /// # Errors
    ///
    /// What the steward has failed with; ETIMEDOUT if its process is there and does not answer.
    pub(super) fn call(&self) -> Result<(), Errno> {
        let bell = self.bell.as_raw_fd();
        // Who has gone hears nothing: that is told below.
        let _ = send(bell, &[CALL], MsgFlags::MSG_NOSIGNAL);
        let until = Instant::now() + PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Errno::ETIMEDOUT);
            }
            let timeout = self.bell.set_read_timeout(Some(left));
            timeout.map_err(|error| Errno::from(&error))?;
            let mut said = [0];
            // It stays, for other children read it, too.
            match recv(bell, &mut said, MsgFlags::MSG_PEEK).map_err(io::Error::from) {
                Ok(0) => return Ok(()),
                Ok(_) => return Err(Errno::from_number(said[0].into()).unwrap_or(Errno::EIO)),
                // It had not read all that was said when it went.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(Errno::from(&error)),
            }
        }
    }
}

impl Steward {
    /// For an endpoint whose listeners are passed on, and what children have of it.
    pub(super) fn new(bound: Bound) -> io::Result<(Self, Summons)> {
        let (calls, bell) = UnixStream::pair()?;
        let links = bound.core.core().links();
        let link = links.current().ok_or(io::ErrorKind::NotConnected)?;
        let socket = UdpSocket::from(link.socket.as_fd().try_clone_to_owned()?);
        let summons = Summons { bell: Arc::new(bell), socket: Arc::new(socket) };
        bound.hub.expect_heirs();
        Ok((Self { calls, bound }, summons))
    }

    /// What children must not keep open.
    #[must_use]
    pub fn descriptor(&self) -> RawFd {
        self.calls.as_raw_fd()
    }

    /// Nothing serves children: clients that come once nobody of this process listens are not to wait for them.
    pub fn give_up(&self) {
        self.bound.hub.give_up_heirs();
    }

    /// Waits until a child asks, and then has those of the process's sockets that listen at the address share it; or
    /// until no process has the listener any more. To be dropped then, which children wait for.
    pub fn serve(&self, sockets: impl FnOnce() -> Vec<Socket>) {
        let mut said = [0];
        let came = loop {
            match (&self.calls).read(&mut said) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                came => break came,
            }
        };
        if !matches!(came, Ok(1..)) {
            return self.bound.hub.give_up_heirs();
        }
        let sockets = sockets();
        let Err(error) = self.share(&sockets) else { return self.stay() };
        let address = self.bound.core.local_addr();
        log::error!("children do not have the listener at {address}: {error}");
        self.bound.hub.give_up_heirs();
        // Those that are forked from now on call again.
        sockets.iter().for_each(|socket| socket.forget_summons(&self.bound));
        let number = u8::try_from(Errno::from(&error).number()).unwrap_or(u8::MAX);
        let _ = send(self.calls.as_raw_fd(), &[number], MsgFlags::MSG_NOSIGNAL);
    }

    /// Where nobody of this process listens any more, the endpoint's place at the switch is what clients wait by until
    /// a child has come: without it they would be refused. They wait no longer than [`STAY`], and not once all who may come
    /// are there, or have gone: a child keeps what it calls by until the switch has its listener.
    fn stay(&self) {
        if !self.bound.hub.has_listener() {
            answer_and_wait(&self.calls, STAY);
        }
    }

    fn share(&self, sockets: &[Socket]) -> io::Result<()> {
        let switch = SwitchConfig::default();
        let core = self.bound.core.core();
        ops::remain(core, &switch)?;
        sockets.iter().try_for_each(|socket| socket.move_behind(&self.bound, &switch))?;
        core.leave_first_packets();
        Ok(())
    }
}

/// Tells all who call that the address is shared, and waits until none of them is left who could, or for so long.
fn answer_and_wait(calls: &UnixStream, most: Duration) {
    let until = Instant::now() + most;
    // They take the end for the answer.
    let _ = calls.shutdown(Shutdown::Write);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || calls.set_read_timeout(Some(left)).is_err() {
            return;
        }
        match (&*calls).read(&mut [0; 64]).map_err(|error| error.kind()) {
            // Another one that has called.
            Ok(1..) | Err(io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
            Ok(0) | Err(_) => return,
        }
    }
}

impl Socket {
    /// Has a listener of an endpoint that has left its socket to the switch get its clients from there.
    fn move_behind(&self, from: &Bound, switch: &SwitchConfig) -> io::Result<()> {
        let _turn = self.shared.turn();
        let (listener, family, wanted) = {
            let control = self.control();
            let Phase::Listening(listener) = &control.phase else { return Ok(()) };
            if !control.is_at(from) {
                return Ok(());
            }
            // Whose name children come with; and how far the process is from accepting counts from the beginning.
            let family = control.inheritance.as_ref().map(|inheritance| inheritance.family.clone());
            let family = family.map(|family| (family, listener.attention()));
            let settings = &control.settings;
            let wanted = Wanted {
                only_v6: settings.only_v6,
                options: settings.udp_options.clone(),
                workers: 1,
                switch: Some(SwitchConfig { family: family.clone(), ..switch.clone() }),
                ticket_secret: Some(from.hub.ticket_secret()),
                socket: None,
            };
            (Arc::clone(listener), family, wanted)
        };
        let bound = Bound::to(from.core.local_addr(), &wanted)?;
        bound.hub.listen(&listener)?;
        bound.hub.register(&listener)?;
        let mut control = self.control();
        // It may have said more since.
        if family.is_some() {
            bound.core.core().attend(listener.attention());
        }
        control.settings.switch = Some(switch.clone());
        control.settings.local.stateless_reset = 1;
        let before = control.bound.replace(bound);
        let summons = control.inheritance.as_mut().and_then(|each| each.summons.take());
        drop(control);
        drop((before, summons));
        Ok(())
    }

    fn forget_summons(&self, from: &Bound) {
        let mut control = self.control();
        if control.is_at(from) {
            let summons = control.inheritance.as_mut().and_then(|each| each.summons.take());
            drop(control);
            drop(summons);
        }
    }
}

impl Control {
    fn is_at(&self, at: &Bound) -> bool {
        self.bound.as_ref().is_some_and(|bound| Arc::ptr_eq(bound.core.core(), at.core.core()))
    }
}

impl fmt::Debug for Steward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Steward")
            .field("address", &self.bound.core.local_addr())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (UnixStream, Summons) {
        let (calls, bell) = UnixStream::pair().unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        (calls, Summons { bell: Arc::new(bell), socket: Arc::new(socket) })
    }

    #[test]
    fn children_are_answered_and_waited_for_until_the_last_one_has_come_or_gone() {
        let (calls, first) = pair();
        let bell = first.bell.try_clone().unwrap();
        let second = Summons { bell: Arc::new(bell), socket: first.socket() };
        std::thread::scope(|scope| {
            let waits = scope.spawn(move || answer_and_wait(&calls, Duration::from_secs(3600)));
            assert_eq!(first.call(), Ok(()));
            drop(first);
            assert_eq!(second.call(), Ok(()));
            assert!(!waits.is_finished(), "the second one has not come yet");
            drop(second);
            waits.join().unwrap();
        });
    }

    #[test]
    fn children_that_do_not_come_are_waited_for_for_a_time() {
        let (calls, summons) = pair();
        answer_and_wait(&calls, Duration::from_millis(20));
        assert_eq!(summons.call(), Ok(()), "it is answered all the same");
    }
}
