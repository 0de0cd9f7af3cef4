//! A socket of AF_XDP for each queue of a device, or none at all.

use std::io;
use std::time::{Duration, Instant};

use quicket_bpf::MAX_QUEUES;

use super::netlink::Link;
use super::xsk::Socket;

/// How long a queue may take to become free once its socket is closed.
const FREE_TIME: Duration = Duration::from_secs(2);

/// Binds a socket. One that is closed keeps its queue until the kernel has seen to it, some time later: so this
/// waits a while for a queue to become free.
pub(super) fn bind(device: u32, queue: u32, longest: u32, copy: bool) -> io::Result<Socket> {
    let begun = Instant::now();
    loop {
        match Socket::bind(device, queue, longest, copy) {
            Err(error)
                if error.kind() == io::ErrorKind::ResourceBusy && begun.elapsed() < FREE_TIME =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            result => return result,
        }
    }
}

/// Whether the device has no more queues than may have sockets.
///
/// # Errors
///
/// `InvalidInput` when it has, with what to do.
pub(super) fn refuse_more(link: &Link, longest: u32, copy: bool) -> io::Result<()> {
    // What came by a queue without a socket would be the system's, and no frame of its flows would come to a port.
    let one_more = Socket::bind(link.index, MAX_QUEUES, longest, copy);
    if !matches!(&one_more, Err(error) if error.kind() == io::ErrorKind::InvalidInput) {
        one_more.map(drop).or_else(|error| match error.kind() {
            io::ErrorKind::ResourceBusy => Ok(()),
            _ => Err(error),
        })?;
        let why = format!(
            "it has more than {MAX_QUEUES} queues, and frames of all have to come to the switch: ethtool -L {} combined \
             {MAX_QUEUES} (or rx {MAX_QUEUES} tx {MAX_QUEUES})",
            link.name
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    Ok(())
}
