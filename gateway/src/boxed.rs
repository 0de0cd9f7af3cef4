//! Futures that are large.

use std::pin::Pin;

/// A future in a box: it is large, and would be moved several times until it runs. It is made in its place: a value that is put
/// into a box afterwards is copied there, of a request 12 KB that mean nothing yet.
pub(crate) fn boxed<F>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    let place = Box::new_uninit();
    Box::into_pin(Box::write(place, make()))
}
