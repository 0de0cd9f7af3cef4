//! Field sections as QPACK encodes them (RFC 9204), as far as this side allows: without a dynamic table.
//!
//! h3 decodes them into fields, and loses what it takes to tell whether they are malformed: of two pseudo-headers
//! of a name it keeps the last, and all of them may follow other fields. So they are gone over before.

mod huffman;
mod reader;
pub mod section;
