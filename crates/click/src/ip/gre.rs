//! GRE headers (RFC 2784, with the key and sequence number of RFC 2890).

/// A checksum is there.
pub(super) const CHECKSUM: u16 = 0x8000;
/// A key is there.
pub(super) const KEY: u16 = 0x2000;
/// A sequence number is there.
pub(super) const SEQUENCE: u16 = 0x1000;
/// The version; 0 in GRE.
pub(super) const VERSION: u16 = 0x0007;

/// Bytes of the first word, and of each optional one.
pub(super) const WORD: usize = 4;

/// What the first word of a header says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) flags: u16,
}

impl Layout {
    /// That of the header at the start of `bytes`.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        let [high, low, ..] = *bytes.first_chunk::<WORD>()?;
        Some(Self { flags: u16::from_be_bytes([high, low]) })
    }

    pub(super) fn has(self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// Bytes of the header.
    pub(super) fn len(self) -> usize {
        WORD + [CHECKSUM, KEY, SEQUENCE].into_iter().filter(|&flag| self.has(flag)).count() * WORD
    }

    /// Where the optional word of `flag` stands: they follow each other in the order of their flags.
    pub(super) fn place(self, flag: u16) -> Option<usize> {
        let before = [CHECKSUM, KEY, SEQUENCE].into_iter().filter(|&other| other > flag && self.has(other));
        self.has(flag).then(|| WORD + before.count() * WORD)
    }

    /// The optional word of `flag` in the header at the start of `bytes`.
    pub(super) fn word(self, bytes: &[u8], flag: u16) -> Option<u32> {
        let word = bytes.get(self.place(flag)?..)?.first_chunk()?;
        Some(u32::from_be_bytes(*word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn optional_words_follow_each_other() {
        let layout = |flags| Layout { flags };
        assert_eq!((layout(0).len(), layout(0).place(KEY)), (4, None));
        assert_eq!((layout(0xb000).len(), layout(0xb000).place(SEQUENCE)), (16, Some(12)));
        assert_eq!((layout(0x3000).place(KEY), layout(0x3000).place(SEQUENCE)), (Some(4), Some(8)));
        assert_eq!(layout(0xa000).place(KEY), Some(8));
        assert_eq!(layout(KEY).word(&[0, 0, 0, 0, 1, 2, 3, 4], KEY), Some(0x0102_0304));
        assert_eq!(layout(KEY).word(&[0, 0, 0, 0, 1, 2, 3], KEY), None);
        assert_eq!(Layout::of(&[0xb0, 1, 8]), None);
    }
}
