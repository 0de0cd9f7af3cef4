//! Errors as C has them: a number, and a sentence for those who ask.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_int};
use std::io::{self, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    /// What went wrong last on this thread.
    static LAST: RefCell<CString> = RefCell::default();
}

/// Does a call: what it gives, or `failure`, with the number of the error.
pub(crate) fn answer<T>(failure: T, call: impl FnOnce() -> io::Result<T>) -> Result<T, (T, c_int)> {
    let panicked = || Err(io::Error::other("the library has a defect"));
    match catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| panicked()) {
        Ok(value) => Ok(value),
        Err(error) => {
            let text = error.to_string().replace('\0', " ");
            // Without zeros it is one.
            LAST.set(CString::new(text).unwrap_or_default());
            Err((failure, number(&error)))
        }
    }
}

/// Shows what went wrong last, which lives until the next call that fails on this thread.
pub(crate) fn last<T>(show: impl FnOnce(&CStr) -> T) -> T {
    LAST.with_borrow(|last| show(last))
}

/// What the switch has said goes by kinds.
fn number(error: &io::Error) -> c_int {
    error.raw_os_error().unwrap_or(match error.kind() {
        ErrorKind::NotFound => libc::ENOENT,
        ErrorKind::PermissionDenied => libc::EPERM,
        ErrorKind::ResourceBusy => libc::EBUSY,
        ErrorKind::InvalidInput => libc::EINVAL,
        ErrorKind::AddrNotAvailable => libc::EADDRNOTAVAIL,
        ErrorKind::OutOfMemory => libc::ENOMEM,
        ErrorKind::StorageFull => libc::ENOSPC,
        ErrorKind::QuotaExceeded => libc::EDQUOT,
        ErrorKind::NotConnected => libc::ENOTCONN,
        ErrorKind::ConnectionReset => libc::ECONNRESET,
        ErrorKind::Interrupted => libc::EINTR,
        ErrorKind::Unsupported => libc::EOPNOTSUPP,
        _ => libc::EIO,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_panic_and_no_error_is_lost() {
        assert_eq!(answer(-1, || Ok(7)), Ok(7));
        assert_eq!(answer(-1, || Err(ErrorKind::ResourceBusy.into())), Err((-1, libc::EBUSY)));
        let errno = io::Error::from_raw_os_error(libc::ENOTSOCK);
        assert_eq!(answer(-1, || Err(errno)), Err((-1, libc::ENOTSOCK)));
        assert_eq!(answer(-1, || panic!("here")), Err((-1, libc::EIO)));
        assert!(last(|text| text.to_string_lossy().contains("defect")));
        let zero = io::Error::other("a\0b");
        assert_eq!(answer(0, || Err(zero)), Err((0, libc::EIO)));
        assert_eq!(last(|text| text.to_owned()), c"a b".to_owned());
    }
}
