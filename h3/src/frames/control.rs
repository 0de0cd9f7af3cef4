//! Frames of a peer's control stream (RFC 9114, Sections 6.2.1 and 7.2).

use bytes::{Buf, BufMut, Bytes, BytesMut};
use h3::error::Code;

use super::{CUT_OFF, Header, PUSHED, Piece, Sender, UNEXPECTED, integer, kind};
use crate::Violation;

/// The longest SETTINGS frame that is taken, in bytes: about a hundred settings, where a dozen are known.
const MAX_SETTINGS: u64 = 1024;

/// SETTINGS_MAX_FIELD_SECTION_SIZE (RFC 9114, Section 7.2.4.1).
const MAX_FIELD_SECTION_SIZE: u64 = 0x6;
/// SETTINGS_ENABLE_CONNECT_PROTOCOL (RFC 9220, Section 5).
const ENABLE_CONNECT_PROTOCOL: u64 = 0x8;

/// What a peer's SETTINGS say, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// They allow extended CONNECT (RFC 9220, Section 3).
    pub(crate) extended_connect: bool,
    /// How long a field section may be, as it is decoded (RFC 9114, Section 4.2.2).
    pub(crate) max_section: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { extended_connect: false, max_section: u64::MAX }
    }
}

/// RFC 9114, Section 7.1.
const WRONG_LENGTH: Violation = Violation::connection(
    Code::H3_FRAME_ERROR,
    "a frame that is shorter or longer than what is in it",
);

/// Checks the frames of a control stream, behind its type.
#[derive(Debug)]
pub(crate) struct Control {
    sender: Sender,
    header: Header,
    has_settings: bool,
    /// What SETTINGS say, once they are here.
    settings: Option<Settings>,
    /// The frame that is under way, and how much of it is left.
    frame: Option<Frame>,
    /// What the client has said last (RFC 9114, Section 7.2.7).
    max_push_id: Option<u64>,
    /// What the server has said last (RFC 9114, Section 5.2).
    goaway: Option<u64>,
}

#[derive(Debug)]
struct Frame {
    kind: u64,
    left: u64,
    /// What has come, with the header; nothing of frames that mean nothing.
    begun: BytesMut,
    /// How long the header is.
    header: usize,
}

impl Control {
    /// Nothing has come of the stream.
    pub(crate) fn of(sender: Sender) -> Self {
        let (header, frame, max_push_id, goaway) = (Header::default(), None, None, None);
        let (has_settings, settings) = (false, None);
        Self { sender, header, has_settings, settings, frame, max_push_id, goaway }
    }

    /// The first request that a server does not answer, if it has named one.
    pub(crate) const fn goaway(&self) -> Option<u64> {
        self.goaway
    }

    /// What SETTINGS say, if they have just come.
    pub(crate) const fn take_settings(&mut self) -> Option<Settings> {
        self.settings.take()
    }

    /// Takes the next piece out of a chunk of the stream; none if it takes further chunks.
    pub(crate) fn next(&mut self, chunk: &mut Bytes) -> Result<Option<Piece>, Violation> {
        loop {
            if self.frame.is_none() {
                let Some(read) = self.header.read(chunk) else { return Ok(None) };
                self.allow(read.kind, read.length)?;
                let header = read.apart.unwrap_or_else(|| chunk.split_to(read.within));
                let begun = BytesMut::from(&header[..]);
                let header = header.len();
                self.frame = Some(Frame { kind: read.kind, left: read.length, begun, header });
            }
            let Some(frame) = &mut self.frame else { return Ok(None) };
            let some =
                usize::try_from(frame.left).map_or(chunk.len(), |left| left.min(chunk.len()));
            frame.left -= some as u64;
            match is_known(frame.kind) {
                true => frame.begun.put(chunk.split_to(some)),
                false => chunk.advance(some),
            }
            if frame.left > 0 {
                return Ok(None);
            }
            let frame = self.frame.take().filter(|frame| is_known(frame.kind));
            if let Some(Frame { kind, begun, header, .. }) = frame {
                self.whole(kind, &begun[header..])?;
                return Ok(Some(Piece::Frame(begun.freeze())));
            }
        }
    }

    /// The stream has ended; that it must not end is for h3 to say.
    pub(crate) const fn end(&self) -> Result<(), Violation> {
        match self.frame.is_none() && self.header.is_empty() {
            true => Ok(()),
            false => Err(CUT_OFF),
        }
    }

