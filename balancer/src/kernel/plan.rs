//! All that a program is made of.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use quicket_bpf::{Reading, Rules, Target, Way};
use quicket_steering::{Codec, ConfigId, ServerId};

use crate::config::Config;
use crate::device::{self, Device};
use crate::flows::Flow;
use crate::inner;
use crate::snapshot::Snapshot;

/// All that a program is made of: of two snapshots with the same one, one program does for both, with
/// what it has learned.
#[derive(Debug, PartialEq)]
pub(super) struct Plan {
    pub(super) rules: Rules,
    /// How connection IDs are read that it learns.
    readers: Readers,
    /// In the order of the servers; none for one that the kernel cannot send to.
    pub(super) targets: Vec<Option<Target>>,
    /// Server IDs, in order, and whose they are.
    pub(super) ids: Vec<(ServerId, usize)>,
}

/// Configurations, in order. They are the same if they read alike: with another key, what was learned
/// is wrong.
#[derive(Debug)]
struct Readers(Vec<Codec>);

impl PartialEq for Readers {
    fn eq(&self, other: &Self) -> bool {
        let mut both = self.0.iter().zip(&other.0);
        self.0.len() == other.0.len() && both.all(|(one, other)| one.reads_like(other))
    }
}

impl Plan {
    /// `slot_of` says where packets for a server are counted, by its index; `forwards`, whether the
    /// system forwards packets of a server's version of IP.
    pub(super) fn new(
        device: &Device,
        config: &Config,
        snapshot: &Snapshot,
        slot_of: impl Fn(usize) -> Option<u32>,
        forwards: impl Fn(&SocketAddr) -> bool,
    ) -> Self {
        let (mac, egress) = (device.mac, device.egress.clone());
        let listen = config.listen.clone();
        let mut rules = Rules { mac, egress, listen, id_len: 0, readings: Vec::new() };
        let mut readers = Vec::new();
        if let Some(reader) = &snapshot.reader {
            rules.id_len = reader.id_len();
            let codecs = (0..ConfigId::COUNT as u8).filter_map(ConfigId::new);
            for codec in codecs.filter_map(|id| reader.get(id)) {
                let id = codec.id().number();
                let plain = (!codec.is_enciphered()).then_some(codec.format().server_id_len());
                rules.readings.push(Reading { id, plain });
                readers.push(codec.clone());
            }
        }
        let target = |(at, member): (usize, &crate::snapshot::Member)| {
            let to = member.address;
            let way = way(to).filter(|_| forwards(&to))?;
            let max_payload = snapshot.mtu.saturating_sub(overhead(&to) as u16);
            Some(Target { way, port: to.port(), max_payload, slot: slot_of(at)? })
        };
        let targets = snapshot.members().iter().enumerate().map(target).collect();
        let mut ids: Vec<_> = snapshot.ids().map(|(id, server)| (*id, server)).collect();
        ids.sort_unstable_by(|one, other| one.0.as_slice().cmp(other.0.as_slice()));
        Self { rules, readers: Readers(readers), targets, ids }
    }
}

/// Which versions of IP the system forwards that come by a device, of those that the servers have.
///
/// # Errors
/// If none: what to do.
pub(super) fn forwarding(
    device: &str,
    config: &Config,
) -> std::io::Result<impl Fn(&SocketAddr) -> bool + use<>> {
    let mut known = HashMap::new();
    let mut refused = None;
    for v6 in [false, true] {
        if config.servers.iter().any(|server| server.address.is_ipv6() == v6) {
            let checked = device::check_forwarding(device, v6);
            known.insert(v6, checked.is_ok());
            refused = refused.or(checked.err());
        }
    }
    match refused {
        Some(error) if !known.values().any(|forwards| *forwards) => Err(error),
        _ => Ok(move |to: &SocketAddr| known.get(&to.is_ipv6()).copied().unwrap_or(false)),
    }
}

/// What the payload of a client with IPv4 grows by.
fn overhead(server: &SocketAddr) -> usize {
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    inner::overhead(&Flow { client: any, local: any }, server.is_ipv4())
}

/// The way to a server; none without a route, and to an address of one link, which says nothing
/// without its device.
fn way(to: SocketAddr) -> Option<Way> {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(to) if to.ip().is_unicast_link_local() => return None,
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(to).ok()?;
    match (to.ip(), socket.local_addr().ok()?.ip()) {
        (IpAddr::V4(to), IpAddr::V4(from)) => Some(Way::V4 { to, from }),
        (IpAddr::V6(to), IpAddr::V6(from)) => Some(Way::V6 { to, from }),
        _ => None,
    }
}
