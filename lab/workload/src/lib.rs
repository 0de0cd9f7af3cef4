//! What a program driven by `quicket-lab` is told and what it answers.
//!
//! The lab starts every implementation as a process of its own. [`peer`] is the command line and
//! the JSON lines of the interoperability runs, [`mod@bench`] those of the benchmark together with its
//! loads, so that each implementation is asked for exactly the same work and timed by the same
//! code. Programs outside this workspace (`lab/peers/quinn`) use this crate too, which is why it
//! depends on none of Quicket's libraries.

pub mod bench;
pub mod peer;
