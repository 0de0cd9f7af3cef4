//! What the system does with frames of the loopback device.
//!
//! Its own packets come back with what it has found out about them when they left. What others put there is looked at as if it came
//! from elsewhere: without `accept_local` a source of this host is refused, and without `route_localnet` one of
//! 127.0.0.0/8 (`ip_route_input_slow` of net/ipv4/route.c). IPv6 makes no such difference.

use std::io;

use super::link::LINK_GSO_SEGMENTS;
use super::{ACKNOWLEDGE, GET_LINK, LOOPBACK, NEW_LINK, Netlink, Request, attributes, number};

/// RTM_SETLINK.
const SET_LINK: u16 = 19;
/// IFLA_AF_SPEC; AF_INET in it; IFLA_INET_CONF in that.
const FAMILIES: u16 = 26;
const INET: u16 = 2;
const CONFIGURATION: u16 = 1;
/// IPV4_DEVCONF_ACCEPT_LOCAL and IPV4_DEVCONF_ROUTE_LOCALNET (linux/ip.h), counted from 1.
const ACCEPT_LOCAL: u16 = 23;
const ROUTE_LOCALNET: u16 = 26;

/// Settings of the loopback device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Settings {
    /// Segments that may be one frame (`gso_max_segs` of ip-link(8)).
    pub(in super::super) segments: u32,
    /// Sysctls of those names (`net.ipv4.conf.lo`).
    pub(in super::super) accept_local: u32,
    pub(in super::super) route_localnet: u32,
}

/// Some of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Changes {
    pub(in super::super) segments: Option<u32>,
    pub(in super::super) accept_local: Option<u32>,
    pub(in super::super) route_localnet: Option<u32>,
}

impl Settings {
    /// Those that are not as `wanted`.
    pub(in super::super) fn other(self, wanted: Self) -> Changes {
        let other = |own: u32, wanted| Some(own).filter(|own| *own != wanted);
        Changes {
            segments: other(self.segments, wanted.segments),
            accept_local: other(self.accept_local, wanted.accept_local),
            route_localnet: other(self.route_localnet, wanted.route_localnet),
        }
    }

    /// Those that are among `these`.
    pub(in super::super) fn only(self, these: Changes) -> Changes {
        Changes {
            segments: these.segments.map(|_| self.segments),
            accept_local: these.accept_local.map(|_| self.accept_local),
            route_localnet: these.route_localnet.map(|_| self.route_localnet),
        }
    }
}

impl Netlink {
    /// What it is set to.
    ///
    /// # Errors
    ///
    /// What the system says; `InvalidData` if it has no IPv4.
    pub(in super::super) fn loopback(&mut self) -> io::Result<Settings> {
        let request = Request::new(GET_LINK, &header());
        let read = |kind, body: &[u8]| (kind == NEW_LINK).then(|| settings(body));
        self.ask(request, 0, read)?.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Sets some of it, and leaves the rest alone.
    ///
    /// # Errors
    ///
    /// What the system says: it takes CAP_NET_ADMIN.
    pub(in super::super) fn set_loopback(&mut self, changes: Changes) -> io::Result<()> {
        let Changes { segments, accept_local, route_localnet } = changes;
        let mut request = Request::new(SET_LINK, &header());
        if let Some(segments) = segments {
            request.attribute(LINK_GSO_SEGMENTS, &segments.to_ne_bytes());
        }
        let mut configuration = Request(Vec::new());
        for (kind, value) in [(ACCEPT_LOCAL, accept_local), (ROUTE_LOCALNET, route_localnet)] {
            if let Some(value) = value {
                configuration.attribute(kind, &value.to_ne_bytes());
            }
        }
        if !configuration.0.is_empty() {
            let mut inet = Request(Vec::new());
            inet.attribute(CONFIGURATION, &configuration.0);
            let mut families = Request(Vec::new());
            families.attribute(INET, &inet.0);
            request.attribute(FAMILIES, &families.0);
        }
        self.ask(request, ACKNOWLEDGE, |_, _| Some(()))
    }
}

/// `struct ifinfomsg` with the number of the device.
fn header() -> [u8; 16] {
    let mut header = [0; 16];
    header[4..8].copy_from_slice(&LOOPBACK.to_ne_bytes());
    header
}

fn settings(body: &[u8]) -> Option<Settings> {
    let (_, rest) = body.split_first_chunk::<16>()?;
    let find = |all, wanted| attributes(all).find(|(kind, _)| *kind == wanted).map(|(_, of)| of);
    let configuration = find(find(find(rest, FAMILIES)?, INET)?, CONFIGURATION)?;
    let value = |at: u16| configuration.get(4 * usize::from(at - 1)..).and_then(number);
    Some(Settings {
        segments: find(rest, LINK_GSO_SEGMENTS).and_then(number)?,
        accept_local: value(ACCEPT_LOCAL)?,
        route_localnet: value(ROUTE_LOCALNET)?,
    })
}
