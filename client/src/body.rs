//! What a request carries.

use bytes::Bytes;
use tokio::sync::mpsc;

/// Pieces of a body that wait to be sent.
const WAITING: usize = 4;

/// The body of a request.
#[derive(Debug, Default)]
pub struct Body(pub(crate) Source);

/// Where it comes from.
#[derive(Debug, Default)]
pub(crate) enum Source {
    /// There is none.
    #[default]
    Empty,
    /// It is here.
    Whole(Bytes),
    /// It comes in pieces.
    Pieces(mpsc::Receiver<Piece>),
}

/// What a [`Writer`] has written.
#[derive(Debug)]
pub(crate) enum Piece {
    Data(Bytes),
    End,
}

impl Body {
    /// None.
    #[must_use]
    pub const fn empty() -> Self {
        Self(Source::Empty)
    }

    /// One that is written while it is sent. If the writer is dropped before it has finished, the request is cancelled
    /// (RFC 9114, Section 4.1.1): the server does not take a part for the whole.
    #[must_use]
    pub fn channel() -> (Writer, Self) {
        let (sender, receiver) = mpsc::channel(WAITING);
        (Writer(sender), Self(Source::Pieces(receiver)))
    }

    pub(crate) const fn is_empty(&self) -> bool {
        matches!(self.0, Source::Empty)
    }
}

impl<T: Into<Bytes>> From<T> for Body {
    fn from(bytes: T) -> Self {
        Self(Source::Whole(bytes.into()))
    }
}

/// Writes a request's body.
#[derive(Debug)]
pub struct Writer(mpsc::Sender<Piece>);

impl Writer {
    /// Waits until a piece, or the end, can be written at once. False if nobody reads any more.
    ///
    /// Cancel safe.
    pub async fn ready(&self) -> bool {
        self.0.reserve().await.is_ok()
    }

    /// Writes a piece; waits while four wait to be sent. False if nobody reads any more: the request has failed, or the
    /// server has answered without reading on. Its answer says which.
    ///
    /// Not cancel safe: the piece is lost with the future.
    pub async fn write(&mut self, piece: Bytes) -> bool {
        self.0.send(Piece::Data(piece)).await.is_ok()
    }

    /// Ends the body.
    pub async fn finish(self) -> bool {
        self.0.send(Piece::End).await.is_ok()
    }
}
