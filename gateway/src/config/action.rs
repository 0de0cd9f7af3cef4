//! What a route does, as the file says it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use http::header::HeaderValue;
use serde::Deserialize;

use super::Route;
use super::check::Problems;
use crate::action::{self, Action, Template};
use crate::directory::Directory;
use crate::origin::Origin;

/// Tells clients to go elsewhere.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Redirect {
    /// A URL, or a path: `{host}` stands for the request's host, `{path}` for its path and query, `{rest}` for
    /// what of them follows the route's path.
    pub to: String,
    /// 301, 302, 303, 307 or 308.
    #[serde(default = "permanent")]
    pub status: u16,
}

/// Answers always the same.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Respond {
    /// From 200 to 599.
    #[serde(default = "ok")]
    pub status: u16,
    /// What follows the header section.
    #[serde(default)]
    pub body: String,
    /// The body's type.
    #[serde(default = "plain")]
    pub content_type: String,
}

const fn permanent() -> u16 {
    308
}
const fn ok() -> u16 {
    200
}
fn plain() -> String {
    "text/plain; charset=utf-8".to_owned()
}

/// Checks what a route does: one thing of four.
pub(super) fn check(
    place: &str,
    route: &Route,
    directory: &Path,
    origins: &BTreeMap<String, Arc<Origin>>,
    problems: &mut Problems,
) -> Option<Action> {
    let given = [
        route.origin.is_some(),
        route.files.is_some(),
        route.redirect.is_some(),
        route.respond.is_some(),
    ];
    if given.into_iter().filter(|&given| given).count() != 1 {
        problems.add(
            place,
            "takes one of: origin = \"NAME\", files = \"DIRECTORY\", redirect, respond",
        );
        return None;
    }
    if let Some(name) = &route.origin {
        let origin = origins.get(name).cloned();
        if origin.is_none() {
            let known: Vec<&str> = origins.keys().map(String::as_str).collect();
            let known = match known.is_empty() {
                true => "the file has none: add [origin.NAME]".to_owned(),
                false => format!("there are: {}", known.join(", ")),
            };
            problems
                .add(format!("{place}.origin"), format!("there is no origin {name:?}; {known}"));
        }
        return origin.map(Action::Origin);
    }
    if let Some(path) = &route.files {
        return files(&format!("{place}.files"), &directory.join(path), problems);
    }
    if let Some(wanted) = &route.redirect {
        return redirect(&format!("{place}.redirect"), wanted, problems);
    }
    respond(&format!("{place}.respond"), route.respond.as_ref()?, problems)
}

fn files(place: &str, path: &Path, problems: &mut Problems) -> Option<Action> {
    let opened = Directory::open(path)
        .map_err(|error| format!("cannot open the directory {}: {error}", path.display()));
    problems.take(place, opened).map(|directory| Action::Files(Arc::new(directory)))
}

fn redirect(place: &str, redirect: &Redirect, problems: &mut Problems) -> Option<Action> {
    let to = problems.take(&format!("{place}.to"), Template::parse(&redirect.to));
    if ![301, 302, 303, 307, 308].contains(&redirect.status) {
        let what = format!("{} is none of 301, 302, 303, 307, 308", redirect.status);
        problems.add(format!("{place}.status"), what);
    }
    let status = StatusCode::from_u16(redirect.status).ok()?;
    Some(Action::Redirect(action::Redirect { to: to?, status }))
}

fn respond(place: &str, respond: &Respond, problems: &mut Problems) -> Option<Action> {
    let status = StatusCode::from_u16(respond.status).ok();
    let status = status.filter(|status| (200..600).contains(&status.as_u16()));
    if status.is_none() {
        let what = format!("{} is not within 200 and 599", respond.status);
        problems.add(format!("{place}.status"), what);
    }
    // RFC 9110, Sections 15.3.5, 15.3.6 and 15.4.5.
    if [204, 205, 304].contains(&respond.status) && !respond.body.is_empty() {
        problems.add(format!("{place}.body"), format!("{} has none", respond.status));
    }
    let content_type = HeaderValue::from_str(&respond.content_type);
    let content_type = problems.take(&format!("{place}.content_type"), content_type);
    let body = Bytes::from(respond.body.clone());
    Some(Action::Respond(action::Respond { status: status?, content_type: content_type?, body }))
}
