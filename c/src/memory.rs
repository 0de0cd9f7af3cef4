//! The program's memory, of which nothing is known but an address.
//!
//! A wild pointer must give EFAULT, as from the kernel, and not end the process. So each range is
//! looked at by the kernel before it is touched: `MADV_POPULATE_READ` and `_WRITE` (Linux 5.14) load
//! its pages or say that they cannot. Where these do not exist, one byte of each page is read with
//! process_vm_readv(2), which does not notice that pages are read-only. That is one system call a
//! range, whatever its size, but for data that is sent, of which each MiB is looked at when its turn has come; ranges on
//! pages that the same call has asked about are free.
//!
//! The memory may be uninitialised, overlap itself (as parts of one buffer may), and be written to by
//! the program meanwhile. So it is copied by its address, byte by byte where it stands, and never
//! becomes a reference, which would say that none of this is so.
//!
//! A program that unmaps memory in one thread while it passes it to a call in another gets what it
//! deserves; the kernel is kinder there.

use std::cell::Cell;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::OnceLock;

use libc::iovec;
use quicket::message::{Data, Room};

use crate::native::{self, Result};

const MADV_POPULATE_READ: c_int = 22;
const MADV_POPULATE_WRITE: c_int = 23;
/// Where addresses end that a process may have.
const END: usize = 1 << (usize::BITS - 1);
/// How many pages are asked about at once without madvise(2).
const PAGES_AT_ONCE: usize = 1024;

/// What is to be done with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Access {
    Read,
    Write,
}

/// Values that any bytes make.
///
/// # Safety
///
/// The type has no invalid bit patterns.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: integers, and structures of integers and raw pointers.
unsafe impl Plain for u8 {}
// SAFETY: as above.
unsafe impl Plain for i32 {}
// SAFETY: as above.
unsafe impl Plain for u32 {}
// SAFETY: as above.
unsafe impl Plain for i64 {}
// SAFETY: as above.
unsafe impl Plain for usize {}
// SAFETY: as above.
unsafe impl Plain for libc::iovec {}
// SAFETY: as above.
unsafe impl Plain for libc::msghdr {}
// SAFETY: as above.
unsafe impl Plain for libc::mmsghdr {}
// SAFETY: as above.
unsafe impl Plain for libc::timeval {}
// SAFETY: as above.
unsafe impl Plain for libc::pollfd {}

/// How much of what is sent is copied at a time: what the nearest caches hold.
const PIECE: usize = 32 << 10;

/// How much is looked at together of what is sent: loading pages of what finds no room would be for nothing.
const STEP: usize = 1 << 20;

/// The program's memory during one call. Whoever has it may name any address.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Pages that were asked about last.
    known: Range<usize>,
    access: Access,
}

impl Memory {
    /// # Safety
    ///
    /// Addresses that are given to the methods are those that the program gave to a call which has
    /// not returned, or lead nowhere: what is written there is what the program expects to be.
    pub(crate) const unsafe fn of_program() -> Self {
        Self { known: 0..0, access: Access::Read }
    }

    #[cfg(test)]
    pub(crate) const fn of_test() -> Self {
        // SAFETY: tests give addresses of what they let be written to, and wild ones.
        unsafe { Self::of_program() }
    }

    fn check(&mut self, address: usize, len: usize, access: Access) -> Result<()> {
        let end = address.checked_add(len).filter(|end| *end <= END).ok_or(libc::EFAULT)?;
        let page = page();
        let pages = address & !(page - 1)..end.next_multiple_of(page);
        let is_known = self.known.start <= pages.start && pages.end <= self.known.end;
        if is_known && access <= self.access {
            return Ok(());
        }
        if pages.start == 0 {
            return Err(libc::EFAULT);
        }
        check_pages(&pages, access)?;
        (self.known, self.access) = (pages, access);
        Ok(())
    }

    /// A value at an address.
    pub(crate) fn value<T: Plain>(&mut self, address: usize) -> Result<T> {
        self.check(address, size_of::<T>(), Access::Read)?;
        // SAFETY: the kernel has the memory readable, and any bytes are a value.
        Ok(unsafe { (address as *const T).read_unaligned() })
    }

    /// Puts a value at an address.
    pub(crate) fn put<T: Plain>(&mut self, address: usize, value: T) -> Result<()> {
        self.check(address, size_of::<T>(), Access::Write)?;
        // SAFETY: the kernel has the memory writable.
        unsafe { (address as *mut T).write_unaligned(value) };
        Ok(())
    }

