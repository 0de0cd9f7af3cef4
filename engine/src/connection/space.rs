//! Packet number spaces (RFC 9000, Section 12.3).

use alloc::boxed::Box;

use crate::ack::{AckScheduler, ReceivedPackets};
use crate::crypto::Level;
use crate::crypto_stream::CryptoStream;
use crate::path::EcnSpace;
use crate::random::Random;
use crate::recovery::RecoverySpace;
pub(crate) use crate::recovery::SpaceId;

/// A packet number is skipped about once in so many, at random (RFC 9000, Section 21.4).
const SKIP_INTERVAL: u64 = 1000;

/// After the first Initial packet one to so many numbers are left out: connections that end with
/// their handshake, or early in it, have such numbers too.
const INITIAL_SKIPS: u64 = 4;

impl SpaceId {
    pub(crate) const fn of(level: Level) -> Self {
        match level {
            Level::Initial => Self::Initial,
            Level::Handshake => Self::Handshake,
            Level::EarlyData | Level::OneRtt => Self::Data,
        }
    }

    /// The level that names the space in logs.
    pub(crate) const fn level(self) -> Level {
        match self {
            Self::Initial => Level::Initial,
            Self::Handshake => Level::Handshake,
            Self::Data => Level::OneRtt,
        }
    }
}

/// One packet number space: what was sent, what was received, when to acknowledge, and the
/// CRYPTO stream of its level.
pub(crate) struct Space {
    pub(crate) recovery: RecoverySpace,
    pub(crate) received: ReceivedPackets,
    pub(crate) acks: AckScheduler,
    pub(crate) crypto: CryptoStream,
    pub(crate) ecn: EcnSpace,
    /// Ack-eliciting packets to send whatever the congestion window says
    /// (RFC 9002, Section 6.2.4).
    pub(crate) probes: u8,
    /// A PING is to be sent.
    pub(crate) ping: bool,
    /// The packet number to skip next.
    pub(crate) next_skip: Option<u64>,
    /// How many numbers may be skipped there.
    skip_most: u64,
}

impl Space {
    /// An empty one, whose CRYPTO stream holds up to `crypto_buffer` bytes out of order.
    #[inline(never)] // keeps it out of the frame of `Connection::new`
    pub(crate) fn new(acks: AckScheduler, crypto_buffer: usize) -> Box<Self> {
        Box::new(Self {
            recovery: RecoverySpace::new(),
            received: ReceivedPackets::new(),
            acks,
            crypto: CryptoStream::new(crypto_buffer),
            ecn: EcnSpace::default(),
            probes: 0,
            ping: false,
            next_skip: None,
            skip_most: 1,
        })
    }

    /// Leaves out a packet number now and then, to catch peers that acknowledge what they have
    /// not received (RFC 9000, Section 21.4).
    pub(crate) fn maybe_skip_packet_number(&mut self, rng: &mut dyn Random) {
        let next = self.recovery.next_packet_number();
        match self.next_skip {
            Some(skip) if next < skip => return,
            Some(_) => {
                let more = match core::mem::replace(&mut self.skip_most, 1) {
                    1 => 0,
                    most => rng.below(most),
                };
                for _ in 0..=more {
                    self.recovery.skip_packet_number();
                }
            }
            None => {}
        }
        let next = self.recovery.next_packet_number();
        self.next_skip = Some(
            next.saturating_add(SKIP_INTERVAL / 2)
                .saturating_add(rng.below(SKIP_INTERVAL))
                .saturating_add(1),
        );
    }
}

/// The three spaces, of which two end with the keys of their level.
pub(crate) struct Spaces {
    /// `None` once its keys are discarded (RFC 9001, Section 4.9.1).
    initial: Option<Box<Space>>,
    /// `None` once its keys are discarded (RFC 9001, Section 4.9.2).
    handshake: Option<Box<Space>>,
    pub(crate) data: Box<Space>,
}

impl Spaces {
    /// The spaces of a new connection. `data` schedules the ACKs of application data, and
    /// `crypto_buffer` is as in [`Space::new`].
    pub(crate) fn new(data: AckScheduler, crypto_buffer: usize) -> Self {
        let mut initial = Space::new(AckScheduler::immediate(), crypto_buffer);
        (initial.next_skip, initial.skip_most) = (Some(1), INITIAL_SKIPS);
        Self {
            initial: Some(initial),
            handshake: Some(Space::new(AckScheduler::immediate(), crypto_buffer)),
            data: Space::new(data, crypto_buffer),
        }
    }

    /// The space; `None` if it was discarded.
    pub(crate) fn get(&self, id: SpaceId) -> Option<&Space> {
        match id {
            SpaceId::Initial => self.initial.as_deref(),
            SpaceId::Handshake => self.handshake.as_deref(),
            SpaceId::Data => Some(&self.data),
        }
    }

    /// The space; `None` if it was discarded.
    pub(crate) fn get_mut(&mut self, id: SpaceId) -> Option<&mut Space> {
        match id {
            SpaceId::Initial => self.initial.as_deref_mut(),
            SpaceId::Handshake => self.handshake.as_deref_mut(),
            SpaceId::Data => Some(&mut self.data),
        }
    }

    /// The space of a level; `None` if it was discarded.
    pub(crate) fn of_level_mut(&mut self, level: Level) -> Option<&mut Space> {
        self.get_mut(SpaceId::of(level))
    }

    /// Ends a space; returns what it was. That of application data never ends.
    pub(crate) fn discard(&mut self, id: SpaceId) -> Option<Box<Space>> {
        match id {
            SpaceId::Initial => self.initial.take(),
            SpaceId::Handshake => self.handshake.take(),
            SpaceId::Data => None,
        }
    }
}
