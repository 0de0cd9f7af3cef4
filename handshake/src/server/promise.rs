//! What a ticket promises for the connection that resumes with it.

use std::sync::{Arc, PoisonError, RwLock};

use quicket_engine::crypto::APPLICATION_LIMITS;
use quicket_wire::{Reader, Side, TransportParameters, Version};

/// What an application announces.
pub(crate) type Limits = [u64; APPLICATION_LIMITS];
/// The transport parameters that bound 0-RTT (RFC 9000, Section 7.4.1; RFC 9221, Section 3).
const TRANSPORT_LIMITS: usize = 8;
/// Both.
const LIMITS: usize = TRANSPORT_LIMITS + APPLICATION_LIMITS;
/// Length of an encoded promise, in bytes.
pub(super) const PROMISE_LEN: usize = 4 + 8 * LIMITS;

/// The version of QUIC that a ticket is good for and the limits that early data may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Promise {
    /// RFC 9369, Section 5: tickets are specific to the version in use when they were made.
    pub(super) version: Version,
    limits: [u64; LIMITS],
}

impl Promise {
    /// The promise of a server that announces these parameters, and these limits of the application; version 0 if they
    /// name none.
    pub(super) fn of(parameters: &TransportParameters, application: Limits) -> Self {
        let [first, second, third, fourth] = application;
        let version = parameters.version_information.as_ref();
        Self {
            version: version.map_or(Version::NEGOTIATION, |versions| versions.chosen_version),
            limits: [
                parameters.active_connection_id_limit,
                parameters.initial_max_data,
                parameters.initial_max_stream_data_bidi_local,
                parameters.initial_max_stream_data_bidi_remote,
                parameters.initial_max_stream_data_uni,
                parameters.initial_max_streams_bidi,
                parameters.initial_max_streams_uni,
                parameters.max_datagram_frame_size,
                first,
                second,
                third,
                fourth,
            ],
        }
    }

    /// RFC 9000, Section 7.4.1: a server that accepts 0-RTT must not set any limit lower than the
    /// client remembers.
    pub(super) fn keeps(&self, earlier: &Self) -> bool {
        self.limits.iter().zip(&earlier.limits).all(|(now, then)| now >= then)
    }

    pub(super) fn encode(&self) -> [u8; PROMISE_LEN] {
        let mut out = [0; PROMISE_LEN];
        let (version, limits) = out.split_at_mut(4);
        version.copy_from_slice(&self.version.0.to_be_bytes());
        for (bytes, limit) in limits.chunks_exact_mut(8).zip(self.limits) {
            bytes.copy_from_slice(&limit.to_be_bytes());
        }
        out
    }

    pub(super) fn decode(bytes: &[u8; PROMISE_LEN]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let version = Version(reader.u32().ok()?);
        let mut limits = [0; LIMITS];
        for limit in &mut limits {
            *limit = reader.u64().ok()?;
        }
        Some(Self { version, limits })
    }
}

/// What the application announces beside the transport, such as HTTP/3's SETTINGS. It may change while clients
/// come: clones are the same.
#[derive(Clone, Debug, Default)]
pub(super) struct ApplicationLimits(Arc<RwLock<Arc<Limits>>>);

impl ApplicationLimits {
    /// Those of a connection that begins now. It keeps them, whatever changes.
    pub(super) fn get(&self) -> Arc<Limits> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn set(&self, limits: Limits) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(limits);
    }
}

/// The version of the first flight of a client with these parameters (RFC 9368, Section 3), if it
/// says so: then it may have been changed since.
pub(super) fn version_of_client(parameters: &[u8]) -> Option<Version> {
    let parameters = TransportParameters::decode(parameters, Side::Client).ok()?;
    Some(parameters.version_information?.chosen_version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_round_trip() {
        let promise =
            Promise { version: Version::V2, limits: std::array::from_fn(|at| 1 << (5 * at)) };
        assert_eq!(Promise::decode(&promise.encode()), Some(promise));
    }

    #[test]
    fn each_limit_must_be_kept_and_may_grow() {
        let earlier = Promise { version: Version::V1, limits: [10; LIMITS] };
        assert!(earlier.keeps(&earlier));
        for at in 0..LIMITS {
            let mut now = earlier.clone();
            now.limits[at] = 11;
            assert!(now.keeps(&earlier));
            now.limits[at] = 9;
            assert!(!now.keeps(&earlier));
        }
    }
}
