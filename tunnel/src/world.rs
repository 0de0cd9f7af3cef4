//! Tunnels with their sockets: what a change replaces as a whole.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use nix::errno::Errno;
use quicket_gue::Packet;

use crate::config::{Encap, FlowLabel, Port, Setup, Tunnel};
use crate::counters::Drop;
use crate::path::Path;
use crate::peers::Peers;
use crate::registry::Registry;
use crate::udp::{Options, Socket};

/// Tunnels at one time. It does not change; another one takes its place, and has what remains the
/// same in common with it.
#[derive(Debug)]
pub(crate) struct World {
    /// As it was asked for.
    pub(crate) asked: Setup,
    /// With the ports that tunnels need besides.
    pub(crate) setup: Setup,
    pub(crate) registry: Registry,
    /// The ways to the other ends, in the order of the tunnels.
    pub(crate) paths: Vec<Arc<Path>>,
    /// The other ends of tunnels that have many, in the same order.
    pub(crate) peers: Vec<Option<Arc<Peers>>>,
    /// In the order of the ports.
    pub(crate) doors: Vec<Arc<Door>>,
    /// How many threads there are.
    pub(crate) workers: usize,
}

/// The sockets of a port: one for each worker.
#[derive(Debug)]
pub(crate) struct Door {
    port: Port,
    /// Whether datagrams without a checksum stay outside.
    checksum: bool,
    sockets: Vec<Socket>,
}

impl World {
    /// Opens the sockets that `before` does not have.
    pub(crate) fn open(asked: Setup, workers: usize, before: Option<&Self>) -> io::Result<Self> {
        let setup = asked
            .clone()
            .complete()
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error.to_string()))?;
        let path = |tunnel: &Tunnel| {
            let known = before.and_then(|before| {
                let same = before.setup.tunnels.iter().position(|other| same_path(tunnel, other));
                same.map(|index| before.paths[index].clone())
            });
            known.map_or_else(
                || {
                    let opened = Path::open(tunnel).map(Arc::new);
                    opened.map_err(|error| match error.kind() {
                        io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => {
                            unreachable(tunnel, &error)
                        }
                        _ => blame(&tunnel.name, &error),
                    })
                },
                Ok,
            )
        };
        let paths = setup.tunnels.iter().map(path).collect::<io::Result<_>>()?;
        let door = |port: &Port| {
            // Datagrams without a checksum come in where a tunnel sends such.
            let unchecked = |tunnel: &Tunnel| tunnel.kind.is_v6() == port.v6 && !tunnel.csum;
            let checksum = !setup.tunnels.iter().any(unchecked);
            let mut doors = before.iter().flat_map(|before| &before.doors);
            let known = doors.find(|door| (door.port, door.checksum) == (*port, checksum));
            known.map_or_else(
                || Door::open(*port, checksum, workers).map(Arc::new),
                |door| Ok(door.clone()),
            )
        };
        let peers = |tunnel: &Tunnel| {
            let before = before.and_then(|before| before.peers_of(&tunnel.name));
            let external = tunnel.external.as_ref()?;
            Some(Arc::new(Peers::new(external, before)))
        };
        let peers = setup.tunnels.iter().map(peers).collect();
        let doors = setup.ports.iter().map(door).collect::<io::Result<_>>()?;
        let registry = Registry::new(&setup.tunnels);
        Ok(Self { registry, asked, setup, paths, peers, doors, workers })
    }

    fn peers_of(&self, name: &str) -> Option<&Peers> {
        let at = self.setup.tunnels.iter().position(|tunnel| tunnel.name == name)?;
        self.peers.get(at)?.as_deref()
    }

    /// The tunnels in GUE between two addresses; those with many other ends if they know this one.
    pub(crate) fn gue_tunnels(
        &self,
        remote: IpAddr,
        local: Option<IpAddr>,
    ) -> impl Iterator<Item = usize> {
        let is_one = move |tunnel: &Tunnel| {
            let own = tunnel.local.is_none() || local.is_none() || tunnel.local == local;
            let gue = matches!(tunnel.encap, Encap::Gue | Encap::Gue1);
            gue && own
        };
        let all = self.setup.tunnels.iter().zip(&self.peers).enumerate();
        let is_end = move |(_, (tunnel, peers)): &(usize, (&Tunnel, &Option<Arc<Peers>>))| {
            is_one(tunnel)
                && match peers {
                    Some(peers) => peers.is_peer(remote),
                    None => tunnel.remote == remote,
                }
        };
        all.filter(is_end).map(|(index, _)| index)
    }

    /// The other end that a packet of a tunnel is for, if it has many.
    pub(crate) fn other_end(
        &self,
        tunnel: usize,
        packet: &[u8],
        now: u32,
    ) -> Result<Option<(&Peers, IpAddr)>, Drop> {
        let Some(peers) = self.peers.get(tunnel).and_then(Option::as_deref) else {
            return Ok(None);
        };
        let packet = Packet::parse(packet).map_err(|_| Drop::Malformed)?;
        let peer = peers.of(packet.destination, now).ok_or(Drop::Unknown)?;
        Ok(Some((peers, peer)))
    }
}

