//! The addresses to listen on, over UDP and TCP.

use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use quicket::tokio::Endpoint;
use quicket::{BindError, EndpointConfig, MAX_SOCKETS, Workers};
use quicket_front::Handed;
use tokio::net::TcpListener;

use crate::args::Serve;
use crate::exit::{Failure, Kind};

/// Where a server listens that is not told where.
const DEFAULT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 4433);
/// How often a free port that TCP and UDP share is looked for.
const PORT_ATTEMPTS: usize = 20;

/// Whether files are to be had over TCP, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tcp {
    No,
    /// Where the port can be had.
    IfFree,
    Must,
}

/// What is served at a TCP port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Files,
    /// The way to HTTPS.
    Redirect,
}

/// Where to listen.
pub(super) struct Place {
    addresses: Vec<SocketAddr>,
    /// The socket of the one address, if a service manager has handed it over.
    udp: Option<UdpSocket>,
    tcp: Tcp,
    /// With plain HTTP, over TCP.
    redirect: Vec<SocketAddr>,
    handed: Handed,
    /// The one that has the addresses now gives them up.
    replaces: bool,
}

/// What listens.
pub(super) struct Bound {
    pub(super) endpoint: Endpoint,
    /// In the order of the flags.
    pub(super) addresses: Vec<SocketAddr>,
    /// At the same addresses, or at some of them.
    pub(super) tcp: Vec<TcpListener>,
    pub(super) redirects: Vec<TcpListener>,
    /// Those whose TCP port the generation before still has, whether sockets there leave IPv4 to others, and what for.
    pub(super) awaited: Vec<(SocketAddr, bool, What)>,
    /// What is left out, and why.
    pub(super) warnings: Vec<String>,
}

impl Place {
    /// As the flags say, or the service manager.
    pub(super) fn of(args: &Serve) -> Result<Self, Failure> {
        let (mut handed, is_inherited) = handed()?;
        check("redirect", &args.redirect)?;
        let must = args.tcp || !args.redirect.is_empty();
        let (udp, addresses) = match is_inherited {
            true => (None, args.listen.clone()),
            false => match of_manager(&mut handed, !args.listen.is_empty())? {
                Some((socket, address)) => (Some(socket), vec![address]),
                None if args.listen.is_empty() => (None, vec![DEFAULT]),
                None => (None, args.listen.clone()),
            },
        };
        check("listen", &addresses)?;
        check_port(args, &addresses)?;
        if let Some(address) =
            args.redirect.iter().find(|it| it.port() != 0 && addresses.contains(it))
        {
            let message =
                format!("--redirect {address} is where HTTPS is: take another port, such as 80");
            return Err(Failure::new(Kind::Usage, message));
        }
        let is_handed = udp.is_some() && addresses.iter().all(|&at| handed.has_tcp(at));
        let tcp = match (args.no_tcp, must || is_handed) {
            (true, _) => Tcp::No,
            (false, true) => Tcp::Must,
            (false, false) if udp.is_some() || is_apart(args) => Tcp::No,
            (false, false) => Tcp::IfFree,
        };
        let redirect = args.redirect.clone();
        Ok(Self { addresses, udp, tcp, redirect, handed, replaces: replaces(args) })
    }

    /// The addresses, as far as they are known.
    pub(super) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// What a next generation has to be told, which gets no sockets from the service manager.
    pub(super) fn flags(&self) -> Vec<OsString> {
        let Some((_, address)) = self.udp.as_ref().zip(self.addresses.first()) else {
            return Vec::new();
        };
        let only_udp = (self.tcp == Tcp::No).then(|| "--no-tcp".into());
        [format!("--listen={address}").into()].into_iter().chain(only_udp).collect()
    }

