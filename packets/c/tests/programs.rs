//! Programs in C: the example, and one that is written for netmap.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use quicket_packets::client::{Opening, Port};
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

/// A program in C that is compiled against the headers.
struct Program {
    file: PathBuf,
    libraries: PathBuf,
}

impl Program {
    fn start(&self, arguments: &[&str]) -> Child {
        let mut command = Command::new(&self.file);
        command.args(arguments).env("LD_LIBRARY_PATH", &self.libraries);
        command.stdout(Stdio::piped()).spawn().unwrap()
    }
}

/// Compiles a program.
fn compile(source: &str) -> Program {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("{}-{}-{next}", source.replace('/', "-"), std::process::id());
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    // Cargo puts the library beside the tests that it is built for.
    let this = std::env::current_exe().unwrap();
    let libraries = this.parent().unwrap().to_owned();
    let compiled = Command::new("cc")
        .args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(here.join("include"))
        .arg("-o")
        .args([&file, &here.join(source)])
        .arg("-L")
        .arg(&libraries)
        .args(["-lquicket_packets_c", "-pthread"])
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    Program { file, libraries }
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
    let mut echo = compile("examples/echo.c").start(&[path, "127.0.0.1", &number]);
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
    let compiled = compile("tests/netmap.c");
    // Another address beside it, of the other family.
    let other = UdpSocket::bind("[::1]:0").unwrap().local_addr().unwrap();
    let name = format!("quicket:{}@udp:{address},tcp:{other}", switch.path.display());
    let mut program = compiled.start(&[&name]);
    let mut output = BufReader::new(program.stdout.take().unwrap());
    let mut said = String::new();
    output.read_line(&mut said).unwrap();
    assert_eq!(said, "ready\n");
    // What cannot be had is told by the numbers of the system: the address is taken, nobody listens, no such name.
    let path = switch.path.display();
    for (name, number) in [
        (name.clone(), libc::EADDRINUSE),
        ("quicket:/nowhere/packets@udp:127.0.0.1:9".to_owned(), libc::ENOENT),
        ("eth0".to_owned(), libc::EINVAL),
        (format!("quicket:{path}@sctp:127.0.0.1:9"), libc::EINVAL),
        (format!("quicket:{path}@udp:127.0.0.1:0"), libc::EINVAL),
        (format!("quicket:{path}@udp:[127.0.0.1]:9"), libc::EINVAL),
        (format!("quicket:{path}@udp"), libc::EINVAL),
    ] {
        let refused = compiled.start(&[&name]).wait_with_output().unwrap();
        let text = String::from_utf8(refused.stdout).unwrap();
        let is_it = text.starts_with(&format!("{number} "));
        assert!(!refused.status.success() && is_it, "{name}: {text}");
    }
    let (mut port, from) = switch.open();
    (0..10).for_each(|n| ask(&mut port, from, address, n));
    said.clear();
    output.read_to_string(&mut said).unwrap();
    assert_eq!(said, "10\n");
    assert!(program.wait().unwrap().success());
}

/// It polls first, and after it has read some of what there is.
#[test]
fn a_program_for_netmap_that_polls_first_is_woken() {
    // As many frames as the ring has room for, if the program does not have its turn.
    const BURSTS: u32 = 110;
    let (switch, address) = (Switch::start("polls"), free());
    let (mut port, from) = switch.open();
    let name = format!("netmap:{}@udp:{address}", switch.path.display());
    let frames: u32 = (0..BURSTS).map(|burst| burst % 9).sum();
    let mut program = compile("tests/polls.c").start(&[&name, &frames.to_string()]);
    let mut output = BufReader::new(program.stdout.take().unwrap());
    let mut said = String::new();
    output.read_line(&mut said).unwrap();
    assert_eq!(said, "ready\n", "{:?}", program.wait());
    let mut next = 0;
    for burst in 0..BURSTS {
        let end = next + burst % 9;
        while next < end {
            let write = |slot: &mut [u8]| {
                let n = (next < end).then_some(next)?;
                next += 1;
                compose::udp(slot, from, address, &n.to_ne_bytes())
            };
            port.send(write).unwrap();
        }
        // Some come while it reads, and others when it sleeps.
        if burst % 4 == 0 {
            std::thread::yield_now();
        }
    }
    said.clear();
    output.read_to_string(&mut said).unwrap();
    assert_eq!((said.as_str(), program.wait().unwrap().code()), ("0\n", Some(0)));
}

