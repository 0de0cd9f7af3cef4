//! How connection IDs are made.

use core::any::Any;
use core::fmt;

use quicket_wire::ConnectionId;

use crate::random::Random;

/// Makes the connection IDs by which peers reach an endpoint.
///
/// All connection IDs of an endpoint have the same length, so that short headers can be parsed
/// (RFC 9000, Section 17.3.1). What is in them is the generator's business: random bytes, or a
/// route for a load balancer, encrypted so that nobody else can link two of them
/// (RFC 9000, Sections 5.1 and 9.5).
///
/// It is [`Any`], so that who divides an endpoint among several can tell which generator it has.
pub trait ConnectionIdGenerator: Any + Send + Sync + fmt::Debug {
    /// A new connection ID of [`Self::len`] bytes. May repeat itself only as rarely as random
    /// numbers of that length do; the endpoint asks again when the ID is in use.
    fn generate(&self, random: &mut dyn Random) -> ConnectionId;

    /// The length of every ID in bytes: 0 to 20. With 0 a peer is recognised by its address alone
    /// and cannot move to another (RFC 9000, Section 5.1).
    fn len(&self) -> usize;

    /// True if the IDs are of zero length.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Connection IDs of random bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RandomConnectionIds {
    len: usize,
}

impl RandomConnectionIds {
    /// IDs of `len` bytes, at most 20; more counts as 20.
    pub const fn new(len: usize) -> Self {
        Self { len: if len > ConnectionId::MAX_LEN { ConnectionId::MAX_LEN } else { len } }
    }
}

impl Default for RandomConnectionIds {
    /// Eight bytes.
    fn default() -> Self {
        Self::new(8)
    }
}

impl ConnectionIdGenerator for RandomConnectionIds {
    fn generate(&self, random: &mut dyn Random) -> ConnectionId {
        let mut bytes = [0; ConnectionId::MAX_LEN];
        random.fill(&mut bytes);
        bytes.get(..self.len).and_then(ConnectionId::new).unwrap_or(ConnectionId::EMPTY)
    }

    fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cid::test_support::TestRandom;

    #[test]
    fn ids_have_the_length_asked_for_and_differ() {
        let mut random = TestRandom::new(1);
        for len in 0..=20 {
            let generator = RandomConnectionIds::new(len);
            assert_eq!(generator.len(), len);
            let (a, b) = (generator.generate(&mut random), generator.generate(&mut random));
            assert_eq!((a.len(), b.len()), (len, len));
            assert!(len < 4 || a != b);
        }
        assert_eq!(RandomConnectionIds::new(99).len(), 20);
        assert!(RandomConnectionIds::new(0).is_empty());
    }
}
