//! The switch for packets on network devices. These tests need root: without it they say LEFT OUT, and fail
//! where [`quicket_testing::leave_out`] does.

mod attacks;
mod changes;
#[path = "../common/mod.rs"]
mod common;
mod errors;
mod frames;
mod killed;
mod loopback;
mod permitted;
mod program;
mod protocols;
mod system;
mod traffic;
mod vlans;
mod wire;

use permitted::is_permitted;
