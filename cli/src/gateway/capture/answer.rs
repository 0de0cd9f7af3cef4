//! The gateway's end.

use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use quicket_gateway::Gateway;
use quicket_gateway::capture::frame::Frame;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::bounded::Bounded;
use super::{Identity, MAX_QUESTION, PREFIX, Question};
use crate::control::{self, be_patient, may_command};
use crate::serve::say;

/// Who may be answered at a time.
const MAX_ASKERS: usize = 8;
/// How much longer than the capture what it has may take to be read.
const LATE: Duration = Duration::from_secs(10);
/// How long nobody is accepted after that has failed.
const PAUSE: Duration = Duration::from_millis(100);

/// Has a thread answer until the process ends.
pub(crate) fn listen(file: &Path, gateway: Gateway) -> io::Result<()> {
    // A symbolic link may be turned while the gateway runs: where it leads is looked up for each question.
    let file = std::path::absolute(file)?;
    let listener = control::listen(PREFIX)?;
    let thread = thread::Builder::new().name("quicket-capture".to_owned());
    thread.spawn(move || serve(&listener, &file, &gateway)).map(drop)
}

fn serve(listener: &UnixListener, file: &Path, gateway: &Gateway) {
    let askers = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            thread::sleep(PAUSE);
            continue;
        };
        // Others are not even read.
        if !may_command(&stream) {
            continue;
        }
        if askers.load(Ordering::Relaxed) >= MAX_ASKERS {
            let why = format!("{MAX_ASKERS} others ask the gateway: try again later");
            let _ = be_patient(&stream).and_then(|()| Frame::Refused(why).write(&mut &stream));
            continue;
        }
        let place = Place::taken(&askers);
        let (file, gateway) = (file.to_owned(), gateway.clone());
        let meet = move || {
            if let Err(error) = meet(&stream, &file, &gateway) {
                log::debug!("who asked the gateway has gone: {error}");
            }
            drop(place);
        };
        if let Err(error) = thread::Builder::new().name("quicket-asked".to_owned()).spawn(meet) {
            log::warn!("nobody can ask the gateway: {error}");
        }
    }
}

/// The place of somebody who is answered.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn taken(askers: &Arc<AtomicUsize>) -> Self {
        askers.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(askers))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn meet(stream: &UnixStream, file: &Path, gateway: &Gateway) -> io::Result<()> {
    be_patient(stream)?;
    let mut line = String::new();
    BufReader::new(stream.take(MAX_QUESTION)).read_line(&mut line)?;
    match serde_json::from_str(&line)? {
        Question::Who => {
            let file = file.canonicalize().unwrap_or_else(|_| file.to_owned());
            let identity = Identity { file, serves: gateway.takes_new() };
            let mut stream = stream;
            serde_json::to_writer(stream, &identity)?;
            stream.write_all(b"\n")
        }
        Question::Capture(request) => {
            let user = rustix::net::sockopt::socket_peercred(stream)?.uid.as_raw();
            let clients: Vec<String> = request.clients.iter().map(ToString::to_string).collect();
            let clients = clients.join(", ");
            say(format_args!("User {user} asks for a capture of {clients}"));
            // One who reads slowly does not keep others from theirs.
            let time = Duration::from_millis(request.milliseconds).saturating_add(LATE);
            let mut out = BufWriter::with_capacity(128 << 10, Bounded::new(stream, time, 0));
            let ended = gateway.capture(&request, &mut out, || is_there(stream));
            match &ended {
                Ok(Ok(report)) => say(format_args!(
                    "The capture of {clients} has ended: {} datagrams, {} lost, {} lines of secrets, {} qlogs",
                    report.datagrams, report.datagrams_lost, report.secrets, report.qlogs
                )),
                Ok(Err(refused)) => say(format_args!("No capture of {clients}: {refused}")),
                Err(error) => say(format_args!("The capture of {clients} has ended: {error}")),
            }
            // What could not be written is not tried again at its end.
            let _ = out.into_parts();
            ended.map(drop)
        }
    }
}

/// Whoever has asked wants more: it has not closed its half.
fn is_there(stream: &UnixStream) -> bool {
    let mut byte = [0];
    match recv(stream, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((0, _)) => false,
        Ok(_) | Err(Errno::AGAIN | Errno::INTR) => true,
        Err(_) => false,
    }
}
