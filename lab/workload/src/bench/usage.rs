//! What a process has used of the machine.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Failure;

/// CPU time and memory of a process since it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// CPU time of all threads in nanoseconds, user and system.
    pub cpu_ns: u64,
    /// Resident memory in bytes.
    pub resident_bytes: u64,
    /// Handshakes completed as a server.
    pub handshakes: u64,
}

impl Usage {
    /// Length in bytes of the encoded form.
    pub const LENGTH: usize = 24;

    /// What this process has used so far.
    ///
    /// # Errors
    ///
    /// When the kernel does not tell.
    pub fn now() -> Result<Self, Failure> {
        let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let cpu = Duration::new(cpu.tv_sec.try_into()?, cpu.tv_nsec.try_into()?);
        let statm = std::fs::read_to_string("/proc/self/statm")?;
        let pages = statm.split_ascii_whitespace().nth(1).ok_or("/proc/self/statm is cut off")?;
        Ok(Self {
            cpu_ns: cpu.as_nanos().try_into()?,
            resident_bytes: pages.parse::<u64>()? * rustix::param::page_size() as u64,
            handshakes: 0,
        })
    }

    /// Encodes for the wire.
    #[must_use]
    pub fn encode(self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[..8].copy_from_slice(&self.cpu_ns.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.resident_bytes.to_be_bytes());
        bytes[16..].copy_from_slice(&self.handshakes.to_be_bytes());
        bytes
    }

    /// Decodes from the wire.
    #[must_use]
    pub fn decode(bytes: &[u8; Self::LENGTH]) -> Self {
        let word = |at: usize| {
            bytes[at..at + 8].iter().fold(0, |value, &byte| value << 8 | u64::from(byte))
        };
        Self { cpu_ns: word(0), resident_bytes: word(8), handshakes: word(16) }
    }
}

/// Raises the limit of open files to what is permitted, for loads of many connections: above the
/// hard limit too if this process may.
///
/// # Errors
///
/// When fewer than `wanted` files are permitted; the limit is raised all the same.
pub fn raise_open_files(wanted: u64) -> Result<(), Failure> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if limit.maximum.is_some_and(|maximum| maximum < wanted) {
        let enough = Rlimit { current: Some(wanted), maximum: Some(wanted) };
        if setrlimit(Resource::Nofile, enough).is_ok() {
            return Ok(());
        }
    }
    setrlimit(Resource::Nofile, limit)?;
    match limit.maximum {
        Some(maximum) if maximum < wanted => Err(format!(
            "{wanted} open files are needed but only {maximum} are permitted: raise `ulimit -Hn`"
        )
        .into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_grows_with_work_and_survives_the_wire() {
        let before = Usage::now().unwrap();
        let mut sum = 0_u64;
        for i in 0..2_000_000_u64 {
            sum = std::hint::black_box(sum ^ i);
        }
        let after = Usage { handshakes: 3, ..Usage::now().unwrap() };
        assert!(after.cpu_ns > before.cpu_ns);
        assert!(after.resident_bytes > 100_000);
        assert_eq!(Usage::decode(&after.encode()), after);
    }
}
