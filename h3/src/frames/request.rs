//! Frames of a request or a response (RFC 9114, Section 4.1).

use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use h3::error::Code;

use super::{CUT_OFF, Header, PUSHED, Piece, Sender, UNEXPECTED, kind};
use crate::message::STAND_IN;
use crate::qpack::section;
use crate::{Transfer, Violation};

/// Which frames may come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The header section; that of a response may have others before it.
    Begin,
    /// Of the body, or trailers.
    Body,
    /// None that means anything.
    End,
}

/// Where in a frame the stream is.
#[derive(Debug)]
enum Place {
    Header,
    /// In DATA, of which so much is left.
    Data(u64),
    /// In HEADERS, of which so much is left; what has come, with the frame's header of this length.
    Section {
        left: usize,
        begun: BytesMut,
        header: usize,
    },
    /// In a frame that means nothing.
    Unknown(u64),
}

/// Checks the frames of one request, or of its response.
#[derive(Debug)]
pub struct RequestFrames {
    sender: Sender,
    /// How long a field section may be, as it is encoded.
    max_section: usize,
    stage: Stage,
    place: Place,
    header: Header,
    /// Who may know the request.
    transfer: Option<Arc<Transfer>>,
}

impl RequestFrames {
    /// Nothing has come of a request. Field sections are refused above so many bytes.
    pub fn new(max_section: usize) -> Self {
        Self::sent_by(Sender::Client, max_section)
    }

    /// The same of a response.
    pub fn of_response(max_section: usize) -> Self {
        Self::sent_by(Sender::Server, max_section)
    }

    fn sent_by(sender: Sender, max_section: usize) -> Self {
        let (stage, place, header) = (Stage::Begin, Place::Header, Header::default());
        Self { sender, max_section, stage, place, header, transfer: None }
    }

    /// The same, where the request may be known to `transfer`: then there is another in its place.
    pub(crate) fn known_to(mut self, transfer: Arc<Transfer>) -> Self {
        self.transfer = Some(transfer);
        self
    }

    /// Takes the next piece out of a chunk of the stream; none if it takes further chunks.
    ///
    /// # Errors
    ///
    /// What is wrong with it. Nothing that comes after that is of any meaning.
    pub fn next(&mut self, chunk: &mut Bytes) -> Result<Option<Piece>, Violation> {
        loop {
            if chunk.is_empty() {
                return Ok(None);
            }
            match &mut self.place {
                Place::Header => {
                    if let Some(piece) = self.begin(chunk)? {
                        return Ok(Some(piece));
                    }
                }
                Place::Data(left) => {
                    let piece = chunk.split_to(at_most(*left, chunk.len()));
                    *left -= piece.len() as u64;
                    if *left == 0 {
                        self.place = Place::Header;
                    }
                    return Ok(Some(Piece::Data(piece)));
                }
                Place::Section { left, begun, header } => {
                    let some = chunk.split_to((*left).min(chunk.len()));
                    *left -= some.len();
                    begun.extend_from_slice(&some);
                    if *left == 0 {
                        let (frame, header) = (std::mem::take(begun).freeze(), *header);
                        self.place = Place::Header;
                        return self.section(frame, header).map(Some);
                    }
                }
                Place::Unknown(left) => {
                    let some = at_most(*left, chunk.len());
                    *left -= some as u64;
                    chunk.advance(some);
                    if *left == 0 {
                        self.place = Place::Header;
                    }
                }
            }
        }
    }

    /// The stream has ended.
    ///
    /// # Errors
    ///
    /// If that is within a frame, or before a response has begun.
    pub const fn end(&self) -> Result<(), Violation> {
        match self.place {
            Place::Header if self.header.is_empty() && self.has_no_response() => {
                Err(Violation::malformed("a stream that ends before there is a response"))
            }
            Place::Header if self.header.is_empty() => Ok(()),
            _ => Err(CUT_OFF),
        }
    }

    /// To h3 it would be an error of the connection.
    const fn has_no_response(&self) -> bool {
        matches!((self.sender, self.stage), (Sender::Server, Stage::Begin))
    }

