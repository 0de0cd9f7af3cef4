//! Certificates of clients, by curl, Python's and aioquic's TLS, with authorities of openssl.

mod authority;
#[path = "../behind/mod.rs"]
mod behind;
#[path = "../common/mod.rs"]
mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use authority::{authority, client, openssl, revoke};
use common::{ECHO, Gateway, certificate, directory, header};
use quicket::tokio::Connection;
use quicket::{ClientConfig, ClientTls, Identity};
use quicket_testing::Process;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::AsyncReadExt;

const TOP: &str = "listen = [\"127.0.0.1:0\"]\naccess_log = \"access.log\"\n";

/// A server of [`ECHO`] behind `localhost`, where these lines say what clients show, and `open.test`, where nothing is
/// asked; counters are at `counters.sock`.
struct Site {
    gateway: Gateway,
    port: u16,
    _origin: Process,
}

impl Site {
    fn start(asked: &str) -> Self {
        let dir = folder();
        let (origin, port) = common::python(ECHO);
        let file = file(dir.path(), port, asked);
        Self { gateway: Gateway::start_with(dir, TOP, &file), port, _origin: origin }
    }

    fn reload(&self, asked: &str) -> Result<(), String> {
        self.gateway.reload(TOP, &file(self.gateway.dir.path(), self.port, asked))
    }

    /// What curl gets for a name over a connection for `localhost` or `open.test`; the error of curl if it gets nothing.
    fn curl(&self, connection: &str, name: &str, arguments: &str) -> Result<(u16, String), String> {
        let port = self.gateway.port();
        let mut command = Command::new("curl");
        command.args(["-sS", "--cacert", "cert.pem", "--max-time", "20", "-w", "\n%{http_code}"]);
        command.args(["--resolve", &format!("{connection}:{port}:127.0.0.1")]);
        for forged in ["Client-Cert: forged", "X-Client-Sha256: forged", "x_client_sha256: forged"]
        {
            command.args(["-H", forged]);
        }
        command.args([
            "-H",
            &format!("Host: {name}:{port}"),
            &format!("https://{connection}:{port}/"),
        ]);
        command.args(arguments.split(' ')).current_dir(self.gateway.dir.path());
        said(&command.output().unwrap(), |text| {
            let (body, status) = text.rsplit_once('\n').unwrap();
            (status.parse().unwrap(), body.to_owned())
        })
    }

    /// The same over HTTP/3, by aioquic.
    fn aioquic(&self, connection: &str, name: &str, own: &[&str]) -> Result<(u16, String), String> {
        let mut command = behind::python();
        let (port, dir) = (self.gateway.port().to_string(), self.gateway.dir.path());
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/http3_get.py"));
        command.args([&port, "cert.pem", connection, name]).args(own).current_dir(dir);
        said(&command.output().unwrap(), |text| {
            let (status, body) = text.split_once('\n').unwrap();
            (status.parse().unwrap_or(0), body.to_owned())
        })
    }

    /// A connection for each version of HTTP, with the certificate of this name if there is one.
    fn all(
        &self,
        connection: &str,
        name: &str,
        own: Option<&str>,
    ) -> [Result<(u16, String), String>; 3] {
        let files = own.map(|own| [format!("{own}.pem"), format!("{own}.key")]);
        let files: Vec<&str> = files.iter().flatten().map(String::as_str).collect();
        let options = match files[..] {
            [certificate, key] => format!("--cert {certificate} --key {key}"),
            _ => "-g".to_owned(),
        };
        [
            self.curl(connection, name, &format!("--http1.1 {options}")),
            self.curl(connection, name, &format!("--http2 {options}")),
            self.aioquic(connection, name, &files),
        ]
    }

    fn counters(&self) -> String {
        self.gateway.text(&["--unix-socket", "counters.sock", "http://localhost/metrics"])
    }

    /// A certificate as RFC 9440 writes it.
    fn written(&self, name: &str) -> String {
        let path = self.gateway.dir.path();
        let pem = openssl(path, &format!("x509 -in {name}.pem"));
        let base64: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
        format!(":{base64}:")
    }
}

