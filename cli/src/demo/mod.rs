//! `quicket demo`: a server and a client as two processes, real files, every one verified.

mod child;
mod input;
mod story;

use std::fs;
use std::path::{Path, PathBuf};

use self::child::Server;
use self::input::Input;
use self::story::Round;
use crate::args::Demo;
use crate::exit::Failure;

/// How often everything is fetched: on a new connection, then on a resumed one.
const ROUNDS: usize = 2;

/// Runs the command.
pub(crate) fn run(args: &Demo) -> Result<(), Failure> {
    let scratch = tempfile::Builder::new()
        .prefix("quicket-demo-")
        .tempdir()
        .map_err(|error| Failure::environment("cannot make a temporary directory", error))?;
    let place = match &args.keep {
        Some(dir) => {
            fs::create_dir_all(dir).map_err(|error| {
                Failure::environment(format!("cannot make {}", dir.display()), error)
            })?;
            dir.as_path()
        }
        None => scratch.path(),
    };
    let place = &std::path::absolute(place)
        .map_err(|error| Failure::environment("cannot find the directory", error))?;
    let input = Input::gather(args, place)?;
    if !args.json {
        println!("{}", story::beginning(&input));
    }
    let mut server = Server::start(&input.dir, place, qlog(args, place).as_deref())?;
    if !args.json {
        println!("{}", story::server(&server));
    }
    let rounds = fetch_twice(args, place, &input, &mut server)?;
    server.stop();
    if args.json {
        println!("{}", story::json(&input, &rounds)?);
    } else {
        println!("{}", story::end(&input, &rounds));
    }
    Ok(())
}

/// Where connections are logged: only where the logs are kept.
fn qlog(args: &Demo, place: &Path) -> Option<PathBuf> {
    args.keep.is_some().then(|| place.join("qlog"))
}

fn fetch_twice(
    args: &Demo,
    place: &Path,
    input: &Input,
    server: &mut Server,
) -> Result<Vec<Round>, Failure> {
    let urls = place.join("urls");
    let sums = place.join("sha256sums");
    let cannot = |error| Failure::environment("cannot write the lists of files", error);
    fs::write(&urls, input.urls(&server.address)).map_err(cannot)?;
    fs::write(&sums, input.sums()).map_err(cannot)?;
    let mut rounds = Vec::new();
    for number in 1..=ROUNDS {
        let client = child::fetch(&child::Errand {
            urls: &urls,
            sums: &sums,
            output: &place.join(format!("fetched-{number}")),
            sessions: &place.join("sessions"),
            pin: &server.pin,
            qlog: qlog(args, place).as_deref(),
        })?;
        let round = Round { client, server: server.connection_closed()? };
        round.check(input, number)?;
        if !args.json {
            println!("{}", story::round(&round, number));
        }
        rounds.push(round);
    }
    Ok(rounds)
}
