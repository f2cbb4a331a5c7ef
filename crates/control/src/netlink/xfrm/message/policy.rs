//! Policies.

use ipnet::IpNet;
use packet::IpVersion;

use super::fields::{Fields, family};
use super::{Decoded, attribute, expiry, limits, offload, usage, verdict};
use crate::netlink::attributes::{Attribute, attributes};
use crate::netlink::message::DecodeError;
use crate::netlink::xfrm::{
    Action, Algorithms, Defaults, Direction, Mark, Mode, Policy, PolicyType, PortMatch, Protocol, Selector,
    Share, Template,
};

/// Length of `struct xfrm_user_tmpl`.
const TEMPLATE_BYTES: usize = 64;
/// Length of `struct xfrm_selector`.
const SELECTOR_BYTES: usize = 56;

/// `XFRM_POLICY_LOCALOK` and `XFRM_POLICY_ICMP`.
const FLAG_LOCAL_OK: u8 = 1;
const FLAG_ICMP: u8 = 2;

const OF_A_SOCKET: Decoded = Decoded::NotForUs("a policy of a socket");

/// `struct xfrm_selector`; `None` where it has no family, and matches all.
pub(super) fn selector(fields: &mut Fields<'_>) -> Result<Option<Selector>, DecodeError> {
    let (destination, source) = (fields.address()?, fields.address()?);
    let destination_port = PortMatch { port: fields.network_u16()?, mask: fields.network_u16()? };
    let source_port = PortMatch { port: fields.network_u16()?, mask: fields.network_u16()? };
    let (number, destination_length, source_length, protocol) =
        (fields.u16()?, fields.u8()?, fields.u8()?, fields.u8()?);
    fields.skip(3)?;
    let (interface, user) = (fields.u32()?, fields.u32()?);
    let Some(version) = family(number)? else { return Ok(None) };
    let prefix = |address: super::fields::RawAddress, length: u8| {
        IpNet::new(address.of(version), length).map_err(|_| DecodeError::PrefixLength)
    };
    Ok(Some(Selector {
        version,
        source: prefix(source, source_length)?,
        destination: prefix(destination, destination_length)?,
        protocol,
        source_port,
        destination_port,
        interface,
        user,
    }))
}

/// `struct xfrm_userpolicy_info`, without what attributes add; `None` for a policy of a socket.
fn info(fields: &mut Fields<'_>) -> Result<Option<Policy>, DecodeError> {
    let selector = selector(fields)?;
    let (limits, usage) = (limits(fields)?, usage(fields)?);
    let (priority, index) = (fields.u32()?, fields.u32()?);
    let (direction, action, flags) = (fields.u8()?, fields.u8()?, fields.u8()?);
    // The way of sharing, which is always "any", and padding.
    fields.skip(5)?;
    let direction = match direction {
        0 => Direction::In,
        1 => Direction::Out,
        2 => Direction::Forward,
        _ => return Ok(None),
    };
    let action = match action {
        0 => Action::Allow,
        1 => Action::Block,
        other => Action::Other(other),
    };
    Ok(Some(Policy {
        index,
        direction,
        selector: selector.ok_or(DecodeError::Family)?,
        priority,
        action,
        may_be_overridden: flags & FLAG_LOCAL_OK != 0,
        icmp: flags & FLAG_ICMP != 0,
        unknown_flags: flags & !(FLAG_LOCAL_OK | FLAG_ICMP),
        templates: Vec::new(),
        mark: Mark::default(),
        interface_id: 0,
        kind: PolicyType::Main,
        limits,
        usage,
        offload: None,
        has_security_context: false,
        unknown: Vec::new(),
    }))
}

/// `XFRM_MSG_NEWPOLICY` and `XFRM_MSG_UPDPOLICY`.
pub(super) fn policy(mut fields: Fields<'_>) -> Result<Decoded, DecodeError> {
    let Some(mut policy) = info(&mut fields)? else { return Ok(OF_A_SOCKET) };
    for found in attributes(fields.rest()) {
        take(&mut policy, &found?)?;
    }
    Ok(Decoded::Policy(Box::new(policy)))
}

