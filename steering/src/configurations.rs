//! The configurations in use at a time, and their rotation while connections live.

use core::fmt;

use alloc::sync::Arc;

use crate::codec::Codec;
use crate::format::ConfigId;

/// Up to seven configurations, of which one writes new connection IDs and all read.
///
/// A rotation has three steps, each of which may take as long as it likes: [`Self::add`] the new
/// one everywhere, first where datagrams are routed; [`Self::switch`] to it where connection IDs
/// are issued; [`Self::remove`] the old one once no connection uses its connection IDs any more.
#[derive(Clone, Debug)]
pub struct Configurations {
    codecs: [Option<Arc<Codec>>; ConfigId::COUNT],
    current: Arc<Codec>,
}

/// Why a configuration cannot be added, switched to or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RotationError {
    /// Connection IDs would have two lengths, and short headers do not say which.
    Length {
        /// Octets of the connection IDs in use.
        in_use: usize,
        /// Octets of those of the new configuration.
        new: usize,
    },
    /// The number is taken.
    Taken(ConfigId),
    /// There is no such configuration.
    Unknown(ConfigId),
    /// It writes new connection IDs.
    Current(ConfigId),
}

impl fmt::Display for RotationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { in_use, new } => write!(
                f,
                "connection IDs of the new configuration have {new} octets, those in use \
                 {in_use}: choose lengths of the same sum"
            ),
            Self::Taken(id) => {
                write!(f, "configuration {} is in use: remove it first", id.number())
            }
            Self::Unknown(id) => write!(f, "there is no configuration {}", id.number()),
            Self::Current(id) => write!(
                f,
                "configuration {} writes new connection IDs: switch to another first",
                id.number()
            ),
        }
    }
}

impl core::error::Error for RotationError {}

impl Configurations {
    /// Begins with one configuration, which writes and reads.
    #[must_use]
    pub fn new(codec: Codec) -> Self {
        let current = Arc::new(codec);
        let mut codecs = [const { None }; ConfigId::COUNT];
        if let Some(slot) = codecs.get_mut(usize::from(current.id().number())) {
            *slot = Some(Arc::clone(&current));
        }
        Self { codecs, current }
    }

    /// The length of every connection ID in octets.
    #[must_use]
    pub fn id_len(&self) -> usize {
        self.current.format().id_len()
    }

    /// What writes new connection IDs.
    #[must_use]
    pub fn current(&self) -> &Codec {
        &self.current
    }

    /// What wrote a connection ID, by the upper three bits of its first octet; `None` when it
    /// cannot be routed.
    #[must_use]
    pub fn of(&self, octets: &[u8]) -> Option<&Codec> {
        self.get(ConfigId::of_first_octet(*octets.first()?)?)
    }

    /// All that are read.
    pub fn all(&self) -> impl Iterator<Item = &Codec> {
        self.codecs.iter().flatten().map(|codec| &**codec)
    }

    /// The configuration with a number.
    #[must_use]
    pub fn get(&self, id: ConfigId) -> Option<&Codec> {
        self.codecs.get(usize::from(id.number()))?.as_deref()
    }

    /// Reads connection IDs of a further configuration from now on.
    ///
    /// # Errors
    /// When the number is taken, or the connection IDs have another length.
    pub fn add(&mut self, codec: Codec) -> Result<(), RotationError> {
        let (in_use, new) = (self.id_len(), codec.format().id_len());
        if in_use != new {
            return Err(RotationError::Length { in_use, new });
        }
        match self.slot(codec.id()) {
            Some(slot @ None) => *slot = Some(Arc::new(codec)),
            _ => return Err(RotationError::Taken(codec.id())),
        }
        Ok(())
    }

    /// Writes new connection IDs with a configuration that was added before.
    ///
    /// # Errors
    /// When there is none with this number.
    pub fn switch(&mut self, id: ConfigId) -> Result<(), RotationError> {
        match self.slot(id) {
            Some(Some(codec)) => self.current = Arc::clone(codec),
            _ => return Err(RotationError::Unknown(id)),
        }
        Ok(())
    }

    /// Forgets a configuration: its connection IDs cannot be routed any more.
    ///
    /// # Errors
    /// When there is none with this number, or it writes new connection IDs.
    pub fn remove(&mut self, id: ConfigId) -> Result<(), RotationError> {
        if self.current.id() == id {
            return Err(RotationError::Current(id));
        }
        let removed = self.slot(id).and_then(Option::take);
        removed.map(drop).ok_or(RotationError::Unknown(id))
    }

    fn slot(&mut self, id: ConfigId) -> Option<&mut Option<Arc<Codec>>> {
        self.codecs.get_mut(usize::from(id.number()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{Place, ServerId};
    use crate::format::Format;
    use crate::keyed_hash::HashKey;
    use crate::testing::Aes;
    use quicket_testing::Rng;

    fn codec(number: u8, server_id_len: usize, nonce_len: usize) -> Codec {
        let key = alloc::format!("{number:02x}95f09245765f80256934e50c66207f");
        Codec::new(
            ConfigId::new(number).unwrap(),
            Format::new(server_id_len, nonce_len).unwrap(),
            Some(Arc::new(Aes::new(&key))),
            HashKey::new([0; 8]),
        )
    }

    #[test]
    fn connection_ids_of_all_configurations_are_read_while_they_rotate() {
        let mut rng = Rng::new(7);
        let mut all = Configurations::new(codec(0, 3, 9));
        let mut issued = alloc::vec::Vec::new();
        for number in 1..=20 {
            let (old, new) = ((number - 1) % 7, number % 7);
            let server_id_len = 1 + usize::from(number % 5);
            let server_id = ServerId::new(&rng.bytes(all.current().format().server_id_len()));
            let place = Place { server_id: server_id.unwrap(), owner: None };
            let id = all.current().mint(&place, &mut |out| rng.fill(out)).unwrap();
            issued.push((id, place));
            all.add(codec(new, server_id_len, 12 - server_id_len)).unwrap();
            assert_eq!(
                all.add(codec(new, 3, 9)),
                Err(RotationError::Taken(ConfigId::new(new).unwrap()))
            );
            all.switch(ConfigId::new(new).unwrap()).unwrap();
            for (id, place) in issued.iter().rev().take(5) {
                let codec = all.of(id.as_slice()).unwrap();
                assert_eq!(codec.place(id.as_slice()).as_ref(), Some(place));
            }
            if issued.len() > 4 {
                let gone = ConfigId::new((old + 3) % 7).unwrap();
                all.remove(gone).unwrap();
            }
        }
    }

    #[test]
    fn what_would_break_living_connections_is_refused() {
        let mut all = Configurations::new(codec(0, 3, 9));
        let [zero, one] = [0, 1].map(|number| ConfigId::new(number).unwrap());
        assert_eq!(all.add(codec(1, 3, 10)), Err(RotationError::Length { in_use: 13, new: 14 }));
        assert_eq!(all.switch(one), Err(RotationError::Unknown(one)));
        assert_eq!(all.remove(one), Err(RotationError::Unknown(one)));
        assert_eq!(all.remove(zero), Err(RotationError::Current(zero)));
        assert!(all.of(&[0xff; 13]).is_none(), "0b111 cannot be routed");
        assert!(all.of(&[]).is_none());
    }
}
