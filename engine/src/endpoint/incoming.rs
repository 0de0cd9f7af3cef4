//! Connection attempts: tokens, Retry, refusal (RFC 9000, Section 8.1).

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::SocketAddr;

use quicket_wire::{
    ConnectionId, EcnCodepoint, Header, RetryHeader, TransportErrorCode, Version, Writer,
};

use super::{Datagram, Endpoint, Held, Route, stateless};
use crate::config::ServerConfig;
use crate::observer::DropReason;
use crate::reply_limit::Reply;
use crate::time::Time;
use crate::token::{self, TokenLifetimes, TokenSealer, TokenVerdict};

/// A client that wants to connect. Its first datagram is kept until the attempt is decided.
#[derive(Debug)]
pub struct Incoming {
    pub(crate) remote: SocketAddr,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) ecn: EcnCodepoint,
    pub(crate) data: Vec<u8>,
    pub(crate) version: Version,
    pub(crate) dcid: ConnectionId,
    pub(crate) scid: ConnectionId,
    pub(crate) original_dcid: ConnectionId,
    pub(crate) retry_scid: Option<ConnectionId>,
    pub(crate) unix_secs: u64,
    validated: bool,
}

impl Incoming {
    /// The client's address.
    pub fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// The address of ours that it sent to, if known.
    pub fn local(&self) -> Option<SocketAddr> {
        self.local
    }

    /// The version of its first packet.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The connection ID to which it sends until it knows one of the server's: of its own choice,
    /// or that of a Retry (RFC 9000, Section 7.2).
    pub fn first_dcid(&self) -> ConnectionId {
        self.dcid
    }

    /// True if the client has proved its address with a token (RFC 9000, Section 8.1).
    pub fn address_validated(&self) -> bool {
        self.validated
    }

    /// True if the client can still be sent a Retry: only once (RFC 9000, Section 17.2.5).
    pub fn may_retry(&self) -> bool {
        self.retry_scid.is_none()
    }
}

impl Endpoint {
    /// Makes an attempt of a client's first datagram, which is kept only once there is known to be
    /// room for it. An error is one that a close with
    /// INVALID_TOKEN answers (RFC 9000, Section 8.1.2).
    pub(super) fn incoming(
        &mut self,
        unix_secs: u64,
        server: &ServerConfig,
        header: &Header,
        datagram: &Datagram<'_>,
    ) -> Result<Incoming, Box<Incoming>> {
        let mut incoming = Incoming {
            remote: datagram.remote,
            local: datagram.local,
            ecn: datagram.ecn,
            data: Vec::new(),
            version: header.version,
            dcid: header.dcid,
            scid: header.scid,
            original_dcid: header.dcid,
            retry_scid: None,
            unix_secs,
            validated: false,
        };
        // Tokens are issued to clients, and this is the first of them.
        if !core::mem::replace(&mut self.strikes_begun, true) {
            self.strikes.begin(unix_secs);
        }
        let token = datagram.data.get(header.token.clone()).unwrap_or(&[]);
        if token.is_empty() {
            return Ok(incoming);
        }
        let lifetimes = TokenLifetimes {
            retry: server.retry_token_lifetime.as_secs(),
            new_token: server.new_token_lifetime.as_secs(),
        };
        match self.sealer(unix_secs).open(token, datagram.remote, lifetimes) {
            TokenVerdict::Retry { original_dcid, retry_scid } if retry_scid == header.dcid => {
                incoming.original_dcid = original_dcid;
                incoming.retry_scid = Some(retry_scid);
                incoming.validated = true;
            }
            TokenVerdict::Retry { .. } | TokenVerdict::InvalidRetry => {
                return Err(Box::new(incoming));
            }
            TokenVerdict::NewToken { id, issued } => {
                incoming.validated =
                    self.strikes.first_use(id, issued, lifetimes.new_token, unix_secs);
            }
            TokenVerdict::Unknown => {}
        }
        Ok(incoming)
    }

