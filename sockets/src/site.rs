//! The keys of a site, and their rotation while connections live.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

use quicket_engine::crypto::CryptoProvider;
use quicket_engine::{SiteKeys as EngineKeys, TokenKeys};
use quicket_handshake::{AwsLcProvider, TicketKey, TicketKeys};
use quicket_steering::{Configurations, KeyRing, ServerId, SiteSecrets, Tenant};
use quicket_wire::ConnectionId;

use crate::core::Core;
use crate::steering::aes_128;

/// The keys of a site: all servers that stand in for each other, on one host or many.
///
/// They are derived from [`SiteSecrets`], which all of these servers have from one file. With them, clients
/// that come to another server resume their sessions, have proved their addresses, and believe that their
/// connections have ended; connection IDs tell a balancer which host they lead to. Given to an endpoint by
/// [`EndpointConfig::site`](crate::EndpointConfig::site), they are all that it takes.
///
/// [`replace`](Self::replace) rotates them. What is new is made with the current secret from then on, while
/// what was made with the previous one is accepted, and with the next one, since another server may have
/// rotated earlier. Connections get new connection IDs at once: they outlive any number of rotations, if there
/// is time between two for a few round trips. Tickets and tokens outlive one.
///
/// Clones are the same keys.
///
/// ```
/// use quicket::{Endpoint, EndpointConfig, SiteKeys, SiteSecrets};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // As `quicket switch secrets new FILE` writes them.
/// # let mut octet = 0;
/// # let mut random = |out: &mut [u8]| { octet += 1; out.fill(octet) };
/// # let file = SiteSecrets::draw(0, &mut random).to_file();
/// let keys = SiteKeys::new(&SiteSecrets::parse(file.as_bytes())?, "shop");
/// let config = EndpointConfig::default().site(&keys, 7);
/// let endpoint = Endpoint::bind_with("127.0.0.1:0", config)?;
/// // Later, when the file was rotated:
/// keys.replace(&SiteSecrets::parse(file.as_bytes())?);
/// # let _ = endpoint;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SiteKeys(Arc<Shared>);

struct Shared {
    state: RwLock<Arc<State>>,
    tickets: TicketKeys,
    /// Each program has ticket keys of its own: what a client was promised by one is no business of others.
    program: Vec<u8>,
    /// Endpoints that have them.
    endpoints: Mutex<Vec<Weak<Core>>>,
}

/// The keys at a time.
struct State {
    ring: KeyRing,
    configurations: Configurations,
}

impl State {
    fn new(ring: KeyRing) -> Arc<Self> {
        let configurations = ring.configurations(&aes_128);
        let configurations = configurations.expect("a ring has keys of the format of sites");
        Arc::new(Self { ring, configurations })
    }
}

impl SiteKeys {
    /// The keys of a program's servers: `program` is one name for all of them, and other programs of the site
    /// have other session tickets.
    #[must_use]
    pub fn new(secrets: &SiteSecrets, program: &str) -> Self {
        Self::of_ring(ring(secrets), program)
    }

    pub(crate) fn of_ring(ring: KeyRing, program: &str) -> Self {
        let program = program.as_bytes().to_vec();
        let tickets = TicketKeys::new(ticket_keys(&ring, &program));
        let state = RwLock::new(State::new(ring));
        Self(Arc::new(Shared { state, tickets, program, endpoints: Mutex::default() }))
    }

    /// Uses these secrets from now on, in all endpoints that have these keys.
    pub fn replace(&self, secrets: &SiteSecrets) {
        self.replace_ring(ring(secrets));
    }

    pub(crate) fn replace_ring(&self, ring: KeyRing) {
        if self.0.state().ring == ring {
            return;
        }
        self.0.tickets.replace(ticket_keys(&ring, &self.0.program));
        let state = State::new(ring);
        *self.0.state.write().unwrap_or_else(PoisonError::into_inner) = state;
        let endpoints: Vec<_> = {
            let mut all = self.0.endpoints();
            all.retain(|endpoint| endpoint.strong_count() > 0);
            all.iter().filter_map(Weak::upgrade).collect()
        };
        endpoints.iter().for_each(|endpoint| endpoint.take_up_site_keys());
    }

    /// What protects session tickets, for
    /// [`ServerTlsBuilder::common_ticket_keys`](quicket_handshake::ServerTlsBuilder::common_ticket_keys) of
    /// servers on other endpoints. Endpoints of these keys use them by themselves, unless a configuration
    /// has ticket keys of its own.
    #[must_use]
    pub fn ticket_keys(&self) -> TicketKeys {
        self.0.tickets.clone()
    }

    /// The number of the current secret; 0 for keys that were drawn at random.
    pub(crate) fn number(&self) -> Option<u32> {
        self.0.state().ring.current().map(|set| set.number)
    }

    /// An endpoint is to be told of rotations.
    pub(crate) fn tell(&self, endpoint: Weak<Core>) {
        let mut all = self.0.endpoints();
        all.retain(|endpoint| endpoint.strong_count() > 0);
        all.push(endpoint);
    }

    /// The formats of connection IDs.
    pub(crate) fn with_configurations<R>(&self, look: impl FnOnce(&Configurations) -> R) -> R {
        look(&self.0.state().configurations)
    }

    /// The keys of an endpoint that was configured with some.
    pub(crate) fn of(config: &quicket_engine::EndpointConfig) -> Option<Self> {
        let keys: &dyn Any = &**config.site_keys.as_ref()?;
        keys.downcast_ref().cloned()
    }
}

impl Shared {
    fn state(&self) -> Arc<State> {
        Arc::clone(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn endpoints(&self) -> MutexGuard<'_, Vec<Weak<Core>>> {
        self.endpoints.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for SiteKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SiteKeys").field(&self.0.state().ring).finish()
    }
}

impl EngineKeys for SiteKeys {
    fn reset_key(&self, cid: &ConnectionId) -> [u8; 32] {
        let state = self.0.state();
        state.ring.of(cid.as_slice()).map(|set| set.reset).expect("a ring has keys")
    }

    fn token_keys(&self) -> TokenKeys {
        let state = self.0.state();
        let (current, others) = state.ring.sets().split_first().expect("a ring has keys");
        TokenKeys::new(&current.token, others.iter().map(|set| &set.token))
    }
}

/// The keys of the site itself.
fn ring(secrets: &SiteSecrets) -> KeyRing {
    let hmac = |key: &[u8; 32], message: &[u8]| AwsLcProvider.keyed_hash(key, message);
    secrets.keys(Tenant::Site, &hmac).expect("roots in turn are of different configurations")
}

/// The keys of a program's tickets, the current one first.
fn ticket_keys(ring: &KeyRing, program: &[u8]) -> Vec<TicketKey> {
    let keys = ring.sets().iter().map(|set| {
        let secret = [&set.ticket[..], program].concat();
        TicketKey::new(&secret).expect("more than 32 bytes")
    });
    keys.collect()
}

/// The number of a host in connection IDs.
pub(crate) fn server_id(host: u8) -> ServerId {
    ServerId::new(&[host]).expect("one octet")
}
