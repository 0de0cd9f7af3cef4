//! Connection IDs whose configuration changes while connections live.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use quicket_engine::ConnectionIdGenerator;
use quicket_engine::random::Random;
use quicket_wire::ConnectionId;

use crate::steering::RoutableConnectionIds;

/// Issues connection IDs that lead to one place, of a configuration that can be changed at work: for
/// [`EndpointConfig::connection_ids`](crate::EndpointConfig::connection_ids) of an endpoint with one worker.
///
/// Clones issue the same: one is given to the configuration, another kept to [`switch`](Self::switch).
#[derive(Clone, Debug)]
pub struct SwitchableConnectionIds {
    current: Arc<RwLock<RoutableConnectionIds>>,
    len: usize,
}

/// Connection IDs would have two lengths, and short headers do not say which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchError {
    /// Octets of those in use.
    pub in_use: usize,
    /// Octets of the new ones.
    pub new: usize,
}

impl fmt::Display for SwitchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "connection IDs would have {} octets, and those in use have {}: choose lengths of the \
             same sum, or start the server again",
            self.new, self.in_use
        )
    }
}

impl std::error::Error for SwitchError {}

impl SwitchableConnectionIds {
    /// Begins with these.
    #[must_use]
    pub fn new(ids: RoutableConnectionIds) -> Self {
        let len = ids.len();
        Self { current: Arc::new(RwLock::new(ids)), len }
    }

    /// Issues these from now on; those that peers have stay valid. Balancers have to know the new
    /// configuration already.
    ///
    /// # Errors
    ///
    /// When connection IDs would have another length.
    pub fn switch(&self, ids: RoutableConnectionIds) -> Result<(), SwitchError> {
        if ids.len() != self.len {
            return Err(SwitchError { in_use: self.len, new: ids.len() });
        }
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = ids;
        Ok(())
    }
}

impl ConnectionIdGenerator for SwitchableConnectionIds {
    fn generate(&self, random: &mut dyn Random) -> ConnectionId {
        self.current.read().unwrap_or_else(PoisonError::into_inner).generate(random)
    }

    fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steering::{Codec, ConfigId, Format, HashKey, Place, ServerId};

    #[test]
    fn another_configuration_is_switched_to_and_one_of_another_length_refused() {
        let ids = |number, nonce| {
            let id = ConfigId::new(number).unwrap();
            let codec = Codec::new(id, Format::new(1, nonce).unwrap(), None, HashKey::default());
            let place = Place { server_id: ServerId::new(&[7]).unwrap(), owner: None };
            RoutableConnectionIds::new(codec, place).unwrap()
        };
        let kept = SwitchableConnectionIds::new(ids(0, 7));
        let given = kept.clone();
        let first =
            || given.generate(&mut quicket_handshake::SystemRandom::new()).as_slice()[0] >> 5;
        assert_eq!(first(), 0);
        kept.switch(ids(3, 7)).unwrap();
        assert_eq!(first(), 3);
        assert_eq!(kept.switch(ids(4, 8)), Err(SwitchError { in_use: 9, new: 10 }));
        assert_eq!(first(), 3);
    }
}
