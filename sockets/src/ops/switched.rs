//! Endpoints behind the switch.

use std::fmt;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;

use quicket_switch::client::{Membership, Place as Seat, Way};
use quicket_switch::options::SocketOptions;
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
    if quicket_switch::client::is_of_another_user(&switch.options)? {
        let text = format!(
            "{address} was bound before it came to this program, and the switch {} is another user's, which binds \
             addresses itself: have no socket unit (ListenDatagram=) for the address, and name it to the program",
            switch.options.name
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
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
    let asked = SocketOptions::of(&config.udp.options);
    let options = asked.unwrap_or_default();
    let seat = Seat { address, only_v6, workers, steered, remains: false, options };
    let family = switch.family.as_ref().map(|(family, said)| (family, *said));
    let (membership, inlets, way) = Membership::join_as(&switch.options, seat, family, bind)?;
    let mut options = config.udp.options.iter();
    match &way {
        Way::Own(socket) => {
            options.try_for_each(|option| check_option(option, SockRef::from(socket)))?;
        }
        // The switch has set the others.
        Way::Through(_) => {
            asked.map_err(no_option)?;
        }
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
            (_, Way::Through(at)) => {
                let link = Link::through(Box::new(inlet), *at, &config.udp)?;
                config.udp.options.iter().for_each(|option| link.socket.note_option(option));
                link
            }
            (Some(own), Way::Own(_)) => {
                division = division.steered(ids.clone());
                Link::beside(own, Box::new(inlet), &config.udp)?
            }
            (None, Way::Own(socket)) => {
                // All comes from the switch, unless it lends a worker the socket.
                division = division.steered(ids.clone());
                inlet.may_borrow(socket)?;
                Link::behind(socket.try_clone()?, Box::new(inlet), &config.udp)?
            }
        };
        links.push(link);
    }
    let core = endpoint_on(links, config, division, None)?;
    core.join(membership, switch);
    Ok(core)
}

/// Has an endpoint that has its address's socket to itself leave that to the switch. Its connections go on: what comes
/// for them, which the switch cannot read, is handed over.
pub(crate) fn remain(core: &Core, switch: &SwitchConfig) -> io::Result<()> {
    if core.remains() {
        return Ok(());
    }
    if core.workers().len() != 1 {
        let text = "an endpoint with several workers has as many sockets, and the switch reads one: have the listener \
                    share its address from the beginning (QUICKET_SWITCH_LISTENERS)";
        return Err(io::Error::new(io::ErrorKind::Unsupported, text));
    }
    let links = core.links();
    let link = links.current().ok_or(io::ErrorKind::NotConnected)?;
    let socket = UdpSocket::from(link.socket.as_fd().try_clone_to_owned()?);
    let address = link.socket.local_addr();
    let only_v6 = address.is_ipv6() && SockRef::from(&socket).only_v6()?;
    let options = SocketOptions::default();
    let seat = Seat { address, only_v6, workers: 1, steered: false, remains: true, options };
    let (membership, inlets, way) =
        Membership::join_as(&switch.options, seat, None, || socket.try_clone())?;
    let (Way::Own(own), Some(inlet)) = (way, inlets.into_iter().next()) else {
        let text = "the switch is another user's, and takes no sockets that programs have bound";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    };
    let link = Link::behind(own, Box::new(inlet), &core.udp_config())?;
    core.change_links(|links, _| Some(links.exchanged(link)));
    core.remain(membership);
    Ok(())
}

/// An option that the socket of a switch of another user never has for this program (ENOPROTOOPT).
#[derive(Debug)]
pub(crate) struct NoSuchOption(&'static str);

impl fmt::Display for NoSuchOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} is not for programs of other users than the switch's, which has the address's socket: leave it out",
            self.0
        )
    }
}

impl std::error::Error for NoSuchOption {}

fn no_option(name: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, NoSuchOption(name))
}

/// Whether the socket of an address that programs share has an option. It has those of the program that bound it, and
/// they concern the packets of all.
pub(crate) fn check_option_of(
    socket: &quicket_udp::UdpSocket,
    option: &UdpOption,
) -> io::Result<()> {
    if socket.sends_by_port() {
        SocketOptions::of(std::slice::from_ref(option)).map_err(no_option)?;
    }
    check_option(option, SockRef::from(socket))
}

fn check_option(option: &UdpOption, socket: SockRef<'_>) -> io::Result<()> {
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
