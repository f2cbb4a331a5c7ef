//! Fields of structures, one after the other.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use packet::IpVersion;

use crate::netlink::message::{DecodeError, FAMILY_IPV4, FAMILY_IPV6};
use crate::netlink::{Attribute, xfrm::Mark};

/// An address whose family stands elsewhere (`xfrm_address_t`).
#[derive(Clone, Copy)]
pub(in crate::netlink::xfrm) struct RawAddress([u8; 16]);

impl RawAddress {
    pub(in crate::netlink::xfrm) fn of(self, version: IpVersion) -> IpAddr {
        match version {
            IpVersion::V4 => {
                let [a, b, c, d, ..] = self.0;
                Ipv4Addr::new(a, b, c, d).into()
            }
            IpVersion::V6 => Ipv6Addr::from(self.0).into(),
        }
    }
}

/// What is left of a structure. Code that reads over the end gets the error that it was made with.
#[derive(Clone, Copy)]
pub(in crate::netlink::xfrm) struct Fields<'a> {
    rest: &'a [u8],
    too_short: DecodeError,
}

impl<'a> Fields<'a> {
    /// Those of a message.
    pub(in crate::netlink::xfrm) fn of_message(payload: &'a [u8]) -> Fields<'a> {
        Fields { rest: payload, too_short: DecodeError::ShortMessage }
    }

    /// Those of an attribute.
    pub(in crate::netlink::xfrm) fn of_attribute(attribute: &Attribute<'a>) -> Fields<'a> {
        Fields { rest: attribute.value, too_short: DecodeError::AttributeLength }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (array, rest) = self.rest.split_first_chunk().ok_or(self.too_short)?;
        self.rest = rest;
        Ok(*array)
    }

    /// So many bytes.
    pub(in crate::netlink::xfrm) fn bytes(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(self.too_short)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// Leaves out padding, or fields that we do not need.
    pub(in crate::netlink::xfrm) fn skip(&mut self, length: usize) -> Result<(), DecodeError> {
        self.bytes(length).map(drop)
    }

    /// All that is left.
    pub(in crate::netlink::xfrm) fn rest(self) -> &'a [u8] {
        self.rest
    }

    /// How many bytes are left.
    pub(in crate::netlink::xfrm) fn remaining(&self) -> usize {
        self.rest.len()
    }

    pub(in crate::netlink::xfrm) fn u8(&mut self) -> Result<u8, DecodeError> {
        self.array().map(|[byte]| byte)
    }

    pub(in crate::netlink::xfrm) fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(u16::from_ne_bytes)
    }

    pub(in crate::netlink::xfrm) fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_ne_bytes)
    }

    pub(in crate::netlink::xfrm) fn u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_ne_bytes)
    }

    /// A port: in network order.
    pub(in crate::netlink::xfrm) fn network_u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(u16::from_be_bytes)
    }

    /// An SPI: in network order.
    pub(in crate::netlink::xfrm) fn network_u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_be_bytes)
    }

    pub(in crate::netlink::xfrm) fn address(&mut self) -> Result<RawAddress, DecodeError> {
        self.array().map(RawAddress)
    }

    /// `struct xfrm_mark`.
    pub(in crate::netlink::xfrm) fn mark(&mut self) -> Result<Mark, DecodeError> {
        Ok(Mark { value: self.u32()?, mask: self.u32()? })
    }
}

/// The family of this number; `None` for "unspecified".
pub(in crate::netlink::xfrm) fn family(number: u16) -> Result<Option<IpVersion>, DecodeError> {
    const V4: u16 = FAMILY_IPV4 as u16;
    const V6: u16 = FAMILY_IPV6 as u16;
    match number {
        0 => Ok(None),
        V4 => Ok(Some(IpVersion::V4)),
        V6 => Ok(Some(IpVersion::V6)),
        _ => Err(DecodeError::Family),
    }
}
