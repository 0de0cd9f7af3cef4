//! What C sees: `include/quicket/http.h`.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::ptr;
use std::sync::Arc;

use bytes::Bytes;
use libc::{size_t, sockaddr_storage, ssize_t};
use quicket::EarlyData;

use crate::client::Http;
use crate::error::{self, Failure};
use crate::exchange::Exchange;
use crate::fields::Fields;
use crate::options::{Options, quicket_http_options};

/// The most that one call transfers, as of read(2).
const MAX_TRANSFER: usize = 0x7fff_f000;

/// A client. C has its address.
#[derive(Debug)]
#[allow(non_camel_case_types, reason = "its name in C")]
pub struct quicket_http(Arc<Http>);

/// A request and its answer. C has its address.
#[derive(Debug)]
#[allow(non_camel_case_types, reason = "its name in C")]
pub struct quicket_exchange(Exchange);

/// What is known of an answer's connection.
#[derive(Clone, Copy)]
#[repr(C)]
#[allow(non_camel_case_types, missing_debug_implementations, reason = "as in C")]
pub struct quicket_exchange_info {
    size: size_t,
    early_data: u64,
    path_changes: u64,
    smoothed_rtt: u64,
    remote: sockaddr_storage,
}

/// Does a call: what it gives, or `failure` and errno, which is left alone otherwise.
fn answer<T>(failure: T, call: impl FnOnce() -> Result<T, Failure>) -> T {
    // SAFETY: the place of this thread's errno, which is always there.
    let errno = || unsafe { &mut *libc::__errno_location() };
    let before = *errno();
    let (value, number) = match error::answer(call) {
        Ok(value) => (value, before),
        Err(number) => (failure, number),
    };
    *errno() = number;
    value
}

/// A text of the program's.
///
/// # Safety
///
/// It is null or has a zero at its end, and is there for the call.
unsafe fn text<'a>(at: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: as the caller says.
    (!at.is_null()).then(|| unsafe { CStr::from_ptr(at) }.to_bytes())
}

fn needed<'a>(text: Option<&'a [u8]>, what: &str) -> Result<&'a [u8], Failure> {
    text.ok_or_else(|| Failure::invalid(format_args!("{what} is NULL")))
}

/// Copies as much of a structure as the program knows, which says its size at its beginning.
///
/// # Safety
///
/// `from` has so many bytes, or at least those of its size.
unsafe fn options_at(from: *const quicket_http_options) -> Result<quicket_http_options, Failure> {
    // SAFETY: zeros are a size of zero, no texts, and no flags.
    let mut options = unsafe { MaybeUninit::<quicket_http_options>::zeroed().assume_init() };
    if from.is_null() {
        return Ok(options);
    }
    let known = size_of::<quicket_http_options>();
    // SAFETY: the size comes first, and is there in any case.
    let size = unsafe { from.cast::<size_t>().read() };
    if size < size_of::<size_t>() || size > isize::MAX as usize {
        return Err(Failure::invalid("options begin with their size"));
    }
    for at in known..size {
        // SAFETY: it is within the size that the program names.
        if unsafe { from.cast::<u8>().add(at).read() } != 0 {
            let words = "options that this version of the library does not know";
            return Err(Failure::new(libc::E2BIG, words));
        }
    }
    // SAFETY: both have so many bytes; what is not copied stays zero, and any bytes are a structure of numbers and
    // pointers.
    unsafe {
        ptr::copy_nonoverlapping(
            from.cast::<u8>(),
            (&raw mut options).cast::<u8>(),
            size.min(known),
        );
    }
    Ok(options)
}

/// A client.
///
/// # Safety
///
/// `options` is null or as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quicket_http_new(
    options: *const quicket_http_options,
) -> *mut quicket_http {
    answer(ptr::null_mut(), || {
        // SAFETY: as the caller says.
        let options = unsafe { options_at(options) }?;
        // SAFETY: the texts of the options are the program's, and there for the call.
        let of = |at| unsafe { text(at) }.map(<[u8]>::to_vec);
        let options = Options {
            ca_file: of(options.ca_file),
            pins: of(options.pins),
            cert_file: of(options.cert_file),
            key_file: of(options.key_file),
            sessions: of(options.sessions),
            qlog: of(options.qlog),
            hosts: of(options.hosts),
            flags: options.flags,
        };
        let http = Http::new(options.config()?)?;
        Ok(Box::into_raw(Box::new(quicket_http(Arc::new(http)))))
    })
}

/// Ends a client.
///
/// # Safety
///
/// `http` is null, or of `quicket_http_new` and not freed yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quicket_http_free(http: *mut quicket_http) {
    if !http.is_null() {
        // SAFETY: as the caller says, it is such a box, and nobody uses it any more.
        let http = unsafe { Box::from_raw(http) };
        answer((), || {
            drop(http);
            Ok(())
        });
    }
}

/// The sentence for the last failure of this thread.
#[unsafe(no_mangle)]
pub extern "C" fn quicket_http_error() -> *const c_char {
    error::last(CStr::as_ptr)
}

