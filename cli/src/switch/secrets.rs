//! `quicket switch secrets`: the file of a site's secrets.

use std::fmt::Write;
use std::path::Path;

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use quicket::SiteSecrets;
use quicket::secrets::{Root, Tenant};
use serde_json::{Value, json};

use crate::args::{SecretsCommand, SecretsShow};
use crate::exit::{Failure, Kind};
use crate::secrets::{Source, change, make, now, replace};
use crate::site;

pub(super) fn run(command: &SecretsCommand) -> Result<(), Failure> {
    // Tried before: of what follows nothing asks whether it failed.
    let system = SystemRandom::new();
    system.fill(&mut [0; 1]).map_err(|error| Failure::environment("no random numbers", error))?;
    let mut random = |out: &mut [u8]| system.fill(out).expect("the system's random numbers");
    match command {
        SecretsCommand::New { file } => {
            make(file, &SiteSecrets::draw(now(), &mut random))?;
            crate::print(&format!("made {}: number 1 is current", file.display()))
        }
        SecretsCommand::Rotate { file } => {
            let rotated = change(file, |secrets| {
                let rotated = secrets.rotate(now(), &mut random);
                rotated.map_err(|error| site::wrong(file, error))
            })?;
            crate::print(&format!(
                "rotated {}: number {} is current; copy it to the other hosts, and send SIGHUP to what \
                 uses it, within the time between two rotations",
                file.display(),
                rotated.current().number()
            ))
        }
        SecretsCommand::Show(show) => self::show(show),
    }
}

fn show(args: &SecretsShow) -> Result<(), Failure> {
    let secrets = Source::File(args.file.clone()).read()?;
    if let Some(path) = &args.balancer {
        write_balancer(path, &secrets)?;
    }
    let now = now();
    if args.json {
        return crate::print(&report(&secrets, now).to_string());
    }
    let mut text = String::new();
    for (kind, root) in named(&secrets) {
        let _ = writeln!(
            text,
            "{kind:8} number {}, configuration {} of connection IDs, drawn {} ago",
            root.number(),
            root.configuration().number(),
            age(now.saturating_sub(root.made()))
        );
    }
    crate::print(text.trim_end())
}

/// The secrets by what they are, the oldest first.
fn named(secrets: &SiteSecrets) -> Vec<(&'static str, &Root)> {
    let mut roots: Vec<_> = secrets.roots().collect();
    roots.sort_by_key(|root| root.number());
    let current = secrets.current().number();
    let kind = |root: &Root| match root.number().cmp(&current) {
        std::cmp::Ordering::Less => "previous",
        std::cmp::Ordering::Equal => "current",
        std::cmp::Ordering::Greater => "next",
    };
    roots.into_iter().map(|root| (kind(root), root)).collect()
}

fn report(secrets: &SiteSecrets, now: u64) -> Value {
    let roots = named(secrets).into_iter().map(|(kind, root)| {
        let about = json!({
            "number": root.number(),
            "configuration": root.configuration().number(),
            "drawn": root.made(),
            "age_seconds": now.saturating_sub(root.made()),
        });
        (kind.to_owned(), about)
    });
    Value::Object(roots.collect())
}

/// A time in words, in its largest unit.
fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// Writes how connection IDs are read into a balancer's file of connection IDs. Its other lines stay.
fn write_balancer(path: &Path, secrets: &SiteSecrets) -> Result<(), Failure> {
    let before = if path.exists() { site::read_text(path)? } else { String::new() };
    let file = balancer_file(secrets, &before)?;
    if let Err(error) = quicket_balancer::Site::parse(&file) {
        return Err(site::wrong(path, error));
    }
    replace(path, &file)
        .map_err(|error| Failure::file(format!("cannot write {}", path.display()), &error))
}

/// The lines of `secrets` in place of those that `before` has of the kind.
fn balancer_file(secrets: &SiteSecrets, before: &str) -> Result<String, Failure> {
    let impossible = |error: &dyn std::fmt::Display| {
        Failure::new(Kind::Environment, format!("connection IDs: {error}"))
    };
    let format = SiteSecrets::format().map_err(|error| impossible(&error))?;
    let mut out = String::new();
    for root in secrets.roots() {
        let keys = root.keys(Tenant::Site, &site::sign);
        let owner = format.owner().map_or(0, |bits| bits.octets());
        let _ = writeln!(
            out,
            "config {} server-id {} nonce {} key {} owner {owner} mask {}",
            keys.configuration.number(),
            format.server_id_len(),
            format.nonce_len(),
            hex(&keys.block),
            hex(&keys.mask)
        );
    }
    let _ = writeln!(out, "issue {}", secrets.current().configuration().number());
    let is_other = |line: &&str| {
        let first = line.split_ascii_whitespace().next();
        !matches!(first, Some("config" | "issue"))
    };
    for line in before.lines().filter(is_other) {
        let _ = writeln!(out, "{line}");
    }
    Ok(out)
}

fn hex(octets: &[u8]) -> String {
    octets.iter().fold(String::new(), |mut out, octet| {
        let _ = write!(out, "{octet:02x}");
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    use quicket::steering::{Owner, Place, ServerId, aes_128};

    fn rotated() -> SiteSecrets {
        let mut next = 0;
        let mut random = |out: &mut [u8]| {
            next += 1;
            out.fill(next);
        };
        SiteSecrets::draw(1000, &mut random).rotate(2000, &mut random).unwrap()
    }

    #[test]
    fn what_is_shown_has_numbers_and_ages_and_no_secret() {
        let shown = report(&rotated(), 2060);
        assert_eq!(shown["previous"]["number"], 1);
        assert_eq!(shown["current"]["age_seconds"], 1060);
        assert_eq!(
            (&shown["next"]["drawn"], &shown["next"]["configuration"]),
            (&json!(2000), &json!(3))
        );
        let text = shown.to_string();
        assert!(!text.contains("0101") && !text.contains("0303"), "{text}");
        let times = [age(0), age(7199), age(172_799), age(864_000)];
        assert_eq!(times, ["0 s", "119 min", "47 h", "10 d"]);
    }

    /// A balancer with the written file finds the host in connection IDs of all three secrets.
    #[test]
    fn a_balancer_finds_the_host_in_connection_ids_of_the_same_secrets() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("site");
        let key = "5a".repeat(32);
        fs::write(
            &path,
            format!("# kept\nconfig 0 server-id 4 nonce 12 plain\nreport-key {key}\n"),
        )
        .unwrap();
        write_balancer(&path, &rotated()).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains("# kept\nreport-key") && !text.contains("plain"), "{text}");
        let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(&path).unwrap());
        assert_eq!(mode & 0o777, 0o600);
        let site = site::read(&path).unwrap();
        let reader = site.reader(&site::aes).unwrap();
        assert_eq!(site.issue().number(), 2);
        let server_id = ServerId::new(&[0xc4]).unwrap();
        let place = Place { server_id, owner: Some(Owner { generation: 200, worker: 3 }) };
        let system = SystemRandom::new();
        for root in rotated().roots() {
            let codec = root.keys(Tenant::Site, &site::sign).codec(&aes_128).unwrap();
            let id = codec.mint(&place, &mut |out| system.fill(out).unwrap()).unwrap();
            let read = reader.of(id.as_slice()).and_then(|codec| codec.server_id(id.as_slice()));
            assert_eq!(read, Some(server_id), "{}", root.number());
        }
    }
}
