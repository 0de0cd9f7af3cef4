//! Errors as C has them: a number, and a sentence for those who ask.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_int};
use std::io::{self, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};

use quicket_packets::Refused;

/// Of a thread that keeps nothing any more.
const ENDED: &CStr = c"the thread ends, and what went wrong last is not kept any more";

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
            let text = CString::new(text).unwrap_or_default();
            // A thread that ends may have no such place any more: then the number alone tells.
            let _ = LAST.try_with(|last| last.replace(text));
            Err((failure, number(&error)))
        }
    }
}

/// Shows what went wrong last, which lives until the next call that fails on this thread.
pub(crate) fn last<T>(show: impl Fn(&CStr) -> T) -> T {
    LAST.try_with(|last| show(last.borrow().as_c_str())).unwrap_or_else(|_| show(ENDED))
}

/// The system's number, or the switch's; what this library has found itself goes by kinds.
fn number(error: &io::Error) -> c_int {
    let refused = || error.get_ref()?.downcast_ref::<Refused>().map(Refused::errno);
    // A switch that answers with 0 has not said that all is well.
    let told = error.raw_os_error().or_else(refused).filter(|number| *number > 0);
    told.unwrap_or(match error.kind() {
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
        ErrorKind::TimedOut => libc::ETIMEDOUT,
        ErrorKind::WouldBlock => libc::EAGAIN,
        ErrorKind::BrokenPipe => libc::EPIPE,
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

    /// Destructors of a thread run one after the other, in an order that the system chooses.
    #[test]
    fn a_thread_that_ends_has_its_numbers() {
        use std::sync::mpsc::{Sender, channel};

        struct Late(Sender<bool>);

        impl Drop for Late {
            fn drop(&mut self) {
                let answer = answer(-1, || Err(ErrorKind::ResourceBusy.into()));
                assert_eq!(answer, Err((-1, libc::EBUSY)));
                let _ = self.0.send(last(|text| text == ENDED));
            }
        }

        thread_local! {
            static BEFORE: RefCell<Option<Late>> = const { RefCell::new(None) };
            static AFTER: RefCell<Option<Late>> = const { RefCell::new(None) };
        }
        let (send, receive) = channel();
        let thread = std::thread::spawn(move || {
            BEFORE.set(Some(Late(send.clone())));
            let _ = answer(-1, || Err(ErrorKind::ResourceBusy.into()));
            AFTER.set(Some(Late(send)));
        });
        thread.join().unwrap();
        let ended: Vec<bool> = receive.iter().collect();
        assert_eq!(ended.len(), 2);
        assert!(ended.contains(&true), "one of them comes after what the thread has kept");
    }
}
