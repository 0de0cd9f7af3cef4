//! Field sections that cannot be decoded, and instructions for a dynamic table that is not there.

use h3i::quiche::h3::frame::Frame;

use crate::case::{
    Case, DECODER_STREAM_ERROR, DECODER_TYPE, DECOMPRESSION_FAILED, ENCODER_STREAM_ERROR,
    ENCODER_TYPE, Outcome, REQUEST, SECOND, Server, case, last, open, post, raw,
};

pub fn cases(server: Server) -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, section, header_block) in [
        ("a section without a prefix", "RFC 9204, Section 4.5.1", &b""[..]),
        ("a Required Insert Count", "RFC 9204, Section 4.5.1.1", b"\x01\0\xd1"),
        ("an entry of the dynamic table", "RFC 9204, Section 2.2.3", b"\0\0\x80"),
        ("a name of the dynamic table", "RFC 9204, Section 2.2.3", b"\0\0\x40\0"),
        ("an entry behind Base", "RFC 9204, Section 2.2.3", b"\0\0\x10"),
        ("a name behind Base", "RFC 9204, Section 2.2.3", b"\0\0\0\0"),
        ("an entry that the static table lacks", "RFC 9204, Section 3.1", b"\0\0\xff\x24"),
        ("a string beyond the section's end", "RFC 9204, Section 4.1.2", b"\0\0\x54\x094"),
        ("Huffman coding with EOS", "RFC 7541, Section 5.2", b"\0\0\x54\x84\xff\xff\xff\xff"),
    ] {
        let expected = Outcome::Closed(DECOMPRESSION_FAILED);
        let frame = || last(REQUEST, Frame::Headers { header_block: header_block.to_vec() });
        cases.push(case(name, section, expected.clone(), vec![frame()]));
        if server.reads_bodies() {
            let name = format!("{name}, in trailers");
            cases.push(case(name, section, expected, vec![post(), frame()]));
        }
    }
    for (name, section, bytes) in [
        ("a capacity above what was offered", "RFC 9204, Section 4.3.1", &b"\x3f\x01"[..]),
        ("an insertion with a static name", "RFC 9204, Section 3.2.2", b"\xc0\0"),
        ("an insertion with a literal name", "RFC 9204, Section 3.2.2", b"\x41a\x01b"),
        ("a duplicate of nothing", "RFC 9204, Section 2.2.3", b"\0"),
    ] {
        let actions = vec![open(SECOND, ENCODER_TYPE), raw(SECOND, bytes)];
        cases.push(case(name, section, Outcome::Closed(ENCODER_STREAM_ERROR), actions));
    }
    for (name, section, bytes) in [
        ("a section acknowledged that was not sent", "RFC 9204, Section 4.4.1", b"\x80"),
        ("an insertion counted that was not sent", "RFC 9204, Section 4.4.3", b"\x01"),
        ("an Insert Count Increment of 0", "RFC 9204, Section 4.4.3", b"\0"),
    ] {
        let actions = vec![open(SECOND, DECODER_TYPE), raw(SECOND, bytes)];
        cases.push(case(name, section, Outcome::Closed(DECODER_STREAM_ERROR), actions));
    }
    cases
}
