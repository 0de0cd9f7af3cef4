//! The talk with the authority: an account, an order, its challenges, the certificate (RFC 8555, Section 7).

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use instant_acme::{
    Account, AuthorizationStatus, CertificateIdentifier, ChallengeType, Error, ExternalAccountKey,
    Identifier, NewAccount, NewOrder, Order, OrderStatus, Problem, RetryPolicy,
};
use quicket::Identity;
use rcgen::{CertificateParams, DistinguishedName, KeyPair, RsaKeySize};
use tokio::task::spawn_blocking;
use tokio_rustls::rustls::pki_types::CertificateDer;

use super::challenges::{Challenges, Given};
use super::client::Client;
use super::plan::{Plan, Wanted};
use super::schedule::{Trouble, Window};
use super::state::{Kept, KeptAccount, State};
use crate::config::{Challenge, OrderedKey};

/// How long the authority may take to look at challenges, and to make a certificate.
const LIMIT: Duration = Duration::from_secs(120);
/// How soon it is asked for the first time how far it is, and how much later each time.
const FIRST_LOOK: Duration = Duration::from_millis(250);
const SLOWER: f32 = 1.5;
/// The most of an authority's words that is repeated, in characters.
const MAX_WORDS: usize = 1000;
const TYPES: &str = "urn:ietf:params:acme:error:";

/// Why there is no certificate.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) trouble: Trouble,
    /// The authority does not know the account.
    pub(crate) has_no_account: bool,
    /// How long the authority wants to be left alone.
    pub(crate) asked: Option<Duration>,
    what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl Failure {
    /// Something of our own, which another attempt may find in order.
    pub(crate) fn own(what: impl Into<String>) -> Self {
        let trouble = Trouble::Unreachable;
        Self { trouble, has_no_account: false, asked: None, what: what.into() }
    }

    fn refused(what: impl Into<String>) -> Self {
        Self { trouble: Trouble::Refused, ..Self::own(what) }
    }

    fn of(doing: &str, error: &Error) -> Self {
        match error {
            Error::Api(problem) => Self::of_problem(doing, problem),
            Error::Unsupported(what) => {
                Self::refused(format!("{doing}: the authority does not support {what}"))
            }
            Error::Timeout(_) => {
                let limit = LIMIT.as_secs();
                Self::own(format!("{doing}: the authority has not come to an end within {limit} s"))
            }
            Error::Other(_) => Self::own(format!(
                "{doing}: {}; is directory right in [acme], and does the network lead there?",
                clean(&with_sources(error))
            )),
            other => Self::own(format!("{doing}: {}", clean(&with_sources(other)))),
        }
    }

    fn of_problem(doing: &str, problem: &Problem) -> Self {
        let kind = problem.r#type.as_deref().unwrap_or_default();
        let kind = kind.strip_prefix(TYPES).unwrap_or(kind);
        // RFC 8555, Section 6.7.
        let advice = match kind {
            "userActionRequired" => {
                "; the terms of service have changed: go where the words above say"
            }
            "externalAccountRequired" => {
                "; the authority gives accounts beforehand: external_account is due in [acme]"
            }
            "rateLimited" => "; the authority's limits are reached, and the next attempt waits",
            "rejectedIdentifier" => "; the authority gives no certificates for this name",
            "caa" => "; records CAA of the name in the DNS do not allow this authority",
            "dns" => "; does the name lead to this gateway?",
            "connection" | "tls" | "unauthorized" => {
                "; the authority comes by port 443 (tls-alpn-01) or 80 (http-01) of the name's addresses: do they lead \
                 to this gateway?"
            }
            _ => "",
        };
        let trouble = match kind {
            "badNonce" | "serverInternal" | "rateLimited" => Trouble::Unreachable,
            _ => Trouble::Refused,
        };
        let what = format!("{doing}: {}{advice}", words(problem));
        let has_no_account = kind == "accountDoesNotExist";
        Self { trouble, has_no_account, ..Self::own(what) }
    }
}

