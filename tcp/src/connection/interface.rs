//! smoltcp's side of a connection.

use smoltcp::iface::{Config, Interface};
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpCidr};

use crate::segment::Ends;

pub(super) fn interface(ends: &Ends, mtu: usize, seed: u64, now: Instant) -> Interface {
    let mut config = Config::new(HardwareAddress::Ip);
    config.random_seed = seed;
    let mut interface = Interface::new(config, &mut Shape(mtu), now);
    interface.update_ip_addrs(|addresses| {
        let len = if ends.local.is_ipv4() { 32 } else { 128 };
        // There is room for one, and it is the first.
        let _ = addresses.push(IpCidr::new(ends.local.ip().into(), len));
    });
    interface
}

/// A device that only says what it can do.
struct Shape(usize);

impl smoltcp::phy::Device for Shape {
    type RxToken<'a> = NoToken;
    type TxToken<'a> = NoToken;

    fn receive(&mut self, _: Instant) -> Option<(NoToken, NoToken)> {
        None
    }

    fn transmit(&mut self, _: Instant) -> Option<NoToken> {
        None
    }

    fn capabilities(&self) -> smoltcp::phy::DeviceCapabilities {
        crate::device::capabilities(self.0)
    }
}

/// There is none.
enum NoToken {}

impl smoltcp::phy::RxToken for NoToken {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, _: F) -> R {
        match self {}
    }
}

impl smoltcp::phy::TxToken for NoToken {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, _: usize, _: F) -> R {
        match self {}
    }
}
