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
/// In so long, the system is asked for connections whose handshake is not complete as often as [`MAX_QUESTIONS`] says: a question is five
/// system calls, and a SYN from nobody costs its sender nothing.
const ROUND: Duration = Duration::from_secs(1);
const MAX_QUESTIONS: u32 = 64;
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
    /// How often the system was asked for strangers in the round that began then.
    asked: u32,
    round: Option<Instant>,
}

impl Way {
    /// Octets of a packet between these ends, `most` at most.
    pub(crate) fn mtu(&mut self, ends: &Ends, most: usize, now: Instant) -> usize {
        let way = (ends.local.ip(), ends.remote.ip());
        let mtu = match self.known(way, now) {
            Some(mtu) => mtu,
            None => self.learn(way, ask(way.0, ends.remote).unwrap_or(most), now),
        };
        let [v4, v6] = LEAST;
        mtu.clamp(if way.0.is_ipv4() { v4 } else { v6 }, most)
    }

    /// The same for one who may have said a wrong address. None if that is not known, and too many have come to ask the system.
    pub(crate) fn mtu_of_stranger(
        &mut self,
        ends: &Ends,
        most: usize,
        now: Instant,
    ) -> Option<usize> {
        if self.known((ends.local.ip(), ends.remote.ip()), now).is_none() {
            if self.round.is_none_or(|begun| now >= begun + ROUND) {
                (self.asked, self.round) = (0, Some(now));
            }
            if self.asked >= MAX_QUESTIONS {
                return None;
            }
            self.asked += 1;
        }
        Some(self.mtu(ends, most, now))
    }

    fn known(&self, way: (IpAddr, IpAddr), now: Instant) -> Option<usize> {
        self.known.get(&way).filter(|(_, since)| now < *since + TIME).map(|(mtu, _)| *mtu)
    }

    pub(crate) fn learn(&mut self, way: (IpAddr, IpAddr), mtu: usize, now: Instant) -> usize {
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
    fn strangers_have_the_system_asked_for_some_of_them() {
        let mut way = Way::default();
        let now = Instant::from_secs(7);
        let ends = |last: u16| Ends {
            local: ([127, 0, 0, 1], 80).into(),
            remote: ([127, 1, (last >> 8) as u8, last as u8], 9).into(),
        };
        let mut ask = |now| {
            let answers = (0..1000).map(|last| way.mtu_of_stranger(&ends(last), 1500, now));
            answers.flatten().inspect(|mtu| assert_eq!(*mtu, 1500)).count()
        };
        // What is known is said again.
        assert_eq!([ask(now), ask(now)], [64, 64]);
        assert_eq!(ask(now + ROUND), 64);
        assert_eq!(way.mtu(&ends(999), 1500, now), 1500);
        assert_eq!(way.mtu_of_stranger(&ends(999), 1500, now), Some(1500));
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
