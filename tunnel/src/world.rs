//! Tunnels with their sockets: what a change replaces as a whole.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use nix::errno::Errno;

use crate::config::{Encap, Port, Setup, Tunnel};
use crate::path::Path;
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
                || Path::open(tunnel).map(Arc::new).map_err(|error| blame(&tunnel.name, &error)),
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
        let doors = setup.ports.iter().map(door).collect::<io::Result<_>>()?;
        Ok(Self { registry: Registry::new(&setup.tunnels), asked, setup, paths, doors, workers })
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
            label: None,
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
            encap,
            ..
        } = tunnel;
        let ends = (name.clone(), *remote, *local, *sport, *dport);
        // Without UDP there is a socket for each protocol.
        let protocols = (*encap == Encap::None).then(|| tunnel.protocols());
        let outer = (*csum, *pmtudisc, *encaplimit, *flowlabel);
        (ends, outer, protocols, dev.clone(), tunnel.overhead())
    };
    key(one) == key(other)
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
