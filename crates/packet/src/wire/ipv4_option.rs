//! The options of an IPv4 header (RFC 791, section 3.1; RFC 2113).

use std::net::Ipv4Addr;

use super::WireError;

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

/// An option and its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ipv4Option<'a> {
    /// Where the option starts within the options, in octets; 20 more within the header.
    pub offset: usize,
    /// All its octets, the type first.
    pub octets: &'a [u8],
    /// What it says.
    pub body: Ipv4OptionBody<'a>,
}

impl Ipv4Option<'_> {
    /// Whether a router copies the option into every fragment.
    #[inline]
    pub fn is_copied(&self) -> bool {
        self.octets.first().is_some_and(|kind| kind & kind::COPIED != 0)
    }
}

/// What an option says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ipv4OptionBody<'a> {
    /// Nothing comes after this.
    End,
    /// Padding between options.
    Nop,
    /// Each router records its address.
    RecordRoute(RouteOption<'a>),
    /// The packet visits these addresses, and others between them.
    LooseSourceRoute(RouteOption<'a>),
    /// The packet visits these addresses and no others.
    StrictSourceRoute(RouteOption<'a>),
    /// Each router records its time.
    Timestamp(TimestampOption<'a>),
    /// Routers should look at the packet (RFC 2113); the value is 0 for "every router".
    RouterAlert(u16),
    /// An option that this library does not look into.
    Unknown {
        /// The type octet.
        kind: u8,
        /// The octets behind type and length.
        data: &'a [u8],
    },
}

/// Record route or source route (RFC 791, section 3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteOption<'a> {
    /// The next slot, counted in octets from 1 at the option's type: at least 4.
    pub pointer: u8,
    /// The slots, 4 octets each.
    pub data: &'a [u8],
}

impl RouteOption<'_> {
    /// Whether every slot is used.
    #[inline]
    pub fn is_full(&self) -> bool {
        usize::from(self.pointer) > self.data.len() + 3
    }

    /// The next slot's address: where a source route goes next. `None` when it is full.
    #[inline]
    pub fn next_address(&self) -> Option<Ipv4Addr> {
        let at = usize::from(self.pointer).checked_sub(4)?;
        let slot: [u8; 4] = self.data.get(at..at + 4)?.try_into().ok()?;
        Some(Ipv4Addr::from(slot))
    }
}

/// What a timestamp option's slots hold (RFC 791, section 3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TimestampFlag {
    /// Times only, 4 octets a slot.
    TimeOnly,
    /// Address and time, 8 octets a slot; each router records both.
    AddressAndTime,
    /// As above, but the sender wrote the addresses and only those routers record.
    Prespecified,
}

impl TimestampFlag {
    /// Octets of a slot.
    #[inline]
    pub const fn slot_len(self) -> usize {
        match self {
            Self::TimeOnly => 4,
            Self::AddressAndTime | Self::Prespecified => 8,
        }
    }
}

/// Internet timestamp (RFC 791, section 3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimestampOption<'a> {
    /// The next slot, counted in octets from 1 at the option's type: at least 5.
    pub pointer: u8,
    /// How many routers found no room, 0 to 15.
    pub overflow: u8,
    /// What the slots hold.
    pub flag: TimestampFlag,
    /// The slots.
    pub data: &'a [u8],
}

impl TimestampOption<'_> {
    /// Whether every slot is used.
    #[inline]
    pub fn is_full(&self) -> bool {
        usize::from(self.pointer) > self.data.len() + 4
    }
}

/// The options of a header, one by one, up to and including End of Option List.
///
/// A malformed option gives an error, after which the iterator ends; [`error_offset`](Self::error_offset)
/// then tells where, for an ICMP parameter problem.
#[derive(Debug, Clone)]
pub struct Ipv4OptionIter<'a> {
    octets: &'a [u8],
    offset: usize,
    error_offset: Option<usize>,
}

impl<'a> Ipv4OptionIter<'a> {
    /// Walks the octets of an options area.
    #[inline]
    pub const fn new(octets: &'a [u8]) -> Self {
        Self { octets, offset: 0, error_offset: None }
    }

    /// Where the octet stands that made the option malformed, within the options; 20 more within the header,
    /// which is the pointer of RFC 792's parameter problem. `None` without an error.
    #[inline]
    pub const fn error_offset(&self) -> Option<usize> {
        self.error_offset
    }

