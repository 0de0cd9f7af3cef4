//! Requests of who was lent nothing, and of programs that make no sense.

use std::os::fd::OwnedFd;

use quicket_tcp_lender::MAX_VISITORS;
use quicket_tcp_protocol::{Answer, Call, Names, Request, Setting};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, recv, send,
    socket_with, sockopt,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::common::{PATIENCE, Switch};
use crate::lent::{Lent, body, fetch, free};

fn visit(names: &Names) -> OwnedFd {
    let flags = SocketFlags::CLOEXEC;
    let visitor = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    let timeout = Some(PATIENCE);
    sockopt::set_socket_timeout(&visitor, sockopt::Timeout::Recv, timeout).unwrap();
    let name = SocketAddrUnix::new_abstract_name(names.requests().as_bytes()).unwrap();
    rustix::net::connect(&visitor, &name).unwrap();
    visitor
}

/// What is answered; None where the lender hangs up.
fn ask(names: &Names, octets: &[u8]) -> Option<Answer> {
    let visitor = visit(names);
    send(&visitor, octets, SendFlags::NOSIGNAL).unwrap();
    let mut answer = [0; 100];
    match recv(&visitor, &mut answer[..], RecvFlags::empty()) {
        Ok((_, 0)) | Err(Errno::CONNRESET) => None,
        Ok((_, len)) => Some(Answer::read(&answer[..len]).unwrap()),
        Err(error) => panic!("{error}"),
    }
}

/// The visitors that a lender has at once in this process, both ends of which are here.
fn visitors() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(u64::MAX).min(16 * MAX_VISITORS as u64);
    let new = Rlimit { current: Some(wanted), maximum: limit.maximum };
    setrlimit(Resource::Nofile, new).unwrap();
    MAX_VISITORS.min(usize::try_from(wanted).unwrap() / 8)
}

#[test]
fn who_was_lent_nothing_gets_no_answer_and_nonsense_ends_nothing() {
    let switch = Switch::start();
    let (stack, lent, at) = (switch.stack(), Lent::new(&switch), free());
    let names = Names::from_variable(lent.variable.as_bytes()).unwrap();
    let call = |token, socket, call| ask(&names, &Request { token, socket, call }.write());
    let token = *names.token();
    assert_eq!(call([0; 16], 0, Call::Socket { is_v6: false }), None);
    let made = call(token, 0, Call::Socket { is_v6: false }).unwrap();
    // Its descriptor has come, and was closed with the message.
    assert_eq!(made.error, 0);
    for octets in [&b"x"[..], &[0; 55], &[0xff; 56], &[0; 57], &[0; 4000]] {
        assert_eq!(ask(&names, octets), None);
    }
    let nobody = Errno::NOTCONN.raw_os_error();
    for socket in [0, 1, 2, made.socket + 1000, u64::MAX, 1 << 63] {
        let to = "192.0.2.1:1".parse().unwrap();
        let calls = [
            Call::Bind(to),
            Call::Listen { backlog: u32::MAX },
            Call::Connect { to, waits: true },
            Call::Names,
        ];
        for wanted in calls {
            assert_eq!(call(token, socket, wanted).unwrap().error, nobody, "{wanted:?}");
        }
        assert_eq!(call(token, socket, Call::Set(Setting::Reset, true)).unwrap().error, 0);
    }
    // Programs still get what they ask for, though many others say nothing.
    let idle: Vec<OwnedFd> = (0..visitors() + 100).map(|_| visit(&names)).collect();
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("file"), "hello\n").unwrap();
    let folder = root.path().display().to_string();
    let words = ["-m", "http.server", &at.port().to_string(), "--bind", "127.0.0.1", "-d", &folder];
    let server = lent.start("python3", &words);
    assert_eq!(body(&fetch(&stack, at, "/file")), b"hello\n");
    drop((server, idle));
    lent.end();
}

/// A program that writes to a listener has a socket less; what it writes to a socket that is not connected is no data.
#[test]
fn what_is_written_without_a_connection_is_no_data() {
    const PROGRAM: &str = "
import os, socket, sys, time
at = ('127.0.0.1', int(sys.argv[1]))
server = socket.create_server(at)
for is_blocking in True, False:
    one = socket.socket()
    os.write(one.fileno(), b'x' * 1000)
    one.setblocking(is_blocking)
    one.connect_ex(at)
    other, _ = server.accept()
    one.setblocking(True)
    one.sendall(b'hello')
    one.close()
    assert other.recv(2000, socket.MSG_WAITALL) == b'hello'
os.write(server.fileno(), b'x' * 1000)
until = time.monotonic() + 10
while True:
    try:
        os.write(server.fileno(), b'x')
        assert time.monotonic() < until
    except OSError:
        break
print('passed')
";
    let switch = Switch::start();
    let (lent, at) = (Lent::new(&switch), free());
    assert_eq!(lent.run("python3", &["-c", PROGRAM, &at.port().to_string()]), "passed\n");
    lent.end();
}