/// The client at an address that `quicket_http_new` has given.
///
/// # Safety
///
/// It is null or such an address.
unsafe fn http_of<'a>(http: *mut quicket_http) -> Result<&'a Arc<Http>, Failure> {
    // SAFETY: as the caller says; clients are shared, and are only read.
    let http = unsafe { http.as_ref() };
    http.map(|http| &http.0).ok_or_else(|| Failure::invalid("the client is NULL"))
}

fn boxed(exchange: Exchange) -> *mut quicket_exchange {
    Box::into_raw(Box::new(quicket_exchange(exchange)))
}

/// A request that is not sent yet.
///
/// # Safety
///
/// `http` is null, or of `quicket_http_new` and not freed yet; the texts are null or have a zero at their ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quicket_exchange_new(
    http: *mut quicket_http,
    method: *const c_char,
    url: *const c_char,
) -> *mut quicket_exchange {
    answer(ptr::null_mut(), || {
        // SAFETY: as the caller says.
        let (http, method, url) = unsafe { (http_of(http)?, text(method), text(url)) };
        let (method, url) = (needed(method, "the method")?, needed(url, "the URL")?);
        Exchange::new(Arc::clone(http), method, url).map(boxed)
    })
}

/// Asks for what a URL names, and waits for status and fields of the answer.
///
/// # Safety
///
/// As of `quicket_exchange_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quicket_http_get(
    http: *mut quicket_http,
    url: *const c_char,
    milliseconds: c_int,
) -> *mut quicket_exchange {
    answer(ptr::null_mut(), || {
        // SAFETY: as the caller says.
        let (http, url) = unsafe { (http_of(http)?, text(url)) };
        let mut exchange = Exchange::new(Arc::clone(http), b"GET", needed(url, "the URL")?)?;
        exchange.send(None)?;
        exchange.status(milliseconds)?;
        Ok(boxed(exchange))
    })
}

/// Ends an exchange.
///
/// # Safety
///
/// `exchange` is null, or of `quicket_exchange_new` or `quicket_http_get` and not freed yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quicket_exchange_free(exchange: *mut quicket_exchange) {
    if !exchange.is_null() {
        // SAFETY: as the caller says, it is such a box, and nobody uses it any more.
        let exchange = unsafe { Box::from_raw(exchange) };
        answer((), || {
            exchange.0.end();
            Ok(())
        });
    }
}

/// Exports calls on exchanges.
macro_rules! calls {
    ($exchange:ident; $($(#[$doc:meta])* $name:ident($($argument:ident: $kind:ty),*) -> $result:ty = $failure:expr, $call:expr;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            ///
            /// The exchange is null, or one that is not freed yet, and no other call with it is under way. Other
            /// addresses are of what the header says.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(exchange: *mut quicket_exchange $(, $argument: $kind)*) -> $result {
                answer($failure, || {
                    // SAFETY: as the caller says.
                    let $exchange = unsafe { exchange.as_mut() };
                    let $exchange = $exchange.map(|exchange| &mut exchange.0);
                    let $exchange = $exchange.ok_or_else(|| Failure::invalid("the exchange is NULL"))?;
                    $exchange.is_here()?;
                    $call
                })
            }
        )*
    };
}

calls! {
    exchange;

    /// Adds a field to the request.
    quicket_exchange_add_field(name: *const c_char, value: *const c_char) -> c_int = -1, {
        // SAFETY: texts of the program's.
        let (name, value) = unsafe { (text(name), text(value)) };
        exchange.add_field(needed(name, "the name")?, needed(value, "the value")?).map(|()| 0)
    };
    /// Sends the request with all of its body.
    quicket_exchange_send(body: *const c_void, length: size_t) -> c_int = -1, {
        // SAFETY: so much of the program's memory.
        let body = unsafe { bytes(body, length) }?;
        let body = (!body.is_empty()).then(|| Bytes::copy_from_slice(body));
        exchange.send(body).map(|()| 0)
    };
    /// Sends the request with a body that is written.
    quicket_exchange_send_head() -> c_int = -1, exchange.send_head().map(|()| 0);
    /// Writes to the body.
    quicket_exchange_write(data: *const c_void, length: size_t, milliseconds: c_int) -> ssize_t = -1, {
        // SAFETY: so much of the program's memory.
        let data = unsafe { bytes(data, length.min(MAX_TRANSFER)) }?;
        exchange.write(data, milliseconds).map(|taken| taken as ssize_t)
    };
    /// Ends the body.
    quicket_exchange_finish(milliseconds: c_int) -> c_int = -1,
        exchange.finish(milliseconds).map(|()| 0);
    /// Waits for status and fields of the answer.
    quicket_exchange_status(milliseconds: c_int) -> c_int = -1,
        exchange.status(milliseconds).map(c_int::from);
    /// The nth value of a field.
    quicket_exchange_field(name: *const c_char, n: size_t) -> *const c_char = ptr::null(), {
        // SAFETY: a text of the program's.
        let name = unsafe { text(name) };
        Ok(value(exchange.fields()?, needed(name, "the name")?, n))
    };
    /// The nth of all fields.
    quicket_exchange_each_field(n: size_t, name: *mut *const c_char, value: *mut *const c_char) -> c_int = -1, {
        // SAFETY: room for two addresses.
        Ok(unsafe { put(exchange.fields()?, n, name, value) })
    };
    /// Reads content.
    quicket_exchange_read(data: *mut c_void, room: size_t, milliseconds: c_int) -> ssize_t = -1, {
        if data.is_null() && room > 0 {
            return Err(Failure::invalid("the room for content is NULL"));
        }
        let piece = exchange.read(room.min(MAX_TRANSFER), milliseconds)?;
        // SAFETY: the piece is no longer than the program's room, which is not of this library.
        unsafe { ptr::copy_nonoverlapping(piece.as_ptr(), data.cast(), piece.len()) };
        Ok(piece.len() as ssize_t)
    };
    /// Waits for the fields behind the content.
    quicket_exchange_trailers(milliseconds: c_int) -> c_int = -1,
        exchange.trailers(milliseconds).map(|count| c_int::try_from(count).unwrap_or(c_int::MAX));
    /// The nth value of a field behind the content.
    quicket_exchange_trailer(name: *const c_char, n: size_t) -> *const c_char = ptr::null(), {
        // SAFETY: a text of the program's.
        let name = unsafe { text(name) };
        Ok(value(exchange.behind()?, needed(name, "the name")?, n))
    };
    /// The nth of all fields behind the content.
    quicket_exchange_each_trailer(n: size_t, name: *mut *const c_char, value: *mut *const c_char) -> c_int = -1, {
        // SAFETY: room for two addresses.
        Ok(unsafe { put(exchange.behind()?, n, name, value) })
    };
    /// What is known of its connection.
    quicket_exchange_info(info: *mut quicket_exchange_info) -> c_int = -1, {
        // SAFETY: a structure of the program's that begins with its size.
        unsafe { put_info(exchange, info) }.map(|()| 0)
    };
}

