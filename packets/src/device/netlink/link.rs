//! A device, as the system tells of it.

use super::{LINK_NAME, attributes, number, text};

/// Attributes (linux/if_link.h).
const LINK_ADDRESS: u16 = 1;
const LINK_MTU: u16 = 4;
const LINK_BELOW: u16 = 5;
const LINK_QUEUEING: u16 = 6;
const LINK_MASTER: u16 = 10;
const LINK_INFO: u16 = 18;
const LINK_BELOW_NAMESPACE: u16 = 37;
pub(super) const LINK_GSO_SEGMENTS: u16 = 40;
const LINK_GSO_SIZE: u16 = 41;
const LINK_GSO_SIZE_V4: u16 = 63;
/// Those within LINK_INFO, and those within LINK_DATA there, of a VLAN.
const LINK_KIND: u16 = 1;
const LINK_DATA: u16 = 2;
const VLAN_NUMBER: u16 = 1;
const VLAN_PROTOCOL: u16 = 5;

/// The kind of devices of VLANs.
const VLAN_KIND: &str = "vlan";
/// The kind of one end of a pair: what is "below" is the other end.
const PAIR_KIND: &str = "veth";
/// Kinds of devices that get frames once they have come by a device below, which has taken a tag out of them by then
/// (`__netif_receive_skb_core` of net/core/dev.c: `another_round`).
const KINDS_ABOVE: [&str; 9] =
    ["bridge", "bond", "team", "macvlan", "macvtap", "ipvlan", "ipvtap", "openvswitch", "vrf"];
/// The protocol of tags of customers (IEEE 802.1Q), as it is in frames.
const CUSTOMER: [u8; 2] = [0x81, 0x00];
/// IFF_UP.
const UP: u32 = 1;

/// The number of the loopback device in every network namespace (LOOPBACK_IFINDEX of include/net/flow.h).
pub(in crate::device) const LOOPBACK: u32 = 1;
/// ARPHRD_LOOPBACK (linux/if_arp.h).
const LOOPBACK_KIND: u16 = 772;

/// A device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::device) struct Link {
    pub(in crate::device) index: u32,
    pub(in crate::device) name: String,
    /// What it is (ARPHRD_ETHER, linux/if_arp.h).
    pub(in crate::device) kind: u16,
    /// Its address of Ethernet; zeros if it has none of that length.
    pub(in crate::device) mac: [u8; 6],
    pub(in crate::device) mtu: u32,
    /// An administrator has not switched it off.
    pub(in crate::device) is_up: bool,
    /// The driver of a device that is none of hardware, such as veth.
    pub(in crate::device) virtual_kind: Option<String>,
    /// The number of the device below, if that is in this network namespace.
    pub(in crate::device) below: Option<u32>,
    /// The number of the device that gets what comes by this one, such as a bridge.
    pub(in crate::device) master: Option<u32>,
    /// What comes by it from the device below, if it is one of a VLAN.
    pub(in crate::device) vlan: Option<Vlan>,
    /// What leaves by it waits nowhere (tc(8): noqueue).
    pub(in crate::device) is_queueless: bool,
    /// The device cuts frames that are shorter than this, with the header of Ethernet, into so many segments at most.
    pub(in crate::device) gso_size: u32,
    pub(in crate::device) gso_segments: u32,
}

/// What comes by the device of a VLAN: what has this tag on the device below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::device) struct Vlan {
    /// The number of the device below.
    pub(in crate::device) below: u32,
    /// From 1 to 4094.
    pub(in crate::device) number: u16,
}

impl Link {
    /// Whether it is the device by which this host sends to itself.
    pub(in crate::device) const fn is_loopback(&self) -> bool {
        self.kind == LOOPBACK_KIND
    }

    /// Whether it is the device of a VLAN of any kind, be it one whose tags are read here or not.
    pub(in crate::device) fn is_of_vlan(&self) -> bool {
        self.virtual_kind.as_deref() == Some(VLAN_KIND)
    }

