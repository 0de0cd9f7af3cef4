//! Structures of the interface and their layout in memory, as programs in C have them.
//!
//! Integers are in the order of the machine. A value that is too short is filled up with zeros;
//! bytes beyond the structure are left alone.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use super::flags::StreamFlags;

/// Reads a structure field by field.
struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        for (to, from) in out.iter_mut().zip(self.bytes.get(self.at..).unwrap_or_default()) {
            *to = *from;
        }
        self.at += N;
        out
    }

    fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    fn u16(&mut self) -> u16 {
        u16::from_ne_bytes(self.array())
    }

    fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.array())
    }

    fn u64(&mut self) -> u64 {
        u64::from_ne_bytes(self.array())
    }

    fn i64(&mut self) -> i64 {
        i64::from_ne_bytes(self.array())
    }
}

/// A structure with its layout.
pub trait Raw: Sized {
    /// Its size in C, in bytes.
    const SIZE: usize;

    /// Takes it from memory.
    fn from_bytes(bytes: &[u8]) -> Self;

    /// As it lies in memory.
    fn to_bytes(&self) -> Vec<u8>;
}

/// Declares a structure of scalar fields in the order in which they lie in memory.
macro_rules! raw_struct {
    ($(#[$doc:meta])* $name:ident, $size:literal {
        $($(#[$field_doc:meta])* $field:ident: $kind:ident $(+ $pad:literal)?,)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $kind,)*
        }

        impl Raw for $name {
            const SIZE: usize = $size;

            fn from_bytes(bytes: &[u8]) -> Self {
                let mut fields = Fields::new(bytes);
                Self {
                    $($field: {
                        let value = fields.$kind();
                        $(fields.at += $pad;)?
                        value
                    },)*
                }
            }

            fn to_bytes(&self) -> Vec<u8> {
                let mut bytes = Vec::with_capacity(Self::SIZE);
                $(
                    bytes.extend_from_slice(&self.$field.to_ne_bytes());
                    $(bytes.resize(bytes.len() + $pad, 0);)?
                )*
                bytes.resize(Self::SIZE, 0);
                bytes
            }
        }
    };
}

raw_struct! {
    /// A stream and an application error code, for STREAM_RESET and STREAM_STOP_SENDING.
    ErrInfo, 16 {
        /// The stream.
        stream_id: i64,
        /// The code for the peer.
        errcode: u32,
    }
}

raw_struct! {
    /// Numbers of connection IDs (RFC 9000, Section 5.1.1).
    ConnectionIdInfo, 12 {
        /// 1 for the peer's connection IDs, 0 for this side's.
        dest: u8 + 3,
        /// The one in use; 0 leaves it when set.
        active: u32,
        /// The lowest that is not retired; when set, lower ones are retired, or none for 0.
        prior_to: u32,
    }
}

raw_struct! {
    /// Whether an event is reported.
    EventOption, 2 {
        /// Its number: see [`EventType`](super::EventType).
        kind: u8,
        /// 1 if it is reported.
        on: u8,
    }
}

raw_struct! {
    /// Transport parameters (RFC 9000, Section 18.2). In what is set, zero leaves a parameter as
    /// it is.
    TransportParam, 56 {
        /// 1 for the peer's parameters, 0 for this side's.
        remote: u8,
        /// The peer must not migrate.
        disable_active_migration: u8,
        /// The fixed bit may be greased (RFC 9287).
        grease_quic_bit: u8,
        /// Server: a stateless reset token is announced.
        stateless_reset: u8,
        /// 1-RTT packets go unencrypted if both sides say so.
        disable_1rtt_encryption: u8,
        /// No version_information is announced (RFC 9368).
        disable_compatible_version: u8,
        /// How many connection IDs of the peer are kept: 2 to 8.
        active_connection_id_limit: u8,
        /// ACK Delay is in units of 2^this microseconds: up to 20.
        ack_delay_exponent: u8,
        /// The largest DATAGRAM frame, in bytes; at least 1200.
        max_datagram_frame_size: u16,
        /// The largest UDP payload, in bytes: 1200 to 65527.
        max_udp_payload_size: u16,
        /// In microseconds; at least a second.
        max_idle_timeout: u32,
        /// In microseconds; less than 2^14 milliseconds.
        max_ack_delay: u32,
        /// How many bidirectional streams the receiver may open: up to 4096.
        max_streams_bidi: u16,
        /// How many unidirectional streams the receiver may open: up to 4096.
        max_streams_uni: u16,
        /// How much may be sent on all streams, in bytes; at least 1200.
        max_data: u64,
        /// How much may be sent on each stream that the announcing side opens.
        max_stream_data_bidi_local: u64,
        /// How much may be sent on each stream that the receiver opens.
        max_stream_data_bidi_remote: u64,
        /// How much may be sent on each unidirectional stream.
        max_stream_data_uni: u64,
    }
}

raw_struct! {
    /// How a connection behaves. In what is set, zero leaves a setting as it is.
    Config, 28 {
        /// The QUIC version to begin with (client) or to prefer (server).
        version: u32,
        /// How long after a search for the path's MTU to search again, in microseconds; at least
        /// 5 seconds.
        plpmtud_probe_interval: u32,
        /// The round trip time before it is measured, in microseconds; up to 6 seconds.
        initial_smoothed_rtt: u32,
        /// TLS_CIPHER_* that TLS should prefer; for the program that performs the handshake.
        payload_cipher_type: u32,
        /// 0 Reno, 1 CUBIC.
        congestion_control_algo: u8,
        /// Server: clients prove their address first (RFC 9000, Section 8.1.2).
        validate_peer_address: u8,
        /// Small data is sent at once and does not wait for what is in flight.
        stream_data_nodelay: u8,
        /// Client: wait for session tickets; for the program that performs the handshake.
        receive_session_ticket: u8,
        /// Server: ask clients for certificates; for the program that performs the handshake.
        certificate_request: u8 + 3,
        /// A PING is sent after this much silence, in microseconds; at least 1.5 seconds.
        keepalive_probe_interval: u32,
    }
}

raw_struct! {
    /// A step of a stream, as [`EventType::StreamUpdate`](super::EventType::StreamUpdate) tells
    /// it.
    StreamUpdate, 24 {
        /// The stream.
        id: i64,
        /// The state that it has now: see [`StreamState`](super::StreamState).
        state: u8 + 3,
        /// The application's code, with resets.
        errcode: u32,
        /// The final size, where it is known.
        finalsz: u64,
    }
}

raw_struct! {
    /// A raised limit, as [`EventType::StreamMaxData`](super::EventType::StreamMaxData) tells it.
    StreamMaxData, 16 {
        /// The stream.
        id: i64,
        /// The offset up to which the peer takes data.
        max_data: u64,
    }
}

/// The stream of a message and what becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamInfo {
    /// The stream; -1 for the latest one or the next to open.
    pub stream_id: i64,
    /// What becomes of it.
    pub flags: StreamFlags,
}

impl StreamInfo {
    /// A stream and flags.
    #[must_use]
    pub const fn new(stream_id: i64, flags: StreamFlags) -> Self {
        Self { stream_id, flags }
    }
}

impl Raw for StreamInfo {
    const SIZE: usize = 16;

    fn from_bytes(bytes: &[u8]) -> Self {
        let mut fields = Fields::new(bytes);
        Self { stream_id: fields.i64(), flags: StreamFlags::from_bits(fields.u32()) }
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.stream_id.to_ne_bytes().to_vec();
        bytes.extend_from_slice(&self.flags.bits().to_ne_bytes());
        bytes.resize(Self::SIZE, 0);
        bytes
    }
}

/// Room for the phrase of a [`ConnectionClose`], in bytes; the last one is always zero.
pub const CLOSE_PHRASE_SIZE: usize = 64;

/// How a connection ends, or has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionClose {
    /// The error code.
    pub errcode: u32,
    /// The type of the frame at fault; 0 if there is none.
    pub frame: u8,
    /// Words, ended by a zero.
    pub phrase: [u8; CLOSE_PHRASE_SIZE],
}