fn said<T>(output: &Output, read: impl Fn(&str) -> T) -> Result<T, String> {
    match output.status.success() {
        true => Ok(read(&String::from_utf8_lossy(&output.stdout))),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// A folder with a certificate for `localhost` and `open.test`, two authorities, and clients `anna` of one and `eve` of
/// the other.
fn folder() -> TempDir {
    let dir = directory();
    certificate(dir.path(), "cert", "DNS:localhost,DNS:open.test,IP:127.0.0.1");
    for (name, of) in [("ours", "anna"), ("others", "eve")] {
        authority(dir.path(), name);
        client(dir.path(), name, of);
    }
    dir
}

fn file(dir: &Path, port: u16, asked: &str) -> String {
    format!(
        "[limits]\nheader_timeout_ms = 120000\nbody_timeout_ms = 120000\n[metrics]\nlisten = \"unix:{}\"\n[origin.app]\nservers = [\"http://127.0.0.1:{port}\"]\n\
         [[site]]\nnames = [\"open.test\"]\n[[site.route]]\norigin = \"app\"\n\
         [[site]]\nnames = [\"localhost\"]\n[[site.route]]\norigin = \"app\"\n[site.client_certificates]\n{asked}",
        dir.join("counters.sock").display()
    )
}

fn asked(body: &str) -> Value {
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}"))
}

#[test]
fn a_client_shows_its_certificate_and_the_origin_is_told_of_it() {
    let site = Site::start(
        "ca = [\"ours.pem\"]\n\
         headers = { certificate = \"client-cert\", fingerprint = \"x-client-sha256\" }\n",
    );
    let fingerprint =
        openssl(site.gateway.dir.path(), "x509 -in anna.pem -noout -fingerprint -sha256");
    let fingerprint = fingerprint.trim().split_once('=').unwrap().1.replace(':', "").to_lowercase();
    for answer in site.all("localhost", "localhost", Some("anna")) {
        let (status, body) = answer.unwrap();
        assert_eq!(status, 200, "{body}");
        let asked = asked(&body);
        assert_eq!(header(&asked, "client-cert"), [site.written("anna")]);
        assert_eq!(header(&asked, "x-client-sha256"), [fingerprint.as_str()]);
        assert!(header(&asked, "x_client_sha256").is_empty(), "{asked}");
        assert!(header(&asked, "client-cert-chain").is_empty(), "nobody asked for it");
    }
    for own in [None, Some("eve")] {
        for answer in site.all("localhost", "localhost", own) {
            assert!(answer.is_err(), "{own:?}: {answer:?}");
        }
    }
    let counters = site.counters();
    for line in [
        "client_certificates_total{outcome=\"verified\"} 3",
        "refused_total{reason=\"no client certificate, and one is required\"} 2",
        "refused_total{reason=\"a client certificate that is not taken\"} 2",
    ] {
        assert!(counters.contains(line), "{line} is not in\n{counters}");
    }
    let log = std::fs::read_to_string(site.gateway.path("access.log")).unwrap();
    let told = format!("\"client_certificate\":\"sha256:{fingerprint}\"");
    assert_eq!(log.matches(&told).count(), 3, "{log}");
}

/// RFC 9113, Section 9.1.1; RFC 9114, Section 3.3.
#[test]
fn a_connection_for_another_name_does_not_get_around_it() {
    let site = Site::start("ca = [\"ours.pem\"]\n");
    for own in [None, Some("anna")] {
        for answer in site.all("open.test", "localhost", own) {
            let (status, body) = answer.unwrap();
            assert_eq!(status, 421, "{own:?}: {body}");
            assert!(body.contains("no client certificate that is taken for this name"), "{body}");
        }
    }
    for answer in site.all("localhost", "open.test", Some("anna")) {
        let (status, body) = answer.unwrap();
        assert_eq!(
            (status, header(&asked(&body), "client-cert")),
            (200, vec![]),
            "nothing is asked there"
        );
    }
    for answer in site.all("open.test", "open.test", None) {
        let (status, body) = answer.unwrap();
        assert_eq!((status, header(&asked(&body), "client-cert")), (200, vec![]), "it is forged");
    }
}

#[test]
fn where_none_is_required_the_origin_is_told_of_those_that_are_shown() {
    let site = Site::start("ca = [\"ours.pem\"]\nrequired = false\n");
    for (own, told) in [(None, vec![]), (Some("anna"), vec![site.written("anna")])] {
        for answer in site.all("localhost", "localhost", own) {
            let (status, body) = answer.unwrap();
            assert_eq!(
                (status, header(&asked(&body), "client-cert")),
                (200, told.iter().map(String::as_str).collect())
            );
        }
    }
    for answer in site.all("localhost", "localhost", Some("eve")) {
        assert!(answer.is_err(), "{answer:?}");
    }
    // A client that was not asked may have one.
    for answer in site.all("open.test", "localhost", None) {
        assert_eq!(answer.unwrap().0, 421);
    }
}

/// Prints a status, waits for a line, and prints another one, over one connection.
const TWICE: &str = "
import http.client, ssl, sys
context = ssl.create_default_context(cafile='cert.pem')
context.load_cert_chain('anna.pem', 'anna.key')
connection = http.client.HTTPSConnection('localhost', int(sys.argv[1]), context=context)
for _ in range(2):
    connection.request('GET', '/')
    answer = connection.getresponse()
    answer.read()
    print(answer.status, flush=True)
    sys.stdin.readline()
";

#[test]
fn what_is_revoked_counts_no_more_on_connections_that_are_open() {
    let site = Site::start("ca = [\"ours.pem\"]\n");
    let dir = site.gateway.dir.path();
    let mut command = Command::new("python3");
    command.args(["-c", TWICE, &site.gateway.port().to_string()]).current_dir(dir);
    let mut client = Process(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(client.0.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "200");
    let listed = "ca = [\"ours.pem\"]\ncrl = [\"ours.crl\"]\n";
    assert!(site.reload(listed).unwrap_err().contains("ours.crl"), "it is not there");
    revoke(dir, "ours", None);
    site.reload(listed).unwrap();
    for answer in site.all("localhost", "localhost", Some("anna")) {
        assert_eq!(answer.unwrap().0, 200);
    }
    revoke(dir, "ours", Some("anna"));
    site.reload(listed).unwrap();
    for answer in site.all("localhost", "localhost", Some("anna")) {
        assert!(answer.is_err(), "{answer:?}");
    }
    client.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "421", "the connection was there before");
    site.reload("ca = [\"ours.pem\"]\n").unwrap();
    for answer in site.all("localhost", "localhost", Some("anna")) {
        assert_eq!(answer.unwrap().0, 200, "the list is gone");
    }
}

/// A session that is resumed shows no certificate.
#[test]
fn clients_that_show_a_certificate_get_no_session_tickets() {
    let site = Site::start("ca = [\"ours.pem\"]\n");
    let said = |name: &str| {
        let address = format!("127.0.0.1:{}", site.gateway.port());
        let mut command = Command::new("openssl");
        command.args(["s_client", "-connect", &address, "-servername", name, "-ign_eof"]);
        command.args(["-cert", "anna.pem", "-key", "anna.key"]);
        command.current_dir(site.gateway.dir.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut client = command.stderr(Stdio::null()).spawn().unwrap();
        let request = format!("GET / HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n");
        client.stdin.take().unwrap().write_all(request.as_bytes()).unwrap();
        let output = client.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains("HTTP/1.1 200 OK"), "{said}");
        said
    };
    assert!(said("open.test").contains("New Session Ticket arrived"));
    assert!(!said("localhost").contains("New Session Ticket arrived"));
}

#[test]
fn private_protocols_ask_too_and_tell_the_origin() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = listener.local_addr().unwrap();
    let file = format!(
        "[[protocol]]\nalpn = [\"test\"]\nstreams = \"tcp://{origin}\"\nproxy_protocol = true\n\
         [protocol.client_certificates]\nca = [\"ours.pem\"]\n"
    );
    let gateway = Gateway::start_with(folder(), TOP, &file);
    let connect = |own: Option<&str>| {
        let mut tls = ClientTls::builder().ca_file(gateway.path("cert.pem")).alpn(["test"]);
        if let Some(own) = own {
            let [chain, key] = ["pem", "key"].map(|kind| gateway.path(&format!("{own}.{kind}")));
            tls = tls.client_certificate(Identity::from_pem_files(chain, key).unwrap());
        }
        let config = ClientConfig::new(tls.build().unwrap());
        gateway.runtime.block_on(async {
            let connection =
                Connection::connect(gateway.addresses[0], "localhost", &config).await?;
            let (mut send, mut receive) = connection.open_bi().await?.split();
            // The server refuses a client after the client's own side of the handshake.
            send.write_all(b"hello").await?;
            send.finish()?;
            let mut answer = Vec::new();
            AsyncReadExt::read_to_end(&mut receive, &mut answer).await?;
            Ok::<_, Box<dyn std::error::Error>>(answer)
        })
    };
    let carried = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        stream.write_all(b"welcome").unwrap();
        all
    });
    for own in [None, Some("eve")] {
        assert!(connect(own).is_err(), "{own:?}");
    }
    assert_eq!(connect(Some("anna")).unwrap(), b"welcome");
    let all = carried.join().unwrap();
    let read = ppp::v2::Header::try_from(all.as_slice()).unwrap();
    let tlvs: Vec<_> = read.tlvs().map(Result::unwrap).collect();
    let shown = tlvs.iter().find(|tlv| tlv.kind == 0x20).expect("PP2_TYPE_SSL");
    let pem = std::fs::read(gateway.path("anna.pem")).unwrap();
    let key = std::fs::read(gateway.path("anna.key")).unwrap();
    let identity = Identity::from_pem(&pem, &key).unwrap();
    assert!(shown.value.ends_with(identity.chain().next().unwrap()), "{shown:?}");
    assert_eq!(shown.value[..5], [3, 0, 0, 0, 0]);
    assert!(all.ends_with(b"hello"));
}

