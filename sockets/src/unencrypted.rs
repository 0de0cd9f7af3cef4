//! Whom a server offers 1-RTT packets without encryption.

use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};

use quicket_engine::{ServerConfig, TransportConfig};

/// Networks whose clients may have 1-RTT packets without encryption, if they ask for that
/// ([`ServerConfig::unencrypted_for`](crate::ServerConfig::unencrypted_for)). Clones are the same list, which counts for
/// connections that begin later.
#[derive(Clone, Debug, Default)]
pub struct UnencryptedNetworks(Arc<RwLock<Vec<(IpAddr, u8)>>>);

impl UnencryptedNetworks {
    /// Replaces the list: addresses, and how many of their first bits count. A length above the address's is all of it.
    pub fn set(&self, networks: impl IntoIterator<Item = (IpAddr, u8)>) {
        let networks = networks.into_iter().collect();
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = networks;
    }

    /// True for an address of one of the networks. An IPv4 address in IPv6 (`::ffff:…`) is one of IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let networks = self.0.read().unwrap_or_else(PoisonError::into_inner);
        networks.iter().any(|&(network, length)| is_within(address, network, length))
    }
}

fn is_within(address: IpAddr, network: IpAddr, length: u8) -> bool {
    let (one, other, bits) = match (address, network) {
        (IpAddr::V4(one), IpAddr::V4(other)) => {
            (u128::from(one.to_bits()), u128::from(other.to_bits()), 32)
        }
        (IpAddr::V6(one), IpAddr::V6(other)) => (one.to_bits(), other.to_bits(), 128),
        _ => return false,
    };
    let left = bits - u32::from(length).min(bits);
    (one ^ other).checked_shr(left).unwrap_or(0) == 0
}

/// The configuration of connections to clients of such networks.
pub(crate) struct Unencrypted {
    networks: UnencryptedNetworks,
    config: Arc<ServerConfig>,
}

impl Unencrypted {
    /// As `config` says of all others.
    pub(crate) fn new(networks: UnencryptedNetworks, config: &ServerConfig) -> Self {
        let transport =
            TransportConfig { disable_1rtt_encryption: true, ..(*config.transport).clone() };
        let config = ServerConfig { transport: Arc::new(transport), ..config.clone() };
        Self { networks, config: Arc::new(config) }
    }

    /// The configuration for a client at this address, if it is not that of all others.
    pub(crate) fn config(&self, client: IpAddr) -> Option<Arc<ServerConfig>> {
        self.networks.contains(client).then(|| Arc::clone(&self.config))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_of_a_network_by_its_first_bits() {
        let networks = UnencryptedNetworks::default();
        let contains = |address: &str| networks.contains(address.parse().unwrap());
        assert!(!contains("10.0.0.1"));
        let network = |text: &str, length| (text.parse().unwrap(), length);
        networks.set([network("10.1.0.0", 16), network("192.0.2.7", 32), network("fd00::", 8)]);
        for inside in ["10.1.0.1", "10.1.255.255", "::ffff:10.1.2.3", "192.0.2.7", "fdff::1"] {
            assert!(contains(inside), "{inside}");
        }
        for outside in ["10.2.0.1", "192.0.2.6", "fe00::", "::ffff:10.2.0.1", "::a01:1"] {
            assert!(!contains(outside), "{outside}");
        }
        networks.set([network("0.0.0.0", 0)]);
        assert!(contains("203.0.113.1") && !contains("::1"));
        networks.set([]);
        assert!(!contains("10.1.0.1"));
    }
}
