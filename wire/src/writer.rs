//! A bounded cursor over a packet under construction.

use crate::{Full, varint};

/// Appends values to a byte slice; a value that does not fit is not written at all.
#[derive(Debug)]
pub struct Writer<'a> {
    buffer: &'a mut [u8],
    position: usize,
}

impl<'a> Writer<'a> {
    /// Starts at the first byte of `buffer`; its length is the bound.
    #[inline]
    #[must_use]
    pub const fn new(buffer: &'a mut [u8]) -> Self {
        Self { buffer, position: 0 }
    }

    /// The number of bytes that can still be written.
    #[inline]
    #[must_use]
    pub const fn remaining(&self) -> usize {
        self.buffer.len().saturating_sub(self.position)
    }

    /// The number of bytes written so far.
    #[inline]
    #[must_use]
    pub const fn position(&self) -> usize {
        self.position
    }

    /// The bytes written so far.
    #[inline]
    #[must_use]
    pub fn written(&self) -> &[u8] {
        self.buffer.get(..self.position).unwrap_or_default()
    }

    /// The bytes written so far, for in-place encryption.
    #[inline]
    #[must_use]
    pub fn written_mut(&mut self) -> &mut [u8] {
        self.buffer.get_mut(..self.position).unwrap_or_default()
    }

    /// Gives the written bytes back for as long as the buffer lives.
    #[inline]
    #[must_use]
    pub fn into_written(self) -> &'a mut [u8] {
        self.buffer.get_mut(..self.position).unwrap_or_default()
    }

    /// Appends `bytes`.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Full> {
        let end = self.position.checked_add(bytes.len()).ok_or(Full)?;
        self.buffer.get_mut(self.position..end).ok_or(Full)?.copy_from_slice(bytes);
        self.position = end;
        Ok(())
    }

    #[inline]
    fn array<const N: usize>(&mut self, bytes: [u8; N]) -> Result<(), Full> {
        let free = self.buffer.get_mut(self.position..).ok_or(Full)?;
        *free.first_chunk_mut::<N>().ok_or(Full)? = bytes;
        self.position = self.position.saturating_add(N);
        Ok(())
    }

    /// Appends one byte.
    #[inline]
    pub fn u8(&mut self, value: u8) -> Result<(), Full> {
        self.array([value])
    }

    /// Appends two bytes in network byte order.
    #[inline]
    pub fn u16(&mut self, value: u16) -> Result<(), Full> {
        self.array(value.to_be_bytes())
    }

    /// Appends four bytes in network byte order.
    #[inline]
    pub fn u32(&mut self, value: u32) -> Result<(), Full> {
        self.array(value.to_be_bytes())
    }

    /// Appends eight bytes in network byte order.
    #[inline]
    pub fn u64(&mut self, value: u64) -> Result<(), Full> {
        self.array(value.to_be_bytes())
    }

    /// Appends `value` as the shortest variable-length integer (RFC 9000, Section 16).
    ///
    /// A value above [`varint::MAX`] fits no encoding and is refused with [`Full`].
    #[inline]
    pub fn varint(&mut self, value: u64) -> Result<(), Full> {
        match varint::len(value) {
            1 => self.array([value as u8]),
            2 => self.u16(value as u16 | 1 << 14),
            4 => self.u32(value as u32 | 2 << 30),
            _ if value <= varint::MAX => self.u64(value | 3 << 62),
            _ => Err(Full),
        }
    }

    /// Appends `value` as a variable-length integer of exactly two bytes, so that it can be
    /// patched later. A value above [`varint::MAX_2`] is refused with [`Full`].
    #[inline]
    pub fn varint_2(&mut self, value: u64) -> Result<(), Full> {
        self.array(two_bytes(value)?)
    }

    /// Appends the length of `bytes` as a variable-length integer, then `bytes`.
    #[inline]
    pub fn bytes_with_varint_len(&mut self, bytes: &[u8]) -> Result<(), Full> {
        let len = bytes.len() as u64;
        if self.remaining() < varint::len(len).saturating_add(bytes.len()) {
            return Err(Full);
        }
        self.varint(len)?;
        self.bytes(bytes)
    }

    /// Appends `count` zero bytes.
    #[inline]
    pub fn zeros(&mut self, count: usize) -> Result<(), Full> {
        let end = self.position.checked_add(count).ok_or(Full)?;
        self.buffer.get_mut(self.position..end).ok_or(Full)?.fill(0);
        self.position = end;
        Ok(())
    }

    /// Overwrites bytes written earlier, from `position` on. Nothing changes, and the answer
    /// is [`Full`], unless all of them lie within what has been written.
    #[inline]
    pub fn patch(&mut self, position: usize, bytes: &[u8]) -> Result<(), Full> {
        let end = position.checked_add(bytes.len()).ok_or(Full)?;
        self.written_mut().get_mut(position..end).ok_or(Full)?.copy_from_slice(bytes);
        Ok(())
    }

    /// Overwrites a field written by [`varint_2`](Self::varint_2).
    #[inline]
    pub fn patch_varint_2(&mut self, position: usize, value: u64) -> Result<(), Full> {
        self.patch(position, &two_bytes(value)?)
    }

    /// Takes back everything written after `position`; a `position` not reached yet is ignored.
    #[inline]
    pub fn rewind(&mut self, position: usize) {
        self.position = self.position.min(position);
    }

    /// Writes all that `write` does or nothing: when it fails, the cursor returns.
    #[inline]
    pub fn all_or_nothing<T>(
        &mut self,
        write: impl FnOnce(&mut Self) -> Result<T, Full>,
    ) -> Result<T, Full> {
        let start = self.position;
        write(self).inspect_err(|_| self.position = start)
    }
}

