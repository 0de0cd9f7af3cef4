//! What belongs to a name: exactly, one level below a name, or to all others.

use std::collections::HashMap;
use std::sync::Arc;

/// Values by name, in lower case.
#[derive(Debug)]
pub(crate) struct Names<T> {
    exact: HashMap<String, Arc<T>>,
    /// By what follows `*.`.
    wildcard: HashMap<String, Arc<T>>,
    any: Option<Arc<T>>,
}

impl<T> Default for Names<T> {
    fn default() -> Self {
        Self { exact: HashMap::new(), wildcard: HashMap::new(), any: None }
    }
}

impl<T> Names<T> {
    /// Gives a value a name, which is a DNS name, `*.` and one, or `*`; false if it has one already.
    pub(crate) fn add(&mut self, name: &str, value: &Arc<T>) -> bool {
        let (name, value) = (name.to_ascii_lowercase(), Arc::clone(value));
        let before = if name == "*" {
            self.any.replace(value)
        } else if let Some(suffix) = name.strip_prefix("*.") {
            self.wildcard.insert(suffix.to_owned(), value)
        } else {
            self.exact.insert(name, value)
        };
        before.is_none()
    }

    /// What this name was given, which may be a wildcard.
    pub(crate) fn exactly(&self, name: &str) -> Option<&Arc<T>> {
        let name = name.to_ascii_lowercase();
        match name.strip_prefix("*.") {
            _ if name == "*" => self.any.as_ref(),
            Some(suffix) => self.wildcard.get(suffix),
            None => self.exact.get(&name),
        }
    }

    /// The exact name's, else that of the level above with a wildcard, else that of all others.
    pub(crate) fn find(&self, name: Option<&str>) -> Option<&Arc<T>> {
        let named = name.and_then(|name| {
            let name = name.to_ascii_lowercase();
            let wildcard = || self.wildcard.get(name.split_once('.')?.1);
            self.exact.get(&name).or_else(wildcard)
        });
        named.or(self.any.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_counts() {
        let mut names = Names::default();
        for name in ["*", "*.a.example", "b.a.example"] {
            assert!(names.add(name, &Arc::new(name.to_owned())), "{name}");
        }
        assert!(!names.add("B.a.example", &Arc::new(String::new())), "it is there twice");
        names.add("b.a.example", &Arc::new("b.a.example".to_owned()));
        let find = |name| names.find(name).unwrap().as_str();
        assert_eq!(find(Some("B.A.example")), "b.a.example");
        assert_eq!(find(Some("c.a.example")), "*.a.example");
        assert_eq!(find(Some("d.c.a.example")), "*");
        assert_eq!(find(None), "*");
        assert!(Names::<()>::default().find(Some("a")).is_none());
    }
}