    /// Binds all addresses to one endpoint, and over TCP; all that cannot be had are told of together.
    pub(super) async fn bind(mut self, mut config: EndpointConfig) -> Result<Bound, Failure> {
        // Linux gives an address of IPv4 to one socket only.
        config.udp.only_v6 = only_v6(&self.addresses);
        let mut endpoint: Option<Endpoint> = None;
        let (mut addresses, mut tcp, mut left_out) = (Vec::new(), Vec::new(), Vec::new());
        let mut refused = Vec::new();
        for wanted in self.addresses.clone() {
            match self.bind_one(wanted, &mut endpoint, &config).await? {
                (Ok(address), listener) => {
                    addresses.push(address);
                    match listener {
                        None => {}
                        Some(Ok(listener)) => tcp.push(listener),
                        Some(Err(error)) => left_out.push((address, error)),
                    }
                }
                (Err(error), _) => refused.push(error),
            }
        }
        let (mut awaited, mut warnings) = (Vec::new(), Vec::new());
        for (address, error) in left_out {
            let is_in_use = error.kind() == io::ErrorKind::AddrInUse;
            match self.tcp {
                _ if self.replaces && is_in_use => {
                    awaited.push((address, config.udp.only_v6, What::Files));
                }
                Tcp::IfFree => warnings.push(cannot_listen(address, &error)),
                _ => refused.push(cannot_listen(address, &error)),
            }
        }
        let (mut redirects, only) = (Vec::new(), only_v6(&self.redirect));
        for address in self.redirect.clone() {
            match self.listen(address, only) {
                Ok(listener) => redirects.push(listener),
                Err(error) if self.replaces && error.kind() == io::ErrorKind::AddrInUse => {
                    awaited.push((address, only, What::Redirect));
                }
                Err(error) => refused.push(cannot_redirect(address, &error)),
            }
        }
        let Some(endpoint) = endpoint.filter(|_| refused.is_empty()) else {
            return Err(Failure::new(Kind::Environment, refused.join("\n")));
        };
        if let Some(left) = self.handed.left() {
            let message = format!(
                "the service manager hands over a socket of {left}, for which there is no use: give it \
                 ListenStream= with the address of ListenDatagram=, or of a --redirect"
            );
            return Err(Failure::new(Kind::Usage, message));
        }
        Ok(Bound { endpoint, addresses, tcp, redirects, awaited, warnings })
    }

    /// Binds one address; over TCP first, which says the port where there is none. The outer error is of a socket that was
    /// handed over.
    async fn bind_one(
        &mut self,
        wanted: SocketAddr,
        endpoint: &mut Option<Endpoint>,
        config: &EndpointConfig,
    ) -> Result<(Result<SocketAddr, String>, Option<io::Result<TcpListener>>), Failure> {
        if let Some(socket) = self.udp.take() {
            *endpoint =
                Some(Endpoint::from_socket(socket, config.clone()).await.map_err(unusable)?);
            let listener = (self.tcp != Tcp::No).then(|| self.listen(wanted, config.udp.only_v6));
            return Ok((Ok(wanted), listener));
        }
        let mut attempt = 0;
        loop {
            attempt += 1;
            let listener = (self.tcp != Tcp::No).then(|| self.listen(wanted, config.udp.only_v6));
            let bound = listener.as_ref().and_then(|it| it.as_ref().ok()?.local_addr().ok());
            let address = bound.unwrap_or(wanted);
            let result = match &*endpoint {
                Some(endpoint) => endpoint.also_bind(address),
                None => Endpoint::bind_with(address, config.clone()).await.map(|first| {
                    let address = first.local_addr();
                    *endpoint = Some(first);
                    address
                }),
            };
            match result {
                Ok(address) => return Ok((Ok(address), listener)),
                // The port that is free over TCP may be taken over UDP.
                Err(_) if address != wanted && attempt < PORT_ATTEMPTS => {}
                Err(error) => return Ok((Err(cannot_bind(&error)), listener)),
            }
        }
    }

    fn listen(&mut self, address: SocketAddr, only_v6: bool) -> io::Result<TcpListener> {
        let bind = || quicket_front::listen(address, only_v6);
        self.handed.tcp(address).unwrap_or_else(bind)
    }
}

impl Bound {
    /// Other descriptors of all listeners, for the next generation. The UDP sockets reach it by the switch.
    #[cfg(target_os = "linux")]
    pub(super) fn heritage(&self) -> Result<Vec<std::os::fd::OwnedFd>, Failure> {
        use std::os::fd::AsFd;
        let listeners = self.tcp.iter().chain(&self.redirects);
        let shared = listeners.map(|listener| listener.as_fd().try_clone_to_owned());
        shared.collect::<Result<_, _>>().map_err(|error: io::Error| {
            Failure::environment("the sockets cannot be kept for the next generation", error)
        })
    }
}

/// True if sockets of IPv6 must leave IPv4 to others.
fn only_v6(addresses: &[SocketAddr]) -> bool {
    addresses.iter().any(SocketAddr::is_ipv4)
}

/// Whether others may have the TCP port with as much right, or the address is not the system's.
#[cfg(target_os = "linux")]
fn is_apart(args: &Serve) -> bool {
    !args.sharing.server_name.is_empty() || args.port.is_wanted()
}

#[cfg(not(target_os = "linux"))]
fn is_apart(args: &Serve) -> bool {
    args.port.is_wanted()
}

#[cfg(target_os = "linux")]
const fn replaces(args: &Serve) -> bool {
    args.sharing.replace
}

#[cfg(not(target_os = "linux"))]
const fn replaces(_: &Serve) -> bool {
    false
}

fn unusable(error: io::Error) -> Failure {
    Failure::environment("the sockets that were handed over cannot be used", error)
}

