//! Lists of all devices, and of all addresses of this host.
//!
//! The kernel makes a list in pieces, as they are read. What changes between two of them may be missing, or be there twice, and so may what
//! has not changed; the kernel says so (`nl_dump_check_consistent` of include/net/netlink.h). Such a list is asked for again.

use std::io;

use super::link::link;
use super::{
    Addresses, DONE, GET_ADDRESS, GET_LINK, Link, NEW_ADDRESS, NEW_LINK, Netlink, Request,
    own_addresses,
};

/// NLM_F_DUMP.
const DUMP: u16 = 0x300;
/// Messages that are read for a list.
const MAX_DUMP_MESSAGES: usize = 4096;
/// How often a list is asked for that changes each time while it is made.
const MAX_DUMPS: u32 = 4;

/// IFLA_EXT_MASK (linux/if_link.h).
const LINK_MASK: u16 = 29;
/// RTEXT_FILTER_SKIP_STATS: devices without their counters.
const SKIP_STATS: u32 = 1 << 3;

impl Netlink {
    /// The addresses of this host, and the broadcasts of its networks.
    ///
    /// # Errors
    ///
    /// As those of [`Netlink::links`].
    pub(in super::super) fn addresses(&mut self) -> io::Result<Addresses> {
        let request = Request::new(GET_ADDRESS, &[0; 8]);
        self.list(&request, NEW_ADDRESS, |all: &mut Addresses, body| own_addresses(body, all))
    }

    /// All devices.
    ///
    /// # Errors
    ///
    /// `Interrupted` when they change all the time; or what the system says.
    pub(in super::super) fn links(&mut self) -> io::Result<Vec<Link>> {
        let mut request = Request::new(GET_LINK, &[0; 16]);
        request.attribute(LINK_MASK, &SKIP_STATS.to_ne_bytes());
        self.list(&request, NEW_LINK, |all: &mut Vec<Link>, body| all.extend(link(body)))
    }

    /// A list of messages of a kind.
    fn list<T: Default>(
        &mut self,
        request: &Request,
        wanted: u16,
        mut take: impl FnMut(&mut T, &[u8]),
    ) -> io::Result<T> {
        for _ in 0..MAX_DUMPS {
            let mut all = T::default();
            let read = |kind, body: &[u8]| {
                if kind == wanted {
                    take(&mut all, body);
                }
                (kind == DONE).then_some(())
            };
            match self.ask_for(request.clone(), DUMP, MAX_DUMP_MESSAGES, read) {
                Ok(()) => return Ok(all),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let why = "the devices or addresses of this host change all the time, and so are not known: try again";
        Err(io::Error::new(io::ErrorKind::Interrupted, why))
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::process::Command;

    use rustix::net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
    };

    use super::super::INTERRUPTED;
    use super::super::tests::link_message;
    use super::*;
    use crate::device::permitted::is_permitted;
    use crate::device::rates::Wire;

    /// One that is answered by the other socket instead of the kernel.
    fn answered() -> (Netlink, OwnedFd) {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (socket, other) = socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        (Netlink { socket, ..Netlink::open().unwrap() }, other)
    }

    /// A list of one device, with flags of the message about it and of the end.
    fn list(sequence: u32, index: u32, flags: [u16; 2]) -> Vec<u8> {
        let device = Request::new(NEW_LINK, &link_message(index, &[(4, &1500_u32.to_ne_bytes())]));
        let end = Request::new(DONE, &[0; 4]);
        [device.finish(flags[0], sequence), end.finish(flags[1], sequence)].concat()
    }

    /// How many requests have come.
    fn requests(other: &OwnedFd) -> usize {
        let mut count = 0;
        while recv(other, &mut [0_u8; 64], RecvFlags::DONTWAIT).is_ok() {
            count += 1;
        }
        count
    }

    #[test]
    fn a_list_that_has_changed_while_it_was_made_is_asked_for_again() {
        let (mut tables, other) = answered();
        // It is said anywhere, with other flags beside it.
        for (sequence, flags) in [(1, [INTERRUPTED | 2, 2]), (2, [2, INTERRUPTED | 2]), (3, [2, 2])]
        {
            let answer = list(sequence, sequence + 10, flags);
            send(&other, &answer, SendFlags::DONTWAIT).unwrap();
        }
        let links = tables.links().unwrap();
        assert_eq!(links.iter().map(|link| link.index).collect::<Vec<_>>(), [13]);
        assert_eq!(requests(&other), 3);
    }

    #[test]
    fn a_list_that_changes_all_the_time_is_not_known() {
        let (mut tables, other) = answered();
        for sequence in 1..=MAX_DUMPS + 1 {
            let answer = list(sequence, 7, [INTERRUPTED, 0]);
            send(&other, &answer, SendFlags::DONTWAIT).unwrap();
        }
        let error = tables.links().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Interrupted);
        assert!(error.to_string().contains("change all the time"), "{error}");
        assert_eq!(requests(&other), MAX_DUMPS as usize);
    }

    /// That the kernel says so, and takes the next request afterwards.
    #[test]
    fn the_kernel_says_that_a_list_has_changed_while_it_was_made() {
        if !is_permitted() {
            return;
        }
        let _wire = Wire::new().unwrap();
        let ip = |words: &str| {
            assert!(Command::new("ip").args(words.split(' ')).status().unwrap().success());
        };
        // The list has more pieces than two: one is made with the request, and one whenever one is read.
        for n in 0..25 {
            ip(&format!("link add many{n} type veth peer name other{n}"));
        }
        let mut tables = Netlink::open().unwrap();
        let known = tables.links().unwrap().len();
        let mut is_first = true;
        let request = Request::new(GET_LINK, &[0; 16]);
        let listed = tables.ask_for(request, DUMP, MAX_DUMP_MESSAGES, |kind, _| {
            if std::mem::take(&mut is_first) {
                ip("link add late type veth peer name later");
            }
            (kind == DONE).then_some(())
        });
        assert_eq!(listed.unwrap_err().kind(), io::ErrorKind::Interrupted);
        assert_eq!(tables.links().unwrap().len(), known + 2);
    }
}
