//! From connection IDs and stateless reset tokens to connections.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::SocketAddr;

use quicket_wire::{ConnectionId, StatelessResetToken};

use super::{ConnectionHandle, Datagram};
use crate::crypto::CryptoProvider;

/// Everything by which one connection can be reached, so that it can be forgotten at once.
#[derive(Debug)]
struct Entry {
    remote: SocketAddr,
    cids: Vec<ConnectionId>,
    resets: Vec<ResetKey>,
    handshaking: bool,
}

/// A keyed hash of address and token: how long a look-up takes says nothing of the token
/// (RFC 9000, Section 10.3.1). As long as a token, so no easier to guess.
type ResetKey = [u8; 16];

/// The routing table. Ordered maps: no hash that a peer could aim at, no global state.
#[derive(Debug, Default)]
pub(super) struct Routes {
    entries: Vec<Option<Entry>>,
    free: Vec<usize>,
    handshakes: usize,
    by_cid: BTreeMap<ConnectionId, ConnectionHandle>,
    by_reset: BTreeMap<ResetKey, ConnectionHandle>,
    /// For connections that chose a zero-length connection ID (RFC 9000, Section 5.1).
    by_remote: BTreeMap<SocketAddr, ConnectionHandle>,
}

impl Routes {
    pub(super) fn connections(&self) -> usize {
        self.entries.len().saturating_sub(self.free.len())
    }

    pub(super) fn handshakes(&self) -> usize {
        self.handshakes
    }

    /// A handle for a new connection with `remote`.
    pub(super) fn insert(&mut self, remote: SocketAddr) -> ConnectionHandle {
        let entry = Entry { remote, cids: Vec::new(), resets: Vec::new(), handshaking: false };
        if let Some(index) = self.free.pop()
            && let Some(slot) = self.entries.get_mut(index)
        {
            *slot = Some(entry);
            return ConnectionHandle(index);
        }
        let index = self.entries.len();
        self.entries.push(Some(entry));
        ConnectionHandle(index)
    }

    fn entry(&mut self, handle: ConnectionHandle) -> Option<&mut Entry> {
        self.entries.get_mut(handle.0)?.as_mut()
    }

    pub(super) fn find(&self, dcid: &ConnectionId, remote: SocketAddr) -> Option<ConnectionHandle> {
        if dcid.is_empty() {
            return self.by_remote.get(&remote).copied();
        }
        self.by_cid.get(dcid).copied()
    }

    pub(super) fn add(&mut self, cid: ConnectionId, handle: ConnectionHandle) {
        let Some(entry) = self.entry(handle) else { return };
        if cid.is_empty() {
            let remote = entry.remote;
            self.by_remote.insert(remote, handle);
            return;
        }
        // These lists are short and connections many.
        entry.cids.reserve_exact(1);
        entry.cids.push(cid);
        self.by_cid.insert(cid, handle);
    }

    pub(super) fn remove(&mut self, cid: &ConnectionId, handle: ConnectionHandle) {
        let Some(entry) = self.entry(handle) else { return };
        entry.cids.retain(|held| held != cid);
        if self.by_cid.get(cid) == Some(&handle) {
            self.by_cid.remove(cid);
        }
    }

    pub(super) fn add_reset(
        &mut self,
        crypto: &dyn CryptoProvider,
        key: &[u8; 32],
        remote: SocketAddr,
        token: &StatelessResetToken,
        handle: ConnectionHandle,
    ) {
        let hash = reset_key(crypto, key, remote, &token.0);
        let Some(entry) = self.entry(handle) else { return };
        entry.resets.reserve_exact(1);
        entry.resets.push(hash);
        self.by_reset.insert(hash, handle);
    }

    pub(super) fn remove_reset(
        &mut self,
        crypto: &dyn CryptoProvider,
        key: &[u8; 32],
        remote: SocketAddr,
        token: &StatelessResetToken,
        handle: ConnectionHandle,
    ) {
        let hash = reset_key(crypto, key, remote, &token.0);
        let Some(entry) = self.entry(handle) else { return };
        entry.resets.retain(|held| *held != hash);
        if self.by_reset.get(&hash) == Some(&handle) {
            self.by_reset.remove(&hash);
        }
    }

    /// The connection that a datagram resets, if it ends with one of the tokens that its sender
    /// may use (RFC 9000, Section 10.3.1).
    pub(super) fn find_reset(
        &self,
        crypto: &dyn CryptoProvider,
        key: &[u8; 32],
        datagram: &Datagram<'_>,
    ) -> Option<ConnectionHandle> {
        if self.by_reset.is_empty() {
            return None;
        }
        let token = datagram.data.last_chunk::<16>()?;
        self.by_reset.get(&reset_key(crypto, key, datagram.remote, token)).copied()
    }

    pub(super) fn begin_handshake(&mut self, handle: ConnectionHandle) {
        let Some(entry) = self.entry(handle) else { return };
        if !core::mem::replace(&mut entry.handshaking, true) {
            self.handshakes = self.handshakes.saturating_add(1);
        }
    }

    pub(super) fn end_handshake(&mut self, handle: ConnectionHandle) {
        let Some(entry) = self.entry(handle) else { return };
        if core::mem::replace(&mut entry.handshaking, false) {
            self.handshakes = self.handshakes.saturating_sub(1);
        }
    }

    pub(super) fn remove_all(&mut self, handle: ConnectionHandle) {
        self.end_handshake(handle);
        let Some(entry) = self.entries.get_mut(handle.0).and_then(Option::take) else { return };
        self.free.push(handle.0);
        for cid in &entry.cids {
            if self.by_cid.get(cid) == Some(&handle) {
                self.by_cid.remove(cid);
            }
        }
        for hash in &entry.resets {
            if self.by_reset.get(hash) == Some(&handle) {
                self.by_reset.remove(hash);
            }
        }
        if self.by_remote.get(&entry.remote) == Some(&handle) {
            self.by_remote.remove(&entry.remote);
        }
    }
}

fn reset_key(
    crypto: &dyn CryptoProvider,
    key: &[u8; 32],
    remote: SocketAddr,
    token: &[u8; 16],
) -> ResetKey {
    let mut data = [0; 34];
    let ip = match remote.ip() {
        core::net::IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        core::net::IpAddr::V6(ip) => ip.octets(),
    };
    let port = remote.port().to_be_bytes();
    let parts = ip.iter().chain(&port).chain(token).copied().zip(&mut data);
    for (byte, place) in parts {
        *place = byte;
    }
    let mut short = ResetKey::default();
    for (place, byte) in short.iter_mut().zip(crypto.keyed_hash(key, &data)) {
        *place = byte;
    }
    short
}