/// Sockets that this process was given at its start, and whether they are those of the generation before.
#[cfg(target_os = "linux")]
fn handed() -> Result<(Handed, bool), Failure> {
    let is_successor = std::env::var_os(crate::notify::SUCCESSOR).is_some();
    let handed = match is_successor {
        true => crate::heritage::take().and_then(Handed::inherited),
        false => quicket_switch::activation::sockets().and_then(Handed::new),
    };
    Ok((handed.map_err(unusable)?, is_successor))
}

#[cfg(not(target_os = "linux"))]
fn handed() -> Result<(Handed, bool), Failure> {
    Ok((Handed::default(), false))
}

/// The UDP socket of a service manager, if it hands over any socket.
fn of_manager(
    handed: &mut Handed,
    is_told_where: bool,
) -> Result<Option<(UdpSocket, SocketAddr)>, Failure> {
    if handed.left().is_none() {
        return Ok(None);
    }
    let socket = handed.any_udp();
    let Some(socket) = socket.filter(|_| !handed.has_udp() && !is_told_where) else {
        let message = "the service manager hands over sockets: give it one ListenDatagram= ([::]:PORT \
                       stands for all addresses), for TCP a ListenStream= with the same address, and no \
                       --listen to the server";
        return Err(Failure::new(Kind::Usage, message));
    };
    let address = socket.local_addr().map_err(unusable)?;
    Ok(Some((socket, address)))
}

/// A port of the switch for packets has one address, and one reader.
fn check_port(args: &Serve, addresses: &[SocketAddr]) -> Result<(), Failure> {
    if !args.port.is_wanted() {
        return Ok(());
    }
    let usage = |why: &str| Err(Failure::new(Kind::Usage, why));
    #[cfg(target_os = "linux")]
    if args.sharing.switch {
        return usage(
            "--port-of and --switch are two ways: a port of the switch for packets belongs to one program",
        );
    }
    if !matches!(args.workers, Workers::Count(1)) {
        return usage("--port-of goes with one worker: leave out --workers");
    }
    if addresses.iter().any(|address| address.ip().is_unspecified()) {
        return usage(
            "--port-of takes one address of this host, not all: --listen names it, such as 127.0.0.1:4433",
        );
    }
    Ok(())
}

fn check(flag: &str, wanted: &[SocketAddr]) -> Result<(), Failure> {
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
            return Err(Failure::new(Kind::Usage, format!("--{flag} {address} is given twice")));
        }
    }
    Ok(())
}

/// Why there is no socket of UDP, and what can be done.
fn cannot_bind(error: &BindError) -> String {
    let (address, io) = (error.address(), error.io_error());
    match io.kind() {
        io::ErrorKind::AddrInUse => {
            let (ip, port) = (address.ip(), address.port());
            format!(
                "UDP port {port} of {ip} is in use, perhaps by another quicket serve; ss -lunp 'sport = \
                 :{port}' says by which program. Choose another port with --listen (0 stands for any \
                 free one)",
            )
        }
        _ => cannot("UDP", address, io, error.is_low_port()).unwrap_or_else(|| error.to_string()),
    }
}

/// The same for TCP.
fn cannot_listen(address: SocketAddr, error: &io::Error) -> String {
    let why = cannot_have(address, error);
    format!("{why}. Choose another port with --listen, or leave TCP out with --no-tcp")
}

fn cannot_redirect(address: SocketAddr, error: &io::Error) -> String {
    format!("{}. Choose another address with --redirect", cannot_have(address, error))
}

fn cannot_have(address: SocketAddr, error: &io::Error) -> String {
    let (ip, port) = (address.ip(), address.port());
    match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "TCP port {port} of {ip} is in use; ss -ltnp 'sport = :{port}' says by which program"
        ),
        _ => cannot("TCP", address, error, (1..1024).contains(&port))
            .unwrap_or_else(|| format!("cannot listen on TCP port {port} of {ip}: {error}")),
    }
}

/// What is the same for both.
fn cannot(
    protocol: &str,
    address: SocketAddr,
    error: &io::Error,
    is_low_port: bool,
) -> Option<String> {
    let (ip, port) = (address.ip(), address.port());
    Some(match error.kind() {
        io::ErrorKind::PermissionDenied if is_low_port => format!(
            "{protocol} port {port} of {ip} is not for everybody: ports below 1024 need root, or the \
             capability CAP_NET_BIND_SERVICE; or choose another with --listen",
        ),
        io::ErrorKind::PermissionDenied => {
            format!("{protocol} port {port} of {ip} cannot be had: {error}")
        }
        io::ErrorKind::AddrNotAvailable => format!(
            "{ip} is no address of this machine; ip address lists those that are, and --listen \
             '[::]:{port}' takes all",
        ),
        _ => return None,
    })
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
