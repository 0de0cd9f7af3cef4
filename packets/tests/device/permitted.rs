//! Whether this system lets network devices be tested.

/// Says so if it does not, or fails; see [`quicket_testing::leave_out`].
pub(crate) fn is_permitted() -> bool {
    let user = rustix::process::geteuid();
    if user.is_root() && quicket_bpf::Tuples::new(1).is_ok() {
        return true;
    }
    quicket_testing::leave_out("network devices need root and BPF");
    false
}
