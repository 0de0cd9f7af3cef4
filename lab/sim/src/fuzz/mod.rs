//! What fuzzers run: functions of bytes that must neither panic nor hang, whatever the bytes.
//!
//! Coverage-guided fuzzing calls them from `fuzz/`; a seeded generator calls them in every test
//! run, with inputs that are mostly well formed and sometimes not.

mod datagrams;
mod frames;
mod generate;
mod input;
mod parameters;
mod tokens;

use crate::rng::SimRng;

/// Something to be fuzzed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Datagrams into an endpoint: a server's and a client's, with and without connections.
    Datagrams,
    /// Validly sealed frames into a connection in every state, both roles.
    Frames,
    /// Transport parameters, decoded and in a handshake.
    Parameters,
    /// Address tokens, from anybody and from whoever knows the key.
    Tokens,
}

impl Target {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Datagrams, Self::Frames, Self::Parameters, Self::Tokens];

    /// Its name, which is that of its corpus too.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Datagrams => "datagrams",
            Self::Frames => "frames",
            Self::Parameters => "parameters",
            Self::Tokens => "tokens",
        }
    }

    /// Runs one input.
    ///
    /// # Panics
    /// If the input finds a fault.
    pub fn run(self, input: &[u8]) {
        match self {
            Self::Datagrams => datagrams::run(input),
            Self::Frames => frames::run(input),
            Self::Parameters => parameters::run(input),
            Self::Tokens => tokens::run(input),
        }
    }

    /// A random input.
    pub fn generate(self, seed: u64) -> Vec<u8> {
        let mut rng = SimRng::new(seed).stream(self.name());
        match self {
            Self::Datagrams => generate::datagrams(&mut rng),
            Self::Frames => generate::frames(&mut rng),
            Self::Parameters => generate::parameters(&mut rng),
            Self::Tokens => generate::tokens(&mut rng),
        }
    }
}
