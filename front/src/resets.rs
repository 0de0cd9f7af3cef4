//! What h2 refuses by itself. It resets malformed requests before anybody hears of them (RFC 9113, Section 8.1.1), and
//! tells nobody but their client: the frames that it writes say so.

/// What each frame begins with: length, type, flags and stream (RFC 9113, Section 4.1).
const HEADER: usize = 9;
/// A frame with a code of four octets behind that (Section 6.4) ...
const RST_STREAM: u8 = 3;
const WHOLE: usize = HEADER + 4;
/// ... which is this one of what is malformed (Section 7).
const PROTOCOL_ERROR: [u8; 4] = [0, 0, 0, 1];

/// Follows the frames that a server writes.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// The beginning of a frame, as far as it has come.
    begun: [u8; WHOLE],
    length: usize,
    /// What is left of a payload that does not matter.
    skipped: usize,
}

impl Frames {
    /// Takes note of what is written next. How many streams are reset by that as malformed.
    pub(super) fn note(&mut self, mut written: &[u8]) -> usize {
        let mut resets = 0;
        while let Some((&byte, rest)) = written.split_first() {
            let some = self.skipped.min(written.len());
            self.skipped -= some;
            written = match some {
                0 => {
                    resets += usize::from(self.push(byte));
                    rest
                }
                _ => written.get(some..).unwrap_or_default(),
            };
        }
        resets
    }

    /// Takes the next octet of what a frame begins with; true if it completes a reset of what is malformed.
    fn push(&mut self, byte: u8) -> bool {
        if let Some(place) = self.begun.get_mut(self.length) {
            *place = byte;
        }
        self.length += 1;
        let [a, b, c, kind, .., w, x, y, z] = self.begun;
        let payload = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        let is_reset = kind == RST_STREAM && payload == WHOLE - HEADER;
        match self.length {
            HEADER if !is_reset => (self.length, self.skipped) = (0, payload),
            WHOLE => {
                self.length = 0;
                return [w, x, y, z] == PROTOCOL_ERROR;
            }
            _ => {}
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, 0, 0, 0, 0, 1], payload].concat()
    }

    #[test]
    fn resets_of_what_is_malformed_are_found_however_frames_are_cut() {
        let inner = frame(RST_STREAM, &PROTOCOL_ERROR);
        let written = [
            frame(4, &[]),
            frame(0, &inner),
            inner.clone(),
            frame(RST_STREAM, &[0, 0, 0, 8]),
            frame(1, &[0; 300]),
            inner.clone(),
            frame(7, &[0, 0, 0, 0, 0, 0, 0, 1]),
        ]
        .concat();
        for size in 1..=written.len() {
            let mut frames = Frames::default();
            let resets: usize = written.chunks(size).map(|some| frames.note(some)).sum();
            assert_eq!(resets, 2, "in pieces of {size}");
        }
    }
}
