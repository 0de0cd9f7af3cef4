//! Making endpoints, with one worker or several.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use quicket_engine::{ReplyRates, RetryPolicy};
use quicket_handshake::{AwsLcProvider, SystemRandom};
use socket2::SockRef;

use crate::config::{EndpointConfig, Workers};
use crate::core::{Core, CoreRef, Link, SharedTokenLog, Switch};
use crate::site::SiteKeys;
use crate::steering::{Division, KernelChoice};
use quicket_udp::{BindError, UdpConfig};

/// Makes an endpoint that nothing drives yet.
pub(crate) fn endpoint(address: SocketAddr, config: EndpointConfig) -> Result<CoreRef, BindError> {
    check_port(&config).map_err(|error| BindError::new(address, error))?;
    if let Some(switch) = config.switch.clone() {
        return super::switched::endpoint(address, config, &switch);
    }
    let refused = |error| BindError::new(address, error);
    let division = Division::new(&config).map_err(refused)?;
    let choice = division.choice(&config.udp);
    let links = bind(address, &config.udp, division.workers(), choice.as_ref())?;
    endpoint_on(links, config, division, choice).map_err(refused)
}

/// Makes an endpoint on a socket that is bound already; further workers bind more.
pub(crate) fn endpoint_from(socket: UdpSocket, config: EndpointConfig) -> io::Result<CoreRef> {
    check_port(&config)?;
    if let Some(switch) = config.switch.clone() {
        return super::switched::endpoint_from(&socket, config, &switch);
    }
    let division = Division::new(&config)?;
    let bound = socket.local_addr()?;
    let given = SockRef::from(&socket);
    if division.workers() > 1 && !given.reuse_port()? {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "an endpoint with {} workers binds as many sockets to {bound}, and the one that it \
                 was given does not share its port: set SO_REUSEPORT on it (ReusePort=yes in a \
                 socket unit of systemd), or have one worker",
                division.workers()
            ),
        ));
    }
    let mut udp = UdpConfig { reuse_port: true, ..config.udp.clone() };
    if bound.is_ipv6() {
        udp.only_v6 = given.only_v6()?;
    }
    let mut links = vec![Link::adopt(socket, &config.udp)?];
    for _ in 1..division.workers() {
        links.push(Link::bind(bound, &udp)?);
    }
    // Others may share the address already, so that the kernel counts sockets otherwise than we do.
    endpoint_on(links, config, division, None)
}