/// What an authority says, with the kind of the problem.
fn words(problem: &Problem) -> String {
    let mut all = clean(problem.detail.as_deref().unwrap_or("the authority says no"));
    if let Some(kind) = &problem.r#type {
        all += &format!(" ({})", clean(kind.strip_prefix(TYPES).unwrap_or(kind)));
    }
    for part in problem.subproblems.iter().take(10) {
        let name = part.identifier.as_ref().map(|name| name.authorized(false).to_string());
        let detail = part.detail.as_deref().unwrap_or_default();
        all += &format!("; {}: {}", clean(&name.unwrap_or_default()), clean(detail));
    }
    all
}

/// Words of others: neither long, nor with what could be taken for another line of a log.
fn clean(text: &str) -> String {
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().take(MAX_WORDS).map(printable).collect()
}

fn with_sources(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            text += &format!(": {more}");
        }
        source = error.source();
    }
    text
}

/// The authority, and the account there.
pub(crate) struct Authority {
    account: Account,
    client: Client,
}

impl Authority {
    /// By the account that is kept, or a new one.
    pub(crate) async fn reach(
        plan: &Plan,
        state: &State,
        warn: impl Fn(String),
    ) -> Result<Self, Failure> {
        let client = Client::new(&plan.tls);
        let account = account(plan, state, &client, warn).await;
        let account = account.map_err(|failure| Failure { asked: client.asked(), ..failure })?;
        Ok(Self { account, client })
    }

    /// A new certificate; `before` is the one in whose place it comes.
    pub(crate) async fn order(
        &self,
        plan: &Plan,
        wanted: &Wanted,
        before: Option<&Identity>,
        challenges: &Arc<Challenges>,
    ) -> Result<Kept, Failure> {
        let ordered = self.certificate(plan, wanted, before, challenges).await;
        ordered.map_err(|failure| Failure { asked: self.client.asked(), ..failure })
    }

    async fn certificate(
        &self,
        plan: &Plan,
        wanted: &Wanted,
        before: Option<&Identity>,
        challenges: &Arc<Challenges>,
    ) -> Result<Kept, Failure> {
        let mut order = self.begin(plan, wanted, before).await?;
        let given = meet(&mut order, plan.challenge, challenges).await?;
        if order.state().status == OrderStatus::Pending {
            let ready = order.poll_ready(&patience()).await;
            if !matches!(ready, Ok(OrderStatus::Ready)) {
                return Err(why(&mut order, ready.err()).await);
            }
        }
        drop(given);
        let (names, key_type) = (wanted.names.clone(), wanted.key_type);
        let made = spawn_blocking(move || request(names, key_type)).await;
        let made = made.map_err(|error| error.to_string()).and_then(|made| made);
        let (key, request) = made.map_err(Failure::own)?;
        let failed = |error| Failure::of("getting the certificate", &error);
        order.finalize_csr(&request).await.map_err(failed)?;
        let chain = order.poll_certificate(&patience()).await.map_err(failed)?;
        let identity = Identity::from_pem(chain.as_bytes(), key.serialize_pem().as_bytes());
        let identity = identity.map_err(|error| error.to_string());
        let kept = identity.and_then(|identity| Kept::of(identity, wanted));
        kept.map_err(|error| Failure::refused(format!("what the authority has sent: {error}")))
    }

    async fn begin(
        &self,
        plan: &Plan,
        wanted: &Wanted,
        before: Option<&Identity>,
    ) -> Result<Order, Failure> {
        let names: Vec<Identifier> = wanted.names.iter().cloned().map(Identifier::Dns).collect();
        let new = || match &plan.profile {
            Some(profile) => NewOrder::new(&names).profile(profile),
            None => NewOrder::new(&names),
        };
        if let Some(before) = before.and_then(|before| before.chain().next())
            && let Ok(id) = CertificateIdentifier::try_from(&CertificateDer::from(before))
            // RFC 9773, Section 5. One of another account, or that was replaced already, is no reason to do without.
            && let Ok(order) = self.account.new_order(&new().replaces(id)).await
        {
            return Ok(order);
        }
        let order = self.account.new_order(&new()).await;
        order.map_err(|error| Failure::of("ordering", &error))
    }