    /// A frame begins.
    fn begin(&mut self, chunk: &mut Bytes) -> Result<Option<Piece>, Violation> {
        let Some(read) = self.header.read(chunk) else { return Ok(None) };
        match read.kind {
            kind::DATA if self.stage != Stage::Body => return Err(UNEXPECTED),
            // To h3 it would be the end of the body.
            kind::DATA if read.length == 0 => chunk.advance(read.within),
            kind::DATA => {
                let (piece, here) = match read.apart {
                    Some(apart) => (apart, 0),
                    None => {
                        let here = at_most(read.length, chunk.len() - read.within);
                        (chunk.split_to(read.within + here), here)
                    }
                };
                let left = read.length - here as u64;
                self.place = if left == 0 { Place::Header } else { Place::Data(left) };
                return Ok(Some(Piece::Data(piece)));
            }
            kind::HEADERS if self.stage == Stage::End => return Err(UNEXPECTED),
            kind::HEADERS => {
                let length = usize::try_from(read.length).unwrap_or(usize::MAX);
                if length > self.max_section {
                    let reason = "a header section that is too long";
                    return Err(Violation::stream(Code::H3_EXCESSIVE_LOAD, reason));
                }
                let whole = read.within + length;
                if read.apart.is_none() && whole <= chunk.len() {
                    return self.section(chunk.split_to(whole), read.within).map(Some);
                }
                let mut begun = BytesMut::new();
                let apart = read.apart.unwrap_or_else(|| chunk.split_to(read.within));
                begun.put_slice(&apart);
                let header = apart.len();
                if length == 0 {
                    return self.section(begun.freeze(), header).map(Some);
                }
                self.place = Place::Section { left: length, begun, header };
            }
            // RFC 9114, Section 7.2.5: this side allows no push at all.
            kind::PUSH_PROMISE if self.sender == Sender::Server => return Err(PUSHED),
            kind::SETTINGS
            | kind::GOAWAY
            | kind::CANCEL_PUSH
            | kind::PUSH_PROMISE
            | kind::MAX_PUSH_ID => {
                return Err(UNEXPECTED);
            }
            other if kind::RESERVED.contains(&other) => return Err(UNEXPECTED),
            // RFC 9114, Section 9: it is ignored.
            _ => {
                chunk.advance(read.within);
                if read.length > 0 {
                    self.place = Place::Unknown(read.length);
                }
            }
        }
        Ok(None)
    }

    /// A field section is whole.
    fn section(&mut self, frame: Bytes, header: usize) -> Result<Piece, Violation> {
        let section = &frame[header..];
        self.stage = match self.stage {
            Stage::Begin if self.sender == Sender::Client => {
                let transfer = self.transfer.take();
                if transfer.is_some_and(|transfer| transfer.recognize(section)) {
                    self.stage = Stage::Body;
                    return Ok(Piece::Frame(Bytes::from_static(STAND_IN)));
                }
                section::request(section)?;
                Stage::Body
            }
            // RFC 9114, Section 4.1: interim responses come first.
            Stage::Begin => match section::response(section)? {
                ..200 => Stage::Begin,
                _ => Stage::Body,
            },
            Stage::Body | Stage::End => {
                section::trailers(section)?;
                Stage::End
            }
        };
        Ok(Piece::Frame(frame))
    }
}

