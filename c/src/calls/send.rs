//! Sending: send, sendto, sendmsg, sendmmsg, write, writev, sendfile.

use std::ffi::c_int;

use libc::{iovec, msghdr};
use quicket::message::{Data, MsgFlags};

use super::{each_message, number, part, parts_of, unless_interrupted, vector};
use crate::control::Control;
use crate::entry::Entry;
use crate::fork;
use crate::inside;
use crate::memory::Memory;
use crate::native::{self, Result};
use crate::table;

/// How much of a file is sent at once.
const FILE_PIECE: usize = 256 << 10;

/// send(2), and write(2) without flags.
pub(crate) fn send(
    memory: &mut Memory,
    fd: c_int,
    address: usize,
    len: usize,
    flags: c_int,
) -> Result<isize> {
    let entry = table::get(fd)?;
    transmit(&entry, memory, &[part(address, len)], Control::default(), flags)
}

/// writev(2).
pub(crate) fn writev(
    memory: &mut Memory,
    fd: c_int,
    address: usize,
    count: c_int,
) -> Result<isize> {
    let entry = table::get(fd)?;
    let parts = vector(memory, address, count)?;
    transmit(&entry, memory, &parts, Control::default(), 0)
}

/// sendmsg(2). The address is not looked at: there is one peer.
pub(crate) fn sendmsg(
    memory: &mut Memory,
    fd: c_int,
    header: usize,
    flags: c_int,
) -> Result<isize> {
    let entry = table::get(fd)?;
    let header: msghdr = memory.value(header)?;
    send_header(&entry, memory, &header, flags)
}

/// sendmmsg(2).
pub(crate) fn sendmmsg(
    memory: &mut Memory,
    fd: c_int,
    headers: usize,
    count: u32,
    flags: c_int,
) -> Result<c_int> {
    let entry = table::get(fd)?;
    each_message(memory, headers, count, |memory, message| {
        message.msg_len = send_header(&entry, memory, &message.msg_hdr, flags)? as u32;
        Ok(())
    })
}

fn send_header(entry: &Entry, memory: &mut Memory, header: &msghdr, flags: c_int) -> Result<isize> {
    let parts = parts_of(memory, header)?;
    let control = Control::read(memory, header)?;
    transmit(entry, memory, &parts, control, flags)
}

fn transmit(
    entry: &Entry,
    memory: &mut Memory,
    parts: &[iovec],
    control: Control,
    flags: c_int,
) -> Result<isize> {
    let data = memory.data(parts)?;
    let flags = MsgFlags::from_bits(flags.cast_unsigned());
    let timed = entry.remembered().sending_is_timed();
    let sent = match control.handshake()? {
        Some(level) => entry.socket.send_handshake(&data.to_vec(), level, flags).map_err(number),
        None => unless_interrupted(timed, || {
            entry.socket.send_message_from(&data, control.stream, flags)
        }),
    };
    entry.settle();
    if sent == Err(libc::EPIPE)
        && control.level.is_none()
        && !flags.intersects(MsgFlags::NOSIGNAL | MsgFlags::DATAGRAM)
    {
        break_pipe();
    }
    sent.map(|len| len as isize)
}

/// The signal for writing to what nobody reads. A process that ends has broken the connection itself.
fn break_pipe() {
    if !fork::is_ending() {
        inside::owe_sigpipe();
    }
}

/// sendfile(2): a file's content as stream data.
pub(crate) fn sendfile(
    memory: &mut Memory,
    fd: c_int,
    file: c_int,
    offset: usize,
    count: usize,
) -> Result<isize> {
    let entry = table::get(fd)?;
    if table::kind(file) == table::Kind::Socket {
        return Err(libc::EINVAL);
    }
    let start = match offset {
        // A pipe has no position to send from.
        0 => native::position(file)
            .map_err(|error| if error == libc::ESPIPE { libc::EINVAL } else { error })?,
        at => memory.value::<i64>(at)?,
    };
    if start < 0 {
        return Err(libc::EINVAL);
    }
    let sent = send_file(&entry, file, start, count.min(super::MAX_TRANSFER));
    entry.settle();
    let (sent, error) = sent;
    let end = start.saturating_add(sent as i64);
    match offset {
        0 if sent > 0 => {
            native::seek(file, end)?;
        }
        0 => {}
        at => memory.put(at, end)?,
    }
    match error {
        Some(error) if sent == 0 => {
            if error == libc::EPIPE {
                break_pipe();
            }
            Err(error)
        }
        _ => Ok(sent as isize),
    }
}

/// How much was sent, and what ended it early.
fn send_file(entry: &Entry, file: c_int, start: i64, count: usize) -> (usize, Option<c_int>) {
    let mut piece = vec![0; FILE_PIECE.min(count)];
    let mut sent = 0;
    while sent < count {
        let most = piece.len().min(count - sent);
        let Some(room) = piece.get_mut(..most) else { break };
        let read = match native::pread(file, room, start.saturating_add(sent as i64)) {
            Ok(0) => break,
            Ok(read) => read,
            Err(libc::ESPIPE) => return (sent, Some(libc::EINVAL)),
            Err(error) => return (sent, Some(error)),
        };
        let data = piece.get(..read).unwrap_or_default();
        let timed = entry.remembered().sending_is_timed();
        let part =
            unless_interrupted(timed, || entry.socket.send_message(data, None, MsgFlags::NONE));
        match part {
            Ok(len) => {
                sent += len;
                if len < read {
                    break;
                }
            }
            Err(error) => return (sent, Some(error)),
        }
    }
    (sent, None)
}
