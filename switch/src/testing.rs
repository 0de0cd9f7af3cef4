//! Clients' first packets for tests; the simulation and the fuzz target include this file.

#![allow(dead_code)]

fn with_u16_len(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat()
}

fn extension(kind: u16, data: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &with_u16_len(data)].concat()
}

/// A ClientHello (RFC 8446, Section 4.1.2), with so many bytes of padding (RFC 7685).
pub(crate) fn client_hello(server: Option<&str>, protocols: &[&str], padding: usize) -> Vec<u8> {
    let mut extensions = Vec::new();
    if padding > 0 {
        extensions.extend(extension(21, &vec![0; padding]));
    }
    if let Some(server) = server {
        let entry = [&[0][..], &with_u16_len(server.as_bytes())].concat();
        extensions.extend(extension(0, &with_u16_len(&entry)));
    }
    if !protocols.is_empty() {
        let one = |name: &&str| [&[name.len() as u8][..], name.as_bytes()].concat();
        let list: Vec<u8> = protocols.iter().flat_map(one).collect();
        extensions.extend(extension(16, &with_u16_len(&list)));
    }
    let mut body = vec![0x03, 0x03];
    body.extend([0x55; 32]);
    body.push(0);
    body.extend(with_u16_len(&[0x13, 0x01]));
    body.extend([1, 0]);
    body.extend(with_u16_len(&extensions));
    let [_, a, b, c] = (body.len() as u32).to_be_bytes();
    [&[1, a, b, c][..], &body].concat()
}
