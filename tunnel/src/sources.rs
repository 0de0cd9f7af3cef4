//! The sockets that packets of other ends come by, and which worker takes care of which.

use crate::config::Port;
use crate::inbound::Way;
use crate::udp::Socket;
use crate::world::World;

/// Where datagrams are to be read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    Port(usize),
    /// A raw socket of a tunnel, for a protocol.
    Raw {
        tunnel: usize,
        socket: usize,
        protocol: u8,
    },
    /// A socket that sends for a tunnel, from a port that is one of ours as well.
    Shared {
        tunnel: usize,
        socket: usize,
        port: usize,
    },
}

impl Source {
    /// All that a worker reads from. What the other end sends to the port that a datagram came from
    /// arrives at the socket that sent it, if that port is one of ours. Of such a socket one
    /// worker takes care, so that flows stay in order; so it is with the raw sockets of a tunnel,
    /// as nothing outside tells its flows apart.
    pub(crate) fn all(world: &World, worker: usize) -> Vec<Self> {
        let mut sources: Vec<_> = (0..world.doors.len()).map(Self::Port).collect();
        for (tunnel, path) in world.paths.iter().enumerate() {
            if tunnel % world.workers == worker {
                let raw = |(socket, protocol)| Self::Raw { tunnel, socket, protocol };
                sources.extend(path.raw().map(raw));
            }
            let sockets = path.sockets().iter().enumerate();
            let mine = |socket: &usize| socket % world.workers == worker;
            for (socket, sender) in sockets.filter(|(socket, _)| mine(socket)) {
                let v6 = world.setup.tunnels[tunnel].kind.is_v6();
                let same = |port: &Port| port.port == sender.port() && port.v6 == v6;
                if let Some(port) = world.setup.ports.iter().position(same) {
                    sources.push(Self::Shared { tunnel, socket, port });
                }
            }
        }
        sources
    }

    pub(crate) fn socket(self, world: &World, worker: usize) -> &Socket {
        match self {
            Self::Port(index) => world.doors[index].socket(worker),
            Self::Raw { tunnel, socket, .. } | Self::Shared { tunnel, socket, .. } => {
                &world.paths[tunnel].sockets()[socket]
            }
        }
    }

    pub(crate) fn way(self, world: &World) -> Way<'_> {
        match self {
            Self::Port(port) | Self::Shared { port, .. } => Way::Port(&world.setup.ports[port]),
            Self::Raw { tunnel, protocol, .. } => Way::Raw { tunnel, protocol },
        }
    }
}
