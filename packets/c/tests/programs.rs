//! Programs in C: the example, and one that is written for netmap.

use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use quicket_packets::client::Port;
use quicket_packets::daemon::Daemon;
use quicket_packets::{Layout, compose};

const PATIENCE: Duration = Duration::from_secs(20);

/// A switch in this process, which ends with it.
struct Switch {
    path: PathBuf,
    _stop: UnixStream,
}

impl Switch {
    fn start(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("quicket-c-{}-{name}", std::process::id()));
        let daemon = Daemon::bind(&path, false).unwrap();
        let (stop, stopped) = UnixStream::pair().unwrap();
        std::thread::spawn(move || daemon.run(stopped.as_fd()).unwrap());
        Self { path, _stop: stop }
    }

    fn open(&self) -> (Port, SocketAddr) {
        let mut port = Port::open(&self.path, Layout::new(64, 64, 2048).unwrap()).unwrap();
        let tuple = port.register(UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
        (port, (tuple.address, tuple.port).into())
    }
}

/// Compiles a program, and starts it.
fn start(source: &str, arguments: &[&str]) -> Child {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let name = format!("{}-{}", source.replace('/', "-"), std::process::id());
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    // Cargo puts the library beside the tests that it is built for.
    let this = std::env::current_exe().unwrap();
    let libraries = this.parent().unwrap();
    let compiled = Command::new("cc")
        .args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(here.join("include"))
        .arg("-o")
        .args([&program, &here.join(source)])
        .arg("-L")
        .arg(libraries)
        .arg("-lquicket_packets_c")
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let mut command = Command::new(&program);
    command.args(arguments).env("LD_LIBRARY_PATH", libraries);
    command.stdout(Stdio::piped()).spawn().unwrap()
}

/// An address that was free a moment ago.
fn free() -> SocketAddr {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn ask(port: &mut Port, from: SocketAddr, to: SocketAddr, n: u32) {
    let mut once = Some(());
    let write = |slot: &mut [u8]| {
        once.take()?;
        compose::udp(slot, from, to, &n.to_ne_bytes())
    };
    assert_eq!(port.send(write).unwrap(), 1);
    assert!(port.wait(Some(PATIENCE)).unwrap(), "no answer");
    let mut came = Vec::new();
    assert_eq!(port.receive(9, |frame| came = frame.to_vec()).unwrap(), 1);
    assert_eq!(came[34..38], [to.port().to_be_bytes(), from.port().to_be_bytes()].concat());
    assert_eq!(came[42..46], n.to_ne_bytes());
}

#[test]
fn the_example_answers() {
    let (switch, address) = (Switch::start("echo"), free());
    let (path, number) = (switch.path.to_str().unwrap(), address.port().to_string());
    let mut echo = start("examples/echo.c", &[path, "127.0.0.1", &number]);
    let mut said = String::new();
    BufReader::new(echo.stdout.take().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, "ready\n");
    let (mut port, from) = switch.open();
    (0..1000).for_each(|n| ask(&mut port, from, address, n));
    let source = include_str!("../examples/echo.c");
    assert!(source.lines().count() < 200, "an example is short");
    echo.kill().unwrap();
    echo.wait().unwrap();
}

#[test]
fn a_program_for_netmap_takes_and_sends_frames() {
    let (switch, address) = (Switch::start("netmap"), free());
    let name = format!("quicket:{}@udp:{address}", switch.path.display());
    let mut program = start("tests/netmap.c", &[&name]);
    let mut output = BufReader::new(program.stdout.take().unwrap());
    let mut said = String::new();
    output.read_line(&mut said).unwrap();
    assert_eq!(said, "ready\n");
    // The address is taken, and that is said with its number and why.
    let refused = start("tests/netmap.c", &[&name]).wait_with_output().unwrap();
    let text = String::from_utf8(refused.stdout).unwrap();
    assert!(!refused.status.success() && text.starts_with("98 "), "{text}");
    let (mut port, from) = switch.open();
    (0..10).for_each(|n| ask(&mut port, from, address, n));
    said.clear();
    output.read_to_string(&mut said).unwrap();
    assert_eq!(said, "10\n");
    assert!(program.wait().unwrap().success());
}
