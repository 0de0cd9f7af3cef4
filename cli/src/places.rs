//! Where this program keeps what outlives it (XDG Base Directory Specification).

use std::env;
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::exit::{Failure, Kind};

/// Looks up an environment variable.
type Lookup<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// For the server: its certificate and keys.
pub(crate) fn data() -> Result<PathBuf, Failure> {
    place(&|name| env::var_os(name), "XDG_DATA_HOME", ".local/share")
}

/// For the client: sessions of servers.
pub(crate) fn state() -> Result<PathBuf, Failure> {
    place(&|name| env::var_os(name), "XDG_STATE_HOME", ".local/state")
}

/// Sessions cannot be kept in a directory.
pub(crate) fn no_sessions(dir: &Path, error: &io::Error) -> Failure {
    let what = format!("cannot keep sessions in {}", dir.display());
    let advice = "keep them elsewhere with --sessions DIR, or not at all with --no-sessions";
    Failure::environment(what, format!("{error}; {advice}"))
}

/// For what can be made again: places to try, the best one first.
#[cfg(target_os = "linux")]
pub(crate) fn caches() -> Result<Vec<PathBuf>, Failure> {
    let is_root = rustix::process::geteuid().is_root();
    caches_of(&|name| env::var_os(name), is_root, is_roots_alone)
}

/// Root's home is closed to other users, which root's programs become. So root has another place (Filesystem Hierarchy
/// Standard 3.0, section 5.5), unless the environment names one. Neither counts where another user may put something else: it
/// may be his environment.
#[cfg(target_os = "linux")]
fn caches_of(
    lookup: Lookup<'_>,
    is_root: bool,
    is_roots_alone: impl Fn(&Path) -> bool,
) -> Result<Vec<PathBuf>, Failure> {
    const VARIABLE: &str = "XDG_CACHE_HOME";
    let own = place(lookup, VARIABLE, ".cache");
    if !is_root {
        return own.map(|own| vec![own]);
    }
    let own = own.ok().filter(|own| own.parent().is_some_and(is_roots_alone));
    let is_named = lookup(VARIABLE).is_some_and(|path| Path::new(&path).is_absolute());
    let of_host = Some(PathBuf::from("/var/cache/quicket"));
    let places = if is_named { [own, of_host] } else { [of_host, own] };
    Ok(places.into_iter().flatten().collect())
}

/// Whether nobody but root can put another folder in place of one in there. A folder that is not there yet is root's once it is made.
#[cfg(target_os = "linux")]
fn is_roots_alone(folder: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    const OTHERS_WRITE: u32 = 0o022;
    const STICKY: u32 = 0o1000;
    folder.ancestors().all(|folder| match fs::metadata(folder) {
        Ok(found) => {
            found.uid() == 0 && (found.mode() & OTHERS_WRITE == 0 || found.mode() & STICKY != 0)
        }
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    })
}

fn place(lookup: Lookup<'_>, variable: &str, below_home: &str) -> Result<PathBuf, Failure> {
    // "All paths must be absolute"; others are to be ignored, says the specification.
    let absolute = |name: &str| lookup(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute(variable)
        .or_else(|| Some(absolute("HOME").or_else(|| absolute("USERPROFILE"))?.join(below_home)))
        .map(|base| base.join("quicket"))
        .ok_or_else(|| {
            Failure::new(
                Kind::Environment,
                format!("no home directory is known; set HOME or {variable} to an absolute path"),
            )
        })
}

/// Writes a new file that only its owner can read; fails if it exists.
pub(crate) fn write_secret(path: &Path, content: &[u8]) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)?.write_all(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(variables: &'static [(&str, &str)]) -> Result<PathBuf, Failure> {
        let lookup = |name: &str| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
        };
        place(&lookup, "XDG_DATA_HOME", ".local/share")
    }

    #[test]
    fn the_variable_wins_over_the_home_directory() {
        assert_eq!(
            at(&[("XDG_DATA_HOME", "/d"), ("HOME", "/h")]).unwrap(),
            Path::new("/d/quicket")
        );
        assert_eq!(at(&[("HOME", "/h")]).unwrap(), Path::new("/h/.local/share/quicket"));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_cache_of_root_is_where_other_users_can_read_it() {
        let caches = |variables: &'static [(&str, &str)], is_root| {
            let lookup = |name: &str| {
                variables
                    .iter()
                    .find(|(key, _)| *key == name)
                    .map(|(_, value)| OsString::from(value))
            };
            caches_of(&lookup, is_root, |folder| !folder.starts_with("/u")).map_err(drop)
        };
        let paths = |paths: &[&str]| Ok(paths.iter().map(PathBuf::from).collect::<Vec<_>>());
        let home = &[("HOME", "/r")];
        assert_eq!(caches(home, true), paths(&["/var/cache/quicket", "/r/.cache/quicket"]));
        assert_eq!(caches(home, false), paths(&["/r/.cache/quicket"]));
        let named = &[("HOME", "/r"), ("XDG_CACHE_HOME", "/c")];
        assert_eq!(caches(named, true), paths(&["/c/quicket", "/var/cache/quicket"]));
        assert_eq!(caches(named, false), paths(&["/c/quicket"]));
        let of_another = &[("HOME", "/u"), ("XDG_CACHE_HOME", "/u/.cache")];
        assert_eq!(caches(of_another, true), paths(&["/var/cache/quicket"]));
        assert_eq!(caches(&[], true), paths(&["/var/cache/quicket"]));
        assert!(caches(&[], false).is_err());
    }

    #[test]
    fn relative_paths_are_ignored() {
        let path = at(&[("XDG_DATA_HOME", "here"), ("HOME", "/h")]).unwrap();
        assert_eq!(path, Path::new("/h/.local/share/quicket"));
        assert!(at(&[("HOME", "")]).unwrap_err().message.contains("HOME"));
    }
}
