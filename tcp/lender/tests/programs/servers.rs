//! Servers and clients, in the memory of one host.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tempfile::TempDir;

use crate::common::{Switch, pattern, until};
use crate::lent::{Lent, Program, body, connect, fetch, free};

/// A server that answers each connection in a process of its own: what it has got, when that has ended.
pub(crate) const FORKS: &str = "
import socketserver, sys
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        got = b''
        while True:
            piece = self.request.recv(65536)
            if not piece: break
            got += piece
        self.request.sendall(got)
class Server(socketserver.ForkingTCPServer):
    allow_reuse_address = True
Server(('', int(sys.argv[1])), Echo).serve_forever()
";

/// A server that polls many connections, and sends back what comes.
const POLLS: &str = "
import asyncio, sys
async def echo(reader, writer):
    while piece := await reader.read(65536):
        writer.write(piece)
        await writer.drain()
    writer.close()
async def main():
    server = await asyncio.start_server(echo, '127.0.0.1', int(sys.argv[1]))
    await server.serve_forever()
asyncio.run(main())
";

/// A client that polls many connections to that server.
const CLIENT: &str = "
import asyncio, sys
async def one(n):
    reader, writer = await asyncio.open_connection('127.0.0.1', int(sys.argv[1]))
    assert writer.get_extra_info('peername') == ('127.0.0.1', int(sys.argv[1]))
    sent = bytes([n]) * 300000
    async def send():
        writer.write(sent)
        await writer.drain()
        writer.write_eof()
    task = asyncio.create_task(send())
    assert await reader.read() == sent
    await task
    writer.close()
async def main():
    await asyncio.gather(*(one(n) for n in range(50)))
    print('passed')
asyncio.run(main())
";

fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    // Workers of nginx are another user's.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(folder.path().join("large"), pattern(3_000_000)).unwrap();
    fs::write(folder.path().join("small"), "hello\n").unwrap();
    folder
}

fn python(lent: &Lent, program: &str, at: SocketAddr) -> Program {
    lent.start("python3", &["-c", program, &at.port().to_string()])
}

