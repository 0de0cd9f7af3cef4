//! getsockopt and setsockopt.
//!
//! Options of QUIC go to the socket. Of those of all sockets some concern it; some only need to be
//! remembered, which the descriptor behind it does; some are for the UDP socket below; others are
//! refused rather than ignored.
//!
//! | Options | What becomes of them |
//! | --- | --- |
//! | SO_SNDBUF, SO_RCVBUF, SO_SNDTIMEO, SO_RCVTIMEO, SO_REUSEPORT, IPV6_V6ONLY | the socket's own |
//! | SO_TYPE, SO_DOMAIN, SO_PROTOCOL, SO_ERROR, SO_ACCEPTCONN | say what the socket is |
//! | SO_REUSEADDR, SO_KEEPALIVE, SO_LINGER, SO_BROADCAST | kept; QUIC has no use for them |
//! | SO_BINDTODEVICE, SO_MARK, SO_PRIORITY, SO_DONTROUTE | the UDP socket's |
//! | IP_TTL, IP_FREEBIND, IP_TRANSPARENT, and those of IPv6 | the UDP socket's |
//! | IP_TOS, IPV6_TCLASS | the UDP socket's; the two bits of ECN stay QUIC's |
//! | IP_MTU_DISCOVER, IPV6_DONTFRAG | refused: packets are never fragmented (RFC 9000, Section 14) |
//! | IP_PKTINFO, IP_RECVTOS, IP_RECVERR and their like | refused: they add to what is received below |
//! | SO_TIMESTAMP, SO_RXQ_OVFL, SO_PEEK_OFF, SO_RCVLOWAT | refused: of packets, or of other sockets |
//! | SO_ATTACH_FILTER, SO_ATTACH_BPF and their like | refused: packets are no messages of the program |
//! | multicast, source routes and other IP options | refused: a connection has two ends |

use std::ffi::c_int;
use std::sync::atomic::Ordering;
use std::time::Duration;

use quicket::UdpOption;

use super::{number, unless_interrupted};
use crate::constants::{IPPROTO_QUIC, SOL_QUIC};
use crate::entry::Entry;
use crate::memory::Memory;
use crate::native::{self, Result};
use crate::table;

/// The longest value that is read or written, in bytes.
const MAX_VALUE: usize = 8192;
/// The least that a buffer has in the kernel, in bytes.
const MIN_BUFFER: usize = 4608;
const MICROS: i64 = 1_000_000;

/// What a socket remembers for its program.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Remembered {
    receive_timeout: [i64; 2],
    send_timeout: [i64; 2],
    reuse_port: bool,
}

impl Remembered {
    /// Receiving and accepting end by themselves.
    pub(crate) const fn receiving_is_timed(&self) -> bool {
        self.receive_timeout[0] != 0 || self.receive_timeout[1] != 0
    }

    /// Sending ends by itself.
    pub(crate) const fn sending_is_timed(&self) -> bool {
        self.send_timeout[0] != 0 || self.send_timeout[1] != 0
    }
}

/// setsockopt(2).
pub(crate) fn set(
    memory: &mut Memory,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: usize,
    len: u32,
) -> Result<c_int> {
    let entry = table::get(fd)?;
    let len = usize::try_from(len.cast_signed()).map_err(|_| libc::EINVAL)?;
    match level {
        SOL_QUIC => {
            if len > MAX_VALUE {
                return Err(libc::EINVAL);
            }
            let value = memory.bytes(value, len)?;
            let set = entry.socket.set_option(name, &value).map_err(number);
            entry.settle();
            set?;
        }
        libc::SOL_SOCKET if !is_of_udp(name) => set_for_all(memory, &entry, fd, name, value, len)?,
        libc::IPPROTO_IPV6 if name == libc::IPV6_V6ONLY && entry.is_v6 => {
            if len < size_of::<c_int>() {
                return Err(libc::EINVAL);
            }
            let only = memory.value::<i32>(value)? != 0;
            entry.socket.set_only_v6(only).map_err(number)?;
        }
        _ => {
            let given = match (level, name) {
                (libc::SOL_SOCKET, libc::SO_BINDTODEVICE) => Given::Bytes({
                    let mut name = memory.bytes(value, len.min(libc::IFNAMSIZ - 1))?;
                    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
                    name.truncate(end);
                    name
                }),
                // Those of IP may be as short as their range.
                (libc::IPPROTO_IP, _) if (1..size_of::<c_int>()).contains(&len) => {
                    Given::Number(memory.value::<u8>(value)?.into())
                }
                _ if len < size_of::<c_int>() => return Err(libc::EINVAL),
                _ => Given::Number(memory.value::<i32>(value)?),
            };
            let option = of_udp(level, name, given).ok_or(libc::ENOPROTOOPT)?;
            entry.socket.set_udp_option(option).map_err(number)?;
        }
    }
    Ok(0)
}

/// The value of an option of the UDP socket.
enum Given {
    Number(i32),
    Bytes(Vec<u8>),
}

