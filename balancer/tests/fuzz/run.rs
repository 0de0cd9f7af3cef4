//! What a balancer does with bytes of strangers and operators, and what must hold whatever they are.

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};

use quicket_balancer::{
    Config, Decision, Flow, Flows, Health, MAX_HEADER, Numbers, REPORT_LEN, Report, Site, Snapshot,
    encapsulate, header_len,
};
use quicket_gue::{Packet, Sum, decode, pseudo_header};
use quicket_steering::{Block, BlockCipher};

#[derive(Debug)]
struct Toy([u8; 16]);

impl BlockCipher for Toy {
    fn encrypt(&self, block: &mut Block) {
        block.iter_mut().zip(self.0).for_each(|(octet, key)| *octet ^= key);
    }

    fn decrypt(&self, block: &mut Block) {
        self.encrypt(block);
    }
}

/// A site with connection IDs in plain text, of one pass, and of four.
static SNAPSHOT: LazyLock<(Config, Snapshot)> = LazyLock::new(|| {
    let site = "config 0 server-id 1 nonce 15 plain\nconfig 1 server-id 1 nonce 15 key \
                000102030405060708090a0b0c0d0e0f\nconfig 2 server-id 2 nonce 13 owner 1 mask \
                0001020304050607 key 0f0e0d0c0b0a09080706050403020100\nissue 0";
    let site = Site::parse(site).unwrap();
    let server = |n: u8| format!("server s{n} 10.0.0.{} id {n:02x} id 00{n:02x}\n", n + 1);
    let servers: String = (0..100).map(server).collect();
    let config = format!("listen 192.0.2.1:443\nreports 10.0.0.9:1\n{servers}");
    let config = Config::parse(&config).unwrap();
    let reader = site.reader(&|key| Arc::new(Toy(*key)));
    let numbers = &mut Numbers::default();
    let snapshot = Snapshot::new(&config, reader, &Health::new(0), numbers, 0);
    (config, snapshot)
});

/// The first byte chooses where the input begins.
pub(crate) fn run(input: &[u8]) {
    let Some((choice, bytes)) = input.split_first() else { return };
    match choice % 4 {
        0 => datagram(bytes, *choice),
        1 => report(bytes),
        2 => config(&String::from_utf8_lossy(bytes)),
        _ => site(&String::from_utf8_lossy(bytes)),
    }
}

/// Two balancers agree about it, and what is forwarded is the client's packet.
fn datagram(payload: &[u8], choice: u8) {
    let client: [SocketAddr; 2] =
        ["198.51.100.7:5000".parse().unwrap(), "[2001:db8::7]:5000".parse().unwrap()];
    let local: [SocketAddr; 2] =
        ["192.0.2.1:443".parse().unwrap(), "[2001:db8::1]:443".parse().unwrap()];
    let family = usize::from(choice & 4 != 0);
    let flow = Flow { client: client[family], local: local[family] };
    let decide = |secret: u8| {
        let mut flows = Flows::new(8, 60, [secret; 16]);
        SNAPSHOT.1.decide(&mut flows, &flow, payload, 0)
    };
    let decision = decide(1);
    assert_eq!(decision, decide(2));
    let Decision::Forward { server, .. } = decision else { return };
    assert!(server < SNAPSHOT.1.members().len());
    let mut header = [0; MAX_HEADER];
    let len = encapsulate(&flow, choice, 63, payload, &mut header);
    assert_eq!(len, header_len(&flow));
    let datagram = [&header[..len], payload].concat();
    let decoded = decode(&datagram).expect("GUE that was just written");
    let packet = Packet::parse(decoded.payload).expect("a packet that was just written");
    assert_eq!((packet.source, packet.destination), (flow.client.ip(), flow.local.ip()));
    assert_eq!(packet.payload().get(8..), Some(payload));
    let udp = packet.payload();
    let sum = pseudo_header(packet.source, packet.destination, 17, udp.len() as u32);
    assert!(sum.plus(Sum::new().bytes(udp)).is_intact());
}

fn report(bytes: &[u8]) {
    assert!(Report::decode(bytes, |_, _| false).is_err());
    let Ok(report) = Report::decode(bytes, |_, _| true) else { return };
    let tag = *bytes.last_chunk::<32>().expect("a report has one");
    assert_eq!(report.encode(|_| tag)[..], bytes[..REPORT_LEN], "there is one way to write it");
    let mut health = Health::new(0);
    if health.hear(report, &SNAPSHOT.0, 1, report.time).is_ok() {
        assert!(health.hear(report, &SNAPSHOT.0, 2, report.time).is_err(), "the same again");
    }
}

/// What is understood is shown as a file that says the same, secrets aside.
fn config(text: &str) {
    let Ok(config) = Config::parse(text) else { return };
    let again = Config::parse(&config.shown()).expect("what is shown is understood");
    assert_eq!(Config { hash_key: config.hash_key, ..again }, config);
}

fn site(text: &str) {
    let Ok(site) = Site::parse(text) else { return };
    let aes = |key: &[u8; 16]| Arc::new(Toy(*key)) as Arc<dyn BlockCipher>;
    let reader = site.reader(&aes).expect("what was checked can be read");
    assert_eq!(reader.current().id(), site.issue());
    assert_eq!(site.issuer(&aes).map(|codec| codec.id()), Some(site.issue()));
}
