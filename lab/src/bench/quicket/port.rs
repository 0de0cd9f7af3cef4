//! Both ends by ports of a switch for packets, which is a thread of the server.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use quicket::{Endpoint, EndpointConfig};
use quicket_packets::daemon::Daemon;
use quicket_workload::bench::{Assignment, Failure, Role};

/// Starts the switch, which lasts as long as this process, and binds a port there.
pub(super) fn serve(address: SocketAddr, assignment: &Assignment) -> Result<Endpoint, Failure> {
    let socket = UdpSocket::bind(address)?;
    let path = path(socket.local_addr()?.port(), assignment)?;
    let daemon = Daemon::bind(&path, false)?;
    std::thread::Builder::new().name("packets".into()).spawn(move || -> io::Result<()> {
        // Nobody tells it to stop.
        let (_stop, stopped) = UnixStream::pair()?;
        daemon.run(stopped.as_fd()).map(drop)
    })?;
    Ok(Endpoint::from_socket(socket, config(path))?)
}

/// Binds a port at the switch of a server.
pub(super) fn connect(server: SocketAddr, assignment: &Assignment) -> Result<Endpoint, Failure> {
    let path = path(server.port(), assignment)?;
    // On loopback, the server's address is the client's, too.
    Ok(Endpoint::bind_with(SocketAddr::new(server.ip(), 0), config(path))?)
}

fn config(path: PathBuf) -> EndpointConfig {
    let mut config = EndpointConfig::default();
    config.udp.port_of = Some(path);
    config
}

/// In the folder of certificates, which both have and which is removed at the end.
fn path(port: u16, assignment: &Assignment) -> Result<PathBuf, Failure> {
    let file = match &assignment.role {
        Role::Server { certificate, .. } => certificate,
        Role::Client { roots, .. } => roots,
    };
    let folder = file.parent().ok_or("certificates are in no folder")?;
    Ok(folder.join(format!("packets-{port}")))
}
