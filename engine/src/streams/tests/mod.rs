//! Streams as a whole: two sides that exchange packets.
