//! What the file says of certificates that are ordered, checked.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use aws_lc_rs::digest;

use crate::config::{Challenge, OrderedKey};
use crate::origin::Tls;

/// All that is to be ordered, and how.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The URL of the authority's directory.
    pub(crate) directory: String,
    /// URLs by which the authority reaches people.
    pub(crate) contact: Vec<String>,
    pub(crate) wanted: Vec<Arc<Wanted>>,
    /// Where account and certificates are kept.
    pub(crate) state: PathBuf,
    pub(crate) challenge: Challenge,
    /// Whom the directory's own certificate is verified by.
    pub(crate) tls: Arc<Tls>,
    pub(crate) external: Option<External>,
    pub(crate) profile: Option<String>,
}

impl PartialEq for Plan {
    fn eq(&self, other: &Self) -> bool {
        let all = |plan: &Self| {
            let Self { directory, contact, wanted, state, challenge, external, profile, .. } = plan;
            let (directory, contact, wanted) = (directory.clone(), contact.clone(), wanted.clone());
            let (external, profile) = (external.clone(), profile.clone());
            (directory, contact, wanted, state.clone(), *challenge, external, profile)
        };
        all(self) == all(other) && self.tls.is_like(&other.tls)
    }
}

impl Plan {
    /// What tells accounts apart: the authority, and what it knows of us beforehand.
    pub(crate) fn account(&self) -> String {
        let external = self.external.as_ref().map_or("", |external| &external.key_id);
        hash(&[&self.directory, external])
    }
}

/// A certificate that is to be had.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// In lower case.
    pub(crate) names: Vec<String>,
    pub(crate) key_type: OrderedKey,
    /// Another one wherever another certificate is due. It is fit for a file's name.
    pub(crate) id: String,
}

impl Wanted {
    /// A certificate with these names, of which there is one at least, by the authority of this directory.
    pub(crate) fn new(names: Vec<String>, key_type: OrderedKey, directory: &str) -> Self {
        let mut sorted: Vec<&str> = names.iter().map(String::as_str).collect();
        sorted.sort_unstable();
        let of_key = format!("{key_type:?}");
        let hash = hash(&[&[directory, &of_key], &sorted[..]].concat());
        let id = format!("{}-{hash}", names.first().map_or("", String::as_str));
        Self { names, key_type, id }
    }

    /// What it is called in messages.
    pub(crate) fn name(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }
}

/// The first half of a hash, in hexadecimal, of words in which there is no end of a line.
fn hash(words: &[&str]) -> String {
    let hash = digest::digest(&digest::SHA256, words.join("\n").as_bytes());
    hash.as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// An account that the authority has given beforehand.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct External {
    pub(crate) key_id: String,
    pub(crate) key: Vec<u8>,
}

impl fmt::Debug for External {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("External").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_certificate_has_another_id() {
        let wanted = |names: &[&str], key_type, directory: &str| {
            let names = names.iter().map(|&name| name.to_owned()).collect();
            Wanted::new(names, key_type, directory).id
        };
        let (p256, one) = (OrderedKey::EcdsaP256, "https://ca.example/");
        let id = wanted(&["a.example", "b.example"], p256, one);
        assert!(id.starts_with("a.example-"), "{id}");
        assert_eq!(id.len(), "a.example-".len() + 16);
        assert_eq!(id, wanted(&["a.example", "b.example"], p256, one));
        for other in [
            wanted(&["a.example"], p256, one),
            wanted(&["a.example", "b.example"], OrderedKey::Rsa2048, one),
            wanted(&["a.example", "b.example"], p256, "https://ca.example/2"),
        ] {
            assert_ne!(id, other);
        }
    }

    #[test]
    fn a_key_is_not_told() {
        let external = External { key_id: "kid".to_owned(), key: vec![77; 32] };
        let told = format!("{external:?}");
        assert!(told.contains("kid") && !told.contains("77"), "{told}");
    }
}
