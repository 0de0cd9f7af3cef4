//! Whether this system lets network devices be tested.

/// Says so if it does not. In continuous integration that is a failure.
pub(crate) fn is_permitted() -> bool {
    let user = rustix::process::geteuid();
    if user.is_root() && quicket_bpf::Tuples::new(1).is_ok() {
        return true;
    }
    assert!(std::env::var_os("CI").is_none(), "network devices need root and BPF");
    println!("LEFT OUT: network devices need root and BPF");
    false
}
