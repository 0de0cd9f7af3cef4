//! The sockets of a gateway's addresses.

use std::net::SocketAddr;

use quicket::tokio::Endpoint;
use quicket::{BindError, EndpointConfig, SwitchConfig};
use quicket_front::Handed;
use tokio::net::TcpListener;

use crate::snapshot::Snapshot;
use crate::start_error::StartError;

/// How often a free port that TCP and UDP share is looked for.
const PORT_ATTEMPTS: usize = 20;

/// Binds each address over UDP, and over TCP if there is something for it. Behind the switch each has an endpoint of its own, and its part of the
/// memory.
pub(crate) async fn both(
    snapshot: &Snapshot,
    mut config: EndpointConfig,
    handed: &mut Handed,
) -> Result<(Vec<Endpoint>, Vec<SocketAddr>, Vec<TcpListener>), StartError> {
    let only_v6 = only_v6(&snapshot.listen);
    config.udp.only_v6 = only_v6;
    if config.switch.is_some() {
        config.memory /= snapshot.listen.len().max(1);
    }
    let mut endpoints: Vec<Endpoint> = Vec::new();
    let (mut addresses, mut listeners) = (Vec::new(), Vec::new());
    for &address in &snapshot.listen {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let listener =
                snapshot.has_tcp().then(|| listen_tcp(address, only_v6, handed)).transpose()?;
            let bound = listener.as_ref().map_or(Ok(address), TcpListener::local_addr);
            let bound = bound.map_err(|error| StartError::Tcp(address, error))?;
            let udp = match endpoints.first() {
                Some(endpoint) if config.switch.is_none() => {
                    endpoint.also_bind(bound).map(|at| (at, None))
                }
                before => own(bound, of_address(&config, before.is_none()), handed)
                    .await?
                    .map(|endpoint| (endpoint.local_addr(), Some(endpoint))),
            };
            match udp {
                Ok((at, own)) => {
                    endpoints.extend(own);
                    addresses.push(at);
                    listeners.extend(listener);
                    break;
                }
                // Port 0: the one that is free over TCP may be taken over UDP.
                Err(_) if address.port() == 0 && attempt < PORT_ATTEMPTS => {}
                Err(error) => return Err(StartError::Udp(error)),
            }
        }
    }
    // A snapshot has one address at least.
    match endpoints.is_empty() {
        true => Err(StartError::OtherAddresses),
        false => Ok((endpoints, addresses, listeners)),
    }
}

/// Of an endpoint at the first address, or at another one.
fn of_address(config: &EndpointConfig, is_first: bool) -> EndpointConfig {
    let mut own = config.clone();
    if !is_first {
        own.switch = own.switch.map(SwitchConfig::at_further_address);
    }
    own
}

/// An endpoint at an address, with the socket that was handed over for it, if there is one.
async fn own(
    address: SocketAddr,
    config: EndpointConfig,
    handed: &mut Handed,
) -> Result<Result<Endpoint, BindError>, StartError> {
    let Some(socket) = handed.udp(address) else {
        return Ok(Endpoint::bind_with(address, config).await);
    };
    Endpoint::from_socket(socket, config).await.map(Ok).map_err(StartError::Handed)
}

/// True if sockets of IPv6 must leave IPv4 to others (RFC 3493, Section 5.3): Linux gives an address of IPv4 to
/// one socket only.
pub(crate) fn only_v6(addresses: &[SocketAddr]) -> bool {
    addresses.iter().any(SocketAddr::is_ipv4)
}

pub(crate) fn listen_tcp(
    address: SocketAddr,
    only_v6: bool,
    handed: &mut Handed,
) -> Result<TcpListener, StartError> {
    let listener = handed.tcp(address).unwrap_or_else(|| quicket_front::listen(address, only_v6));
    listener.map_err(|error| StartError::Tcp(address, error))
}
