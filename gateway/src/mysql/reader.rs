//! A reader over the fields of a packet: little-endian integers, strings with a length before or a zero behind.
//!
//! What is not there is `None`: a packet may be seen in part, and a peer may send anything.

/// Reads fields from the front of a slice.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads `bytes` from their first.
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// What has not been read.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next `len` bytes.
    pub(super) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }

    /// As many of the next `len` bytes as there are.
    pub(super) fn skip(&mut self, len: usize) {
        self.rest = self.rest.get(len..).unwrap_or_default();
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*taken)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// An integer of one, three, four or nine bytes.
    pub(super) fn lenenc(&mut self) -> Option<u64> {
        match self.u8()? {
            0xfc => self.u16().map(u64::from),
            0xfd => self.array::<3>().map(|[a, b, c]| u64::from(u32::from_le_bytes([a, b, c, 0]))),
            0xfe => self.array().map(u64::from_le_bytes),
            0xfb | 0xff => None,
            small => Some(u64::from(small)),
        }
    }

    /// A string with its length before it.
    pub(super) fn lenenc_bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.lenenc()?).ok()?;
        self.take(len)
    }

    /// A string up to a zero byte, which is taken as well.
    pub(super) fn until_zero(&mut self) -> Option<&'a [u8]> {
        let len = self.rest.iter().position(|&byte| byte == 0)?;
        let text = self.take(len)?;
        self.skip(1);
        Some(text)
    }

    /// A string up to a zero byte or the end.
    pub(super) fn until_zero_or_end(&mut self) -> &'a [u8] {
        self.until_zero().unwrap_or_else(|| std::mem::take(&mut self.rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_the_width_that_their_first_byte_says() {
        let bytes = [250, 0xfc, 1, 2, 0xfd, 1, 2, 3, 0xfe, 1, 0, 0, 0, 0, 0, 0, 1, 0xff];
        let mut reader = Reader::new(&bytes);
        let read: Vec<_> = (0..5).map(|_| reader.lenenc()).collect();
        assert_eq!(read, [Some(250), Some(0x201), Some(0x03_0201), Some(1 | 1 << 56), None]);
    }

    #[test]
    fn a_string_that_is_not_there_as_a_whole_is_not_there() {
        let mut reader = Reader::new(b"\x05abc");
        assert_eq!(reader.lenenc_bytes(), None);
        let mut reader = Reader::new(b"\xfe\xff\xff\xff\xff\xff\xff\xff\xffabc");
        assert_eq!(reader.lenenc_bytes(), None);
        let mut reader = Reader::new(b"ab\0c");
        assert_eq!((reader.until_zero(), reader.until_zero()), (Some(&b"ab"[..]), None));
        assert_eq!((reader.until_zero_or_end(), reader.rest()), (&b"c"[..], &b""[..]));
    }
}
