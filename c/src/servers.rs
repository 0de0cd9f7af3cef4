//! How servers perform handshakes, kept from one connection to the next: the keys of session tickets
//! are in it, and which of them brought early data.

use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use quicket::{ConfigError, Identity, ServerTls};

/// The most that are kept; programs have one or two.
const MOST: usize = 16;

static KEPT: Mutex<Vec<(Service, Arc<ServerTls>)>> = Mutex::new(Vec::new());

/// What a server says of itself.
#[derive(PartialEq, Eq)]
pub(crate) struct Service {
    /// PEM.
    pub(crate) chain: Vec<u8>,
    /// PEM.
    pub(crate) key: Vec<u8>,
    /// None for clients that name no protocol.
    pub(crate) alpns: Option<Vec<Vec<u8>>>,
    pub(crate) early_data: bool,
}

impl Service {
    fn build(&self) -> Result<Arc<ServerTls>, ConfigError> {
        let identity = Identity::from_pem(&self.chain, &self.key)?;
        let tls = ServerTls::builder(identity).early_data(self.early_data);
        let tls = match &self.alpns {
            Some(names) => tls.alpn(names),
            None => tls.without_alpn(),
        };
        Ok(Arc::new(tls.build()?))
    }

    /// The same as last time, if it was there.
    pub(crate) fn tls(self) -> Result<Arc<ServerTls>, ConfigError> {
        let mut kept = match KEPT.try_lock() {
            Ok(kept) => kept,
            Err(TryLockError::Poisoned(poisoned)) => PoisonError::into_inner(poisoned),
            // Another thread looks, or in a child process looked: this one does without.
            Err(TryLockError::WouldBlock) => return self.build(),
        };
        if let Some((_, tls)) = kept.iter().find(|(service, _)| *service == self) {
            return Ok(Arc::clone(tls));
        }
        let tls = self.build()?;
        if kept.len() == MOST {
            kept.remove(0);
        }
        kept.push((self, Arc::clone(&tls)));
        Ok(tls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(identity: &Identity, alpn: &[u8], early_data: bool) -> Service {
        let (chain, key) = (identity.chain_pem().into_bytes(), identity.key_pem().into_bytes());
        Service { chain, key, alpns: Some(vec![alpn.to_vec()]), early_data }
    }

    #[test]
    fn the_same_service_is_the_same_and_others_are_not() {
        let one = Identity::self_signed(["localhost"]).unwrap();
        let other = Identity::self_signed(["localhost"]).unwrap();
        let first = service(&one, b"h3", false).tls().unwrap();
        assert!(Arc::ptr_eq(&first, &service(&one, b"h3", false).tls().unwrap()));
        for different in
            [service(&one, b"h2", false), service(&one, b"h3", true), service(&other, b"h3", false)]
        {
            assert!(!Arc::ptr_eq(&first, &different.tls().unwrap()));
        }
        let mut broken = service(&one, b"h3", false);
        broken.key.clear();
        assert!(broken.tls().is_err());
    }
}
