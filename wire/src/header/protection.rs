//! Header protection (RFC 9001, Section 5.4), given the mask.

use super::{FIXED, FORM_LONG, KEY_PHASE, PN_LEN, SPIN};

/// The length in bytes of the ciphertext sample that the mask is made from
/// (RFC 9001, Section 5.4.2).
pub const SAMPLE_LEN: usize = 16;

/// The longest packet number in bytes: the sample starts where a packet number of this length
/// would end (RFC 9001, Section 5.4.2).
const MAX_PN_LEN: usize = 4;

/// The sample of a packet, whose packet number starts at `pn_offset`; `None` when the packet
/// is too short, in which case it is to be discarded (RFC 9001, Section 5.4.2).
#[inline]
#[must_use]
pub fn header_sample(packet: &[u8], pn_offset: usize) -> Option<&[u8; SAMPLE_LEN]> {
    packet.get(pn_offset.checked_add(MAX_PN_LEN)?..)?.first_chunk()
}

/// Removes header protection in place, and returns the length and the value of the truncated
/// packet number. `None`, with the packet unchanged, when it has less than 4 bytes from
/// `pn_offset` on (RFC 9001, Section 5.4.1).
#[inline]
pub fn unprotect(packet: &mut [u8], pn_offset: usize, mask: [u8; 5]) -> Option<(usize, u32)> {
    let (header, rest) = packet.split_at_mut_checked(pn_offset)?;
    let first_byte = header.first_mut()?;
    let pn_bytes = rest.first_chunk_mut::<MAX_PN_LEN>()?;
    let [first_mask, pn_mask @ ..] = mask;
    *first_byte ^= first_mask & protected_bits(*first_byte);
    let pn_len = usize::from(*first_byte & PN_LEN) + 1;
    let mut pn: u32 = 0;
    for (byte, mask) in pn_bytes.iter_mut().zip(pn_mask).take(pn_len) {
        *byte ^= mask;
        pn = pn << 8 | u32::from(*byte);
    }
    Some((pn_len, pn))
}

/// Applies header protection in place to a packet whose payload is encrypted already. `None`,
/// with the packet unchanged, when it has less than 4 bytes from `pn_offset` on
/// (RFC 9001, Section 5.4.1).
#[inline]
pub fn protect(packet: &mut [u8], pn_offset: usize, mask: [u8; 5]) -> Option<()> {
    let (header, rest) = packet.split_at_mut_checked(pn_offset)?;
    let first_byte = header.first_mut()?;
    let pn_bytes = rest.first_chunk_mut::<MAX_PN_LEN>()?;
    let [first_mask, pn_mask @ ..] = mask;
    let pn_len = usize::from(*first_byte & PN_LEN) + 1;
    for (byte, mask) in pn_bytes.iter_mut().zip(pn_mask).take(pn_len) {
        *byte ^= mask;
    }
    *first_byte ^= first_mask & protected_bits(*first_byte);
    Some(())
}

#[inline]
const fn protected_bits(first_byte: u8) -> u8 {
    if first_byte & FORM_LONG != 0 { 0x0f } else { 0x1f }
}

/// Whether the reserved bits of an unprotected first byte are zero. If not, the packet is a
/// PROTOCOL_VIOLATION, but only once it has proved authentic: both header and packet
/// protection have to be removed before (RFC 9000, Sections 17.2 and 17.3.1).
#[inline]
#[must_use]
pub const fn reserved_bits_are_zero(first_byte: u8) -> bool {
    first_byte & if first_byte & FORM_LONG != 0 { 0x0c } else { 0x18 } == 0
}

/// The fixed bit in the first byte of a packet, protected or not (RFC 9000, Section 17.2).
#[inline]
#[must_use]
pub const fn fixed_bit(first_byte: u8) -> bool {
    first_byte & FIXED != 0
}

/// The key phase in the unprotected first byte of a short header (RFC 9001, Section 6).
#[inline]
#[must_use]
pub const fn key_phase(first_byte: u8) -> bool {
    first_byte & KEY_PHASE != 0
}

/// The spin bit in the first byte of a short header, protected or not
/// (RFC 9000, Section 17.4).
#[inline]
#[must_use]
pub const fn spin(first_byte: u8) -> bool {
    first_byte & SPIN != 0
}
