//! What a server lets h3 see of a request, and what must hold whatever comes.

use bytes::Bytes;
use quicket_h3::{Piece, RequestFrames, Violation, section};

const MAX_SECTION: usize = 200;

/// The first byte chooses what the rest is, and where chunks end.
pub(crate) fn run(input: &[u8]) {
    let Some((choice, bytes)) = input.split_first() else { return };
    match choice % 2 {
        0 => frames(bytes, 1 + usize::from(choice / 2)),
        _ => one_section(bytes),
    }
}

/// What passes of a stream, and how it ends.
fn pass(stream: &[u8], size: usize) -> (Vec<u8>, Result<(), Violation>) {
    let mut frames = RequestFrames::new(MAX_SECTION);
    let mut passed = Vec::new();
    for chunk in stream.chunks(size) {
        let mut chunk = Bytes::copy_from_slice(chunk);
        loop {
            match frames.next(&mut chunk) {
                Ok(Some(Piece::Data(piece))) => {
                    assert!(!piece.is_empty());
                    passed.extend_from_slice(&piece);
                }
                Ok(Some(Piece::Frame(frame))) => {
                    // A type of one byte or more, and a length.
                    assert!(frame.len() <= 16 + MAX_SECTION);
                    passed.extend_from_slice(&frame);
                }
                Ok(None) => break,
                Err(violation) => return (passed, Err(violation)),
            }
        }
        assert!(chunk.is_empty(), "all of it is taken");
    }
    (passed, frames.end())
}

fn frames(stream: &[u8], size: usize) {
    let whole = pass(stream, stream.len().max(1));
    assert_eq!(whole, pass(stream, size), "it makes no difference where chunks end");
    let (passed, outcome) = whole;
    assert!(passed.len() <= stream.len());
    if outcome.is_ok() {
        assert_eq!(pass(&passed, size), (passed.clone(), Ok(())), "what passes passes again");
    }
}

fn one_section(bytes: &[u8]) {
    let request = section::request(bytes);
    if let Ok(Some(protocol)) = &request {
        assert!(protocol.place.start >= 2 && protocol.place.end <= bytes.len());
    }
    assert!(request.is_err() || section::trailers(bytes).is_err(), "only one has pseudo-headers");
}
