//! What a server lets h3 see of a request, and a client of a response, and what must hold whatever comes.

use bytes::Bytes;
use quicket_h3::{Piece, RequestFrames, Violation, section};

const MAX_SECTION: usize = 200;

type Begin = fn(usize) -> RequestFrames;

/// The first byte chooses what the rest is, and where chunks end.
pub(crate) fn run(input: &[u8]) {
    let Some((choice, bytes)) = input.split_first() else { return };
    let size = 1 + usize::from(choice / 4);
    match choice % 4 {
        0 => frames(RequestFrames::new, bytes, size),
        2 => frames(RequestFrames::of_response, bytes, size),
        _ => one_section(bytes),
    }
}

/// What passes of a stream, and how it ends.
fn pass(begin: Begin, stream: &[u8], size: usize) -> (Vec<u8>, Result<(), Violation>) {
    let mut frames = begin(MAX_SECTION);
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

fn frames(begin: Begin, stream: &[u8], size: usize) {
    let whole = pass(begin, stream, stream.len().max(1));
    assert_eq!(whole, pass(begin, stream, size), "it makes no difference where chunks end");
    let (passed, outcome) = whole;
    assert!(passed.len() <= stream.len());
    if outcome.is_ok() {
        assert_eq!(
            pass(begin, &passed, size),
            (passed.clone(), Ok(())),
            "what passes passes again"
        );
    }
}

fn one_section(bytes: &[u8]) {
    let request = section::request(bytes);
    if let Ok(Some(protocol)) = &request {
        assert!(protocol.place.start >= 2 && protocol.place.end <= bytes.len());
    }
    let kinds =
        [request.is_ok(), section::response(bytes).is_ok(), section::trailers(bytes).is_ok()];
    assert!(
        kinds.iter().filter(|&&is| is).count() <= 1,
        "each has other pseudo-headers: {kinds:?}"
    );
}
