//! Frames that belong to no other part: HANDSHAKE_DONE, NEW_TOKEN and IMMEDIATE_ACK.

use alloc::vec::Vec;

use quicket_wire::frame;

use crate::frame_sink::FrameSink;
use crate::sent_frame::SentFrame;

/// One NEW_TOKEN and its fate.
#[derive(Debug)]
struct Token {
    bytes: Vec<u8>,
    in_flight: bool,
}

/// The odd frames of the application data space.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    handshake_done: bool,
    immediate_ack: bool,
    /// By index; acknowledged ones are empty.
    tokens: Vec<Token>,
}

impl Pending {
    pub(crate) fn set_handshake_done(&mut self) {
        self.handshake_done = true;
    }

    /// Asks the peer for an ACK at once (ACK frequency extension, Section 5).
    pub(crate) fn set_immediate_ack(&mut self) {
        self.immediate_ack = true;
    }

    pub(crate) fn push_token(&mut self, bytes: Vec<u8>) {
        self.tokens.push(Token { bytes, in_flight: false });
    }

    /// Forgets tokens that have arrived, if all have. Only while no packet with any of them is
    /// remembered: their indices begin anew.
    pub(crate) fn trim(&mut self) {
        if !self.has_unacknowledged_token() {
            self.tokens = Vec::new();
        }
    }

    /// True until all tokens have arrived.
    pub(crate) fn has_unacknowledged_token(&self) -> bool {
        self.tokens.iter().any(|token| !token.bytes.is_empty())
    }

    pub(crate) fn is_pending(&self) -> bool {
        self.handshake_done
            || self.immediate_ack
            || self.tokens.iter().any(|token| !token.in_flight && !token.bytes.is_empty())
    }

    pub(crate) fn write(&mut self, sink: &mut impl FrameSink) {
        if self.handshake_done
            && sink.frame(&frame::HandshakeDone, Some(SentFrame::HandshakeDone)).is_ok()
        {
            self.handshake_done = false;
        }
        if self.immediate_ack
            && sink.frame(&frame::ImmediateAck, Some(SentFrame::ImmediateAck)).is_ok()
        {
            self.immediate_ack = false;
        }
        for (index, token) in (0..).zip(&mut self.tokens) {
            if token.in_flight || token.bytes.is_empty() {
                continue;
            }
            let frame = frame::NewToken { token: &token.bytes };
            if sink.frame(&frame, Some(SentFrame::NewToken { index })).is_err() {
                return;
            }
            token.in_flight = true;
        }
    }

    pub(crate) fn on_token_acked(&mut self, index: u64) {
        if let Some(token) = self.token(index) {
            token.bytes = Vec::new();
        }
    }

    pub(crate) fn on_token_lost(&mut self, index: u64) {
        if let Some(token) = self.token(index) {
            token.in_flight = false;
        }
    }

    fn token(&mut self, index: u64) -> Option<&mut Token> {
        self.tokens.get_mut(usize::try_from(index).ok()?)
    }
}
