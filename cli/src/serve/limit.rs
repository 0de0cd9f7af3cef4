//! How many descriptors this process may have.

/// Lets this process have as many descriptors as its hard limit allows: the soft one is 1,024 on
/// most systems, for the sake of programs that use `select`.
#[cfg(unix)]
pub(crate) fn raise_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        log::debug!("the limit of descriptors stays as it is: {error}");
    }
}

/// There is no such limit.
#[cfg(not(unix))]
pub(crate) const fn raise_limit() {}
