//! Local connections as streams.

use std::future::Future;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use quicket::tokio::{Connection, Stream};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::keep::{Current, Keeper};
use super::{Error, Event, Local, PIECE, Say, Server};
use crate::carry::{self, Ends, Meter, Pace, Rules, Socket, code};

/// Local connections at once; more wait to be accepted.
const MAX_CONNECTIONS: usize = 4096;
/// How long a local connection waits for one to the server, and for its stream.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long to wait before the next attempt where the system has no descriptors left.
const SHORTAGE: Duration = Duration::from_millis(100);

/// A local socket that listens.
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Listener {
    /// Listens at a path, for nobody but this user. A socket that a process has left there is removed.
    pub(super) async fn unix(path: &Path) -> io::Result<Self> {
        let listener = match UnixListener::bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                let left = UnixStream::connect(path).await.err().map(|error| error.kind());
                // The system refuses a connection to a file, too.
                let is_socket = tokio::fs::symlink_metadata(path).await?.file_type().is_socket();
                if left != Some(io::ErrorKind::ConnectionRefused) || !is_socket {
                    return Err(error);
                }
                tokio::fs::remove_file(path).await?;
                UnixListener::bind(path)
            }
            bound => bound,
        }?;
        let listener = Self::Unix(listener, path.to_owned());
        let only_this_user = std::fs::Permissions::from_mode(0o600);
        tokio::fs::set_permissions(path, only_this_user).await?;
        Ok(listener)
    }

    async fn accept(&self) -> io::Result<Socket> {
        match self {
            Self::Tcp(listener) => Ok(listener.accept().await?.0.into()),
            Self::Unix(listener, _) => Ok(listener.accept().await?.0.into()),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Carries each local connection until `stop` is ready.
pub(super) async fn run(
    listener: Listener,
    local: &Local,
    server: Server,
    say: Say,
    stop: impl Future<Output = ()>,
) -> Result<(), Error> {
    let begun = Keeper::begin(server, Arc::clone(&say));
    let mut stop = std::pin::pin!(stop);
    let (keeper, current) = tokio::select! {
        begun = begun => begun?,
        () = &mut stop => return Ok(()),
    };
    say(&Event::Listening(local.clone()));
    tokio::select! {
        never = keeper.run() => match never {},
        () = accept(&listener, &current, &say) => {}
        () = &mut stop => {}
    }
    let connection = current.borrow().clone();
    if let Some(connection) = connection {
        connection.close(0, b"");
    }
    Ok(())
}

async fn accept(listener: &Listener, current: &Current, say: &Say) {
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        match listener.accept().await {
            Ok(socket) => {
                let (current, say) = (current.clone(), Arc::clone(say));
                tokio::spawn(async move {
                    if let Err(code) = carried(socket, current).await {
                        say(&Event::Broken(code));
                    }
                    drop(permit);
                });
            }
            Err(error) => {
                log::warn!("cannot accept a connection: {error}");
                sleep(SHORTAGE).await;
            }
        }
    }
}

async fn carried(socket: Socket, mut current: Current) -> Result<(), u64> {
    let mut near = socket.ends(PIECE);
    let Ok(Some((_connection, stream))) = timeout(PATIENCE, open(&mut current)).await else {
        near.give_up(code::UNREACHABLE);
        return Err(code::UNREACHABLE);
    };
    let mut far = Ends::of_stream(stream);
    // The gateway says how long a stream may be silent; and the end of the connection is that of all streams.
    let rules = Rules { idle: Duration::MAX, coupled: true };
    carry::carry(&mut near, &mut far, rules, (&Meter::new(), &Pace::none())).await
}

/// A stream of the connection that there is, or of the next one.
async fn open(current: &mut Current) -> Option<(Connection, Stream)> {
    loop {
        let connection = current.wait_for(Option::is_some).await.ok()?.clone()?;
        match connection.open_bi().await {
            Ok(mut stream) => {
                // The server may be the one who speaks first.
                let _ = stream.announce();
                return Some((connection, stream));
            }
            // It has ended, of which the keeper hears as well.
            Err(_) => current.changed().await.ok()?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name that was mistyped.
    #[tokio::test]
    async fn a_file_that_is_no_socket_stays_and_a_socket_that_was_left_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("here");
        std::fs::write(&path, "precious").unwrap();
        let error = Listener::unix(&path).await.err().expect("it is no socket");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse, "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        std::fs::remove_file(&path).unwrap();
        drop(UnixListener::bind(&path).unwrap());
        let listener = Listener::unix(&path).await.unwrap();
        assert!(Listener::unix(&path).await.is_err(), "somebody listens there");
        drop(listener);
        assert!(!path.exists());
    }
}
