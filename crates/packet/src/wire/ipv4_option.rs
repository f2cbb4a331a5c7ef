//! The options of an IPv4 header (RFC 791, section 3.1; RFC 2113).

use std::ops::Range;

/// Option type octets (IANA registry "IP Option Numbers").
pub mod kind {
    /// End of option list.
    pub const END: u8 = 0;
    /// No operation.
    pub const NOP: u8 = 1;
    /// Record route.
    pub const RECORD_ROUTE: u8 = 7;
    /// Internet timestamp.
    pub const TIMESTAMP: u8 = 68;
    /// Loose source route.
    pub const LOOSE_SOURCE_ROUTE: u8 = 131;
    /// Strict source route.
    pub const STRICT_SOURCE_ROUTE: u8 = 137;
    /// Router alert (RFC 2113).
    pub const ROUTER_ALERT: u8 = 148;
    /// The bit of an option that goes into every fragment (RFC 791, section 3.1).
    pub const COPIED: u8 = 0x80;
}

/// Octets of an option that stand before its data, counted from its first.
pub mod field {
    /// The length octet, which counts kind and length octet too.
    pub const LENGTH: usize = 1;
    /// The pointer of a route or timestamp option, counted from 1 at the option's first octet.
    pub const POINTER: usize = 2;
    /// Overflow count and flags of a timestamp option, 4 bits each.
    pub const OVERFLOW_FLAGS: usize = 3;
}

/// An option and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ipv4Option {
    /// One of [`kind`], or another.
    pub kind: u8,
    /// Where its octets stand in the header.
    pub place: Range<usize>,
}

impl Ipv4Option {
    /// The first option at or behind octet `at` of a header; padding is passed over. `None` at the end of the list.
    ///
    /// # Errors
    /// Where in the header the length octet stands that is not right: an option has at least two octets and ends within
    /// the header. That is the pointer of RFC 792's parameter problem.
    pub fn next(header: &[u8], at: usize) -> Option<Result<Self, usize>> {
        let start = at + header.get(at..)?.iter().position(|&octet| octet != kind::NOP)?;
        let kind = header[start];
        if kind == kind::END {
            return None;
        }
        let length = header.get(start + field::LENGTH).map_or(0, |&length| usize::from(length));
        let is_right = length >= 2 && start + length <= header.len();
        let option = Self { kind, place: start..start + length };
        Some(if is_right { Ok(option) } else { Err(start + field::LENGTH) })
    }

    /// Whether a router copies the option into every fragment.
    pub const fn is_copied(&self) -> bool {
        self.kind & kind::COPIED != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::golden;
    use crate::wire::ipv4::{Ipv4, MIN_HEADER_LEN};
    use proptest::prelude::*;

    /// All options from octet `at` on, and the error that ends them.
    fn walk(header: &[u8], mut at: usize) -> (Vec<Ipv4Option>, Option<usize>) {
        let mut options = Vec::new();
        while let Some(option) = Ipv4Option::next(header, at) {
            match option {
                Ok(option) => {
                    at = option.place.end;
                    options.push(option);
                }
                Err(bad) => return (options, Some(bad)),
            }
        }
        (options, None)
    }

    #[test]
    fn options_one_by_one() {
        let bytes = golden::payload(golden::PORT_UNREACHABLE);
        let header = &bytes[..Ipv4::new_checked(&bytes).unwrap().header_len()];
        let (options, bad) = walk(header, MIN_HEADER_LEN);
        assert_eq!(options, [Ipv4Option { kind: kind::RECORD_ROUTE, place: 20..31 }]);
        assert!(bad.is_none() && !options[0].is_copied());

        let octets = [1, 148, 4, 0, 0, 131, 7, 4, 10, 0, 0, 1, 1, 130, 3, 9, 0, 5];
        let (options, bad) = walk(&octets, 0);
        let kinds: Vec<u8> = options.iter().map(|option| option.kind).collect();
        assert_eq!((kinds, bad), (vec![kind::ROUTER_ALERT, kind::LOOSE_SOURCE_ROUTE, 130], None));
        assert_eq!(options[1].place, 5..12);
        assert!(options[0].is_copied());
    }

    #[test]
    fn malformed_options_have_places() {
        for (octets, bad) in [(&[1, 7][..], 2), (&[1, 7, 1, 4], 2), (&[7, 0, 4, 0], 1), (&[7, 7, 4, 0], 1)] {
            assert_eq!(walk(octets, 0), (Vec::new(), Some(bad)), "{octets:?}");
        }
    }

    proptest! {
        #[test]
        fn any_options(octets in proptest::collection::vec(prop_oneof![any::<u8>(), 0u8..12], 0..41)) {
            let (options, bad) = walk(&octets, 0);
            let mut at = 0;
            for option in options {
                prop_assert!(octets[at..option.place.start].iter().all(|&octet| octet == kind::NOP));
                prop_assert_eq!(octets[option.place.start], option.kind);
                prop_assert_eq!(usize::from(octets[option.place.start + 1]), option.place.len());
                at = option.place.end;
            }
            prop_assert!(bad.is_none_or(|bad| bad > at && bad <= octets.len()));
        }
    }
}
