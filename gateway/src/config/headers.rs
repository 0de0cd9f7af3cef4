//! Header fields that the file names.

use std::collections::BTreeMap;

use http::header::{HeaderName, HeaderValue};
use serde::Deserialize;

use super::check::Problems;
use crate::edits;

/// Changes of header fields: what is removed first, then set, then added.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Edits {
    /// Fields that have this value and no other.
    pub set: BTreeMap<String, String>,
    /// Fields beside what is there.
    pub add: BTreeMap<String, String>,
    /// Fields that are removed.
    pub remove: Vec<String>,
}

/// HTTP Strict Transport Security (RFC 6797).
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hsts {
    /// How long clients come by HTTPS only, in seconds.
    pub max_age_s: u64,
    /// For all subdomains, too.
    #[serde(default)]
    pub include_subdomains: bool,
    /// Consent to the lists that browsers bring along, which takes months to undo.
    #[serde(default)]
    pub preload: bool,
}

impl Hsts {
    /// Checks it.
    pub(super) fn check(self, place: &str, problems: &mut Problems) -> Option<HeaderValue> {
        // As the lists demand.
        if self.preload && !(self.include_subdomains && self.max_age_s >= 31_536_000) {
            problems.add(
                format!("{place}.hsts.preload"),
                "takes include_subdomains = true and max_age_s = 31536000 (a year) at least",
            );
        }
        let subdomains = if self.include_subdomains { "; includeSubDomains" } else { "" };
        let preload = if self.preload { "; preload" } else { "" };
        HeaderValue::from_str(&format!("max-age={}{subdomains}{preload}", self.max_age_s)).ok()
    }
}

impl Edits {
    /// Checks the edits.
    pub(super) fn check(&self, place: &str, problems: &mut Problems) -> edits::Edits {
        let names = self.remove.iter().filter_map(|name| changed(place, name, problems));
        let remove = names.collect();
        let mut fields = |part: &str, fields: &BTreeMap<String, String>| {
            let place = format!("{place}.{part}");
            let each = fields.iter().filter_map(|(name, text)| {
                Some((changed(&place, name, problems)?, value(&place, text, problems)?))
            });
            each.collect()
        };
        edits::Edits { remove, set: fields("set", &self.set), add: fields("add", &self.add) }
    }

    /// True if nothing is changed.
    pub(super) fn is_empty(&self) -> bool {
        self.set.is_empty() && self.add.is_empty() && self.remove.is_empty()
    }
}

/// Fields that a request must have; `*` stands for any value.
pub(super) fn wanted(
    place: &str,
    fields: &BTreeMap<String, String>,
    problems: &mut Problems,
) -> Vec<(HeaderName, Option<HeaderValue>)> {
    let place = format!("{place}.headers");
    let each = fields.iter().filter_map(|(field, text)| {
        let any = (text == "*").then_some(None);
        let wanted = any.or_else(|| value(&place, text, problems).map(Some));
        Some((name(&place, field, problems)?, wanted?))
    });
    each.collect()
}

fn name(place: &str, text: &str, problems: &mut Problems) -> Option<HeaderName> {
    let name = HeaderName::from_bytes(text.as_bytes());
    problems.take(place, name.map_err(|_| format!("{text:?} is no name of a field")))
}

fn changed(place: &str, text: &str, problems: &mut Problems) -> Option<HeaderName> {
    let name = name(place, text, problems)?;
    if !edits::may_change(&name) {
        problems.add(place, format!("{name} belongs to HTTP itself and cannot be changed"));
        return None;
    }
    Some(name)
}

fn value(place: &str, text: &str, problems: &mut Problems) -> Option<HeaderValue> {
    let value = HeaderValue::from_str(text);
    problems.take(place, value.map_err(|_| format!("{text:?} is no value of a field")))
}

/// Guesses the type of a page by its file's name.
pub(super) fn content_type(path: &std::path::Path) -> HeaderValue {
    let text = match path.extension().and_then(|extension| extension.to_str()) {
        Some("html" | "htm") => "text/html; charset=utf-8",
        Some("json") => "application/json",
        Some("xml") => "application/xml",
        _ => "text/plain; charset=utf-8",
    };
    HeaderValue::from_static(text)
}
