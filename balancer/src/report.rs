//! What a server says of itself: a datagram, authenticated with a key of the site.
//!
//! ```text
//! "QBR1" | time (8) | state (1) | percent (1) | length of the ID (1) | ID (15) | HMAC-SHA-256 (32)
//! ```
//!
//! The time is that of the server's clock, in milliseconds since 1970. It only grows, and is close to
//! ours: an old report that somebody sends again is refused.

use std::fmt;

use quicket_steering::ServerId;

/// The length of a report in octets.
pub const REPORT_LEN: usize = BODY + TAG;

const MAGIC: [u8; 4] = *b"QBR1";
const BODY: usize = 30;
const TAG: usize = 32;

/// What a server says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Which server.
    pub id: ServerId,
    /// When it said so by its clock, in milliseconds since 1970.
    pub time: u64,
    /// Whether it takes no more connections.
    pub draining: bool,
    /// How much of its weight it wants: 0 to 100.
    pub percent: u8,
}

/// Why a report is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportError {
    /// Not what the format allows.
    Malformed,
    /// Not made with the key of the site.
    Forged,
    /// Older than one that came before, or far from our time.
    Stale,
    /// Of a server that there is not.
    Unknown,
}

impl fmt::Display for ReportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "not a report",
            Self::Forged => "made with another key",
            Self::Stale => "from another time: are the clocks right?",
            Self::Unknown => "of a server that is not in the file",
        })
    }
}

impl std::error::Error for ReportError {}

impl Report {
    /// The report as octets, with what `sign` makes of those before (HMAC-SHA-256).
    #[must_use]
    pub fn encode(&self, sign: impl FnOnce(&[u8]) -> [u8; TAG]) -> [u8; REPORT_LEN] {
        let mut out = [0; REPORT_LEN];
        let id = self.id.as_slice();
        let parts: [&[u8]; 4] = [
            &MAGIC,
            &self.time.to_be_bytes(),
            &[u8::from(self.draining), self.percent, id.len() as u8],
            id,
        ];
        let octets = parts.into_iter().flatten();
        out.iter_mut().zip(octets).for_each(|(to, from)| *to = *from);
        let (body, tag) = out.split_at_mut(BODY);
        tag.copy_from_slice(&sign(body));
        out
    }

    /// Reads a datagram; `verify` says whether a tag is that of what was signed.
    ///
    /// # Errors
    /// When it is not a report, or not made with the key.
    pub fn decode(
        datagram: &[u8],
        verify: impl FnOnce(&[u8], &[u8]) -> bool,
    ) -> Result<Self, ReportError> {
        let datagram: &[u8; REPORT_LEN] =
            datagram.try_into().map_err(|_| ReportError::Malformed)?;
        let (body, tag) = datagram.split_at(BODY);
        let rest = body.strip_prefix(&MAGIC).ok_or(ReportError::Malformed)?;
        if !verify(body, tag) {
            return Err(ReportError::Forged);
        }
        let (time, rest) = rest.split_first_chunk::<8>().ok_or(ReportError::Malformed)?;
        let ([state, percent, len], id) =
            rest.split_first_chunk::<3>().ok_or(ReportError::Malformed)?;
        let (id, padding) = id.split_at_checked((*len).into()).ok_or(ReportError::Malformed)?;
        let id = ServerId::new(id).ok_or(ReportError::Malformed)?;
        if *state > 1 || *percent > 100 || padding.iter().any(|octet| *octet != 0) {
            return Err(ReportError::Malformed);
        }
        let time = u64::from_be_bytes(*time);
        Ok(Self { id, time, draining: *state == 1, percent: *percent })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quicket_testing::Rng;

    fn sign(body: &[u8]) -> [u8; 32] {
        let sum = body.iter().fold(7_u8, |sum, octet| sum.rotate_left(1) ^ octet);
        [sum; 32]
    }

    fn verify(body: &[u8], tag: &[u8]) -> bool {
        sign(body) == tag
    }

    #[test]
    fn reports_are_read_as_they_were_written() {
        for (id, draining, percent) in [(&[1][..], false, 100), (&[9; 15], true, 0)] {
            let id = ServerId::new(id).unwrap();
            let report = Report { id, time: 1_700_000_000_000, draining, percent };
            let octets = report.encode(sign);
            assert_eq!(Report::decode(&octets, verify), Ok(report));
            for bit in 0..REPORT_LEN * 8 {
                let mut changed = octets;
                changed[bit / 8] ^= 1 << (bit % 8);
                assert!(Report::decode(&changed, verify).is_err(), "bit {bit}");
            }
            for len in 0..REPORT_LEN {
                assert!(Report::decode(&octets[..len], verify).is_err());
            }
        }
    }

    #[test]
    fn no_octets_make_it_panic_even_with_the_right_key() {
        let mut rng = Rng::new(1);
        let mut good = 0;
        for _ in 0..50_000 {
            let mut octets = [0; REPORT_LEN];
            rng.fill(&mut octets);
            octets[..4].copy_from_slice(&MAGIC);
            octets[12] &= 1;
            octets[13] &= 0x7f;
            octets[14] &= 0x1f;
            if rng.index(2) == 0 {
                octets[15..30].fill(0);
            }
            good += u32::from(Report::decode(&octets, |_, _| true).is_ok());
        }
        assert!(good > 100, "{good}");
    }
}
