//! How connections end, and what programs hear of it.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::process::Stdio;
use std::time::Duration;

use quicket_packets::Layout;
use quicket_packets::client::Port;
use quicket_tcp::TcpListener;
use rustix::net::{AddressFamily, SocketType};

use crate::common::{PATIENCE, Switch, pattern, until};
use crate::lent::{Lent, Program, connect, free};

/// A program in Python, which begins with what all have: `to` is the address that it is about.
macro_rules! python {
    ($program:literal) => {
        concat!(
            "
import errno, select, socket, struct, sys, threading
to = ('127.0.0.1', int(sys.argv[1]))",
            $program
        )
    };
}

/// The same with a socket, `stream`, that does not wait, is polled, and has begun to connect.
macro_rules! polling {
    ($program:literal) => {
        concat!(
            python!(
                "
stream = socket.socket()
stream.setblocking(False)
poll = select.epoll()
poll.register(stream, select.EPOLLOUT | select.EPOLLIN)
assert stream.connect_ex(to) == errno.EINPROGRESS"
            ),
            $program
        )
    };
}

/// Prints the error of a client that waits, and of one that polls; and again that another call on the first one is possible.
const REFUSED: &str = python!(
    "
one = socket.socket()
print(errno.errorcode[one.connect_ex(to)], one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
print(errno.errorcode[one.connect_ex(to)])
other = socket.socket()
other.setblocking(False)
poll = select.epoll()
poll.register(other, select.EPOLLOUT)
assert poll.poll(0) == [(other.fileno(), select.EPOLLOUT)], 'as of a socket that is not connected'
print(errno.errorcode[other.connect_ex(to)])
poll.poll(10)
print(errno.errorcode[other.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)])
print(other.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
"
);

#[test]
fn a_client_hears_that_nobody_listens() {
    let switch = Switch::start();
    let (_other, lent, at) = (switch.stack(), Lent::new(&switch), free());
    // Somebody has the address, so that there is a reset.
    let listener = TcpListener::bind(&_other, at).unwrap();
    let mut stream = connect(&_other, at);
    let (mut held, _) = listener.accept().unwrap();
    drop(listener);
    let told = lent.run("python3", &["-c", REFUSED, &at.port().to_string()]);
    assert_eq!(told, "ECONNREFUSED 0\nECONNREFUSED\nEINPROGRESS\nECONNREFUSED\n0\n");
    held.write_all(b"!").unwrap();
    stream.read_exact(&mut [0]).unwrap();
    lent.end();
}

/// While a connection has not been answered, its socket is not writable.
#[test]
fn a_client_that_polls_waits_for_an_answer() {
    const CLIENT: &str = polling!(
        "
print(poll.poll(0.2))
"
    );
    let switch = Switch::start();
    let (lent, nobody) = (Lent::new(&switch), free());
    assert_eq!(lent.run("python3", &["-c", CLIENT, &nobody.port().to_string()]), "[]\n");
    lent.end();
}

/// Another thread shuts a socket down, or closes it, whose connection has not been answered.
#[test]
fn a_client_that_waits_hears_that_its_socket_was_taken_away() {
    const CLIENT: &str = python!(
        "
stream = socket.socket()
def connect():
    print(errno.errorcode[stream.connect_ex(to)])
thread = threading.Thread(target=connect)
thread.start()
sys.stdin.readline()
if sys.argv[2] == 'close':
    stream.close()
else:
    stream.shutdown(socket.SHUT_RDWR)
thread.join()
"
    );
    let switch = Switch::start();
    let lent = Lent::new(&switch);
    // Somebody who hears of a client, and says nothing.
    let mut port = Port::open(&switch.path, Layout::new(16, 16, 2048).unwrap()).unwrap();
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let at = port.register(&socket).unwrap().port.to_string();
    for how in ["shutdown", "close"] {
        let mut command = lent.command("python3");
        command.args(["-c", CLIENT, &at, how]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut client = Program::start(&mut command);
        let mut has_come = false;
        while !has_come {
            assert!(port.wait(Some(PATIENCE)).unwrap(), "no SYN");
            // Behind Ethernet and IPv4, in the flags. What else comes is the end of the one before.
            port.receive(u32::MAX, |frame| {
                has_come |= frame.get(47).is_some_and(|flags| flags & 2 != 0);
            })
            .unwrap();
        }
        client.0.stdin.take().unwrap().write_all(b"\n").unwrap();
        client.wait();
        let mut told = String::new();
        client.0.stdout.take().unwrap().read_to_string(&mut told).unwrap();
        assert_eq!(told, "ECONNABORTED\n", "{how}");
        port.receive(u32::MAX, |_| ()).unwrap();
    }
    lent.end();
}

/// Once it is answered, the socket is writable, and no error has come.
#[test]
fn a_client_that_polls_hears_that_it_is_connected() {
    const CLIENT: &str = polling!(
        "
again = stream.connect_ex(to)
assert again in (errno.EALREADY, errno.EISCONN), again
assert poll.poll(10) == [(stream.fileno(), select.EPOLLOUT)]
assert stream.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
assert stream.connect_ex(to) == errno.EISCONN
assert stream.getpeername() == to
stream.sendall(b'hello')
assert poll.poll(10)
"
    );
    let switch = Switch::start();
    let (other, lent, at) = (switch.stack(), Lent::new(&switch), free());
    let listener = TcpListener::bind(&other, at).unwrap();
    let mut client = lent.start("python3", &["-c", CLIENT, &at.port().to_string()]);
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut got = [0; 5];
    stream.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"hello", "nothing that was sent ahead comes");
    client.wait();
    assert_eq!(stream.read(&mut got).unwrap(), 0);
    drop(stream);
    lent.end();
}

/// RFC 9293, Section 3.10.7.4: a reset is no end of data.
#[test]
fn a_program_hears_of_a_reset() {
    const CLIENT: &str = python!(
        "
stream = socket.create_connection(to)
assert stream.recv(5, socket.MSG_WAITALL) == b'hello'
stream.sendall(b'!')
try:
    print(stream.recv(1))
except ConnectionResetError:
    print('reset')
print(stream.recv(1))
try:
    stream.sendall(b'!')
except BrokenPipeError:
    print('broken')
"
    );
    let switch = Switch::start();
    let (other, lent, at) = (switch.stack(), Lent::new(&switch), free());
    let listener = TcpListener::bind(&other, at).unwrap();
    let port = at.port().to_string();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"hello").unwrap();
            stream.read_exact(&mut [0]).unwrap();
            stream.set_reset_on_drop(true).unwrap();
        });
        assert_eq!(lent.run("python3", &["-c", CLIENT, &port]), "reset\nb''\nbroken\n");
    });
    lent.end();
}

