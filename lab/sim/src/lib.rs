//! A deterministic network in virtual time.