    /// Values at an address.
    pub(crate) fn values<T: Plain>(&mut self, address: usize, count: usize) -> Result<Vec<T>> {
        let len = count.checked_mul(size_of::<T>()).ok_or(libc::EFAULT)?;
        if len > 0 {
            self.check(address, len, Access::Read)?;
        }
        let value = |index: usize| {
            // SAFETY: the kernel has the memory of all of them readable.
            unsafe { (address as *const T).add(index).read_unaligned() }
        };
        Ok((0..count).map(value).collect())
    }

    /// A copy of bytes at an address.
    pub(crate) fn bytes(&mut self, address: usize, len: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        if len > 0 {
            self.check(address, len, Access::Read)?;
            bytes.try_reserve_exact(len).map_err(|_| libc::ENOMEM)?;
            // SAFETY: the kernel has the memory readable, and there is room for as much.
            unsafe { append(&mut bytes, address, len) };
        }
        Ok(bytes)
    }

    /// Puts bytes at an address.
    pub(crate) fn put_bytes(&mut self, address: usize, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.check(address, bytes.len(), Access::Write)?;
        // SAFETY: the kernel has the memory writable.
        unsafe { put(address, bytes) };
        Ok(())
    }

    /// The data in parts of the program's memory. That the first [`STEP`] bytes can be read is known then, and of others
    /// when their turn comes: data ends before those that cannot.
    pub(crate) fn data<'a>(&'a mut self, parts: &'a [iovec]) -> Result<Parts<'a>> {
        let mut data = self.parts(parts, STEP, Access::Read)?;
        let all = parts.iter().try_fold(0usize, |all, part| all.checked_add(part.iov_len));
        data.len = all.ok_or(libc::EINVAL)?;
        Ok(data)
    }

    /// The room in parts of the program's memory, as far as `most` bytes, all of which can be
    /// written to.
    pub(crate) fn room<'a>(&'a mut self, parts: &'a [iovec], most: usize) -> Result<Parts<'a>> {
        self.parts(parts, most, Access::Write)
    }

    fn parts<'a>(
        &'a mut self,
        parts: &'a [iovec],
        most: usize,
        access: Access,
    ) -> Result<Parts<'a>> {
        let mut len = 0usize;
        for part in parts {
            let wanted = part.iov_len.min(most - len);
            if wanted > 0 {
                self.check(part.iov_base as usize, wanted, access)?;
            }
            len = len.checked_add(wanted).ok_or(libc::EINVAL)?;
        }
        Ok(Parts { parts, len, access, checked: Cell::new(len) })
    }

    /// Text that ends with a zero, of at most `most` bytes; none at address zero.
    pub(crate) fn text(&mut self, address: usize, most: usize) -> Result<Option<Vec<u8>>> {
        if address == 0 {
            return Ok(None);
        }
        let mut text = Vec::new();
        for at in address..address.saturating_add(most) {
            match self.value::<u8>(at)? {
                0 => return Ok(Some(text)),
                byte => text.push(byte),
            }
        }
        Err(libc::ENAMETOOLONG)
    }
}

/// Appends a copy of `len` bytes at an address.
///
/// # Safety
///
/// The memory is readable, and `bytes` has room for as much.
unsafe fn append(bytes: &mut Vec<u8>, address: usize, len: usize) {
    // SAFETY: the caller says so; memory of the program may be any, even that of `bytes`, and any
    // byte is a value.
    unsafe {
        std::ptr::copy(address as *const u8, bytes.as_mut_ptr().add(bytes.len()), len);
        bytes.set_len(bytes.len() + len);
    }
}

/// Copies bytes to an address.
///
/// # Safety
///
/// The memory is writable.
unsafe fn put(address: usize, bytes: &[u8]) {
    // SAFETY: the caller says so.
    unsafe { std::ptr::copy(bytes.as_ptr(), address as *mut u8, bytes.len()) };
}

/// Parts of the program's memory, for the time of a call. They may overlap: what is received is put into one after the
/// other, as the kernel does it.
#[derive(Debug)]
pub(crate) struct Parts<'a> {
    parts: &'a [iovec],
    len: usize,
    access: Access,
    /// How much of them was looked at, from the first one on.
    checked: Cell<usize>,
}

impl Parts<'_> {
    /// How much of `len` bytes from an offset on, which lie in one part, can be accessed.
    fn check(&self, at: usize, len: usize) -> usize {
        let mut checked = self.checked.get();
        while checked < at + len
            && let Some((address, rest)) = self.find(checked)
            && let step = rest.min(STEP)
            && check_range(address, step, self.access).is_ok()
        {
            checked += step;
            self.checked.set(checked);
        }
        len.min(checked.saturating_sub(at))
    }

    /// Where an offset lies, and how much of its part follows.
    fn find(&self, at: usize) -> Option<(usize, usize)> {
        let mut start = 0;
        for part in self.parts {
            let len = part.iov_len.min(self.len - start);
            if at < start + len {
                return Some((part.iov_base as usize + (at - start), start + len - at));
            }
            start += len;
        }
        None
    }
}

