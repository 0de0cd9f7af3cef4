//! getsockname and getpeername.

use std::ffi::c_int;

use super::number;
use crate::address;
use crate::memory::Memory;
use crate::native::Result;
use crate::table;

/// getsockname(2).
pub(crate) fn getsockname(
    memory: &mut Memory,
    fd: c_int,
    address: usize,
    len: usize,
) -> Result<c_int> {
    let entry = table::get(fd)?;
    let local = entry.socket.local_addr();
    address::write(memory, local, address, len)?;
    Ok(0)
}

/// getpeername(2).
pub(crate) fn getpeername(
    memory: &mut Memory,
    fd: c_int,
    address: usize,
    len: usize,
) -> Result<c_int> {
    let entry = table::get(fd)?;
    let peer = entry.socket.peer_addr().map_err(number)?;
    address::write(memory, peer, address, len)?;
    Ok(0)
}
