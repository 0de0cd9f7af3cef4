//! The addresses that sockets of this process have.
//!
//! A process binds each UDP address once. Sockets that ask for the same address share its
//! endpoint, which lives as long as any of them or of its connections. Sockets that share their
//! address through the switch have an endpoint each, also within one process: who may have which
//! clients is for the switch to say, which knows those of other processes too.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::Duration;

use super::hub::{Hub, lock};
use crate::config::{EndpointConfig, Workers};
use crate::core::{Core, CoreRef, WatchHold};
use crate::ops;
use crate::switched::SwitchConfig;
use quicket_udp::{BindError, UdpOption};

/// How often to try an address that this process has just given up, and how long between.
const RELEASE_TRIES: u32 = 200;
const RELEASE_PAUSE: Duration = Duration::from_millis(1);

/// An address in use by this process.
enum Place {
    /// Somebody is binding it.
    Coming,
    Made {
        core: Weak<Core>,
        hub: Arc<Hub>,
    },
}

impl Place {
    fn is_in_use(&self) -> bool {
        match self {
            Self::Coming => true,
            Self::Made { core, .. } => core.strong_count() > 0,
        }
    }
}

type Registry = HashMap<SocketAddr, Place>;

/// All addresses in use by sockets of this process. Entries of endpoints that are gone are
/// removed whenever one is added. Held for a look or a change, never while waiting.
fn registry() -> MutexGuard<'static, Registry> {
    static REGISTRY: OnceLock<Mutex<Registry>> = OnceLock::new();
    lock(REGISTRY.get_or_init(Mutex::default))
}

/// Keeps the addresses of this process from changing hands while it forks, and who follows the network, for
/// bindings to C: a lock that another thread holds then would be held in the child for ever.
pub struct ForkHold {
    registry: MutexGuard<'static, Registry>,
    watch: WatchHold,
}

impl ForkHold {
    /// Takes hold, before the process forks. In the parent, letting go is all.
    #[must_use]
    pub fn acquire() -> Self {
        Self { registry: registry(), watch: WatchHold::acquire() }
    }

    /// In the child: what is in use belongs to the parent.
    pub fn forget(mut self) {
        // Whatever it leads to may be locked by threads that are not here.
        std::mem::forget(std::mem::take(&mut *self.registry));
        self.watch.forget();
    }
}

impl std::fmt::Debug for ForkHold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ForkHold").finish_non_exhaustive()
    }
}

/// Has an address be one that somebody is binding; `false` ends that.
#[cfg(test)]
pub(super) fn set_coming(address: SocketAddr, coming: bool) {
    let mut registry = registry();
    if coming {
        registry.insert(address, Place::Coming);
    } else {
        registry.remove(&address);
    }
}

/// A socket's hold on an address.
#[derive(Clone)]
pub(super) struct Bound {
    pub(super) core: CoreRef,
    pub(super) hub: Arc<Hub>,
}

/// What a socket wants of a new endpoint.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) only_v6: bool,
    pub(super) options: Vec<UdpOption>,
    pub(super) workers: usize,
    /// To share the address with other programs.
    pub(super) switch: Option<SwitchConfig>,
    /// From which keys of session tickets are made, if another process has them already.
    pub(super) ticket_secret: Option<[u8; 32]>,
    /// For a switch that does not know the address: the process has its socket from another one.
    pub(super) socket: Option<Arc<UdpSocket>>,
}

impl Default for Wanted {
    fn default() -> Self {
        Self {
            only_v6: false,
            options: Vec::new(),
            workers: 1,
            switch: None,
            ticket_secret: None,
            socket: None,
        }
    }
}

