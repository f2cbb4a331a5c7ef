//! Attributes of netlink messages: type, length, value, padded to four bytes. Read without a copy.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_core::{NLA_HEADER_SIZE, NlasIterator};

use crate::netlink::message::DecodeError;

/// An attribute. Its length was checked.
#[derive(Clone, Copy, Debug)]
pub struct Attribute<'a> {
    /// What it is, without the flags for nesting and byte order.
    pub kind: u16,
    /// What it says.
    pub value: &'a [u8],
}

/// The attributes that `bytes` consists of. After an error there is nothing more.
pub fn attributes(bytes: &[u8]) -> impl Iterator<Item = Result<Attribute<'_>, DecodeError>> {
    NlasIterator::new(bytes).map(|attribute| {
        let attribute = attribute.map_err(|_| DecodeError::AttributeFraming)?;
        let (kind, length) = (attribute.kind(), usize::from(attribute.length()));
        Ok(Attribute { kind, value: &attribute.into_inner()[NLA_HEADER_SIZE..length] })
    })
}

impl<'a> Attribute<'a> {
    fn bytes<const N: usize>(&self) -> Result<[u8; N], DecodeError> {
        self.value.try_into().map_err(|_| DecodeError::AttributeLength)
    }

    /// A number of one byte.
    pub(crate) fn u8(&self) -> Result<u8, DecodeError> {
        self.bytes().map(|[byte]| byte)
    }

    /// A number of two bytes.
    pub(crate) fn u16(&self) -> Result<u16, DecodeError> {
        self.bytes().map(u16::from_ne_bytes)
    }

    /// A number of four bytes in network order, as netfilter sends them.
    ///
    /// # Errors
    ///
    /// It has another length.
    pub fn network_u32(&self) -> Result<u32, DecodeError> {
        self.bytes().map(u32::from_be_bytes)
    }

    /// A number of four bytes.
    pub(crate) fn u32(&self) -> Result<u32, DecodeError> {
        self.bytes().map(u32::from_ne_bytes)
    }

    /// An IPv4 or IPv6 address; the length says which.
    pub(crate) fn address(&self) -> Result<IpAddr, DecodeError> {
        address(self.value)
    }

    /// An address and the family before it (`RTA_VIA`).
    pub(crate) fn via(&self) -> Result<IpAddr, DecodeError> {
        self.value.get(2..).ok_or(DecodeError::AttributeLength).and_then(address)
    }

    /// An Ethernet address, if it is as long as one: other links have other addresses.
    pub(crate) fn mac(&self) -> Option<[u8; 6]> {
        self.value.try_into().ok()
    }

    /// Text, with or without its NUL. The kernel allows any bytes in names.
    pub fn text(&self) -> String {
        let end = self.value.iter().position(|&byte| byte == 0).unwrap_or(self.value.len());
        String::from_utf8_lossy(&self.value[..end]).into_owned()
    }

    /// The attributes inside.
    pub fn nested(&self) -> impl Iterator<Item = Result<Attribute<'a>, DecodeError>> + use<'a> {
        attributes(self.value)
    }
}

fn address(bytes: &[u8]) -> Result<IpAddr, DecodeError> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).map(|bytes| Ipv4Addr::from(bytes).into()),
        _ => <[u8; 16]>::try_from(bytes).map(|bytes| Ipv6Addr::from(bytes).into()),
    }
    .map_err(|_| DecodeError::AttributeLength)
}

/// The fixed part of a message and the attributes behind it.
pub(crate) fn split_header<const N: usize>(payload: &[u8]) -> Result<(&[u8; N], &[u8]), DecodeError> {
    payload.split_first_chunk().ok_or(DecodeError::ShortMessage)
}

/// The four bytes at `at` of a fixed part.
pub(crate) fn u32_at<const N: usize>(header: &[u8; N], at: usize) -> u32 {
    u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}