    /// Whether frames come by it with their tags taken out, of whatever VLAN they are: where it is above `other` devices.
    pub(in crate::device) fn hides_tags(&self, others: &[Self]) -> bool {
        self.virtual_kind.as_deref().is_some_and(|kind| KINDS_ABOVE.contains(&kind))
            || others.iter().any(|other| other.master == Some(self.index))
    }
}

/// Reads a message. None if it does not say what a device is like.
pub(super) fn link(body: &[u8]) -> Option<Link> {
    let (header, rest) = body.split_first_chunk::<16>()?;
    // Of a bridge, there are messages about its ports that look alike.
    if header[0] != 0 {
        return None;
    }
    let [_, _, k0, k1, i0, i1, i2, i3, f0, f1, f2, f3, ..] = *header;
    let mut link = Link {
        index: u32::from_ne_bytes([i0, i1, i2, i3]),
        name: String::new(),
        kind: u16::from_ne_bytes([k0, k1]),
        mac: [0; 6],
        mtu: 0,
        is_up: u32::from_ne_bytes([f0, f1, f2, f3]) & UP != 0,
        virtual_kind: None,
        below: None,
        master: None,
        vlan: None,
        is_queueless: false,
        gso_size: 65_536,
        gso_segments: 65_535,
    };
    let (mut tag, mut is_elsewhere, mut is_whole) = (None, false, false);
    for (kind, value) in attributes(rest) {
        match kind {
            LINK_NAME => link.name = text(value),
            LINK_ADDRESS => link.mac = value.try_into().unwrap_or_default(),
            LINK_MTU => (link.mtu, is_whole) = (number(value)?, true),
            LINK_BELOW => link.below = number(value).filter(|below| *below != 0),
            LINK_MASTER => link.master = number(value).filter(|master| *master != 0),
            // The number of the device below is one of another network namespace.
            LINK_BELOW_NAMESPACE => is_elsewhere = true,
            LINK_QUEUEING => link.is_queueless = text(value) == "noqueue",
            LINK_GSO_SIZE | LINK_GSO_SIZE_V4 => link.gso_size = link.gso_size.min(number(value)?),
            LINK_GSO_SEGMENTS => link.gso_segments = number(value)?,
            LINK_INFO => {
                let of = |wanted| attributes(value).find(|(kind, _)| *kind == wanted);
                link.virtual_kind = of(LINK_KIND).map(|(_, value)| text(value));
                tag = of(LINK_DATA).and_then(|(_, data)| customer_tag(data));
            }
            _ => {}
        }
    }
    // That has each message about a device (`rtnl_fill_ifinfo` of net/core/rtnetlink.c), but those by which wireless extensions tell of something
    // else, with its name and nothing of what it is (`wireless_send_event` of net/wireless/wext-core.c).
    if !is_whole {
        return None;
    }
    if is_elsewhere || link.virtual_kind.as_deref() == Some(PAIR_KIND) {
        link.below = None;
    }
    // What comes by a part of a bridge, or of a table of routes of its own (VRF), is no address's here.
    if link.is_of_vlan() && link.master.is_none() {
        link.vlan = link.below.zip(tag).map(|(below, number)| Vlan { below, number });
    }
    Some(link)
}

/// The number of a VLAN whose tags are those of customers; none of others, and of 0, which is no VLAN.
fn customer_tag(data: &[u8]) -> Option<u16> {
    let of = |wanted| attributes(data).find(|(kind, _)| *kind == wanted).map(|(_, value)| value);
    let number = of(VLAN_NUMBER)?.first_chunk().map(|octets| u16::from_ne_bytes(*octets))?;
    let is_customer = of(VLAN_PROTOCOL).is_none_or(|protocol| protocol == CUSTOMER);
    ((1..4095).contains(&number) && is_customer).then_some(number)
}