/// What nginx is told: two workers, sendfile, connections that stay.
pub(crate) fn nginx(folder: &Path, listen: &str) -> String {
    let here = folder.display();
    let text = format!(
        "daemon off; master_process on; worker_processes 2; pid {here}/pid; error_log {here}/error warn;
         events {{ worker_connections 512; }}
         http {{ access_log off; sendfile on; tcp_nopush on; tcp_nodelay on; keepalive_timeout 65;
         server {{ {listen} root {here}; }} }}"
    );
    let path = folder.join("nginx.conf");
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn python_serves_files() {
    let (switch, folder) = (Switch::start(), folder());
    let (stack, lent, at) = (switch.stack(), Lent::new(&switch), free());
    let root = folder.path().display().to_string();
    let words = ["-m", "http.server", &at.port().to_string(), "--bind", "127.0.0.1", "-d", &root];
    let server = lent.start("python3", &words);
    assert_eq!(body(&fetch(&stack, at, "/small")), b"hello\n");
    assert_eq!(body(&fetch(&stack, at, "/large")), pattern(3_000_000));
    // The address is the stack's, not the system's.
    assert!(std::net::TcpStream::connect(at).is_err());
    drop(server);
    lent.end();
}

#[test]
fn nginx_with_two_workers_and_curl_have_a_stack_each() {
    let (switch, folder) = (Switch::start(), folder());
    let (stack, at) = (switch.stack(), free());
    let (servers, clients) = (Lent::new(&switch), Lent::new(&switch));
    let configuration = nginx(folder.path(), &format!("listen {at};"));
    let mut server = servers.start("nginx", &["-c", &configuration]);
    drop(connect(&stack, at));
    let fetched = folder.path().join("fetched");
    let url = format!("http://{at}/large");
    clients.run("curl", &["-sS", "--fail", "-o", &fetched.display().to_string(), &url]);
    assert_eq!(fs::read(&fetched).unwrap(), pattern(3_000_000));
    // Many connections at once, and then many requests on each.
    let url = format!("http://{at}/small?[1-400]");
    let words =
        ["-sS", "--fail", "-Z", "--parallel-max", "32", "-w", "%{http_code}\n", "-o", "/dev/null"];
    let codes = clients.run("curl", &[&words[..], &["-H", "Connection: close", &url]].concat());
    assert_eq!(codes.lines().filter(|code| *code == "200").count(), 400);
    let codes = clients.run("curl", &[&words[..], &[&url]].concat());
    assert_eq!(codes.lines().filter(|code| *code == "200").count(), 400);
    server.signal("-QUIT");
    server.wait();
    servers.end();
    clients.end();
}

#[test]
fn a_server_that_forks_hears_the_end_of_what_comes_and_still_answers() {
    let switch = Switch::start();
    let (stack, lent, at) = (switch.stack(), Lent::new(&switch), free());
    let server = python(&lent, FORKS, at);
    for size in [0, 1, 1_000_000] {
        let (mut stream, sent) = (connect(&stack, at), pattern(size));
        stream.write_all(&sent).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        assert_eq!(got, sent);
    }
    drop(server);
    lent.end();
}

#[test]
fn programs_that_poll_talk_to_each_other() {
    let switch = Switch::start();
    let (stack, at) = (switch.stack(), free());
    let (servers, clients) = (Lent::new(&switch), Lent::new(&switch));
    let server = python(&servers, POLLS, at);
    drop(connect(&stack, at));
    assert_eq!(clients.run("python3", &["-c", CLIENT, &at.port().to_string()]), "passed\n");
    drop(server);
    servers.end();
    clients.end();
}

/// A listener at no address is at all of this host, and so is one for IPv6, which shows addresses of IPv4 as mapped.
#[test]
fn a_server_listens_at_all_addresses() {
    const SERVER: &str = "
import socket, sys
server = socket.socket(socket.AF_INET6 if sys.argv[2] == '6' else socket.AF_INET)
server.bind(('', int(sys.argv[1])))
assert server.getsockname()[1] == int(sys.argv[1])
server.listen()
while True:
    stream, peer = server.accept()
    assert stream.getpeername() == peer, peer
    stream.sendall((peer[0] + ' ' + stream.getsockname()[0]).encode())
    stream.close()
";
    let switch = Switch::start();
    let (stack, lent) = (switch.stack(), Lent::new(&switch));
    for (family, told) in [("4", "127.0.0.1 127.0.0.1"), ("6", "::ffff:127.0.0.1 ::ffff:127.0.0.1")]
    {
        let at = free();
        let server = lent.start("python3", &["-c", SERVER, &at.port().to_string(), family]);
        let mut got = String::new();
        connect(&stack, at).read_to_string(&mut got).unwrap();
        assert_eq!(got, told);
        drop(server);
    }
    lent.end();
}

/// Two processes that take connections from one listener: each has some in the end, and none is lost.
#[test]
fn processes_share_a_listener_that_they_inherit() {
    const SERVER: &str = "
import os, socket, sys, time
server = socket.create_server(('127.0.0.1', int(sys.argv[1])), backlog=200)
os.fork()
while True:
    stream, _ = server.accept()
    stream.sendall(str(os.getpid()).encode())
    stream.close()
    time.sleep(0.001)
";
    let switch = Switch::start();
    let (stack, lent, at) = (switch.stack(), Lent::new(&switch), free());
    let server = python(&lent, SERVER, at);
    let mut by = std::collections::HashSet::new();
    until("both processes have had a connection", || {
        let mut got = String::new();
        connect(&stack, at).read_to_string(&mut got).unwrap();
        assert!(!got.is_empty());
        by.insert(got);
        by.len() == 2
    });
    drop(server);
    lent.end();
}

/// A server whose switch has gone waits for connections as before, and does nothing else.
#[test]
fn a_server_whose_switch_has_gone_rests() {
    let (switch, folder) = (Switch::start(), folder());
    let (stack, lent, at) = (switch.stack(), Lent::new(&switch), free());
    let configuration = nginx(folder.path(), &format!("listen {at};"));
    let mut server = lent.start("nginx", &["-c", &configuration]);
    assert_eq!(body(&fetch(&stack, at, "/small")), b"hello\n");
    drop(stack);
    switch.end();
    // A client that asks hears of it, and that the lender is still there.
    let told = lent.output("curl", &["-sS", &format!("http://{at}/small")]);
    assert_eq!(told.status.code(), Some(7), "{told:?}");
    let before = server.ticks();
    std::thread::sleep(std::time::Duration::from_secs(1));
    let spent = server.ticks() - before;
    assert!(spent < 20, "{spent} ticks in a second");
    server.signal("-QUIT");
    server.wait();
    lent.end();
}

/// An address that somebody of the stack has stays that of the socket which tried to listen there.
#[test]
fn who_cannot_listen_tries_again_at_the_same_address() {
    const PROGRAM: &str = "
import errno, socket, sys
at = ('127.0.0.1', int(sys.argv[1]))
one = socket.create_server(at)
other = socket.socket()
other.bind(at)
for n in range(2):
    try:
        other.listen()
        print('listens', other.getsockname())
    except OSError as error:
        print(errno.errorcode[error.errno])
    assert other.getsockname() == at
one.close()
while True:
    try:
        other.listen()
        break
    except OSError as error:
        assert error.errno == errno.EADDRINUSE
assert other.getsockname() == at
";
    let switch = Switch::start();
    let (lent, at) = (Lent::new(&switch), free());
    let told = lent.run("python3", &["-c", PROGRAM, &at.port().to_string()]);
    assert_eq!(told, "EADDRINUSE\nEADDRINUSE\n");
    lent.end();
}

/// As by the system (ip(7)), of the addresses that were reserved.
#[test]
fn each_socket_that_is_bound_to_any_port_has_one_of_its_own() {
    const PROGRAM: &str = "
import errno, socket
def bound(host='127.0.0.1'):
    one = socket.socket()
    one.bind((host, 0))
    return one
def refused(host):
    try:
        print('bound to', bound(host).getsockname())
    except OSError as error:
        print(errno.errorcode[error.errno])
one, other = bound(), bound()
print(one.getsockname()[1], other.getsockname()[1])
for host in ('127.0.0.1', '', '127.0.0.2'): refused(host)
one.listen()
refused('')
port = other.getsockname()[1]
other.close()
while True:
    try:
        other = bound('')
        break
    except OSError as error:
        assert error.errno == errno.EADDRINUSE
assert other.getsockname()[1] == port
other.listen()
for host in ('127.0.0.1', ''): refused(host)
";
    let switch = Switch::start();
    let (lent, addresses) = Lent::handed(&switch, 2);
    let told = lent.run("python3", &["-c", PROGRAM]);
    let [one, other] = [addresses[0].port(), addresses[1].port()];
    let refused = "EADDRINUSE\n";
    let told_of_binding =
        format!("{one} {other}\n{refused}{refused}EADDRNOTAVAIL\n{}", refused.repeat(3));
    assert_eq!(told, told_of_binding);
    lent.end();
}

/// A socket that connects keeps the address that it connects from.
#[test]
fn any_port_is_none_that_a_connection_has() {
    const PROGRAM: &str = "
import errno, socket
def bound():
    one = socket.socket()
    one.bind(('127.0.0.1', 0))
    return one
def two():
    while True:
        # That others are closed may be seen late.
        try: return bound(), bound()
        except OSError as error: assert error.errno == errno.EADDRINUSE
def check(*others):
    assert len({one.getsockname()[1] for one in (server, client, *others)}) == 4
    try: print(bound().getsockname())
    except OSError as error: print(errno.errorcode[error.errno])
server = bound()
server.listen()
client = bound()
client.setblocking(False)
assert client.connect_ex(server.getsockname()) in (0, errno.EINPROGRESS)
check(*two())
client.setblocking(True)
accepted, peer = server.accept()
assert peer == client.getsockname()
client.sendall(b'there')
assert accepted.recv(9) == b'there'
check(*two())
";
    let switch = Switch::start();
    let (lent, _) = Lent::handed(&switch, 4);
    assert_eq!(lent.run("python3", &["-c", PROGRAM]), "EADDRINUSE\nEADDRINUSE\n");
    lent.end();
}
