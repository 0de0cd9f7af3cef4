//! One end of a conversation, which the other can neither prolong nor fill for ever.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// How much is written at once, in bytes: whether there is time is looked at in between.
const AT_ONCE: usize = 64 << 10;

/// Reads and writes until then, and so many bytes.
pub(super) struct Bounded<'a> {
    stream: &'a UnixStream,
    until: Instant,
    left: u64,
}

impl<'a> Bounded<'a> {
    pub(super) fn new(stream: &'a UnixStream, time: Duration, bytes: u64) -> Self {
        let now = Instant::now();
        Self { stream, until: now.checked_add(time).unwrap_or(now), left: bytes }
    }

    /// The time that is left.
    fn time(&self) -> io::Result<Duration> {
        let time = self.until.saturating_duration_since(Instant::now());
        match time.is_zero() {
            true => Err(io::Error::new(io::ErrorKind::TimedOut, "it takes longer than it may")),
            false => Ok(time),
        }
    }
}

impl Read for Bounded<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it says more than it may"));
        }
        self.stream.set_read_timeout(Some(self.time()?))?;
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let read = buffer.get_mut(..most).map_or(Ok(0), |buffer| self.stream.read(buffer))?;
        self.left -= read as u64;
        Ok(read)
    }
}

impl Write for Bounded<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.time()?;
        let bytes = bytes.get(..AT_ONCE).unwrap_or(bytes);
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_listened_to_or_told_for_longer_than_agreed() {
        let (one, other) = UnixStream::pair().unwrap();
        (&other).write_all(&[7; 100]).unwrap();
        let mut bounded = Bounded::new(&one, Duration::from_secs(60), 60);
        let mut all = Vec::new();
        let error = bounded.read_to_end(&mut all).unwrap_err();
        assert_eq!((error.kind(), all.len()), (io::ErrorKind::InvalidData, 60));
        // Drop by drop is too slow.
        let mut late = Bounded::new(&one, Duration::from_millis(1), u64::MAX);
        let error = loop {
            (&other).write_all(&[7]).unwrap();
            if let Err(error) = late.read_exact(&mut [0]) {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(late.write(&[7]).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
