//! Requests to the lender: each on a connection of its own, so that nothing is left behind by fork, and no thread waits
//! for another one.

use std::ffi::c_int;

use quicket_tcp_protocol::{Answer, Call, Names, Request};

use super::{names, native};

/// Asks about a socket. A signal does not end it: the lender answers at once.
pub(super) fn ask(socket: u64, call: Call) -> Result<Answer, c_int> {
    converse(socket, call, false).map(|(answer, _)| answer)
}

/// Asks, and waits until a connection is there, or a signal comes.
pub(super) fn wait(socket: u64, call: Call) -> Result<Answer, c_int> {
    converse(socket, call, true).map(|(answer, _)| answer)
}

/// Asks for a socket: the descriptor and what it is called.
pub(super) fn borrow(is_v6: bool) -> Result<(c_int, u64), c_int> {
    let (answer, with) = converse(0, Call::Socket { is_v6 }, false)?;
    if answer.error != 0 {
        return Err(answer.error);
    }
    match with {
        Some(fd) if fd >= 0 => Ok((fd, answer.socket)),
        _ => Err(libc::EMFILE),
    }
}

fn converse(socket: u64, call: Call, may_wait: bool) -> Result<(Answer, Option<c_int>), c_int> {
    let names = names().ok_or(libc::ENETDOWN)?;
    let to = native::Name::of_abstract(names.requests().as_bytes());
    // A lender that is no more has taken its stack with it.
    let fd = native::connect(&to).map_err(|error| match error {
        libc::ECONNREFUSED => libc::ENETDOWN,
        other => other,
    })?;
    let answer = exchange(fd, names, socket, call, may_wait);
    native::close(fd);
    // The number that the connection had is the lowest: the program expects that one.
    answer.map(|(answer, with)| {
        (answer, with.map(|with| if with > fd { native::lower(with, fd) } else { with }))
    })
}

fn exchange(
    fd: c_int,
    names: &Names,
    socket: u64,
    call: Call,
    may_wait: bool,
) -> Result<(Answer, Option<c_int>), c_int> {
    let request = Request { token: *names.token(), socket, call };
    native::send(fd, &request.write(), 0)?;
    let mut octets = [0; Answer::LEN];
    loop {
        match native::receive(fd, &mut octets, libc::MSG_CMSG_CLOEXEC) {
            Ok((Answer::LEN, with)) => {
                let answer = Answer::read(&octets).ok_or(libc::EPROTO)?;
                return Ok((answer, with));
            }
            // The lender has too much to do, or has ended.
            Ok(_) => return Err(libc::ENETDOWN),
            Err(libc::EINTR) if !may_wait => {}
            Err(error) => return Err(error),
        }
    }
}
