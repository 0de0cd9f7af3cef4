//! The Huffman code of RFC 7541, Appendix B, which QPACK uses, too (RFC 9204, Section 4.1.2).

const MAX_LENGTH: usize = 30;
const MIN_LENGTH: usize = 5;

/// How many bits each symbol takes: the 256 bytes, and EOS, of which only the beginning may occur, as padding. The
/// code is canonical: symbols of the same length have successive codes in
/// their order, and those of the next length go on behind them.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

/// Codes of one length: the first one, how many there are, and where their symbols begin in [`SYMBOLS`].
#[derive(Clone, Copy)]
struct Codes {
    first: u32,
    count: u32,
    begin: usize,
}

const TABLES: ([Codes; MAX_LENGTH + 1], [u16; 257]) = tables();
const CODES: [Codes; MAX_LENGTH + 1] = TABLES.0;
const SYMBOLS: [u16; 257] = TABLES.1;

const fn tables() -> ([Codes; MAX_LENGTH + 1], [u16; 257]) {
    let mut codes = [Codes { first: 0, count: 0, begin: 0 }; MAX_LENGTH + 1];
    let mut symbols = [0; 257];
    let (mut next, mut filled, mut length) = (0, 0, 1);
    while length <= MAX_LENGTH {
        next <<= 1;
        let begin = filled;
        let mut symbol = 0;
        while symbol < LENGTHS.len() {
            if LENGTHS[symbol] as usize == length {
                symbols[filled] = symbol as u16;
                filled += 1;
            }
            symbol += 1;
        }
        let count = (filled - begin) as u32;
        codes[length] = Codes { first: next, count, begin };
        next += count;
        length += 1;
    }
    (codes, symbols)
}

/// The string that this is the code of, if it is one.
pub(super) fn decode(coded: &[u8]) -> Option<Vec<u8>> {
    // The shortest code has 5 bits.
    let mut decoded = Vec::with_capacity(coded.len() * 8 / 5);
    each(coded, |byte| decoded.push(byte))?;
    Some(decoded)
}

/// Whether this is the code of a string.
pub(super) fn is_code(coded: &[u8]) -> bool {
    each(coded, |_| {}).is_some()
}

/// The bytes that this is the code of; none at the end if it is not one.
fn each(coded: &[u8], mut byte_is: impl FnMut(u8)) -> Option<()> {
    // Bits that are not decoded yet, the first one on top.
    let (mut bits, mut held, mut left) = (0_u64, 0, coded.iter());
    loop {
        while held <= 56 {
            let Some(&byte) = left.next() else { break };
            bits |= u64::from(byte) << (56 - held);
            held += 8;
        }
        let Some((length, symbol)) = first(bits, held) else { break };
        // RFC 7541, Section 5.2: a string that contains EOS is an error. All others are bytes.
        byte_is(u8::try_from(symbol).ok()?);
        bits <<= length;
        held -= length;
    }
    // The same section: what is left is shorter than a byte, and the beginning of EOS, which is all ones. The code is
    // complete: there is a symbol as long as the longest one has room.
    let padding = !(u64::MAX >> held.min(8));
    (held < 8 && bits == padding).then_some(())
}

/// The first symbol of so many bits, and its length.
fn first(bits: u64, held: usize) -> Option<(usize, u16)> {
    (MIN_LENGTH..=MAX_LENGTH.min(held)).find_map(|length| {
        let (code, codes) = ((bits >> (64 - length)) as u32, CODES.get(length)?);
        let at = code.checked_sub(codes.first).filter(|&at| at < codes.count)?;
        Some((length, *SYMBOLS.get(codes.begin + at as usize)?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_of_the_specification() {
        // RFC 7541, Appendix C.4 and C.6.
        let examples: [(&[u8], &[u8]); 4] = [
            (
                &[0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff],
                b"www.example.com",
            ),
            (&[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf], b"no-cache"),
            (&[0x25, 0xa8, 0x49, 0xe9, 0x5b, 0xb8, 0xe8, 0xb4, 0xbf], b"custom-value"),
            (&[0x64, 0x02], b"302"),
        ];
        for (coded, plain) in examples {
            assert_eq!(decode(coded).unwrap(), plain);
        }
        assert_eq!(decode(b"").unwrap(), b"");
    }

    #[test]
    fn the_code_is_complete() {
        let all: u64 = LENGTHS.iter().map(|&length| 1 << (MAX_LENGTH - length as usize)).sum();
        assert_eq!(all, 1 << MAX_LENGTH);
        assert_eq!(SYMBOLS[256], 256, "the last code is EOS");
    }

    #[test]
    fn padding_is_short_and_of_ones() {
        // `a` is 00011.
        assert_eq!(decode(&[0b0001_1111]).unwrap(), b"a");
        for wrong in [&[0b0001_1000][..], &[0b0001_1111, 0xff], &[0xff], &[0xff; 4]] {
            assert_eq!(decode(wrong), None, "{wrong:?}");
        }
    }
}
