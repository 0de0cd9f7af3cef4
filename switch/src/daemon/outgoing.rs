//! What programs of other users have the switch send in their place, since they have no socket of the address.

use std::io;

use quicket_udp::{
    MAX_BURST, MAX_SEGMENTS, Outgoing, ReceiveBuffers, SendOutcome, receive_from_port,
};

use super::Daemon;
use super::address::Address;
use crate::registry::{AddressId, ProcessId};

impl Daemon {
    /// Sends what a program has put into a channel: what is there at once, before others get their turn.
    pub(super) fn send_for(&mut self, process: ProcessId, worker: u16) {
        let Some(mut buffers) = self.traffic.take_buffers() else { return };
        let stuck_at = self.send_batch_for(process, worker, &mut buffers);
        self.traffic.return_buffers(buffers);
        self.programs.watch_channel(&self.events, process, worker);
        if let Some(id) = stuck_at {
            self.set_full(id, true);
        }
    }

    /// Returns the address whose socket has no more room.
    fn send_batch_for(
        &mut self,
        process: ProcessId,
        worker: u16,
        buffers: &mut ReceiveBuffers,
    ) -> Option<AddressId> {
        let seat = self.programs.seat_mut(process)?;
        let address = self.addresses.get_mut(&seat.address)?;
        let (outlet, sender) = (seat.outlets.get_mut(usize::from(worker))?, seat.sender.as_ref()?);
        let port = address.socket.local_addr().port();
        let mut batch = match receive_from_port(outlet, port, buffers) {
            Ok(batch) => batch,
            Err(error) => {
                if error.kind() != io::ErrorKind::WouldBlock {
                    // It has closed its end.
                    outlet.set_hears(false);
                }
                return None;
            }
        };
        for train in batch.trains() {
            let burst = train.arrival().outgoing(train.bytes);
            let datagrams = burst.bytes.len().div_ceil(burst.segment_size.max(1)) as u64;
            if !address.may_send(&burst) {
                address.counters.not_sent += datagrams;
                continue;
            }
            address.counters.sent += datagrams;
            if outlet.is_stuck() {
                outlet.keep(&burst);
            } else if let SendOutcome::Blocked { sent } = sender.send(&burst) {
                let bytes = burst.bytes.get(sent..).unwrap_or_default();
                outlet.keep(&Outgoing { bytes, ..burst });
            }
        }
        outlet.is_stuck().then_some(seat.address)
    }

    /// Has the switch hear when an address's socket has room again, as long as that is waited for.
    fn set_full(&mut self, id: AddressId, is_full: bool) {
        let address = self.addresses.get_mut(&id).filter(|address| address.is_full != is_full);
        let Some(address) = address else { return };
        address.is_full = is_full;
        self.watch_address(id);
    }

    /// A socket has room again: all whose datagrams wait for it have their turns.
    pub(super) fn send_unsent(&mut self, number: u32) {
        let id = self.addresses.keys().copied().find(|id| id.number() == number);
        let Some((id, address)) = id.and_then(|id| Some((id, self.addresses.get_mut(&id)?))) else {
            return;
        };
        let mut stuck = self.programs.stuck_at(id);
        address.turn = address.turn.wrapping_add(1);
        let first = address.turn.checked_rem(stuck.len()).unwrap_or(0);
        stuck.rotate_left(first);
        let mut is_full = false;
        for (process, worker) in stuck {
            let Some(seat) = self.programs.seat_mut(process) else { continue };
            let outlet = seat.outlets.get_mut(usize::from(worker));
            let Some((outlet, sender)) = outlet.zip(seat.sender.as_ref()) else { continue };
            outlet.retry(|burst| match sender.send(burst) {
                SendOutcome::Blocked { sent } => Some(sent),
                SendOutcome::Done | SendOutcome::TooLarge => None,
            });
            is_full = outlet.is_stuck();
            self.programs.watch_channel(&self.events, process, worker);
            if is_full {
                break;
            }
        }
        self.set_full(id, is_full);
    }
}