/// Bytes of the program's.
///
/// # Safety
///
/// There are so many, for the time of the call.
unsafe fn bytes<'a>(at: *const c_void, len: size_t) -> Result<&'a [u8], Failure> {
    match (at.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Failure::invalid("the data are NULL")),
        (false, len) if len > isize::MAX as usize => Err(Failure::invalid("no data are that long")),
        // SAFETY: as the caller says.
        (false, len) => Ok(unsafe { std::slice::from_raw_parts(at.cast(), len) }),
    }
}

fn value(fields: &Fields, name: &[u8], n: usize) -> *const c_char {
    fields.value(name, n).map_or(ptr::null(), CStr::as_ptr)
}

/// Puts the nth field where the program wants it.
///
/// # Safety
///
/// Both addresses are null, or of room for one.
unsafe fn put(
    fields: &Fields,
    n: usize,
    name: *mut *const c_char,
    value: *mut *const c_char,
) -> c_int {
    let Some((its_name, its_value)) = fields.get(n) else { return 0 };
    for (to, text) in [(name, its_name), (value, its_value)] {
        if !to.is_null() {
            // SAFETY: as the caller says.
            unsafe { to.write(text.as_ptr()) };
        }
    }
    1
}

/// Puts as much as the program knows, which says the size at the beginning.
///
/// # Safety
///
/// `to` is null, or has as many bytes as it says.
unsafe fn put_info(exchange: &mut Exchange, to: *mut quicket_exchange_info) -> Result<(), Failure> {
    if to.is_null() {
        return Err(Failure::invalid("the room is NULL"));
    }
    // SAFETY: the size comes first, and is there in any case.
    let size = unsafe { to.cast::<size_t>().read() };
    if size < size_of::<size_t>() {
        return Err(Failure::invalid("the room begins with its size"));
    }
    let known = exchange.info()?;
    let info = quicket_exchange_info {
        size,
        early_data: match known.early_data {
            EarlyData::Accepted => 1,
            EarlyData::Rejected => 2,
            // An answer comes after the server has said which.
            EarlyData::None | EarlyData::Offered => 0,
        },
        path_changes: known.path_changes,
        smoothed_rtt: u64::try_from(known.smoothed_rtt.as_micros()).unwrap_or(u64::MAX),
        remote: storage(known.remote),
    };
    let len = size.min(size_of::<quicket_exchange_info>());
    // SAFETY: both have so many bytes.
    unsafe { ptr::copy_nonoverlapping((&raw const info).cast::<u8>(), to.cast::<u8>(), len) };
    Ok(())
}

fn storage(address: SocketAddr) -> sockaddr_storage {
    // SAFETY: zeros are an address of no family.
    let mut storage = unsafe { MaybeUninit::<sockaddr_storage>::zeroed().assume_init() };
    let at = &raw mut storage;
    match address {
        SocketAddr::V4(v4) => {
            let address = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: there is room for any address.
            unsafe { at.cast::<libc::sockaddr_in>().write(address) };
        }
        SocketAddr::V6(v6) => {
            let address = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo().to_be(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: as above.
            unsafe { at.cast::<libc::sockaddr_in6>().write(address) };
        }
    }
    storage
}
