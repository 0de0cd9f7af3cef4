//! The certificates that clients get, and the files that they come from.

use std::collections::HashSet;
use std::fmt;
use std::path::PathBuf;

use quicket::{ConfigError, Fingerprint, Identity, KeyType, ServerTls};

use super::keep;
use super::site::Site;
use crate::args::Serve;
use crate::exit::{Failure, Kind};

/// The files of all keys, to be read now and again.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    /// Certificate and key; none for the certificate that is made and kept here.
    pairs: Vec<(PathBuf, PathBuf)>,
    ticket_key: Option<PathBuf>,
    /// Of a site, which has ticket keys among others.
    site: Option<Site>,
    /// The switch has the keys of a site.
    switch_has_site: bool,
}

/// Certificates with the names for which clients get them.
type Named = Vec<(Vec<String>, Identity)>;

/// What the files hold.
pub(crate) struct Presented {
    /// The first is everybody's who asks for another name.
    identities: Named,
    /// The names that have a certificate with a key of this type.
    taken: HashSet<(String, KeyType)>,
    /// What was read, in words.
    pub(crate) summary: String,
    /// Clients can know the first certificate by nothing else.
    pub(crate) pin: Option<Fingerprint>,
}

impl Files {
    /// Those that the flags name.
    pub(crate) fn new(args: &Serve) -> Result<Self, Failure> {
        if args.cert.len() != args.key.len() {
            return Err(Failure::new(
                Kind::Usage,
                format!(
                    "there are {} --cert and {} --key: give one key for each certificate, in the \
                     same order",
                    args.cert.len(),
                    args.key.len()
                ),
            ));
        }
        let pairs = args.cert.iter().cloned().zip(args.key.iter().cloned()).collect();
        let (ticket_key, site) = (args.ticket_key.clone(), Site::new(args)?);
        Ok(Self { pairs, ticket_key, site, switch_has_site: false })
    }

    /// Reads certificates and their keys.
    pub(crate) fn read(&self) -> Result<Presented, Failure> {
        if self.pairs.is_empty() {
            let (identity, path) = keep::identity()?;
            let pin = identity.fingerprint();
            let summary = format!("{} ({pin})", path.display());
            return Ok(Presented {
                identities: vec![(identity.dns_names(), identity)],
                taken: HashSet::new(),
                summary,
                pin: Some(pin),
            });
        }
        let mut presented = Presented {
            identities: Vec::new(),
            taken: HashSet::new(),
            summary: String::new(),
            pin: None,
        };
        for (cert, key) in &self.pairs {
            let identity = Identity::from_pem_files(cert, key).map_err(unusable)?;
            presented.add(identity, &cert.display())?;
        }
        Ok(presented)
    }

    /// Reads the key of session tickets; none where a site has it.
    pub(crate) fn ticket_key(&self) -> Result<Option<quicket::TicketKey>, Failure> {
        let has_others = self.site.is_some() || (self.switch_has_site && self.ticket_key.is_none());
        match has_others {
            true => Ok(None),
            false => keep::ticket_key(self.ticket_key.as_deref()).map(Some),
        }
    }

    /// The switch is one of a site: its ticket keys are used, unless one was given.
    pub(crate) const fn heed_switch(&mut self, has_site: bool) {
        self.switch_has_site = has_site;
    }

    /// The site whose server this is, if it is.
    pub(crate) const fn site(&self) -> Option<&Site> {
        self.site.as_ref()
    }

    /// Reads everything again for connections to come; nothing changes if anything is wrong. What was
    /// read, in words.
    pub(crate) fn read_again(&self, tls: &ServerTls) -> Result<String, Failure> {
        let (mut presented, ticket_key) = (self.read()?, self.ticket_key()?);
        let secrets = self.site.as_ref().map(|site| site.read()).transpose()?;
        let (identity, named) = presented.split()?;
        tls.replace_certificates(&identity, &named).map_err(unusable)?;
        let rotated = ticket_key.is_some_and(|key| tls.rotate_ticket_key(key));
        let ticket_key = if rotated { ", and a new ticket key" } else { "" };
        let secrets = match self.site.as_ref().zip(secrets) {
            Some((site, secrets)) => site.take_up(&secrets),
            None => String::new(),
        };
        Ok(format!("{}{ticket_key}{secrets}", presented.summary))
    }
}

impl Presented {
    fn add(&mut self, identity: Identity, cert: &dyn fmt::Display) -> Result<(), Failure> {
        let names = identity.dns_names();
        if names.is_empty() && !self.identities.is_empty() {
            return Err(Failure::new(
                Kind::Environment,
                format!(
                    "{cert} has no DNS name, so that no client could ask for it: give it as the \
                     first, or one with subjectAltName (openssl req … -addext \
                     subjectAltName=DNS:example.org)",
                ),
            ));
        }
        // A name may have a certificate with a key of each type: clients differ in what they verify.
        let key_type = identity.key_type().map_err(unusable)?;
        let is_own = |name: &String| self.taken.insert((name.clone(), key_type));
        let (own, taken): (Vec<_>, Vec<_>) = names.into_iter().partition(is_own);
        if !taken.is_empty() {
            let taken = taken.join(", ");
            log::warn!(
                "{cert} is not used for {taken}: an earlier --cert with a key of the same type has that name"
            );
        }
        if !self.summary.is_empty() {
            self.summary.push_str(", ");
        }
        let names = if own.is_empty() { "no name".to_owned() } else { own.join(", ") };
        self.summary += &format!("{cert} ({names}; {})", identity.fingerprint());
        self.identities.push((own, identity));
        Ok(())
    }

    /// The certificate for everybody, and those for clients that ask for their names.
    pub(crate) fn split(&mut self) -> Result<(Identity, Named), Failure> {
        let first = self.identities.first().map(|(_, identity)| identity.clone());
        let first = first.ok_or_else(|| Failure::new(Kind::Environment, "no certificate"))?;
        Ok((first, std::mem::take(&mut self.identities)))
    }
}

/// A certificate or key that cannot be used.
pub(crate) fn unusable(error: ConfigError) -> Failure {
    match error {
        ConfigError::File { path, source } => {
            Failure::file(format!("cannot read {}", path.display()), &source)
        }
        error => Failure::new(Kind::Environment, error.to_string()),
    }
}