impl Data for Parts<'_> {
    fn len(&self) -> usize {
        self.len
    }

    fn piece<'a>(&'a self, at: usize, scratch: &'a mut Vec<u8>) -> &'a [u8] {
        scratch.clear();
        while scratch.len() < PIECE
            && let Some((address, len)) = self.find(at + scratch.len())
        {
            let len = self.check(at + scratch.len(), len.min(PIECE - scratch.len()));
            if len == 0 {
                break;
            }
            scratch.reserve(len);
            // SAFETY: the part was found readable as far as this, and room was made.
            unsafe { append(scratch, address, len) };
        }
        scratch
    }
}

impl Room for Parts<'_> {
    fn len(&self) -> usize {
        if self.access == Access::Write { self.len } else { 0 }
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        let mut done = 0;
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty())
            && let Some((address, len)) = self.find(at + done)
            && self.access == Access::Write
        {
            let len = len.min(rest.len());
            // SAFETY: all parts were found writable when they became room.
            unsafe { put(address, rest.get(..len).unwrap_or_default()) };
            done += len;
        }
    }
}

/// Looks at the pages of a range.
fn check_range(address: usize, len: usize, access: Access) -> Result<()> {
    let end = address.checked_add(len).filter(|end| *end <= END).ok_or(libc::EFAULT)?;
    let page = page();
    match address & !(page - 1) {
        0 => Err(libc::EFAULT),
        start => check_pages(&(start..end.next_multiple_of(page)), access),
    }
}

fn check_pages(pages: &Range<usize>, access: Access) -> Result<()> {
    if can_populate() { populate(pages, access) } else { look(pages) }
}

/// The size of a page, which differs between machines.
fn page() -> usize {
    static SIZE: OnceLock<usize> = OnceLock::new();
    *SIZE.get_or_init(native::page_size)
}

/// True if the kernel knows how to load pages.
fn can_populate() -> bool {
    // There is no kernel to ask where Rust's rules on memory are checked.
    if cfg!(miri) {
        return true;
    }
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| {
        let here = MaybeUninit::<u8>::uninit();
        let start = here.as_ptr() as usize & !(page() - 1);
        native::madvise(start, page(), MADV_POPULATE_READ).is_ok()
    })
}

fn populate(pages: &Range<usize>, access: Access) -> Result<()> {
    if cfg!(miri) {
        return Ok(());
    }
    let advice = match access {
        Access::Read => MADV_POPULATE_READ,
        Access::Write => MADV_POPULATE_WRITE,
    };
    native::madvise(pages.start, pages.len(), advice).map_err(|_| libc::EFAULT)
}