impl Bound {
    /// Takes hold of an address: the endpoint that is there, or a new one.
    pub(super) fn to(address: SocketAddr, wanted: &Wanted) -> io::Result<Self> {
        if wanted.switch.is_some() {
            return Self::make(address, wanted);
        }
        let (mut tries, mut is_ours) = (0, false);
        loop {
            match Self::find_or_make(address, wanted, &mut is_ours) {
                // Ours until a moment ago: its thread is about to close it. Or ours in a moment.
                Err(_) if is_ours && tries < RELEASE_TRIES => {
                    tries += 1;
                    std::thread::sleep(RELEASE_PAUSE);
                }
                result => return result,
            }
        }
    }

    /// Also says whether this process holds the address, held it before, or will.
    fn find_or_make(address: SocketAddr, wanted: &Wanted, is_ours: &mut bool) -> io::Result<Self> {
        let mut registry = registry();
        if let Some(place) = registry.get(&address) {
            *is_ours = true;
            match place {
                Place::Coming => return Err(io::ErrorKind::AddrInUse.into()),
                Place::Made { core, hub } => {
                    if let Some(core) = core.upgrade().and_then(CoreRef::revive) {
                        let bound = Self { core, hub: Arc::clone(hub) };
                        drop(registry);
                        // What fails now fails again.
                        *is_ours = false;
                        // It has left its socket to the switch, and gets no clients.
                        if bound.core.core().remains() {
                            let switch = Some(SwitchConfig::default());
                            return Self::make(address, &Wanted { switch, ..wanted.clone() });
                        }
                        return bound.with(&wanted.options);
                    }
                }
            }
        }
        if address.port() != 0 {
            registry.insert(address, Place::Coming);
        }
        drop(registry);
        let made = Self::make(address, wanted);
        let mut registry = self::registry();
        registry.retain(|key, place| *key != address && place.is_in_use());
        if let Ok(Self { core, hub }) = &made {
            let place = Place::Made { core: Arc::downgrade(core.core()), hub: Arc::clone(hub) };
            registry.insert(core.local_addr(), place);
        }
        made
    }

    /// With these options set.
    fn with(self, options: &[UdpOption]) -> io::Result<Self> {
        for option in options {
            self.set_udp_option(option)?;
        }
        Ok(self)
    }

    /// Sets an option of the sockets of all workers.
    pub(super) fn set_udp_option(&self, option: &UdpOption) -> io::Result<()> {
        let workers = self.core.core().workers();
        workers.iter().try_for_each(|core| core.set_udp_option(option.clone()))
    }

    /// Makes an endpoint, and waits until something drives it.
    fn make(address: SocketAddr, wanted: &Wanted) -> io::Result<Self> {
        let mut config = EndpointConfig::default().workers(Workers::Count(wanted.workers));
        config.udp.only_v6 = wanted.only_v6;
        config.udp.options.clone_from(&wanted.options);
        config.switch.clone_from(&wanted.switch);
        let core = match &wanted.socket {
            Some(socket) => ops::endpoint_from(socket.try_clone()?, config)?,
            None => ops::endpoint(address, config).map_err(BindError::into_io_error)?,
        };
        core.core().workers().iter().try_for_each(Core::start_thread)?;
        let hub = Hub::new(Arc::downgrade(core.core()), wanted.ticket_secret);
        Ok(Self { core, hub })
    }
}

#[cfg(test)]
mod tests {
    use socket2::SockRef;

    use super::*;

    #[test]
    fn sockets_that_take_the_place_of_others_have_their_options() {
        let address = "127.0.0.1:0".parse().unwrap();
        let wanted = Wanted { options: vec![UdpOption::Ttl(7)], ..Wanted::default() };
        let Bound { core, .. } = Bound::to(address, &wanted).unwrap();
        core.core().set_udp_option(UdpOption::Priority(1)).unwrap();
        let before = core.local_addr();
        core.rebind(address).unwrap();
        assert_ne!(core.local_addr(), before);
        let links = core.core().links();
        let socket = &*links.current().unwrap().socket;
        for option in [UdpOption::Ttl(7), UdpOption::Priority(1)] {
            assert_eq!(option.get(SockRef::from(socket)).unwrap(), option);
        }
        core.close_all(0, b"");
    }
}
