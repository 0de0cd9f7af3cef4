//! Packet protection, byte for byte as in RFC 9001, Appendix A, and RFC 9369, Appendix A.

mod vectors;

use quicket_engine::crypto::{
    Aead, CryptoProvider, HEADER_SAMPLE_LEN, OpenJob, SealJob, Secret, TAG_LEN,
};
use quicket_handshake::AwsLcProvider;
use quicket_wire::{ConnectionId, Side, Version};

fn hex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2));
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

fn dcid() -> ConnectionId {
    ConnectionId::new(&hex("8394c8f03e515708")).unwrap()
}

/// A packet of the appendices and what it takes to make it.
struct Vector {
    version: Version,
    secret: Secret,
    packet_number: u64,
    header: Vec<u8>,
    payload: Vec<u8>,
    packet: Vec<u8>,
}

impl Vector {
    /// The length of the encoded packet number stands in the first byte (RFC 9000, Section 17.2).
    fn packet_number_len(&self) -> usize {
        usize::from(self.header[0] & 3) + 1
    }

    fn mask(&self, packet: &[u8]) -> [u8; 5] {
        // RFC 9001, Section 5.4.2: the sample is taken as if the packet number had four bytes.
        let at = self.header.len() - self.packet_number_len() + 4;
        let mut sample = [0; HEADER_SAMPLE_LEN];
        sample.copy_from_slice(&packet[at..at + HEADER_SAMPLE_LEN]);
        let key = AwsLcProvider.header_key(self.version, &self.secret);
        let mut masks = [[0; 5]; 2];
        key.masks(&[sample, sample], &mut masks);
        assert_eq!(masks, [key.mask(&sample); 2]);
        masks[0]
    }

    /// Applies or removes header protection (RFC 9001, Section 5.4.1).
    fn mask_header(&self, packet: &mut [u8], mask: [u8; 5]) {
        let bits = if packet[0] & 0x80 == 0 { 0x1f } else { 0x0f };
        packet[0] ^= mask[0] & bits;
        let end = self.header.len();
        let number = &mut packet[end - self.packet_number_len()..end];
        number.iter_mut().zip(&mask[1..]).for_each(|(byte, mask)| *byte ^= mask);
    }

    fn check(&self) {
        let key = AwsLcProvider.packet_key(self.version, &self.secret);
        let (packet_number, header_len) = (self.packet_number, self.header.len());

        let mut packet = [&self.header[..], &self.payload, &[0; TAG_LEN]].concat();
        key.seal(&mut SealJob { packet_number, header_len, packet: &mut packet }).unwrap();
        let mask = self.mask(&packet);
        self.mask_header(&mut packet, mask);
        assert_eq!(packet, self.packet);

        let mask = self.mask(&packet);
        self.mask_header(&mut packet, mask);
        assert_eq!(packet[..header_len], self.header);
        let len =
            key.open(&mut OpenJob { packet_number, header_len, packet: &mut packet }).unwrap();
        assert_eq!(packet[header_len..header_len + len], self.payload);
    }

    /// Every bit of header, ciphertext and tag is protected.
    fn check_tampering(&self) {
        let key = AwsLcProvider.packet_key(self.version, &self.secret);
        let (packet_number, header_len) = (self.packet_number, self.header.len());
        let mut packet = self.packet.clone();
        let mask = self.mask(&packet);
        self.mask_header(&mut packet, mask);
        for at in 0..packet.len() {
            let mut forged = packet.clone();
            forged[at] ^= 1 << (at % 8);
            let mut job = OpenJob { packet_number, header_len, packet: &mut forged };
            assert!(key.open(&mut job).is_err(), "byte {at}");
        }
        let mut job = OpenJob { packet_number: packet_number + 1, header_len, packet: &mut packet };
        assert!(key.open(&mut job).is_err(), "another packet number");
    }
}

