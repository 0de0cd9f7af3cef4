//! How connections end, and what programs hear of it.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use quicket_tcp::TcpListener;

use crate::common::{PATIENCE, Switch, pattern, until};
use crate::lent::{Lent, Program, connect, free};

/// Prints the error of a client that waits, and of one that polls; and again that another call on the first one is possible.
const REFUSED: &str = "
import errno, select, socket, sys
to = ('127.0.0.1', int(sys.argv[1]))
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
";

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

/// While a connection has not been answered, its socket is not writable; then it is, and no error has come.
#[test]
fn a_client_that_polls_hears_that_it_is_connected() {
    const CLIENT: &str = "
import errno, select, socket, sys
stream = socket.socket()
stream.setblocking(False)
poll = select.epoll()
poll.register(stream, select.EPOLLOUT | select.EPOLLIN)
assert stream.connect_ex(('127.0.0.1', int(sys.argv[1]))) == errno.EINPROGRESS
assert poll.poll(0) == [], poll.poll(0)
again = stream.connect_ex(('127.0.0.1', int(sys.argv[1])))
assert again in (errno.EALREADY, errno.EISCONN), again
assert poll.poll(10) == [(stream.fileno(), select.EPOLLOUT)]
assert stream.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
assert stream.connect_ex(('127.0.0.1', int(sys.argv[1]))) == errno.EISCONN
assert stream.getpeername() == ('127.0.0.1', int(sys.argv[1]))
stream.sendall(b'hello')
assert poll.poll(10)
";
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
    const CLIENT: &str = "
import socket, sys
stream = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
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
";
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
    const SERVER: &str = "
import socket, struct, sys
server = socket.create_server(('127.0.0.1', int(sys.argv[1])))
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
";
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
    const SERVER: &str = "
import socket, sys
server = socket.create_server(('127.0.0.1', int(sys.argv[1])))
stream, _ = server.accept()
sys.stdin.readline()
n = 0
while piece := stream.recv(1 << 20):
    n += len(piece)
stream.sendall(str(n).encode())
";
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
    const SERVER: &str = "
import socket, sys
server = socket.create_server(('127.0.0.1', int(sys.argv[1])))
streams = []
while True: streams.append(server.accept())
";
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
