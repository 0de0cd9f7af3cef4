//! The application error codes with which streams and connections of private protocols end: 0x5147 (QG) and
//! two digits, so that they are hardly those of a protocol that is carried. docs/gateway.md lists them.

/// The origin, or the local program, cannot be reached.
pub(crate) const UNREACHABLE: u64 = 0x51_4701;
/// Its connection was reset (RST).
pub(crate) const RESET: u64 = 0x51_4702;
/// It reads no more.
pub(crate) const CLOSED: u64 = 0x51_4703;
/// Nothing came for too long.
pub(crate) const IDLE: u64 = 0x51_4704;
/// Unidirectional streams have no counterpart at the origin.
pub(crate) const UNIDIRECTIONAL: u64 = 0x51_4705;
/// The gateway stops.
pub(crate) const STOPS: u64 = 0x51_4706;
/// There are too many connections to the origin, or to the gateway.
pub(crate) const TOO_MANY: u64 = 0x51_4707;
/// The connection on the other side of the gateway has ended.
pub(crate) const LOST: u64 = 0x51_4708;
/// Nothing is served by this protocol and name.
pub(crate) const NOT_SERVED: u64 = 0x51_4709;

/// What a code means; `None` if it is one of the application's own.
pub(crate) const fn meaning(code: u64) -> Option<&'static str> {
    Some(match code {
        UNREACHABLE => "the gateway cannot reach the origin",
        RESET => "the origin has reset the connection",
        CLOSED => "the origin reads no more",
        IDLE => "nothing came for too long",
        UNIDIRECTIONAL => "the origin takes no unidirectional streams",
        STOPS => "the gateway stops",
        TOO_MANY => "there are too many connections",
        LOST => "the connection on the other side of the gateway has ended",
        NOT_SERVED => "nothing is served by this protocol and server name",
        _ => return None,
    })
}