impl ConnectionClose {
    /// A code with words, of which the first 63 bytes count.
    #[must_use]
    pub fn new(errcode: u32, frame: u8, words: &[u8]) -> Self {
        let mut phrase = [0; CLOSE_PHRASE_SIZE];
        for (to, from) in phrase.iter_mut().zip(words.iter().take(CLOSE_PHRASE_SIZE - 1)) {
            *to = *from;
        }
        Self { errcode, frame, phrase }
    }

    /// The words, up to the first zero.
    #[must_use]
    pub fn words(&self) -> &[u8] {
        self.phrase.split(|byte| *byte == 0).next().unwrap_or_default()
    }
}

impl Default for ConnectionClose {
    fn default() -> Self {
        Self::new(0, 0, b"")
    }
}

impl Raw for ConnectionClose {
    const SIZE: usize = 8 + CLOSE_PHRASE_SIZE;

    fn from_bytes(bytes: &[u8]) -> Self {
        let mut fields = Fields::new(bytes);
        let (errcode, frame) = (fields.u32(), fields.u8());
        fields.at += 3;
        Self::new(errcode, frame, &fields.array::<CLOSE_PHRASE_SIZE>())
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.errcode.to_ne_bytes().to_vec();
        bytes.extend_from_slice(&[self.frame, 0, 0, 0]);
        bytes.extend_from_slice(&self.phrase);
        bytes
    }
}

