//! What a connection does when the network is not what it was: no I/O.

use std::net::IpAddr;

/// How often a connection asks whether the server is reached from an address, while it has another one that works.
const MAX_TRIES: u8 = 3;
/// How often a connection is looked at again that could not ask, as the server has given it no connection ID for another path
/// (RFC 9000, Section 9.5). Later it asks with the next change.
const MAX_WAITS: u8 = 6;

/// How things are with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// The address from which the system would send to the server now.
    pub(super) wanted: Option<IpAddr>,
    /// Its device is up and has a carrier.
    pub(super) wanted_works: bool,
    /// The address from which the connection sends.
    pub(super) used: Option<IpAddr>,
    /// This host has it on a device that is up, has a carrier, and leads to the server.
    pub(super) used_works: bool,
    /// The handshake is confirmed: the connection may move (RFC 9000, Section 9).
    pub(super) is_confirmed: bool,
    /// The attempt to connect can begin again: nobody has been told of a connection yet.
    pub(super) may_restart: bool,
    /// The address from which it is asked whether the server is reached by another path.
    pub(super) moving_to: Option<IpAddr>,
    /// ... by the path in use.
    pub(super) is_validating: bool,
    /// The server forbids moves (RFC 9000, Section 18.2, disable_active_migration).
    pub(super) is_forbidden: bool,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing.
    Stay,
    /// Nothing before something that is under way is decided.
    Wait,
    /// There is no network. Of one that comes, the system tells.
    Lost,
    /// There is one again: send at once.
    Return,
    /// Go on from this address: none was known before.
    Begin,
    /// Move there as soon as the server answers there.
    Probe,
    /// Move there at once: there is nothing to lose.
    Leave,
    /// Go on from there at once, as behind a NAT that has forgotten its binding.
    Rebind,
    /// Begin the handshake again from another address.
    Restart,
}

impl Step {
    /// True if somebody has to look again, even if nothing else changes.
    pub(super) const fn is_unsettled(self) -> bool {
        !matches!(self, Self::Stay | Self::Lost | Self::Restart)
    }
}

/// What is remembered of a connection that follows the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Follow {
    /// It had no network when it was last looked at.
    lost: bool,
    /// Where the server was last asked to answer, and how often.
    tried: Option<IpAddr>,
    tries: u8,
    /// How often it could not ask there.
    waits: u8,
    /// Its handshake may begin again.
    restarts: bool,
}

impl Follow {
    /// Of a new connection; `restarts` says whether its handshake may begin again.
    pub(crate) const fn new(restarts: bool) -> Self {
        Self { lost: false, tried: None, tries: 0, waits: 0, restarts }
    }

    pub(super) const fn restarts(&self) -> bool {
        self.restarts
    }

    /// What to do now.
    pub(super) fn decide(&mut self, seen: &Seen) -> Step {
        let Some(wanted) = seen.wanted.filter(|_| seen.wanted_works) else {
            return self.without_network(seen);
        };
        // A socket that is held by another device than that of its address leads nowhere.
        if seen.used == Some(wanted) && seen.used_works {
            return self.at_home(seen);
        }
        if seen.used.is_none() {
            self.lost = false;
            return Step::Begin;
        }
        match (seen.used_works, seen.is_confirmed) {
            (true, false) => Step::Wait,
            (false, false) if seen.may_restart && seen.used != Some(wanted) => Step::Restart,
            (false, false) => {
                *self = Self::new(self.restarts);
                Step::Rebind
            }
            (true, true) => self.try_another(seen, wanted),
            (false, true) if seen.moving_to == Some(wanted) => Step::Wait,
            (false, true) => {
                *self = Self::new(self.restarts);
                Step::Leave
            }
        }
    }

    /// The system knows no way to the server, or one that leads nowhere.
    const fn without_network(&mut self, seen: &Seen) -> Step {
        if seen.used_works {
            return Step::Stay;
        }
        self.lost = true;
        Step::Lost
    }

    /// The connection is where the system would have it.
    fn at_home(&mut self, seen: &Seen) -> Step {
        let was_lost = std::mem::take(&mut self.lost);
        (self.tried, self.tries, self.waits) = (None, 0, 0);
        if !was_lost {
            return if seen.is_validating || seen.moving_to.is_some() {
                Step::Wait
            } else {
                Step::Stay
            };
        }
        // From another port, the server sees a new path and sends at once, and not when a timeout
        // says so that has grown meanwhile. A NAT may have forgotten the old one, too.
        if seen.is_confirmed && !seen.is_forbidden { Step::Leave } else { Step::Return }
    }

    /// Another address is better than one that works: it must not cost the connection.
    fn try_another(&mut self, seen: &Seen, wanted: IpAddr) -> Step {
        self.lost = false;
        if seen.moving_to.is_some() {
            return Step::Wait;
        }
        if seen.is_forbidden {
            return Step::Stay;
        }
        if self.tried != Some(wanted) {
            (self.tried, self.tries, self.waits) = (Some(wanted), 0, 0);
        }
        if self.tries >= MAX_TRIES {
            return Step::Stay;
        }
        self.tries += 1;
        Step::Probe
    }

