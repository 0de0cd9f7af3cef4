//! What a switch reads again at SIGHUP: the secrets of its site, and the rule for its users.

use std::path::PathBuf;

use quicket_switch::daemon::{Rotations, Rules};
use tokio::signal::unix::Signal;

use super::rule;
use crate::exit::Failure;
use crate::secrets::Source;
use crate::serve::say;

/// What there is to read, and who is told.
#[derive(Default)]
pub(super) struct Files {
    pub(super) secrets: Option<(Source, Rotations)>,
    pub(super) rule: Option<(PathBuf, Rules)>,
}

impl Files {
    /// Reads all again at each SIGHUP. Where there is nothing to read the signal must not end the switch all the same:
    /// all programs would lose it.
    pub(super) async fn watch(&self, mut hangup: Signal, state: &str) {
        while hangup.recv().await.is_some() {
            // A service manager that has asked for it waits for both words.
            crate::notify::reloading("reading files again");
            let came = [self.read_secrets(), self.read_rule()];
            let mut trouble = Vec::new();
            for told in came.iter().flatten() {
                let (Ok(text) | Err(text)) = told;
                say(format_args!("quicket: {text}"));
                trouble.extend(told.as_ref().err().cloned());
            }
            if came.iter().all(Option::is_none) {
                let told = "nothing to read again: neither --secrets nor --users";
                say(format_args!("quicket: {told}"));
                trouble.push(told.to_owned());
            }
            trouble.insert(0, state.to_owned());
            crate::notify::reloaded(&trouble.join("; "));
        }
        std::future::pending().await
    }

    fn read_secrets(&self) -> Option<Result<String, String>> {
        let (source, rotations) = self.secrets.as_ref()?;
        let read = source.read().map(|secrets| {
            let number = secrets.current().number();
            // It has ended: that is seen elsewhere.
            let _ = rotations.rotate(secrets);
            format!("secrets were read again: number {number} is current")
        });
        Some(read.map_err(|failure| not_read("secrets were", &failure)))
    }

    fn read_rule(&self) -> Option<Result<String, String>> {
        let (path, rules) = self.rule.as_ref()?;
        let read = rule(Some(path)).map(|rule| {
            let _ = rules.replace(rule);
            format!("the rule was read again: {}", path.display())
        });
        Some(read.map_err(|failure| not_read("the rule was", &failure)))
    }
}

fn not_read(what: &str, failure: &Failure) -> String {
    format!("{what} not read again, and all stays as it was: {failure}")
}