fn client_initial(version: Version, header: &str, packet: &str) -> Vector {
    let (_, secret) = AwsLcProvider.initial_secrets(version, &dcid(), Side::Client);
    let mut payload = hex(vectors::CLIENT_PAYLOAD);
    payload.resize(1_162, 0);
    Vector { version, secret, packet_number: 2, header: hex(header), payload, packet: hex(packet) }
}

fn server_initial(version: Version, header: &str, packet: &str) -> Vector {
    let (_, secret) = AwsLcProvider.initial_secrets(version, &dcid(), Side::Server);
    let payload = hex(vectors::SERVER_PAYLOAD);
    Vector { version, secret, packet_number: 1, header: hex(header), payload, packet: hex(packet) }
}

/// A.5, the same secret in both RFCs
fn short_header(version: Version, packet: &str) -> Vector {
    let secret = hex("9ac312a7f877468ebe69422748ad00a15443f18203a07d6060f688f30f21632b");
    Vector {
        version,
        secret: Secret::new(Aead::ChaCha20Poly1305, &secret).unwrap(),
        packet_number: 654_360_564,
        header: hex("4200bff4"),
        payload: vec![1],
        packet: hex(packet),
    }
}

#[test]
fn initial_secrets_of_v1() {
    // RFC 9001, A.1
    let (server, client) = AwsLcProvider.initial_secrets(Version::V1, &dcid(), Side::Client);
    let want = "c00cf151ca5be075ed0ebfb5c80323c42d6b7db67881289af4008f1f6c357aea";
    assert_eq!(client.as_bytes(), hex(want));
    let want = "3c199828fd139efd216c155ad844cc81fb82fa8d7446fa7d78be803acdda951b";
    assert_eq!(server.as_bytes(), hex(want));
    let (received, sent) = AwsLcProvider.initial_secrets(Version::V1, &dcid(), Side::Server);
    assert_eq!(received.as_bytes(), client.as_bytes());
    assert_eq!(sent.as_bytes(), server.as_bytes());
}

#[test]
fn initial_secrets_of_v2() {
    // RFC 9369, A.1
    let (server, client) = AwsLcProvider.initial_secrets(Version::V2, &dcid(), Side::Client);
    let want = "14ec9d6eb9fd7af83bf5a668bc17a7e283766aade7ecd0891f70f9ff7f4bf47b";
    assert_eq!(client.as_bytes(), hex(want));
    let want = "0263db1782731bf4588e7e4d93b7463907cb8cd8200b5da55a8bd488eafc37c1";
    assert_eq!(server.as_bytes(), hex(want));
}

#[test]
fn client_initials() {
    // RFC 9001, A.2; RFC 9369, A.2
    let header = "c300000001088394c8f03e5157080000449e00000002";
    client_initial(Version::V1, header, vectors::V1_CLIENT_PACKET).check();
    let header = "d36b3343cf088394c8f03e5157080000449e00000002";
    client_initial(Version::V2, header, vectors::V2_CLIENT_PACKET).check();
}

#[test]
fn server_initials() {
    // RFC 9001, A.3; RFC 9369, A.3
    let header = "c1000000010008f067a5502a4262b50040750001";
    server_initial(Version::V1, header, vectors::V1_SERVER_PACKET).check();
    let header = "d16b3343cf0008f067a5502a4262b50040750001";
    server_initial(Version::V2, header, vectors::V2_SERVER_PACKET).check();
}

#[test]
fn retry_tags() {
    // RFC 9001, A.4; RFC 9369, A.4
    let packet = hex("ff000000010008f067a5502a4262b5746f6b656e");
    let want = hex("04a265ba2eff4d829058fb3f0f2496ba");
    assert_eq!(AwsLcProvider.retry_tag(Version::V1, &dcid(), &packet), want[..]);
    let packet = hex("cf6b3343cf0008f067a5502a4262b5746f6b656e");
    let want = hex("c8646ce8bfe33952d955543665dcc7b6");
    assert_eq!(AwsLcProvider.retry_tag(Version::V2, &dcid(), &packet), want[..]);
}

