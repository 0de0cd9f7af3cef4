//! Connections over QUIC without encryption, for networks that the file names.

use ipnet::IpNet;
use quicket::UnencryptedNetworks;
use quicket::tokio::Connection;

use crate::metrics::Metrics;

/// Offers it to these networks from now on, and says so loudly.
pub(super) fn offer(to: &UnencryptedNetworks, networks: &[IpNet]) {
    if !networks.is_empty() {
        let names: Vec<String> = networks.iter().map(ToString::to_string).collect();
        log::warn!(
            "disable_1rtt_encryption: clients of {} that ask for it have connections over QUIC without encryption: \
             everybody on the way can read and change what is sent",
            names.join(", ")
        );
    }
    to.set(networks.iter().map(|network| (network.network(), network.prefix_len())));
}

/// Counts a connection whose handshake is complete, if it is one.
pub(super) fn note(connection: &Connection, metrics: &Metrics) {
    if connection.is_encryption_disabled() {
        log::info!("{}: a connection without encryption", connection.remote_addr());
        metrics.unencrypted();
    }
}
