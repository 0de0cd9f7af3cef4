//! Options of UDP and IP that programs of other users ask the switch to set, whose socket it is.

use std::fmt;

use quicket_udp::UdpOption;
use serde::{Deserialize, Serialize};

/// Values that a program wants; those that are not set do not matter to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SocketOptions {
    /// IP_TTL.
    pub ttl: Option<u8>,
    /// IPV6_UNICAST_HOPS.
    pub hop_limit: Option<u8>,
    /// IP_TOS.
    pub class_v4: Option<u8>,
    /// IPV6_TCLASS.
    pub class_v6: Option<u8>,
    /// SO_PRIORITY.
    pub priority: Option<i32>,
    /// SO_MARK.
    pub mark: Option<u32>,
}

/// What the operator's rule calls them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionKind {
    /// The time to live, or hop limit.
    Ttl,
    /// The Differentiated Services field.
    Dscp,
    /// The priority in the queues of this host.
    Priority,
    /// The mark for routing and filters.
    Mark,
}

impl OptionKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Ttl, Self::Dscp, Self::Priority, Self::Mark];

    /// Its word in a rule.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ttl => "ttl",
            Self::Dscp => "dscp",
            Self::Priority => "priority",
            Self::Mark => "mark",
        }
    }
}

/// With the options that it stands for.
impl fmt::Display for OptionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ttl => "ttl (IP_TTL, IPV6_UNICAST_HOPS)",
            Self::Dscp => "dscp (IP_TOS, IPV6_TCLASS)",
            Self::Priority => "priority (SO_PRIORITY)",
            Self::Mark => "mark (SO_MARK)",
        })
    }
}

impl SocketOptions {
    /// What a program wants, or the name of the first option that no program of another user may have: it says where
    /// the socket is, or where packets go, and that is the switch's to say.
    ///
    /// # Errors
    ///
    /// The name of that option.
    pub fn of(options: &[UdpOption]) -> Result<Self, &'static str> {
        let mut asked = Self::default();
        let octet = |number: u32, name| u8::try_from(number).map(Some).map_err(|_| name);
        for option in options {
            match option {
                UdpOption::Ttl(hops) => asked.ttl = octet(*hops, "IP_TTL")?,
                UdpOption::HopLimit(hops) => asked.hop_limit = octet(*hops, "IPV6_UNICAST_HOPS")?,
                UdpOption::TrafficClassV4(class) => asked.class_v4 = Some(*class),
                UdpOption::TrafficClassV6(class) => asked.class_v6 = Some(*class),
                UdpOption::Priority(priority) => asked.priority = Some(*priority),
                UdpOption::Mark(mark) => asked.mark = Some(*mark),
                UdpOption::Device(_) => return Err("SO_BINDTODEVICE"),
                UdpOption::DontRoute(_) => return Err("SO_DONTROUTE"),
                UdpOption::FreebindV4(_) => return Err("IP_FREEBIND"),
                UdpOption::FreebindV6(_) => return Err("IPV6_FREEBIND"),
                UdpOption::TransparentV4(_) => return Err("IP_TRANSPARENT"),
                UdpOption::TransparentV6(_) => return Err("IPV6_TRANSPARENT"),
                _ => return Err("the option"),
            }
        }
        Ok(asked)
    }

    /// As they are set, in this order: IP_TOS sets SO_PRIORITY, too.
    #[must_use]
    pub fn all(&self) -> Vec<UdpOption> {
        let hops = |hops: Option<u8>| hops.map(u32::from);
        let all = [
            hops(self.ttl).map(UdpOption::Ttl),
            hops(self.hop_limit).map(UdpOption::HopLimit),
            self.class_v4.map(UdpOption::TrafficClassV4),
            self.class_v6.map(UdpOption::TrafficClassV6),
            self.priority.map(UdpOption::Priority),
            self.mark.map(UdpOption::Mark),
        ];
        all.into_iter().flatten().collect()
    }

    /// Which kinds of them there are.
    pub fn kinds(&self) -> impl Iterator<Item = OptionKind> {
        let has = [
            self.ttl.is_some() || self.hop_limit.is_some(),
            self.class_v4.is_some() || self.class_v6.is_some(),
            self.priority.is_some(),
            self.mark.is_some(),
        ];
        OptionKind::ALL.into_iter().zip(has).filter_map(|(kind, has)| has.then_some(kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_asked_for_as_they_are_set_and_some_never() {
        let all = [
            UdpOption::Mark(1),
            UdpOption::Priority(2),
            UdpOption::TrafficClassV6(4),
            UdpOption::TrafficClassV4(8),
            UdpOption::HopLimit(0),
            UdpOption::Ttl(255),
        ];
        let asked = SocketOptions::of(&all).unwrap();
        assert_eq!(asked.all(), all.into_iter().rev().collect::<Vec<_>>());
        assert_eq!(asked.kinds().collect::<Vec<_>>(), OptionKind::ALL);
        assert_eq!(SocketOptions::of(&[]).unwrap().kinds().count(), 0);
        let refused = SocketOptions::of(&[UdpOption::Ttl(1), UdpOption::Device(b"lo".to_vec())]);
        assert_eq!(refused, Err("SO_BINDTODEVICE"));
        assert_eq!(SocketOptions::of(&[UdpOption::Ttl(256)]), Err("IP_TTL"));
    }
}
