//! A peer's unidirectional streams (RFC 9114, Section 6.2): its control stream is h3's; those of QPACK are looked
//! after here, since h3 leaves them unread and does not notice their end.

use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use h3::error::Code;
use h3::quic::ConnectionErrorIncoming;
use quicket::tokio;

use crate::frames::{Control, PUSHED, Sender};
use crate::{Acceptance, RecvStream, Violation, error};

/// Types of streams (RFC 9114, Section 11.2.4; RFC 9204, Section 4.2).
const CONTROL: u64 = 0x0;
const PUSH: u64 = 0x1;
const ENCODER: u64 = 0x2;
const DECODER: u64 = 0x3;

/// The streams that a peer has opened and h3 does not have. There are no more of the first kind than
/// the peer may open at once.
pub(crate) struct Unidirectional {
    sender: Sender,
    acceptance: Acceptance,
    /// Those that have not said their type, with what has come of it.
    untyped: Vec<(tokio::RecvStream, BytesMut)>,
    has_control: bool,
    encoder: Option<Critical>,
    decoder: Option<Critical>,
}

impl Unidirectional {
    /// None has come; what a server says of requests that it takes goes to `acceptance`.
    pub(crate) fn of(sender: Sender, acceptance: Acceptance) -> Self {
        let (untyped, encoder, decoder) = (Vec::new(), None, None);
        Self { sender, acceptance, untyped, has_control: false, encoder, decoder }
    }

    pub(crate) fn insert(&mut self, stream: tokio::RecvStream) {
        self.untyped.push((stream, BytesMut::new()));
    }

    /// The control stream, once it is there.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        connection: &tokio::Connection,
    ) -> Poll<Result<RecvStream, ConnectionErrorIncoming>> {
        match self.poll_checked(cx) {
            Poll::Ready(Ok(stream)) => Poll::Ready(Ok(stream)),
            Poll::Ready(Err(violation)) => Poll::Ready(Err(error::refuse(connection, violation))),
            Poll::Pending => Poll::Pending,
        }
    }

    fn poll_checked(&mut self, cx: &mut Context<'_>) -> Poll<Result<RecvStream, Violation>> {
        let mut control = None;
        let mut at = 0;
        while at < self.untyped.len() {
            let (stream, begun) = &mut self.untyped[at];
            match poll_type(cx, stream, begun) {
                Poll::Pending => at += 1,
                // RFC 9114, Section 6.2: one that ends before its type is known does no harm.
                Poll::Ready(None) => drop(self.untyped.swap_remove(at)),
                Poll::Ready(Some(kind)) => {
                    let (stream, rest) = self.untyped.swap_remove(at);
                    if let Some(stream) = self.take(kind, stream, rest.freeze())? {
                        control = Some(stream);
                    }
                }
            }
        }
        if self.untyped.is_empty() {
            // Most peers open three, at the beginning.
            self.untyped = Vec::new();
        }
        for critical in [&mut self.encoder, &mut self.decoder].into_iter().flatten() {
            critical.poll(cx)?;
        }
        // Only now, so that everything has a waker.
        control.map_or(Poll::Pending, |control| Poll::Ready(Ok(control)))
    }

    fn take(
        &mut self,
        kind: u64,
        mut stream: tokio::RecvStream,
        rest: Bytes,
    ) -> Result<Option<RecvStream>, Violation> {
        let refused = |reason| Violation::connection(Code::H3_STREAM_CREATION_ERROR, reason);
        let is_second = match kind {
            CONTROL => std::mem::replace(&mut self.has_control, true),
            ENCODER => self.encoder.is_some(),
            DECODER => self.decoder.is_some(),
            // RFC 9114, Section 4.6.
            PUSH if self.sender == Sender::Server => return Err(PUSHED),
            // RFC 9114, Section 6.2.2.
            PUSH => return Err(refused("a push by a client")),
            // RFC 9114, Section 6.2.
            _ => {
                let _ = stream.stop(Code::H3_STREAM_CREATION_ERROR.value());
                return Ok(None);
            }
        };
        // RFC 9114, Section 6.2.1; RFC 9204, Section 4.2.
        if is_second {
            return Err(refused("a second control stream, or of QPACK"));
        }
        match kind {
            CONTROL => {
                let (frames, acceptance) = (Control::of(self.sender), self.acceptance.clone());
                return Ok(Some(RecvStream::control(stream, frames, acceptance, rest)));
            }
            ENCODER => {
                self.encoder.insert(Critical::new(stream, Instructions::Encoder)).read(&rest)?
            }
            _ => {
                let instructions = Instructions::Decoder { continues: false };
                self.decoder.insert(Critical::new(stream, instructions)).read(&rest)?;
            }
        }
        Ok(None)
    }
}

