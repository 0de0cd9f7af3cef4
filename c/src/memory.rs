//! The program's memory, of which nothing is known but an address.
//!
//! A wild pointer must give EFAULT, as from the kernel, and not end the process. So each range is
//! looked at by the kernel before it is touched: `MADV_POPULATE_READ` and `_WRITE` (Linux 5.14) load
//! its pages or say that they cannot. Where these do not exist, one byte of each page is read with
//! process_vm_readv(2), which does not notice that pages are read-only. That is one system call a
//! range, whatever its size; ranges on pages that the same call has asked about are free.
//!
//! A program that unmaps memory in one thread while it passes it to a call in another gets what it
//! deserves; the kernel is kinder there.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::OnceLock;

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

/// The program's memory during one call.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Pages that were asked about last.
    known: Range<usize>,
    access: Access,
}

impl Memory {
    pub(crate) const fn new() -> Self {
        Self { known: 0..0, access: Access::Read }
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
        if can_populate() {
            populate(&pages, access)?
        } else {
            look(&pages)?
        }
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
        Ok(self.slice(address, len)?.to_vec())
    }

    /// Bytes at an address, for the time of a call.
    pub(crate) fn slice<'a>(&mut self, address: usize, len: usize) -> Result<&'a [u8]> {
        if len == 0 {
            return Ok(&[]);
        }
        self.check(address, len, Access::Read)?;
        // SAFETY: the kernel has the memory readable. That nobody writes to it meanwhile is for
        // the program to see to, as with every buffer that it sends.
        Ok(unsafe { std::slice::from_raw_parts(address as *const u8, len) })
    }

    /// Room at an address, for the time of a call.
    pub(crate) fn slice_mut<'a>(&mut self, address: usize, len: usize) -> Result<&'a mut [u8]> {
        if len == 0 {
            return Ok(&mut []);
        }
        self.check(address, len, Access::Write)?;
        // SAFETY: the kernel has the memory writable. That nobody else uses it meanwhile is for
        // the program to see to, as with every buffer that it receives into.
        Ok(unsafe { std::slice::from_raw_parts_mut(address as *mut u8, len) })
    }

    /// Puts bytes at an address.
    pub(crate) fn put_bytes(&mut self, address: usize, bytes: &[u8]) -> Result<()> {
        self.slice_mut(address, bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    /// Text that ends with a zero, of at most `most` bytes; none at address zero.
    pub(crate) fn text(&mut self, address: usize, most: usize) -> Result<Option<Vec<u8>>> {
        if address == 0 {
            return Ok(None);
        }
        let mut text = Vec::new();
        for at in address..address.saturating_add(most) {
            match self.slice(at, 1)? {
                [0] => return Ok(Some(text)),
                bytes => text.extend_from_slice(bytes),
            }
        }
        Err(libc::ENAMETOOLONG)
    }
}

/// The size of a page, which differs between machines.
fn page() -> usize {
    static SIZE: OnceLock<usize> = OnceLock::new();
    *SIZE.get_or_init(native::page_size)
}

/// True if the kernel knows how to load pages.
fn can_populate() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| {
        let here = MaybeUninit::<u8>::uninit();
        let start = here.as_ptr() as usize & !(page() - 1);
        native::madvise(start, page(), MADV_POPULATE_READ).is_ok()
    })
}

fn populate(pages: &Range<usize>, access: Access) -> Result<()> {
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

    #[test]
    fn wild_pointers_are_found_before_they_are_touched() {
        let mut memory = Memory::new();
        for wild in [0usize, 8, 4095, 0xdead_0000_0000, usize::MAX - 3, END - 1] {
            assert_eq!(memory.slice(wild, 16).err(), Some(libc::EFAULT), "{wild:#x}");
            assert_eq!(memory.slice_mut(wild, 16).err(), Some(libc::EFAULT), "{wild:#x}");
        }
        assert_eq!(memory.slice(0, 0), Ok(&[][..]));
    }

    #[test]
    fn constants_can_be_read_and_not_written() {
        static CONSTANT: [u8; 3] = [1, 2, 3];
        let address = CONSTANT.as_ptr() as usize;
        let mut memory = Memory::new();
        assert_eq!(memory.bytes(address, 3), Ok(vec![1, 2, 3]));
        if can_populate() {
            assert_eq!(memory.put_bytes(address, b"x"), Err(libc::EFAULT));
        }
    }

    #[test]
    fn what_is_written_is_there() {
        let mut place = [0u32; 2];
        let address = place.as_mut_ptr() as usize;
        let mut memory = Memory::new();
        memory.put(address, 7u32).unwrap();
        assert_eq!(memory.value::<u32>(address), Ok(7));
        assert_eq!(memory.values::<u32>(address, 2), Ok(vec![7, 0]));
        assert_eq!(place[0], 7);
    }

    #[test]
    fn pages_are_looked_at_without_help_from_madvise() {
        let place = vec![0u8; 3 * page()];
        let start = place.as_ptr() as usize & !(page() - 1);
        assert_eq!(look(&(start..start + 3 * page())), Ok(()));
        assert_eq!(look(&(0xdead_0000_0000..0xdead_0000_1000)), Err(libc::EFAULT));
    }
}
