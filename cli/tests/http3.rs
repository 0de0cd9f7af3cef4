//! `quicket get` against the HTTP/3 of others: aioquic's.

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Stdio};

use common::{Outcome, content, get, openssl};
use quicket_lab::peers::{Implementation, Workshop};
use serde_json::Value;
use tempfile::TempDir;

/// A process that serves a directory with a few files.
struct Foreign {
    child: Child,
    /// It says things as long as it runs.
    _said: Option<BufReader<ChildStdout>>,
    dir: TempDir,
    port: u16,
}

fn site() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("hello.txt"), "hello, world\n").unwrap();
    fs::write(root.join("large"), content(3_000_000)).unwrap();
    for number in 0..40 {
        fs::write(root.join(format!("file{number}")), content(1000 * number)).unwrap();
    }
    openssl(dir.path(), "cert", "DNS:localhost,IP:127.0.0.1");
    dir
}

impl Foreign {
    fn aioquic(flags: &[&str]) -> Self {
        let dir = site();
        let mut command =
            Workshop::new().unwrap().prepare(Implementation::Aioquic).unwrap().command();
        command.args(["server", "--listen", "127.0.0.1:0", "--alpn", "h3", "--www", "root"]);
        command.args(["--cert", "cert.pem", "--key", "cert.key"]).args(flags);
        command.current_dir(dir.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        said.read_line(&mut line).unwrap();
        let listening: Value = serde_json::from_str(&line).unwrap();
        let address = listening["address"].as_str().unwrap();
        let port = address.rsplit_once(':').unwrap().1.parse().unwrap();
        Self { child, _said: Some(said), dir, port }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn url(&self, path: &str) -> String {
        format!("https://127.0.0.1:{}{path}", self.port)
    }

    fn get(&self, arguments: &[&str]) -> Outcome {
        let all = [&["--ca", "cert.pem", "--http3-only"], arguments].concat();
        get(self.dir.path(), &all)
    }

    /// Fetches 40 files and a large one on one connection.
    fn fetch_all(&self) -> Value {
        let urls: Vec<String> = (0..40).map(|number| self.url(&format!("/file{number}"))).collect();
        let large = self.url("/large");
        let mut flags = vec!["--json", "-o", "out/", &large];
        flags.extend(urls.iter().map(String::as_str));
        let report = self.get(&flags).assert_code(0).report();
        assert!(fs::read(self.path("out/large")).unwrap() == content(3_000_000));
        for number in 0..40 {
            let file = fs::read(self.path(&format!("out/file{number}"))).unwrap();
            assert!(file == content(1000 * number), "file{number}");
        }
        assert_eq!(report["connections"].as_array().unwrap().len(), 1, "{report}");
        report["connections"][0].clone()
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn aioquic_serves_files_of_all_sizes_and_the_session_is_resumed() {
    for flags in [&[][..], &["--retry"]] {
        let server = Foreign::aioquic(flags);
        let first = server.fetch_all();
        assert_eq!((&first["alpn"], &first["resumed"]), (&"h3".into(), &false.into()), "{first}");
        let again = server.get(&["--json", &server.url("/hello.txt"), "-o", "again"]);
        let report = again.assert_code(0).report();
        assert_eq!(report["connections"][0]["resumed"], true, "{report}");
        assert_eq!(fs::read(server.path("again")).unwrap(), b"hello, world\n");
    }
}

#[test]
fn what_aioquic_does_not_have_is_said() {
    let server = Foreign::aioquic(&[]);
    let absent = server.get(&[&server.url("/absent"), "-o", "x"]);
    assert!(absent.assert_code(1).stderr.contains("404"), "{}", absent.stderr);
    // It knows no ranges: what is there already is fetched again.
    fs::write(server.path("large.part"), &content(3_000_000)[..1_000_000]).unwrap();
    server.get(&["-c", &server.url("/large"), "-o", "large"]).assert_code(0);
    assert!(fs::read(server.path("large")).unwrap() == content(3_000_000));
    let stranger = get(server.dir.path(), &["--http3-only", &server.url("/hello.txt"), "-o", "x"]);
    stranger.assert_code(4);
}
