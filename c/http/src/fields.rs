//! The fields of an answer, as texts of C that stay where they are.

use std::ffi::{CStr, CString};

use http::HeaderMap;

/// Names and values: those of one name in the order in which they came, which the names among them have not.
#[derive(Debug, Default)]
pub(crate) struct Fields(Vec<(CString, CString)>);

impl From<&HeaderMap> for Fields {
    fn from(map: &HeaderMap) -> Self {
        let text = |bytes: &[u8]| CString::new(bytes);
        let field = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
            // Neither has a zero (RFC 9110, Section 5.5): the crate `http` lets none in.
            Some((text(name.as_ref()).ok()?, text(value.as_bytes()).ok()?))
        };
        Self(map.iter().filter_map(field).collect())
    }
}

impl Fields {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The nth value of a name, whose case does not matter.
    pub(crate) fn value(&self, name: &[u8], n: usize) -> Option<&CStr> {
        let is = |(known, _): &&(CString, CString)| known.as_bytes().eq_ignore_ascii_case(name);
        self.0.iter().filter(is).nth(n).map(|(_, value)| value.as_c_str())
    }

    /// The nth of all.
    pub(crate) fn get(&self, n: usize) -> Option<(&CStr, &CStr)> {
        self.0.get(n).map(|(name, value)| (name.as_c_str(), value.as_c_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_no_case_and_values_an_order() {
        let mut map = HeaderMap::new();
        for (name, value) in [("a", "1"), ("b", ""), ("a", "2")] {
            map.append(name, value.parse().unwrap());
        }
        let fields = Fields::from(&map);
        assert_eq!(fields.len(), 3);
        assert_eq!(fields.value(b"A", 0), Some(c"1"));
        assert_eq!(fields.value(b"a", 1), Some(c"2"));
        assert_eq!(fields.value(b"a", 2), None);
        assert_eq!(fields.value(b"B", 0), Some(c""));
        assert_eq!(fields.get(3), None);
        assert!((0..3).any(|n| fields.get(n) == Some((c"b", c""))));
    }
}
