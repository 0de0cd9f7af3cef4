//! The memory of a port: a sealed memfd that two processes have mapped.
#![allow(unsafe_code, reason = "shared memory is mapped, and copied from and to, by its address")]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::slice;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::layout::{APART, LINE, Layout, WORDS, Way};
use crate::queue::{Consumer, Lines};
use crate::sync::{AtomicU32, AtomicU64};

/// What keeps the memory as large as it is, so that no access is beyond its end.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// The mapped memory of a port.
///
/// Whoever has the other mapping may write anything anywhere in it at any time. Here, words are read and written
/// by atomics, and slots are copied as a whole ([`Memory::load`], [`Memory::store`]): no reference to
/// octets of a slot exists.
#[derive(Debug)]
pub struct Memory {
    descriptor: OwnedFd,
    base: NonNull<u8>,
    layout: Layout,
    /// Where the layout has rings and slots: asked for with each frame, and computed once.
    rings: [NonNull<u8>; 2],
    slots: NonNull<u8>,
    stride: usize,
}

// SAFETY: the addresses are of a mapping that lives until the drop and belongs to no thread.
unsafe impl Send for Memory {}
// SAFETY: shared references only give atomics, and copies of slots, which bear that others write meanwhile.
unsafe impl Sync for Memory {}

impl Memory {
    /// Makes memory, sealed against shrinking and growing. All of it is there from the beginning, so that
    /// no access fails later for want of it. Each position has its own slot.
    ///
    /// # Errors
    ///
    /// When the system has no memory, descriptors or address space left.
    pub fn create(layout: Layout) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let descriptor = rustix::fs::memfd_create("quicket-port", flags)?;
        let len = layout.memory() as u64;
        rustix::fs::ftruncate(&descriptor, len)?;
        rustix::fs::fallocate(&descriptor, rustix::fs::FallocateFlags::empty(), 0, len)?;
        rustix::fs::fcntl_add_seals(&descriptor, SEALS)?;
        let memory = Self::map(descriptor, layout)?;
        for way in [Way::Send, Way::Receive] {
            let (first, entries) = (layout.first_slot(way), memory.entries(way));
            for (slot, entry) in (first..).zip(entries) {
                let descriptor = crate::Descriptor { slot, len: 0 };
                entry.store(descriptor.to_bits(), crate::sync::Ordering::Relaxed);
            }
        }
        // The program has not looked: the first frame rings, so that who waits by poll before anything else is woken.
        let _ = Consumer::new().sleep(memory.lines(Way::Receive));
        Ok(memory)
    }

    /// Maps memory that another process has made.
    ///
    /// # Errors
    ///
    /// `InvalidData` if it has another length than the layout, or could shrink; or what the system says.
    pub fn open(descriptor: OwnedFd, layout: Layout) -> io::Result<Self> {
        let invalid = |text: &str| Err(io::Error::new(io::ErrorKind::InvalidData, text));
        if !rustix::fs::fcntl_get_seals(&descriptor)?.contains(SEALS) {
            return invalid("the memory of the port is not sealed: its other side could shrink it");
        }
        if rustix::fs::fstat(&descriptor)?.st_size as u64 != layout.memory() as u64 {
            return invalid("the memory of the port has another length than its layout");
        }
        Self::map(descriptor, layout)
    }

    /// Maps it: the file has at least the length of the layout, and keeps it.
    fn map(descriptor: OwnedFd, layout: Layout) -> io::Result<Self> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the system's choice, over none that exists.
        let base = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), layout.memory(), access, flags, &descriptor, 0)?
        };
        let Some(base) = NonNull::new(base.cast()) else {
            return Err(io::Error::other("the system has mapped memory at address zero"));
        };
        // SAFETY: the layout has them within the mapping.
        let at = |at| unsafe { base.add(at) };
        let rings = [at(layout.ring_at(Way::Send)), at(layout.ring_at(Way::Receive))];
        let (slots, stride) = (at(layout.slots_at()), layout.stride());
        Ok(Self { descriptor, base, layout, rings, slots, stride })
    }

    /// The layout.
    #[inline]
    #[must_use]
    pub const fn layout(&self) -> Layout {
        self.layout
    }

    /// The words of a ring.
    #[inline]
    #[must_use]
    pub fn lines(&self, way: Way) -> Lines<'_> {
        let ring = self.ring(way);
        let word = |n: usize| {
            // SAFETY: `WORDS` words, `APART` octets from each other, begin each ring; the ring lies within the
            // mapping, which lives as long as `self` is borrowed. The address is a multiple of `APART`.
            // Nobody here reads or writes it but by atomics.
            unsafe { ring.add(n * APART).cast::<AtomicU32>().as_ref() }
        };
        let lines = Lines::new([word(0), word(1), word(2), word(3)], self.entries(way));
        lines.expect("a layout has rings of powers of two")
    }

    #[inline]
    const fn ring(&self, way: Way) -> NonNull<u8> {
        match way {
            Way::Send => self.rings[0],
            Way::Receive => self.rings[1],
        }
    }

    #[inline]
    fn entries(&self, way: Way) -> &[AtomicU64] {
        // SAFETY: the layout has as many positions of eight octets there, within the mapping; the address is
        // a multiple of `APART`. They live as long as `self` is borrowed, and are accessed by atomics only.
        unsafe {
            let first = self.ring(way).add(WORDS * APART).cast::<AtomicU64>();
            slice::from_raw_parts(first.as_ptr(), self.layout.entries(way) as usize)
        }
    }

    /// The address of a slot, if there is one of that number.
    #[inline]
    fn slot(&self, slot: u32) -> Option<NonNull<u8>> {
        if slot >= self.layout.slots() {
            return None;
        }
        // SAFETY: the layout has that slot within the mapping.
        Some(unsafe { self.slots.add(slot as usize * self.stride) })
    }

    /// Copies the first `len` octets of a slot to the beginning of `to`, and what follows them up to a multiple of 64.
    /// Returns them; none if there is no such slot, if it is shorter, or if `to` is.
    #[inline]
    pub fn load<'a>(&self, slot: u32, len: usize, to: &'a mut [u8]) -> Option<&'a mut [u8]> {
        let blocks = len.div_ceil(LINE);
        let from = self.slot(slot)?;
        if len > self.layout.slot_len() as usize || blocks * LINE > to.len() {
            return None;
        }
        // SAFETY: the slot has a multiple of `LINE` octets, and at least `len`; `to` has room for as many, and
        // is nobody else's memory.
        unsafe { copy(from.as_ptr(), to.as_mut_ptr(), blocks) };
        to.get_mut(..len)
    }

    /// Copies `len` octets from the beginning of `from` into a slot, and zeros behind them up to a multiple of 64, so
    /// that nothing else that stood in `from` gets there. Returns whether that was done: not if there is no
    /// such slot, if it is shorter, or if `from` is shorter than that multiple.
    #[inline]
    #[must_use]
    pub fn store(&self, slot: u32, from: &mut [u8], len: usize) -> bool {
        let blocks = len.div_ceil(LINE);
        let (Some(to), Some(rest)) = (self.slot(slot), from.get_mut(len..blocks * LINE)) else {
            return false;
        };
        if len > self.layout.slot_len() as usize {
            return false;
        }
        if !rest.is_empty() {
            rest.fill(0);
        }
        // SAFETY: the slot has a multiple of `LINE` octets, and at least `len`; `from` has as many.
        unsafe { copy(from.as_ptr(), to.as_ptr(), blocks) };
        true
    }

    /// Has the processor fetch the beginning of a slot, if there is one of that number.
    #[inline]
    pub fn prefetch(&self, slot: u32) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if let Some(at) = self.slot(slot) {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a hint, which accesses nothing; x86_64 has it always.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(at.as_ptr().cast()) };
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let _ = slot;
    }

    /// Has the processor fetch the beginning of a slot that is written next, if there is one of that number: then nobody
    /// else has it.
    #[inline]
    pub fn prefetch_to_write(&self, slot: u32) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if let Some(at) = self.slot(slot) {
            // SAFETY: a hint, which changes nothing; processors of x86_64 that do not know it do nothing.
            unsafe {
                std::arch::asm!("prefetchw [{}]", in(reg) at.as_ptr(), options(nostack, preserves_flags));
            }
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let _ = slot;
    }

    /// The octets of a slot in place, to be read by [`crate::program`]: the only side there that accesses slots, and it trusts
    /// the other one.
    ///
    /// # Safety
    ///
    /// While the reference lives, nobody writes to the slot.
    #[inline]
    pub(crate) unsafe fn octets(&self, slot: u32) -> Option<&[u8]> {
        let at = self.slot(slot)?;
        // SAFETY: the slot has so many octets within the mapping; the caller sees to the rest.
        Some(unsafe { slice::from_raw_parts(at.as_ptr(), self.layout.slot_len() as usize) })
    }

    /// The same, to be written.
    ///
    /// # Safety
    ///
    /// While the reference lives, nobody else reads the slot or writes to it.
    #[inline]
    #[expect(
        clippy::mut_from_ref,
        reason = "slots are apart from each other, as the caller sees to"
    )]
    pub(crate) unsafe fn octets_mut(&self, slot: u32) -> Option<&mut [u8]> {
        let at = self.slot(slot)?;
        // SAFETY: the slot has so many octets within the mapping; the caller sees to the rest.
        Some(unsafe { slice::from_raw_parts_mut(at.as_ptr(), self.layout.slot_len() as usize) })
    }
}

