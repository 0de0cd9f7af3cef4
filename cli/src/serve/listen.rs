//! The addresses to listen on.

use std::io;
use std::net::SocketAddr;

use quicket::tokio::Endpoint;
use quicket::{BindError, EndpointConfig, MAX_SOCKETS};

use crate::exit::{Failure, Kind};

/// Binds all addresses to one endpoint; all that cannot be had are told of together. The addresses
/// are those that were bound, in order.
pub(super) async fn bind(
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
        io::ErrorKind::PermissionDenied => format!(
            "UDP port {port} of {ip} is not for everybody: ports below 1024 need root, or the \
             capability CAP_NET_BIND_SERVICE; or choose another with --listen",
        ),
        io::ErrorKind::AddrNotAvailable => format!(
            "{ip} is no address of this machine; ip address lists those that are, and --listen \
             '[::]:{port}' takes all",
        ),
        _ => error.to_string(),
    }
}
