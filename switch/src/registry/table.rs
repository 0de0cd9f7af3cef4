//! Who has which names at an address.

use std::collections::BTreeMap;

use quicket_wire::ClientHello;

use super::names::{Key, Names, Protocol, ServerName};

/// How many of the protocols that a client offers are looked at.
pub const MAX_OFFERED: usize = 64;

/// Slots by server name and protocol.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    servers: BTreeMap<Option<ServerName>, Level>,
}

/// What there is for one server name, or for all that nobody names.
type Level = BTreeMap<Option<Protocol>, Vec<u8>>;

impl Table {
    pub(super) fn add(&mut self, names: &Names, slot: u8) {
        for Key { server, protocol } in names.keys() {
            self.servers.entry(server).or_default().entry(protocol).or_default().push(slot);
        }
    }

    pub(super) fn remove(&mut self, names: &Names, slot: u8) {
        for Key { server, protocol } in names.keys() {
            let Some(level) = self.servers.get_mut(&server) else { continue };
            if let Some(slots) = level.get_mut(&protocol) {
                slots.retain(|each| *each != slot);
                if slots.is_empty() {
                    level.remove(&protocol);
                }
            }
            if level.is_empty() {
                self.servers.remove(&server);
            }
        }
    }

    /// The slots that have `key`.
    pub(super) fn holders(&self, key: &Key) -> &[u8] {
        let level = self.servers.get(&key.server);
        level.and_then(|level| level.get(&key.protocol)).map_or(&[], Vec::as_slice)
    }

    /// The slots that a client reaches; only those count that `takes` says.
    ///
    /// The most specific server name decides; if nobody there speaks the client's protocols, the next.
    /// The client's protocols count in its order. One that offers none reaches the catch-all, which
    /// others reach only where nobody has a protocol.
    pub(super) fn choose(&self, hello: &ClientHello<'_>, takes: impl Fn(u8) -> bool) -> Vec<u8> {
        let names = hello.server_name().into_iter().flat_map(ServerName::of_client).map(Some);
        let levels = names.chain([None]).filter_map(|name| self.servers.get(&name));
        let taking = |slots: &Vec<u8>| -> Vec<u8> {
            slots.iter().copied().filter(|slot| takes(*slot)).collect()
        };
        for level in levels {
            let mut offers = hello.alpn().take(MAX_OFFERED).peekable();
            let divided = || {
                let named = level.iter().filter(|(protocol, _)| protocol.is_some());
                named.flat_map(|(_, slots)| slots).any(|slot| takes(*slot))
            };
            let found = if offers.peek().is_none() || !divided() {
                level.get(&None).map(taking)
            } else {
                let mut having = offers.filter_map(|offer| level.get(&Protocol::new(offer).ok()));
                having.find_map(|slots| Some(taking(slots)).filter(|slots| !slots.is_empty()))
            };
            if let Some(found) = found.filter(|slots| !slots.is_empty()) {
                return found;
            }
        }
        Vec::new()
    }
}