/// Data that a program has not read, and SO_LINGER for no time, make its close a reset (RFC 2525, Section 2.17).
#[test]
fn the_other_side_hears_of_resets_and_of_ends() {
    const SERVER: &str = python!(
        "
server = socket.create_server(to)
for how in sys.argv[2:]:
    stream, _ = server.accept()
    stream.sendall(b'hello')
    if how == 'unread':
        stream.recv(1, socket.MSG_PEEK)
    else:
        stream.recv(1)
    if how == 'linger':
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    if how == 'half':
        stream.shutdown(socket.SHUT_WR)
        assert stream.recv(10, socket.MSG_WAITALL) == b'0123456789'
    stream.close()
"
    );
    let switch = Switch::start();
    let (stack, lent, at) = (switch.stack(), Lent::new(&switch), free());
    let words = ["-c", SERVER, &at.port().to_string(), "end", "unread", "linger", "half"];
    let mut server = lent.start("python3", &words);
    for how in ["end", "unread", "linger", "half"] {
        let mut stream = connect(&stack, at);
        let mut got = [0; 5];
        stream.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"hello");
        stream.write_all(b"!").unwrap();
        let end = stream.read(&mut got).map_err(|error| error.kind());
        let wanted = match how {
            "end" | "half" => Ok(0),
            _ => Err(ErrorKind::ConnectionReset),
        };
        assert_eq!(end, wanted, "{how}");
        if how == "half" {
            stream.write_all(b"0123456789").unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
        }
    }
    server.wait();
    lent.end();
}

/// What a program does not read stays at the other side, but for what buffers take, and all of it comes in the end.
#[test]
fn who_does_not_read_is_not_sent_more_than_buffers_take() {
    const SERVER: &str = python!(
        "
server = socket.create_server(to)
stream, _ = server.accept()
sys.stdin.readline()
n = 0
while piece := stream.recv(1 << 20):
    n += len(piece)
stream.sendall(str(n).encode())
"
    );
    const ALL: usize = 16 << 20;
    let switch = Switch::start();
    let (stack, lent, at) = (switch.stack(), Lent::new(&switch), free());
    let mut command = lent.command("python3");
    command.args(["-c", SERVER, &at.port().to_string()]).stdin(std::process::Stdio::piped());
    let mut server = Program::start(&mut command);
    let mut stream = connect(&stack, at);
    stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let (data, mut sent) = (pattern(1 << 16), 0);
    while let Ok(n) = stream.write(&data) {
        sent += n;
        assert!(sent < 2 << 20, "more than the buffers of both stacks and of the system's");
    }
    assert!(sent > 256 << 10, "{sent}");
    server.0.stdin.take().unwrap().write_all(b"\n").unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    while sent < ALL {
        sent += stream.write(&data[..data.len().min(ALL - sent)]).unwrap();
    }
    stream.shutdown(Shutdown::Write).unwrap();
    let mut told = String::new();
    stream.read_to_string(&mut told).unwrap();
    assert_eq!(told, ALL.to_string());
    server.wait();
    lent.end();
}

