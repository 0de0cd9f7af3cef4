//! The files that are served and downloaded.

use std::path::{Component, Path, PathBuf};

use quicket_workload::bench::Failure;
use quicket_workload::peer::{Event, emit};

/// The file that a request path names in `folder`.
pub fn locate(folder: &Path, path: &str) -> Result<PathBuf, Failure> {
    let relative = Path::new(path.trim_start_matches('/'));
    if relative.components().all(|part| matches!(part, Component::Normal(_))) {
        Ok(folder.join(relative))
    } else {
        Err(format!("the path {path:?} leaves the served folder").into())
    }
}

/// Stores and reports what was downloaded.
pub fn store(
    out: Option<&Path>,
    connection: u64,
    path: &str,
    content: &[u8],
) -> Result<(), Failure> {
    if let Some(out) = out {
        std::fs::write(locate(out, path)?, content)?;
    }
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, content);
    let sha256 = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let bytes = content.len() as u64;
    emit(&Event::File { connection, path: path.into(), bytes, sha256 });
    Ok(())
}
