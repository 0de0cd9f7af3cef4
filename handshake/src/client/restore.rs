//! Rebuilds a client session that rustls can resume from a stored [`Ticket`].
//!
//! rustls has no way to make a session but to receive a ticket. So one is received: a client and a
//! server shake hands in memory, the server with the stored certificates, and then the client is
//! handed a NewSessionTicket message with the stored ticket and a nonce from which it derives the
//! stored key (see [`crate::psk`]). No packet leaves the process, and nothing but the stored key
//! and the public values of the ticket survives the exchange, so it does without real key exchange
//! and signature.

use std::sync::Arc;

use rustls::client::danger::ServerCertVerifier;
use rustls::client::{Resumption, Tls13ClientSessionValue};
use rustls::crypto::{ActiveKeyExchange, CryptoProvider, SharedSecret, SupportedKxGroup};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::quic::{ClientConnection, ServerConnection, Version};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::{CertifiedKey, Signer, SigningKey};
use rustls::time_provider::TimeProvider;
use rustls::{Error, NamedGroup, SignatureAlgorithm, SignatureScheme};

use super::sessions::ConnectionSessions;
use super::ticket::Ticket;
use super::verify::ResumptionVerifier;
use crate::messages::{NewSessionTicket, ticket_extensions};
use crate::psk;

/// Rounds of messages after which two handshaking parties are done, with room to spare.
const MAX_ROUNDS: usize = 4;

/// Lets `config` resume the session of `ticket`, if the server of that time would be trusted today.
/// Otherwise `config` stays as it was. Returns the session, for that configuration alone.
pub(super) fn session(
    config: &mut rustls::ClientConfig,
    verifier: &Arc<dyn ServerCertVerifier>,
    ticket: &Ticket,
) -> Option<Tls13ClientSessionValue> {
    let verifier = Arc::new(ResumptionVerifier::new(verifier.clone()));
    let session = rebuild(config, &verifier, ticket).ok()??;
    verifier.restored();
    config.dangerous().set_certificate_verifier(verifier);
    Some(session)
}

fn rebuild(
    config: &rustls::ClientConfig,
    verifier: &Arc<ResumptionVerifier>,
    ticket: &Ticket,
) -> Result<Option<Tls13ClientSessionValue>, Error> {
    let store = Arc::new(ConnectionSessions::default());
    let mut client = client(config, verifier, ticket, store.clone())?;
    let mut server = server(ticket)?;
    for _ in 0..MAX_ROUNDS {
        if !client.is_handshaking() {
            break;
        }
        pass(|bytes| client.write_hs(bytes).is_some(), |bytes| server.read_hs(bytes))?;
        pass(|bytes| server.write_hs(bytes).is_some(), |bytes| client.read_hs(bytes))?;
    }
    let message = NewSessionTicket {
        lifetime: ticket.lifetime,
        age_add: ticket.age_add,
        nonce: &psk::nonce_for(&ticket.psk),
        ticket: &ticket.ticket,
        extensions: ticket_extensions(ticket.early_data),
    };
    if let Some(message) = message.encode() {
        client.read_hs(&message)?;
    }
    Ok(store.next())
}

/// Takes messages from one party to the other, those of each encryption level apart.
fn pass(
    mut write: impl FnMut(&mut Vec<u8>) -> bool,
    mut read: impl FnMut(&[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    loop {
        let mut bytes = Vec::new();
        let keys_change = write(&mut bytes);
        if bytes.is_empty() && !keys_change {
            return Ok(());
        }
        if !bytes.is_empty() {
            read(&bytes)?;
        }
    }
}

fn provider(ticket: &Ticket) -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        cipher_suites: psk::suite(ticket.aead).into_iter().collect(),
        kx_groups: vec![&NoKeyExchange],
        ..rustls::crypto::aws_lc_rs::default_provider()
    })
}

fn client(
    config: &rustls::ClientConfig,
    verifier: &Arc<ResumptionVerifier>,
    ticket: &Ticket,
    store: Arc<ConnectionSessions>,
) -> Result<ClientConnection, Error> {
    let name = ServerName::try_from(ticket.binding.server_name.clone())
        .map_err(|_| Error::General("stored server name".to_owned()))?;
    let time =
        Arc::new(At(UnixTime::since_unix_epoch(std::time::Duration::from_secs(ticket.received))));
    let mut rebuilt = rustls::ClientConfig::builder_with_details(provider(ticket), time)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier.clone())
        .with_client_cert_resolver(config.client_auth_cert_resolver.clone());
    rebuilt.resumption = Resumption::store(store);
    ClientConnection::new(Arc::new(rebuilt), Version::V1, name, Vec::new())
}

fn server(ticket: &Ticket) -> Result<ServerConnection, Error> {
    let certificates = ticket.certificates.iter().cloned().map(CertificateDer::from).collect();
    let key = CertifiedKey::new(certificates, Arc::new(NoKey));
    let mut config = rustls::ServerConfig::builder_with_provider(provider(ticket))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(Stored(Arc::new(key))));
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    ServerConnection::new(Arc::new(config), Version::V1, Vec::new())
}

/// The time at which a ticket came.
#[derive(Debug)]
struct At(UnixTime);

impl TimeProvider for At {
    fn current_time(&self) -> Option<UnixTime> {
        Some(self.0)
    }
}

/// A key exchange with nobody: both parties are here and know the outcome.
#[derive(Debug)]
struct NoKeyExchange;

const NO_KEY: [u8; 32] = [0; 32];

impl SupportedKxGroup for NoKeyExchange {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        Ok(Box::new(Self))
    }

    fn ffdhe_group(&self) -> Option<rustls::ffdhe_groups::FfdheGroup<'static>> {
        None
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::X25519
    }
}

impl ActiveKeyExchange for NoKeyExchange {
    fn complete(self: Box<Self>, _: &[u8]) -> Result<SharedSecret, Error> {
        Ok(SharedSecret::from(&NO_KEY[..]))
    }

    fn pub_key(&self) -> &[u8] {
        &NO_KEY
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::X25519
    }
}

/// Presents the stored certificates.
#[derive(Debug)]
struct Stored(Arc<CertifiedKey>);

impl ResolvesServerCert for Stored {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}

/// Stands for the server's private key, which is not here.
#[derive(Debug)]
struct NoKey;

#[derive(Debug)]
struct NoSignature(SignatureScheme);

impl SigningKey for NoKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        offered.first().map(|scheme| Box::new(NoSignature(*scheme)) as Box<dyn Signer>)
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ECDSA
    }
}

impl Signer for NoSignature {
    fn sign(&self, _: &[u8]) -> Result<Vec<u8>, Error> {
        Ok(Vec::new())
    }

    fn scheme(&self) -> SignatureScheme {
        self.0
    }
}
