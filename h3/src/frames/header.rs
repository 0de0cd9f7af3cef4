//! Type and length of a frame (RFC 9114, Section 7.1).

use bytes::{Buf, Bytes};

/// Types of frames (RFC 9114, Sections 7.2 and 11.2.1).
pub(super) mod kind {
    pub(crate) const DATA: u64 = 0x0;
    pub(crate) const HEADERS: u64 = 0x1;
    pub(crate) const CANCEL_PUSH: u64 = 0x3;
    pub(crate) const SETTINGS: u64 = 0x4;
    pub(crate) const PUSH_PROMISE: u64 = 0x5;
    pub(crate) const GOAWAY: u64 = 0x7;
    pub(crate) const MAX_PUSH_ID: u64 = 0xd;
    /// Those of HTTP/2, which HTTP/3 must not have.
    pub(crate) const RESERVED: [u64; 4] = [0x2, 0x6, 0x8, 0x9];
}

/// Two integers of at most 8 bytes.
const MAX_HEADER: usize = 16;

/// A variable-length integer (RFC 9000, Section 16) and how many bytes it takes, if it is whole.
pub(crate) fn integer(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    let length = 1 << (first >> 6);
    let rest = bytes.get(1..length)?;
    let value = rest.iter().fold(u64::from(first & 0x3f), |all, &byte| all << 8 | u64::from(byte));
    Some((value, length))
}

/// What of the next frame's header has come while the rest has not.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Header {
    held: [u8; MAX_HEADER],
    len: usize,
}

/// A frame's header.
pub(super) struct Read {
    pub(super) kind: u64,
    pub(super) length: u64,
    /// Its bytes, if a part of them came before.
    pub(super) apart: Option<Bytes>,
    /// How many bytes it has, if all of them are before the payload in the same chunk.
    pub(super) within: usize,
}

impl Header {
    /// True if there is nothing of it.
    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Reads the header. It stays in the chunk if it is whole there, since it can go on together with the payload;
    /// a part of one is taken out, and kept.
    pub(super) fn read(&mut self, chunk: &mut Bytes) -> Option<Read> {
        if self.len == 0
            && let Some((kind, length, within)) = parse(chunk)
        {
            return Some(Read { kind, length, apart: None, within });
        }
        while chunk.has_remaining() {
            // It is whole before there is no room: 16 bytes always are.
            self.held[self.len] = chunk.get_u8();
            self.len += 1;
            if let Some((kind, length, _)) = parse(&self.held[..self.len]) {
                let apart = Bytes::copy_from_slice(&self.held[..self.len]);
                self.len = 0;
                return Some(Read { kind, length, apart: Some(apart), within: 0 });
            }
        }
        None
    }
}

fn parse(bytes: &[u8]) -> Option<(u64, u64, usize)> {
    let (kind, first) = integer(bytes)?;
    let (length, second) = integer(&bytes[first..])?;
    Some((kind, length, first + second))
}
