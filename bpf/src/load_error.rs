//! Why the kernel has no extended program of ours.

use std::io;

use crate::ProgramError;

/// Why there is no table.
#[derive(Debug)]
pub enum LoadError {
    /// The configurations cannot be routed by.
    Program(ProgramError),
    /// The kernel refused: `EPERM` for want of a capability, `ENOSYS` without BPF.
    System(io::Error),
}

impl std::fmt::Display for LoadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Program(error) => error.fmt(f),
            Self::System(error) => {
                write!(f, "the kernel did not take the BPF program: {error}")?;
                if error.kind() == io::ErrorKind::PermissionDenied {
                    f.write_str("; it needs CAP_BPF and CAP_NET_ADMIN")?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for LoadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Program(error) => Some(error),
            Self::System(error) => Some(error),
        }
    }
}

impl From<io::Error> for LoadError {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}
