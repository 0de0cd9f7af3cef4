//! Who gets a client's first packets.

use quicket_engine::time::Time;
use quicket_wire::ClientHello;

use super::listener::Listener;
use super::{AddressId, Attention, ListenerId, Place, Registry, Spread};

impl Registry {
    /// Who would get first packets whatever they ask for: a group with the same names, if it is alone.
    /// Then nobody needs to read them; what the program does not serve it refuses itself.
    #[must_use]
    pub fn alone(&self, now: Time, id: AddressId, spread: &Spread<'_>) -> Option<Place> {
        if !self.is_settled(now, id) {
            return None;
        }
        let address = self.addresses.get(&id).filter(|address| address.undivided)?;
        let group = || address.slots.listeners().filter(|each| each.is_active());
        if !group().all(|each| self.is_for_all(each)) {
            return None;
        }
        spread.pick(group())
    }

    /// The one listener that gets first packets, if it is the only one and waits for clients, and nobody has it from
    /// another process: then nothing has to be chosen by anybody but its workers.
    #[must_use]
    pub fn lone(&self, now: Time, id: AddressId) -> Option<ListenerId> {
        let address = self.addresses.get(&id).filter(|_| self.is_settled(now, id))?;
        let mut active = address.slots.listeners().filter(|each| each.is_active());
        let only = active.next().filter(|only| self.is_for_all(only))?;
        let waits = only.family.is_none() && only.attention == Attention::Accepting;
        (waits && active.next().is_none()).then_some(only.id)
    }

    /// Whether a listener may hear of clients that ask for another's names: a user who has some is not told.
    fn is_for_all(&self, listener: &Listener) -> bool {
        listener.uid == self.own_uid || !self.has_tenants()
    }

    /// Who gets a client with this ClientHello.
    #[must_use]
    pub fn choose(
        &self,
        id: AddressId,
        hello: &ClientHello<'_>,
        spread: &Spread<'_>,
    ) -> Option<Place> {
        let address = self.addresses.get(&id)?;
        let slots = address
            .table
            .choose(hello, |slot| address.slots.listener(slot).is_some_and(Listener::is_active));
        spread.pick(slots.iter().filter_map(|slot| address.slots.listener(*slot)))
    }
}
