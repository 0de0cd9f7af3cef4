//! To which servers QUIC did not get through lately: TCP is tried at once there.

use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::target::Authority;

/// How long that is remembered: networks change.
const GOOD_FOR: Duration = Duration::from_secs(3600);

/// Remembers in a directory, with a file for each server.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Nothing is remembered for other runs without one.
    dir: Option<PathBuf>,
    /// What this run has found.
    found: Mutex<HashSet<Authority>>,
}

impl Memory {
    pub(crate) fn new(dir: Option<PathBuf>) -> Self {
        Self { dir, found: Mutex::default() }
    }

    /// QUIC did not get through to that server in the last hour.
    pub(crate) fn holds(&self, authority: &Authority) -> bool {
        if self.found.lock().unwrap_or_else(PoisonError::into_inner).contains(authority) {
            return true;
        }
        let Some(file) = self.file(authority) else { return false };
        let changed = fs::metadata(file).and_then(|found| found.modified());
        // A time in the future is no time at which anything was noted.
        changed.is_ok_and(|at| at.elapsed().is_ok_and(|ago| ago < GOOD_FOR))
    }

    /// QUIC did not get through. What cannot be written is remembered in this run only.
    pub(crate) fn note(&self, authority: &Authority) {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).insert(authority.clone());
        if let (Some(dir), Some(file)) = (&self.dir, self.file(authority)) {
            let _ = fs::create_dir_all(dir).and_then(|()| fs::write(file, ""));
        }
    }

    /// QUIC gets through.
    pub(crate) fn forget(&self, authority: &Authority) {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).remove(authority);
        if let Some(file) = self.file(authority) {
            let _ = fs::remove_file(file);
        }
    }

    fn file(&self, authority: &Authority) -> Option<PathBuf> {
        let Authority { host, port, .. } = authority;
        // The URL's parser lets no slash into a host, and no host begins with a dot.
        Some(self.dir.as_ref()?.join(format!("{host}_{port}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::get::download::tests::job;
    use std::time::SystemTime;

    #[test]
    fn failures_are_remembered_for_an_hour_and_by_server() {
        let dir = tempfile::tempdir().unwrap();
        let memory = || Memory::new(Some(dir.path().join("new")));
        let authority = |url| job(url, &[]).target.authority;
        let (a, b) = (authority("https://a.test/"), authority("https://a.test:444/"));
        assert!(!memory().holds(&a));
        let own = memory();
        own.note(&a);
        assert!(own.holds(&a) && memory().holds(&a) && !memory().holds(&b));
        for time in [SystemTime::now() - GOOD_FOR, SystemTime::now() + GOOD_FOR] {
            fs::File::options()
                .write(true)
                .open(own.file(&a).unwrap())
                .and_then(|file| file.set_modified(time))
                .unwrap();
            assert!(!memory().holds(&a));
        }
        own.note(&a);
        own.forget(&a);
        assert!(!own.holds(&a) && !memory().holds(&a));
        let nowhere = Memory::new(None);
        nowhere.note(&a);
        assert!(nowhere.holds(&a));
    }
}
