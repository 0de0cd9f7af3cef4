//! Secrets and events in files, for whoever wants to know what happened.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quicket::{KeyLog, KeyLogFile, Qlog};
use quicket_workload::bench::Failure;

/// The file for TLS secrets, if one is wanted.
pub(crate) fn key_log(path: Option<&Path>) -> Result<Option<Arc<dyn KeyLog>>, Failure> {
    let Some(path) = given(path) else { return Ok(None) };
    if let Some(folder) = given(path.parent()) {
        std::fs::create_dir_all(folder)
            .map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    }
    Ok(Some(Arc::new(KeyLogFile::open(path)?)))
}

/// The folder for qlog files, if one is wanted.
pub(crate) fn qlog(folder: Option<&Path>) -> Result<Option<Qlog>, Failure> {
    let Some(folder) = given(folder) else { return Ok(None) };
    std::fs::create_dir_all(folder)
        .and_then(|()| Qlog::new(folder))
        .map(Some)
        .map_err(|error| format!("cannot write to {}: {error}", folder.display()).into())
}

/// The path that an environment variable holds.
pub(crate) fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(OsString::into)
}

/// A path that is not empty: who sets variables has a value for some of them only.
fn given(path: Option<&Path>) -> Option<&Path> {
    path.filter(|path| !path.as_os_str().is_empty())
}
