//! Variables of the environment, where whoever started the process may choose what it uses.
//!
//! A program with more rights than its caller (set-user-ID, file capabilities: AT_SECURE, getauxval(3)) gets
//! its environment from the caller. It would connect to what that names, and run it.

use std::env;
use std::ffi::OsString;

use crate::sys;

/// True if this process has more rights than who started it.
#[must_use]
pub fn is_privileged() -> bool {
    sys::is_secure()
}

/// A variable of the environment; `None`, too, if this process has more rights than who started it.
#[must_use]
pub fn variable(name: &str) -> Option<OsString> {
    unless(is_privileged(), || env::var_os(name))
}

/// What `read` says, which is not asked if the process is `privileged`.
fn unless(privileged: bool, read: impl FnOnce() -> Option<OsString>) -> Option<OsString> {
    if privileged { None } else { read() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_privileged_program_does_not_read_what_its_caller_chose() {
        let path = env::var_os("PATH");
        assert!(path.is_some() && !is_privileged());
        assert_eq!(variable("PATH"), path);
        assert_eq!(unless(false, || env::var_os("PATH")), path);
        assert_eq!(unless(true, || panic!("it was read")), None);
    }
}
