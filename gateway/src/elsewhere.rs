//! Private keys that a key process has (`quicket keyd`).

use quicket_handshake::elsewhere::RemoteKey;
use quicket_keyd::protocol::TranscriptHash;
use quicket_keyd::{Client, KeyId};

/// A key of a process.
#[derive(Debug)]
pub(crate) struct KeyOfProcess {
    pub(crate) client: Client,
    pub(crate) id: KeyId,
}

impl RemoteKey for KeyOfProcess {
    fn sign(&self, scheme: u16, content: &[u8]) -> Result<Vec<u8>, String> {
        // The process puts it together again: it signs nothing else.
        let hash = TranscriptHash::of_content(content)
            .ok_or("this is no CertificateVerify of a server, and nothing else is signed")?;
        self.client.sign(self.id, scheme, hash).map_err(|error| error.to_string())
    }

    fn run(&self, job: Box<dyn FnOnce() + Send>) -> Result<(), String> {
        self.client.run(job)
    }

    fn threads(&self) -> Option<usize> {
        Some(self.client.number())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8446, Section 4.4.3: a client's CertificateVerify, or what is none at all, is not even asked for.
    #[test]
    fn nothing_but_a_servers_handshake_is_asked_for() {
        let address = "unix:/nowhere/keyd.sock".parse().unwrap();
        let client = Client::new(address, None, &quicket_keyd::ClientOptions::default()).unwrap();
        let key = KeyOfProcess { client: client.clone(), id: KeyId([0; 32]) };
        let content = TranscriptHash::new(&[7; 32]).unwrap().content();
        assert!(key.sign(0x0804, &content).unwrap_err().contains("away"));
        let of_client =
            [&[0x20; 64][..], b"TLS 1.3, client CertificateVerify\0", &[7; 32]].concat();
        for other in [&of_client[..], &content[1..], b"a contract", &[]] {
            assert!(key.sign(0x0804, other).unwrap_err().contains("nothing else"));
        }
    }
}