#[test]
fn chacha20_short_header_packets() {
    // RFC 9001, A.5; RFC 9369, A.5
    short_header(Version::V1, vectors::V1_SHORT_PACKET).check();
    short_header(Version::V2, vectors::V2_SHORT_PACKET).check();
}

#[test]
fn secrets_of_the_next_key_phase() {
    // RFC 9001, A.5; RFC 9369, A.5: "ku"
    for (version, want) in [
        (Version::V1, "1223504755036d556342ee9361d253421a826c9ecdf3c7148684b36b714881f9"),
        (Version::V2, "c69374c49e3d2a9466fa689e49d476db5d0dfbc87d32ceeaa6343fd0ae4c7d88"),
    ] {
        let secret = short_header(version, "").secret;
        let next = AwsLcProvider.next_secret(version, &secret);
        assert_eq!(next.as_bytes(), hex(want));
        assert_eq!(next.aead(), Aead::ChaCha20Poly1305);
    }
}

#[test]
fn tampering_is_noticed() {
    let header = "c1000000010008f067a5502a4262b50040750001";
    server_initial(Version::V1, header, vectors::V1_SERVER_PACKET).check_tampering();
    short_header(Version::V2, vectors::V2_SHORT_PACKET).check_tampering();
}

#[test]
fn every_suite_seals_and_opens() {
    for aead in Aead::ALL {
        let secret = Secret::new(aead, &vec![5; aead.secret_len()]).unwrap();
        let payload = (0..1_400).map(|byte| byte as u8).collect::<Vec<_>>();
        let header = hex("4200bff4");
        let key = AwsLcProvider.packet_key(Version::V1, &secret);
        let next_secret = AwsLcProvider.next_secret(Version::V1, &secret);
        let next_key = AwsLcProvider.packet_key(Version::V1, &next_secret);
        let mut packet = [&header[..], &payload, &[0; TAG_LEN]].concat();
        let (packet_number, header_len) = (77, header.len());
        key.seal(&mut SealJob { packet_number, header_len, packet: &mut packet }).unwrap();
        assert_ne!(packet[4..1_404], payload);
        let mut copy = packet.clone();
        assert!(
            next_key.open(&mut OpenJob { packet_number, header_len, packet: &mut copy }).is_err()
        );
        let len =
            key.open(&mut OpenJob { packet_number, header_len, packet: &mut packet }).unwrap();
        assert_eq!(packet[4..4 + len], payload);
    }
}

/// RFC 9001 has no vector for AES-128-CCM: this one was made with OpenSSL 3, for the traffic secret
/// 5, 5, 5, ... and the packet number of RFC 9001, Appendix A.5.
#[test]
fn aes_128_ccm_is_that_of_openssl() {
    let secret = Secret::new(Aead::Aes128Ccm, &[5; 32]).unwrap();
    let header = hex("4200bff4");
    let payload = [&[1][..], &(0..40).collect::<Vec<u8>>()].concat();
    let sealed = hex(concat!(
        "9c67bee302740b7ce6f6f97389b9f2460730774042f3dcd9a36a0293e6452251",
        "780fc4f61bea681bf3fd50aa8693732b99e6b4ee3fcdddff22",
    ));
    let mut packet = [&header[..], &payload, &[0; TAG_LEN]].concat();
    let (packet_number, header_len) = (654_360_564, header.len());
    let key = AwsLcProvider.packet_key(Version::V1, &secret);
    key.seal(&mut SealJob { packet_number, header_len, packet: &mut packet }).unwrap();
    assert_eq!(packet[header_len..], sealed);
    packet[9] ^= 1;
    assert!(key.open(&mut OpenJob { packet_number, header_len, packet: &mut packet }).is_err());
}

