//! What addresses get from the switch: secrets, connection IDs, and how these are read.

use std::io;

use quicket_engine::random::Random;
use quicket_steering::{Codec, Owner, Place as SteeringPlace, Tenant};

use super::Tools;
use super::address::Address;
use super::site::{Site, covered};
use crate::protocol::{Hex, ID_LEN, Secrets};
use crate::registry::Place;
use crate::router::Reader;

/// Where they come from.
pub(super) struct Issuer {
    pub(super) tools: Tools,
    /// None: secrets are drawn at random.
    site: Option<Site>,
    /// What the switch before left to this one, and this one leaves to the next.
    heirloom: [u8; 32],
}

impl Issuer {
    pub(super) const fn new(tools: Tools, heirloom: [u8; 32]) -> Self {
        Self { tools, site: None, heirloom }
    }

    /// Has secrets be those of a site.
    pub(super) fn use_site(&mut self, site: Site) {
        self.site = Some(site);
    }

    /// Has them be what switches of this name leave to each other, unless they are those of a site.
    pub(super) fn use_heirloom(&mut self) -> io::Result<()> {
        if self.site.is_none() {
            self.site = Some(Site::of_heirloom(&self.heirloom, &*self.tools.crypto)?);
        }
        Ok(())
    }

    /// What programs at an address get that nobody was at; `resumed`: what the one that comes first had there
    /// with the switch before.
    pub(super) fn secrets_of_new_address(
        &mut self,
        resumed: Option<&Secrets>,
    ) -> io::Result<Secrets> {
        let random = &mut self.tools.random;
        let Some(site) = &self.site else {
            let drawn = || Secrets::draw(&mut |out| random.fill(out));
            return Ok(resumed.cloned().unwrap_or_else(drawn));
        };
        // What it had is read beside that, once it is taken in.
        site.secrets_of(Tenant::Site, &*self.tools.crypto)
    }

    /// The keys of programs of another user, without those of connection IDs. `None` where there are no others.
    pub(super) fn secrets_of_tenant(&self, uid: u32) -> Option<Secrets> {
        let site = self.site.as_ref()?;
        let secrets = site.secrets_of(Tenant::User(uid), &*self.tools.crypto).ok()?;
        Some(secrets.without_ids())
    }

    /// Whether connection IDs of a program that comes back are read at an address of these secrets, or of none yet; or can
    /// be from now on.
    pub(super) fn may_take_in(&self, secrets: Option<&Secrets>, resumed: &Secrets) -> bool {
        let ring = match (secrets, &self.site) {
            (Some(secrets), _) => secrets.ring().ok(),
            (None, Some(site)) => site.ring(&*self.tools.crypto).ok(),
            // It decides itself what is read there, unless a site has the numbers of its keys.
            (None, None) => return true,
        };
        ring.is_some_and(|ring| covered(ring, resumed).is_some())
    }

    /// Secrets were rotated: what addresses have now, if there are other ones.
    pub(super) fn take_up(&mut self) -> Option<Secrets> {
        let site = self.site.as_mut()?;
        let number = site.take_up()?;
        match site.secrets_of(Tenant::Site, &*self.tools.crypto) {
            Ok(secrets) => {
                log::info!("secrets of the site: number {number} is current");
                Some(secrets)
            }
            Err(error) => {
                log::error!("secrets are not taken up: {error}");
                None
            }
        }
    }

    /// How connection IDs are read that were made with these secrets.
    pub(super) fn reader(&self, secrets: &Secrets) -> io::Result<Reader> {
        let wrong = |text: String| io::Error::new(io::ErrorKind::InvalidData, text);
        let configurations = secrets.ring()?.configurations(&self.tools.aes_128);
        let configurations = configurations.map_err(|error| wrong(error.to_string()))?;
        Ok(Reader { configurations, server_id: secrets.server_id() })
    }

    /// Connection IDs that lead to a worker at an address.
    pub(super) fn mint(&mut self, address: &Address, to: Place, count: usize) -> Vec<Hex<ID_LEN>> {
        let Some(place) = place_of(address, to) else { return Vec::new() };
        let codec = address.steering.configurations.current();
        let random = &mut *self.tools.random;
        let minted = (0..count).filter_map(|_| {
            let id = codec.mint(&place, &mut |out| random.fill(out)).ok()?;
            id.as_slice().try_into().ok().map(Hex)
        });
        minted.collect()
    }

    /// A datagram that looks like one of a connection of a worker.
    pub(super) fn probe(&mut self, address: &Address, to: Place) -> Option<Vec<u8>> {
        let codec = address.steering.configurations.current();
        probe(codec, &place_of(address, to)?, &mut *self.tools.random)
    }
}

/// What connection IDs say that lead to a worker.
fn place_of(address: &Address, to: Place) -> Option<SteeringPlace> {
    let owner = Owner { generation: to.listener.generation(), worker: to.worker };
    Some(SteeringPlace { server_id: address.secrets.server_id()?, owner: Some(owner) })
}

fn probe(codec: &Codec, place: &SteeringPlace, random: &mut dyn Random) -> Option<Vec<u8>> {
    let id = codec.mint(place, &mut |out| random.fill(out)).ok()?;
    let mut rest = [0; 32];
    random.fill(&mut rest);
    Some([&[0x40], id.as_slice(), &rest].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::testing::tools;

    #[test]
    fn secrets_are_drawn_for_each_address_or_those_that_its_program_had() {
        let mut issuer = Issuer::new(tools(), [7; 32]);
        let drawn = issuer.secrets_of_new_address(None).unwrap();
        let other = issuer.secrets_of_new_address(None).unwrap();
        assert!(drawn != other);
        assert!(issuer.secrets_of_new_address(Some(&drawn)).unwrap() == drawn);
        assert!(issuer.secrets_of_tenant(1000).is_none(), "there are no others");
        assert!(issuer.may_take_in(None, &drawn), "it decides itself");
        assert!(issuer.may_take_in(Some(&drawn), &drawn));
        assert!(issuer.reader(&drawn).is_ok() && issuer.take_up().is_none());
    }

    #[test]
    fn what_switches_leave_to_each_other_makes_their_secrets_the_same() {
        let switch = |heirloom| {
            let mut issuer = Issuer::new(tools(), heirloom);
            issuer.use_heirloom().unwrap();
            issuer
        };
        let (mut one, mut next, mut other) = (switch([7; 32]), switch([7; 32]), switch([8; 32]));
        let secrets = one.secrets_of_new_address(None).unwrap();
        assert!(next.secrets_of_new_address(None).unwrap() == secrets);
        assert!(other.secrets_of_new_address(None).unwrap() != secrets);
        assert!(next.may_take_in(None, &secrets));
        // Users have keys of their own, and none of connection IDs.
        let user = one.secrets_of_tenant(1000).unwrap();
        assert!(next.secrets_of_tenant(1000).unwrap() == user);
        assert!(next.secrets_of_tenant(1001).unwrap() != user && user != secrets);
    }
}
