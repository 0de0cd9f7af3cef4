//! Handshakes by Quicket's own TLS, for programs that have none.

use std::ffi::{OsString, c_int};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;

use quicket::message::Errno;
use quicket::{ClientTls, ConfigError, Fingerprint, Identity, ServerTls};

use super::unless_interrupted;
use crate::entry::Entry;
use crate::memory::Memory;
use crate::native::Result;
use crate::table;

/// The longest path or name, in bytes.
const MAX_TEXT: usize = 4096;

/// Text that a program may leave out.
fn text(address: usize) -> Result<Option<Vec<u8>>> {
    Memory::new().text(address, MAX_TEXT)
}

fn path(text: Vec<u8>) -> PathBuf {
    OsString::from_vec(text).into()
}

/// Names that are separated by commas.
fn names(list: &[u8]) -> Vec<&[u8]> {
    let names = list.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    names.filter(|name| !name.is_empty()).collect()
}

fn refused(error: &ConfigError) -> c_int {
    log::error!("{error}");
    libc::EINVAL
}

/// A client's handshake. The server is trusted if its certificate leads to one of `ca_file` (by
/// default to a root of the system) or has the fingerprint `pin`. Without `alpns` no protocol is
/// offered.
pub(crate) fn client_handshake(
    fd: c_int,
    hostname: usize,
    alpns: usize,
    ca_file: usize,
    pin: usize,
) -> Result<c_int> {
    let entry = table::get(fd)?;
    let mut tls = ClientTls::builder();
    if let Some(file) = text(ca_file)? {
        tls = tls.ca_file(path(file));
    }
    if let Some(pin) = text(pin)? {
        let pin = String::from_utf8(pin).map_err(|_| libc::EINVAL)?;
        tls = tls.pinned([pin.parse::<Fingerprint>().map_err(|error| refused(&error))?]);
    }
    tls = match text(alpns)? {
        Some(list) => tls.alpn(names(&list)),
        None => tls.without_alpn(),
    };
    let hostname = text(hostname)?.unwrap_or_else(|| b"localhost".to_vec());
    let hostname = String::from_utf8(hostname).map_err(|_| libc::EINVAL)?;
    let tls = Arc::new(tls.build().map_err(|error| refused(&error))?);
    let done = entry.socket.connect_tls(tls, &hostname);
    finish(&entry, done)
}

/// A server's handshake, with a certificate and its key in PEM files. Without `alpns` any client
/// is served that names no protocol.
pub(crate) fn server_handshake(
    fd: c_int,
    key_file: usize,
    cert_file: usize,
    alpns: usize,
) -> Result<c_int> {
    let entry = table::get(fd)?;
    let key = text(key_file)?.ok_or(libc::EINVAL)?;
    let certificate = text(cert_file)?.ok_or(libc::EINVAL)?;
    let identity = Identity::from_pem_files(path(certificate), path(key));
    let tls = ServerTls::builder(identity.map_err(|error| refused(&error))?);
    let tls = match text(alpns)? {
        Some(list) => tls.alpn(names(&list)),
        None => tls.without_alpn(),
    };
    let tls = Arc::new(tls.build().map_err(|error| refused(&error))?);
    let done = entry.socket.accept_tls(tls);
    finish(&entry, done)
}

/// Goes on with a handshake that was under way on a socket that does not wait.
pub(crate) fn continue_handshake(fd: c_int) -> Result<c_int> {
    let entry = table::get(fd)?;
    let done = entry.socket.wait_established();
    finish(&entry, done)
}

/// Goes on waiting where a signal does not end it.
fn finish(entry: &Entry, first: std::result::Result<(), Errno>) -> Result<c_int> {
    let timed = entry.remembered().receiving_is_timed();
    let mut first = Some(first);
    let done = unless_interrupted(timed, || {
        first.take().unwrap_or_else(|| entry.socket.wait_established())
    });
    entry.settle();
    done.map(|()| 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_separated_by_commas() {
        assert_eq!(names(b"h3, hq-interop,,"), [&b"h3"[..], b"hq-interop"]);
        assert!(names(b" ").is_empty());
    }
}
