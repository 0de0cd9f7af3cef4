//! The addresses to listen on.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use quicket::tokio::Endpoint;
use quicket::{BindError, EndpointConfig, MAX_SOCKETS};

use crate::exit::{Failure, Kind};

/// Where a server listens that is not told where.
const DEFAULT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 4433);

/// Where to listen.
pub(super) enum Place {
    /// At addresses that are to be bound.
    At(Vec<SocketAddr>),
    /// At the address of a socket that a service manager has handed over.
    Handed(UdpSocket, SocketAddr),
}

impl Place {
    /// As the flags say, or the service manager.
    pub(super) fn of(listen: &[SocketAddr]) -> Result<Self, Failure> {
        let Some(socket) = handed(!listen.is_empty())? else {
            let at = if listen.is_empty() { vec![DEFAULT] } else { listen.to_vec() };
            return Ok(Self::At(at));
        };
        let address = socket.local_addr().map_err(unusable)?;
        Ok(Self::Handed(socket, address))
    }

    /// The addresses, as far as they are known.
    pub(super) fn addresses(&self) -> &[SocketAddr] {
        match self {
            Self::At(addresses) => addresses,
            Self::Handed(_, address) => std::slice::from_ref(address),
        }
    }

    /// The address of a socket that was handed over.
    pub(super) const fn handed(&self) -> Option<SocketAddr> {
        match self {
            Self::At(_) => None,
            Self::Handed(_, address) => Some(*address),
        }
    }

    /// Binds what is to be bound.
    pub(super) async fn bind(
        self,
        config: EndpointConfig,
    ) -> Result<(Endpoint, Vec<SocketAddr>), Failure> {
        match self {
            Self::At(addresses) => bind(&addresses, config).await,
            Self::Handed(socket, address) => {
                let endpoint = Endpoint::from_socket(socket, config).await.map_err(unusable)?;
                Ok((endpoint, vec![address]))
            }
        }
    }
}

fn unusable(error: io::Error) -> Failure {
    Failure::environment(
        "the socket that the service manager has handed over cannot be used",
        error,
    )
}

/// The UDP socket that a service manager has handed over, if there is one.
#[cfg(target_os = "linux")]
fn handed(is_told_where: bool) -> Result<Option<UdpSocket>, Failure> {
    let mut sockets = quicket_switch::activation::sockets().map_err(unusable)?;
    let Some(socket) = sockets.pop() else { return Ok(None) };
    if !sockets.is_empty() || is_told_where {
        let message = "the service manager hands over sockets: give it one ListenDatagram= ([::]:PORT \
                       stands for all addresses), and no --listen to the server";
        return Err(Failure::new(Kind::Usage, message));
    }
    let kind =
        rustix::net::sockopt::socket_type(&socket).map_err(|error| unusable(error.into()))?;
    if kind != rustix::net::SocketType::DGRAM {
        let message = "the service manager hands over a socket that is none of datagrams: give it \
                       ListenDatagram=";
        return Err(Failure::new(Kind::Usage, message));
    }
    Ok(Some(socket.into()))
}

#[cfg(not(target_os = "linux"))]
fn handed(_: bool) -> Result<Option<UdpSocket>, Failure> {
    Ok(None)
}

/// Binds all addresses to one endpoint; all that cannot be had are told of together. The addresses
/// are those that were bound, in order.
async fn bind(
    wanted: &[SocketAddr],
    mut config: EndpointConfig,
) -> Result<(Endpoint, Vec<SocketAddr>), Failure> {
    check(wanted)?;
    // Linux gives an address of IPv4 to one socket only.
    config.udp.only_v6 = wanted.iter().any(SocketAddr::is_ipv4);
    let mut endpoint: Option<Endpoint> = None;
    let (mut bound, mut refused) = (Vec::new(), Vec::new());
    for &address in wanted {
        let result = match &endpoint {
            Some(endpoint) => endpoint.also_bind(address),
            None => Endpoint::bind_with(address, config.clone()).await.map(|first| {
                let address = first.local_addr();
                endpoint = Some(first);
                address
            }),
        };
        match result {
            Ok(address) => bound.push(address),
            Err(error) => refused.push(cannot_bind(&error)),
        }
    }
    match endpoint {
        Some(endpoint) if refused.is_empty() => Ok((endpoint, bound)),
        _ => Err(Failure::new(Kind::Environment, refused.join("\n"))),
    }
}

fn check(wanted: &[SocketAddr]) -> Result<(), Failure> {
    if wanted.len() > MAX_SOCKETS {
        let message = format!(
            "{} addresses are more than the {MAX_SOCKETS} that one server listens on: [::]:PORT \
             stands for all addresses of this machine",
            wanted.len()
        );
        return Err(Failure::new(Kind::Usage, message));
    }
    for (at, address) in wanted.iter().enumerate() {
        if address.port() != 0 && wanted.iter().skip(at + 1).any(|other| other == address) {
            return Err(Failure::new(Kind::Usage, format!("--listen {address} is given twice")));
        }
    }
    Ok(())
}

/// Why there is no socket, and what can be done.
fn cannot_bind(error: &BindError) -> String {
    let (ip, port) = (error.address().ip(), error.address().port());
    match error.io_error().kind() {
        io::ErrorKind::AddrInUse => format!(
            "UDP port {port} of {ip} is in use, perhaps by another quicket serve; ss -lunp 'sport = \
             :{port}' says by which program. Choose another port with --listen (0 stands for any \
             free one)",
        ),
        io::ErrorKind::PermissionDenied if error.is_low_port() => format!(
            "UDP port {port} of {ip} is not for everybody: ports below 1024 need root, or the \
             capability CAP_NET_BIND_SERVICE; or choose another with --listen",
        ),
        io::ErrorKind::PermissionDenied => {
            format!("UDP port {port} of {ip} cannot be had: {}", error.io_error())
        }
        io::ErrorKind::AddrNotAvailable => format!(
            "{ip} is no address of this machine; ip address lists those that are, and --listen \
             '[::]:{port}' takes all",
        ),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_blamed_where_they_are_low_and_nobody_says_otherwise() {
        let says =
            |port, source| cannot_bind(&BindError::new(([127, 0, 0, 1], port).into(), source));
        // EACCES of bind(2).
        let system = || io::Error::from_raw_os_error(rustix::io::Errno::ACCESS.raw_os_error());
        let switch =
            || io::Error::new(io::ErrorKind::PermissionDenied, "this switch is that of user 7");
        assert!(says(443, system()).contains("ports below 1024 need root"));
        for (port, error) in [(0, system()), (8443, system()), (443, switch()), (8443, switch())] {
            let text = error.to_string();
            let said = says(port, error);
            assert!(said.contains(&text) && !said.contains("1024"), "{said}");
        }
    }
}