    /// Reads the option at the start of `rest`; an error comes with the offset of the bad octet in `rest`.
    fn parse(rest: &'a [u8]) -> Result<(&'a [u8], Ipv4OptionBody<'a>), (WireError, usize)> {
        use Ipv4OptionBody as Body;
        let (octets, kind, data) = match *rest {
            [kind::END, ..] => return Ok((&rest[..1], Body::End)),
            [kind::NOP, ..] => return Ok((&rest[..1], Body::Nop)),
            [kind, len, ..] => {
                // The length counts type and length octet.
                if len < 2 {
                    return Err((WireError::Ipv4OptionLength, 1));
                }
                let octets = rest.get(..usize::from(len)).ok_or((WireError::Ipv4OptionBeyondHeader, 1))?;
                (octets, kind, &octets[2..])
            }
            _ => return Err((WireError::Ipv4OptionBeyondHeader, 0)),
        };
        let body = match kind {
            kind::RECORD_ROUTE => Body::RecordRoute(Self::parse_route(data)?),
            kind::LOOSE_SOURCE_ROUTE => Body::LooseSourceRoute(Self::parse_route(data)?),
            kind::STRICT_SOURCE_ROUTE => Body::StrictSourceRoute(Self::parse_route(data)?),
            kind::TIMESTAMP => Body::Timestamp(Self::parse_timestamp(data)?),
            kind::ROUTER_ALERT => match *data {
                [high, low] => Body::RouterAlert(u16::from_be_bytes([high, low])),
                _ => return Err((WireError::Ipv4OptionLength, 1)),
            },
            kind => Body::Unknown { kind, data },
        };
        Ok((octets, body))
    }