#[test]
fn what_is_sealed_from_elsewhere_is_the_same_packet() {
    let payload: Vec<u8> = (0..1400_u32).map(|n| (n * 7) as u8).collect();
    let header = [0x40; 11];
    for aead in Aead::ALL {
        let secret = Secret::new(aead, &vec![5; aead.secret_len()]).unwrap();
        let key = AwsLcProvider.packet_key(Version::V1, &secret);
        let (packet_number, header_len) = (77, header.len());
        let mut whole = [&header[..], &payload, &[0; TAG_LEN]].concat();
        key.seal(&mut SealJob { packet_number, header_len, packet: &mut whole }).unwrap();
        for first in [0, 1, 9, 16, 17, 1399, 1400] {
            let (begun, body) = payload.split_at(first);
            let mut packet = [&header[..], begun].concat();
            packet.resize(whole.len(), 0xaa);
            let mut job = SealJob { packet_number, header_len, packet: &mut packet };
            key.seal_apart(&mut job, body).unwrap();
            assert!(packet == whole, "{aead:?} behind {first} bytes");
        }
        let mut packet = [0; 40];
        let mut job = SealJob { packet_number, header_len, packet: &mut packet };
        assert!(key.seal_apart(&mut job, &payload).is_err(), "{aead:?} without room");
    }
    let seals_apart = |aead: Aead| {
        let secret = Secret::new(aead, &vec![5; aead.secret_len()]).unwrap();
        AwsLcProvider.packet_key(Version::V1, &secret).seals_apart()
    };
    assert_eq!(Aead::ALL.map(seals_apart), [true, true, false, false]);
}

#[test]
fn packets_too_short_for_their_parts_fail() {
    let secret = Secret::new(Aead::Aes128Gcm, &[5; 32]).unwrap();
    let key = AwsLcProvider.packet_key(Version::V1, &secret);
    for (header_len, len) in [(0, 15), (5, 4), (5, 20), (usize::MAX, 40)] {
        let mut packet = vec![0; len];
        assert!(
            key.seal(&mut SealJob { packet_number: 0, header_len, packet: &mut packet }).is_err()
        );
        assert!(
            key.open(&mut OpenJob { packet_number: 0, header_len, packet: &mut packet }).is_err()
        );
    }
}

#[test]
fn tokens_open_only_with_their_key_and_nonce() {
    let (key, nonce) = ([1; 32], [2; 12]);
    let mut token = [&b"address"[..], &[0; TAG_LEN]].concat();
    AwsLcProvider.seal_token(&key, &nonce, &mut token).unwrap();
    assert!(AwsLcProvider.open_token(&[3; 32], &nonce, &mut token.clone()).is_err());
    assert!(AwsLcProvider.open_token(&key, &[3; 12], &mut token.clone()).is_err());
    assert!(AwsLcProvider.open_token(&key, &nonce, &mut token.clone()[1..]).is_err());
    assert!(AwsLcProvider.open_token(&key, &nonce, &mut []).is_err());
    assert_eq!(AwsLcProvider.open_token(&key, &nonce, &mut token), Ok(7));
    assert_eq!(&token[..7], b"address");
    assert!(AwsLcProvider.seal_token(&key, &nonce, &mut [0; 15]).is_err());
}

#[test]
fn a_retry_longer_than_any_datagram_still_has_a_tag() {
    let long = vec![7; 10_000];
    let tag = AwsLcProvider.retry_tag(Version::V1, &dcid(), &long);
    assert_ne!(tag, AwsLcProvider.retry_tag(Version::V1, &dcid(), &long[1..]));
}

#[test]
fn keyed_hashes_are_hmac_sha256() {
    // RFC 4231, Section 4.4, whose key of 20 bytes HMAC pads with zeros, as is done here.
    let mut key = [0; 32];
    key[..20].fill(0xaa);
    let want = hex("773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
    assert_eq!(AwsLcProvider.keyed_hash(&key, &[0xdd; 50]), want[..]);
    assert!(AwsLcProvider.constant_time_eq(b"same", b"same"));
    assert!(!AwsLcProvider.constant_time_eq(b"same", b"sane"));
    assert!(!AwsLcProvider.constant_time_eq(b"same", b"sam"));
}
