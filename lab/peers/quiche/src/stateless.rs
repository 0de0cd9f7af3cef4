//! What a server answers without a connection; quiche leaves it to the application.

use std::net::SocketAddr;

use aws_lc_rs::hmac;
use quiche::{ConnectionId, Header, Type};
use quicket_workload::bench::Failure;

use crate::client::{random, random_cid};

/// Bytes of a tag in a token.
const TAG: usize = 32;
/// Bytes of a stateless reset without its token: fewer than any packet that may cause one.
const BEFORE_TOKEN: usize = 24;

/// The keys of tokens.
pub struct Stateless {
    tokens: hmac::Key,
    resets: hmac::Key,
}

impl Stateless {
    pub fn new(reset_key: Option<&str>) -> Result<Self, Failure> {
        let key = |bytes: &[u8]| hmac::Key::new(hmac::HMAC_SHA256, bytes);
        let resets = match reset_key {
            Some(text) => key(text.as_bytes()),
            None => key(&random::<32>()?),
        };
        Ok(Self { tokens: key(&random::<32>()?), resets })
    }

    /// The stateless reset token of a connection ID.
    pub fn reset_token(&self, cid: &[u8]) -> u128 {
        let tag = hmac::sign(&self.resets, cid);
        tag.as_ref().iter().take(16).fold(0, |token, &byte| token << 8 | u128::from(byte))
    }

    /// A stateless reset for a packet to a connection ID that nobody has (RFC 9000, Section 10.3).
    pub fn reset(&self, cid: &[u8]) -> Result<Vec<u8>, Failure> {
        let mut packet = random::<BEFORE_TOKEN>()?.to_vec();
        packet[0] = packet[0] & 0x3f | 0x40;
        packet.extend(self.reset_token(cid).to_be_bytes());
        Ok(packet)
    }

    /// A Retry packet for a client at this address.
    pub fn retry(
        &self,
        header: &Header<'_>,
        from: SocketAddr,
        out: &mut [u8],
    ) -> Result<usize, Failure> {
        let cid = random_cid()?;
        let tag = self.tag(from, &cid, &header.dcid);
        let token = [tag.as_ref(), &header.dcid].concat();
        Ok(quiche::retry(&header.scid, &header.dcid, &cid, &token, header.version, out)?)
    }

    /// What the client has called the server first, as a token of ours says.
    pub fn original(&self, header: &Header<'_>, from: SocketAddr) -> Option<ConnectionId<'static>> {
        let (tag, original) = header.token.as_deref()?.split_at_checked(TAG)?;
        let expected = self.tag(from, &header.dcid, original);
        let right = header.ty == Type::Initial && expected.as_ref() == tag;
        right.then(|| ConnectionId::from_vec(original.to_vec()))
    }

    fn tag(&self, from: SocketAddr, cid: &[u8], original: &[u8]) -> hmac::Tag {
        let text = [from.to_string().as_bytes(), &[cid.len() as u8], cid, original].concat();
        hmac::sign(&self.tokens, &text)
    }
}
