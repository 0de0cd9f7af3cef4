//! Bytes that the application lends for sending, instead of having them copied.

use alloc::boxed::Box;
use core::fmt;
use core::ops::Range;

/// Instead of what an owner does not show any more. A stream that has nothing to send where there is something would
/// never come to its end.
static ZEROS: [u8; 1024] = [0; 1024];

/// Bytes that a stream sends from where they are ([`Connection::lend`](crate::Connection::lend)).
///
/// Whoever lends them has them given back, once the peer has them or nobody wants them
/// any more ([`Connection::take_back`](crate::Connection::take_back)), so that what happens when they are dropped is not the
/// connection's business.
pub struct Lent {
    owner: Box<dyn AsRef<[u8]> + Send + Sync>,
    len: usize,
}

impl Lent {
    /// `owner` must show the same bytes each time: those that it shows when they are sent, or sent again, are
    /// those that the peer gets. Where it shows fewer than at first, zeros are sent.
    pub fn new(owner: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        let len = owner.as_ref().len();
        Self { owner: Box::new(owner), len }
    }

    /// How many bytes there are.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True if there are none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What of them is within `range`, which must be within their length; or less, but not nothing.
    pub(super) fn get(&self, range: Range<usize>) -> &[u8] {
        let missing = range.len();
        (*self.owner).as_ref().get(range).unwrap_or_else(|| ZEROS.get(..missing).unwrap_or(&ZEROS))
    }
}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lent").field("len", &self.len).finish_non_exhaustive()
    }
}