/// Room for the secret of a [`CryptoSecret`], in bytes.
pub const CRYPTO_SECRET_SIZE: usize = 48;

/// A traffic secret from TLS. `Debug` hides it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CryptoSecret {
    /// 1 for what this side sends, 0 for what it receives.
    pub send: u8,
    /// The level: see [`CryptoLevel`](super::CryptoLevel).
    pub level: u8,
    /// The cipher suite: TLS_CIPHER_*.
    pub kind: u32,
    /// The secret, as long as the suite's hash.
    pub secret: [u8; CRYPTO_SECRET_SIZE],
}

impl std::fmt::Debug for CryptoSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CryptoSecret")
            .field("send", &self.send)
            .field("level", &self.level)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

impl Raw for CryptoSecret {
    const SIZE: usize = 8 + CRYPTO_SECRET_SIZE;

    fn from_bytes(bytes: &[u8]) -> Self {
        let mut fields = Fields::new(bytes);
        let (send, level) = (fields.u8(), fields.u8());
        fields.at += 2;
        Self { send, level, kind: fields.u32(), secret: fields.array() }
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![self.send, self.level, 0, 0];
        bytes.extend_from_slice(&self.kind.to_ne_bytes());
        bytes.extend_from_slice(&self.secret);
        bytes
    }
}

/// TLS_AES_128_GCM_SHA256, as Linux numbers ciphers of TLS.
pub const TLS_CIPHER_AES_GCM_128: u32 = 51;
/// TLS_AES_256_GCM_SHA384.
pub const TLS_CIPHER_AES_GCM_256: u32 = 52;
/// TLS_AES_128_CCM_SHA256: may be asked for, but there is no such packet protection here.
pub const TLS_CIPHER_AES_CCM_128: u32 = 53;
/// TLS_CHACHA20_POLY1305_SHA256.
pub const TLS_CIPHER_CHACHA20_POLY1305: u32 = 54;

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

