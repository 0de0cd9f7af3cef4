//! Errors of ICMP that are copied to a port.

use std::ffi::{c_int, c_void};
use std::io;

use libc::size_t;
use quicket_packets::icmp::{Failure, Report};

use crate::address::{of_ip, put, storage};
use crate::exports::answer;

/// `struct quicket_icmp`.
#[repr(C)]
#[derive(Debug)]
#[allow(non_camel_case_types, reason = "its name in C")]
pub struct quicket_icmp {
    failure: c_int,
    mtu: u32,
    kind: u8,
    code: u8,
    protocol: u8,
    reporter: libc::sockaddr_storage,
    source: libc::sockaddr_storage,
    destination: libc::sockaddr_storage,
    quoted: *const c_void,
    quoted_len: size_t,
}

/// `enum quicket_icmp_failure`, and the MTU that is said.
const fn numbers(failure: Failure) -> (c_int, u32) {
    match failure {
        Failure::Port => (1, 0),
        Failure::Host => (2, 0),
        Failure::TooBig { mtu } => (3, mtu),
        Failure::TimeExceeded => (4, 0),
        Failure::Parameter => (5, 0),
    }
}

/// Reads a frame that may be an error of ICMP.
///
/// # Safety
///
/// `frame` has `len` octets, and `error` is of its kind.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quicket_icmp_read(
    frame: *const c_void,
    len: size_t,
    error: *mut quicket_icmp,
) -> c_int {
    answer(-1, || {
        if frame.is_null() || error.is_null() || isize::try_from(len).is_err() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: the caller's octets, which nobody changes while this call runs, or a frame in a slot, which is his until he gives it
        // back.
        let frame = unsafe { std::slice::from_raw_parts(frame.cast::<u8>(), len) };
        let Some(report) = Report::read(frame) else { return Ok(0) };
        let (failure, mtu) = numbers(report.failure);
        let read = quicket_icmp {
            failure,
            mtu,
            kind: report.kind.0,
            code: report.kind.1,
            protocol: report.source.protocol,
            reporter: of_ip(report.reporter, 0),
            source: storage(&report.source),
            destination: storage(&report.destination),
            quoted: report.quoted.as_ptr().cast(),
            quoted_len: report.quoted.len(),
        };
        // SAFETY: the caller's.
        unsafe { put(error, read) };
        Ok(1)
    })
}