/// An option of the UDP socket, by number.
fn of_udp(level: c_int, name: c_int, given: Given) -> Option<UdpOption> {
    let number = match given {
        Given::Bytes(name) => return Some(UdpOption::Device(name)),
        Given::Number(number) => number,
    };
    let (unsigned, on) = (number.cast_unsigned(), number != 0);
    Some(match (level, name) {
        (libc::SOL_SOCKET, libc::SO_MARK) => UdpOption::Mark(unsigned),
        (libc::SOL_SOCKET, libc::SO_PRIORITY) => UdpOption::Priority(number),
        (libc::SOL_SOCKET, libc::SO_DONTROUTE) => UdpOption::DontRoute(on),
        (libc::IPPROTO_IP, libc::IP_TTL) => UdpOption::Ttl(unsigned),
        (libc::IPPROTO_IP, libc::IP_TOS) => UdpOption::TrafficClassV4(number as u8),
        (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => UdpOption::TrafficClassV6(class_v6(number)),
        (libc::IPPROTO_IP, libc::IP_FREEBIND) => UdpOption::FreebindV4(on),
        (libc::IPPROTO_IP, libc::IP_TRANSPARENT) => UdpOption::TransparentV4(on),
        (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS) => UdpOption::HopLimit(unsigned),
        (libc::IPPROTO_IPV6, libc::IPV6_FREEBIND) => UdpOption::FreebindV6(on),
        (libc::IPPROTO_IPV6, libc::IPV6_TRANSPARENT) => UdpOption::TransparentV6(on),
        _ => return None,
    })
}

/// The value of such an option, as getsockopt(2) gives it.
fn get_of_udp(entry: &Entry, level: c_int, name: c_int) -> Result<Vec<u8>> {
    let given = match (level, name) {
        (libc::SOL_SOCKET, libc::SO_BINDTODEVICE) => Given::Bytes(Vec::new()),
        _ => Given::Number(0),
    };
    let option = of_udp(level, name, given).ok_or(libc::ENOPROTOOPT)?;
    let number = match entry.socket.udp_option(&option).map_err(number)? {
        UdpOption::Device(mut name) => {
            // With the zero at its end, unless there is none.
            if !name.is_empty() {
                name.push(0);
            }
            return Ok(name);
        }
        UdpOption::Mark(number) | UdpOption::Ttl(number) | UdpOption::HopLimit(number) => {
            number.cast_signed()
        }
        UdpOption::Priority(number) => number,
        UdpOption::TrafficClassV4(class) | UdpOption::TrafficClassV6(class) => class.into(),
        UdpOption::DontRoute(on)
        | UdpOption::FreebindV4(on)
        | UdpOption::FreebindV6(on)
        | UdpOption::TransparentV4(on)
        | UdpOption::TransparentV6(on) => on.into(),
        _ => return Err(libc::ENOPROTOOPT),
    };
    Ok(number.to_ne_bytes().to_vec())
}

/// -1 stands for the usual class.
fn class_v6(number: i32) -> u8 {
    if number == -1 { 0 } else { number as u8 }
}

fn set_for_all(
    memory: &mut Memory,
    entry: &Entry,
    fd: c_int,
    name: c_int,
    value: usize,
    len: usize,
) -> Result<()> {
    let mut integer = || {
        if len < size_of::<c_int>() {
            return Err(libc::EINVAL);
        }
        memory.value::<i32>(value)
    };
    // As the kernel does, for its bookkeeping.
    let doubled = |size: i32| (size.clamp(0, i32::MAX / 2) as usize * 2).max(MIN_BUFFER);
    match name {
        libc::SO_SNDBUF => entry.socket.set_send_buffer(doubled(integer()?)),
        libc::SO_RCVBUF => entry.socket.set_receive_buffer(doubled(integer()?)),
        libc::SO_REUSEPORT => {
            let reuse = integer()? != 0;
            entry.remembered().reuse_port = reuse;
            entry.socket.set_reuse_port(reuse);
        }
        libc::SO_RCVTIMEO | libc::SO_SNDTIMEO => {
            if len < size_of::<libc::timeval>() {
                return Err(libc::EINVAL);
            }
            let time = memory.value::<libc::timeval>(value)?;
            let (timeout, kept) = timeout(time.tv_sec, time.tv_usec)?;
            let mut remembered = entry.remembered();
            if name == libc::SO_RCVTIMEO {
                remembered.receive_timeout = kept;
                entry.socket.set_receive_timeout(timeout);
            } else {
                remembered.send_timeout = kept;
                entry.socket.set_send_timeout(timeout);
            }
        }
        _ if is_kept_by_the_system(name) => {
            native::setsockopt(fd, libc::SOL_SOCKET, name, value, len as u32)?;
        }
        _ => return Err(libc::ENOPROTOOPT),
    }
    Ok(())
}

/// Options without an effect on QUIC in the kernel either, which programs set out of habit.
const KEPT_BY_THE_SYSTEM: [c_int; 4] =
    [libc::SO_REUSEADDR, libc::SO_KEEPALIVE, libc::SO_LINGER, libc::SO_BROADCAST];

fn is_kept_by_the_system(name: c_int) -> bool {
    KEPT_BY_THE_SYSTEM.contains(&name)
}

/// Has another descriptor remember those options as well. What it refuses has no effect anyway.
pub(crate) fn copy_kept(from: c_int, to: c_int) {
    for name in KEPT_BY_THE_SYSTEM {
        let mut value = [0u8; size_of::<libc::linger>()];
        let mut len = value.len() as u32;
        let (at, len_at) = (value.as_mut_ptr() as usize, (&raw mut len) as usize);
        if native::getsockopt(from, libc::SOL_SOCKET, name, at, len_at).is_ok() {
            let _ = native::setsockopt(to, libc::SOL_SOCKET, name, at, len);
        }
    }
}

/// Options of all sockets that go to the UDP socket.
const fn is_of_udp(name: c_int) -> bool {
    matches!(name, libc::SO_BINDTODEVICE | libc::SO_MARK | libc::SO_PRIORITY | libc::SO_DONTROUTE)
}

/// A time as it counts, and as the program sees it again. None for zero; a negative one is over
/// at once.
fn timeout(seconds: i64, micros: i64) -> Result<(Option<Duration>, [i64; 2])> {
    if !(0..MICROS).contains(&micros) {
        return Err(libc::EDOM);
    }
    if seconds < 0 {
        return Ok((Some(Duration::ZERO), [0, 0]));
    }
    let time = Duration::new(seconds.cast_unsigned(), micros as u32 * 1000);
    Ok((Some(time).filter(|time| !time.is_zero()), [seconds, micros]))
}

/// getsockopt(2).
pub(crate) fn get(
    memory: &mut Memory,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: usize,
    len_at: usize,
) -> Result<c_int> {
    let entry = table::get(fd)?;
    let room = usize::try_from(memory.value::<i32>(len_at)?).map_err(|_| libc::EINVAL)?;
    if level == libc::SOL_SOCKET && is_kept_by_the_system(name) {
        native::getsockopt(fd, level, name, value, len_at)?;
        return Ok(0);
    }
    let found = match level {
        SOL_QUIC => {
            // Some options say in it what they are asked.
            let mut bytes = memory.bytes(value, room.min(MAX_VALUE))?;
            let timed = entry.remembered().sending_is_timed();
            let got = unless_interrupted(timed, || entry.socket.get_option(name, &mut bytes));
            entry.settle();
            bytes.truncate(got?);
            bytes
        }
        libc::SOL_SOCKET if !is_of_udp(name) => get_for_all(&entry, name)?,
        libc::IPPROTO_IPV6 if name == libc::IPV6_V6ONLY && entry.is_v6 => {
            i32::from(entry.socket.only_v6()).to_ne_bytes().to_vec()
        }
        _ => get_of_udp(&entry, level, name)?,
    };
    let found = found.get(..room.min(found.len())).unwrap_or_default();
    memory.put_bytes(value, found)?;
    memory.put(len_at, found.len() as i32)?;
    Ok(0)
}

fn get_for_all(entry: &Entry, name: c_int) -> Result<Vec<u8>> {
    let size = |bytes: usize| i32::try_from(bytes).unwrap_or(i32::MAX);
    let remembered = *entry.remembered();
    let integer = match name {
        libc::SO_TYPE => entry.kind,
        libc::SO_DOMAIN if entry.is_v6 => libc::AF_INET6,
        libc::SO_DOMAIN => libc::AF_INET,
        libc::SO_PROTOCOL => IPPROTO_QUIC,
        // What goes wrong is told by the call that it concerns.
        libc::SO_ERROR => 0,
        libc::SO_ACCEPTCONN => i32::from(entry.listening.load(Ordering::Acquire)),
        libc::SO_SNDBUF => size(entry.socket.send_buffer()),
        libc::SO_RCVBUF => size(entry.socket.receive_buffer()),
        libc::SO_REUSEPORT => i32::from(remembered.reuse_port),
        libc::SO_RCVTIMEO => return Ok(remembered.receive_timeout.map(i64::to_ne_bytes).concat()),
        libc::SO_SNDTIMEO => return Ok(remembered.send_timeout.map(i64::to_ne_bytes).concat()),
        _ => return Err(libc::ENOPROTOOPT),
    };
    Ok(integer.to_ne_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_taken_as_the_kernel_takes_them() {
        assert_eq!(timeout(0, 0), Ok((None, [0, 0])));
        assert_eq!(timeout(1, 500_000), Ok((Some(Duration::from_millis(1500)), [1, 500_000])));
        assert_eq!(timeout(-1, 0), Ok((Some(Duration::ZERO), [0, 0])));
        assert_eq!(timeout(0, MICROS), Err(libc::EDOM));
        assert_eq!(timeout(0, -1), Err(libc::EDOM));
    }
}
