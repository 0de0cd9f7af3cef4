//! Receiving: recv, recvfrom, recvmsg, recvmmsg, read, readv.

use std::ffi::c_int;

use libc::{iovec, msghdr};
use quicket::message::{Message, MsgFlags};

use super::{each_message, part, parts_of, unless_interrupted, vector};
use crate::control;
use crate::entry::Entry;
use crate::memory::Memory;
use crate::native::Result;
use crate::table;

/// How much is received at once at most. The memory for it is loaded before it is known how much
/// comes.
const AT_ONCE: usize = 256 << 10;

/// recv(2), and read(2) without flags.
pub(crate) fn recv(
    memory: &mut Memory,
    fd: c_int,
    address: usize,
    len: usize,
    flags: c_int,
) -> Result<isize> {
    let entry = table::get(fd)?;
    let parts = [part(address, len)];
    let message = receive(&entry, memory, &parts, flags)?;
    Ok(message.len as isize)
}

/// recvfrom(2): there is one peer, and no address comes with messages.
pub(crate) fn recvfrom(
    memory: &mut Memory,
    fd: c_int,
    address: usize,
    len: usize,
    flags: c_int,
    from: usize,
    from_len: usize,
) -> Result<isize> {
    let received = recv(memory, fd, address, len, flags)?;
    if from != 0 && from_len != 0 {
        memory.put(from_len, 0i32)?;
    }
    Ok(received)
}

/// readv(2).
pub(crate) fn readv(memory: &mut Memory, fd: c_int, address: usize, count: c_int) -> Result<isize> {
    let entry = table::get(fd)?;
    let parts = vector(memory, address, count)?;
    Ok(receive(&entry, memory, &parts, 0)?.len as isize)
}

/// recvmsg(2).
pub(crate) fn recvmsg(memory: &mut Memory, fd: c_int, at: usize, flags: c_int) -> Result<isize> {
    let entry = table::get(fd)?;
    let header: msghdr = memory.value(at)?;
    let (header, len) = receive_header(&entry, memory, header, flags)?;
    memory.put(at, header)?;
    Ok(len as isize)
}

/// recvmmsg(2). Waits for the first message only, whatever the time.
pub(crate) fn recvmmsg(
    memory: &mut Memory,
    fd: c_int,
    headers: usize,
    count: u32,
    flags: c_int,
) -> Result<c_int> {
    let entry = table::get(fd)?;
    let mut flags = flags & !libc::MSG_WAITFORONE;
    each_message(memory, headers, count, |memory, message| {
        let received = receive_header(&entry, memory, message.msg_hdr, flags);
        flags |= libc::MSG_DONTWAIT;
        let (header, len) = received?;
        (message.msg_hdr, message.msg_len) = (header, len as u32);
        Ok(())
    })
}

fn receive_header(
    entry: &Entry,
    memory: &mut Memory,
    mut header: msghdr,
    flags: c_int,
) -> Result<(msghdr, usize)> {
    let parts = parts_of(memory, &header)?;
    let message = receive(entry, memory, &parts, flags)?;
    let (used, truncated) = control::write(memory, &header, &message)?;
    header.msg_namelen = 0;
    header.msg_controllen = used as _;
    header.msg_flags = message.flags(truncated).bits().cast_signed();
    Ok((header, message.len))
}

fn receive(entry: &Entry, memory: &mut Memory, parts: &[iovec], flags: c_int) -> Result<Message> {
    let flags = MsgFlags::from_bits(flags.cast_unsigned());
    let timed = entry.remembered().receiving_is_timed();
    // Before anything is taken from the queue.
    let mut room = memory.room(parts, AT_ONCE)?;
    let message = unless_interrupted(timed, || entry.socket.recv_message_into(&mut room, flags));
    entry.settle();
    message
}

/// ioctl(2) for what waits.
pub(super) fn put_count(memory: &mut Memory, count: usize, address: usize) -> Result<c_int> {
    memory.put(address, i32::try_from(count).unwrap_or(i32::MAX))?;
    Ok(0)
}