fn take(policy: &mut Policy, found: &Attribute<'_>) -> Result<(), DecodeError> {
    let mut fields = Fields::of_attribute(found);
    match found.kind {
        attribute::TMPL => {
            if !fields.remaining().is_multiple_of(TEMPLATE_BYTES) {
                return Err(DecodeError::AttributeLength);
            }
            while fields.remaining() > 0 {
                policy.templates.push(template(&mut fields, policy.selector.version)?);
            }
        }
        attribute::SEC_CTX => policy.has_security_context = true,
        attribute::POLICY_TYPE => policy.kind = PolicyType::of(fields.u8()?),
        attribute::MARK => policy.mark = fields.mark()?,
        attribute::IF_ID => policy.interface_id = fields.u32()?,
        attribute::OFFLOAD_DEV => policy.offload = Some(offload(fields)?),
        attribute::PAD => {}
        other => policy.unknown.push(other),
    }
    Ok(())
}

/// `struct xfrm_user_tmpl`. One without a family has that of the policy.
fn template(fields: &mut Fields<'_>, version: IpVersion) -> Result<Template, DecodeError> {
    let (destination, spi, protocol) = (fields.address()?, fields.network_u32()?, Protocol::of(fields.u8()?));
    fields.skip(3)?;
    let version = family(fields.u16()?)?.unwrap_or(version);
    fields.skip(2)?;
    let (source, request_id) = (fields.address()?, fields.u32()?);
    let (mode, share, is_optional) = (Mode::of(fields.u8()?), Share::of(fields.u8()?), fields.u8()? != 0);
    fields.skip(1)?;
    let algorithms =
        Algorithms { authentication: fields.u32()?, encryption: fields.u32()?, compression: fields.u32()? };
    let (destination, source) = (destination.of(version), source.of(version));
    Ok(Template { destination, source, spi, protocol, request_id, mode, share, is_optional, algorithms })
}

/// `XFRM_MSG_DELPOLICY`: `struct xfrm_userpolicy_id`, whose index is zero where the policy was named by its selector; the policy itself
/// is an attribute.
pub(super) fn gone(mut fields: Fields<'_>) -> Result<Decoded, DecodeError> {
    fields.skip(SELECTOR_BYTES)?;
    let index = fields.u32()?;
    fields.skip(4)?;
    for found in attributes(fields.rest()) {
        let found = found?;
        if found.kind == attribute::POLICY {
            let policy = info(&mut Fields::of_attribute(&found))?;
            return Ok(policy.map_or(OF_A_SOCKET, |policy| Decoded::PolicyGone(policy.index)));
        }
    }
    if index == 0 { Err(DecodeError::AttributeMissing) } else { Ok(Decoded::PolicyGone(index)) }
}

/// `XFRM_MSG_POLEXPIRE`: `struct xfrm_user_polexpire`.
pub(super) fn expired(mut fields: Fields<'_>) -> Result<Decoded, DecodeError> {
    let Some(policy) = info(&mut fields)? else { return Ok(OF_A_SOCKET) };
    Ok(Decoded::PolicyExpired(policy.index, expiry(fields.u8()?)))
}

/// `XFRM_MSG_FLUSHPOLICY`: the table is an attribute, which kernels with one table leave out.
pub(super) fn flushed(payload: &[u8]) -> Result<Decoded, DecodeError> {
    let mut kind = PolicyType::Main;
    for found in attributes(payload) {
        let found = found?;
        if found.kind == attribute::POLICY_TYPE {
            kind = PolicyType::of(Fields::of_attribute(&found).u8()?);
        }
    }
    Ok(Decoded::PoliciesFlushed(kind))
}

/// `XFRM_MSG_GETDEFAULT`: `struct xfrm_userpolicy_default`.
pub(super) fn defaults(mut fields: Fields<'_>) -> Result<Decoded, DecodeError> {
    let [input, forward, output] = [fields.u8()?, fields.u8()?, fields.u8()?].map(verdict);
    Ok(Decoded::Defaults(Defaults { input, forward, output }))
}
