//! The served directory: from a request's path to a file, and never out of the directory.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use cap_std::fs::{Dir, Metadata};
use percent_encoding::percent_decode_str;

/// The longest path that is looked at, in bytes.
const MAX_PATH: usize = 4096;
/// How many entries of a directory are listed.
const MAX_ENTRIES: usize = 10_000;

/// A directory whose files can be had. What lies outside of it cannot be reached: neither by `..`
/// nor by symbolic links, whoever changes them at whatever moment.
#[derive(Debug)]
pub(crate) struct Tree {
    root: Dir,
    /// Names that begin with a dot are served, too.
    hidden: bool,
    /// Directories without an index are listed.
    listing: bool,
}

/// What a path leads to.
#[derive(Debug)]
pub(crate) enum Found {
    /// A file, open for reading.
    File {
        /// The file.
        file: File,
        /// What is known of it.
        metadata: Metadata,
        /// The name that its type is guessed by.
        name: PathBuf,
    },
    /// A directory's entries, sorted by name.
    Listing(Vec<Entry>),
    /// A directory whose path lacks the slash at the end.
    NeedsSlash,
    /// Nothing that can be served.
    Nothing,
}

/// An entry of a directory.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    /// Its name.
    pub(crate) name: OsString,
    /// It is a directory.
    pub(crate) is_dir: bool,
    /// Its length in bytes.
    pub(crate) len: u64,
}

impl Tree {
    /// Opens a directory.
    pub(crate) fn open(path: &Path, hidden: bool, listing: bool) -> io::Result<Self> {
        let root = Dir::open_ambient_dir(path, cap_std::ambient_authority())?;
        Ok(Self { root, hidden, listing })
    }

    /// Finds what the path of a request target (still percent-encoded, without a query) names.
    pub(crate) fn find(&self, path: &str) -> io::Result<Found> {
        let Some(relative) = self.relative(path) else { return Ok(Found::Nothing) };
        match self.look_up(&relative, path.ends_with('/')) {
            Err(error) if is_absence(&error) => Ok(Found::Nothing),
            found => found,
        }
    }

    /// A path below the root of only ordinary names; `None` if it has others.
    fn relative(&self, path: &str) -> Option<PathBuf> {
        let path = path.strip_prefix('/').filter(|path| path.len() <= MAX_PATH)?;
        let mut relative = PathBuf::new();
        let mut names = path.split('/').peekable();
        while let Some(name) = names.next() {
            if name.is_empty() && names.peek().is_none() {
                break;
            }
            let name: Vec<u8> = percent_decode_str(name).collect();
            let hidden = name.first() == Some(&b'.') && !self.hidden;
            let special = matches!(name.as_slice(), b"" | b"." | b"..");
            // A separator can only have come here encoded; a backslash and a colon mean something
            // on Windows.
            let odd = name.iter().any(|byte| {
                matches!(byte, 0 | b'/') || cfg!(windows) && matches!(byte, b'\\' | b':')
            });
            if hidden || special || odd {
                return None;
            }
            relative.push(os_name(&name)?);
        }
        Some(relative)
    }

    fn look_up(&self, relative: &Path, wants_dir: bool) -> io::Result<Found> {
        if relative.as_os_str().is_empty() {
            return self.directory(&self.root);
        }
        // Looking first keeps from opening pipes and devices, which can block or act.
        let metadata = self.root.metadata(relative)?;
        if metadata.is_dir() {
            return if wants_dir {
                self.directory(&self.root.open_dir(relative)?)
            } else {
                Ok(Found::NeedsSlash)
            };
        }
        if wants_dir || !metadata.is_file() {
            return Ok(Found::Nothing);
        }
        open(&self.root, relative)
    }

    fn directory(&self, dir: &Dir) -> io::Result<Found> {
        match dir.metadata("index.html") {
            Ok(metadata) if metadata.is_file() => return open(dir, Path::new("index.html")),
            Err(error) if !is_absence(&error) => return Err(error),
            _ => {}
        }
        if !self.listing {
            return Ok(Found::Nothing);
        }
        let mut entries = Vec::new();
        for entry in dir.entries()?.take(MAX_ENTRIES) {
            let name = entry?.file_name();
            if name.as_encoded_bytes().starts_with(b".") && !self.hidden {
                continue;
            }
            // Follows links; what leads nowhere or outside is not listed.
            let Ok(metadata) = dir.metadata(&name) else { continue };
            if metadata.is_dir() || metadata.is_file() {
                entries.push(Entry { name, is_dir: metadata.is_dir(), len: metadata.len() });
            }
        }
        entries.sort();
        Ok(Found::Listing(entries))
    }
}

fn open(dir: &Dir, path: &Path) -> io::Result<Found> {
    let file = dir.open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Ok(Found::Nothing);
    }
    Ok(Found::File { file: file.into_std(), metadata, name: path.to_owned() })
}