    fn allow(&mut self, frame: u64, length: u64) -> Result<(), Violation> {
        // RFC 9114, Section 6.2.1: whatever the first one is.
        if !self.has_settings && frame != kind::SETTINGS {
            let reason = "a control stream that does not begin with SETTINGS";
            return Err(Violation::connection(Code::H3_MISSING_SETTINGS, reason));
        }
        match frame {
            kind::SETTINGS if self.has_settings => Err(UNEXPECTED),
            kind::SETTINGS => {
                self.has_settings = true;
                match length {
                    ..=MAX_SETTINGS => Ok(()),
                    _ => Err(Violation::connection(
                        Code::H3_EXCESSIVE_LOAD,
                        "a SETTINGS frame that is too long",
                    )),
                }
            }
            kind::DATA | kind::HEADERS | kind::PUSH_PROMISE => Err(UNEXPECTED),
            // RFC 9114, Section 7.2.7.
            kind::MAX_PUSH_ID if self.sender == Sender::Server => Err(UNEXPECTED),
            kind::GOAWAY | kind::CANCEL_PUSH | kind::MAX_PUSH_ID => match length {
                // One integer.
                1 | 2 | 4 | 8 => Ok(()),
                _ => Err(WRONG_LENGTH),
            },
            other if kind::RESERVED.contains(&other) => Err(UNEXPECTED),
            _ => Ok(()),
        }
    }

    fn whole(&mut self, frame: u64, payload: &[u8]) -> Result<(), Violation> {
        if frame == kind::SETTINGS {
            self.settings = Some(settings(payload)?);
            return Ok(());
        }
        let id = integer(payload).filter(|(_, length)| *length == payload.len());
        let (id, _) = id.ok_or(WRONG_LENGTH)?;
        let is_wrong = match frame {
            // RFC 9114, Section 7.2.6: a request's stream, and none behind one that was named before.
            kind::GOAWAY if self.sender == Sender::Server => {
                if id % 4 != 0 || self.goaway.is_some_and(|before| id > before) {
                    let reason = "a GOAWAY for what is no request, or takes back another one";
                    return Err(Violation::connection(Code::H3_ID_ERROR, reason));
                }
                self.goaway = Some(id);
                false
            }
            // RFC 9114, Section 7.2.3: nothing was promised.
            kind::CANCEL_PUSH => true,
            kind::MAX_PUSH_ID => self.max_push_id.replace(id).is_some_and(|before| id < before),
            // That it must not grow is for h3 to say.
            _ => false,
        };
        match is_wrong {
            true => Err(PUSHED),
            false => Ok(()),
        }
    }
}

/// Goes over the settings, of which h3 looks at the rest.
fn settings(mut payload: &[u8]) -> Result<Settings, Violation> {
    let mut next = || {
        let (value, length) = integer(payload)?;
        payload = &payload[length..];
        Some(value)
    };
    let mut settings = Settings::default();
    while let Some(identifier) = next() {
        match (identifier, next().ok_or(WRONG_LENGTH)?) {
            (MAX_FIELD_SECTION_SIZE, value) => settings.max_section = value,
            (ENABLE_CONNECT_PROTOCOL, value @ (0 | 1)) => settings.extended_connect = value == 1,
            // RFC 8441, Section 3.
            (ENABLE_CONNECT_PROTOCOL, _) => {
                let reason = "SETTINGS_ENABLE_CONNECT_PROTOCOL that is neither 0 nor 1";
                return Err(Violation::connection(Code::H3_SETTINGS_ERROR, reason));
            }
            _ => {}
        }
    }
    match payload.is_empty() {
        true => Ok(settings),
        false => Err(WRONG_LENGTH),
    }
}

