//! Endpoints behind the switch.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;

use quicket_switch::client::{Membership, Place as Seat, Way};
use quicket_switch::protocol::{Octets, Serve};
use quicket_udp::{BindError, UdpConfig, UdpOption};
use socket2::SockRef;

use super::workers::endpoint_on;
use crate::config::EndpointConfig;
use crate::core::{Core, CoreRef, Link};
use crate::site::{SiteKeys, server_id};
use crate::steering::{Division, MintedConnectionIds, RoutableConnectionIds};
use crate::switched::SwitchConfig;

/// Makes an endpoint that shares its address, and that nothing drives yet.
pub(crate) fn endpoint(
    address: SocketAddr,
    config: EndpointConfig,
    switch: &SwitchConfig,
) -> Result<CoreRef, BindError> {
    let mut refused = None;
    // One socket, which the switch reads: a second one would get a part of the clients.
    let udp = UdpConfig { reuse_port: false, ..config.udp.clone() };
    let bind = || {
        let socket = quicket_udp::UdpSocket::bind(address, &udp);
        let socket = socket.map_err(|error| {
            let kind = error.io_error().kind();
            refused = Some(error);
            io::Error::from(kind)
        })?;
        Ok(UdpSocket::from(socket.as_fd().try_clone_to_owned()?))
    };
    let made = endpoint_at(address, config, switch, bind);
    made.map_err(|error| match refused {
        Some(refused) if refused.io_error().kind() == error.kind() => refused,
        _ => BindError::new(address, error),
    })
}

/// The same with a socket that is bound already, which the switch gets if it has none for the address.
pub(super) fn endpoint_from(
    socket: &UdpSocket,
    mut config: EndpointConfig,
    switch: &SwitchConfig,
) -> io::Result<CoreRef> {
    let address = socket.local_addr()?;
    if address.is_ipv6() {
        config.udp.only_v6 = SockRef::from(socket).only_v6()?;
    }
    endpoint_at(address, config, switch, || socket.try_clone())
}

fn endpoint_at(
    address: SocketAddr,
    mut config: EndpointConfig,
    switch: &SwitchConfig,
    bind: impl FnMut() -> io::Result<UdpSocket>,
) -> io::Result<CoreRef> {
    let workers = config.workers.count()?;
    let (only_v6, steered) = (config.udp.only_v6, config.udp.route_by_connection_id);
    let seat = Seat { address, only_v6, workers, steered };
    let family = switch.family.as_ref();
    let (membership, inlets, way) = Membership::join_as(&switch.options, seat, family, bind)?;
    let mut options = config.udp.options.iter();
    match &way {
        Way::Own(socket) => {
            options.try_for_each(|option| check_option(option, SockRef::from(socket)))?;
        }
        Way::Through(_) if options.next().is_some() => return Err(no_options()),
        Way::Through(_) => {}
    }
    let secrets = membership.secrets();
    let keys = SiteKeys::of_ring(secrets.ring()?, &switch.options.label);
    config = config.site(&keys, secrets.server_id);
    let host = server_id(secrets.server_id);
    let ids = RoutableConnectionIds::of_site(&keys, host, membership.generation());
    config.protocol.cid_generator = match &way {
        Way::Own(_) => Arc::new(ids.clone()),
        Way::Through(_) => Arc::new(MintedConnectionIds(membership.connection_ids(0))),
    };
    let mut division = match &way {
        Way::Own(_) => Division::new(&config)?,
        Way::Through(_) => Division::minted(workers, membership.connection_ids(0)),
    };
    let mut links = Vec::with_capacity(workers);
    for mut inlet in inlets {
        let link = match (inlet.take_socket(), &way) {
            (_, Way::Through(at)) => Link::through(Box::new(inlet), *at, &config.udp)?,
            (Some(own), Way::Own(_)) => {
                division = division.steered(ids.clone());
                Link::beside(own, Box::new(inlet), &config.udp)?
            }
            (None, Way::Own(socket)) => {
                Link::behind(socket.try_clone()?, Box::new(inlet), &config.udp)?
            }
        };
        links.push(link);
    }
    let core = endpoint_on(links, config, division, None)?;
    core.join(membership, switch);
    Ok(core)
}

fn no_options() -> io::Error {
    let text = "the switch keeps the address's socket to itself, and options of UDP or IP are its own: leave them out";
    io::Error::new(io::ErrorKind::Unsupported, text)
}

/// Whether the socket of an address that programs share has an option. It has those of the program that bound it, and
/// they concern the packets of all.
pub(crate) fn check_option(option: &UdpOption, socket: SockRef<'_>) -> io::Result<()> {
    if option.is_set(socket)? {
        return Ok(());
    }
    let text = "the address is shared through the switch, and its socket has another value of an option of UDP or \
                IP: the program that binds it first sets that, before bind, for all";
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

impl Core {
    /// Has the switch hand over clients that want these protocols, if the endpoint shares its address.
    /// `shared`: others may have the very same ones.
    pub(crate) fn register(&self, alpn: &[Vec<u8>], shared: bool) -> io::Result<()> {
        let Some(switch) = self.switch_config() else { return Ok(()) };
        self.serve_through_switch(what_is_served(alpn, shared, &switch))
    }
}

/// What the switch is told of a listener.
fn what_is_served(alpn: &[Vec<u8>], shared: bool, switch: &SwitchConfig) -> Serve {
    Serve {
        protocols: alpn.iter().cloned().map(Octets).collect(),
        server_names: switch.server_names.clone(),
        shared: shared || switch.share_names,
        replace: switch.replace,
        upgrades: switch.upgrade.is_some(),
        drain_seconds: switch.drain.map(|time| {
            let seconds = time.as_nanos().div_ceil(1_000_000_000);
            u32::try_from(seconds).unwrap_or(u32::MAX)
        }),
    }
}