/// True for what a client is told as "not found": absent, not allowed, or outside. That the last
/// two exist is not told.
fn is_absence(error: &io::Error) -> bool {
    use io::ErrorKind::*;
    matches!(
        error.kind(),
        NotFound
            | PermissionDenied
            | NotADirectory
            | InvalidInput
            | InvalidFilename
            | CrossesDevices
    ) || is_loop(error)
}

#[cfg(unix)]
fn is_loop(error: &io::Error) -> bool {
    rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::LOOP)
}

#[cfg(not(unix))]
const fn is_loop(_: &io::Error) -> bool {
    false
}

#[cfg(unix)]
fn os_name(name: &[u8]) -> Option<OsString> {
    let name: &OsStr = std::os::unix::ffi::OsStrExt::from_bytes(name);
    Some(name.to_owned())
}

#[cfg(not(unix))]
fn os_name(name: &[u8]) -> Option<OsString> {
    std::str::from_utf8(name).ok().map(|name| OsStr::new(name).to_owned())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::fs;

    /// A directory with a few files, removed in the end, beside a file that must stay private.
    pub(crate) struct Sample(pub(crate) PathBuf);

    impl Sample {
        pub(crate) fn new(name: &str) -> Self {
            let base = std::env::temp_dir().join(format!("quicket-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&base);
            fs::create_dir_all(base.join("root/sub/site")).unwrap();
            fs::write(base.join("private"), "private").unwrap();
            fs::write(base.join("root/a.txt"), "hello, world").unwrap();
            fs::write(base.join("root/.hidden"), "hidden").unwrap();
            fs::write(base.join("root/sub/b & c.html"), "<b>").unwrap();
            fs::write(base.join("root/sub/site/index.html"), "index").unwrap();
            Self(base)
        }

        pub(crate) fn tree(&self) -> Tree {
            Tree::open(&self.0.join("root"), false, true).unwrap()
        }
    }

    impl Drop for Sample {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn content(tree: &Tree, path: &str) -> Option<String> {
        match tree.find(path).unwrap() {
            Found::File { file, .. } => Some(io::read_to_string(file).unwrap()),
            _ => None,
        }
    }

    #[test]
    fn files_are_found_by_their_encoded_names() {
        let sample = Sample::new("found");
        let tree = sample.tree();
        assert_eq!(content(&tree, "/a.txt").as_deref(), Some("hello, world"));
        assert_eq!(content(&tree, "/sub/b%20%26%20c.html").as_deref(), Some("<b>"));
        assert_eq!(content(&tree, "/sub/site/").as_deref(), Some("index"));
        assert!(matches!(tree.find("/sub/site").unwrap(), Found::NeedsSlash));
    }

    #[test]
    fn nothing_outside_the_directory_is_found() {
        let sample = Sample::new("outside");
        let tree = sample.tree();
        for path in [
            "/../private",
            "/%2e%2e/private",
            "/sub/../../private",
            "/..%2fprivate",
            "/sub/..%2f..%2fprivate",
            "//private",
            "/./a.txt",
            "/a.txt%00",
            "/a.txt/",
            "/absent",
            "private",
            "",
            &format!("/{}", "a".repeat(5000)),
            &format!("/{}", "a".repeat(300)),
        ] {
            assert!(matches!(tree.find(path).unwrap(), Found::Nothing), "{path}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn symbolic_links_do_not_lead_out() {
        use std::os::unix::fs::symlink;
        let sample = Sample::new("links");
        symlink("../private", sample.0.join("root/relative")).unwrap();
        symlink(sample.0.join("private"), sample.0.join("root/absolute")).unwrap();
        symlink("..", sample.0.join("root/up")).unwrap();
        symlink("a.txt", sample.0.join("root/inside")).unwrap();
        symlink("loop", sample.0.join("root/loop")).unwrap();
        let tree = sample.tree();
        for path in ["/relative", "/absolute", "/up/", "/up/private", "/loop"] {
            assert!(matches!(tree.find(path).unwrap(), Found::Nothing), "{path}");
        }
        assert_eq!(content(&tree, "/inside").as_deref(), Some("hello, world"));
        let Found::Listing(entries) = tree.find("/").unwrap() else { panic!("no listing") };
        let names: Vec<_> = entries.iter().map(|entry| entry.name.to_str().unwrap()).collect();
        assert_eq!(names, ["a.txt", "inside", "sub"]);
    }

    #[test]
    fn hidden_files_and_listings_are_served_on_request_only() {
        let sample = Sample::new("hidden");
        assert_eq!(content(&sample.tree(), "/.hidden"), None);
        let tree = Tree::open(&sample.0.join("root"), true, false).unwrap();
        assert_eq!(content(&tree, "/.hidden").as_deref(), Some("hidden"));
        assert!(matches!(tree.find("/sub/").unwrap(), Found::Nothing));
    }
}
