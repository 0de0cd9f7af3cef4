//! What a server says before its answer, and a client may hear (RFC 8297).

use std::sync::Arc;

use http::{HeaderMap, Request, StatusCode};

/// In a request's extensions: who hears of 103 (Early Hints).
#[derive(Clone)]
pub(crate) struct Hints(Arc<dyn Fn(&HeaderMap) + Send + Sync>);

impl Hints {
    /// Has `hear` called with the fields of each, whatever the server speaks. It must not wait.
    pub(crate) fn attach<B>(
        request: &mut Request<B>,
        hear: impl Fn(&HeaderMap) + Send + Sync + 'static,
    ) {
        request.extensions_mut().insert(Self(Arc::new(hear)));
    }

    /// hyper asks for them in its own way.
    pub(super) fn ask_hyper<B>(request: &mut Request<B>) {
        if let Some(hints) = request.extensions().get::<Self>().cloned() {
            hyper::ext::on_informational(request, move |head| {
                hints.told(head.status(), head.headers());
            });
        }
    }

    /// A response has come that is not the answer.
    pub(super) fn told(&self, status: StatusCode, fields: &HeaderMap) {
        if status == StatusCode::EARLY_HINTS {
            (self.0)(fields);
        }
    }
}
