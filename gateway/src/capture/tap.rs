//! What the sockets tell.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::Arc;

use ipnet::IpNet;
use quicket::{Capture, Captured};

use super::queue::Queue;
use super::request::Request;

/// Puts what is wanted into a queue.
pub(super) struct Tap {
    clients: Vec<IpNet>,
    one_in: u64,
    /// A key that nobody knows, so that clients do not choose whether they are captured.
    choice: RandomState,
    secrets: bool,
    datagrams: bool,
    keep: usize,
    queue: Arc<Queue>,
}

impl Tap {
    pub(super) fn new(request: &Request, queue: Arc<Queue>) -> Self {
        // A client over IPv4 comes to a socket of IPv6 by an address that stands for its own.
        Self {
            clients: request.clients.clone(),
            one_in: request.one_in.max(1).into(),
            choice: RandomState::new(),
            secrets: request.secrets,
            datagrams: request.datagrams,
            keep: request.keep.map_or(usize::MAX, |keep| usize::from(keep.max(1))),
            queue,
        }
    }
}

impl Capture for Tap {
    fn wants(&self, remote: SocketAddr) -> bool {
        let address = remote.ip().to_canonical();
        let is_client = self.clients.iter().any(|network| network.contains(&address));
        is_client
            && (self.one_in == 1
                || self.choice.hash_one((address, remote.port())).is_multiple_of(self.one_in))
    }

    fn wants_secrets(&self) -> bool {
        self.secrets
    }

    fn datagrams(&self, captured: &Captured<'_>) {
        if self.datagrams {
            self.queue.datagrams(captured, self.keep);
        }
    }

    fn secret(&self, line: &str) {
        self.queue.secret(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tap(clients: &[&str], one_in: u32) -> Tap {
        let clients = clients.iter().map(|network| network.parse().unwrap()).collect();
        let request = Request {
            clients,
            one_in,
            milliseconds: 1,
            bytes: None,
            datagrams: true,
            keep: None,
            secrets: true,
            qlog: false,
            anonymous: false,
        };
        Tap::new(&request, Arc::default())
    }

    #[test]
    fn clients_are_told_by_their_networks_also_where_ipv4_comes_over_ipv6() {
        let tap = tap(&["192.0.2.0/24", "2001:db8::/32"], 1);
        let wants = |address: &str| tap.wants(address.parse().unwrap());
        assert!(
            wants("192.0.2.7:1") && wants("[2001:db8:1::1]:1") && wants("[::ffff:192.0.2.7]:1")
        );
        assert!(!wants("192.0.3.7:1") && !wants("[2001:db9::1]:1") && !wants("[::192.0.2.7]:1"));
    }

    #[test]
    fn of_many_one_in_so_many_is_captured_and_always_the_same_ones() {
        let tap = tap(&["192.0.2.0/24"], 10);
        let all = || (1..=10_000).map(|port| SocketAddr::from(([192, 0, 2, 7], port)));
        let wanted: Vec<bool> = all().map(|address| tap.wants(address)).collect();
        let number = wanted.iter().filter(|wanted| **wanted).count();
        assert!((700..1300).contains(&number), "{number}");
        assert!(all().map(|address| tap.wants(address)).eq(wanted));
    }
}