/// An address at the switch for packets belongs to one port, which has one reader.
fn check_port(config: &EndpointConfig) -> io::Result<()> {
    let what = match config.udp.port_of {
        None => return Ok(()),
        Some(_) if config.switch.is_some() => "and shares no address by the switch for connections",
        Some(_) if config.workers.count()? > 1 => "with one worker",
        Some(_) => return Ok(()),
    };
    let text = format!("a port of the switch for packets belongs to one program, {what}");
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

/// Binds a socket for each worker to one address, in the order of the workers' numbers.
///
/// The first one is bound as if it were alone, so that the address is taken if anybody has it, also one
/// who would share it; it shares from then on.
pub(crate) fn bind(
    address: SocketAddr,
    config: &UdpConfig,
    workers: usize,
    choice: Option<&KernelChoice>,
) -> Result<Vec<Link>, BindError> {
    let first = Link::bind(address, config)?;
    let address = SocketAddr::new(address.ip(), first.socket.local_addr().port());
    let mut links = Vec::with_capacity(workers);
    if workers > 1 {
        first.socket.share_port().map_err(|error| BindError::new(address, error))?;
    }
    links.push(first);
    let config = UdpConfig { reuse_port: true, ..config.clone() };
    for _ in 1..workers {
        links.push(Link::bind(address, &config)?);
    }
    // All sockets of the address are bound, and their order is that of the workers.
    if let (Some(choice), Some(link)) = (choice, links.first()) {
        attach(choice, link);
    }
    Ok(links)
}

/// Has the kernel choose among the sockets of the address that one of them is bound to.
pub(crate) fn attach(choice: &KernelChoice, link: &Link) {
    let Some(program) = choice.program() else { return };
    // Without it all goes on, a little slower.
    if let Err(error) = quicket_bpf::attach_reuseport(&link.socket, &program) {
        log::debug!("the kernel chooses among workers by address: {error}");
    }
}

pub(super) fn endpoint_on(
    links: Vec<Link>,
    config: EndpointConfig,
    division: Division,
    choice: Option<KernelChoice>,
) -> io::Result<CoreRef> {
    let count = division.workers();
    let site = SiteKeys::of(&config.protocol);
    let (pass_through, captures) = (config.pass_through.clone(), config.captures.clone());
    let switch =
        Switch::new(count, config.memory, choice, site.clone(), pass_through, captures.clone());
    let tokens = SharedTokenLog::default();
    let mut cores = Vec::with_capacity(count);
    for (number, link) in links.into_iter().enumerate() {
        let mut protocol = config.protocol.clone();
        if let Some(ids) = division.generator(number) {
            protocol.cid_generator = ids;
            divide(&mut protocol, count);
        }
        let mut engine = quicket_engine::Endpoint::new(
            protocol,
            None,
            Arc::new(AwsLcProvider),
            Box::new(SystemRandom::new()),
        );
        if let Some(neighbours) = division.neighbours(number, &switch.pins) {
            engine.set_neighbours(Arc::new(neighbours));
            engine.set_token_log(Box::new(tokens.clone()));
        }
        cores.push(Core::new(link, config.udp.clone(), engine, Arc::clone(&switch), number)?);
    }
    switch.introduce(&cores);
    let first = cores.remove(0);
    first.keep(cores);
    if let Some(site) = &site {
        site.tell(Arc::downgrade(&first));
    }
    if let Some(captures) = &captures {
        captures.attach(&first);
    }
    Ok(CoreRef::new(first))
}

/// What bounds hold for the endpoint as a whole, each worker gets its part of.
fn divide(protocol: &mut quicket_engine::EndpointConfig, workers: usize) {
    protocol.max_incoming = part(protocol.max_incoming, workers);
    protocol.max_incoming_bytes = part(protocol.max_incoming_bytes, workers);
    let rates = protocol.replies_per_second;
    let rate = |whole: u32| part(whole as usize, workers) as u32;
    protocol.replies_per_second = ReplyRates {
        stateless_resets: rate(rates.stateless_resets),
        version_negotiations: rate(rates.version_negotiations),
        retries: rate(rates.retries),
        refusals: rate(rates.refusals),
    };
}

/// The same for when a server asks for proof of addresses.
pub(super) fn divided(policy: RetryPolicy, workers: usize) -> RetryPolicy {
    match policy {
        RetryPolicy::AboveHandshakes(limit) => RetryPolicy::AboveHandshakes(limit / workers.max(1)),
        policy => policy,
    }
}

/// A part of what all workers have together: at least one, if there is any.
fn part(whole: usize, workers: usize) -> usize {
    (whole / workers.max(1)).max(whole.min(1))
}

impl Workers {
    /// How many there are to be.
    ///
    /// # Errors
    ///
    /// For none, and for more than [`MAX_WORKERS`](crate::MAX_WORKERS).
    pub fn count(self) -> io::Result<usize> {
        let most = crate::MAX_WORKERS;
        match self {
            Self::One => Ok(1),
            Self::PerCore => {
                Ok(std::thread::available_parallelism().map_or(1, |cores| cores.get().min(most)))
            }
            Self::Count(count) if (1..=most).contains(&count) => Ok(count),
            Self::Count(count) => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("an endpoint has 1 to {most} workers, not {count}"),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_divided_is_nothing_only_if_it_was() {
        assert_eq!([part(0, 4), part(1, 4), part(9, 4), part(9, 1)], [0, 1, 2, 9]);
        let policy = divided(RetryPolicy::AboveHandshakes(512), 4);
        assert_eq!(policy, RetryPolicy::AboveHandshakes(128));
    }

    #[test]
    fn workers_are_bounded() {
        assert_eq!(Workers::One.count().unwrap(), 1);
        assert!((1..=crate::MAX_WORKERS).contains(&Workers::PerCore.count().unwrap()));
        for wrong in [0, crate::MAX_WORKERS + 1] {
            let error = Workers::Count(wrong).count().unwrap_err().to_string();
            assert!(error.contains("1 to 256"), "{error}");
        }
    }

    #[test]
    fn an_address_that_somebody_would_share_is_taken() {
        let shares = UdpConfig { reuse_port: true, ..UdpConfig::default() };
        let stranger = Link::bind("127.0.0.1:0".parse().unwrap(), &shares).unwrap();
        let address = stranger.socket.local_addr();
        let error = bind(address, &UdpConfig::default(), 2, None).unwrap_err();
        assert_eq!(error.io_error().kind(), io::ErrorKind::AddrInUse);
        // Who wants to share can.
        assert_eq!(bind(address, &shares, 2, None).unwrap().len(), 2);
    }

    #[test]
    fn workers_have_one_address_and_only_they() {
        for address in ["127.0.0.1:0", "[::]:0", "[::1]:0"] {
            let links = bind(address.parse().unwrap(), &UdpConfig::default(), 4, None).unwrap();
            let bound = links[0].socket.local_addr();
            assert!(links.iter().all(|link| link.socket.local_addr() == bound), "{address}");
            let alone = Link::bind(bound, &UdpConfig::default()).unwrap_err();
            assert_eq!(alone.io_error().kind(), io::ErrorKind::AddrInUse);
        }
    }
}