/// Reads one byte of each page. Where that is forbidden, pointers are trusted.
fn look(pages: &Range<usize>) -> Result<()> {
    let mut addresses = Vec::new();
    for page in pages.clone().step_by(page()) {
        addresses.push(libc::iovec { iov_base: page as *mut _, iov_len: 1 });
    }
    for some in addresses.chunks(PAGES_AT_ONCE) {
        match native::peek(some) {
            Ok(count) if count < some.len() => return Err(libc::EFAULT),
            Err(libc::EFAULT) => return Err(libc::EFAULT),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(address: usize, len: usize) -> iovec {
        iovec { iov_base: address as *mut _, iov_len: len }
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn wild_pointers_are_found_before_they_are_touched() {
        let mut memory = Memory::of_test();
        for wild in [0usize, 8, 4095, 0xdead_0000_0000, usize::MAX - 3, END - 1] {
            assert_eq!(memory.bytes(wild, 16).err(), Some(libc::EFAULT), "{wild:#x}");
            assert_eq!(memory.put_bytes(wild, &[0; 16]).err(), Some(libc::EFAULT), "{wild:#x}");
            let parts = [part(wild, 16)];
            assert_eq!(memory.data(&parts).err(), Some(libc::EFAULT), "{wild:#x}");
            assert_eq!(memory.room(&parts, 16).err(), Some(libc::EFAULT), "{wild:#x}");
        }
        assert_eq!(memory.bytes(0, 0), Ok(Vec::new()));
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn constants_can_be_read_and_not_written() {
        static CONSTANT: [u8; 3] = [1, 2, 3];
        let address = CONSTANT.as_ptr() as usize;
        let mut memory = Memory::of_test();
        assert_eq!(memory.bytes(address, 3), Ok(vec![1, 2, 3]));
        if can_populate() {
            assert_eq!(memory.put_bytes(address, b"x"), Err(libc::EFAULT));
        }
    }

    #[test]
    fn what_is_written_is_there() {
        let mut place = [0u32; 2];
        let address = place.as_mut_ptr() as usize;
        let mut memory = Memory::of_test();
        memory.put(address, 7u32).unwrap();
        assert_eq!(memory.value::<u32>(address), Ok(7));
        assert_eq!(memory.values::<u32>(address, 2), Ok(vec![7, 0]));
        assert_eq!(place[0], 7);
    }

    #[test]
    fn parts_may_overlap_and_are_filled_one_after_the_other() {
        let mut place = [0u8; 8];
        let address = (&raw mut place) as usize;
        let parts = [part(address, 5), part(8, 0), part(address + 2, 4), part(address, 1)];
        let mut memory = Memory::of_test();
        let mut room = memory.room(&parts, 9).unwrap();
        assert_eq!(Room::len(&room), 9, "the last part is beyond the most");
        room.put(0, b"abc");
        room.put(3, b"defghi");
        assert_eq!(place, *b"abfghi\0\0");
        let data = memory.data(&parts).unwrap();
        let mut scratch = Vec::new();
        assert_eq!(data.piece(0, &mut scratch), b"abfghfghia");
        assert_eq!(data.piece(8, &mut scratch), b"ia");
        assert_eq!(data.piece(10, &mut scratch), b"");
    }

    #[test]
    fn memory_that_a_program_has_not_written_yet_can_be_received_into() {
        let mut place = Box::new(MaybeUninit::<[u8; 6]>::uninit());
        let parts = [part(place.as_mut_ptr() as usize, 6)];
        Memory::of_test().room(&parts, 6).unwrap().put(0, b"filled");
        // SAFETY: all of it was written.
        assert_eq!(unsafe { place.assume_init_ref() }, b"filled");
    }

    #[test]
    fn what_is_sent_may_be_written_to_by_its_program_meanwhile() {
        let mut place = *b"before";
        let at = &raw mut place;
        let parts = [part(at as usize, 6)];
        let mut memory = Memory::of_test();
        let data = memory.data(&parts).unwrap();
        let (mut first, mut second) = (Vec::new(), Vec::new());
        let first = data.piece(0, &mut first);
        // SAFETY: the test's own array.
        unsafe { at.write(*b"after ") };
        assert_eq!((first, data.piece(0, &mut second)), (&b"before"[..], &b"after "[..]));
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn much_is_looked_at_as_it_is_wanted() {
        let whole = 3 * STEP;
        let none = std::ptr::null_mut();
        let (access, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a mapping of the test's own, the last third of which nobody may read.
        let start = unsafe {
            let start = libc::mmap(none, whole, access, flags, -1, 0);
            assert_ne!(start, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(start.byte_add(2 * STEP), STEP, libc::PROT_NONE), 0);
            start
        };
        let resident = || {
            let mut pages = vec![0u8; whole / page()];
            // SAFETY: as many octets as the mapping has pages.
            assert_eq!(unsafe { libc::mincore(start, whole, pages.as_mut_ptr()) }, 0);
            pages.iter().filter(|page| **page & 1 != 0).count() * page()
        };
        let parts = [part(start as usize, whole)];
        let mut memory = Memory::of_test();
        let data = memory.data(&parts).unwrap();
        let mut scratch = Vec::new();
        assert_eq!((Data::len(&data), resident()), (whole, STEP));
        assert_eq!((data.piece(STEP - PIECE, &mut scratch).len(), resident()), (PIECE, STEP));
        assert_eq!((data.piece(STEP - 1, &mut scratch).len(), resident()), (PIECE, 2 * STEP));
        assert_eq!(data.piece(2 * STEP - 5, &mut scratch).len(), 5);
        assert_eq!(data.piece(2 * STEP, &mut scratch), b"");
        assert_eq!(data.to_vec().len(), 2 * STEP);
        let beyond = [part(start as usize + 2 * STEP, 1)];
        assert!(Memory::of_test().data(&beyond).is_err());
        // SAFETY: nothing uses it any more.
        unsafe { libc::munmap(start, whole) };
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn pages_are_looked_at_without_help_from_madvise() {
        let place = vec![0u8; 3 * page()];
        let start = place.as_ptr() as usize & !(page() - 1);
        assert_eq!(look(&(start..start + 3 * page())), Ok(()));
        assert_eq!(look(&(0xdead_0000_0000..0xdead_0000_1000)), Err(libc::EFAULT));
    }
}
