//! The secrets of a site at the addresses of a switch, and their rotation while programs are there.
//!
//! The switch reads connection IDs of all keys before any program writes them: the next key is known to all
//! long before it is the current one, and the switch and the kernel hear of a rotation first.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use nix::sys::epoll::EpollFlags;
use nix::sys::eventfd::{EfdFlags, EventFd};
use quicket_engine::crypto::CryptoProvider;
use quicket_steering::{KeyRing, SiteSecrets, Tenant};

use super::Daemon;
use super::events::{Events, Token};
use crate::protocol::{Message, Notice, Secrets};
use crate::registry::AddressId;

/// The site of a switch.
#[derive(Debug)]
pub(super) struct Site {
    secrets: SiteSecrets,
    server_id: u8,
    news: Receiver<SiteSecrets>,
    /// Rings when there are some.
    bell: Arc<EventFd>,
}

/// Tells a switch at work of a rotation.
#[derive(Debug)]
pub struct Rotations {
    news: Sender<SiteSecrets>,
    bell: Arc<EventFd>,
}

impl Rotations {
    /// Has all programs of the switch take these secrets up, soon.
    ///
    /// # Errors
    ///
    /// When the switch has ended.
    pub fn rotate(&self, secrets: SiteSecrets) -> io::Result<()> {
        let ended = |_| io::Error::new(io::ErrorKind::BrokenPipe, "the switch has ended");
        self.news.send(secrets).map_err(ended)?;
        self.bell.write(1)?;
        Ok(())
    }
}

impl Site {
    /// A site, and what tells of a rotation of its secrets.
    fn new(events: &Events, secrets: SiteSecrets, server_id: u8) -> io::Result<(Self, Rotations)> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let bell = Arc::new(EventFd::from_flags(flags)?);
        events.add(&*bell, EpollFlags::EPOLLIN, Token::Secrets)?;
        let (sender, news) = channel();
        let rotations = Rotations { news: sender, bell: Arc::clone(&bell) };
        Ok((Self { secrets, server_id, news, bell }, rotations))
    }

    /// Secrets were rotated. Returns the number of the current ones, if they are others than before.
    pub(super) fn take_up(&mut self) -> Option<u32> {
        // Empty if it rang twice for one.
        let _ = self.bell.read();
        self.secrets = self.news.try_iter().last()?;
        Some(self.secrets.current().number())
    }

    /// The secrets of programs of a user, or of the switch's own.
    pub(super) fn secrets_of(
        &self,
        tenant: Tenant,
        crypto: &dyn CryptoProvider,
    ) -> io::Result<Secrets> {
        Ok(Secrets::of_site(&self.ring_of(tenant, crypto)?, self.server_id))
    }

    pub(super) fn ring(&self, crypto: &dyn CryptoProvider) -> io::Result<KeyRing> {
        self.ring_of(Tenant::Site, crypto)
    }

    fn ring_of(&self, tenant: Tenant, crypto: &dyn CryptoProvider) -> io::Result<KeyRing> {
        let hmac = |key: &[u8; 32], message: &[u8]| crypto.keyed_hash(key, message);
        self.secrets.keys(tenant, &hmac).map_err(io::Error::other)
    }

    /// A site of this host alone, whose secrets are those of the next switch, too: derived from what this one
    /// leaves to it.
    pub(super) fn of_heirloom(key: &[u8; 32], crypto: &dyn CryptoProvider) -> io::Result<Self> {
        let mut block = 0_u32;
        let mut derive = |out: &mut [u8]| {
            for part in out.chunks_mut(32) {
                block += 1;
                let message =
                    [&b"quicket switch for the system"[..], &block.to_be_bytes()].concat();
                let derived = crypto.keyed_hash(key, &message);
                part.iter_mut().zip(derived).for_each(|(to, from)| *to = from);
            }
        };
        let secrets = SiteSecrets::draw(0, &mut derive);
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        // Nothing ever comes.
        let (_, news) = channel();
        Ok(Self { secrets, server_id: 0, news, bell: Arc::new(EventFd::from_flags(flags)?) })
    }
}

impl Daemon {
    /// The same with the secrets of a site in place of random ones, and the host's number in connection IDs.
    /// What is returned beside it replaces them later.
    ///
    /// # Errors
    ///
    /// When no descriptor is left.
    pub fn of_site(mut self, secrets: SiteSecrets, server_id: u8) -> io::Result<(Self, Rotations)> {
        let (site, rotations) = Site::new(&self.events, secrets, server_id)?;
        self.issuer.use_site(site);
        Ok((self, rotations))
    }

    /// The keys of a user's programs at an address; of others than the switch's own user, without those of
    /// connection IDs. `None` where there are no others.
    pub(super) fn secrets_of(&self, id: AddressId, uid: u32) -> Option<Secrets> {
        if self.users.is_tenant(uid) {
            return self.issuer.secrets_of_tenant(uid);
        }
        self.addresses.get(&id).map(|address| address.secrets.clone())
    }

    /// Reads connection IDs of a program that has come back, too.
    pub(super) fn take_in(&mut self, id: AddressId, resumed: &Secrets) {
        let Some(address) = self.addresses.get(&id) else { return };
        let server_id = address.secrets.server_id;
        let ring = address.secrets.ring().ok().and_then(|ring| covered(ring, resumed));
        if let Some(secrets) = ring.map(|ring| Secrets::of_site(&ring, server_id)) {
            self.replace_secrets(id, secrets);
        }
    }

    /// Secrets were rotated.
    pub(super) fn take_up_secrets(&mut self) {
        let Some(secrets) = self.issuer.take_up() else { return };
        for id in self.addresses.keys().copied().collect::<Vec<_>>() {
            if self.replace_secrets(id, secrets.clone()) {
                self.tell_secrets(id);
            }
        }
    }

    /// Reads connection IDs of an address by other keys from now on, and has the kernel do so; false if
    /// nothing changes.
    fn replace_secrets(&mut self, id: AddressId, secrets: Secrets) -> bool {
        let Some(address) = self.addresses.get_mut(&id) else { return false };
        if address.secrets == secrets {
            return false;
        }
        match self.issuer.reader(&secrets) {
            Ok(reader) => {
                address.steering.configurations = reader.configurations.clone();
                address.secrets = secrets;
                self.traffic.router.set_reader(id, reader);
                self.steer_anew(id);
                true
            }
            Err(error) => {
                log::error!("{}: secrets are not taken up: {error}", address.listen);
                false
            }
        }
    }

    /// Tells the programs of an address what they have in common now.
    fn tell_secrets(&mut self, id: AddressId) {
        let there = self.programs.listeners().filter(|(listener, _)| listener.address() == id);
        for (listener, process) in there.collect::<Vec<_>>() {
            let Some(uid) = self.programs.uid(process) else { continue };
            if self.users.is_tenant(uid) {
                // Before it hears that its connections are to get new ones.
                for minted in self.mint_all(listener, true) {
                    self.tell(process, &Message::Notice(Notice::Minted(minted)));
                }
            }
            if let Some(secrets) = self.secrets_of(id, uid) {
                self.tell(process, &Message::Notice(Notice::Secrets(Box::new(secrets))));
            }
        }
    }
}

/// The ring with what a program had with another switch; `None` if its connection IDs would be misread.
pub(super) fn covered(ring: KeyRing, resumed: &Secrets) -> Option<KeyRing> {
    let resumed = resumed.ring().ok()?;
    let ring = ring.with_earlier(&resumed);
    // Its connections have those of its current keys at least.
    let has = |set| ring.sets().contains(set);
    resumed.current().is_some_and(has).then_some(ring)
}
