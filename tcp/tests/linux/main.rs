//! TCP in user space against that of Linux, over network devices. These tests need root: without it they say LEFT OUT,
//! and fail where [`quicket_testing::leave_out`] does.

#[path = "../common/mod.rs"]
mod common;
mod curl;
mod exchange;
mod lossy;
mod many;
#[path = "../../examples/http/serve.rs"]
mod serve;
mod tap;
mod trains;
#[path = "../../examples/http/transport.rs"]
#[allow(dead_code, reason = "the server needs less than the generator of load")]
mod transport;
#[path = "../../../packets/tests/device/wire.rs"]
#[allow(dead_code, reason = "those of the switch need more of it")]
mod wire;

use std::net::SocketAddr;

use quicket_packets::control::Control;
use quicket_packets::device::Mode;
use quicket_tcp::Stack;

use common::Switch;
use wire::{DEVICE, Wire};

/// Whether the system permits what these tests need; says so if not.
fn is_permitted() -> bool {
    let user = rustix::process::geteuid();
    if user.is_root() && quicket_bpf::Tuples::new(1).is_ok() {
        return true;
    }
    quicket_testing::leave_out("network devices need root and BPF");
    false
}

/// A stack here, whose switch has the device to the other end.
fn attached() -> (Wire, Switch, Stack) {
    let wire = Wire::new("");
    let switch = Switch::start();
    Control::connect(&switch.path).unwrap().attach(DEVICE, Mode::Native).unwrap();
    let stack = switch.stack();
    (wire, switch, stack)
}

fn at(address: &str) -> SocketAddr {
    (address.parse::<std::net::IpAddr>().unwrap(), 0).into()
}
