//! Where a server is to be found, as it tells people, other programs and the service manager.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quicket::Fingerprint;
use tokio::net::TcpListener;

use super::Site;
use super::listen::Bound;
use super::log::say;
use crate::args::Serve;
use crate::out::tell;

/// What there is to tell, which becomes more when ports come that were awaited.
pub(super) struct Announcement {
    dir: String,
    site: Arc<Site>,
    workers: usize,
    /// The fingerprint that clients need where they cannot know the certificate otherwise.
    pin: Option<Fingerprint>,
    /// The name that clients have to ask for: others may be another program's.
    name: Option<String>,
    at: Mutex<At>,
}

struct At {
    /// The switch for packets, if the addresses are those of ports there.
    port_of: Option<String>,
    addresses: Vec<SocketAddr>,
    /// Those at which there is TCP.
    tcp: Vec<SocketAddr>,
    /// Plain HTTP.
    redirects: Vec<SocketAddr>,
}

impl At {
    fn line(&self, dir: &str) -> String {
        let by = self.port_of.as_ref().map(|switch| format!(" by a port of the switch {switch}"));
        let and = if self.tcp.is_empty() { "" } else { " and TCP" };
        format!("Serving {dir} on {} (UDP{}{and})", list(&self.addresses), by.unwrap_or_default())
    }

    fn plain(&self) -> Option<String> {
        (!self.redirects.is_empty())
            .then(|| format!("plain HTTP on {} leads there", list(&self.redirects)))
    }
}

fn list(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(", ")
}

fn of(listeners: &[TcpListener]) -> Vec<SocketAddr> {
    listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect()
}

/// The name that clients have to ask for where others may be another program's at the same address.
fn asked_for(args: &Serve) -> Option<String> {
    #[cfg(target_os = "linux")]
    let names = &args.sharing.server_name;
    #[cfg(not(target_os = "linux"))]
    let names: &Vec<String> = &Vec::new();
    let whole = names.iter().find(|name| !name.starts_with('*'));
    // One of those that *.NAME stands for.
    whole.or(names.first()).map(|name| name.replacen('*', "www", 1))
}

/// What a client on this host is given to find the server: by the same switch for packets, if it is at one.
fn way(address: SocketAddr, name: Option<&str>, port_of: Option<&str>) -> String {
    if let Some(switch) = port_of {
        return format!("--port-of {switch} {}", way(address, name, None));
    }
    let Some(name) = name else {
        // Nobody can connect to "any address".
        return match address.ip().is_unspecified() {
            true => format!("https://localhost:{}/", address.port()),
            false => format!("https://{address}/"),
        };
    };
    let here = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    let at = SocketAddr::new(here, address.port());
    match address.port() {
        443 => format!("--connect {at} https://{name}/"),
        port => format!("--connect {at} https://{name}:{port}/"),
    }
}

impl Announcement {
    pub(super) fn new(
        args: &Serve,
        site: &Arc<Site>,
        bound: &Bound,
        pin: Option<Fingerprint>,
    ) -> Arc<Self> {
        let (addresses, workers) = (bound.addresses.clone(), bound.endpoint.worker_stats().len());
        let (tcp, redirects) = (of(&bound.tcp), of(&bound.redirects));
        let port_of = args.port.name().map(str::to_owned);
        let at = Mutex::new(At { port_of, addresses, tcp, redirects });
        let (dir, site) = (args.dir.display().to_string(), Arc::clone(site));
        let name = asked_for(args);
        Arc::new(Self { dir, site, workers, pin, name, at })
    }

    fn at(&self) -> MutexGuard<'_, At> {
        self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the server does, in a line.
    pub(super) fn state(&self) -> String {
        let at = self.at();
        let plain = at.plain().map(|plain| format!("; {plain}"));
        at.line(&self.dir) + &plain.unwrap_or_default()
    }

    /// Says where to find what.
    pub(super) fn all(&self, args: &Serve, warnings: &[String]) {
        #[cfg(target_os = "linux")]
        crate::notify::ready(&self.state());
        let at = self.at();
        for &address in &at.addresses {
            let tcp = at.tcp.contains(&address);
            self.site.events.listening((address, tcp), self.workers, self.pin);
        }
        for &address in &at.redirects {
            self.site.events.redirecting(address);
        }
        for warning in warnings {
            say(format_args!("Warning: no HTTP/2 and HTTP/1.1 there: {warning}"));
        }
        if args.json {
            // Another program started this one.
            return;
        }
        let workers = self.workers;
        let with = if workers > 1 { format!(", with {workers} workers") } else { String::new() };
        let spoken = match at.tcp.is_empty() {
            false => "HTTP/3, HTTP/2, HTTP/1.1 and hq-interop",
            true => "HTTP/3 and hq-interop",
        };
        tell!("{}, {spoken}{with}", at.line(&self.dir));
        if let Some(plain) = at.plain() {
            tell!("Redirecting: {plain}");
        }
        if let (Some(pin), Some(address)) = (self.pin, at.addresses.first()) {
            let shown = way(*address, self.name.as_deref(), at.port_of.as_deref());
            tell!(
                "The certificate is self-signed. A client trusts exactly this one with:\n\n  quicket \
                 get --pin {pin} {shown}\n"
            );
        }
    }

    /// The TCP port of an address has come, which was awaited.
    pub(super) fn has_tcp(&self, address: SocketAddr) {
        self.at().tcp.push(address);
        self.site.events.listening((address, true), self.workers, self.pin);
        say(format_args!("HTTP/2 and HTTP/1.1 on {address}, from now on"));
        self.tell_manager();
    }

    /// The same, for plain HTTP.
    pub(super) fn has_redirect(&self, address: SocketAddr) {
        self.at().redirects.push(address);
        self.site.events.redirecting(address);
        say(format_args!("Plain HTTP on {address}, from now on"));
        self.tell_manager();
    }

    fn tell_manager(&self) {
        #[cfg(target_os = "linux")]
        crate::notify::status(&self.state());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_led_to_the_address_and_the_name() {
        let way = |address: &str, name| way(address.parse().unwrap(), name, None);
        assert_eq!(way("127.0.0.1:4433", None), "https://127.0.0.1:4433/");
        assert_eq!(way("[::]:443", None), "https://localhost:443/");
        let named = Some("a.example");
        assert_eq!(way("[::]:443", named), "--connect [::1]:443 https://a.example/");
        assert_eq!(way("0.0.0.0:444", named), "--connect 127.0.0.1:444 https://a.example:444/");
        assert_eq!(way("192.0.2.1:443", named), "--connect 192.0.2.1:443 https://a.example/");
    }

    #[test]
    fn a_port_is_named_with_its_switch() {
        let address: SocketAddr = "127.0.0.1:4433".parse().unwrap();
        let switch = Some("./ports");
        assert_eq!(way(address, None, switch), "--port-of ./ports https://127.0.0.1:4433/");
        let named = way(address, Some("a.example"), switch);
        assert_eq!(named, "--port-of ./ports --connect 127.0.0.1:4433 https://a.example:4433/");
        let port_of = switch.map(str::to_owned);
        let (addresses, tcp, redirects) = (vec![address], Vec::new(), Vec::new());
        let at = At { port_of, addresses, tcp, redirects };
        let line = "Serving a on 127.0.0.1:4433 (UDP by a port of the switch ./ports)";
        assert_eq!(at.line("a"), line);
    }
}