/// So much of a chunk belongs to a frame of which so much is left.
fn at_most(left: u64, chunk: usize) -> usize {
    usize::try_from(left).map_or(chunk, |left| left.min(chunk))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scope;

    /// GET https, `:authority: a`, `/`.
    const REQUEST: &[u8] = &[1, 8, 0, 0, 0xd1, 0xd7, 0xc1, 0x50, 1, b'a'];
    const TRAILERS: &[u8] = &[1, 3, 0, 0, 0xdd];

    /// What h3 gets, where the stream comes in chunks of this size.
    fn pass(stream: &[u8], size: usize) -> Result<Vec<Piece>, Violation> {
        let mut frames = RequestFrames::new(100);
        let mut pieces = Vec::new();
        for chunk in stream.chunks(size) {
            let mut chunk = Bytes::copy_from_slice(chunk);
            while let Some(piece) = frames.next(&mut chunk)? {
                pieces.push(piece);
            }
            assert!(chunk.is_empty());
        }
        frames.end().map(|()| pieces)
    }

    fn bytes(pieces: &[Piece]) -> Vec<u8> {
        let of = |piece: &Piece| match piece {
            Piece::Data(bytes) | Piece::Frame(bytes) => bytes.clone(),
        };
        pieces.iter().flat_map(of).collect()
    }

    fn everywhere(stream: &[u8], passes: &[u8]) {
        for size in 1..=stream.len() {
            assert_eq!(bytes(&pass(stream, size).unwrap()), passes, "in chunks of {size}");
        }
    }

    #[test]
    fn what_means_nothing_is_left_out_wherever_chunks_end() {
        let unknown: &[u8] = &[0x40, 0x41, 3, 1, 2, 3, 0x21, 0];
        let data: &[u8] = &[0, 3, b'a', b'b', b'c'];
        let empty: &[u8] = &[0, 0, 0x40, 0x00, 0x40, 0x00];
        let stream =
            [unknown, REQUEST, unknown, empty, data, unknown, data, empty, TRAILERS, unknown];
        everywhere(&stream.concat(), &[REQUEST, data, data, TRAILERS].concat());
        everywhere(REQUEST, REQUEST);
    }

    /// h3 asks for a piece with every frame.
    #[test]
    fn a_piece_has_one_frame_of_a_body_at_most() {
        let stream = [REQUEST, &[0, 1, b'a'].repeat(50)].concat();
        let pieces = pass(&stream, stream.len()).unwrap();
        assert_eq!(pieces.len(), 51);
        assert_eq!(pieces[1], Piece::Data(Bytes::from_static(&[0, 1, b'a'])));
    }

    #[test]
    fn frames_out_of_place_end_the_connection() {
        let data: &[u8] = &[0, 1, b'a'];
        let orders = [
            data.to_vec(),
            [REQUEST, TRAILERS, data].concat(),
            [REQUEST, TRAILERS, TRAILERS].concat(),
        ];
        let strange = [0x2, 0x3, 0x4, 0x5, 0x6, 0x7, 0x8, 0x9, 0xd];
        let places: [&[u8]; 3] = [&[], REQUEST, &[REQUEST, TRAILERS].concat()];
        let strange =
            strange.iter().flat_map(|kind| places.map(|place| [place, &[*kind]].concat()));
        // Their length does not matter, nor whether they are whole.
        for stream in
            orders.into_iter().chain(strange.map(|begin| [&begin[..], &[0x80, 1, 0, 0]].concat()))
        {
            for size in 1..=stream.len() {
                let wrong = pass(&stream, size).unwrap_err();
                assert_eq!(
                    (wrong.scope, wrong.code),
                    (Scope::Connection, Code::H3_FRAME_UNEXPECTED),
                    "{stream:?}"
                );
            }
        }
    }

    #[test]
    fn a_section_is_bounded_before_it_comes() {
        for begin in [&[][..], REQUEST] {
            for length in [&[0x40, 101][..], &[0xff; 8]] {
                let wrong = pass(&[begin, &[1], length].concat(), 3).unwrap_err();
                assert_eq!((wrong.scope, wrong.code), (Scope::Stream, Code::H3_EXCESSIVE_LOAD));
            }
        }
    }

    #[test]
    fn a_frame_that_is_cut_off_is_no_end() {
        let stream = [REQUEST, &[0, 3, b'a', b'b', b'c'], &[0x21, 2, 0, 0], TRAILERS].concat();
        let ends = [0, 10, 15, 19, 24];
        for end in 0..=stream.len() {
            let outcome = pass(&stream[..end], 4);
            match ends.contains(&end) {
                true => assert!(outcome.is_ok(), "{end}: {outcome:?}"),
                false => assert_eq!(outcome.unwrap_err().code, Code::H3_FRAME_ERROR, "{end}"),
            }
        }
    }

    /// `:status: 103`, and 200.
    const HINTS: &[u8] = &[1, 3, 0, 0, 0xd8];
    const ANSWER: &[u8] = &[1, 3, 0, 0, 0xd9];

    fn answered(stream: &[u8], size: usize) -> Result<Vec<u8>, Violation> {
        let mut frames = RequestFrames::of_response(100);
        let mut pieces = Vec::new();
        for chunk in stream.chunks(size) {
            let mut chunk = Bytes::copy_from_slice(chunk);
            while let Some(piece) = frames.next(&mut chunk)? {
                pieces.push(piece);
            }
        }
        frames.end().map(|()| bytes(&pieces))
    }

    /// RFC 9114, Section 4.1.
    #[test]
    fn a_response_has_interim_ones_before_it_and_trailers_behind() {
        let data: &[u8] = &[0, 1, b'a'];
        let right = [HINTS, HINTS, ANSWER, data, &[0x21, 0], TRAILERS].concat();
        for size in 1..=right.len() {
            assert_eq!(answered(&right, size), Ok([HINTS, HINTS, ANSWER, data, TRAILERS].concat()));
        }
        for wrong in [
            [HINTS, data].concat(),
            [HINTS, ANSWER, ANSWER].concat(),
            [ANSWER, HINTS].concat(),
            [ANSWER, data, HINTS].concat(),
            [ANSWER, TRAILERS, TRAILERS].concat(),
            REQUEST.to_vec(),
        ] {
            assert!(answered(&wrong, 3).is_err(), "{wrong:?}");
        }
    }

    /// RFC 9114, Section 7.2.5.
    #[test]
    fn a_push_that_nobody_allowed_is_a_wrong_id() {
        for place in [&[][..], ANSWER] {
            let wrong = answered(&[place, &[5, 1, 0]].concat(), 2).unwrap_err();
            assert_eq!((wrong.scope, wrong.code), (Scope::Connection, Code::H3_ID_ERROR));
        }
    }
}