/// The switch of [`one_that_polls_for_room_waits_until_the_switch_has_looked`], which is stopped there: it listens at the path that it is told.
#[test]
#[ignore = "a process of another test"]
fn switch_of_another_process() {
    let path = std::env::var_os(PATH).expect("a path");
    let daemon = Daemon::bind(Path::new(&path), false).unwrap();
    let (stop, stopped) = UnixStream::pair().unwrap();
    daemon.run(stopped.as_fd()).unwrap();
    drop(stop);
}

const PATH: &str = "QUICKET_TEST_SWITCH";

/// A process that ends with the test.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A switch that does not go on does not have a program spin which waits for room.
#[test]
fn one_that_polls_for_room_waits_until_the_switch_has_looked() {
    let path = std::env::temp_dir().join(format!("quicket-c-{}-full", std::process::id()));
    let switch = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "switch_of_another_process", "--ignored"])
        .env(PATH, &path)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let number = switch.id();
    let _ends = Ends(switch);
    let signal = |name: &str| {
        let told = Command::new("kill").args([name, number.to_string().as_str()]).status().unwrap();
        assert!(told.success());
    };
    let is_stopped = || {
        let tasks = std::fs::read_dir(format!("/proc/{number}/task")).unwrap();
        let mut states =
            tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("stat")));
        states.all(|state| state.is_ok_and(|state| state.contains(") T ")))
    };
    let started = Instant::now();
    while Opening::connect(&path).is_err() {
        assert!(started.elapsed() < PATIENCE, "no switch");
        std::thread::yield_now();
    }
    let name = format!("netmap:{}@udp:{}", path.display(), free());
    let compiled = compile("tests/polls.c");
    let mut program = Command::new(&compiled.file)
        .args([&name, "full"])
        .env("LD_LIBRARY_PATH", &compiled.libraries)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(program.stdout.take().unwrap());
    let mut said = String::new();
    output.read_line(&mut said).unwrap();
    signal("-STOP");
    while !is_stopped() {
        std::thread::yield_now();
    }
    program.stdin.take().unwrap().write_all(b"\n").unwrap();
    said.clear();
    output.read_line(&mut said).unwrap();
    assert!(said.starts_with("full "), "{said} {:?}", program.wait());
    signal("-CONT");
    said.clear();
    output.read_to_string(&mut said).unwrap();
    assert_eq!((said.as_str(), program.wait().unwrap().code()), ("0\n", Some(0)));
}

#[test]
fn queues_are_threads_of_their_own() {
    const FLOWS: u32 = 30;
    let switch = Switch::start("queues");
    let path = switch.path.to_str().unwrap();
    let mut program = compile("tests/queues.c").start(&[path]);
    let mut output = BufReader::new(program.stdout.take().unwrap());
    let mut said = String::new();
    output.read_line(&mut said).unwrap();
    let number = said.trim().parse().unwrap_or_else(|_| panic!("{said} {:?}", program.wait()));
    let address = SocketAddr::from(([127, 0, 0, 1], number));
    let mut ports: Vec<_> = (0..FLOWS).map(|_| switch.open()).collect();
    for n in 0..300 {
        let (port, from) = &mut ports[(n % FLOWS) as usize];
        ask(port, *from, address, n);
    }
    said.clear();
    output.read_to_string(&mut said).unwrap();
    assert!(program.wait().unwrap().success());
    let counts: Vec<u32> = said.split_whitespace().map(|count| count.parse().unwrap()).collect();
    assert!(counts.iter().sum::<u32>() == 300 && counts.iter().all(|count| *count > 0), "{said}");
}

#[test]
fn threads_of_a_program_for_netmap_have_descriptors_of_one_port() {
    const FLOWS: u32 = 30;
    let (switch, address) = (Switch::start("threads"), free());
    let name = format!("quicket:{}@udp:{address}", switch.path.display());
    let mut program = compile("tests/threads.c").start(&[&name, "300"]);
    let mut output = BufReader::new(program.stdout.take().unwrap());
    let mut said = String::new();
    output.read_line(&mut said).unwrap();
    assert_eq!(said, "ready\n", "{:?}", program.wait());
    let mut ports: Vec<_> = (0..FLOWS).map(|_| switch.open()).collect();
    for n in 0..300 {
        let (port, from) = &mut ports[(n % FLOWS) as usize];
        ask(port, *from, address, n);
    }
    said.clear();
    output.read_to_string(&mut said).unwrap();
    let ended = program.wait().unwrap();
    assert!(ended.success(), "{ended} {said}");
    let counts: Vec<u32> = said.split_whitespace().map(|count| count.parse().unwrap()).collect();
    assert!(counts.iter().sum::<u32>() == 300 && counts.iter().all(|count| *count > 0), "{said}");
}

