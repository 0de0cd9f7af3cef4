//! Where programs and their switch meet: a local socket in a directory that only their user has.
//!
//! There is one switch for each user and network namespace, so the file's name ends with the number of
//! the namespace. The directory is this user's, and nobody else's: no other can take the name.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

use crate::environment;

/// Names the switch to use.
pub const NAME_VARIABLE: &str = "QUICKET_SWITCH";
/// The name of a switch that nobody has given another.
pub const DEFAULT_NAME: &str = "switch";
/// The name of the switch for all users, which the operator starts.
pub const SYSTEM: &str = "system";
/// The directory of that one.
pub const SYSTEM_DIRECTORY: &str = "/run/quicket-system";
/// The longest path of a local socket in bytes (unix(7)).
pub const MAX_PATH: usize = 107;

/// The name of the switch that the environment gives ([`environment::variable`]), or [`DEFAULT_NAME`].
#[must_use]
pub fn default_name() -> String {
    let given = environment::variable(NAME_VARIABLE).and_then(|name| name.into_string().ok());
    let given = given.filter(|name| !name.is_empty());
    given.unwrap_or_else(|| DEFAULT_NAME.to_owned())
}

/// The local socket of the switch of a name: a path, if there is a `/` in it; else a file of this user
/// for this network namespace, whose directory is made if there is none. That is
///
/// - root's in `/run/quicket`,
/// - another user's in `quicket` below `$XDG_RUNTIME_DIR` or else `/run/user/UID`, if that is the user's,
/// - or else in `/tmp/quicket-UID`.
///
/// [`SYSTEM`] is the one for all users, in a directory of root's that everybody can read. It is not made here.
///
/// # Errors
///
/// When the name makes no path; when the directory cannot be made, or is not this user's alone.
pub fn path(name: &str) -> io::Result<PathBuf> {
    let path = if name.contains('/') {
        std::path::absolute(name)?
    } else if name == SYSTEM {
        Path::new(SYSTEM_DIRECTORY).join(format!("{DEFAULT_NAME}-{}", namespace()?))
    } else if matches!(name, "" | "." | "..") || name.contains('\0') {
        let text = format!("the switch's name {name:?} makes no file: choose another");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    } else {
        directory()?.join(format!("{name}-{}", namespace()?))
    };
    if path.as_os_str().len() > MAX_PATH {
        let text = format!(
            "the path of the switch's socket is longer than {MAX_PATH} bytes: {}; name a shorter one \
             with --name or {NAME_VARIABLE}",
            path.display()
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(path)
}

/// Makes the directory of the switch for all users, or finds that nobody but this user can put anything there.
///
/// # Errors
///
/// When it cannot be made, such as by anybody but root, or is another's.
pub fn make_system_directory() -> io::Result<()> {
    let path = Path::new(SYSTEM_DIRECTORY);
    let cannot =
        |why: String| format!("cannot make {SYSTEM_DIRECTORY} for the switch's socket: {why}");
    match DirBuilder::new().mode(0o755).create(path) {
        // Whatever the umask.
        Ok(()) => fs::set_permissions(path, fs::Permissions::from_mode(0o755))?,
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            let text = cannot(format!("{error}; run it as root, or name another path with --name"));
            return Err(io::Error::new(error.kind(), text));
        }
        Err(_) => {}
    }
    let found = fs::symlink_metadata(path)?;
    if found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & 0o022 == 0 {
        return Ok(());
    }
    let text =
        cannot("there is one of another user, or others can write there: remove it".to_owned());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

/// What somebody is told who has come to the switch of another user, and what to do.
pub(crate) fn of_another(user: u32) -> String {
    format!(
        "this switch is that of user {user}: leave out {NAME_VARIABLE} (and --name) to have one of your own, \
         or name another with it"
    )
}

/// The number of the network namespace of this thread.
fn namespace() -> io::Result<u64> {
    let namespace = fs::metadata("/proc/thread-self/ns/net").map_err(|error| {
        let text = format!(
            "cannot tell the network namespace from /proc: {error}; name the switch's socket by a path \
             with {NAME_VARIABLE}"
        );
        io::Error::new(error.kind(), text)
    })?;
    Ok(namespace.ino())
}

/// The directory of this user's switches.
fn directory() -> io::Result<PathBuf> {
    let user = geteuid();
    // Programs of one user find one place, whoever started them: a service of root's has no
    // XDG_RUNTIME_DIR, and root's shell has one.
    let bases = if user.is_root() {
        vec![PathBuf::from("/run")]
    } else {
        let given = environment::variable("XDG_RUNTIME_DIR").map(PathBuf::from);
        let given = given.filter(|path| path.is_absolute());
        given.into_iter().chain([format!("/run/user/{user}").into()]).collect()
    };
    let own = bases.iter().find(|base| is_own(base, user.as_raw()));
    let directory = match own {
        Some(base) => base.join("quicket"),
        None => format!("/tmp/quicket-{user}").into(),
    };
    make_own(&directory, user.as_raw())?;
    Ok(directory)
}

/// Whether a directory is this user's, and nobody else can put anything in.
fn is_own(path: &Path, user: u32) -> bool {
    // A link may lead there.
    let found = fs::metadata(path);
    found.is_ok_and(|found| found.is_dir() && found.uid() == user && found.mode() & 0o022 == 0)
}

/// Makes a directory that is this user's alone, or finds that it is.
fn make_own(path: &Path, user: u32) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            let text = format!(
                "cannot make {} for the switch's socket: {error}; name another place with \
                 {NAME_VARIABLE}",
                path.display()
            );
            return Err(io::Error::new(error.kind(), text));
        }
        _ => {}
    }
    let found = fs::symlink_metadata(path)?;
    if found.is_dir() && found.uid() == user && found.mode() & 0o077 == 0 {
        return Ok(());
    }
    let text = format!(
        "{} is not a directory of user {user} alone (owner {}, mode {:o}): remove it, or name another \
         place with {NAME_VARIABLE}",
        path.display(),
        found.uid(),
        found.mode() & 0o7777
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A directory of a test's own.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("quicket-{name}-{}", std::process::id()));
            fs::create_dir(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_directory_is_made_for_its_user_alone_and_no_other_is_taken() {
        let scratch = Scratch::new("rendezvous");
        let user = geteuid().as_raw();
        let path = scratch.0.join("own");
        make_own(&path, user).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        make_own(&path, user).unwrap();
        // Somebody else was there first.
        let error = make_own(&path, user + 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o750)).unwrap();
        assert!(make_own(&path, user).unwrap_err().to_string().contains("mode 750"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        let link = scratch.0.join("link");
        symlink(&path, &link).unwrap();
        assert!(make_own(&link, user).is_err(), "a link may lead elsewhere later");
        assert!(make_own(&scratch.0.join("none/own"), user).is_err());
    }

    #[test]
    fn a_name_stands_for_one_file_of_the_user_and_the_namespace() {
        let namespace = namespace().unwrap();
        let found = path("shop").unwrap();
        assert!(found.ends_with(format!("shop-{namespace}")), "{found:?}");
        let directory = fs::metadata(found.parent().unwrap()).unwrap();
        assert_eq!((directory.uid(), directory.mode() & 0o777), (geteuid().as_raw(), 0o700));
        assert_eq!(path("/run/x").unwrap(), PathBuf::from("/run/x"));
        for none in ["", ".", "..", "a\0b"] {
            assert!(path(none).is_err(), "{none:?}");
        }
        let system = Path::new(SYSTEM_DIRECTORY).join(format!("switch-{namespace}"));
        assert_eq!(path(SYSTEM).unwrap(), system);
        let long = path(&format!("/{}", "x".repeat(MAX_PATH))).unwrap_err();
        assert!(long.to_string().contains("longer than 107 bytes"), "{long}");
    }
}
