//! Why a call failed, in words.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::io;

use crate::table::{self, Kind};

/// Of a socket of the process from which this one was forked.
const INHERITED: &str =
    "the socket stays with the process that was forked: only listeners go on in children";

thread_local! {
    /// What the thread was told last.
    static TOLD: RefCell<CString> = RefCell::default();
}

/// What an error number means and, if `fd` is a QUIC socket, what is known of the reason: what was
/// wrong with a file or text that the program gave, or how the connection ended. The text lasts
/// until the thread asks again.
pub(crate) fn strerror(fd: c_int, error: c_int) -> *const c_char {
    let mut text = meaning(error);
    if let Some(reason) = reason(fd) {
        text.push_str(": ");
        text.push_str(&reason);
    }
    text.retain(|letter| letter != '\0');
    let text = CString::new(text).unwrap_or_default();
    TOLD.with_borrow_mut(|told| {
        *told = text;
        told.as_ptr()
    })
}

fn meaning(error: c_int) -> String {
    let text = io::Error::from_raw_os_error(error).to_string();
    // It ends with the number.
    match text.rfind(" (os error") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

fn reason(fd: c_int) -> Option<String> {
    if table::is_guest() {
        return None;
    }
    if table::kind(fd) == Kind::Inherited {
        return Some(INHERITED.to_owned());
    }
    let entry = table::get(fd).ok()?;
    entry.socket.failure().or_else(|| entry.refusal().clone())
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    #[test]
    #[allow(unsafe_code, reason = "a text as C gets it")]
    fn errors_have_words_without_a_socket_too() {
        // SAFETY: the text is this thread's, until it asks again.
        let told = |error| unsafe { CStr::from_ptr(strerror(-1, error)) }.to_str().unwrap();
        assert_eq!(told(libc::EPROTO), "Protocol error");
        assert_eq!(told(libc::EINVAL), "Invalid argument");
    }
}
