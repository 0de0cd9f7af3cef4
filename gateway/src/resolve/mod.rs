//! Addresses of the names that a file has, and for how long they count.
//!
//! DNS is asked, as it says how long an answer holds: the name servers of the file, or the system's. What these do not
//! know, and names of the hosts file, the system resolves as for every other program: by mDNS, and what else it is set up with. It
//! does not say how long that holds.

mod names;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
    ServerOrderingStrategy,
};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::Name;
use hickory_resolver::{TokioResolver, system_conf};

use self::names::MAX_ADDRESSES;
pub(crate) use self::names::Names;

/// The most name servers of a file.
pub(crate) const MAX_SERVERS: usize = 8;
/// How long a name server of the file may take, each time that it is asked.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How often a name server is asked again that is silent.
const ATTEMPTS: usize = 2;
/// How long all name servers may take.
const LIMIT: Duration = Duration::from_secs(20);
/// The system's name servers.
const SYSTEM: &str = "/etc/resolv.conf";
const HOSTS: &str = "/etc/hosts";
/// The largest of these files that counts, in bytes.
const MAX_FILE: u64 = 16 << 20;

/// How names are resolved.
#[derive(Clone, Debug)]
pub(crate) struct Resolve {
    pub(crate) resolver: Arc<Resolver>,
    /// The longest that an answer counts, if the file says so.
    pub(crate) most: Option<Duration>,
}

impl Default for Resolve {
    fn default() -> Self {
        Self { resolver: Arc::new(Resolver::new(Vec::new())), most: None }
    }
}

impl PartialEq for Resolve {
    fn eq(&self, other: &Self) -> bool {
        (&self.resolver.servers, self.most) == (&other.resolver.servers, other.most)
    }
}

/// What knows addresses of names.
#[derive(Debug)]
pub(crate) struct Resolver {
    /// Name servers of the file; none if the system's are to be asked.
    servers: Vec<SocketAddr>,
    /// What asks them. The system's are looked for again when its file has changed.
    asking: Mutex<Option<(Stamp, TokioResolver)>>,
}

/// Addresses of a name.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    addresses: Vec<SocketAddr>,
    /// How long they hold, if that was said.
    ttl: Option<Duration>,
}

/// Tells whether a file has changed: when, and its length.
type Stamp = Option<(SystemTime, u64)>;

impl Resolver {
    pub(crate) const fn new(servers: Vec<SocketAddr>) -> Self {
        Self { servers, asking: Mutex::new(None) }
    }

    async fn find(self: &Arc<Self>, host: &str) -> io::Result<Found> {
        if is_localhost(host) {
            return system(host).await;
        }
        if !self.servers.is_empty() {
            return ask(&self.asks(None, || Ok(of_file(&self.servers)))?, host).await;
        }
        // Files are read by a thread that may wait.
        let (own, name) = (Arc::clone(self), host.to_owned());
        let dns = tokio::task::spawn_blocking(move || own.system_dns(&name));
        if let Ok(Some(dns)) = dns.await
            && let Ok(found) = ask(&dns, host).await
        {
            return Ok(found);
        }
        system(host).await
    }

    /// What asks the system's name servers, if there are any and a name is not one of the hosts file.
    fn system_dns(&self, host: &str) -> Option<TokioResolver> {
        if read(HOSTS).is_some_and(|hosts| has_host(&hosts, host)) {
            return None;
        }
        let stamp =
            std::fs::metadata(SYSTEM).and_then(|file| Ok((file.modified()?, file.len()))).ok();
        let of_system = || {
            let text = read(SYSTEM).ok_or(io::ErrorKind::NotFound)?;
            let (config, mut options) =
                system_conf::parse_resolv_conf(text).map_err(io::Error::other)?;
            // As the system does: one after the other, in the order of the file (resolv.conf(5)).
            options.server_ordering_strategy = ServerOrderingStrategy::UserProvidedOrder;
            options.num_concurrent_reqs = 1;
            Ok((config, options))
        };
        self.asks(stamp, of_system).ok()
    }

