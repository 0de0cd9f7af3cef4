//! `quicket demo`: a server and a client as two processes, real files, every one verified.

mod child;
mod input;
mod story;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use self::child::Server;
use self::input::Input;
use self::story::Round;
use crate::args::Demo;
use crate::exit::{Failure, Kind};

/// How often everything is fetched: on a new connection, then on a resumed one.
const ROUNDS: usize = 2;

/// Runs the command. When it is interrupted, both processes and all files go, too.
pub(crate) fn run(args: &Demo) -> Result<(), Failure> {
    let interrupt = Interrupt::default();
    crate::one_thread()?.block_on(async {
        let mut stop = std::pin::pin!(crate::serve::stop());
        let (args, heard) = (args.clone(), interrupt.clone());
        let mut show = tokio::task::spawn_blocking(move || show(&args, &heard));
        let shown = tokio::select! {
            shown = &mut show => shown,
            () = &mut stop => {
                interrupt.set();
                show.await
            }
        };
        shown
            .unwrap_or_else(|error| Err(Failure::environment("the demonstration broke off", error)))
    })
}

/// Whether this program was told to end.
#[derive(Clone, Debug, Default)]
struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Fails once it was.
    fn check(&self) -> Result<(), Failure> {
        match self.0.load(Ordering::Relaxed) {
            true => Err(Failure::new(Kind::Interrupted, "interrupted")),
            false => Ok(()),
        }
    }
}

fn show(args: &Demo, interrupt: &Interrupt) -> Result<(), Failure> {
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
        crate::print(&story::beginning(&input))?;
    }
    let qlog = qlog(args, place);
    let mut server = Server::start(&input.dir, place, qlog.as_deref(), interrupt.clone())?;
    if !args.json {
        crate::print(&story::server(&server))?;
    }
    let rounds = fetch_twice(args, (place, interrupt), &input, &mut server)?;
    server.stop();
    if args.json {
        crate::print(&story::json(&input, &rounds)?)?;
    } else {
        crate::print(&story::end(&input, &rounds))?;
    }
    Ok(())
}

/// Where connections are logged: only where the logs are kept.
fn qlog(args: &Demo, place: &Path) -> Option<PathBuf> {
    args.keep.is_some().then(|| place.join("qlog"))
}

fn fetch_twice(
    args: &Demo,
    (place, interrupt): (&Path, &Interrupt),
    input: &Input,
    server: &mut Server,
) -> Result<Vec<Round>, Failure> {
    let urls = place.join("urls");
    let sums = place.join("sha256sums");
    let cannot = |error| Failure::environment("cannot write the lists of files", error);
    fs::write(&urls, input.urls(&server.address)).map_err(cannot)?;
    fs::write(&sums, input.sums()).map_err(cannot)?;
    let qlog = qlog(args, place);
    let mut rounds = Vec::new();
    for number in 1..=ROUNDS {
        let errand = child::Errand {
            urls: &urls,
            sums: &sums,
            output: &place.join(format!("fetched-{number}")),
            sessions: &place.join("sessions"),
            pin: &server.pin,
            qlog: qlog.as_deref(),
        };
        let client = child::fetch(&errand, interrupt)?;
        let round = Round { client, server: server.connection_closed()? };
        round.check(input, number)?;
        if !args.json {
            crate::print(&story::round(&round, number))?;
        }
        rounds.push(round);
    }
    Ok(rounds)
}