/// A program that is killed has closed all that it had.
#[test]
fn a_program_that_is_killed_leaves_nothing_behind() {
    const SERVER: &str = python!(
        "
server = socket.create_server(to)
streams = []
while True: streams.append(server.accept())
"
    );
    let switch = Switch::start();
    let (stack, lent, at) = (switch.stack(), Lent::new(&switch), free());
    let server = lent.start("python3", &["-c", SERVER, &at.port().to_string()]);
    let mut streams: Vec<_> = (0..20).map(|_| connect(&stack, at)).collect();
    drop(server);
    for stream in &mut streams {
        // One that was not accepted yet may be reset.
        assert!(!matches!(stream.read(&mut [0]), Ok(1..)));
    }
    drop(streams);
    // The system has the address back.
    until("the address is free", || std::net::TcpListener::bind(at).is_ok());
    lent.end();
}

/// A client that keeps its window closed, and answers probes, holds a socket that its program has closed for a time only.
#[test]
fn who_takes_nothing_of_a_program_that_has_gone_is_given_up() {
    const SERVER: &str = python!(
        "
server = socket.create_server(to)
stream, _ = server.accept()
stream.setblocking(False)
try:
    while True: stream.send(bytes(65536))
except BlockingIOError:
    stream.close()
"
    );
    let switch = Switch::start();
    let stack = switch.stack();
    let (lent, at) =
        (Lent::with(&switch, |lender| lender.with_orphan_time(Duration::from_secs(1))), free());
    let mut server = lent.start("python3", &["-c", SERVER, &at.port().to_string()]);
    let stream = connect(&stack, at);
    server.wait();
    // The lender ends with its last socket, while the client is still there.
    lent.end();
    drop(stream);
}

/// What has come before a reset is a program's, also if it writes at that time.
#[test]
fn what_came_before_a_reset_is_read_by_who_writes() {
    const CLIENT: &str = python!(
        "
stream = socket.create_connection(to)
def send():
    try:
        stream.sendall(bytes(64 << 20))
    except (BrokenPipeError, ConnectionResetError):
        print('broken', flush=True)
thread = threading.Thread(target=send)
thread.start()
thread.join()
n = 0
try:
    while piece := stream.recv(65536): n += len(piece)
except ConnectionResetError:
    print('reset', n)
"
    );
    // What the other side keeps to send it again.
    const KEPT: usize = 256 << 10;
    let switch = Switch::start();
    let (other, lent, at) = (switch.stack(), Lent::new(&switch), free());
    let listener = TcpListener::bind(&other, at).unwrap();
    let port = at.port().to_string();
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
            let mut sent = 0;
            while let Ok(n) = stream.write(&[1; 1 << 16]) {
                sent += n;
            }
            stream.set_reset_on_drop(true).unwrap();
            sent - KEPT
        });
        let told = lent.run("python3", &["-c", CLIENT, &port]);
        let acknowledged = sender.join().unwrap();
        let (first, n) = told.trim().rsplit_once(' ').unwrap();
        assert_eq!(first, "broken\nreset");
        assert!(n.parse::<usize>().unwrap() >= acknowledged, "{n} of {acknowledged}");
    });
    lent.end();
}

/// What compilers make of calls whose buffers they know, and calls that programs seldom make, tell a reset from an end.
#[test]
fn all_calls_that_receive_hear_of_a_reset() {
    const CALLS: [&str; 5] = ["read", "recv", "recvfrom", "recvmmsg", "preadv2"];
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("receives");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/receives.c");
    let words = ["-O2", "-D_FORTIFY_SOURCE=2", "-Wall", "-Wextra", "-Werror", source, "-o"];
    let compiled = std::process::Command::new("cc").args(words).arg(&program).status();
    assert!(compiled.unwrap().success());
    let switch = Switch::start();
    let (other, lent, at) = (switch.stack(), Lent::new(&switch), free());
    let listener = TcpListener::bind(&other, at).unwrap();
    let (program, port) = (program.display().to_string(), at.port().to_string());
    for call in CALLS {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                stream.read_exact(&mut [0]).unwrap();
                stream.set_reset_on_drop(true).unwrap();
            });
            let told = lent.run(&program, &[&port, call, "16"]);
            assert_eq!(told, "Connection reset by peer\n", "{call}");
        });
    }
    lent.end();
}