impl Address {
    /// Whether a burst may go out for a program of another user: from this address, and as the system takes it.
    fn may_send(&self, burst: &Outgoing<'_>) -> bool {
        let Outgoing { remote, local, segment_size, bytes, .. } = *burst;
        let bound = self.socket.local_addr().ip();
        let is_from_here = local.is_none_or(|local| bound.is_unspecified() || local == bound);
        let datagrams = bytes.len().div_ceil(segment_size.max(1));
        let is_whole = (1..=MAX_SEGMENTS).contains(&datagrams) && bytes.len() <= MAX_BURST;
        let is_peer = !remote.ip().is_multicast() && !remote.ip().is_unspecified();
        is_from_here && is_whole && is_peer && self.socket.reaches(remote)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, UdpSocket};
    use std::sync::Arc;

    use nix::errno::Errno;
    use quicket_udp::Port;
    use quicket_wire::EcnCodepoint;

    use super::*;
    use crate::client::Way;
    use crate::daemon::testing::System;
    use crate::options::SocketOptions;
    use crate::rule::Rule;

    impl Daemon {
        fn is_stuck(&self) -> bool {
            let mut outlets = self.programs.seats().flat_map(|(_, seat)| &seat.outlets);
            outlets.any(crate::channel::Outlet::is_stuck)
        }
    }

    fn burst(remote: SocketAddr, bytes: &[u8]) -> Outgoing<'_> {
        let (local, ecn) = (None, EcnCodepoint::NotEct);
        Outgoing { remote, local, ecn, segment_size: 4, bytes }
    }

    #[test]
    fn where_the_socket_has_no_room_nothing_is_lost_and_all_go_on_when_it_has() {
        let mut system = System::new("full", Rule::default());
        let address = system.address;
        let programs =
            [system.join(SocketOptions::default()), system.join(SocketOptions::default())];
        let programs = programs.map(Result::unwrap);
        let daemon = &mut system.daemon;
        assert!(
            programs.iter().all(|program| matches!(program.2, Way::Through(at) if at == address))
        );
        let socket = Arc::clone(&daemon.addresses.values().next().unwrap().socket);
        socket.faults.on_sending(Errno::EAGAIN);
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let remote = receiver.local_addr().unwrap();
        for (first, (_, inlets, _)) in [b'a', b'A'].into_iter().zip(&programs) {
            for number in 0..3 {
                inlets[0].send_through(&burst(remote, &[first + number; 8])).unwrap();
            }
        }
        (0..9).for_each(|_| daemon.step());
        assert!(daemon.is_stuck() && daemon.addresses.values().all(|address| address.is_full));
        // It reads no more of them meanwhile: that waits in the channel.
        programs[0].1[0].send_through(&burst(remote, &[b'd'; 4])).unwrap();
        (0..3).for_each(|_| daemon.step());
        let address = daemon.addresses.values().next().unwrap();
        assert_eq!((address.counters.sent, address.counters.not_sent), (12, 0));
        socket.faults.on_sending(Errno::UnknownErrno);
        let mut came = vec![Vec::new(), Vec::new()];
        receiver.set_read_timeout(Some(std::time::Duration::from_millis(50))).unwrap();
        while came[0].len() + came[1].len() < 13 {
            daemon.step();
            let mut octets = [0; 9];
            while let Ok(len) = receiver.recv(&mut octets) {
                assert_eq!(len, 4);
                came[usize::from(octets[0].is_ascii_uppercase())].push(octets[0]);
            }
        }
        assert_eq!(came, [b"aabbccd".to_vec(), b"AABBCC".to_vec()], "each in its order");
        assert!(!daemon.is_stuck() && daemon.addresses.values().all(|address| !address.is_full));
        drop(programs);
    }
}
