//! The path at which a switch listens, and the lock that says whose it is.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::device::Record;

/// How long the lock of a switch that has gone may be held by a child of it that has not called exec yet.
const LOCK_TIME: Duration = Duration::from_secs(1);

/// A path at which this switch listens, as long as this is there. The file that is locked is beside it, with `.lock` behind its name:
/// of two switches that begin at once, one has it. In there stands what has to be set back if it is killed.
pub(super) struct Place {
    path: PathBuf,
    /// What tells the socket there from another's: device and inode.
    socket: (u64, u64),
    lock_path: PathBuf,
    lock: File,
    record: Option<Arc<Record>>,
}

impl Place {
    /// A socket that listens at a path. What a switch that has died left there is removed.
    ///
    /// # Errors
    ///
    /// `AddrInUse` when there is a switch at that path; or what the system says.
    pub(super) fn take(path: &Path, for_all: bool) -> io::Result<(Self, OwnedFd)> {
        let address = SocketAddrUnix::new(path)?;
        let mut lock_path = path.as_os_str().to_owned();
        lock_path.push(".lock");
        let lock_path = PathBuf::from(lock_path);
        let begun = Instant::now();
        let lock = loop {
            let is_late = begun.elapsed() > LOCK_TIME;
            match lock(&lock_path) {
                Ok(Some(lock)) => break lock,
                Ok(None) if is_late || has_listener(&address)? => {
                    return Err(Errno::ADDRINUSE.into());
                }
                Ok(None) => std::thread::sleep(Duration::from_millis(5)),
                // The switch of another user has died here. Who may write in the directory may begin another one, unless what it has
                // altered would be forgotten.
                Err(error)
                    if error.kind() == io::ErrorKind::PermissionDenied
                        && !is_late
                        && !has_listener(&address)? =>
                {
                    may_go(&lock_path)?;
                    rustix::fs::unlink(&lock_path).map_err(|_| error)?;
                }
                Err(error) => return Err(error),
            }
        };
        let mut undo = Undo { path: None, lock_path: &lock_path, lock: &lock, is_done: false };
        let socket = new()?;
        if let Err(error) = rustix::net::bind(&socket, &address) {
            // One that has no lock, or something else.
            if error != Errno::ADDRINUSE || has_listener(&address)? {
                return Err(error.into());
            }
            // The system answers for a file as for a socket that nobody listens at.
            if !is_socket(path)? {
                let what = "there is something that is no socket";
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
            }
            rustix::fs::unlink(path)?;
            rustix::net::bind(&socket, &address)?;
        }
        undo.path = Some(path);
        // Before it listens nobody can connect.
        let mode = if for_all { 0o666 } else { 0o600 };
        rustix::fs::chmod(path, Mode::from_raw_mode(mode))?;
        let inode = inode(path)?;
        rustix::net::listen(&socket, 128)?;
        undo.is_done = true;
        drop(undo);
        let path = path.to_owned();
        let place = Self { path, socket: inode, lock_path, lock, record: None };
        Ok((place, socket))
    }

    /// The notes of what is altered, which stand in the file that is locked. What a switch has altered that was killed here is set
    /// back. `namespace` is the network namespace of this thread.
    ///
    /// # Errors
    ///
    /// When there are no descriptors left.
    pub(super) fn record(&mut self, namespace: u64) -> io::Result<Arc<Record>> {
        let record = Arc::new(Record::open(self.lock.try_clone()?, namespace));
        record.undo();
        self.record = Some(Arc::clone(&record));
        Ok(record)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Somebody may have removed it, and have put something else there.
        if inode(&self.path).is_ok_and(|inode| inode == self.socket) {
            let _ = rustix::fs::unlink(&self.path);
        }
        // What could not be set back is left to the next one.
        let own = self.record.as_ref().filter(|record| !record.is_nowhere());
        if own.map_or_else(|| is_empty(&self.lock), |record| record.is_empty()) {
            unlink(&self.lock_path, &self.lock);
        }
    }
}

/// Removes what an attempt has left.
struct Undo<'a> {
    path: Option<&'a Path>,
    lock_path: &'a Path,
    lock: &'a File,
    is_done: bool,
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            if let Some(path) = self.path {
                let _ = rustix::fs::unlink(path);
            }
            if is_empty(self.lock) {
                unlink(self.lock_path, self.lock);
            }
        }
    }
}

/// Removes a file that is locked, unless somebody has put another one there. Who has opened it meanwhile finds that it is there no more.
fn unlink(path: &Path, lock: &File) {
    if is_there(path, lock).unwrap_or(false) {
        let _ = rustix::fs::unlink(path);
    }
}

/// Whether a file is the one of that path.
fn is_there(path: &Path, file: &File) -> io::Result<bool> {
    let metadata = file.metadata()?;
    Ok(inode(path).is_ok_and(|inode| inode == (metadata.dev(), metadata.ino())))
}

