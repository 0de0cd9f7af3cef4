//! What an administrator says to a switch for packets.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::io::Errno;

use crate::ask::{ask, connect};
use crate::device::{Attached, Mode, ServedVlan};
use crate::protocol::{Answer, Name, Request};

/// The last number of a VLAN (IEEE 802.1Q).
const MAX_NUMBER: u16 = 4094;

/// A connection without a port. Only root and the user of the switch may attach and detach; what is attached
/// stays so after the connection has ended.
#[derive(Debug)]
pub struct Control(OwnedFd);

impl From<OwnedFd> for Control {
    /// A connection that is there already.
    fn from(connection: OwnedFd) -> Self {
        Self(connection)
    }
}

impl Control {
    /// Connects to the switch that listens at a path.
    ///
    /// # Errors
    ///
    /// What the system says, such as `NotFound` and `ConnectionRefused` when no switch is there.
    pub fn connect(path: &Path) -> io::Result<Self> {
        connect(path).map(Self)
    }

    /// Attaches a network device of the switch's network namespace: from now on, frames to registered tuples come from it
    /// to their ports, and what ports send to others leaves by it where the system's routes lead there.
    ///
    /// # Errors
    ///
    /// `AlreadyExists`; `NotFound` or another when there is no such device; `PermissionDenied`, also where the switch lacks
    /// a capability; `ResourceBusy` when somebody else has an XDP program or a socket there; `InvalidInput` when it is
    /// not of type Ethernet, or its MTU is beyond what AF_XDP takes. The message says what to do.
    pub fn attach(&mut self, device: &str, mode: Mode) -> io::Result<Attached> {
        match ask(self.0.as_fd(), Request::Attach { name: name(device)?, mode }, &[])? {
            (Answer::Attached(mut attached), _) => {
                // It is attached, whatever comes of this question.
                attached.vlans = self.vlans(attached.index).unwrap_or_default();
                Ok(*attached)
            }
            (answer, _) => Err(answer.into_error()),
        }
    }

    /// Detaches a device: everything goes to the system, and what attaching has changed is as it was.
    ///
    /// # Errors
    ///
    /// `NotFound` when it is not attached; `PermissionDenied`; `ResourceBusy` while another one is being attached.
    pub fn detach(&mut self, device: &str) -> io::Result<()> {
        match ask(self.0.as_fd(), Request::Detach { name: name(device)? }, &[])? {
            (Answer::Done, _) => Ok(()),
            (answer, _) => Err(answer.into_error()),
        }
    }

    /// The devices that are attached, and what became of their frames.
    ///
    /// # Errors
    ///
    /// When the switch has gone.
    pub fn devices(&mut self) -> io::Result<Vec<Attached>> {
        let mut all = Vec::new();
        loop {
            let request = Request::List { at: all.len() as u32 };
            match ask(self.0.as_fd(), request, &[])? {
                (Answer::Attached(mut attached), _) => {
                    attached.vlans = self.vlans(attached.index)?;
                    all.push(*attached);
                }
                (answer, _) => match answer.into_error() {
                    error if error.kind() == io::ErrorKind::NotFound => return Ok(all),
                    error => return Err(error),
                },
            }
        }
    }

    /// The VLANs that are served on the device of that number, piece by piece.
    fn vlans(&mut self, device: u32) -> io::Result<Vec<ServedVlan>> {
        let mut all = Vec::new();
        let mut from = 0;
        loop {
            let some = match ask(self.0.as_fd(), Request::Vlans { device, from }, &[])? {
                (Answer::Vlans(some), _) => some,
                // The device has gone meanwhile, or the switch is an older one.
                (Answer::Refused { code, .. }, _)
                    if [Errno::NOENT, Errno::PROTO].map(Errno::raw_os_error).contains(&code) =>
                {
                    return Ok(all);
                }
                (answer, _) => return Err(answer.into_error()),
            };
            if some.is_empty() {
                return Ok(all);
            }
            for vlan in some {
                // What does not go on would never end.
                if vlan.number < from || vlan.number > MAX_NUMBER {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                from = vlan.number + 1;
                all.push(vlan);
            }
        }
    }
}

fn name(device: &str) -> io::Result<Name> {
    Name::new(device).ok_or_else(|| {
        let why = format!("{device:?} is no name of a network device");
        io::Error::new(io::ErrorKind::InvalidInput, why)
    })
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};

    use super::*;
    use crate::counters::Counters;
    use crate::device::{Loopback, Offloads};

    /// What is made of these answers to the question for devices.
    fn devices(answers: &[Answer]) -> io::Result<Vec<Attached>> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (ours, switch) = socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        for answer in answers {
            send(&switch, &answer.encode(), SendFlags::DONTWAIT).unwrap();
        }
        Control::from(ours).devices()
    }

    fn attached() -> Attached {
        Attached {
            name: "eth0".to_owned(),
            index: 7,
            is_native: true,
            is_zero_copy: false,
            queues: 1,
            mtu: 1500,
            changed: Offloads::default(),
            loopback: Loopback::default(),
            vlans: Vec::new(),
            counters: Counters::default(),
        }
    }

    #[test]
    fn a_switch_that_does_not_tell_of_vlans_lists_its_devices() {
        let device = Answer::Attached(attached().into());
        let end = || Answer::refuse(Errno::NOENT, "there are no more devices");
        // An older one; and one whose device has gone meanwhile.
        for code in [Errno::PROTO, Errno::NOENT] {
            let answers = [device.clone(), Answer::refuse(code, "no"), end()];
            assert_eq!(devices(&answers).unwrap(), [attached()]);
        }
        let answers = [device, Answer::refuse(Errno::PERM, "no"), end()];
        assert_eq!(devices(&answers).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn vlans_that_never_end_are_no_answer() {
        let vlan = |number| ServedVlan { number, device: "eth0.1".to_owned() };
        let some = |numbers: &[u16]| Answer::Vlans(numbers.iter().copied().map(vlan).collect());
        let device = || Answer::Attached(attached().into());
        let end = || Answer::refuse(Errno::NOENT, "there are no more devices");
        let answers = [device(), some(&[1, 2]), some(&[4094]), some(&[]), end()];
        let listed = devices(&answers).unwrap();
        assert_eq!(listed[0].vlans, [1, 2, 4094].map(vlan));
        for (first, second) in [(&[5][..], &[5][..]), (&[5, 4], &[]), (&[5], &[4095])] {
            let answers = [device(), some(first), some(second), some(&[]), end()];
            let error = devices(&answers).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{first:?} {second:?}");
        }
    }
}