/// Takes a `struct sockaddr_in` or `sockaddr_in6` from memory.
pub(super) fn address_from_bytes(bytes: &[u8]) -> Option<SocketAddr> {
    let mut fields = Fields::new(bytes);
    let family = fields.u16();
    let port = u16::from_be_bytes(fields.array());
    match family {
        AF_INET if bytes.len() >= 16 => {
            let ip = Ipv4Addr::from(fields.array::<4>());
            Some(SocketAddr::V4(SocketAddrV4::new(ip, port)))
        }
        AF_INET6 if bytes.len() >= 24 => {
            fields.at += 4;
            let ip = Ipv6Addr::from(fields.array::<16>());
            Some(SocketAddr::V6(SocketAddrV6::new(ip, port, 0, fields.u32())))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn survives<T: Raw + PartialEq + std::fmt::Debug>(size: usize, value: &T) {
        let bytes = value.to_bytes();
        assert_eq!((T::SIZE, bytes.len()), (size, size));
        assert_eq!(T::from_bytes(&bytes), *value);
    }

    #[test]
    fn structures_have_the_sizes_that_c_gives_them() {
        survives(16, &StreamInfo::new(-1, StreamFlags::NEW | StreamFlags::FIN));
        survives(16, &ErrInfo { stream_id: 4, errcode: 7 });
        survives(12, &ConnectionIdInfo { dest: 1, active: 2, prior_to: 3 });
        survives(2, &EventOption { kind: 5, on: 1 });
        survives(24, &StreamUpdate { id: 3, state: 8, errcode: 1, finalsz: 9 });
        survives(16, &StreamMaxData { id: 3, max_data: 9 });
        survives(72, &ConnectionClose::new(10, 1, b"words"));
        let secret = [7; CRYPTO_SECRET_SIZE];
        survives(56, &CryptoSecret { send: 1, level: 2, kind: 51, secret });
        survives(28, &Config { version: 1, keepalive_probe_interval: 2, ..Config::default() });
        survives(56, &TransportParam { max_data: 5, max_streams_uni: 3, ..Default::default() });
    }

    #[test]
    fn fields_lie_where_c_puts_them() {
        let mut bytes = vec![0; 56];
        bytes[8..10].copy_from_slice(&1300u16.to_ne_bytes());
        bytes[12..16].copy_from_slice(&30_000_000u32.to_ne_bytes());
        bytes[24..32].copy_from_slice(&99u64.to_ne_bytes());
        let param = TransportParam::from_bytes(&bytes);
        assert_eq!(param.max_datagram_frame_size, 1300);
        assert_eq!(param.max_idle_timeout, 30_000_000);
        assert_eq!(param.max_data, 99);
        let mut bytes = vec![0; 28];
        bytes[24..].copy_from_slice(&77u32.to_ne_bytes());
        assert_eq!(Config::from_bytes(&bytes).keepalive_probe_interval, 77);
    }

    #[test]
    fn a_short_value_is_filled_up_with_zeros() {
        let bytes = ErrInfo { stream_id: 4, errcode: 7 }.to_bytes();
        assert_eq!(ErrInfo::from_bytes(&bytes[..8]), ErrInfo { stream_id: 4, errcode: 0 });
        assert_eq!(ErrInfo::from_bytes(&[]), ErrInfo::default());
    }

    #[test]
    fn a_phrase_ends_with_zero() {
        let close = ConnectionClose::from_bytes(&[0xff; 72]);
        assert_eq!(close.words().len(), 63);
        assert_eq!(ConnectionClose::new(1, 2, b"bye").words(), b"bye");
    }

    #[test]
    fn addresses_of_both_families_are_read() {
        let v4 = [&AF_INET.to_ne_bytes()[..], &[0x1f, 0x90, 127, 0, 0, 1], &[0; 8]].concat();
        assert_eq!(address_from_bytes(&v4), Some("127.0.0.1:8080".parse().unwrap()));
        let mut v6 = [&AF_INET6.to_ne_bytes()[..], &[0x1f, 0x90], &[0; 4], &[0; 20]].concat();
        v6[23] = 1;
        assert_eq!(address_from_bytes(&v6), Some("[::1]:8080".parse().unwrap()));
        assert_eq!(address_from_bytes(&v6[..20]), None);
        assert_eq!(address_from_bytes(&[1, 0, 0, 0]), None);
    }
}
