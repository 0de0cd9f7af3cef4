//! A program in C that has QUIC by the system's calls and TLS by GnuTLS, with quinn or quic-go at
//! the other end.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use quicket_lab::Certificates;
use quicket_lab::peers::{Implementation, Workshop};
use quicket_lab::process::Process;
use quicket_workload::peer::Event;

const PATIENCE: Duration = Duration::from_secs(60);
const PEERS: [Implementation; 2] = [Implementation::Quinn, Implementation::QuicGo];

/// The program, compiled, and what it needs.
struct Fixture {
    program: PathBuf,
    certificates: Certificates,
    workshop: Workshop,
}

impl Fixture {
    fn new(name: &str) -> Self {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let compiled = Command::new("cc")
            .args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-I"])
            .arg(here.join("../c/include"))
            .arg("-o")
            .args([&program, &here.join("../preload/tests/programs/echo.c")])
            .args(["-lgnutls", "-ldl"])
            .output()
            .unwrap();
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        let certificates = Certificates::generate().unwrap();
        Self { program, certificates, workshop: Workshop::new().unwrap() }
    }

    /// The program under `quicket run`, or what is the same.
    fn program(&self) -> Command {
        // Cargo puts the library beside the tests that it is built for.
        let this = std::env::current_exe().unwrap();
        let library = this.with_file_name("libquicket_preload.so");
        assert!(library.exists(), "{} is not built", library.display());
        let mut command = Command::new(&self.program);
        command
            .env("LD_PRELOAD", library)
            .env("CERTIFICATE", self.certificates.certificate())
            .env("KEY", self.certificates.key())
            .env("AUTHORITY", self.certificates.authority());
        command
    }

    fn peer(&self, who: Implementation) -> Command {
        self.workshop.prepare(who).unwrap().command()
    }
}

/// Where a server says that it is.
fn listening(server: &mut Process) -> std::net::SocketAddr {
    let event = server.next::<Event>(Instant::now() + PATIENCE).unwrap();
    let Some(Event::Listening { address }) = event else { panic!("{event:?}") };
    address
}

#[test]
fn a_client_by_the_systems_calls_is_served_by_others() {
    let fixture = Fixture::new("echo-client");
    for who in PEERS {
        let mut command = fixture.peer(who);
        command.args(["server", "--listen", "127.0.0.1:0", "--alpn", "echo", "--cert"]);
        command.arg(fixture.certificates.certificate());
        command.arg("--key").arg(fixture.certificates.key());
        let mut server = Process::start(who.name(), &mut command).unwrap();
        let address = listening(&mut server);
        let (ip, port) = (address.ip().to_string(), address.port().to_string());
        let mut client = fixture.program();
        let ran = client.args(["client", &ip, &port]).output().unwrap();
        assert!(ran.status.success(), "{who}: {}", String::from_utf8_lossy(&ran.stderr));
        let deadline = Instant::now() + PATIENCE;
        loop {
            match server.next::<Event>(deadline).unwrap() {
                Some(Event::Closed { streams, facts, .. }) => {
                    let alpn = Some("echo".to_owned());
                    assert_eq!((streams, facts.alpn), (60, alpn), "{who}");
                    break;
                }
                Some(Event::Connection { .. }) => {}
                other => panic!("{who}: {other:?}"),
            }
        }
    }
}

#[test]
fn a_server_by_the_systems_calls_serves_others() {
    let fixture = Fixture::new("echo-server");
    for who in PEERS {
        // This may have to build it: the program does not wait for so long.
        let mut command = fixture.peer(who);
        let mut server = Process::start("the program", fixture.program().arg("server")).unwrap();
        let address = listening(&mut server).to_string();
        command.args(["client", "--connect", &address, "--server-name", "localhost", "--ca"]);
        command.arg(fixture.certificates.authority());
        command.args(["--alpn", "echo", "--streams", "60", "--datagrams", "10"]);
        let mut client = Process::start(who.name(), &mut command).unwrap();
        let (deadline, mut echoed) = (Instant::now() + PATIENCE, None);
        loop {
            match client.next::<Event>(deadline).unwrap() {
                Some(Event::Echo { streams, datagrams, .. }) => echoed = Some((streams, datagrams)),
                Some(Event::Connection { .. } | Event::Closed { .. }) => {}
                Some(Event::Done) => break,
                other => panic!("{who}: {other:?}"),
            }
        }
        assert_eq!(echoed, Some((60, 10)), "{who}");
        assert!(client.wait(deadline).unwrap().success());
        assert!(server.wait(deadline).unwrap().success(), "{}", server.error(who.name()));
    }
}
