//! A key process in this one, and one that stands between it and a gateway.

use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use quicket_keyd::{Allowed, Key, Keys, Server, ServerOptions};

/// What is at the path of a key process.
pub(crate) fn start(path: &Path, keys: &[PathBuf]) -> Server {
    let _ = std::fs::remove_file(path);
    let keys = keys.iter().map(|key| Key::of_file(key).unwrap());
    let mut server = Server::new(Keys::new(keys).unwrap(), &ServerOptions::default()).unwrap();
    server.listen_unix(UnixListener::bind(path).unwrap(), Allowed::default()).unwrap();
    server
}

/// Makes NAME.pem and, in the folder `away`, NAME.key: the gateway's own has no key.
pub(crate) fn certificate(dir: &Path, name: &str, key: &[&str]) -> PathBuf {
    let away = dir.join("away");
    let _ = std::fs::create_dir(&away);
    let path = away.join(format!("{name}.key"));
    // The key is no business of others, whatever the mask is.
    std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(&path).unwrap();
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-nodes", "-subj", "/CN=test", "-days", "2", "-newkey"]);
    command.args(key).arg("-keyout").arg(&path).args(["-out", &format!("{name}.pem")]);
    command.args(["-addext", &format!("subjectAltName=DNS:{name}.test")]);
    let output = command.current_dir(dir).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    path
}

/// Stands between a gateway and its key process. Closed, it holds questions back.
pub(crate) struct Gate {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    is_open: Mutex<bool>,
    opened: Condvar,
    held: AtomicUsize,
}

impl Gate {
    /// At `path`, in front of the key process at `behind`; open.
    pub(crate) fn new(path: &Path, behind: &Path) -> Self {
        let shared = Arc::new(Shared { is_open: Mutex::new(true), ..Shared::default() });
        let (listener, behind) = (UnixListener::bind(path).unwrap(), behind.to_owned());
        let all = Arc::clone(&shared);
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let Ok(far) = UnixStream::connect(&behind) else { continue };
                let shared = Arc::clone(&all);
                let (answers, back) = (far.try_clone().unwrap(), near.try_clone().unwrap());
                thread::spawn(move || copy(near, far, || shared.pass()));
                thread::spawn(move || copy(answers, back, || ()));
            }
        });
        Self { shared }
    }

    pub(crate) fn close(&self) {
        *self.shared.is_open.lock().unwrap() = false;
    }

    pub(crate) fn open(&self) {
        *self.shared.is_open.lock().unwrap() = true;
        self.shared.opened.notify_all();
    }

    /// Questions that are held back now.
    pub(crate) fn held(&self) -> usize {
        self.shared.held.load(Ordering::SeqCst)
    }
}

impl Shared {
    fn pass(&self) {
        self.held.fetch_add(1, Ordering::SeqCst);
        let open = self.is_open.lock().unwrap();
        drop(self.opened.wait_while(open, |is_open| !*is_open).unwrap());
        self.held.fetch_sub(1, Ordering::SeqCst);
    }
}

fn copy(mut from: UnixStream, mut to: UnixStream, pass: impl Fn()) {
    let mut buffer = [0; 4096];
    while let Ok(len @ 1..) = from.read(&mut buffer) {
        pass();
        if to.write_all(&buffer[..len]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}
