//! The options of a TCP header (RFC 9293, section 3.2; RFC 2018, RFC 7323).

use super::{WireError, read_u32};

/// Option kinds (IANA registry "TCP Option Kind Numbers").
pub mod kind {
    /// End of option list.
    pub const END: u8 = 0;
    /// No operation.
    pub const NOP: u8 = 1;
    /// Maximum segment size.
    pub const MAX_SEGMENT_SIZE: u8 = 2;
    /// Window scale (RFC 7323).
    pub const WINDOW_SCALE: u8 = 3;
    /// Selective acknowledgments permitted (RFC 2018).
    pub const SACK_PERMITTED: u8 = 4;
    /// Selective acknowledgment (RFC 2018).
    pub const SACK: u8 = 5;
    /// Timestamps (RFC 7323).
    pub const TIMESTAMPS: u8 = 8;
}

/// An option and its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpOption<'a> {
    /// Where the option starts within the options, in octets; 20 more within the header.
    pub offset: usize,
    /// All its octets, the kind first.
    pub octets: &'a [u8],
    /// What it says.
    pub body: TcpOptionBody<'a>,
}

/// What an option says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TcpOptionBody<'a> {
    /// Nothing comes after this.
    End,
    /// Padding between options.
    Nop,
    /// The largest segment that the sender takes, in octets of data.
    MaxSegmentSize(u16),
    /// By how many bits the sender's windows are to be shifted left.
    WindowScale(u8),
    /// The sender understands selective acknowledgments.
    SackPermitted,
    /// Data that arrived out of order.
    Sack(SackBlocks<'a>),
    /// Timestamps.
    Timestamps {
        /// The sender's clock.
        value: u32,
        /// The peer's clock as the sender last saw it.
        echo_reply: u32,
    },
    /// An option that this library does not look into.
    Unknown {
        /// The kind octet.
        kind: u8,
        /// The octets behind kind and length.
        data: &'a [u8],
    },
}

/// The blocks of a selective acknowledgment, at least one and at most four.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SackBlocks<'a>(&'a [[u8; 8]]);

impl<'a> SackBlocks<'a> {
    /// First sequence number of each block and the one behind its last.
    #[inline]
    pub fn iter(self) -> impl ExactSizeIterator<Item = (u32, u32)> + 'a {
        self.0.iter().map(|block| (read_u32(block, 0..4), read_u32(block, 4..8)))
    }
}

/// The options of a header, one by one, up to and including End of Option List.
///
/// A malformed option gives [`WireError::TcpOptionLength`] or [`WireError::TcpOptionBeyondHeader`] and ends
/// it.
#[derive(Debug, Clone)]
pub struct TcpOptionIter<'a> {
    octets: &'a [u8],
    offset: usize,
}

impl<'a> TcpOptionIter<'a> {
    /// Walks the octets of an options area.
    #[inline]
    pub const fn new(octets: &'a [u8]) -> Self {
        Self { octets, offset: 0 }
    }

    fn parse(rest: &'a [u8]) -> Result<(&'a [u8], TcpOptionBody<'a>), WireError> {
        use TcpOptionBody as Body;
        let (octets, kind, data) = match *rest {
            [kind::END, ..] => return Ok((&rest[..1], Body::End)),
            [kind::NOP, ..] => return Ok((&rest[..1], Body::Nop)),
            [kind, len, ..] => {
                // The length counts kind and length octet.
                if len < 2 {
                    return Err(WireError::TcpOptionLength);
                }
                let octets = rest.get(..usize::from(len)).ok_or(WireError::TcpOptionBeyondHeader)?;
                (octets, kind, &octets[2..])
            }
            _ => return Err(WireError::TcpOptionBeyondHeader),
        };
        let body = match (kind, data) {
            (kind::MAX_SEGMENT_SIZE, &[high, low]) => Body::MaxSegmentSize(u16::from_be_bytes([high, low])),
            (kind::WINDOW_SCALE, &[shift]) => Body::WindowScale(shift),
            (kind::SACK_PERMITTED, []) => Body::SackPermitted,
            (kind::SACK, blocks) => match blocks.as_chunks::<8>() {
                ([], _) => return Err(WireError::TcpOptionLength),
                (blocks, []) => Body::Sack(SackBlocks(blocks)),
                _ => return Err(WireError::TcpOptionLength),
            },
            (kind::TIMESTAMPS, data) if data.len() == 8 => {
                Body::Timestamps { value: read_u32(data, 0..4), echo_reply: read_u32(data, 4..8) }
            }
            (kind::MAX_SEGMENT_SIZE | kind::WINDOW_SCALE | kind::SACK_PERMITTED | kind::TIMESTAMPS, _) => {
                return Err(WireError::TcpOptionLength);
            }
            (kind, data) => Body::Unknown { kind, data },
        };
        Ok((octets, body))
    }
}

impl<'a> Iterator for TcpOptionIter<'a> {
    type Item = Result<TcpOption<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.octets.get(self.offset..).filter(|rest| !rest.is_empty())?;
        let offset = self.offset;
        self.offset = self.octets.len();
        Some(Self::parse(rest).map(|(octets, body)| {
            if body != TcpOptionBody::End {
                self.offset = offset + octets.len();
            }
            TcpOption { offset, octets, body }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn malformed_options_have_reasons() {
        for (octets, reason) in [
            (&[1, 2][..], WireError::TcpOptionBeyondHeader),
            (&[2, 4, 5], WireError::TcpOptionBeyondHeader),
            (&[99, 1, 0], WireError::TcpOptionLength),
            (&[2, 3, 5], WireError::TcpOptionLength),
            (&[3, 2, 0], WireError::TcpOptionLength),
            (&[4, 3, 0], WireError::TcpOptionLength),
            (&[5, 2, 0], WireError::TcpOptionLength),
            (&[5, 6, 0, 0, 0, 0], WireError::TcpOptionLength),
            (&[8, 6, 0, 0, 0, 0], WireError::TcpOptionLength),
        ] {
            let mut options = TcpOptionIter::new(octets);
            assert_eq!(options.by_ref().find_map(Result::err), Some(reason), "{octets:?}");
            assert!(options.next().is_none());
        }
        let octets = [5, 10, 0, 0, 0, 1, 0, 0, 0, 2, 99, 3, 7, 0, 2];
        let options: Vec<_> = TcpOptionIter::new(&octets).map(Result::unwrap).collect();
        let TcpOptionBody::Sack(blocks) = options[0].body else { panic!("{options:?}") };
        assert!(blocks.iter().eq([(1, 2)]));
        assert_eq!(options[1].body, TcpOptionBody::Unknown { kind: 99, data: &[7] });
        assert_eq!((options[2].offset, options[2].body), (13, TcpOptionBody::End));
        assert_eq!(options.len(), 3);
    }

    proptest! {
        #[test]
        fn any_options(octets in proptest::collection::vec(prop_oneof![any::<u8>(), 0u8..11], 0..41)) {
            let items: Vec<_> = TcpOptionIter::new(&octets).collect();
            prop_assert!(items.len() <= octets.len());
            let mut at = 0;
            for option in items.iter().flatten() {
                prop_assert_eq!(option.offset, at);
                prop_assert_eq!(option.octets, &octets[at..at + option.octets.len()]);
                if let TcpOptionBody::Sack(blocks) = option.body {
                    prop_assert!(blocks.iter().count() >= 1);
                }
                at += option.octets.len();
            }
        }
    }
}
