//! Where the halves of streams are.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};

use super::pool::OutOfMemory;

/// One half of a stream, in memory of its own: most streams of a quiet connection have only one, as those of HTTP/3
/// for settings, and a table has room for more streams than there are.
#[derive(Debug)]
pub(super) struct Half<T>(Box<[T; 1]>);

impl<T> Half<T> {
    pub(super) fn new(half: T) -> Result<Self, OutOfMemory> {
        let mut memory = Vec::new();
        memory.try_reserve_exact(1).map_err(|_| OutOfMemory)?;
        memory.push(half);
        memory.into_boxed_slice().try_into().map(Self).map_err(|_| OutOfMemory)
    }
}

impl<T> Deref for Half<T> {
    type Target = T;

    fn deref(&self) -> &T {
        let [half] = &*self.0;
        half
    }
}

impl<T> DerefMut for Half<T> {
    fn deref_mut(&mut self) -> &mut T {
        let [half] = &mut *self.0;
        half
    }
}