    fn sealer(&self, now: u64) -> TokenSealer<'_> {
        TokenSealer { crypto: &*self.crypto, keys: self.config.token_keys(), now }
    }

    /// Asks the client to prove its address: writes a Retry packet into `reply`, to be sent to
    /// [`Incoming::remote`]. `None` if the attempt cannot be retried, or if as many were in this
    /// second as may be ([`ReplyRates`](crate::ReplyRates)).
    pub fn retry(&mut self, now: Time, incoming: Incoming, reply: &mut Vec<u8>) -> Option<()> {
        self.decided(&incoming);
        let may = incoming.may_retry() && self.replies.take(now, Reply::Retry);
        if may { self.write_retry(now, &incoming, reply) } else { None }
    }

    pub(super) fn write_retry(
        &mut self,
        now: Time,
        incoming: &Incoming,
        reply: &mut Vec<u8>,
    ) -> Option<()> {
        if !incoming.may_retry() {
            return None;
        }
        let mut rng = self.rng.fork();
        // RFC 9000, Section 17.2.5.1: a connection ID of our choice, and not empty, for it goes
        // into the token and the keys.
        let scid = match self.config.cid_generator.generate(&mut *rng) {
            cid if cid.is_empty() => ConnectionId::new(&rng.next_u64().to_be_bytes())?,
            cid => cid,
        };
        let sealer = self.sealer(incoming.unix_secs);
        let token = token::seal_retry(&sealer, incoming.remote, &incoming.dcid, &scid, &mut *rng)?;
        reply.clear();
        reply.resize(MAX_RETRY, 0);
        let mut writer = Writer::new(reply);
        let unused = rng.next_u64() as u8;
        let header = RetryHeader {
            version: incoming.version,
            dcid: &incoming.scid,
            scid: &scid,
            token: &token,
            unused,
        };
        header.encode(&mut writer).ok()?;
        let len = writer.position();
        let tag = self.crypto.retry_tag(incoming.version, &incoming.dcid, reply.get(..len)?);
        reply.truncate(len);
        reply.extend_from_slice(&tag);
        self.last_retry = Some(now);
        self.retries = self.retries.saturating_add(1);
        Some(())
    }

    /// Turns an attempt away with CONNECTION_REFUSED: writes the packet into `reply`, to be sent
    /// to [`Incoming::remote`]. `None` if as many were refused in this second as may be
    /// ([`ReplyRates`](crate::ReplyRates)): the client hears nothing then.
    pub fn refuse(&mut self, now: Time, incoming: Incoming, reply: &mut Vec<u8>) -> Option<()> {
        self.decided(&incoming);
        self.write_refusal(now, &incoming, TransportErrorCode::CONNECTION_REFUSED, reply)
    }

    /// Drops an attempt without a word; the client will try again for a while.
    pub fn ignore(&mut self, incoming: Incoming) {
        self.decided(&incoming);
    }

    /// An attempt does not wait any more; returns what has come for it since its first datagram.
    pub(super) fn decided(&mut self, incoming: &Incoming) -> Vec<Held> {
        self.waiting.end(incoming)
    }

    pub(super) fn refuse_token(
        &mut self,
        now: Time,
        incoming: &Incoming,
        reply: &mut Vec<u8>,
    ) -> Route {
        match self.write_refusal(now, incoming, TransportErrorCode::INVALID_TOKEN, reply) {
            Some(()) => Route::Reply,
            None => Route::Dropped(DropReason::Limit),
        }
    }

    fn write_refusal(
        &mut self,
        now: Time,
        incoming: &Incoming,
        code: TransportErrorCode,
        reply: &mut Vec<u8>,
    ) -> Option<()> {
        if !self.replies.take(now, Reply::Refusal) {
            return None;
        }
        let Incoming { version, dcid, scid, .. } = *incoming;
        *reply = stateless::close(self.crypto.clone(), version, &dcid, &scid, code)?;
        Some(())
    }
}

/// Room for a Retry packet: header and our longest token.
const MAX_RETRY: usize = 64 + token::MAX_TOKEN_LEN;