impl AsFd for Memory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's, whole, and no reference into it outlives `self`. An error
        // could only mean that it is not mapped.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.layout.memory()) };
    }
}

/// Copies blocks of [`LINE`] octets, of which one side is shared memory that others may write to meanwhile.
///
/// What is copied then is any mixture, and nothing else depends on it: the compiler neither sees nor
/// repeats these accesses.
///
/// # Safety
///
/// Both sides have as many octets, and do not overlap; the private side is nobody else's meanwhile.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
unsafe fn copy(from: *const u8, to: *mut u8, blocks: usize) {
    if blocks == 0 {
        return;
    }
    // SAFETY: reads and writes `blocks` times 64 octets, as the caller allows. The instructions need no
    // alignment, x86_64 has them always, and all registers that change are named.
    unsafe {
        std::arch::asm!(
            "2:",
            "movdqu {a}, [{from}]",
            "movdqu {b}, [{from} + 16]",
            "movdqu {c}, [{from} + 32]",
            "movdqu {d}, [{from} + 48]",
            "movdqu [{to}], {a}",
            "movdqu [{to} + 16], {b}",
            "movdqu [{to} + 32], {c}",
            "movdqu [{to} + 48], {d}",
            "add {from}, 64",
            "add {to}, 64",
            "dec {blocks}",
            "jnz 2b",
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            blocks = inout(reg) blocks => _,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(nostack),
        );
    }
}