    /// What asks name servers; they are read where nothing is known of them, or `stamp` is another one.
    fn asks(
        &self,
        stamp: Stamp,
        read: impl FnOnce() -> io::Result<(ResolverConfig, ResolverOpts)>,
    ) -> io::Result<TokioResolver> {
        let mut asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, resolver)) = &*asking
            && *known == stamp
        {
            return Ok(resolver.clone());
        }
        let (config, mut options) = read()?;
        // Each answer is to say what is left of its time; those who ask keep it. The hosts file counts where it is asked
        // for, and as it is then.
        (options.cache_size, options.use_hosts_file) = (0, ResolveHosts::Never);
        let provider = TokioRuntimeProvider::default();
        let builder = TokioResolver::builder_with_config(config, provider).with_options(options);
        let resolver = builder.build().map_err(io::Error::other)?;
        *asking = Some((stamp, resolver.clone()));
        Ok(resolver)
    }
}

/// The name servers of a file, and how they are asked.
fn of_file(servers: &[SocketAddr]) -> (ResolverConfig, ResolverOpts) {
    let servers = servers.iter().map(|server| {
        let ways = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut way| {
            way.port = server.port();
            way
        });
        NameServerConfig::new(server.ip(), true, ways.to_vec())
    });
    let config = ResolverConfig::from_parts(None, Vec::new(), servers.collect());
    let mut options = ResolverOpts::default();
    (options.timeout, options.attempts) = (TIMEOUT, ATTEMPTS);
    (config, options)
}

async fn ask(dns: &TokioResolver, host: &str) -> io::Result<Found> {
    // Names with characters that no host should have are looked up as they are: others have them.
    let name = match host.is_ascii() {
        true => Name::from_ascii(host),
        false => Name::from_utf8(host),
    };
    let name = name.map_err(io::Error::other)?;
    let answer = tokio::time::timeout(LIMIT, dns.lookup_ip(name)).await;
    let answer = answer.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?;
    let answer = answer.map_err(io::Error::other)?;
    // Each name on the way to the addresses holds for as long as it says, too.
    let ttl = answer.as_lookup().answers().iter().map(|record| record.ttl).min();
    // Of as many as count of each family, those that can be reached come first; an answer may have thousands.
    let (mut four, mut six): (Vec<_>, Vec<_>) = answer.iter().partition(IpAddr::is_ipv4);
    let has_both = !four.is_empty() && !six.is_empty();
    four.truncate(MAX_ADDRESSES);
    six.truncate(MAX_ADDRESSES);
    let mut addresses = [six, four].concat();
    if addresses.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
    }
    if has_both {
        addresses.sort_by_cached_key(|&address| !is_reachable(address));
    }
    let addresses = addresses.into_iter().map(|ip| (ip, 0).into()).collect();
    Ok(Found { addresses, ttl: ttl.map(|ttl| Duration::from_secs(ttl.into())) })
}

/// As for every other program.
async fn system(host: &str) -> io::Result<Found> {
    let found = tokio::net::lookup_host((host, 0)).await?;
    // With the scope of an address that is link-local.
    let addresses: Vec<_> = found.collect();
    match addresses.is_empty() {
        true => Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address")),
        false => Ok(Found { addresses, ttl: None }),
    }
}

/// Whether there is a route to an address (RFC 6724, Section 6, Rule 1). Nothing is sent.
fn is_reachable(address: IpAddr) -> bool {
    let any: SocketAddr = match address {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    UdpSocket::bind(any).and_then(|socket| socket.connect((address, 53))).is_ok()
}

/// Names of this host are never asked for (RFC 6761, Section 6.3).
fn is_localhost(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    host.rsplit('.').next().is_some_and(|last| last.eq_ignore_ascii_case("localhost"))
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    use std::io::Read;
    let mut bytes = Vec::new();
    std::fs::File::open(path).ok()?.take(MAX_FILE).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Whether a hosts file has a name (hosts(5)).
fn has_host(hosts: &str, host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    hosts.lines().any(|line| {
        let said = line.split('#').next().unwrap_or_default();
        said.split_whitespace().skip(1).any(|name| name.eq_ignore_ascii_case(host))
    })
}

#[cfg(test)]
#[path = "resolve_tests.rs"]
mod tests;
