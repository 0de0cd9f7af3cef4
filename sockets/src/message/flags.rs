//! Flags of messages and streams, with the numbers that they have on Linux.

use std::fmt;
use std::ops::{BitAnd, BitOr, BitOrAssign, Not};

/// Declares a set of flags.
macro_rules! flag_set {
    ($(#[$doc:meta])* $name:ident { $($(#[$flag_doc:meta])* $flag:ident = $value:expr;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
        pub struct $name(u32);

        impl $name {
            /// No flag.
            pub const NONE: Self = Self(0);
            $($(#[$flag_doc])* pub const $flag: Self = Self($value);)*

            /// The set of these bits, known ones or not.
            #[must_use]
            pub const fn from_bits(bits: u32) -> Self {
                Self(bits)
            }

            /// The bits.
            #[must_use]
            pub const fn bits(self) -> u32 {
                self.0
            }

            /// True if all of `other` are set.
            #[must_use]
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// True if any of `other` is set.
            #[must_use]
            pub const fn intersects(self, other: Self) -> bool {
                self.0 & other.0 != 0
            }

            /// Both sets together.
            #[must_use]
            pub const fn union(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// True if no flag is set.
            #[must_use]
            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }
        }

        impl BitOr for $name {
            type Output = Self;

            fn bitor(self, other: Self) -> Self {
                self.union(other)
            }
        }

        impl BitOrAssign for $name {
            fn bitor_assign(&mut self, other: Self) {
                *self = self.union(other);
            }
        }

        impl BitAnd for $name {
            type Output = Self;

            fn bitand(self, other: Self) -> Self {
                Self(self.0 & other.0)
            }
        }

        impl Not for $name {
            type Output = Self;

            fn not(self) -> Self {
                Self(!self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.0)
            }
        }
    };
}

flag_set! {
    /// What becomes of a stream with a message.
    StreamFlags {
        /// The stream is opened with it (MSG_SYN).
        NEW = 0x400;
        /// It ends the stream, or the stream has ended with it (MSG_FIN).
        FIN = 0x200;
        /// The stream to open is unidirectional (MSG_CONFIRM).
        UNI = 0x800;
        /// Does not wait until the peer permits another stream (MSG_WAITFORONE).
        DONTWAIT = 0x1_0000;
        /// The peer is told of limits that are in the way (MSG_ERRQUEUE).
        SNDBLOCK = 0x2000;
    }
}

impl StreamFlags {
    /// All that there are.
    pub(super) const ALL: Self =
        Self(Self::NEW.0 | Self::FIN.0 | Self::UNI.0 | Self::DONTWAIT.0 | Self::SNDBLOCK.0);
}

flag_set! {
    /// How a message is sent or received, and what it is.
    MsgFlags {
        /// What is received stays in the queue (MSG_PEEK).
        PEEK = 0x2;
        /// The control message did not fit: the stream's flags are in the message's (MSG_CTRUNC).
        CTRUNC = 0x8;
        /// Does not wait (MSG_DONTWAIT).
        DONTWAIT = 0x40;
        /// The message ends here; of all but stream data (MSG_EOR).
        EOR = 0x80;
        /// Accepted for its kinship with stream sockets; changes nothing (MSG_WAITALL).
        WAITALL = 0x100;
        /// Sends a datagram, or one was received (MSG_RST).
        DATAGRAM = 0x1000;
        /// No signal is raised, as none ever is here (MSG_NOSIGNAL).
        NOSIGNAL = 0x4000;
        /// More follows: what is small may wait for it (MSG_MORE).
        MORE = 0x8000;
        /// A notification was received; the number of [`MsgFlags::MORE`].
        NOTIFICATION = 0x8000;
        /// More messages of the same call follow (MSG_BATCH).
        BATCH = 0x4_0000;
    }
}

impl MsgFlags {
    /// What may be given when sending.
    pub(super) const SENDING: Self = Self(
        StreamFlags::ALL.0
            | Self::BATCH.0
            | Self::MORE.0
            | Self::DONTWAIT.0
            | Self::NOSIGNAL.0
            | Self::WAITALL.0
            | Self::DATAGRAM.0,
    );

    /// The stream's flags among them, which count without a control message.
    pub(super) const fn stream_flags(self) -> StreamFlags {
        StreamFlags(self.0 & StreamFlags::ALL.0)
    }
}

impl From<StreamFlags> for MsgFlags {
    fn from(flags: StreamFlags) -> Self {
        Self(flags.0)
    }
}
