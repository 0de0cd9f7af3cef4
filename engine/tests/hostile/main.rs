//! What a peer that keeps to no rule can cost: every test measures the memory that an attack
//! makes the engine hold, and asserts its bound. docs/security.md lists the attacks.

mod acks;
mod cids;
mod crypto;
mod early_data;
mod fixed_bit;
mod frames;
mod idle;
mod initials;
mod injection;
mod keys;
mod memory;
mod paths;
mod stream_churn;
mod stream_data;
mod support;
mod tokens;
mod waiting;
