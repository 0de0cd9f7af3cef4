//! What the tests share: a gateway in this process, and servers and clients that others wrote.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use quicket::EndpointConfig;
use quicket_gateway::{Bound, config};
use quicket_testing::Process;
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

/// How long anything here may take to come about.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A directory that nginx's workers may read, too, with a certificate for localhost.
pub(crate) fn directory() -> TempDir {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    certificate(dir.path(), "cert", "DNS:localhost,IP:127.0.0.1,IP:::1");
    dir
}

/// Makes NAME.pem and NAME.key, self-signed.
pub(crate) fn certificate(dir: &Path, name: &str, names: &str) {
    let (key, chain) = (format!("{name}.key"), format!("{name}.pem"));
    let mut command = Command::new("openssl");
    command.args([
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
    ]);
    command.args(["-subj", "/CN=test", "-days", "2", "-keyout", &key, "-out", &chain]);
    command.args(["-addext", &format!("subjectAltName={names}")]);
    let output = command.current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// Runs a Python program that prints its port first.
pub(crate) fn python(program: &str) -> (Process, u16) {
    let mut command = Command::new("python3");
    let (process, port) = Process::start(command.args(["-c", program]));
    (process, port.parse().unwrap())
}

/// Answers with what it was asked, as JSON. `?status=N` has it answer so; `?size=N` has a text of that length;
/// `?type=T` is its type; `?sleep=S` has it wait, in seconds.
pub(crate) const ECHO: &str = "
import http.server, json, sys, time, urllib.parse
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def log_message(self, *a): pass
    def answer(self):
        length = int(self.headers.get('content-length') or 0)
        body = self.rfile.read(length) if length else b''
        if self.headers.get('transfer-encoding') == 'chunked':
            while True:
                size = int(self.rfile.readline(), 16)
                body += self.rfile.read(size)
                self.rfile.readline()
                if not size: break
        asked = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
        time.sleep(float(asked.get('sleep', 0)))
        said = json.dumps({'method': self.command, 'path': self.path, 'body': len(body),
                           'headers': [[k.lower(), v] for k, v in self.headers.items()]}).encode()
        if 'size' in asked: said = b'text ' * (int(asked['size']) // 5)
        self.send_response(int(asked.get('status', 200)))
        self.send_header('Content-Length', str(len(said)))
        self.send_header('Content-Type', asked.get('type', 'application/json'))
        if 'cache' in asked: self.send_header('Cache-Control', asked['cache'])
        self.send_header('X-From', 'origin')
        self.end_headers()
        if self.command != 'HEAD': self.wfile.write(said)
    do_GET = do_HEAD = do_POST = do_PUT = do_OPTIONS = answer
class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128
server = Server(('127.0.0.1', 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
";

/// A gateway in this process.
pub(crate) struct Gateway {
    pub(crate) dir: TempDir,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) handle: quicket_gateway::Gateway,
    pub(crate) runtime: Runtime,
    /// The URL of the counters.
    pub(crate) counters: Option<String>,
    stop: Option<oneshot::Sender<()>>,
    ended: Option<tokio::task::JoinHandle<()>>,
}

impl Gateway {
    /// Starts a gateway on a free port, with the certificate of [`directory`]; `file` says all else.
    pub(crate) fn start(dir: TempDir, file: &str) -> Self {
        Self::start_with(dir, "listen = [\"127.0.0.1:0\"]\n", file)
    }

    /// The same, where the lines of the file's top are given, too.
    pub(crate) fn start_with(dir: TempDir, top: &str, file: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let path = write(&dir, top, file);
        let snapshot = config::load(&path).unwrap_or_else(|problems| panic!("{problems:#?}"));
        let (stop, stopped) = oneshot::channel();
        let bound = runtime.block_on(Bound::bind(snapshot, EndpointConfig::default())).unwrap();
        let (addresses, handle) = (bound.addresses(), bound.gateway());
        let counters = bound.metrics().map(|place| place.to_string());
        let ended = runtime.spawn(async move {
            let stop = async {
                let _ = stopped.await;
            };
            bound.run(stop).await.unwrap();
        });
        Self { dir, addresses, handle, runtime, counters, stop: Some(stop), ended: Some(ended) }
    }

    /// Has it read another file; what is wrong with it, if anything is.
    pub(crate) fn reload(&self, top: &str, file: &str) -> Result<(), String> {
        let path = write(&self.dir, top, file);
        let snapshot = config::load(&path).map_err(|problems| format!("{problems:?}"))?;
        let _inside = self.runtime.enter();
        self.handle.replace(snapshot).map_err(|error| error.to_string())
    }

    /// Stops it, and waits for the end.
    pub(crate) fn stop(&mut self) {
        drop(self.stop.take());
        if let Some(ended) = self.ended.take() {
            self.runtime.block_on(ended).unwrap();
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.addresses[0].port()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.port())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn curl(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("curl");
        command.args(["-sS", "--cacert", "cert.pem", "--max-time", "20"]).args(arguments);
        command.current_dir(self.dir.path()).output().unwrap()
    }

    /// The status and the fields, in lower case, of an answer.
    pub(crate) fn head(&self, arguments: &[&str]) -> (u16, String) {
        let output = self.curl(&[&["-o", "/dev/null", "-D", "-"], arguments].concat());
        let head = String::from_utf8(output.stdout).unwrap().to_lowercase();
        let status = head.split_whitespace().nth(1).and_then(|status| status.parse().ok());
        (status.unwrap_or_else(|| panic!("{head:?} {:?}", output.stderr)), head)
    }

    pub(crate) fn status(&self, arguments: &[&str]) -> u16 {
        self.head(arguments).0
    }

    pub(crate) fn text(&self, arguments: &[&str]) -> String {
        String::from_utf8(self.curl(arguments).stdout).unwrap()
    }

    /// What the server of [`ECHO`] was asked.
    pub(crate) fn asked(&self, arguments: &[&str]) -> Value {
        let output = self.curl(arguments);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    }
}

fn write(dir: &TempDir, top: &str, file: &str) -> PathBuf {
    let path = dir.path().join("site.toml");
    let certificate = "[[certificate]]\nchain = \"cert.pem\"\nkey = \"cert.key\"\n";
    fs::write(&path, format!("{top}{certificate}{file}")).unwrap();
    path
}

/// The fields of that name, as the server of [`ECHO`] saw them.
pub(crate) fn header<'a>(asked: &'a Value, name: &str) -> Vec<&'a str> {
    let headers = asked["headers"].as_array().unwrap().iter();
    let named = headers.filter(|header| header[0] == name);
    named.map(|header| header[1].as_str().unwrap()).collect()
}
