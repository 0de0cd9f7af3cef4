//! Where a path leads: which names in which directories decide what file it is.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// As many symbolic links as Linux follows.
const MAX_LINKS: usize = 40;

/// Names by the directory that has them.
pub(super) type Places = BTreeMap<PathBuf, BTreeSet<OsString>>;

/// Adds all names on the way to a file: those of directories and of symbolic links, too, each of which may be put in
/// another's place. What is not there is awaited where it should be.
pub(super) fn add(path: &Path, places: &mut Places) {
    let mut ahead: VecDeque<OsString> = names(path);
    let (mut at, mut links) = (PathBuf::from("/"), 0);
    while let Some(name) = ahead.pop_front() {
        if name == ".." {
            at.pop();
            continue;
        }
        places.entry(at.clone()).or_default().insert(name.clone());
        let next = at.join(&name);
        let Ok(kind) = fs::symlink_metadata(&next) else { return };
        if !kind.is_symlink() {
            at = next;
            continue;
        }
        links += 1;
        let Ok(target) = fs::read_link(&next) else { return };
        if links > MAX_LINKS {
            return;
        }
        if target.is_absolute() {
            at = PathBuf::from("/");
        }
        for name in names(&target).into_iter().rev() {
            ahead.push_front(name);
        }
    }
}

fn names(path: &Path) -> VecDeque<OsString> {
    let name = |component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        _ => None,
    };
    path.components().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn found(path: &Path, below: &Path) -> Vec<(String, Vec<String>)> {
        let mut places = Places::new();
        add(path, &mut places);
        let inside = places.into_iter().filter(|(directory, _)| directory.starts_with(below));
        let text = |path: &Path| path.strip_prefix(below).unwrap().display().to_string();
        inside
            .map(|(directory, names)| {
                let names = names.iter().map(|name| name.to_string_lossy().into_owned());
                (text(&directory), names.collect())
            })
            .collect()
    }

    /// As Kubernetes mounts files: the name leads to `..data`, and that to a directory of one version.
    #[test]
    fn each_link_on_the_way_counts() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir(root.join("..1")).unwrap();
        fs::write(root.join("..1/a.pem"), "").unwrap();
        symlink("..1", root.join("..data")).unwrap();
        symlink("..data/a.pem", root.join("a.pem")).unwrap();
        let all = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let expected = vec![
            (String::new(), all(&["..1", "..data", "a.pem"])),
            ("..1".to_owned(), all(&["a.pem"])),
        ];
        assert_eq!(found(&root.join("a.pem"), &root), expected);
    }

    #[test]
    fn what_is_not_there_is_awaited_and_circles_end() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let missing = vec![(String::new(), vec!["no".to_owned()])];
        assert_eq!(found(&root.join("no/a.pem"), &root), missing);
        symlink("b", root.join("a")).unwrap();
        symlink("a", root.join("b")).unwrap();
        assert_eq!(found(&root.join("a"), &root).len(), 1);
        let up = root.join("x/../y");
        fs::create_dir(root.join("x")).unwrap();
        assert_eq!(found(&up, &root)[0].1, ["x", "y"]);
    }
}