#[test]
fn a_program_that_was_handed_a_connection_needs_no_path() {
    let switch = Switch::start("handed");
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let mut opening = Opening::connect(&switch.path).unwrap();
    opening.reserve(&socket).unwrap();
    drop(socket);
    let compiled = compile("tests/handed.c");
    let none = Command::new(&compiled.file)
        .env("LD_LIBRARY_PATH", &compiled.libraries)
        .env("QUICKET_PACKETS_FD", "999")
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&none.stdout).starts_with(&format!("{} ", libc::EBADF)));
    // As its standard input: a number that it has, whatever this process has open.
    let mut program = Command::new(&compiled.file)
        .env("LD_LIBRARY_PATH", &compiled.libraries)
        .env("QUICKET_PACKETS_FD", "0")
        .stdin(Stdio::from(opening.confine().unwrap()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(program.stdout.take().unwrap());
    let mut said = String::new();
    output.read_line(&mut said).unwrap();
    assert_eq!(said, format!("{}\n", address.port()), "{:?}", program.wait());
    let (mut port, from) = switch.open();
    ask(&mut port, from, address, 7);
    let mut once = Some(());
    port.send(|slot| compose::udp(slot, from, once.take().map(|()| address)?, b"end")).unwrap();
    assert!(program.wait().unwrap().success());
}

/// What is quoted is from 192.0.2.1 and 2001:db8::1, port 4433, to port 53.
#[test]
fn errors_of_icmp_are_read() {
    let program = compile("tests/icmp.c");
    let read = |frame: &[u8]| {
        let mut child = Command::new(&program.file)
            .env("LD_LIBRARY_PATH", &program.libraries)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(frame).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", output.status);
        String::from_utf8(output.stdout).unwrap()
    };
    // RFC 792: fragmentation needed, with an MTU of 1,400 (RFC 1191, Section 4), of a packet that is quoted with 8 octets.
    let quoted: Vec<u8> = [
        &[0x45, 0, 5, 0xdc, 0, 0, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1, 198, 51, 100, 7][..],
        &[0x11, 0x51, 0, 53, 5, 0xc8, 0, 0],
    ]
    .concat();
    let mut frame = [0; 12].to_vec();
    frame.extend([8, 0, 0x45, 0, 0, 56, 0, 0, 0, 0, 64, 1, 0, 0, 203, 0, 113, 9, 192, 0, 2, 1]);
    frame.extend([3, 4, 0, 0, 0, 0, 5, 0x78]);
    frame.extend(&quoted);
    assert_eq!(
        read(&frame),
        "3 1400 3 4 17\nreporter 203.0.113.9 0\nsource 192.0.2.1 4433\ndestination 198.51.100.7 53\n62 8\n"
    );
    // RFC 4443, Section 3.1: nobody listens on the port.
    let address = |last: u16| {
        let mut octets = [0x2001_u16, 0xdb8, 0, 0, 0, 0, 0, last].map(u16::to_be_bytes).concat();
        octets.truncate(16);
        octets
    };
    let (ours, theirs) = (address(1), address(7));
    let quoted =
        [&[0x60, 0, 0, 0, 0, 8, 17, 64][..], &ours, &theirs, &[0x11, 0x51, 0, 53, 0, 8, 0, 0]]
            .concat();
    let mut frame = [0; 12].to_vec();
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 56, 58, 64]);
    frame.extend([&theirs[..], &ours, &[1, 4, 0, 0, 0, 0, 0, 0], &quoted].concat());
    assert_eq!(
        read(&frame),
        "1 0 1 4 17\nreporter 2001:db8::7 0\nsource 2001:db8::1 4433\ndestination 2001:db8::7 53\n102 8\n"
    );
}

#[test]
fn counters_are_read_and_addresses_given_back() {
    let switch = Switch::start("counters");
    let program = compile("tests/counters.c").start(&[switch.path.to_str().unwrap()]);
    let output = program.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