    /// When the authority suggests to renew a certificate, and how long until it should be asked again (RFC 9773).
    pub(crate) async fn suggestion(&self, of: &Identity) -> Option<(Window, Duration)> {
        let id = CertificateIdentifier::try_from(&CertificateDer::from(of.chain().next()?)).ok()?;
        let (info, again) = self.account.renewal_info(&id).await.ok()?;
        let at = |seconds: i64| -> Option<SystemTime> {
            UNIX_EPOCH.checked_add(Duration::from_secs(u64::try_from(seconds).ok()?))
        };
        let start = at(info.suggested_window.start.unix_timestamp())?;
        let end = at(info.suggested_window.end.unix_timestamp())?;
        Some((Window { start, end }, again))
    }
}

const fn patience() -> RetryPolicy {
    RetryPolicy::new().initial_delay(FIRST_LOOK).backoff(SLOWER).timeout(LIMIT)
}

/// The account that is kept, brought up to date; or a new one, which is kept.
async fn account(
    plan: &Plan,
    state: &State,
    client: &Client,
    warn: impl Fn(String),
) -> Result<Account, Failure> {
    let (id, of_disk) = (plan.account(), state.clone());
    let builder = || Account::builder_with_http(Box::new(client.clone()));
    let found = blocking(move || {
        let found = of_disk.account(&id);
        if found.is_err() {
            of_disk.discard_account(&id)?;
        }
        Ok(found)
    });
    let found = found.await?.unwrap_or_else(|what| {
        warn(format!("{what}: it is put aside, and there will be another account"));
        None
    });
    let contact: Vec<&str> = plan.contact.iter().map(String::as_str).collect();
    if let Some(KeptAccount { credentials, contact: told }) = found {
        // The credentials are used up below.
        let again = serde_json::to_value(&credentials).ok();
        let account = builder().from_credentials(credentials).await;
        let account = account.map_err(|error| Failure::of("reaching the directory", &error))?;
        if told != plan.contact {
            let updated = account.update_contacts(&contact).await;
            updated.map_err(|error| Failure::of("telling the authority of contact", &error))?;
            let credentials = again.and_then(|again| serde_json::from_value(again).ok());
            if let Some(credentials) = credentials {
                keep(plan, state, credentials).await?;
            }
        }
        return Ok(account);
    }
    let new = NewAccount {
        contact: &contact,
        terms_of_service_agreed: true,
        only_return_existing: false,
    };
    let external = plan.external.as_ref();
    let external = external.map(|it| ExternalAccountKey::new(it.key_id.clone(), &it.key));
    let made = builder().create(&new, plan.directory.clone(), external.as_ref()).await;
    let (account, credentials) =
        made.map_err(|error| Failure::of("making an account at the directory", &error))?;
    keep(plan, state, credentials).await?;
    Ok(account)
}

async fn keep(
    plan: &Plan,
    state: &State,
    credentials: instant_acme::AccountCredentials,
) -> Result<(), Failure> {
    let (id, state) = (plan.account(), state.clone());
    let account = KeptAccount { credentials, contact: plan.contact.clone() };
    blocking(move || state.keep_account(&id, &account)).await
}

/// Work on files.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, Failure> {
    let done = spawn_blocking(work).await;
    done.map_err(|error| error.to_string()).and_then(|done| done).map_err(Failure::own)
}

