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
}
