//! Changes of header fields that a file asks for.

use http::HeaderMap;
use http::header::{self, HeaderName, HeaderValue};

use crate::headers::remove_look_alikes;

/// Changes of header fields, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Edits {
    pub(crate) remove: Vec<HeaderName>,
    /// Instead of whatever is there.
    pub(crate) set: Vec<(HeaderName, HeaderValue)>,
    /// Beside what is there.
    pub(crate) add: Vec<(HeaderName, HeaderValue)>,
}

/// Fields that say where a message ends, or what its connection does: only HTTP itself changes them.
const UNTOUCHABLE: [HeaderName; 8] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// True if a file may change this field.
pub(crate) fn may_change(name: &HeaderName) -> bool {
    !UNTOUCHABLE.contains(name)
}

impl Edits {
    /// For the fields of a request: a client has none that stands for one which is removed or set.
    pub(crate) fn apply_to_request(&self, headers: &mut HeaderMap) {
        // Mostly there is nothing of it, and each name would be gone over.
        if !(self.remove.is_empty() && self.set.is_empty()) {
            let set = self.set.iter().map(|(name, _)| name);
            remove_look_alikes(headers, |meant| {
                self.remove.iter().chain(set.clone()).any(|name| name == meant)
            });
        }
        self.apply(headers);
    }

    pub(crate) fn apply(&self, headers: &mut HeaderMap) {
        for name in &self.remove {
            headers.remove(name);
        }
        for (name, value) in &self.set {
            headers.insert(name, value.clone());
        }
        for (name, value) in &self.add {
            headers.append(name, value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_removed_set_and_added() {
        let mut headers = HeaderMap::new();
        for (name, value) in [("a", "1"), ("a", "2"), ("b", "1"), ("c", "1")] {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let field = |name, value| (HeaderName::from_static(name), HeaderValue::from_static(value));
        let edits = Edits {
            remove: vec![HeaderName::from_static("c")],
            set: vec![field("a", "3")],
            add: vec![field("b", "2")],
        };
        edits.apply(&mut headers);
        let all = |name| -> Vec<_> {
            headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect()
        };
        assert_eq!((all("a"), all("b")), (vec!["3"], vec!["1", "2"]));
        assert!(all("c").is_empty());
    }
}
