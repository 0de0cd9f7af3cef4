//! Where messages come from and go to, for bindings to languages whose memory is not Rust's.
//!
//! A reference says that nobody else writes there, and a mutable one that nobody reads. Of memory
//! that a program in C names by its address, perhaps in overlapping parts, neither is known: such a
//! program's buffers are copied through these traits and never become references.

/// Data to send.
pub trait Data {
    /// How many bytes it has.
    fn len(&self) -> usize;

    /// True if it has none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Some of the data from byte `at` on, at least one unless it ends there: where it is, or
    /// copied to `scratch`. Nothing before its end if it cannot be read from there on: sending ends there, with EFAULT if
    /// nothing was sent.
    fn piece<'a>(&'a self, at: usize, scratch: &'a mut Vec<u8>) -> &'a [u8];

    /// A copy of all of it.
    fn to_vec(&self) -> Vec<u8> {
        let (mut all, mut scratch) = (Vec::new(), Vec::new());
        while all.len() < self.len() {
            let piece = self.piece(all.len(), &mut scratch);
            if piece.is_empty() {
                break;
            }
            all.extend_from_slice(piece);
        }
        all
    }
}

impl Data for &[u8] {
    fn len(&self) -> usize {
        <[u8]>::len(self)
    }

    fn piece<'a>(&'a self, at: usize, _scratch: &'a mut Vec<u8>) -> &'a [u8] {
        self.get(at..).unwrap_or_default()
    }
}

/// Room for what is received.
pub trait Room {
    /// How many bytes it takes.
    fn len(&self) -> usize;

    /// True if it takes none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Puts bytes at an offset. They fit.
    fn put(&mut self, at: usize, bytes: &[u8]);
}

impl Room for &mut [u8] {
    fn len(&self) -> usize {
        <[u8]>::len(self)
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        if let Some(place) = self.get_mut(at..at.saturating_add(bytes.len())) {
            place.copy_from_slice(bytes);
        }
    }
}
