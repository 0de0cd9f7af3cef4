//! Lists of hashes as `sha256sum` prints them.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use super::target::Target;
use crate::args::Get;
use crate::digest::Sha256;
use crate::exit::{Failure, Kind};

/// The hash that each target must have, if one was given.
pub(crate) fn expected(args: &Get, targets: &[Target]) -> Result<Vec<Option<Sha256>>, Failure> {
    if let Some(path) = &args.sha256sums {
        let text = fs::read_to_string(path).map_err(|error| {
            Failure::environment(format!("cannot read {}", path.display()), error)
        })?;
        let sums = parse(&text, path)?;
        return targets.iter().map(|target| find(&sums, target, path).map(Some)).collect();
    }
    if args.sha256.is_some() && targets.len() != 1 {
        let message = "--sha256 is for one URL; use --sha256sums for several";
        return Err(Failure::new(Kind::Usage, message));
    }
    Ok(vec![args.sha256; targets.len()])
}

fn find(sums: &HashMap<&str, Sha256>, target: &Target, list: &Path) -> Result<Sha256, Failure> {
    let path = target.names()?.join("/");
    sums.get(path.as_str()).copied().ok_or_else(|| {
        let list = list.display();
        Failure::new(Kind::Usage, format!("{list} has no hash of {path}, which is to be fetched"))
    })
}

/// Lines of a hash, a space, a space or an asterisk, and a path.
fn parse<'a>(text: &'a str, list: &Path) -> Result<HashMap<&'a str, Sha256>, Failure> {
    let mut sums = HashMap::new();
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.is_empty()) {
        let wrong = || {
            let list = list.display();
            Failure::new(
                Kind::Usage,
                format!("{list}, line {number}: not a hash and a path as sha256sum prints them"),
            )
        };
        let (hash, path) = line.split_at_checked(64).ok_or_else(wrong)?;
        let path = path.strip_prefix("  ").or_else(|| path.strip_prefix(" *")).ok_or_else(wrong)?;
        let path = path.strip_prefix("./").unwrap_or(path);
        sums.insert(path, hash.parse().map_err(|_| wrong())?);
    }
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn both_modes_of_sha256sum_are_read() {
        let text = format!("{HASH}  ./a b\n\n{HASH} *c/d\n");
        let sums = parse(&text, Path::new("list")).unwrap();
        assert!(sums.contains_key("a b") && sums.contains_key("c/d"), "{sums:?}");
        for wrong in ["x", &format!("{HASH} a"), &format!("{}  a", HASH.replace('b', "x"))] {
            let failure = parse(wrong, Path::new("list")).unwrap_err();
            assert!(failure.message.contains("list, line 1"), "{failure}");
        }
    }
}
