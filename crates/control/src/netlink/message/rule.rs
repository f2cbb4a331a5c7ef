//! Policy rules.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use packet::IpVersion;

use crate::change::{Change, Rule, RuleAction};
use crate::netlink::attributes::{attributes, split_header, u32_at};
use crate::netlink::message::{DecodeError, Decoded, FAMILY_IPV4, FAMILY_IPV6};

/// `FIB_RULE_INVERT`.
const FLAG_INVERT: u32 = 2;
/// Flags that select nothing: `FIB_RULE_PERMANENT` 1, `FIB_RULE_UNRESOLVED` 4 (a goto to a rule that is not there),
/// `FIB_RULE_IIF_DETACHED` 8 and `FIB_RULE_OIF_DETACHED` 16 (no such interface: names are looked up here), and
/// `FIB_RULE_FIND_SADDR` 0x10000 (of packets of this host).
const KNOWN_FLAGS: u32 = FLAG_INVERT | 0x1_001d;

const FRA_DST: u16 = 1;
const FRA_SRC: u16 = 2;
const FRA_IIFNAME: u16 = 3;
const FRA_GOTO: u16 = 4;
const FRA_PRIORITY: u16 = 6;
const FRA_FWMARK: u16 = 10;
const FRA_FLOW: u16 = 11;
const FRA_SUPPRESS_IFGROUP: u16 = 13;
const FRA_SUPPRESS_PREFIXLEN: u16 = 14;
const FRA_TABLE: u16 = 15;
const FRA_FWMASK: u16 = 16;
const FRA_PAD: u16 = 18;
const FRA_L3MDEV: u16 = 19;
const FRA_PROTOCOL: u16 = 21;

/// What the kernel writes for "does not suppress".
const SUPPRESSES_NOTHING: u32 = u32::MAX;

/// `struct fib_rule_hdr` and attributes. An attribute that we do not know may be a way to select packets of a
/// newer kernel, so it counts as one.
pub(super) fn rule(payload: &[u8], is_gone: bool) -> Result<Decoded, DecodeError> {
    let (header, rest) = split_header::<12>(payload)?;
    let [family, to_length, from_length, tos, table, _, _, action] = header[..8] else {
        return Err(DecodeError::ShortMessage);
    };
    let version = match family {
        FAMILY_IPV4 => IpVersion::V4,
        FAMILY_IPV6 => IpVersion::V6,
        _ => return Ok(Decoded::NotForUs("a rule of another family")),
    };
    let flags = u32_at(header, 8);
    let (mut table, mut goto, mut mark, mut mark_mask) = (u32::from(table), 0, None, None);
    let (mut to, mut from) = (None, None);
    let mut rule = Rule {
        version,
        priority: 0,
        action: RuleAction::Nop,
        from: None,
        to: None,
        input: None,
        suppress_prefix_length: None,
        is_inverted: flags & FLAG_INVERT != 0,
        is_l3mdev: false,
        mark: None,
        has_other_selectors: tos != 0 || flags & !KNOWN_FLAGS != 0,
    };
    for attribute in attributes(rest) {
        let attribute = attribute?;
        match attribute.kind {
            FRA_DST => to = Some(attribute.address()?),
            FRA_SRC => from = Some(attribute.address()?),
            FRA_IIFNAME => rule.input = Some(attribute.text()),
            FRA_GOTO => goto = attribute.u32()?,
            FRA_PRIORITY => rule.priority = attribute.u32()?,
            FRA_FWMARK => mark = Some(attribute.u32()?),
            FRA_FWMASK => mark_mask = Some(attribute.u32()?),
            FRA_SUPPRESS_PREFIXLEN => {
                rule.suppress_prefix_length =
                    Some(attribute.u32()?).filter(|&length| length != SUPPRESSES_NOTHING);
            }
            FRA_SUPPRESS_IFGROUP => rule.has_other_selectors |= attribute.u32()? != SUPPRESSES_NOTHING,
            FRA_TABLE => table = attribute.u32()?,
            FRA_L3MDEV => rule.is_l3mdev = attribute.value.first().is_some_and(|&flag| flag != 0),
            // Realms of accounting, who made the rule, padding: they select nothing.
            FRA_FLOW | FRA_PROTOCOL | FRA_PAD => {}
            _ => rule.has_other_selectors = true,
        }
    }
    rule.to = selector(version, to, to_length)?;
    rule.from = selector(version, from, from_length)?;
    rule.mark = match (mark.unwrap_or(0), mark_mask.unwrap_or(0)) {
        (0, 0) => None,
        // Without a mask all bits count, as for the kernel.
        (mark, 0) => Some((mark, u32::MAX)),
        (mark, mask) => Some((mark, mask)),
    };
    rule.action = match action {
        1 => RuleAction::Table(table),
        2 => RuleAction::Goto(goto),
        3 => RuleAction::Nop,
        6 => RuleAction::Blackhole,
        7 => RuleAction::Unreachable,
        8 => RuleAction::Prohibit,
        other => RuleAction::Unknown(other),
    };
    Ok(Decoded::Change(if is_gone { Change::RuleGone(rule) } else { Change::Rule(rule) }))
}

/// The prefix of this length; none selects everything, which only a length of zero may mean without an
/// address.
fn selector(version: IpVersion, address: Option<IpAddr>, length: u8) -> Result<Option<IpNet>, DecodeError> {
    let address = match address {
        Some(address) if IpVersion::of(address) != version => return Err(DecodeError::Family),
        Some(address) => address,
        None if length == 0 => return Ok(None),
        None if version == IpVersion::V6 => Ipv6Addr::UNSPECIFIED.into(),
        None => Ipv4Addr::UNSPECIFIED.into(),
    };
    Ok(Some(IpNet::new(address, length).map_err(|_| DecodeError::PrefixLength)?.trunc()))
}
