//! The socket on which programs find the switch.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, getsockname, getsockopt,
    listen, socket, sockopt,
};
use nix::unistd::geteuid;

use crate::activation;
use crate::registry::MAX_ADDRESSES;
use crate::rendezvous;
use crate::sys;

/// The most sockets of addresses that a service manager keeps for a switch.
const MAX_STORED: u32 = MAX_ADDRESSES as u32;
/// The length of a key, in bytes.
const KEY: usize = 32;

/// A socket that programs connect to. Whoever drops it removes its file.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    own: Option<Own>,
    /// The locked file beside a socket that a service manager has made.
    lent: Option<Flock<File>>,
    /// A switch before this one was killed, or may have been.
    takes_over: bool,
}

/// The file of a socket that the switch has made itself.
#[derive(Debug)]
struct Own {
    path: PathBuf,
    /// Locked as long as there is a switch, whichever way that ends. What is in it is for the next one.
    lock: Flock<File>,
}

impl Listener {
    /// Takes the name of a switch ([`rendezvous::path`]). `AddrInUse`: there is one. What a switch has
    /// left behind that was killed is replaced.
    ///
    /// # Errors
    ///
    /// When the name makes no path, or somebody has it.
    pub fn bind(name: &str) -> io::Result<Self> {
        let path = rendezvous::path(name)?;
        let lock = lock(&lock_of(&path))?;
        let address = UnixAddr::new(&path)?;
        if answers(&address) {
            // Somebody has removed the file that it holds locked.
            return Err(Errno::EADDRINUSE.into());
        }
        let takes_over = remove_leftover(&path)?;
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
        bind(socket.as_raw_fd(), &address)?;
        let own = Some(Own { path, lock });
        // Behind this the file is removed, should anything fail.
        let listener = Self { socket, own, lent: None, takes_over };
        listen(&listener.socket, Backlog::MAXCONN)?;
        Ok(listener)
    }

    /// The same for a switch that all users may connect to; it says itself which of them it hears.
    ///
    /// # Errors
    ///
    /// As [`Self::bind`].
    pub fn bind_for_all(name: &str) -> io::Result<Self> {
        if name == rendezvous::SYSTEM {
            rendezvous::make_system_directory()?;
        }
        let listener = Self::bind(name)?;
        if let Some(own) = &listener.own {
            fs::set_permissions(&own.path, fs::Permissions::from_mode(0o666))?;
        }
        Ok(listener)
    }

    /// The socket that a service manager has handed over (sd_listen_fds(3)), if there is one, and those of addresses
    /// that it has kept for this switch.
    ///
    /// # Errors
    ///
    /// When it hands over more than one, or what is none.
    pub fn activated() -> io::Result<(Option<Self>, Vec<UdpSocket>)> {
        let handed = activation::sockets_up_to(activation::MAX_HANDED + MAX_STORED)?;
        let is_udp =
            |socket: &OwnedFd| getsockopt(socket, sockopt::SockType) == Ok(SockType::Datagram);
        let (stored, handed): (Vec<_>, Vec<_>) = handed.into_iter().partition(is_udp);
        let stored = stored.into_iter().map(UdpSocket::from).collect();
        Ok((Self::handed(handed)?, stored))
    }

