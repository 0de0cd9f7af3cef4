//! Datagrams as packets of UDP.

use std::fs;
use std::net::UdpSocket;

use super::common::{PATIENCE, python};
use super::support::{Client, connection, gateway};
use quicket_testing::until;

/// Answers each packet with its source's port and itself; to one that begins with `#`, with as many bytes as it
/// says.
const ECHO: &str = "
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('127.0.0.1', 0))
print(s.getsockname()[1], flush=True)
while True:
    data, source = s.recvfrom(65536)
    if data.startswith(b'#'):
        s.sendto(b'x' * int(data[1:]), source)
    else:
        s.sendto(str(source[1]).encode() + b' ' + data, source)
";

fn socket(to: &Client) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.connect(to.at()).unwrap();
    socket
}

/// The answer to a packet, which may be lost.
fn ask(socket: &UdpSocket, packet: &[u8]) -> Vec<u8> {
    let mut answer = vec![0; 65536];
    socket.set_read_timeout(Some(std::time::Duration::from_secs(2))).unwrap();
    for _ in 0..10 {
        socket.send(packet).unwrap();
        if let Ok(len) = socket.recv(&mut answer) {
            answer.truncate(len);
            return answer;
        }
    }
    panic!("no answer");
}

#[test]
fn each_sender_is_another_one_for_the_origin() {
    let (_python, port) = python(ECHO);
    let gateway = gateway(&format!("datagrams = \"udp://127.0.0.1:{port}\"\n"));
    let client = Client::start(&gateway, "udp:127.0.0.1:0");
    let (one, two) = (socket(&client), socket(&client));
    let source = |socket: &UdpSocket| {
        let answer = String::from_utf8(ask(socket, b"hello")).unwrap();
        let (source, word) = answer.split_once(' ').unwrap();
        assert_eq!(word, "hello");
        source.to_owned()
    };
    let sources = [source(&one), source(&two)];
    assert_ne!(sources[0], sources[1]);
    assert_eq!([source(&one), source(&two)], sources, "and stays the same one");
    client.stop(&gateway);
}

/// Reads a header of PROXY protocol before each packet, and answers with its third word, whom it names, and the packet.
const PROXIED: &str = "
import socket, struct
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('127.0.0.1', 0))
print(s.getsockname()[1], flush=True)
while True:
    data, source = s.recvfrom(65536)
    assert data[:12] == bytes.fromhex('0d0a0d0a000d0a515549540a'), data
    version, transport, length = struct.unpack('>BBH', data[12:16])
    client, gateway, port, own = struct.unpack('>4s4sHH', data[16:28])
    said = f'{version:x} {transport:x} {socket.inet_ntoa(client)} {port} {socket.inet_ntoa(gateway)} {own} '
    said += data[28:16 + length].hex() + ' '
    s.sendto(said.encode() + data[16 + length:], source)
";

/// proxy-protocol.txt of HAProxy, Section 2.2: 0x12 is UDP over IPv4.
#[test]
fn each_datagram_has_a_proxy_header_where_the_file_says_so() {
    let (_python, port) = python(PROXIED);
    let lines = format!("datagrams = \"udp://127.0.0.1:{port}\"\nproxy_protocol = true\n");
    let gateway = gateway(&lines);
    let connection = connection(&gateway);
    // The second looks like a header itself.
    for word in ["hello", "\r\n\r\n\0\r\nQUIT\n!\u{11}\0\u{c}aaaabbbbccdd", ""] {
        let answer = gateway.runtime.block_on(async {
            connection.send_datagram(word.as_bytes()).await.unwrap();
            let answer = tokio::time::timeout(PATIENCE, connection.recv_datagram()).await;
            answer.expect("an answer").unwrap().to_vec()
        });
        let said = String::from_utf8(answer).unwrap();
        let mut words = said.splitn(8, ' ');
        let mut next = || words.next().unwrap();
        assert_eq!((next(), next(), next()), ("21", "12", "127.0.0.1"), "{said:?}");
        let client: u16 = next().parse().unwrap();
        let local = connection.local_addr().map(|at| at.port());
        assert!(client > 0 && local.is_none_or(|local| local == client), "{said:?} {local:?}");
        assert_eq!(next(), "127.0.0.1", "{said:?}");
        assert_eq!(next(), gateway.port().to_string(), "{said:?}");
        let names = next();
        assert!(names.starts_with("01000474657374") && next() == word, "{said:?}");
    }
}

#[test]
fn what_does_not_fit_is_counted_and_the_rest_goes_on() {
    let (_python, port) = python(ECHO);
    let gateway = gateway(&format!("datagrams = \"udp://127.0.0.1:{port}\"\n"));
    let connection = connection(&gateway);
    gateway.runtime.block_on(async {
        let ask = async |what: &[u8]| {
            connection.send_datagram(what).await.unwrap();
            let answer = tokio::time::timeout(PATIENCE, connection.recv_datagram()).await;
            answer.unwrap().unwrap()
        };
        assert!(ask(b"hello").await.ends_with(b" hello"));
        // More than any datagram of QUIC holds beside its own headers.
        connection.send_datagram(b"#65500").await.unwrap();
        assert_eq!(ask(b"#1000").await.len(), 1000);
        // A stream has nowhere to go.
        let mut stream = connection.open_bi().await.unwrap();
        stream.send().write_all(b"x").await.unwrap();
        let error = stream.recv().read_some(&mut [0]).await.unwrap_err();
        assert_eq!(error, quicket::ReadError::Reset(0x51_4709));
        connection.close(0, b"");
    });
    let log = || fs::read_to_string(gateway.path("access.log")).unwrap_or_default();
    until("the record", || log().contains("\"datagrams_too_large\":1,\"datagrams_dropped\":0,"));
    assert!(log().contains("\"datagrams_received\":3,\"datagrams_sent\":2,"), "{}", log());
}

#[test]
fn a_silent_flow_gives_its_socket_up_and_the_next_packet_has_another() {
    let (_python, port) = python(ECHO);
    let lines = format!("datagrams = \"udp://127.0.0.1:{port}\"\nidle_timeout_ms = 200\n");
    let gateway = gateway(&lines);
    let connection = connection(&gateway);
    gateway.runtime.block_on(async {
        let mut sources = Vec::new();
        for _ in 0..2 {
            connection.send_datagram(b"x").await.unwrap();
            let answer = tokio::time::timeout(PATIENCE, connection.recv_datagram()).await;
            sources.push(answer.expect("an answer").unwrap());
            tokio::time::sleep(std::time::Duration::from_millis(600)).await;
        }
        assert_ne!(sources[0], sources[1]);
    });
}