/// The stream's type, once it is there, which is taken off what has come; none if the stream ends before.
fn poll_type(
    cx: &mut Context<'_>,
    stream: &mut tokio::RecvStream,
    begun: &mut BytesMut,
) -> Poll<Option<u64>> {
    loop {
        if let Some((kind, length)) = crate::frames::integer(begun) {
            let _ = begun.split_to(length);
            return Poll::Ready(Some(kind));
        }
        match std::task::ready!(stream.poll_take_chunk(cx)) {
            Ok(Some(chunk)) => begun.extend_from_slice(&chunk),
            Ok(None) | Err(_) => return Poll::Ready(None),
        }
    }
}

/// A stream of QPACK, which lasts as long as the connection.
struct Critical {
    stream: tokio::RecvStream,
    instructions: Instructions,
}

/// What may come, where neither side has a dynamic table (RFC 9204, Sections 4.3 and 4.4).
enum Instructions {
    Encoder,
    Decoder {
        /// Within the integer of an instruction.
        continues: bool,
    },
}

impl Critical {
    const fn new(stream: tokio::RecvStream, instructions: Instructions) -> Self {
        Self { stream, instructions }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Result<(), Violation> {
        while let Poll::Ready(read) = self.stream.poll_take_chunk(cx) {
            match read {
                Ok(Some(chunk)) => self.read(&chunk)?,
                // The connection tells of its end itself.
                Err(quicket::ReadError::Lost(_)) => return Ok(()),
                // RFC 9204, Section 4.2.
                Ok(None) | Err(_) => {
                    let reason = "a stream of QPACK that was closed";
                    return Err(Violation::connection(Code::H3_CLOSED_CRITICAL_STREAM, reason));
                }
            }
        }
        Ok(())
    }

    fn read(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        self.instructions.read(bytes)
    }
}

impl Instructions {
    fn read(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        /// A capacity of 0 for the dynamic table (RFC 9204, Section 4.3.1).
        const NO_CAPACITY: u8 = 0x20;
        match self {
            Self::Encoder if bytes.iter().all(|&byte| byte == NO_CAPACITY) => Ok(()),
            Self::Encoder => Err(Violation::connection(
                Code::QPACK_ENCODER_STREAM_ERROR,
                "a dynamic table that was not offered",
            )),
            Self::Decoder { continues } => {
                for byte in bytes {
                    match (*continues, byte >> 6) {
                        (true, _) => *continues = byte & 0x80 != 0,
                        // A stream that is cancelled (RFC 9204, Section 4.4.2).
                        (false, 0b01) => *continues = byte & 0x3f == 0x3f,
                        (false, _) => {
                            return Err(Violation::connection(
                                Code::QPACK_DECODER_STREAM_ERROR,
                                "an acknowledgment for a dynamic table that there is none of",
                            ));
                        }
                    }
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_that_take_no_dynamic_table_pass() {
        assert_eq!(Instructions::Encoder.read(&[0x20, 0x20]), Ok(()));
        // A capacity, an insertion, a duplicate.
        for wrong in [0x21, 0x3f, 0xc0, 0x40, 0x00] {
            assert!(Instructions::Encoder.read(&[wrong]).is_err(), "{wrong}");
        }
        let mut decoder = Instructions::Decoder { continues: false };
        for byte in [0x40, 0x7f, 0x80, 0x80, 0x01, 0x44] {
            assert_eq!(decoder.read(&[byte]), Ok(()));
        }
        for wrong in [0x80, 0x01] {
            assert!(decoder.read(&[wrong]).is_err(), "{wrong}");
        }
    }
}
