//! Field sections of a connection that come again.
//!
//! Clients send nearly the same fields with each of their requests, and servers with their answers. For that QPACK has a dynamic
//! table, which h3 has not: it reads and writes all of them anew, with Huffman's code. Without such a table a section is
//! a function of its fields, and its lines do not depend on each other: so what h3 made of one may be used again.
//!
//! It is kept for one connection alone: how long an answer takes then tells nobody of others. A connection that was asked once
//! keeps nothing, and one that was asked three times for the same what it was asked for.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::uri::{Authority, Parts, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version};

use crate::Acceptance;
use crate::kept::{Kept, hash};
use crate::lines::Lines;
use crate::qpack::section::{Path, has_secrets, path};

/// What is kept of requests, in bytes.
const MAX_HEADS: usize = 16 << 10;
/// What a field takes beside its name and its value: its place in a map, and two blocks of memory that are shared.
const FIELD_MEMORY: usize = 200;

/// What of a field is beside its name and its value when a section is measured (RFC 9114, Section 4.2.2).
pub(crate) const FIELD: usize = 32;

/// What was worked out of a connection's sections.
#[derive(Debug)]
pub(crate) struct Sections {
    /// The longest section of a request that is taken, as it is decoded.
    max_section: usize,
    /// Where the client says how long those of answers may be.
    client: Acceptance,
    heads: Mutex<Memory<Kept<Head>>>,
    lines: Mutex<Memory<Lines>>,
}

/// What there is once there is use for it.
#[derive(Debug)]
struct Memory<T> {
    was_used: bool,
    kept: Option<Box<T>>,
}

impl<T> Memory<T> {
    const fn new() -> Self {
        Self { was_used: false, kept: None }
    }

    /// None at the first time.
    fn get(&mut self, new: impl FnOnce() -> T) -> Option<&mut T> {
        match std::mem::replace(&mut self.was_used, true) {
            true => Some(self.kept.get_or_insert_with(|| Box::new(new()))),
            false => None,
        }
    }
}

/// A request without its path.
#[derive(Debug)]
struct Head {
    /// Its section without the line of the path, and where that was: pseudo-headers come first (RFC 9114, Section 4.3).
    section: Box<[u8]>,
    place: usize,
    method: Method,
    scheme: Scheme,
    authority: Authority,
    fields: HeaderMap,
    /// How long it is when decoded, at most.
    size: usize,
}

impl Sections {
    pub(crate) fn new(max_section: usize, client: Acceptance) -> Self {
        let (heads, lines) = (Mutex::new(Memory::new()), Mutex::new(Memory::new()));
        Self { max_section, client, heads, lines }
    }

    /// The request that this section is, if one that differed in its path alone was read.
    pub(crate) fn find(&self, section: &[u8]) -> Option<Request<()>> {
        let mut memory = lock(&self.heads);
        let heads = memory.kept.as_mut()?;
        let path = path(section)?;
        let [before, behind] = path.around(section);
        let head = heads.find(hash([before, behind]), |head| head.is(before, behind))?;
        let (path, size) = read(&path)?;
        if head.size.saturating_add(size) > self.max_section {
            return None;
        }
        let mut parts = Parts::default();
        parts.scheme = Some(head.scheme.clone());
        parts.authority = Some(head.authority.clone());
        parts.path_and_query = Some(path);
        let mut request = Request::new(());
        *request.uri_mut() = Uri::from_parts(parts).ok()?;
        *request.method_mut() = head.method.clone();
        *request.headers_mut() = head.fields.clone();
        *request.version_mut() = Version::HTTP_3;
        Some(request)
    }

    /// Keeps what h3 has made of a section, if it comes again.
    pub(crate) fn keep(&self, section: &[u8], request: &Request<()>) {
        let mut memory = lock(&self.heads);
        let Some(heads) = memory.get(|| Kept::new(MAX_HEADS)) else { return };
        let Some(path) = path(section) else { return };
        let [before, behind] = path.around(section);
        let hash = hash([before, behind]);
        // Requests that come at once are all read before one of them is kept.
        let is_known = heads.has(hash, |head| head.is(before, behind));
        // What is never to be indexed is in no table of QPACK, and not in this one.
        if is_known || !heads.is_wanted_again(hash) || has_secrets(section) {
            return;
        }
        let Some(head) = Head::of([before, behind], request) else { return };
        heads.insert(hash, head.memory(), head);
    }

    /// The lines of an answer's fields, unless h3 has to write it: as the first one, or to say that it is too long.
    pub(crate) fn lines(&self, fields: &HeaderMap) -> Option<Bytes> {
        /// `:status` and three digits.
        const STATUS: usize = 7 + 3 + FIELD;
        let sizes = fields.iter().map(|(name, value)| name.as_str().len() + value.len() + FIELD);
        let size = sizes.fold(STATUS, usize::saturating_add) as u64;
        if size > self.client.max_section() {
            return None;
        }
        lock(&self.lines).get(Lines::new)?.write(fields)
    }
}

impl Head {
    /// None where there is more to it than what is kept.
    fn of([before, behind]: [&[u8]; 2], request: &Request<()>) -> Option<Self> {
        let (uri, method) = (request.uri(), request.method());
        let (scheme, authority) = (uri.scheme()?.clone(), uri.authority()?.clone());
        let fields = request.headers();
        let of = |name: &str, value: &[u8]| name.len() + value.len() + FIELD;
        // The authority may have come as Host alone: that makes it too much.
        let pseudo = of(":method", method.as_str().as_bytes())
            + of(":scheme", scheme.as_str().as_bytes())
            + of(":authority", authority.as_str().as_bytes());
        let sizes = fields.iter().map(|(name, value)| of(name.as_str(), value.as_bytes()));
        Some(Self {
            section: [before, behind].concat().into(),
            place: before.len(),
            size: sizes.fold(pseudo, usize::saturating_add),
            method: method.clone(),
            scheme,
            authority,
            fields: fields.clone(),
        })
    }

    /// About what it takes, in bytes.
    fn memory(&self) -> usize {
        let of = |(name, value): (&HeaderName, &HeaderValue)| {
            name.as_str().len() + value.len() + FIELD_MEMORY
        };
        let fields: usize = self.fields.iter().map(of).sum();
        self.section.len() + self.authority.as_str().len() + fields
    }

    fn is(&self, before: &[u8], behind: &[u8]) -> bool {
        self.section.split_at(self.place) == (before, behind)
    }
}

/// A path as h3 reads it, and its size in a section.
fn read(path: &Path<'_>) -> Option<(PathAndQuery, usize)> {
    let text = path.decode()?;
    std::str::from_utf8(&text).ok()?;
    let size = ":path".len() + text.len() + FIELD;
    // RFC 9114, Section 4.3.1.
    let is_right = !text.is_empty() && !text.contains(&b'#');
    let path = PathAndQuery::from_maybe_shared(Bytes::from(text.into_owned())).ok()?;
    is_right.then_some((path, size))
}

fn lock<T>(memory: &Mutex<T>) -> MutexGuard<'_, T> {
    memory.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "sections_tests.rs"]
mod tests;
