//! The calls, each as the kernel has it: with the number of a descriptor and addresses in the
//! program's memory, to a value or the number of an error.

pub(crate) mod descriptors;
pub(crate) mod names;
pub(crate) mod options;
pub(crate) mod reason;
pub(crate) mod receive;
pub(crate) mod send;
pub(crate) mod setup;
pub(crate) mod tls;
pub(crate) mod watch;

use std::ffi::c_int;

use libc::{iovec, mmsghdr, msghdr};
use quicket::message::Errno;

use crate::constants::{MAX_PARTS, MAX_TRANSFER};
use crate::memory::Memory;
use crate::native::{self, Result};

/// Does what may wait. A signal ends it with EINTR, unless the program wants calls to go on
/// (SA_RESTART) and there is no time after which this one ends by itself (socket(7), signal(7)).
/// Which signal it was cannot be known: one handler without the flag is enough for EINTR.
fn unless_interrupted<T>(
    timed: bool,
    mut call: impl FnMut() -> std::result::Result<T, Errno>,
) -> Result<T> {
    loop {
        match call() {
            Err(Errno::EINTR) if !timed && native::signals_restart() => {}
            done => return done.map_err(number),
        }
    }
}

fn number(errno: Errno) -> c_int {
    errno.number()
}

/// The parts of a buffer; what is beyond the most that a call transfers is cut off.
fn parts(memory: &mut Memory, address: usize, count: usize) -> Result<Vec<iovec>> {
    if count > MAX_PARTS {
        return Err(libc::EMSGSIZE);
    }
    let mut parts: Vec<iovec> = memory.values(address, count)?;
    let mut room = MAX_TRANSFER;
    for part in &mut parts {
        if part.iov_len > isize::MAX as usize {
            return Err(libc::EINVAL);
        }
        part.iov_len = part.iov_len.min(room);
        room -= part.iov_len;
    }
    Ok(parts)
}

fn parts_of(memory: &mut Memory, header: &msghdr) -> Result<Vec<iovec>> {
    parts(memory, header.msg_iov as usize, header.msg_iovlen)
}

/// The parts of readv(2) and writev(2), which have another error for too many.
fn vector(memory: &mut Memory, address: usize, count: c_int) -> Result<Vec<iovec>> {
    let count = usize::try_from(count).map_err(|_| libc::EINVAL)?;
    let of_vector = |error: c_int| if error == libc::EMSGSIZE { libc::EINVAL } else { error };
    parts(memory, address, count).map_err(of_vector)
}

/// Does `one` with each message of sendmmsg(2) or recvmmsg(2), until it fails: then those before
/// count, if there are any.
fn each_message(
    memory: &mut Memory,
    headers: usize,
    count: u32,
    mut one: impl FnMut(&mut Memory, &mut mmsghdr) -> Result<()>,
) -> Result<c_int> {
    let mut done = 0;
    for index in 0..(count as usize).min(MAX_PARTS) {
        let at = headers.saturating_add(index * size_of::<mmsghdr>());
        let result = memory.value::<mmsghdr>(at).and_then(|mut message| {
            one(memory, &mut message)?;
            memory.put(at, message)
        });
        match result {
            Ok(()) => done += 1,
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(done)
}

fn part(address: usize, len: usize) -> iovec {
    iovec { iov_base: address as *mut _, iov_len: len.min(MAX_TRANSFER) }
}
