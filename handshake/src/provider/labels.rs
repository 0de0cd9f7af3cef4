//! What the key schedules of QUIC's versions differ in.

use quicket_wire::Version;

/// Salts, labels and Retry keys of one version.
#[derive(Debug)]
pub(super) struct Labels {
    /// RFC 9001, Section 5.2; RFC 9369, Section 3.3.1
    pub(super) initial_salt: [u8; 20],
    /// RFC 9001, Section 5.1; RFC 9369, Section 3.3.2
    pub(super) key: &'static [u8],
    pub(super) iv: &'static [u8],
    pub(super) header_protection: &'static [u8],
    /// RFC 9001, Section 6.1; RFC 9369, Section 3.3.2
    pub(super) key_update: &'static [u8],
    /// RFC 9001, Section 5.8; RFC 9369, Section 3.3.3
    pub(super) retry_key: [u8; 16],
    pub(super) retry_nonce: [u8; 12],
}

static V1: Labels = Labels {
    initial_salt: [
        0x38, 0x76, 0x2c, 0xf7, 0xf5, 0x59, 0x34, 0xb3, 0x4d, 0x17, 0x9a, 0xe6, 0xa4, 0xc8, 0x0c,
        0xad, 0xcc, 0xbb, 0x7f, 0x0a,
    ],
    key: b"quic key",
    iv: b"quic iv",
    header_protection: b"quic hp",
    key_update: b"quic ku",
    retry_key: [
        0xbe, 0x0c, 0x69, 0x0b, 0x9f, 0x66, 0x57, 0x5a, 0x1d, 0x76, 0x6b, 0x54, 0xe3, 0x68, 0xc8,
        0x4e,
    ],
    retry_nonce: [0x46, 0x15, 0x99, 0xd3, 0x5d, 0x63, 0x2b, 0xf2, 0x23, 0x98, 0x25, 0xbb],
};

static V2: Labels = Labels {
    initial_salt: [
        0x0d, 0xed, 0xe3, 0xde, 0xf7, 0x00, 0xa6, 0xdb, 0x81, 0x93, 0x81, 0xbe, 0x6e, 0x26, 0x9d,
        0xcb, 0xf9, 0xbd, 0x2e, 0xd9,
    ],
    key: b"quicv2 key",
    iv: b"quicv2 iv",
    header_protection: b"quicv2 hp",
    key_update: b"quicv2 ku",
    retry_key: [
        0x8f, 0xb4, 0xb0, 0x1b, 0x56, 0xac, 0x48, 0xe2, 0x60, 0xfb, 0xcb, 0xce, 0xad, 0x7c, 0xcc,
        0x92,
    ],
    retry_nonce: [0xd8, 0x69, 0x69, 0xbc, 0x2d, 0x7c, 0x6d, 0x99, 0x90, 0xef, 0xb0, 0x4a],
};

/// The labels of `version`. Every version but 2 has those of version 1: the engine never asks for
/// keys of a version that it does not speak.
pub(super) fn of(version: Version) -> &'static Labels {
    if version == Version::V2 { &V2 } else { &V1 }
}