/// The same by words: relaxed atomics, which bear that others write meanwhile.
///
/// # Safety
///
/// As above.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
unsafe fn copy(from: *const u8, to: *mut u8, blocks: usize) {
    use std::sync::atomic::{AtomicU8, Ordering};
    for at in 0..blocks * LINE {
        // SAFETY: within both sides, as the caller says; octets need no alignment.
        unsafe {
            let octet = (*from.add(at).cast::<AtomicU8>()).load(Ordering::Relaxed);
            (*to.add(at).cast::<AtomicU8>()).store(octet, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        Layout::new(16, 32, 256).unwrap()
    }

    #[test]
    fn the_other_mapping_has_what_was_written() {
        let ours = Memory::create(layout()).unwrap();
        let theirs = Memory::open(ours.as_fd().try_clone_to_owned().unwrap(), layout()).unwrap();
        let mut frame = [7; 256];
        assert!(ours.store(47, &mut frame, 100));
        let mut copy = [9; 256];
        assert_eq!(theirs.load(47, 100, &mut copy).unwrap(), [7; 100]);
        assert_eq!(copy[100..128], [0; 28], "what stood behind the frame has gone over");
        assert_eq!(copy[128..], [9; 128]);
    }

    #[test]
    fn no_number_and_no_length_leads_out_of_a_slot() {
        let memory = Memory::create(layout()).unwrap();
        let mut buffer = vec![0; 65536];
        for slot in [48, 49, 1 << 16, u32::MAX] {
            assert!(memory.load(slot, 1, &mut buffer).is_none(), "{slot}");
            assert!(!memory.store(slot, &mut buffer, 1), "{slot}");
            memory.prefetch(slot);
        }
        for len in [257, 4096, 65535] {
            assert!(memory.load(47, len, &mut buffer).is_none(), "{len}");
            assert!(!memory.store(47, &mut buffer, len), "{len}");
        }
        assert!(memory.load(47, 256, &mut [0; 255]).is_none());
        assert!(!memory.store(47, &mut [0; 255], 255), "zeros behind it have no room");
        assert_eq!(memory.load(47, 0, &mut []).unwrap(), []);
    }

    #[test]
    fn memory_neither_shrinks_nor_grows_and_has_its_length() {
        let memory = Memory::create(layout()).unwrap();
        for len in [0, 4096, 1 << 24] {
            assert!(rustix::fs::ftruncate(&memory, len).is_err(), "{len}");
        }
        let other = Layout::new(32, 32, 256).unwrap();
        let descriptor = memory.as_fd().try_clone_to_owned().unwrap();
        assert!(Memory::open(descriptor, other).is_err());
        let plain = rustix::fs::memfd_create("plain", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&plain, layout().memory() as u64).unwrap();
        assert!(Memory::open(plain, layout()).is_err(), "it could shrink");
    }
}