/// Whether a file that may not be opened to be locked can be removed.
///
/// # Errors
///
/// `PermissionDenied` when there is something in it: most likely notes of what has to be set back.
fn may_go(path: &Path) -> io::Result<()> {
    let metadata = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        result => result?,
    };
    if metadata.len() == 0 {
        return Ok(());
    }
    // Root may read it in a folder where it may not open it for writing (fs.protected_regular of proc_sys_fs(5)).
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = rustix::fs::open(path, flags, Mode::empty());
    if file.is_ok_and(|file| Record::is_over(&File::from(file))) {
        return Ok(());
    }
    let (path, user) = (path.display(), metadata.uid());
    let why = format!(
        "{path} is user {user}'s and not empty: a switch that was killed has left there what it has altered of network devices. \
         Start one here as user {user}, which sets that back; or set it back by hand (ethtool -K DEVICE rx-vlan-offload on; \
         docs/packets.md), and remove the file"
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

/// Whether there is nothing in a file that is locked for whoever has the path next.
fn is_empty(lock: &File) -> bool {
    lock.metadata().is_ok_and(|metadata| metadata.len() == 0)
}

/// The file of that path, locked; none while somebody has it.
fn lock(path: &Path) -> io::Result<Option<File>> {
    let failed = |error: Errno| {
        let what = format!("cannot lock {}: {error}", path.display());
        io::Error::new(error.kind(), what)
    };
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mode = Mode::RUSR | Mode::WUSR;
    let file = File::from(rustix::fs::open(path, flags, mode).map_err(failed)?);
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Ok(None),
        Err(error) => return Err(failed(error)),
    }
    // It may have been removed by who had it.
    Ok(is_there(path, &file)?.then_some(file))
}

fn inode(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = std::fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

fn is_socket(path: &Path) -> io::Result<bool> {
    Ok(std::fs::symlink_metadata(path)?.file_type().is_socket())
}

fn new() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// Whether somebody listens there, or there is a socket of another kind.
fn has_listener(address: &SocketAddrUnix) -> io::Result<bool> {
    Ok(!matches!(rustix::net::connect(new()?, address), Err(Errno::CONNREFUSED | Errno::NOENT)))
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("quicket-place-{name}-{}", std::process::id()))
    }

    /// A switch whose path was removed, and taken by the next one, ends after that has begun.
    #[test]
    fn who_ends_leaves_the_next_one_its_socket() {
        let path = path("next");
        let (first, _) = Place::take(&path, false).unwrap();
        for file in [&path, &first.lock_path] {
            std::fs::remove_file(file).unwrap();
        }
        let (second, listener) = Place::take(&path, false).unwrap();
        drop(first);
        assert!(has_listener(&SocketAddrUnix::new(&*path).unwrap()).unwrap());
        let lock_path = second.lock_path.clone();
        assert!(lock_path.exists(), "... and the lock");
        drop((second, listener));
        assert!(!path.exists() && !lock_path.exists());
    }

    /// ... of another user, or of another network namespace.
    #[test]
    fn notes_that_are_not_this_ones_stay_where_they_are() {
        let path = path("notes");
        let (mut place, listener) = Place::take(&path, false).unwrap();
        let lock_path = place.lock_path.clone();
        std::fs::write(&lock_path, "something else").unwrap();
        assert!(place.record(7).unwrap().is_nowhere());
        drop((place, listener));
        assert_eq!(std::fs::read(&lock_path).unwrap(), b"something else");
        std::fs::write(&lock_path, "").unwrap();
        let (mut place, listener) = Place::take(&path, false).unwrap();
        place.record(7).unwrap();
        drop((place, listener));
        assert!(!path.exists() && !lock_path.exists());
    }

    /// ... and nobody removes what may have to be set back.
    #[test]
    fn a_lock_that_may_not_be_opened_goes_if_nothing_is_to_be_set_back() {
        let path = path("anothers");
        may_go(&path).unwrap();
        std::fs::write(&path, "").unwrap();
        may_go(&path).unwrap();
        std::fs::write(&path, "quicket-packets-altered 1 another-boot 7\n1 lo - 65535 0 0\nend\n")
            .unwrap();
        may_go(&path).unwrap();
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let own = format!("quicket-packets-altered 1 {} 7\n7 eth0 vlan - - -\nend\n", boot.trim());
        for text in [&*own, "something else\n"] {
            std::fs::write(&path, text).unwrap();
            let error = may_go(&path).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
            assert!(error.to_string().contains(&*path.to_string_lossy()), "{error}");
        }
        std::fs::remove_file(&path).unwrap();
    }

    /// A name that was mistyped.
    #[test]
    fn a_file_that_is_no_socket_stays() {
        let path = path("file");
        std::fs::write(&path, "precious").unwrap();
        let error = Place::take(&path, false).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/nowhere", &path).unwrap();
        assert!(Place::take(&path, false).is_err());
        assert!(path.is_symlink());
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn one_of_those_who_begin_at_once_where_one_has_died_has_the_path() {
        let path = path("many");
        let address = SocketAddrUnix::new(&*path).unwrap();
        for _ in 0..50 {
            let dead = new().unwrap();
            rustix::net::bind(&dead, &address).unwrap();
            drop(dead);
            let barrier = Barrier::new(4);
            let taken: Vec<_> = std::thread::scope(|scope| {
                let begin = || {
                    barrier.wait();
                    Place::take(&path, false)
                };
                let all: Vec<_> = (0..4).map(|_| scope.spawn(begin)).collect();
                all.into_iter().map(|one| one.join().unwrap()).collect()
            });
            let errors: Vec<_> = taken.iter().filter_map(|taken| taken.as_ref().err()).collect();
            assert_eq!(errors.len(), 3, "{errors:?}");
            assert!(errors.iter().all(|error| error.kind() == io::ErrorKind::AddrInUse));
            assert!(has_listener(&address).unwrap());
            drop(taken);
            assert!(!path.exists(), "nothing is left");
        }
    }
}
