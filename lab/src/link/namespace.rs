//! Sockets in other network namespaces.

use std::fs::File;
use std::path::Path;

use nix::sched::{CloneFlags, setns};

use super::LinkError;

/// Where `ip netns` keeps the namespaces that have a name.
const FOLDER: &str = "/run/netns";
/// The namespace of the calling thread.
const OWN: &str = "/proc/thread-self/ns/net";

/// Where sockets are made.
#[derive(Debug)]
pub(crate) enum Namespace {
    /// Where this process is.
    Own,
    /// One that has a name.
    Named { name: String, file: File },
}

impl Namespace {
    pub(crate) fn open(name: Option<&str>) -> Result<Self, LinkError> {
        let Some(name) = name else { return Ok(Self::Own) };
        let file = File::open(Path::new(FOLDER).join(name)).map_err(|error| {
            LinkError::new(format!(
                "cannot open the network namespace {name}: {error}; `ip netns list` has those that \
                 exist, `ip netns add {name}` makes it"
            ))
        })?;
        Ok(Self::Named { name: name.to_owned(), file })
    }

    /// Does `work` in the namespace. What is opened there stays there.
    pub(crate) fn inside<T>(&self, work: impl FnOnce() -> T) -> Result<T, LinkError> {
        let Self::Named { name, file } = self else { return Ok(work()) };
        let fail = |error| {
            LinkError::new(format!(
                "cannot enter the network namespace {name}: {error}; this needs root \
                 (CAP_SYS_ADMIN)"
            ))
        };
        let own = File::open(OWN).map_err(|error| LinkError::system(OWN, error))?;
        setns(file, CloneFlags::CLONE_NEWNET).map_err(fail)?;
        let result = work();
        // Who may enter another may return as well: this fails for want of memory at most, and
        // then nothing must be done in the wrong place.
        setns(own, CloneFlags::CLONE_NEWNET)
            .map_err(|error| LinkError::system("cannot leave a network namespace", error))?;
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_that_does_not_exist_is_named() {
        let error = Namespace::open(Some("quicket-none-such")).unwrap_err().to_string();
        assert!(error.contains("quicket-none-such") && error.contains("ip netns add"), "{error}");
    }

    #[test]
    fn work_in_the_own_namespace_is_just_done() {
        assert_eq!(Namespace::open(None).unwrap().inside(|| 7), Ok(7));
    }
}
