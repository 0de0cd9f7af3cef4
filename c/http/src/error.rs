//! Errors as C has them: a number, and a sentence for those who ask.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_int};
use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};

use quicket::message::Errno;
use quicket_client::Error;
use quicket_client::http3::StreamError;

/// Of a thread that keeps nothing any more.
const ENDED: &CStr = c"the thread ends, and what went wrong last is not kept any more";

thread_local! {
    /// What went wrong last on this thread.
    static LAST: RefCell<CString> = RefCell::default();
}

/// Why a call has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) number: c_int,
    pub(crate) words: String,
}

impl Failure {
    pub(crate) fn new(number: c_int, words: impl Display) -> Self {
        Self { number, words: words.to_string() }
    }

    /// What a program gave is not what it should be.
    pub(crate) fn invalid(words: impl Display) -> Self {
        Self::new(libc::EINVAL, words)
    }

    /// The time of the call is over.
    pub(crate) fn again() -> Self {
        Self::new(libc::EAGAIN, "the time that the call was given is over; make it again")
    }
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        let number = match error {
            Error::Request(_) | Error::Config(_) => libc::EINVAL,
            Error::Store(error) => number_of(error),
            Error::Resolve { .. } => libc::ENOENT,
            Error::Connect(error) => number_of_connect(error),
            Error::Lost(error) => Errno::from(error).number(),
            Error::Exchange(StreamError::RemoteTerminate { .. } | StreamError::RemoteClosing) => {
                libc::ECONNRESET
            }
            Error::Exchange(_) | Error::Malformed(_) => libc::EPROTO,
            Error::TooLong(_) => libc::EMSGSIZE,
            _ => libc::EIO,
        };
        Self::new(number, error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::new(number_of(&error), error)
    }
}

fn number_of(error: &io::Error) -> c_int {
    error.raw_os_error().unwrap_or_else(|| match error.kind() {
        ErrorKind::NotFound => libc::ENOENT,
        ErrorKind::PermissionDenied => libc::EACCES,
        ErrorKind::InvalidInput => libc::EINVAL,
        ErrorKind::TimedOut => libc::ETIMEDOUT,
        ErrorKind::NotConnected => libc::ENOTCONN,
        ErrorKind::OutOfMemory => libc::ENOMEM,
        _ => libc::EIO,
    })
}

fn number_of_connect(error: &quicket::ConnectError) -> c_int {
    use quicket::ConnectError as Connect;
    match error {
        Connect::Resolve(_) => libc::ENOENT,
        Connect::Bind(error) => number_of(error.io_error()),
        Connect::AddressFamily(_) | Connect::Invalid(_) => libc::EINVAL,
        Connect::Lost(error) => Errno::from(error).number(),
        Connect::Handshake(_) => libc::EPROTO,
        Connect::TimedOut => libc::ETIMEDOUT,
        Connect::EndpointClosed => libc::ENOTCONN,
        _ => libc::EIO,
    }
}

/// Does a call: what it gives, or the number of its error.
pub(crate) fn answer<T>(call: impl FnOnce() -> Result<T, Failure>) -> Result<T, c_int> {
    let panicked = || Err(Failure::new(libc::EIO, "the library has a defect"));
    let outcome = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| panicked());
    outcome.map_err(|Failure { number, words }| {
        // Without zeros it is one.
        let words = CString::new(words.replace('\0', " ")).unwrap_or_default();
        // A thread that ends may have no such place any more: then the number alone tells.
        let _ = LAST.try_with(|last| last.replace(words));
        number
    })
}

/// Shows what went wrong last, which lives until the next call that fails on this thread.
pub(crate) fn last<T>(show: impl Fn(&CStr) -> T) -> T {
    LAST.try_with(|last| show(last.borrow().as_c_str())).unwrap_or_else(|_| show(ENDED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_panic_and_no_error_is_lost() {
        assert_eq!(answer(|| Ok(7)), Ok(7));
        assert_eq!(answer::<()>(|| Err(Failure::again())), Err(libc::EAGAIN));
        assert_eq!(answer::<()>(|| panic!("here")), Err(libc::EIO));
        assert!(last(|text| text.to_string_lossy().contains("defect")));
        assert_eq!(answer::<()>(|| Err(Failure::invalid("a\0b"))), Err(libc::EINVAL));
        assert_eq!(last(CStr::to_owned), c"a b".to_owned());
    }

    #[test]
    fn errors_of_the_client_have_their_numbers() {
        let number = |error: Error| Failure::from(&error).number;
        assert_eq!(number(Error::Request("no".to_owned())), libc::EINVAL);
        let denied = io::Error::from_raw_os_error(libc::EACCES);
        assert_eq!(number(Error::Store(denied)), libc::EACCES);
        let error = io::ErrorKind::NotFound.into();
        assert_eq!(number(Error::Resolve { host: "a".to_owned(), error }), libc::ENOENT);
        assert_eq!(number(Error::Malformed("no")), libc::EPROTO);
        let ended = quicket::ConnectionError::IdleTimeout;
        assert_eq!(number(Error::Lost(ended)), libc::ETIMEDOUT);
        let refused = quicket::ConnectError::Lost(quicket::ConnectionError::PortUnreachable);
        assert_eq!(number(Error::Connect(refused)), libc::ECONNREFUSED);
    }
}
