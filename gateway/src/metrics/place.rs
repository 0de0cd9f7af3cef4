//! Where the counters can be read: an address of TCP, or a Unix socket that is its owner's alone.

use std::fmt;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use socket2::{Domain, SockAddr, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener, UnixStream};

use quicket_front::Handed;

/// Where the counters can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// An address of TCP.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

impl Place {
    /// Reads `127.0.0.1:9090` or `unix:/PATH`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.starts_with('/') && path.len() < 100 {
                true => Ok(Self::Unix(path.into())),
                false => Err(format!("{text:?} is no unix:/PATH of less than 100 bytes")),
            };
        }
        let address = text.parse();
        address.map(Self::Tcp).map_err(|_| format!("{text:?} is neither IP:PORT nor unix:/PATH"))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "http://{address}/metrics"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A listener at a place.
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(Named),
}

/// A Unix socket, whose name goes with the last process that listens there.
pub(crate) struct Named {
    /// None only while it is dropped.
    listener: Option<UnixListener>,
    path: PathBuf,
    /// Another process may have it, too.
    is_shared: AtomicBool,
}

impl Named {
    fn new(listener: UnixListener, path: &Path, is_shared: bool) -> Self {
        Self { listener: Some(listener), path: path.into(), is_shared: is_shared.into() }
    }

    fn listener(&self) -> io::Result<&UnixListener> {
        self.listener.as_ref().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

/// A connection of either kind.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

impl Listener {
    pub(crate) async fn bind(place: &Place, handed: &mut Handed) -> io::Result<Self> {
        match place {
            Place::Tcp(address) => match handed.tcp(*address) {
                Some(listener) => listener.map(Self::Tcp),
                None => TcpListener::bind(address).await.map(Self::Tcp),
            },
            Place::Unix(path) => {
                if let Some(listener) = handed.unix() {
                    return Ok(Self::Unix(Named::new(listener?, path, true)));
                }
                let stale =
                    fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
                if stale && UnixStream::connect(path).await.is_ok() {
                    return Err(io::ErrorKind::AddrInUse.into());
                }
                if !stale && fs::symlink_metadata(path).is_ok() {
                    return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it is no socket"));
                }
                bind_unix(path).map(|listener| Self::Unix(Named::new(listener, path, false)))
            }
        }
    }

    /// Where it is, with the port that the system chose.
    pub(crate) fn place(&self) -> Option<Place> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok().map(Place::Tcp),
            Self::Unix(named) => Some(Place::Unix(named.path.clone())),
        }
    }

    pub(crate) async fn accept(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Tcp(listener) => Box::new(listener.accept().await?.0),
            Self::Unix(named) => Box::new(named.listener()?.accept().await?.0),
        })
    }

    /// Another descriptor of the same socket.
    pub(crate) fn share(&self) -> io::Result<OwnedFd> {
        match self {
            Self::Tcp(listener) => listener.as_fd().try_clone_to_owned(),
            Self::Unix(named) => {
                named.is_shared.store(true, Ordering::Relaxed);
                named.listener()?.as_fd().try_clone_to_owned()
            }
        }
    }
}

/// Makes the socket where nobody else comes, so that at no time others could use it.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    let mut private = path.as_os_str().to_owned();
    private.push(format!(".{}", std::process::id()));
    let private = PathBuf::from(private);
    let _ = fs::remove_dir_all(&private);
    fs::DirBuilder::new().mode(0o700).create(&private)?;
    let made = || {
        let within = private.join("s");
        let listener = UnixListener::bind(&within)?;
        fs::set_permissions(&within, fs::Permissions::from_mode(0o600))?;
        fs::rename(&within, path)?;
        Ok(listener)
    };
    let made = made();
    let _ = fs::remove_dir_all(&private);
    made
}

/// True if somebody listens there.
fn is_open(path: &Path) -> bool {
    let open = || {
        let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
        socket.connect(&SockAddr::unix(path)?)
    };
    // Others who wait there already are a sign of life.
    open().map_or_else(|error| error.kind() == io::ErrorKind::WouldBlock, |()| true)
}

impl Drop for Named {
    fn drop(&mut self) {
        drop(self.listener.take());
        // The next generation has the same socket, and its name goes on. Of a socket that was never shared nobody is
        // asked: a child that this process has just forked holds it, too, until it runs another program.
        if !*self.is_shared.get_mut() || !is_open(&self.path) {
            let _ = fs::remove_file(&self.path);
        }
    }
}
