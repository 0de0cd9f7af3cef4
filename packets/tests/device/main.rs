//! The switch for packets on network devices. These tests need root: they say LEFT OUT without it, and fail in
//! continuous integration.

mod attacks;
mod changes;
#[path = "../common/mod.rs"]
mod common;
mod errors;
mod frames;
mod killed;
mod program;
mod system;
mod traffic;
mod vlans;
mod wire;

/// Whether the system permits what these tests need; says so if not.
fn is_permitted() -> bool {
    let user = rustix::process::geteuid();
    if user.is_root() && quicket_bpf::Tuples::new(1).is_ok() {
        return true;
    }
    assert!(std::env::var_os("CI").is_none(), "network devices need root and BPF");
    println!("LEFT OUT: network devices need root and BPF");
    false
}
