//! How long packets to another host may be, by what the system knows of the way: the MTU of the device, of the route, and
//! what routers have said of it (RFC 1191, RFC 8201).

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use rustix::net::sockopt;
use smoltcp::time::{Duration, Instant};

use crate::segment::Ends;

/// How long the system's answer is believed.
const TIME: Duration = Duration::from_secs(1);
/// Ways that are known at once: beyond that, all are forgotten.
const MAX_WAYS: usize = 1024;
/// Less than this is not believed: packets of IPv4 that every host takes (RFC 791, Section 3.2), and those of IPv6 (RFC 8200,
/// Section 5).
const LEAST: [usize; 2] = [576, 1280];

/// What packets are mostly as long as at most, for routers that do not say (RFC 1191, Section 7.1).
const PLATEAUS: [usize; 5] = [8166, 4352, 2002, 1492, 1006];

/// How long packets may be when a router says so of one that was as long as `now` at most.
pub(crate) fn told(mtu: u32, now: usize, is_v4: bool) -> usize {
    let [v4, v6] = LEAST;
    let least = if is_v4 { v4 } else { v6 };
    let said = usize::try_from(mtu).ok().filter(|mtu| *mtu > 0);
    let next = || PLATEAUS.into_iter().find(|plateau| *plateau < now).unwrap_or(least);
    said.unwrap_or_else(next).max(least)
}

/// What the system has said lately: connections come in bursts from some hosts.
#[derive(Debug, Default)]
pub(crate) struct Way {
    known: HashMap<(IpAddr, IpAddr), (usize, Instant)>,
}

impl Way {
    /// Octets of a packet between these ends, `most` at most.
    pub(crate) fn mtu(&mut self, ends: &Ends, most: usize, now: Instant) -> usize {
        let way = (ends.local.ip(), ends.remote.ip());
        let known = self.known.get(&way).filter(|(_, since)| now < *since + TIME);
        let mtu = match known {
            Some((mtu, _)) => *mtu,
            None => self.learn(way, ask(way.0, ends.remote).unwrap_or(most), now),
        };
        let [v4, v6] = LEAST;
        mtu.clamp(if way.0.is_ipv4() { v4 } else { v6 }, most)
    }

    fn learn(&mut self, way: (IpAddr, IpAddr), mtu: usize, now: Instant) -> usize {
        if self.known.len() >= MAX_WAYS {
            self.known.clear();
        }
        self.known.insert(way, (mtu, now));
        mtu
    }
}

/// What the system says. None if it knows no way: then others do.
fn ask(local: IpAddr, remote: SocketAddr) -> Option<usize> {
    let socket = UdpSocket::bind((local, 0)).ok()?;
    // Nothing is sent by that.
    socket.connect(remote).ok()?;
    let mtu = if local.is_ipv4() { sockopt::ip_mtu(&socket) } else { sockopt::ipv6_mtu(&socket) };
    usize::try_from(mtu.ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 1191, Section 7.1; RFC 8201, Section 4.
    #[test]
    fn what_routers_say_has_a_bound_and_those_who_do_not_know_are_helped() {
        for (said, now, is_v4, mtu) in [
            (1400, 1500, true, 1400),
            (68, 1500, true, 576),
            (68, 1500, false, 1280),
            (0, 1500, true, 1492),
            (0, 1492, true, 1006),
            (0, 1000, true, 576),
            (u32::MAX, 1500, true, u32::MAX as usize),
        ] {
            assert_eq!(told(said, now, is_v4), mtu, "{said}");
        }
    }

    #[test]
    fn a_way_that_nobody_knows_takes_what_the_stack_does_and_others_are_remembered() {
        let ends = |local: &str, remote: &str| Ends {
            local: local.parse().unwrap(),
            remote: remote.parse().unwrap(),
        };
        let mut way = Way::default();
        let now = Instant::from_secs(7);
        assert_eq!(way.mtu(&ends("198.51.100.1:80", "192.0.2.1:9"), 1500, now), 1500);
        assert_eq!(way.mtu(&ends("127.0.0.1:80", "127.0.0.1:9"), 1500, now), 1500);
        let [a, b, c] = [1, 2, 3].map(|last| IpAddr::from([127, 0, 0, last]));
        // Two hosts by turns.
        way.learn((a, c), 1300, now);
        for (said, found) in [(1400, 1400), (100, 576), (9000, 1500)] {
            way.learn((a, b), said, now);
            assert_eq!(way.mtu(&ends("127.0.0.1:80", "127.0.0.2:9"), 1500, now), found);
            assert_eq!(way.mtu(&ends("127.0.0.1:80", "127.0.0.3:9"), 1500, now), 1300);
        }
        // lo has more.
        way.learn((a, b), 1400, now);
        let later = now + TIME;
        assert_eq!(way.mtu(&ends("127.0.0.1:80", "127.0.0.2:9"), 1500, later), 1500);
        for number in 0..2 * MAX_WAYS as u16 {
            let [high, low] = number.to_be_bytes();
            way.learn((a, [10, 0, high, low].into()), 1400, later);
            assert!(way.known.len() <= MAX_WAYS);
        }
    }
}
