//! Programs that know nothing of QUIC: Redis, Samba, netcat, nginx.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::process::{Command, Output, Stdio};

use super::common::{Gateway, directory};
use super::support::{Client, ECHO, echoes, gateway, server};
use quicket_testing::{Process, free_port, nginx, until};

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

fn text(output: Output) -> String {
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn redis(dir: &std::path::Path) -> (Process, u16) {
    let port = free_port();
    let mut command = Command::new("redis-server");
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
    command.args(["--unixsocket", dir.join("redis.sock").to_str().unwrap()]);
    let child = command.current_dir(dir).stdout(Stdio::null()).spawn();
    let redis = Process(child.expect("apt-get install redis-server"));
    until("redis", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    (redis, port)
}

#[test]
fn redis_over_streams_to_tcp_and_to_a_unix_socket() {
    let dir = directory();
    let (_redis, port) = redis(dir.path());
    for streams in [
        format!("tcp://127.0.0.1:{port}"),
        format!("unix:{}", dir.path().join("redis.sock").display()),
    ] {
        let gateway = gateway(&format!("streams = \"{streams}\"\n"));
        let client = Client::start(&gateway, "tcp:127.0.0.1:0");
        let local = client.at().port().to_string();
        let cli = |arguments: &[&str]| {
            text(run(Command::new("redis-cli").args(["-p", &local]).args(arguments)))
        };
        assert_eq!(cli(&["ping"]), "PONG");
        assert_eq!(cli(&["set", "key", "value"]), "OK");
        assert_eq!(cli(&["get", "key"]), "value");
        let load = ["-n", "20000", "-c", "50", "-P", "4", "-q", "-t", "set,get", "-d", "1000"];
        let said = text(run(Command::new("redis-benchmark").args(["-p", &local]).args(load)));
        assert!(said.contains("SET: ") && said.contains("GET: "), "{said}");
        // By a Unix socket on this side, too.
        let path = gateway.path("local.sock");
        let other = Client::start(&gateway, &format!("unix:{}", path.display()));
        assert_eq!(text(run(Command::new("redis-cli").arg("-s").arg(&path).arg("ping"))), "PONG");
        other.stop(&gateway);
        assert!(!path.exists(), "the socket is removed");
    }
}

#[test]
fn smb_carries_files_both_ways() {
    let dir = directory();
    let (path, port) = (dir.path(), free_port());
    fs::create_dir(path.join("share")).unwrap();
    let content: Vec<u8> =
        (0..5_000_000_u32).flat_map(|at| (at ^ (at >> 7)).to_le_bytes()).collect();
    fs::write(path.join("there"), &content).unwrap();
    let user = text(run(Command::new("id").arg("-un")));
    let own = [
        "lock directory",
        "state directory",
        "cache directory",
        "pid directory",
        "private dir",
        "ncalrpc dir",
    ];
    let own = own.map(|what| {
        let own = path.join(what.replace(' ', "-"));
        fs::create_dir(&own).unwrap();
        format!("{what} = {}\n  ", own.display())
    });
    let (own, share) = (own.concat(), path.join("share").display().to_string());
    let configuration = format!(
        "[global]\n  smb ports = {port}\n  interfaces = 127.0.0.1\n  bind interfaces only = yes\n  \
         map to guest = bad user\n  guest account = {user}\n  disable netbios = yes\n  \
         load printers = no\n  printcap name = /dev/null\n  disable spoolss = yes\n  \
         server min protocol = SMB2\n  \
         {own}[share]\n  path = {share}\n  guest ok = yes\n  read only = no\n  force user = {user}\n",
    );
    fs::write(path.join("smb.conf"), configuration).unwrap();
    let log = fs::File::create(path.join("smbd.log")).unwrap();
    let mut command = Command::new("smbd");
    command.args(["--foreground", "--no-process-group", "--debug-stdout", "-s", "smb.conf"]);
    command.current_dir(path).stdout(log).stderr(Stdio::null()).stdin(Stdio::null());
    let _smbd = Process(command.spawn().expect("apt-get install samba"));
    until("smbd", || TcpStream::connect(("127.0.0.1", port)).is_ok());

    let gateway = gateway(&format!("streams = \"tcp://127.0.0.1:{port}\"\n"));
    let client = Client::start(&gateway, "tcp:127.0.0.1:0");
    let mut command = Command::new("smbclient");
    command.args(["//127.0.0.1/share", "-N", "-p", &client.at().port().to_string()]);
    command.args(["-c", "put there here; get here back; ls"]).current_dir(path);
    let output = command.output().expect("apt-get install smbclient");
    let log = fs::read_to_string(path.join("smbd.log")).unwrap_or_default();
    assert!(output.status.success(), "{output:?}\n{log}");
    assert!(fs::read(path.join("share/here")).unwrap() == content);
    assert!(fs::read(path.join("back")).unwrap() == content);
}

/// nc -N shuts its side down after its input: the server answers only then.
#[test]
fn netcat_shuts_one_direction_down_and_reads_the_other() {
    let (_server, port) = server(
        "
def serve(s):
    h = hashlib.sha256()
    while data := s.recv(65536):
        h.update(data)
    s.sendall(h.hexdigest().encode())
    s.close()
",
    );
    let gateway = gateway(&format!("streams = \"tcp://127.0.0.1:{port}\"\n"));
    let client = Client::start(&gateway, "tcp:127.0.0.1:0");
    fs::write(gateway.path("data"), vec![42; 30_000_000]).unwrap();
    let expected = run(Command::new("openssl").args(["dgst", "-sha256"]).arg(gateway.path("data")));
    let mut command = Command::new("nc");
    command.args(["-N", "127.0.0.1", &client.at().port().to_string()]);
    command.stdin(fs::File::open(gateway.path("data")).unwrap());
    let said = text(run(&mut command));
    assert!(!said.is_empty() && text(expected).ends_with(&said), "{said}");
}

#[test]
fn nginx_reads_the_proxy_header() {
    let dir = directory();
    let port = free_port();
    let modules = "/usr/lib/nginx/modules/ngx_stream_module.so";
    let configuration = format!(
        "daemon off; master_process off; pid nginx.pid; load_module {modules};
        events {{ }}
        stream {{
            server {{
                listen 127.0.0.1:{port} proxy_protocol;
                return \"$proxy_protocol_addr $proxy_protocol_port $proxy_protocol_server_port\";
            }}
        }}"
    );
    fs::write(dir.path().join("nginx.conf"), configuration).unwrap();
    let _nginx = nginx::start(dir.path());
    until("nginx", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    let lines = format!("streams = \"tcp://127.0.0.1:{port}\"\nproxy_protocol = true\n");
    let gateway = gateway(&lines);
    let connection = super::support::connection(&gateway);
    let said = gateway.runtime.block_on(async {
        let mut stream = connection.open_bi().await.unwrap();
        stream.finish().unwrap();
        String::from_utf8(stream.read_to_end(1000).await.unwrap()).unwrap()
    });
    let mut words = said.split(' ');
    assert_eq!(words.next(), Some("127.0.0.1"), "{said:?}");
    // The port of the client's socket is that of its connection.
    let local = connection.local_addr().map(|at| at.port());
    let port: u16 = words.next().unwrap().parse().unwrap();
    assert!(port > 0 && local.is_none_or(|local| local == port), "{said:?} {local:?}");
    assert_eq!(words.next(), Some(gateway.port().to_string().as_str()), "{said:?}");
}

#[test]
fn the_proxy_header_names_protocol_and_server() {
    let (_server, port) = server(
        "
def serve(s):
    head = s.recv(16, socket.MSG_WAITALL)
    rest = s.recv(struct.unpack('>H', head[14:])[0], socket.MSG_WAITALL)
    s.sendall(head[:14].hex().encode() + b' ' + rest[12:].hex().encode() + b' ' + s.recv(4))
    s.close()
",
    );
    let lines = format!("streams = \"tcp://127.0.0.1:{port}\"\nproxy_protocol = true\n");
    let gateway = gateway(&lines);
    let client = Client::start(&gateway, "tcp:127.0.0.1:0");
    let mut stream = client.tcp();
    stream.write_all(b"data").unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    let hex = |text: &[u8]| text.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let expected = format!(
        "0d0a0d0a000d0a515549540a2111 {}{}{}{} data",
        "010004",
        hex(b"test"),
        "020009",
        hex(b"localhost")
    );
    assert_eq!(said, expected);
}

#[test]
fn a_thousand_streams_at_once() {
    let (_server, port) = server(ECHO);
    let gateway = gateway(&format!("streams = \"tcp://127.0.0.1:{port}\"\n"));
    let client = Client::start(&gateway, "tcp:127.0.0.1:0");
    let mut streams: Vec<TcpStream> = (0..1000).map(|_| client.tcp()).collect();
    for round in 0..3_u32 {
        for (at, stream) in streams.iter_mut().enumerate() {
            let word = format!("stream {at} round {round}");
            assert!(echoes(stream, word.as_bytes()), "{word}");
        }
    }
    drop(streams);
    client.stop(&gateway);
    until("the record", || log(&gateway).contains("\"streams\":1000,"));
}

/// The access log.
fn log(gateway: &Gateway) -> String {
    fs::read_to_string(gateway.path("access.log")).unwrap_or_default()
}

#[test]
fn without_sites_nothing_listens_over_tcp() {
    let gateway = gateway("streams = \"tcp://127.0.0.1:9\"\n");
    assert!(TcpStream::connect(gateway.addresses[0]).is_err());
    assert!(UdpSocket::bind(gateway.addresses[0]).is_err(), "but over UDP");
}
