//! What is between a gateway and its store, and goes wrong when it is told to.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// What becomes of what the store says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// It comes later.
    Slow(Duration),
    /// It does not come, and nobody says so.
    Silent,
    /// Connections end, and there are none.
    Gone,
    /// It is something else.
    Garbage,
    /// It is yes in place of no.
    Yes,
}

/// A Unix socket in front of that of a store.
pub(crate) struct Proxy {
    path: PathBuf,
    state: Arc<Mutex<State>>,
}

struct State {
    fault: Fault,
    store: PathBuf,
    open: Vec<UnixStream>,
}

impl Proxy {
    pub(crate) fn start(path: PathBuf, store: &Path) -> Self {
        let listener = UnixListener::bind(&path).unwrap();
        let state = State { fault: Fault::None, store: store.to_owned(), open: Vec::new() };
        let state = Arc::new(Mutex::new(state));
        let all = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let mut state = all.lock().unwrap();
                if state.fault == Fault::Gone {
                    continue;
                }
                let Ok(store) = UnixStream::connect(&state.store) else { continue };
                for (from, to, is_answer) in [(&client, &store, false), (&store, &client, true)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let all = Arc::clone(&all);
                    thread::spawn(move || copy(from, to, is_answer, &all));
                }
                state.open.extend([client, store]);
            }
        });
        Self { path, state }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn set(&self, fault: Fault) {
        let mut state = self.state.lock().unwrap();
        state.fault = fault;
        if fault == Fault::Gone {
            cut(&mut state);
        }
    }

    /// From now on it leads to another store, as an address does that moves to a new master.
    pub(crate) fn lead_to(&self, store: &Path) {
        let mut state = self.state.lock().unwrap();
        state.store = store.to_owned();
        cut(&mut state);
    }
}

fn cut(state: &mut State) {
    for stream in state.open.drain(..) {
        let _ = stream.shutdown(std::net::Shutdown::Both);
    }
}

fn copy(mut from: UnixStream, mut to: UnixStream, is_answer: bool, all: &Mutex<State>) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(len) = from.read(&mut buffer) {
        if len == 0 {
            break;
        }
        let fault = all.lock().unwrap().fault;
        let bytes = &buffer[..len];
        let sent = match fault {
            Fault::Slow(delay) if is_answer => {
                thread::sleep(delay);
                to.write_all(bytes)
            }
            Fault::Silent => Ok(()),
            Fault::Garbage if is_answer => to.write_all(b"*3\r\n:x\r\n!!\x00\xff garbage\r\n"),
            Fault::Yes if is_answer => to.write_all(&yes(bytes)),
            _ => to.write_all(bytes),
        };
        if sent.is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}

/// "Nothing" becomes "OK".
fn yes(mut bytes: &[u8]) -> Vec<u8> {
    const NO: &[u8] = b"$-1\r\n";
    let mut out = Vec::with_capacity(bytes.len());
    while let Some(&first) = bytes.first() {
        match bytes.strip_prefix(NO) {
            Some(rest) => {
                out.extend(b"+OK\r\n");
                bytes = rest;
            }
            None => {
                out.push(first);
                bytes = &bytes[1..];
            }
        }
    }
    out
}