    /// The server could not be asked: this was no try. True if somebody has to look again, even if nothing else changes.
    pub(super) fn could_not_ask(&mut self) -> bool {
        self.tries = self.tries.saturating_sub(1);
        self.waits = self.waits.saturating_add(1);
        self.waits <= MAX_WAITS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIFI: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const PHONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, 1));

    /// A connection from one address, where the system would use another.
    fn seen(used: IpAddr, wanted: Option<IpAddr>) -> Seen {
        Seen {
            wanted,
            wanted_works: wanted.is_some(),
            used: Some(used),
            used_works: wanted == Some(used),
            is_confirmed: true,
            may_restart: false,
            moving_to: None,
            is_validating: false,
            is_forbidden: false,
        }
    }

    #[test]
    fn an_address_that_is_gone_is_left_at_once() {
        let mut follow = Follow::new(true);
        assert_eq!(follow.decide(&seen(WIFI, Some(PHONE))), Step::Leave);
        // Also where the server forbids it: there is no other way.
        let forbidden = Seen { is_forbidden: true, ..seen(WIFI, Some(PHONE)) };
        assert_eq!(follow.decide(&forbidden), Step::Leave);
        // While the server is asked there already, the answer moves it; elsewhere, none is waited for.
        let moving = Seen { moving_to: Some(PHONE), ..seen(WIFI, Some(PHONE)) };
        assert_eq!(follow.decide(&moving), Step::Wait);
        let elsewhere = Seen { moving_to: Some("203.0.113.1".parse().unwrap()), ..moving };
        assert_eq!(follow.decide(&elsewhere), Step::Leave);
        // Then it is looked at until the server has answered.
        let there = Seen { is_validating: true, ..seen(PHONE, Some(PHONE)) };
        assert_eq!(follow.decide(&there), Step::Wait);
        assert_eq!(follow.decide(&seen(PHONE, Some(PHONE))), Step::Stay);
    }

    #[test]
    fn an_address_that_works_is_left_only_for_one_that_answers() {
        let better = Seen { used_works: true, ..seen(PHONE, Some(WIFI)) };
        let mut follow = Follow::new(true);
        for _ in 0..MAX_TRIES {
            assert_eq!(follow.decide(&better), Step::Probe);
            assert_eq!(follow.decide(&Seen { moving_to: Some(WIFI), ..better }), Step::Wait);
        }
        assert_eq!(follow.decide(&better), Step::Stay, "it does not answer");
        // Another one is another matter, and so is the same one after it.
        let third = Some("203.0.113.1".parse().unwrap());
        assert_eq!(follow.decide(&Seen { wanted: third, ..better }), Step::Probe);
        assert_eq!(follow.decide(&better), Step::Probe);
        let forbidden = Seen { is_forbidden: true, ..better };
        assert_eq!(Follow::new(true).decide(&forbidden), Step::Stay);
    }

    #[test]
    fn who_cannot_ask_is_not_looked_at_for_ever() {
        let better = Seen { used_works: true, ..seen(PHONE, Some(WIFI)) };
        let mut follow = Follow::new(true);
        for wait in 1..=3 * MAX_WAITS {
            assert_eq!(follow.decide(&better), Step::Probe);
            assert_eq!(follow.could_not_ask(), wait <= MAX_WAITS, "{wait}");
        }
        // Another address is another matter, and no try was spent.
        let third = Some("203.0.113.1".parse().unwrap());
        assert_eq!(follow.decide(&Seen { wanted: third, ..better }), Step::Probe);
        assert!(follow.could_not_ask());
        for _ in 0..MAX_TRIES {
            assert_eq!(follow.decide(&better), Step::Probe);
        }
        assert_eq!(follow.decide(&better), Step::Stay);
        // Of a network that comes, the system tells.
        assert!(!follow.decide(&seen(PHONE, None)).is_unsettled());
    }

    #[test]
    fn a_socket_that_is_held_by_another_device_is_left() {
        let astray = Seen { used_works: false, wanted_works: true, ..seen(WIFI, Some(WIFI)) };
        let mut follow = Follow::new(true);
        assert_eq!(follow.decide(&astray), Step::Leave);
        let early = Seen { is_confirmed: false, may_restart: true, ..astray };
        assert_eq!(follow.decide(&early), Step::Rebind);
    }

    #[test]
    fn a_network_that_comes_back_is_used_at_once() {
        let mut follow = Follow::new(true);
        assert_eq!(follow.decide(&seen(WIFI, None)), Step::Lost);
        assert_eq!(follow.decide(&seen(WIFI, None)), Step::Lost);
        let back = seen(WIFI, Some(WIFI));
        assert_eq!(follow.decide(&back), Step::Leave);
        assert_eq!(follow.decide(&back), Step::Stay);
        // A device without a carrier has routes and addresses still.
        let no_carrier = Seen { wanted_works: false, used_works: false, ..back };
        assert_eq!(follow.decide(&no_carrier), Step::Lost);
        let forbidden = Seen { is_forbidden: true, ..back };
        assert_eq!(follow.decide(&forbidden), Step::Return);
    }

    #[test]
    fn nothing_moves_before_the_handshake_is_confirmed() {
        let early = Seen { is_confirmed: false, ..seen(WIFI, Some(PHONE)) };
        let mut follow = Follow::new(true);
        assert_eq!(follow.decide(&Seen { used_works: true, ..early }), Step::Wait);
        let attempt = Seen { may_restart: true, ..early };
        assert_eq!(follow.decide(&attempt), Step::Restart);
        // What the program has as a connection is not ended.
        assert_eq!(follow.decide(&early), Step::Rebind);
        assert_eq!(follow.decide(&Seen { wanted: None, ..early }), Step::Lost);
        let back = Seen { is_confirmed: false, ..seen(WIFI, Some(WIFI)) };
        assert_eq!(follow.decide(&back), Step::Return);
        let nowhere = Seen { used: None, ..early };
        assert_eq!(follow.decide(&nowhere), Step::Begin);
    }
}
