//! Prefixes as people write them, `192.0.2.0/24` and `2001:db8::/32`, and what can be wrong with one.

use super::lines::shown;
use ipnet::IpNet;
use packet::{Family, IpVersion};
use std::net::IpAddr;

/// Why a text is not a prefix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrefixProblem {
    /// It is an address without a length.
    #[error("'{text}' has no prefix length; a single address is '{text}/{bits}'")]
    NoLength {
        /// The address as written.
        text: String,
        /// Bits of an address of its family.
        bits: u8,
    },
    /// It is of the other family.
    #[error("'{text}' is {found}; this table is for {wanted} prefixes such as '{example}'")]
    OtherFamily {
        /// The prefix as written.
        text: String,
        /// Its family.
        found: IpVersion,
        /// The table's family.
        wanted: IpVersion,
        /// What was expected.
        example: &'static str,
    },
    /// What stands before the slash is not an address.
    #[error("'{text}' is not {right}")]
    NotAPrefix {
        /// The text.
        text: String,
        /// What a prefix is, with an example.
        right: &'static str,
    },
    /// The length is not one of the family.
    #[error("'{text}' has the length '{length}'; an {family} prefix length is a number of 0 to {bits}")]
    Length {
        /// The prefix as written.
        text: String,
        /// Its length as written.
        length: String,
        /// The family.
        family: IpVersion,
        /// The longest length of the family.
        bits: u8,
    },
    /// Bits are set behind the length.
    #[error("'{text}' has host bits set; the network is {network}")]
    HostBits {
        /// The prefix as written.
        text: String,
        /// The prefix without them.
        network: IpNet,
    },
}

const RIGHT_IPV4: &str = "an IPv4 prefix; expected four numbers of 0 to 255 and a length: '192.0.2.0/24'";
const RIGHT_IPV6: &str = "an IPv6 prefix; expected an address and a length: '2001:db8::/32'";
const RIGHT: &str = "a prefix; expected an address and a length: '192.0.2.0/24' or '2001:db8::/32'";

/// A prefix of either family; `right` says what would be one.
fn parse_as(text: &str, right: &'static str) -> Result<IpNet, PrefixProblem> {
    let (before, length) = match text.split_once('/') {
        Some((before, length)) => (before, Some(length)),
        None => (text, None),
    };
    let address: IpAddr =
        before.parse().map_err(|_| PrefixProblem::NotAPrefix { text: shown(text), right })?;
    let family = IpVersion::of(address);
    let bits = if address.is_ipv4() { 32 } else { 128 };
    let Some(length) = length else {
        return Err(PrefixProblem::NoLength { text: shown(text), bits });
    };
    // `parse` would take '+8'.
    let digits = length.bytes().all(|byte| byte.is_ascii_digit());
    let prefix = length.parse().ok().filter(|_| digits).and_then(|length| IpNet::new(address, length).ok());
    let Some(prefix) = prefix else {
        return Err(PrefixProblem::Length { text: shown(text), length: shown(length), family, bits });
    };
    if prefix.network() != address {
        return Err(PrefixProblem::HostBits { text: shown(text), network: prefix.trunc() });
    }
    Ok(prefix)
}

/// A prefix of either family.
pub(super) fn parse_any(text: &str) -> Result<IpNet, PrefixProblem> {
    parse_as(text, RIGHT)
}

/// A prefix of one family.
pub(super) fn parse<A: Family>(text: &str) -> Result<A::Net, PrefixProblem> {
    let is_ipv4 = A::BITS == 32;
    let other = |found| PrefixProblem::OtherFamily {
        text: shown(text),
        found,
        wanted: A::VERSION,
        example: if is_ipv4 { "192.0.2.0/24" } else { "2001:db8::/32" },
    };
    match parse_as(text, if is_ipv4 { RIGHT_IPV4 } else { RIGHT_IPV6 }) {
        Ok(prefix) => match A::from_ip(prefix.addr()) {
            Some(network) => Ok(A::net(network, prefix.prefix_len())),
            None => Err(other(IpVersion::of(prefix.addr()))),
        },
        // That it is of the other family comes before what else is wrong with it.
        Err(problem) => match text.split('/').next().and_then(|address| address.parse::<IpAddr>().ok()) {
            Some(address) if A::from_ip(address).is_none() => Err(other(IpVersion::of(address))),
            _ => Err(problem),
        },
    }
}