    /// `data` starts at the option's third octet, the pointer, and octet `n` of the option is number `n + 1`.
    fn parse_route(data: &'a [u8]) -> Result<RouteOption<'a>, (WireError, usize)> {
        let [pointer, slots @ ..] = data else { return Err((WireError::Ipv4OptionLength, 1)) };
        let option = RouteOption { pointer: *pointer, data: slots };
        // The smallest legal pointer is 4 (RFC 791); unless the route is full, a whole slot must be there.
        if *pointer < 4 || !option.is_full() && option.next_address().is_none() {
            return Err((WireError::Ipv4OptionPointer, 2));
        }
        Ok(option)
    }

    fn parse_timestamp(data: &'a [u8]) -> Result<TimestampOption<'a>, (WireError, usize)> {
        let [pointer, overflow_flag, slots @ ..] = data else {
            return Err((WireError::Ipv4OptionLength, 1));
        };
        let flag = match overflow_flag & 0x0f {
            0 => TimestampFlag::TimeOnly,
            1 => TimestampFlag::AddressAndTime,
            3 => TimestampFlag::Prespecified,
            _ => return Err((WireError::Ipv4TimestampFlag, 3)),
        };
        let option = TimestampOption { pointer: *pointer, overflow: overflow_flag >> 4, flag, data: slots };
        // The smallest legal pointer is 5 (RFC 791).
        let has_slot = usize::from(*pointer) + flag.slot_len() <= slots.len() + 5;
        if *pointer < 5 || !option.is_full() && !has_slot {
            return Err((WireError::Ipv4OptionPointer, 2));
        }
        Ok(option)
    }
}

impl<'a> Iterator for Ipv4OptionIter<'a> {
    type Item = Result<Ipv4Option<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.octets.get(self.offset..).filter(|rest| !rest.is_empty())?;
        let offset = self.offset;
        match Self::parse(rest) {
            Ok((octets, body)) => {
                self.offset =
                    if body == Ipv4OptionBody::End { self.octets.len() } else { offset + octets.len() };
                Some(Ok(Ipv4Option { offset, octets, body }))
            }
            Err((error, at)) => {
                self.offset = self.octets.len();
                self.error_offset = Some(offset + at);
                Some(Err(error))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::golden;
    use crate::wire::ipv4::Ipv4;
    use proptest::prelude::*;

    #[test]
    fn options_one_by_one() {
        let bytes = golden::payload(golden::PORT_UNREACHABLE);
        let packet = Ipv4::new_checked(&bytes).unwrap();
        let options: Vec<_> = packet.options().map(Result::unwrap).collect();
        let data = &[192, 0, 2, 1, 192, 0, 2, 2];
        let route = RouteOption { pointer: 12, data };
        assert!(route.is_full());
        assert_eq!(options[0].body, Ipv4OptionBody::RecordRoute(route));
        assert_eq!((options[1].offset, options[1].body), (11, Ipv4OptionBody::End));
        assert_eq!(options.len(), 2);
        assert!(!options[0].is_copied());

        let octets = [
            1, 148, 4, 0, 0, 131, 7, 4, 10, 0, 0, 1, 68, 12, 5, 0x21, 0, 0, 0, 0, 0, 0, 0, 0, 130, 3, 9, 0, 5,
        ];
        let options: Vec<_> = Ipv4OptionIter::new(&octets).map(Result::unwrap).collect();
        let bodies: Vec<_> = options.iter().map(|option| option.body).collect();
        let route = RouteOption { pointer: 4, data: &[10, 0, 0, 1] };
        let timestamp =
            TimestampOption { pointer: 5, overflow: 2, flag: TimestampFlag::AddressAndTime, data: &[0; 8] };
        assert_eq!(
            bodies,
            [
                Ipv4OptionBody::Nop,
                Ipv4OptionBody::RouterAlert(0),
                Ipv4OptionBody::LooseSourceRoute(route),
                Ipv4OptionBody::Timestamp(timestamp),
                Ipv4OptionBody::Unknown { kind: 130, data: &[9] },
                Ipv4OptionBody::End,
            ]
        );
        assert_eq!(route.next_address(), Some(Ipv4Addr::new(10, 0, 0, 1)));
        assert!(options[1].is_copied());
        assert_eq!(options[3].offset, 12);
    }

    #[test]
    fn malformed_options_have_reasons_and_places() {
        for (octets, reason, at) in [
            (&[1, 7][..], WireError::Ipv4OptionBeyondHeader, 1),
            (&[1, 7, 1, 4], WireError::Ipv4OptionLength, 2),
            (&[7, 0, 4, 0], WireError::Ipv4OptionLength, 1),
            (&[7, 2, 4, 0], WireError::Ipv4OptionLength, 1),
            (&[7, 7, 4, 0], WireError::Ipv4OptionBeyondHeader, 1),
            (&[7, 7, 3, 0, 0, 0, 0, 0], WireError::Ipv4OptionPointer, 2),
            (&[1, 137, 7, 5, 0, 0, 0, 0], WireError::Ipv4OptionPointer, 3),
            (&[68, 8, 4, 0, 0, 0, 0, 0], WireError::Ipv4OptionPointer, 2),
            (&[68, 8, 0, 0, 0, 0, 0, 0], WireError::Ipv4OptionPointer, 2),
            (&[68, 8, 5, 1, 0, 0, 0, 0], WireError::Ipv4OptionPointer, 2),
            (&[68, 7, 5, 0, 0, 0, 0], WireError::Ipv4OptionPointer, 2),
            (&[7, 6, 4, 0, 0, 0], WireError::Ipv4OptionPointer, 2),
            (&[68, 8, 5, 2, 0, 0, 0, 0], WireError::Ipv4TimestampFlag, 3),
            (&[148, 3, 0, 0], WireError::Ipv4OptionLength, 1),
        ] {
            let mut options = Ipv4OptionIter::new(octets);
            assert_eq!(options.by_ref().find_map(Result::err), Some(reason), "{octets:?}");
            assert_eq!(options.error_offset(), Some(at), "{octets:?}");
            assert!(options.next().is_none());
        }
        // A full option may have any pointer behind its end, and one that is just full is well.
        assert!(Ipv4OptionIter::new(&[7, 3, 4, 0]).all(|option| option.is_ok()));
        assert!(Ipv4OptionIter::new(&[68, 8, 9, 0xf0, 1, 2, 3, 4]).all(|option| option.is_ok()));
    }

    proptest! {
        #[test]
        fn any_options(
            kinds in proptest::collection::vec(
                prop_oneof![any::<u8>(), Just(7u8), Just(68), Just(131), Just(137), Just(148), 0u8..12], 0..41),
        ) {
            let mut options = Ipv4OptionIter::new(&kinds);
            let items: Vec<_> = options.by_ref().collect();
            prop_assert!(items.len() <= kinds.len());
            prop_assert_eq!(items.iter().filter(|item| item.is_err()).count(), usize::from(options.error_offset().is_some()));
            prop_assert!(options.error_offset().is_none_or(|at| at < kinds.len()));
            // What was read tiles the octets from the start.
            let mut at = 0;
            for option in items.iter().flatten() {
                prop_assert_eq!(option.offset, at);
                prop_assert_eq!(option.octets, &kinds[at..at + option.octets.len()]);
                at += option.octets.len();
            }
        }
    }
}