#[inline]
fn two_bytes(value: u64) -> Result<[u8; 2], Full> {
    if value > varint::MAX_2 {
        return Err(Full);
    }
    Ok((value as u16 | 1 << 14).to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reader;

    #[test]
    fn what_does_not_fit_is_not_written() {
        let mut buffer = [0xee; 7];
        let mut writer = Writer::new(&mut buffer);
        assert_eq!(writer.u64(1), Err(Full));
        assert_eq!(writer.bytes(&[1; 8]), Err(Full));
        assert_eq!(writer.bytes_with_varint_len(&[1; 7]), Err(Full));
        assert_eq!(writer.zeros(8), Err(Full));
        assert_eq!(writer.varint(1 << 30), Err(Full));
        assert_eq!(writer.position(), 0);
        writer.bytes_with_varint_len(&[1; 6]).unwrap();
        assert_eq!(writer.remaining(), 0);
        assert_eq!(writer.u8(0), Err(Full));
        assert_eq!(buffer, [6, 1, 1, 1, 1, 1, 1]);
    }

    #[test]
    fn a_failing_group_takes_back_its_beginning() {
        let mut buffer = [0; 3];
        let mut writer = Writer::new(&mut buffer);
        writer.u8(7).unwrap();
        let failed = writer.all_or_nothing(|w| {
            w.u16(1)?;
            w.u8(2)
        });
        assert_eq!(failed, Err(Full));
        assert_eq!(writer.written(), &[7]);
    }

    #[test]
    fn a_two_byte_length_is_patched_in_place() {
        let mut buffer = [0; 8];
        let mut writer = Writer::new(&mut buffer);
        writer.u8(0xff).unwrap();
        writer.varint_2(0).unwrap();
        writer.u8(0xee).unwrap();
        writer.patch_varint_2(1, 5).unwrap();
        assert_eq!(writer.written(), &[0xff, 0x40, 5, 0xee]);
        assert_eq!(Reader::new(&writer.written()[1..]).varint(), Ok(5));
        assert_eq!(writer.patch(3, &[1, 2]), Err(Full));
        assert_eq!(writer.patch_varint_2(1, 1 << 14), Err(Full));
        assert_eq!(writer.varint_2(1 << 14), Err(Full));
        assert_eq!(writer.written(), &[0xff, 0x40, 5, 0xee]);
    }

    #[test]
    fn rewinding_never_moves_forward() {
        let mut buffer = [0; 8];
        let mut writer = Writer::new(&mut buffer);
        writer.u32(1).unwrap();
        writer.rewind(6);
        assert_eq!(writer.position(), 4);
        writer.rewind(1);
        assert_eq!(writer.into_written().len(), 1);
    }
}
