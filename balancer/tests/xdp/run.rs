//! Bytes of strangers, about which the kernel and user space have to decide alike.

use std::sync::{Mutex, PoisonError};

use crate::both::Both;
use crate::packets::{self, Made};

/// Connection IDs that the kernel is told before it begins anew: it forgets the oldest of its 65,536.
const LEARNED: usize = 8192;

static BOTH: Mutex<Option<Both>> = Mutex::new(None);

/// Says whether the packet was forwarded.
pub(crate) fn judge(packet: &Made) -> bool {
    let mut both = BOTH.lock().unwrap_or_else(PoisonError::into_inner);
    if both.as_ref().is_some_and(|both| both.learned.len() >= LEARNED) {
        *both = None;
    }
    both.get_or_insert_with(Both::new).judge(packet)
}

/// The first octet says what the others are: see `packets::of`.
pub(crate) fn run(input: &[u8]) -> bool {
    judge(&packets::of(input))
}