impl Door {
    fn open(port: Port, checksum: bool, workers: usize) -> io::Result<Self> {
        let any: IpAddr = match port.v6 {
            true => Ipv6Addr::UNSPECIFIED.into(),
            false => Ipv4Addr::UNSPECIFIED.into(),
        };
        let local = SocketAddr::new(port.local.unwrap_or(any), port.port);
        let options = Options {
            protocol: None,
            local,
            remote: None,
            dev: None,
            checksum,
            dont_fragment: false,
            limit: None,
            label: FlowLabel::Auto,
            mark: None,
            deaf: false,
        };
        let open = |_| {
            Socket::open(options).map_err(|error| blame(&format!("port {}", port.port), &error))
        };
        Ok(Self { port, checksum, sockets: (0..workers).map(open).collect::<io::Result<_>>()? })
    }

    /// The socket of a worker.
    pub(crate) fn socket(&self, worker: usize) -> &Socket {
        &self.sockets[worker]
    }
}

/// Whether the same sockets do for both.
fn same_path(one: &Tunnel, other: &Tunnel) -> bool {
    let key = |tunnel: &Tunnel| {
        let Tunnel {
            name,
            remote,
            local,
            sport,
            dport,
            csum,
            pmtudisc,
            dev,
            encaplimit,
            flowlabel,
            fwmark,
            discovery,
            ignore_df,
            encap,
            ..
        } = tunnel;
        let ends = (name.clone(), *remote, *local, *sport, *dport);
        // Without UDP there is a socket for each protocol.
        let protocols = (*encap == Encap::None).then(|| tunnel.protocols());
        let outer = (*csum, *pmtudisc, *encaplimit, *flowlabel, *fwmark, *discovery, *ignore_df);
        (ends, outer, protocols, dev.clone(), tunnel.overhead())
    };
    key(one) == key(other)
}

fn unreachable(tunnel: &Tunnel, error: &io::Error) -> io::Error {
    let Tunnel { name, remote, .. } = tunnel;
    let text = format!("{name}: no route to {remote} (ip route get {remote}): {error}");
    io::Error::new(error.kind(), text)
}

fn blame(name: &str, error: &io::Error) -> io::Error {
    let why = match error.kind() {
        io::ErrorKind::AddrNotAvailable => "local is no address of this host",
        io::ErrorKind::AddrInUse => "the port is taken by another program",
        io::ErrorKind::PermissionDenied => "CAP_NET_RAW is missing (run as root)",
        _ if error.raw_os_error() == Some(Errno::ERANGE as i32) => {
            "the system keeps flow labels from 80000 on for itself \
             (sysctl net.ipv6.flowlabel_state_ranges)"
        }
        _ => "no socket",
    };
    io::Error::new(error.kind(), format!("{name}: {why}: {error}"))
}
