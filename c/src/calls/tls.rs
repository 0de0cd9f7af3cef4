//! Handshakes by Quicket's own TLS, for programs that have none.

use std::ffi::{OsString, c_int};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;

use quicket::message::Errno;
use quicket::{ClientTls, Fingerprint};

use super::{number, unless_interrupted};
use crate::entry::Entry;
use crate::memory::Memory;
use crate::native::Result;
use crate::servers::Service;
use crate::table;

/// The longest path or name, in bytes.
const MAX_TEXT: usize = 4096;

/// More than any session has, in bytes.
const MAX_SESSION: usize = 1 << 20;

/// Text that a program may leave out.
fn text(memory: &mut Memory, address: usize) -> Result<Option<Vec<u8>>> {
    memory.text(address, MAX_TEXT)
}

fn path(text: Vec<u8>) -> PathBuf {
    OsString::from_vec(text).into()
}

/// Names that are separated by commas.
fn names(list: &[u8]) -> Vec<&[u8]> {
    let names = list.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    names.filter(|name| !name.is_empty()).collect()
}

/// How a client's handshake is performed, as the program says it.
pub(crate) struct ClientHandshake {
    pub(crate) hostname: usize,
    pub(crate) alpns: usize,
    pub(crate) ca_file: usize,
    pub(crate) pin: usize,
}

impl ClientHandshake {
    /// The server is trusted if its certificate leads to one of `ca_file` (by default to a root of
    /// the system) or has the fingerprint `pin`. Without `alpns` no protocol is offered.
    fn read(self, memory: &mut Memory, entry: &Entry) -> Result<(Arc<ClientTls>, String)> {
        let mut tls = ClientTls::builder();
        if let Some(file) = text(memory, self.ca_file)? {
            tls = tls.ca_file(path(file));
        }
        if let Some(pin) = text(memory, self.pin)? {
            let pin = String::from_utf8(pin).map_err(|_| entry.refuse("the pin is no text"))?;
            tls = tls.pinned([pin.parse::<Fingerprint>().map_err(|error| entry.refuse(error))?]);
        }
        tls = match text(memory, self.alpns)? {
            Some(list) => tls.alpn(names(&list)),
            None => tls.without_alpn(),
        };
        let hostname = text(memory, self.hostname)?.unwrap_or_else(|| b"localhost".to_vec());
        let hostname =
            String::from_utf8(hostname).map_err(|_| entry.refuse("the host name is no text"))?;
        Ok((Arc::new(tls.build().map_err(|error| entry.refuse(error))?), hostname))
    }
}

/// A client's handshake.
pub(crate) fn client_handshake(
    memory: &mut Memory,
    fd: c_int,
    how: ClientHandshake,
) -> Result<c_int> {
    let entry = table::get(fd)?;
    let (tls, hostname) = how.read(memory, &entry)?;
    let done = entry.socket.connect_tls(tls, &hostname);
    finish(&entry, done)
}

/// Begins a client's handshake, so that early data can be sent.
pub(crate) fn client_early_handshake(
    memory: &mut Memory,
    fd: c_int,
    how: ClientHandshake,
) -> Result<c_int> {
    let entry = table::get(fd)?;
    let (tls, hostname) = how.read(memory, &entry)?;
    let begun = entry.socket.connect_tls_early(tls, &hostname);
    entry.settle();
    begun.map(|()| 0).map_err(number)
}

/// What resumes a client's session.
pub(crate) fn session_get_data(
    memory: &mut Memory,
    fd: c_int,
    data: usize,
    size_at: usize,
) -> Result<c_int> {
    let session = table::get(fd)?.socket.session().map_err(number)?;
    put_sized(memory, &session, data, size_at)
}

/// Has a client resume a session.
pub(crate) fn session_set_data(
    memory: &mut Memory,
    fd: c_int,
    data: usize,
    size: usize,
) -> Result<c_int> {
    let entry = table::get(fd)?;
    if size > MAX_SESSION {
        return Err(libc::EINVAL);
    }
    let session = memory.bytes(data, size)?;
    entry.socket.set_session(&session).map(|()| 0).map_err(number)
}

/// The application protocol that both sides speak.
pub(crate) fn session_get_alpn(
    memory: &mut Memory,
    fd: c_int,
    alpn: usize,
    size_at: usize,
) -> Result<c_int> {
    let negotiated = table::get(fd)?.socket.negotiated_alpn();
    put_sized(memory, &negotiated.unwrap_or_default(), alpn, size_at)
}

/// Puts bytes where there is room for all of them, and in any case how many there are.
fn put_sized(memory: &mut Memory, bytes: &[u8], at: usize, size_at: usize) -> Result<c_int> {
    let room: usize = memory.value(size_at)?;
    let fits = bytes.len() <= room;
    if fits {
        memory.put_bytes(at, bytes)?;
    }
    memory.put(size_at, bytes.len())?;
    if fits { Ok(0) } else { Err(libc::ENOBUFS) }
}

/// A server's handshake, with a certificate and its key in PEM files. Without `alpns` any client
/// is served that names no protocol.
pub(crate) fn server_handshake(
    memory: &mut Memory,
    fd: c_int,
    key_file: usize,
    cert_file: usize,
    alpns: usize,
    early_data: bool,
) -> Result<c_int> {
    let entry = table::get(fd)?;
    let (key, chain) = (content(memory, &entry, key_file)?, content(memory, &entry, cert_file)?);
    let alpns =
        text(memory, alpns)?.map(|list| names(&list).into_iter().map(<[u8]>::to_vec).collect());
    let service = Service { chain, key, alpns, early_data };
    let tls = service.tls().map_err(|error| entry.refuse(error))?;
    let done = entry.socket.accept_tls(tls);
    finish(&entry, done)
}

/// What is in the file of a name.
fn content(memory: &mut Memory, entry: &Entry, name: usize) -> Result<Vec<u8>> {
    let path = path(text(memory, name)?.ok_or(libc::EINVAL)?);
    std::fs::read(&path).map_err(|error| entry.refuse(format!("{}: {error}", path.display())))
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
