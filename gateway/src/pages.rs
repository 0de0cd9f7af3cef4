//! Pages that clients see where the gateway itself has only a status.

use std::collections::HashMap;

use bytes::Bytes;
use http::StatusCode;
use http::header::HeaderValue;

/// The pages of a site, by status.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pages(pub(crate) HashMap<StatusCode, Page>);

/// A page, which was read with the file.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    pub(crate) content_type: HeaderValue,
    pub(crate) body: Bytes,
}

impl Pages {
    pub(crate) fn get(&self, status: StatusCode) -> Option<&Page> {
        self.0.get(&status)
    }
}
