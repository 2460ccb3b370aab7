//! Memory of a fixed size that encoders fill. No I/O, no clock.
//!
//! It may be memory that outlives this process, so it cannot grow. An encoder knows its
//! longest entry ([`super::encoder::Encoder::worst`]), and begins none without room for it.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// See the module.
#[derive(Default)]
pub struct Buffer<'a> {
    memory: &'a mut [u8],
    len: usize,
}

impl<'a> Buffer<'a> {
    /// An empty buffer in this memory.
    pub fn new(memory: &'a mut [u8]) -> Self {
        Self { memory, len: 0 }
    }

    /// The bytes that it can have.
    pub(crate) fn capacity(&self) -> usize {
        self.memory.len()
    }

    /// The bytes that still fit.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        self.memory.len() - self.len
    }

    /// Appends a byte.
    #[inline]
    pub fn push(&mut self, byte: u8) {
        self.memory[self.len] = byte;
        self.len += 1;
    }

    /// Appends bytes.
    #[inline]
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        self.memory[self.len..end].copy_from_slice(bytes);
        self.len = end;
    }

    /// Appends this many bytes, for the caller to write.
    #[inline]
    pub(crate) fn grow(&mut self, len: usize) -> &mut [u8] {
        let begin = self.len;
        self.len += len;
        &mut self.memory[begin..self.len]
    }

    /// Removes all bytes.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// The first `len` bytes of the memory are its bytes, whoever has written them.
    pub(crate) fn adopt(&mut self, len: usize) {
        self.len = len.min(self.memory.len());
    }
}

impl Deref for Buffer<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.memory[..self.len]
    }
}

impl DerefMut for Buffer<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[..self.len]
    }
}

impl fmt::Write for Buffer<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

impl fmt::Debug for Buffer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} of {} bytes)", self.len, self.memory.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;

    #[test]
    fn it_has_what_was_appended() {
        let mut memory = [b'x'; 8];
        let mut buffer = Buffer::new(&mut memory);
        buffer.push(b'1');
        buffer.extend_from_slice(b"23");
        write!(buffer, "{}", 45).unwrap();
        assert_eq!((&*buffer, buffer.room(), buffer.capacity()), (&b"12345"[..], 3, 8));
        buffer[0] = b'0';
        buffer.clear();
        assert!(buffer.is_empty());
        buffer.adopt(9);
        assert_eq!(&*buffer, b"02345xxx");
    }
}
