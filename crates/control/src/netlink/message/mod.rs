//! What messages of rtnetlink(7) say, from bytes. Any bytes give a [`Decoded`] or a named [`DecodeError`],
//! never a panic, and no more memory than a few times the message.
//!
//! Our own decoder, as narrow as what we need: a table of a million routes is read in a second or so. An attribute
//! that we do not know is passed over where it cannot decide about forwarded packets (links, addresses). A route,
//! next-hop object, rule or neighbour that has one is Linux's. FRR's forwarding plane manager sends the same messages
//! (`crate::fpm`).
//!
//! Numbers in messages of the kernel are in the order of the host; addresses are in that of the network.

mod link;
mod neighbour;
mod object;
mod route;
mod rule;
#[cfg(test)]
mod tests;

use crate::change::{Change, Part, Route};
use crate::netlink::frames::Frame;
pub(super) use link::state as link_state;
pub(super) use route::{is_advertised, time_left};

/// Types of messages (`linux/rtnetlink.h`).
pub(super) mod kind {
    pub(crate) const NEW_LINK: u16 = 16;
    pub(crate) const DEL_LINK: u16 = 17;
    pub(crate) const GET_LINK: u16 = 18;
    pub(crate) const NEW_ADDRESS: u16 = 20;
    pub(crate) const DEL_ADDRESS: u16 = 21;
    pub(crate) const GET_ADDRESS: u16 = 22;
    pub(crate) const NEW_ROUTE: u16 = 24;
    pub(crate) const DEL_ROUTE: u16 = 25;
    pub(crate) const GET_ROUTE: u16 = 26;
    pub(crate) const NEW_NEIGHBOUR: u16 = 28;
    pub(crate) const DEL_NEIGHBOUR: u16 = 29;
    pub(crate) const GET_NEIGHBOUR: u16 = 30;
    pub(crate) const NEW_RULE: u16 = 32;
    pub(crate) const DEL_RULE: u16 = 33;
    pub(crate) const GET_RULE: u16 = 34;
    pub(crate) const NEW_OBJECT: u16 = 104;
    pub(crate) const DEL_OBJECT: u16 = 105;
    pub(crate) const GET_OBJECT: u16 = 106;
}

/// `AF_UNSPEC`.
pub(super) const FAMILY_ANY: u8 = 0;
/// `AF_INET`.
pub(super) const FAMILY_IPV4: u8 = 2;
/// `AF_INET6`.
pub(super) const FAMILY_IPV6: u8 = 10;

/// Bits that say that a path cannot be used: `RTNH_F_DEAD`, `RTNH_F_LINKDOWN`.
const PATH_IS_DOWN: u32 = 1 | 16;

/// What a message says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// Something that concerns us changed. Never [`Change::RouteGone`].
    Change(Change),
    /// A route is gone. All that the message says of it, because several routes may have the same key.
    RouteGone(Route),
    /// Nothing that we know or need, and why.
    NotForUs(&'static str),
}

/// Why a message cannot be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DecodeError {
    /// Its length is less than a header, or more than there is.
    MessageLength,
    /// It ends before the fixed fields that its type has.
    ShortMessage,
    /// An attribute's length is less than its own header, or reaches over the end.
    AttributeFraming,
    /// An attribute is not as long as what it means.
    AttributeLength,
    /// An attribute is not there without which the message means nothing.
    AttributeMissing,
    /// A prefix is longer than the addresses of its family.
    PrefixLength,
    /// An address is of another family than the message.
    Family,
    /// A path of a route reaches over the end, or is shorter than its fixed fields.
    PathFraming,
}

impl DecodeError {
    /// What is wrong, in a few words: the name that it is counted under.
    pub fn reason(self) -> &'static str {
        match self {
            DecodeError::MessageLength => "message length",
            DecodeError::ShortMessage => "message too short for its type",
            DecodeError::AttributeFraming => "attribute over the end",
            DecodeError::AttributeLength => "attribute of a wrong length",
            DecodeError::AttributeMissing => "attribute missing",
            DecodeError::PrefixLength => "prefix too long",
            DecodeError::Family => "address of the wrong family",
            DecodeError::PathFraming => "path over the end",
        }
    }
}

impl std::fmt::Display for DecodeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.reason())
    }
}

impl std::error::Error for DecodeError {}

/// What the message says.
pub fn decode(frame: &Frame<'_>) -> Result<Decoded, DecodeError> {
    let payload = frame.payload;
    match frame.kind {
        kind::NEW_LINK => link::link(payload, false),
        kind::DEL_LINK => link::link(payload, true),
        kind::NEW_ADDRESS => link::address(payload, false),
        kind::DEL_ADDRESS => link::address(payload, true),
        kind::NEW_ROUTE => route::route(payload, false),
        kind::DEL_ROUTE => route::route(payload, true),
        kind::NEW_NEIGHBOUR => neighbour::neighbour(payload, false),
        kind::DEL_NEIGHBOUR => neighbour::neighbour(payload, true),
        kind::NEW_RULE => rule::rule(payload, false),
        kind::DEL_RULE => rule::rule(payload, true),
        kind::NEW_OBJECT => object::object(payload, false),
        kind::DEL_OBJECT => object::object(payload, true),
        _ => Ok(Decoded::NotForUs("other message types")),
    }
}

impl Decoded {
    /// The part of the kernel's state that it belongs to.
    pub(super) fn part(&self) -> Option<Part> {
        let of_route = |is_ipv4| if is_ipv4 { Part::Routes4 } else { Part::Routes6 };
        Some(match self {
            Decoded::NotForUs(_) => return None,
            Decoded::RouteGone(route) => of_route(route.key.prefix.addr().is_ipv4()),
            Decoded::Change(change) => match change {
                Change::Link(_) | Change::LinkGone(_) => Part::Links,
                Change::Address(_) | Change::AddressGone(_) => Part::Addresses,
                Change::Route(Route { key, .. }) | Change::RouteGone(key) => {
                    of_route(key.prefix.addr().is_ipv4())
                }
                Change::Object(_) | Change::ObjectGone(_) => Part::Objects,
                Change::Neighbour(_) | Change::NeighbourGone(..) => Part::Neighbours,
                Change::Rule(_) | Change::RuleGone(_) => Part::Rules,
            },
        })
    }
}
