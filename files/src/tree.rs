//! The served directory: from a request's path to a file, and never out of the directory.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use cap_std::fs::{Dir, Metadata};
use http::HeaderMap;
use percent_encoding::percent_decode_str;

use crate::coding::Coding;

/// The longest path that is looked at, in bytes.
const MAX_PATH: usize = 4096;
/// How many entries of a directory are listed.
const MAX_ENTRIES: usize = 10_000;

/// A directory whose files can be had. What lies outside of it cannot be reached: neither by `..`
/// nor by symbolic links, whoever changes them at whatever moment.
#[derive(Debug)]
pub struct Tree {
    root: Dir,
    options: Options,
}

/// What of a directory is served.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Names that begin with a dot are served, too.
    pub hidden: bool,
    /// Directories without an index are listed, on the page that this makes of the path and the entries.
    pub listing: Option<fn(&str, &[Entry]) -> String>,
    /// A file `NAME.br`, `NAME.zst` or `NAME.gz` that is not older than `NAME` is sent to clients that take it.
    pub precompressed: bool,
}

/// What a path leads to.
#[derive(Debug)]
pub enum Found {
    /// A file, open for reading.
    File {
        /// The file.
        file: File,
        /// What is known of it.
        metadata: Metadata,
        /// The name that its type is guessed by.
        name: PathBuf,
        /// How it is compressed, if it lies there so.
        coding: Option<Coding>,
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
pub struct Entry {
    /// Its name.
    pub name: OsString,
    /// It is a directory.
    pub is_dir: bool,
    /// Its length in bytes.
    pub len: u64,
}

impl Tree {
    /// Opens a directory.
    ///
    /// # Errors
    ///
    /// If there is none that may be read.
    pub fn open(path: &Path, options: Options) -> io::Result<Self> {
        let root = Dir::open_ambient_dir(path, cap_std::ambient_authority())?;
        Ok(Self { root, options })
    }

    /// The page of a directory's entries; empty if they are not to be listed.
    pub(crate) fn page(&self, path: &str, entries: &[Entry]) -> String {
        self.options.listing.map(|page| page(path, entries)).unwrap_or_default()
    }

    /// True if clients get one file or another by what they take.
    pub(crate) const fn varies(&self) -> bool {
        self.options.precompressed
    }

    /// Finds what the path of a request target (still percent-encoded, without a query) names.
    ///
    /// # Errors
    ///
    /// If the file cannot be read for another reason than that it is absent, forbidden or outside.
    pub fn find(&self, path: &str, asked: &HeaderMap) -> io::Result<Found> {
        let Some(relative) = self.relative(path) else { return Ok(Found::Nothing) };
        match self.look_up(&relative, path.ends_with('/'), asked) {
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
            let hidden = name.first() == Some(&b'.') && !self.options.hidden;
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

    fn look_up(&self, relative: &Path, wants_dir: bool, asked: &HeaderMap) -> io::Result<Found> {
        if relative.as_os_str().is_empty() {
            return self.directory(&self.root, asked);
        }
        // Looking first keeps from opening pipes and devices, which can block or act.
        let metadata = self.root.metadata(relative)?;
        if metadata.is_dir() {
            return if wants_dir {
                self.directory(&self.root.open_dir(relative)?, asked)
            } else {
                Ok(Found::NeedsSlash)
            };
        }
        if wants_dir || !metadata.is_file() {
            return Ok(Found::Nothing);
        }
        self.open_file(&self.root, relative, asked)
    }

    fn directory(&self, dir: &Dir, asked: &HeaderMap) -> io::Result<Found> {
        match dir.metadata("index.html") {
            Ok(metadata) if metadata.is_file() => {
                return self.open_file(dir, Path::new("index.html"), asked);
            }
            Err(error) if !is_absence(&error) => return Err(error),
            _ => {}
        }
        if self.options.listing.is_none() {
            return Ok(Found::Nothing);
        }
        let mut entries = Vec::new();
        for entry in dir.entries()?.take(MAX_ENTRIES) {
            let name = entry?.file_name();
            if name.as_encoded_bytes().starts_with(b".") && !self.options.hidden {
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

    /// Opens a file, or what it is compressed to.
    fn open_file(&self, dir: &Dir, path: &Path, asked: &HeaderMap) -> io::Result<Found> {
        if self.options.precompressed {
            for coding in Coding::accepted(asked) {
                if let Some(sibling) = sibling(dir, path, coding) {
                    return open(dir, &sibling, path, Some(coding));
                }
            }
        }
        open(dir, path, path, None)
    }
}

/// The path of what a file is compressed to, if it is there and not out of date.
fn sibling(dir: &Dir, path: &Path, coding: Coding) -> Option<PathBuf> {
    let mut name = path.as_os_str().to_owned();
    name.push(coding.suffix());
    let metadata = dir.metadata(&name).ok().filter(Metadata::is_file)?;
    let modified = dir.metadata(path).and_then(|metadata| metadata.modified()).ok()?;
    (metadata.modified().ok()? >= modified).then(|| name.into())
}

fn open(dir: &Dir, path: &Path, name: &Path, coding: Option<Coding>) -> io::Result<Found> {
    let file = dir.open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Ok(Found::Nothing);
    }
    Ok(Found::File { file: file.into_std(), metadata, name: name.to_owned(), coding })
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
            let listing = Some(page as fn(&str, &[Entry]) -> String);
            let options = Options { listing, ..Options::default() };
            Tree::open(&self.0.join("root"), options).unwrap()
        }
    }

    fn page(path: &str, entries: &[Entry]) -> String {
        format!("{path}: {entries:?}")
    }

    fn find(tree: &Tree, path: &str) -> Found {
        tree.find(path, &HeaderMap::new()).unwrap()
    }

    impl Drop for Sample {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn content(tree: &Tree, path: &str) -> Option<String> {
        match find(tree, path) {
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
        assert!(matches!(find(&tree, "/sub/site"), Found::NeedsSlash));
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
            assert!(matches!(find(&tree, path), Found::Nothing), "{path}");
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
            assert!(matches!(find(&tree, path), Found::Nothing), "{path}");
        }
        assert_eq!(content(&tree, "/inside").as_deref(), Some("hello, world"));
        let Found::Listing(entries) = find(&tree, "/") else { panic!("no listing") };
        let names: Vec<_> = entries.iter().map(|entry| entry.name.to_str().unwrap()).collect();
        assert_eq!(names, ["a.txt", "inside", "sub"]);
    }

    #[test]
    fn hidden_files_and_listings_are_served_on_request_only() {
        let sample = Sample::new("hidden");
        assert_eq!(content(&sample.tree(), "/.hidden"), None);
        let options = Options { hidden: true, ..Options::default() };
        let tree = Tree::open(&sample.0.join("root"), options).unwrap();
        assert_eq!(content(&tree, "/.hidden").as_deref(), Some("hidden"));
        assert!(matches!(find(&tree, "/sub/"), Found::Nothing));
    }

    #[test]
    fn compressed_files_are_found_by_who_takes_them_unless_they_are_out_of_date() {
        use std::time::{Duration, SystemTime};
        let sample = Sample::new("compressed");
        let root = sample.0.join("root");
        fs::write(root.join("a.txt.gz"), "gz").unwrap();
        fs::write(root.join("a.txt.br"), "br").unwrap();
        let options = Options { precompressed: true, ..Options::default() };
        let tree = Tree::open(&root, options).unwrap();
        let found = |accepts: &'static str| {
            let mut asked = HeaderMap::new();
            asked.insert("accept-encoding", accepts.parse().unwrap());
            match tree.find("/a.txt", &asked).unwrap() {
                Found::File { coding, name, .. } => {
                    assert_eq!(name, Path::new("a.txt"));
                    coding.map(Coding::name)
                }
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(found("gzip, br"), Some("br"));
        assert_eq!(found("gzip"), Some("gzip"));
        assert_eq!(found("zstd"), None);
        let old = SystemTime::now() - Duration::from_secs(60);
        File::options().write(true).open(root.join("a.txt.br")).unwrap().set_modified(old).unwrap();
        assert_eq!(found("gzip, br"), Some("gzip"), "the other one is out of date");
        #[cfg(unix)]
        {
            fs::remove_file(root.join("a.txt.gz")).unwrap();
            std::os::unix::fs::symlink("../private", root.join("a.txt.gz")).unwrap();
            assert_eq!(found("gzip"), None, "a link leads out");
        }
    }
}
