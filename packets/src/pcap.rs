//! The format of capture files (draft-ietf-opsawg-pcap): what tcpdump and Wireshark read.

use std::io::{self, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Times are in nanoseconds; the order of octets is that of the machine that wrote it.
const MAGIC: u32 = 0xa1b2_3c4d;
const VERSION: [u16; 2] = [2, 4];
/// LINKTYPE_ETHERNET.
const ETHERNET: u32 = 1;

/// Writes a capture file of frames of Ethernet.
#[derive(Debug)]
pub struct Writer<W> {
    to: W,
}

impl<W: Write> Writer<W> {
    /// Writes the file's header. `longest` is the most octets of a frame that are kept.
    ///
    /// # Errors
    ///
    /// What writing says.
    pub fn new(mut to: W, longest: u32) -> io::Result<Self> {
        let mut header = Vec::with_capacity(24);
        header.extend(MAGIC.to_ne_bytes());
        VERSION.iter().for_each(|number| header.extend(number.to_ne_bytes()));
        // Two fields that say nothing, and are zero.
        for field in [0, 0, longest, ETHERNET] {
            header.extend(field.to_ne_bytes());
        }
        to.write_all(&header)?;
        Ok(Self { to })
    }

    /// Writes a frame, of whose `len` octets these are the first.
    ///
    /// # Errors
    ///
    /// What writing says.
    pub fn frame(&mut self, time: SystemTime, octets: &[u8], len: u32) -> io::Result<()> {
        let time = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        // Seconds are a number without sign there, which lasts until 2106.
        let (seconds, kept) = (time.as_secs() as u32, octets.len() as u32);
        let fields = [seconds, time.subsec_nanos(), kept, len];
        let mut record = [0; 16];
        for (place, field) in record.as_chunks_mut::<4>().0.iter_mut().zip(fields) {
            *place = field.to_ne_bytes();
        }
        self.to.write_all(&record)?;
        self.to.write_all(octets)
    }

    /// Has all go where it is written to.
    ///
    /// # Errors
    ///
    /// What writing says.
    pub fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_fields_of_the_format() {
        let mut file = Vec::new();
        let mut writer = Writer::new(&mut file, 2048).unwrap();
        let time = UNIX_EPOCH + Duration::new(7, 9);
        writer.frame(time, &[1, 2, 3], 100).unwrap();
        writer.flush().unwrap();
        let (fields, octets) = file.as_chunks::<4>();
        let fields: Vec<u32> = fields.iter().map(|field| u32::from_ne_bytes(*field)).collect();
        assert_eq!(fields[0], MAGIC);
        assert_eq!(file[4..8], [2_u16.to_ne_bytes(), 4_u16.to_ne_bytes()].concat());
        assert_eq!((&fields[2..], octets), (&[0, 0, 2048, 1, 7, 9, 3, 100][..], &[1, 2, 3][..]));
    }
}