#[test]
fn mistakes_in_the_file_are_told_with_their_place() {
    let site = Site::start("ca = [\"ours.pem\"]\n");
    let told = |asked: &str| site.reload(asked).unwrap_err();
    for (asked, what) in [
        ("ca = []\n", "site 2.client_certificates.ca: there is none"),
        ("ca = [\"missing.pem\"]\n", "missing.pem"),
        ("ca = [\"anna.key\"]\n", "no certificate found"),
        ("ca = [\"ours.pem\"]\ncrl = [\"ours.pem\"]\n", "site 2.client_certificates: "),
        ("ca = [\"ours.pem\"]\ncrl = [\"missing.crl\"]\n", "site 2.client_certificates.crl: "),
        (
            "ca = [\"ours.pem\"]\nheaders = { chain = \"a\" }\n",
            "headers.chain: goes with certificate only",
        ),
        ("ca = [\"ours.pem\"]\nheaders = { certificate = \"host\" }\n", "host says something else"),
        (
            "ca = [\"ours.pem\"]\nheaders = { certificate = \"x-forwarded-for\" }\n",
            "says something else",
        ),
        (
            "ca = [\"ours.pem\"]\nheaders = { certificate = \"a\", fingerprint = \"A\" }\n",
            "the same name",
        ),
        ("ca = [\"ours.pem\"]\nheaders = { certificate = \"a b\" }\n", "no name of a field"),
        ("ca = [\"ours.pem\"]\nmode = \"required\"\n", "unknown field `mode`"),
    ] {
        let told = told(asked);
        let problems = told.replace("place: \"", "").replace("\", what: \"", ": ");
        assert!(problems.contains(what), "{what:?} is not in {told}");
    }
}
