//! Where what is fetched goes.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::target::Target;
use crate::args::Get;
use crate::exit::{Failure, Kind};

/// The name of a file whose URL has none.
const INDEX: &str = "index.html";

/// Where one download goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// To standard output.
    Stdout,
    /// To a file; written under another name until it is complete.
    File(PathBuf),
    /// To something else that has a path and cannot be replaced: a device, a named pipe.
    Device(PathBuf),
}

impl Place {
    /// Where an unfinished download is kept.
    pub(crate) fn partial(path: &Path) -> PathBuf {
        with_suffix(path, ".part")
    }

    /// Where the validator of an unfinished download is kept.
    pub(crate) fn validator(path: &Path) -> PathBuf {
        with_suffix(path, ".part.etag")
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Decides for all targets; no two get the same place.
pub(crate) fn decide(args: &Get, targets: &[Target]) -> Result<Vec<Place>, Failure> {
    if args.http.head {
        // Headers go to standard output, and nothing else comes.
        return Ok(vec![Place::Stdout; targets.len()]);
    }
    if args.output.as_os_str() == "-" {
        return match targets {
            [_] if args.resume => Err(usage("--continue needs a file to go on with")),
            [_] if args.json => Err(usage("--json and -o - both want standard output")),
            [_] => Ok(vec![Place::Stdout]),
            _ => Err(usage("only one file can go to standard output")),
        };
    }
    let text = args.output.as_os_str().as_encoded_bytes();
    let into_dir = targets.len() > 1 || args.paths || text.ends_with(b"/") || args.output.is_dir();
    let mut places = Vec::with_capacity(targets.len());
    let mut taken = HashSet::new();
    for target in targets {
        let path = match into_dir {
            true => args.output.join(below(target, args.paths)?),
            false => args.output.clone(),
        };
        if !into_dir {
            has_parent(&path)?;
        }
        if !taken.insert(path.clone()) {
            let message = format!(
                "several URLs would be written to {}; use --paths, or fetch them one by one",
                path.display()
            );
            return Err(usage(&message));
        }
        let exists = path.metadata().map(|found| found.file_type());
        places.push(match exists.is_ok_and(|kind| !kind.is_file() && !kind.is_dir()) {
            true => Place::Device(path),
            false => Place::File(path),
        });
    }
    Ok(places)
}

/// Directories are made where the command line says that there is one, and only there.
fn has_parent(path: &Path) -> Result<(), Failure> {
    let missing = |parent: &&Path| !parent.as_os_str().is_empty() && !parent.exists();
    let Some(parent) = path.parent().filter(missing) else { return Ok(()) };
    let (path, parent) = (path.display(), parent.display());
    let message = format!(
        "cannot write {path}: there is no directory {parent}; make it with mkdir -p, or name a \
         directory that ends with / as --output, which is made"
    );
    Err(Failure::new(Kind::Environment, message))
}

/// The path below the output directory.
fn below(target: &Target, keep_dirs: bool) -> Result<PathBuf, Failure> {
    let mut names = target.names()?;
    if names.last().is_some_and(String::is_empty) {
        names.pop();
        names.push(INDEX.to_owned());
    }
    let first = if keep_dirs { 0 } else { names.len().saturating_sub(1) };
    Ok(names.iter().skip(first).filter(|name| !name.is_empty()).collect())
}

fn usage(message: &str) -> Failure {
    Failure::new(Kind::Usage, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use clap::Parser;

    fn places(line: &[&str]) -> Result<Vec<PathBuf>, Failure> {
        let args = Args::parse_from([&["quicket", "get"], line].concat());
        let Command::Get(get) = args.command else { panic!("not get") };
        let places = decide(&get, &super::super::target::all(&get)?)?;
        Ok(places
            .into_iter()
            .map(|place| match place {
                Place::File(path) => path,
                Place::Device(path) => Path::new("device").join(path.file_name().unwrap()),
                Place::Stdout => "stdout".into(),
            })
            .collect())
    }

    #[test]
    fn one_file_goes_where_it_is_told() {
        let dir = std::env::temp_dir();
        let dir = dir.to_str().unwrap();
        assert_eq!(places(&["https://a/b", "-o", "new"]).unwrap(), [Path::new("new")]);
        assert_eq!(places(&["https://a/b"]).unwrap(), [Path::new("./b")]);
        assert_eq!(places(&["https://a/b", "-o", dir]).unwrap(), [Path::new(dir).join("b")]);
        assert_eq!(places(&["https://a/", "-o", "new/"]).unwrap(), [Path::new("new/index.html")]);
        let failure = places(&["https://a/b", "-o", "/absent/new"]).unwrap_err();
        assert!(failure.message.contains("mkdir -p"), "{failure}");
        assert_eq!(places(&["https://a/b", "-o", "-"]).unwrap(), [Path::new("stdout")]);
        #[cfg(unix)]
        assert_eq!(
            places(&["https://a/b", "-o", "/dev/null"]).unwrap(),
            [Path::new("device/null")]
        );
    }

    #[test]
    fn several_files_go_to_a_directory_and_never_over_each_other() {
        let both = places(&["https://a/x/b", "https://a/y/c", "-o", "d"]).unwrap();
        assert_eq!(both, [Path::new("d/b"), Path::new("d/c")]);
        assert!(places(&["https://a/x/b", "https://a/y/b"]).is_err());
        let kept = places(&["https://a/x/b", "https://a//y/b", "--paths", "-o", "d"]).unwrap();
        assert_eq!(kept, [Path::new("d/x/b"), Path::new("d/y/b")]);
        assert!(places(&["https://a/b", "https://a/c", "-o", "-"]).is_err());
    }
}