/// True for frames that h3 may see.
const fn is_known(frame: u64) -> bool {
    matches!(frame, kind::SETTINGS | kind::GOAWAY | kind::CANCEL_PUSH | kind::MAX_PUSH_ID)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: &[u8] = &[4, 2, 6, 1];

    fn pass(stream: &[u8], size: usize) -> Result<Vec<u8>, Code> {
        let mut control = Control::of(Sender::Client);
        let mut passed = Vec::new();
        for chunk in stream.chunks(size) {
            let mut chunk = Bytes::copy_from_slice(chunk);
            while let Some(piece) = control.next(&mut chunk).map_err(|wrong| wrong.code)? {
                let Piece::Frame(frame) = piece else { panic!("{piece:?}") };
                passed.extend_from_slice(&frame);
            }
        }
        control.end().map(|()| passed).map_err(|wrong| wrong.code)
    }

    #[test]
    fn frames_of_clients_pass_and_what_means_nothing_does_not() {
        let unknown: &[u8] = &[0x21, 3, 1, 2, 3, 0x40, 0x40, 0];
        let more: &[u8] = &[0xd, 1, 5, 0xd, 2, 0x40, 5, 7, 1, 0];
        let stream = [SETTINGS, unknown, more, unknown].concat();
        for size in 1..=stream.len() {
            assert_eq!(pass(&stream, size).unwrap(), [SETTINGS, more].concat(), "{size}");
        }
        assert_eq!(pass(&[4, 0], 2).unwrap(), [4, 0]);
    }

    #[test]
    fn what_is_wrong_is_told_by_its_code() {
        let after = |frame: &[u8]| [SETTINGS, frame].concat();
        for (stream, code) in [
            (vec![7, 1, 0], Code::H3_MISSING_SETTINGS),
            (vec![0x21, 0], Code::H3_MISSING_SETTINGS),
            (vec![4, 0x44, 1], Code::H3_EXCESSIVE_LOAD),
            (vec![4, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], Code::H3_EXCESSIVE_LOAD),
            // A setting that is cut off, and one of which there is no value (RFC 9114, Section 7.1).
            (vec![4, 1, 0x40], Code::H3_FRAME_ERROR),
            (vec![4, 1, 6], Code::H3_FRAME_ERROR),
            (vec![4, 3, 6, 1, 0x80], Code::H3_FRAME_ERROR),
            (vec![4, 2, 8, 2], Code::H3_SETTINGS_ERROR),
            (after(SETTINGS), Code::H3_FRAME_UNEXPECTED),
            (after(&[0, 1, 0]), Code::H3_FRAME_UNEXPECTED),
            (after(&[1, 1, 0]), Code::H3_FRAME_UNEXPECTED),
            (after(&[5, 1, 0]), Code::H3_FRAME_UNEXPECTED),
            (after(&[2, 0]), Code::H3_FRAME_UNEXPECTED),
            (after(&[3, 1, 0]), Code::H3_ID_ERROR),
            (after(&[0xd, 1, 3, 0xd, 1, 2]), Code::H3_ID_ERROR),
            (after(&[7, 0]), Code::H3_FRAME_ERROR),
            (after(&[7, 2, 0, 0]), Code::H3_FRAME_ERROR),
            (after(&[7, 1, 0x40]), Code::H3_FRAME_ERROR),
            (after(&[7, 3, 0, 0, 0]), Code::H3_FRAME_ERROR),
            (after(&[7, 1]), Code::H3_FRAME_ERROR),
        ] {
            for size in 1..=stream.len() {
                assert_eq!(pass(&stream, size), Err(code), "{stream:?}");
            }
        }
    }

    /// RFC 9220, Section 3, and RFC 9114, Section 7.2.4.1.
    #[test]
    fn settings_say_whether_extended_connect_is_taken_and_how_long_a_section_may_be() {
        for (settings, extended_connect, max_section) in [
            (&[4, 0][..], false, u64::MAX),
            (&[4, 2, 8, 0], false, u64::MAX),
            (&[4, 2, 8, 1], true, u64::MAX),
            (&[4, 3, 6, 0x41, 0], false, 256),
            (&[4, 6, 6, 1, 0x40, 8, 0x40, 1], true, 1),
        ] {
            let mut control = Control::of(Sender::Server);
            assert_eq!(control.take_settings(), None);
            let mut chunk = Bytes::copy_from_slice(settings);
            assert!(control.next(&mut chunk).unwrap().is_some());
            let expected = Settings { extended_connect, max_section };
            assert_eq!(control.take_settings(), Some(expected), "{settings:?}");
            assert_eq!(control.take_settings(), None);
        }
    }

    #[test]
    fn a_server_says_which_requests_it_answers_and_asks_for_no_push() {
        let read = |frames: &[&[u8]]| {
            let mut control = Control::of(Sender::Server);
            let mut chunk = Bytes::from([SETTINGS, &frames.concat()].concat());
            while control.next(&mut chunk)?.is_some() {}
            Ok(control.goaway())
        };
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&[&[7, 1, 8]]), Ok(Some(8)));
        assert_eq!(read(&[&[7, 1, 8], &[7, 1, 8], &[7, 1, 0]]), Ok(Some(0)));
        for (frames, code) in [
            (&[&[7, 1, 1][..]][..], Code::H3_ID_ERROR),
            (&[&[7, 1, 4], &[7, 1, 8]], Code::H3_ID_ERROR),
            (&[&[3, 1, 0]], Code::H3_ID_ERROR),
            (&[&[0xd, 1, 0]], Code::H3_FRAME_UNEXPECTED),
        ] {
            assert_eq!(
                read(frames).map_err(|wrong: Violation| wrong.code),
                Err(code),
                "{frames:?}"
            );
        }
    }
}
