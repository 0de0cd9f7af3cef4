//! What attaching looks at, and makes.

use std::io;
use std::os::fd::AsFd;

use quicket_bpf::{MAX_QUEUES, TupleProgram};

use super::super::netlink::Link;
use super::super::queue::Queue;
use super::super::sockets::{bind, refuse_more};
use super::{ETHERNET, MAX_HEADER, MAX_PACKET, Mode};

/// Whether it is a device that frames can come by.
pub(super) fn check(link: &Link) -> io::Result<()> {
    let refuse = |why: String| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    let name = &link.name;
    if link.kind != ETHERNET && !link.is_loopback() {
        return refuse(format!(
            "{name} is not of type Ethernet: attach the device that its packets come by"
        ));
    }
    if link.mtu > MAX_PACKET {
        return refuse(format!(
            "the MTU of {name} is {}, and frames of AF_XDP have room for {MAX_PACKET}: ip link set {name} mtu \
             {MAX_PACKET}, or less",
            link.mtu
        ));
    }
    Ok(())
}

/// Attaches the program; returns whether it is in the driver.
pub(super) fn hook(
    program: &TupleProgram,
    link: &Link,
    mode: Mode,
) -> io::Result<(quicket_bpf::Link, bool)> {
    let attach = |mode| program.program().attach(link.index, mode);
    match mode {
        Mode::Generic => Ok((attach(quicket_bpf::Mode::Generic)?, false)),
        Mode::Native => Ok((attach(quicket_bpf::Mode::Native)?, true)),
        Mode::Best => match attach(quicket_bpf::Mode::Native) {
            Ok(hook) => Ok((hook, true)),
            Err(error) => {
                // What stands in the way of both is said by the other one.
                let hook = attach(quicket_bpf::Mode::Generic)?;
                log::info!("{} has the program behind its driver, not in it: {error}", link.name);
                Ok((hook, false))
            }
        },
    }
}

/// A socket for each queue.
pub(super) fn sockets(
    program: &TupleProgram,
    link: &Link,
    is_native: bool,
) -> io::Result<Vec<Queue>> {
    let mut queues = Vec::new();
    let longest = link.mtu + MAX_HEADER;
    refuse_more(link, longest, !is_native)?;
    for number in 0..MAX_QUEUES {
        let socket = match bind(link.index, number, longest, !is_native) {
            // There are no more queues.
            Err(error) if number > 0 && error.kind() == io::ErrorKind::InvalidInput => break,
            result => result?,
        };
        program.set_socket(number, socket.as_fd())?;
        queues.push(Queue::new(socket));
    }
    Ok(queues)
}
