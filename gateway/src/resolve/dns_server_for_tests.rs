//! A name server for tests: it answers over UDP and TCP, with what it is told to.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use hickory_resolver::proto::op::{Message, MessageType, ResponseCode};
use hickory_resolver::proto::rr::rdata::CNAME;
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};

/// A name server on loopback, until it is dropped.
pub(crate) struct DnsServer {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    zone: Mutex<HashMap<String, Vec<Record>>>,
    /// Questions for addresses of IPv4.
    asked: AtomicUsize,
    /// Answers over UDP say only that they are too long.
    truncates: AtomicBool,
    ends: AtomicBool,
}

impl DnsServer {
    pub(crate) fn start() -> Self {
        Self::at(SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    pub(crate) fn at(address: SocketAddr) -> Self {
        let (udp, tcp) = (0..20)
            .find_map(|_| {
                let udp = UdpSocket::bind(address).ok()?;
                let tcp = TcpListener::bind(udp.local_addr().ok()?).ok()?;
                Some((udp, tcp))
            })
            .expect("a port that is free over UDP and TCP");
        let address = udp.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        let (over_udp, over_tcp) = (Arc::clone(&shared), Arc::clone(&shared));
        let threads = vec![
            std::thread::spawn(move || serve_udp(&udp, &over_udp)),
            std::thread::spawn(move || serve_tcp(&tcp, &over_tcp)),
        ];
        Self { address, shared, threads }
    }

    /// The name has these addresses from now on, each answer for so many seconds.
    pub(crate) fn say(&self, name: &str, ttl: u32, addresses: &[&str]) {
        let record = |address: &&str| {
            let data = match address.parse().unwrap() {
                IpAddr::V4(v4) => RData::A(v4.into()),
                IpAddr::V6(v6) => RData::AAAA(v6.into()),
            };
            Record::from_rdata(dns_name(name), ttl, data)
        };
        self.set(name, addresses.iter().map(record).collect());
    }

    /// The name is another one's.
    pub(crate) fn alias(&self, name: &str, ttl: u32, other: &str) {
        let data = RData::CNAME(CNAME(dns_name(other)));
        self.set(name, vec![Record::from_rdata(dns_name(name), ttl, data)]);
    }

    fn set(&self, name: &str, records: Vec<Record>) {
        self.shared.zone.lock().unwrap().insert(dns_name(name).to_lowercase().to_string(), records);
    }

    pub(crate) fn forget(&self, name: &str) {
        self.shared.zone.lock().unwrap().remove(&dns_name(name).to_lowercase().to_string());
    }

    pub(crate) fn truncate(&self) {
        self.shared.truncates.store(true, Ordering::Relaxed);
    }

    pub(crate) fn asked(&self) -> usize {
        self.shared.asked.load(Ordering::Relaxed)
    }
}

impl Drop for DnsServer {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn dns_name(name: &str) -> Name {
    Name::from_str(&format!("{name}.")).unwrap()
}

fn serve_udp(socket: &UdpSocket, shared: &Shared) {
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let mut buffer = [0; 4096];
    while !shared.ends.load(Ordering::Relaxed) {
        let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
        if let Some(answer) = shared.answer(&buffer[..length], true) {
            let _ = socket.send_to(&answer, from);
        }
    }
}

fn serve_tcp(listener: &TcpListener, shared: &Shared) {
    listener.set_nonblocking(true).unwrap();
    while !shared.ends.load(Ordering::Relaxed) {
        let Ok((mut stream, _)) = listener.accept() else {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        };
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let mut length = [0; 2];
        // Each message follows its length (RFC 1035, Section 4.2.2).
        while stream.read_exact(&mut length).is_ok() {
            let mut question = vec![0; usize::from(u16::from_be_bytes(length))];
            if stream.read_exact(&mut question).is_err() {
                break;
            }
            let Some(answer) = shared.answer(&question, false) else { break };
            let length = u16::try_from(answer.len()).unwrap().to_be_bytes();
            if stream.write_all(&[&length[..], &answer].concat()).is_err() {
                break;
            }
        }
    }
}

impl Shared {
    fn answer(&self, question: &[u8], is_udp: bool) -> Option<Vec<u8>> {
        let mut message = Message::from_vec(question).ok()?;
        let query = message.queries.first()?.clone();
        if query.query_type() == RecordType::A {
            self.asked.fetch_add(1, Ordering::Relaxed);
        }
        message.metadata.message_type = MessageType::Response;
        message.metadata.recursion_available = true;
        message.edns = None;
        message.additionals.clear();
        if is_udp && self.truncates.load(Ordering::Relaxed) {
            message.metadata.truncation = true;
            return message.to_vec().ok();
        }
        let zone = self.zone.lock().unwrap();
        let mut name = query.name().clone();
        let is_known = zone.contains_key(&name.to_lowercase().to_string());
        // Aliases are followed as servers do that ask for others.
        for _ in 0..8 {
            let Some(records) = zone.get(&name.to_lowercase().to_string()) else { break };
            let is_wanted = |record: &&Record| {
                let found = record.record_type();
                found == query.query_type() || found == RecordType::CNAME
            };
            message.add_answers(records.iter().filter(is_wanted).cloned());
            let next = records.iter().find_map(|record| match &record.data {
                RData::CNAME(CNAME(next)) => Some(next.clone()),
                _ => None,
            });
            let Some(next) = next else { break };
            name = next;
        }
        if !is_known {
            message.metadata.response_code = ResponseCode::NXDomain;
        }
        message.to_vec().ok()
    }
}