    fn handed(mut handed: Vec<OwnedFd>) -> io::Result<Option<Self>> {
        let Some(socket) = handed.pop() else { return Ok(None) };
        if !handed.is_empty() {
            let text = "the service manager hands over more than one socket: give the switch one";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let listens = getsockopt(&socket, sockopt::AcceptConn);
        let kind = getsockopt(&socket, sockopt::SockType);
        if listens != Ok(true) || kind != Ok(SockType::SeqPacket) {
            let text = "the service manager's socket is none of messages that listens: give it \
                        ListenSequentialPacket=";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        sys::set_nonblocking(socket.as_fd())?;
        let lent = lock_beside(&socket);
        if let Err(error) = &lent {
            log::warn!("the next switch will not know what this one has given: {error}");
        }
        // Nothing is left of it but the socket, which the service manager keeps.
        Ok(Some(Self { socket, own: None, lent: lent.ok(), takes_over: true }))
    }

    /// Whether programs of a switch before this one may come back.
    pub(super) const fn takes_over(&self) -> bool {
        self.takes_over
    }

    /// The key of receipts, which the switch before this one has left to it; `fresh` if there was none.
    /// Only this user can read it.
    pub(super) fn key(&mut self, fresh: [u8; KEY]) -> [u8; KEY] {
        let own = self.own.as_mut().map(|own| &mut own.lock);
        match own.or(self.lent.as_mut()).map(|file| kept(file, &fresh)) {
            Some(Ok(key)) => key,
            Some(Err(error)) => {
                log::warn!("the next switch will not know what this one has given: {error}");
                fresh
            }
            None => fresh,
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Before another can have the lock.
        if let Some(own) = &self.own {
            let _ = fs::remove_file(&own.path);
        }
    }
}

/// The file beside a socket that is locked by the switch.
fn lock_of(path: &Path) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(".lock");
    path.into()
}

/// Locks the file beside a socket; `AddrInUse` if a switch has it.
fn lock(path: &Path) -> io::Result<Flock<File>> {
    // What somebody else has put there is neither followed nor waited for.
    let flags = nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(flags);
    let file = options.open(path).map_err(|error| {
        let text =
            format!("cannot open {}, which is locked for the switch: {error}", path.display());
        io::Error::new(error.kind(), text)
    })?;
    check_lock(path, &file)?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| match error {
        Errno::EWOULDBLOCK => Errno::EADDRINUSE.into(),
        error => error.into(),
    })
}

/// The same beside a socket that somebody else has bound.
fn lock_beside(socket: &OwnedFd) -> io::Result<Flock<File>> {
    let address = getsockname::<UnixAddr>(socket.as_raw_fd())?;
    let none = || io::Error::new(io::ErrorKind::NotFound, "the switch's socket has no file");
    lock(&lock_of(address.path().ok_or_else(none)?))
}

/// Whether the file is one that only this user can read, write and lock: a key is in it.
fn check_lock(path: &Path, file: &File) -> io::Result<()> {
    let (found, user) = (file.metadata()?, geteuid().as_raw());
    if found.is_file() && found.uid() == user && found.mode() & 0o077 == 0 {
        return Ok(());
    }
    let text = format!(
        "{} is not a file of user {user} alone (owner {}, mode {:o}): remove it, or name another place \
         for the switch",
        path.display(),
        found.uid(),
        found.mode()
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

/// Removes the socket of a switch that is no more, and nothing else; false if there is none.
fn remove_leftover(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
        Ok(found) if found.file_type().is_socket() => fs::remove_file(path).map(|()| true),
        Ok(_) => {
            let text = format!("{} is no socket: choose another path", path.display());
            Err(io::Error::new(io::ErrorKind::AlreadyExists, text))
        }
    }
}

/// Whether a switch takes connections there.
fn answers(address: &UnixAddr) -> bool {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None);
    // One whose queue is full takes none for the moment.
    socket.is_ok_and(|socket| {
        matches!(connect(socket.as_raw_fd(), address), Ok(()) | Err(Errno::EAGAIN))
    })
}

fn kept(file: &mut File, fresh: &[u8; KEY]) -> io::Result<[u8; KEY]> {
    let mut key = Vec::new();
    file.rewind()?;
    file.take(KEY as u64).read_to_end(&mut key)?;
    if let Ok(key) = <[u8; KEY]>::try_from(key) {
        return Ok(key);
    }
    file.rewind()?;
    file.write_all(fresh)?;
    Ok(*fresh)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_name_is_had_by_one_and_what_is_left_of_a_dead_one_is_replaced() {
        let path = std::env::temp_dir().join(format!("quicket-listener-{}", std::process::id()));
        let name = path.to_str().unwrap();
        let mut first = Listener::bind(name).unwrap();
        assert_eq!(first.key([1; KEY]), [1; KEY]);
        let taken = Listener::bind(name).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse, "{taken}");
        let takes_over = first.takes_over();
        // Killed: the file stays, the lock does not.
        let own = first.own.take().unwrap();
        drop(first);
        drop(own.lock);
        assert!(path.exists());
        let mut second = Listener::bind(name).unwrap();
        assert!(!takes_over && second.takes_over());
        assert_eq!(second.key([2; KEY]), [1; KEY], "the key is the one of the switch before");
        // A file that was removed does not make room for another switch.
        let lock = lock_of(&path);
        fs::remove_file(&lock).unwrap();
        let taken = Listener::bind(name).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse, "{taken}");
        drop(second);
        assert!(!path.exists());
        fs::write(&path, "somebody's").unwrap();
        let taken = Listener::bind(name).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists, "{taken}");
        fs::remove_file(&path).unwrap();
        fs::remove_file(lock).unwrap();
    }

    /// The key in it lets programs claim numbers, and who has it locked is the switch.
    #[test]
    fn a_lock_file_is_this_users_alone() {
        let path = std::env::temp_dir().join(format!("quicket-lock-{}", std::process::id()));
        let lock = lock_of(&path);
        let refused = || Listener::bind(path.to_str().unwrap()).unwrap_err();
        fs::write(&lock, [7; KEY]).unwrap();
        fs::set_permissions(&lock, fs::Permissions::from_mode(0o640)).unwrap();
        let error = refused();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
        assert!(error.to_string().contains("mode 100640"), "{error}");
        fs::remove_file(&lock).unwrap();
        // Nobody reads or writes there.
        nix::unistd::mkfifo(&lock, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(refused().kind(), io::ErrorKind::PermissionDenied);
        fs::remove_file(&lock).unwrap();
        std::os::unix::fs::symlink("/dev/null", &lock).unwrap();
        assert!(refused().to_string().contains("cannot open"));
        fs::remove_file(&lock).unwrap();
        assert!(!path.exists());
        let mut listener = Listener::bind(path.to_str().unwrap()).unwrap();
        assert_eq!(listener.key([3; KEY]), [3; KEY]);
        fs::remove_file(&lock).unwrap();
    }
}