/// Answers the challenges of an order, as long as what is returned is kept.
async fn meet(
    order: &mut Order,
    challenge: Challenge,
    challenges: &Arc<Challenges>,
) -> Result<Vec<Given>, Failure> {
    let (kind, called) = match challenge {
        Challenge::TlsAlpn01 => (ChallengeType::TlsAlpn01, "tls-alpn-01"),
        Challenge::Http01 => (ChallengeType::Http01, "http-01"),
    };
    let failed = |error| Failure::of("the authority's challenges", &error);
    let mut given = Vec::new();
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization.map_err(failed)?;
        if authorization.status == AuthorizationStatus::Valid {
            continue;
        }
        let name = authorization.identifier().to_string();
        let Some(mut offered) = authorization.challenge(kind.clone()) else {
            return Err(Failure::refused(format!(
                "the authority offers no challenge {called} for {}: see challenge in [acme]",
                clean(&name)
            )));
        };
        let authorization = offered.key_authorization();
        given.push(match challenge {
            Challenge::Http01 => challenges.over_http(&offered.token, authorization.as_str()),
            Challenge::TlsAlpn01 => {
                let hash = authorization.digest();
                challenges.over_tls(&name, hash.as_ref()).map_err(Failure::own)?
            }
        });
        offered.set_ready().await.map_err(failed)?;
    }
    Ok(given)
}

/// Why an order is not ready: what the authority has to say of its challenges.
async fn why(order: &mut Order, error: Option<Error>) -> Failure {
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        if authorization.refresh().await.is_err() {
            continue;
        }
        let name = clean(&authorization.identifier().to_string());
        let failed = authorization.challenges.iter().find_map(|challenge| challenge.error.as_ref());
        if let Some(problem) = failed {
            return Failure::of_problem(&format!("the challenge for {name} has failed"), problem);
        }
    }
    match error {
        Some(error) => Failure::of("the authority's challenges", &error),
        None => Failure::refused("the order is invalid, and the authority does not say why"),
    }
}

/// A new key, and the request for a certificate (RFC 8555, Section 7.4) in DER.
fn request(names: Vec<String>, key_type: OrderedKey) -> Result<(KeyPair, Vec<u8>), String> {
    let make = || {
        let key = match key_type {
            OrderedKey::EcdsaP256 => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?,
            OrderedKey::EcdsaP384 => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384)?,
            OrderedKey::Rsa2048 => {
                KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, RsaKeySize::_2048)?
            }
            OrderedKey::Rsa4096 => {
                KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, RsaKeySize::_4096)?
            }
        };
        let mut parameters = CertificateParams::new(names)?;
        parameters.distinguished_name = DistinguishedName::new();
        let request = parameters.serialize_request(&key)?;
        Ok((key, request.der().to_vec()))
    };
    let made: Result<_, rcgen::Error> = make();
    made.map_err(|error| format!("a request for a certificate cannot be made: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(kind: &str, detail: &str) -> Problem {
        let said = serde_json::json!({ "type": format!("{TYPES}{kind}"), "detail": detail });
        serde_json::from_value(said).unwrap()
    }

    #[test]
    fn the_authoritys_words_are_told_with_what_to_do() {
        let failure =
            Failure::of_problem("ordering", &problem("userActionRequired", "see https://x"));
        let told = failure.to_string();
        assert!(
            told.starts_with("ordering: see https://x (userActionRequired); the terms"),
            "{told}"
        );
        assert_eq!(failure.trouble, Trouble::Refused);
        let limited = Failure::of_problem("ordering", &problem("rateLimited", "too many"));
        assert_eq!((limited.trouble, limited.has_no_account), (Trouble::Unreachable, false));
        assert!(Failure::of_problem("x", &problem("accountDoesNotExist", "no")).has_no_account);
    }

    #[test]
    fn words_of_others_are_short_and_on_one_line() {
        let told = words(&problem("malformed", &"a\u{1b}[31m\nb".repeat(1000)));
        assert!(told.len() < 1100 && !told.contains(['\n', '\u{1b}']), "{told}");
    }

    #[test]
    fn each_type_of_key_makes_a_request() {
        for key_type in [OrderedKey::EcdsaP256, OrderedKey::EcdsaP384, OrderedKey::Rsa2048] {
            let (key, der) = request(vec!["a.example".to_owned()], key_type).unwrap();
            assert!(der.len() > 100 && key.serialize_pem().contains("PRIVATE KEY"), "{key_type:?}");
        }
    }
}
