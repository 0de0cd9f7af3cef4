//! Files: what is served and downloaded, and what connections are made with.

use std::fs::{File, OpenOptions};
use std::path::{Component, Path, PathBuf};

use quicket_workload::bench::Failure;
use quicket_workload::peer::{Event, emit};

/// The file that a request path names in `folder`.
///
/// # Errors
///
/// When it names none in there.
pub fn locate(folder: &Path, path: &str) -> Result<PathBuf, Failure> {
    let relative = Path::new(path.trim_start_matches('/'));
    if relative.components().all(|part| matches!(part, Component::Normal(_))) {
        Ok(folder.join(relative))
    } else {
        Err(format!("the path {path:?} leaves the served folder").into())
    }
}

/// Stores and reports what was downloaded.
///
/// # Errors
///
/// When the file cannot be written.
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

/// The file for TLS secrets that SSLKEYLOGFILE names.
///
/// # Errors
///
/// When it cannot be opened.
pub fn key_log() -> Result<Option<File>, Failure> {
    let name = std::env::var_os("SSLKEYLOGFILE").filter(|name| !name.is_empty());
    let open = |name| OpenOptions::new().create(true).append(true).open(name);
    Ok(name.map(open).transpose()?)
}

/// The name of a file, for libraries that want text.
///
/// # Errors
///
/// When it is none.
pub fn name(path: &Path) -> Result<&str, Failure> {
    path.to_str().ok_or_else(|| format!("{} is not UTF-8", path.display()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_leaves_the_folder_names_no_file() {
        let folder = Path::new("/www");
        assert_eq!(locate(folder, "/a/b").unwrap(), Path::new("/www/a/b"));
        for path in ["/../a", "/a/../../b", "../a"] {
            assert!(locate(folder, path).is_err(), "{path}");
        }
    }
}
