//! Security associations.

use packet::IpVersion;

use super::fields::{Fields, RawAddress, family};
use super::{Decoded, attribute, expiry, limits, mark, offload, usage};
use crate::netlink::attributes::{Attribute, attributes};
use crate::netlink::message::DecodeError;
use crate::netlink::xfrm::{
    Algorithm, Encapsulation, EncapsulationKind, Failures, Key, Limits, Mark, Mode, Protocol, Replay, Sa,
    SaDirection, SaFlags, SaId, Selector, Usage,
};

/// Length of a name of an algorithm.
const NAME_BYTES: usize = 64;

/// `struct xfrm_usersa_info`.
struct Info {
    selector: Option<Selector>,
    /// Without its mark, which is an attribute.
    id: SaId,
    source: RawAddress,
    version: IpVersion,
    limits: Limits,
    usage: Usage,
    failures: Failures,
    request_id: u32,
    mode: u8,
    window: u8,
    flags: u8,
}

fn info(fields: &mut Fields<'_>) -> Result<Info, DecodeError> {
    let selector = super::policy::selector(fields)?;
    let (destination, spi, protocol) = (fields.address()?, fields.network_u32()?, fields.u8()?);
    fields.skip(3)?;
    let source = fields.address()?;
    let (limits, usage) = (limits(fields)?, usage(fields)?);
    let failures = Failures { replay_window: fields.u32()?, replay: fields.u32()?, integrity: fields.u32()? };
    // The number of the request that it answers.
    fields.skip(4)?;
    let (request_id, number) = (fields.u32()?, fields.u16()?);
    let version = family(number)?.ok_or(DecodeError::Family)?;
    let (mode, window, flags) = (fields.u8()?, fields.u8()?, fields.u8()?);
    fields.skip(7)?;
    let protocol = Protocol::of(protocol);
    let id = SaId { destination: destination.of(version), spi, protocol, mark: Mark::default() };
    Ok(Info { selector, id, source, version, limits, usage, failures, request_id, mode, window, flags })
}

/// Returns whether the SA is one of IPsec. The kernel has others, of Mobile IPv6, which have no SPI.
fn is_ours(id: &SaId) -> bool {
    matches!(id.protocol, Protocol::Esp | Protocol::Ah | Protocol::Comp)
}

const OTHERS: Decoded = Decoded::NotForUs("an SA of another protocol");

/// `XFRM_MSG_NEWSA`.
pub(super) fn sa(mut fields: Fields<'_>) -> Result<Decoded, DecodeError> {
    let info = info(&mut fields)?;
    if !is_ours(&info.id) {
        return Ok(OTHERS);
    }
    let mut sa = Sa {
        id: info.id,
        source: info.source.of(info.version),
        selector: info.selector,
        mode: Mode::of(info.mode),
        request_id: info.request_id,
        flags: flags(info.flags),
        direction: None,
        replay: Replay::none(info.window),
        limits: info.limits,
        usage: info.usage,
        last_used_at: None,
        failures: info.failures,
        aead: None,
        encryption: None,
        authentication: None,
        compression: None,
        encapsulation: None,
        set_mark: None,
        interface_id: 0,
        offload: None,
        padded_length: 0,
        cpu: None,
        care_of_address: None,
        has_security_context: false,
        nat_keepalive_seconds: 0,
        mapping_report_seconds: 0,
        unknown: Vec::new(),
    };
    for found in attributes(fields.rest()) {
        take(&mut sa, info.version, info.window, &found?)?;
    }
    Ok(Decoded::Sa(Box::new(sa)))
}

fn take(sa: &mut Sa, version: IpVersion, window: u8, found: &Attribute<'_>) -> Result<(), DecodeError> {
    let mut fields = Fields::of_attribute(found);
    match found.kind {
        attribute::ALG_AEAD => sa.aead = Some(algorithm(fields, true)?),
        attribute::ALG_CRYPT => sa.encryption = Some(algorithm(fields, false)?),
        // The kernel sends both, first the one without the length of the ICV.
        attribute::ALG_AUTH if sa.authentication.is_some() => {}
        attribute::ALG_AUTH => sa.authentication = Some(algorithm(fields, false)?),
        attribute::ALG_AUTH_TRUNC => sa.authentication = Some(algorithm(fields, true)?),
        attribute::ALG_COMP => sa.compression = Some(algorithm(fields, false)?.name),
        attribute::ENCAP => {
            let kind = EncapsulationKind::of(fields.u16()?);
            let (source_port, destination_port) = (fields.network_u16()?, fields.network_u16()?);
            fields.skip(2)?;
            let original_address = fields.address()?.of(version);
            sa.encapsulation = Some(Encapsulation { kind, source_port, destination_port, original_address });
        }
        attribute::SEC_CTX => sa.has_security_context = true,
        attribute::REPLAY_VAL => sa.replay = Replay::short(fields, window)?,
        attribute::REPLAY_ESN_VAL => sa.replay = Replay::long(fields)?,
        attribute::COADDR => sa.care_of_address = Some(fields.address()?.of(version)),
        attribute::LASTUSED => sa.last_used_at = Some(fields.u64()?),
        attribute::MARK => sa.id.mark = fields.mark()?,
        attribute::TFCPAD => sa.padded_length = fields.u32()?,
        attribute::SA_EXTRA_FLAGS => {
            let extra = fields.u32()?;
            sa.flags.no_encapsulated_dscp = extra & 1 != 0;
            sa.flags.may_wrap = extra & 2 != 0;
            sa.flags.unknown = extra & !3;
        }
        attribute::OFFLOAD_DEV => sa.offload = Some(offload(fields)?),
        // Without a mask all bits are set.
        attribute::SET_MARK => {
            let value = fields.u32()?;
            let mask = sa.set_mark.map_or(u32::MAX, |mark| mark.mask);
            sa.set_mark = Some(Mark { value, mask });
        }
        attribute::SET_MARK_MASK => {
            let mask = fields.u32()?;
            let value = sa.set_mark.map_or(0, |mark| mark.value);
            sa.set_mark = Some(Mark { value, mask });
        }
        attribute::IF_ID => sa.interface_id = fields.u32()?,
        attribute::MTIMER_THRESH => sa.mapping_report_seconds = fields.u32()?,
        attribute::NAT_KEEPALIVE_INTERVAL => sa.nat_keepalive_seconds = fields.u32()?,
        attribute::SA_PCPU => sa.cpu = Some(fields.u32()?),
        attribute::SA_DIR => match fields.u8()? {
            1 => sa.direction = Some(SaDirection::In),
            2 => sa.direction = Some(SaDirection::Out),
            _ => sa.unknown.push(found.kind),
        },
        attribute::PAD => {}
        other => sa.unknown.push(other),
    }
    Ok(())
}

fn flags(bits: u8) -> SaFlags {
    SaFlags {
        no_ecn: bits & 1 != 0,
        decapsulates_dscp: bits & 2 != 0,
        no_path_mtu_discovery: bits & 4 != 0,
        wildcard_receive: bits & 8 != 0,
        icmp: bits & 16 != 0,
        any_family: bits & 32 != 0,
        aligns_to_four: bits & 64 != 0,
        extended_sequence_numbers: bits & 128 != 0,
        ..SaFlags::default()
    }
}

/// `struct xfrm_algo`, or with an ICV `struct xfrm_algo_auth` and `struct xfrm_algo_aead`.
fn algorithm(mut fields: Fields<'_>, has_icv: bool) -> Result<Algorithm, DecodeError> {
    let name = fields.bytes(NAME_BYTES)?;
    let end = name.iter().position(|&byte| byte == 0).unwrap_or(NAME_BYTES);
    let key_bits = fields.u32()?;
    let icv_bits = if has_icv { Some(fields.u32()?) } else { None };
    let key = Key::new(fields.bytes(key_bits.div_ceil(8) as usize)?);
    Ok(Algorithm { name: String::from_utf8_lossy(&name[..end]).into_owned(), key, icv_bits })
}

/// `XFRM_MSG_UPDSA`: its name only. The message repeats the request, keys and counters included.
pub(super) fn updated(mut fields: Fields<'_>) -> Result<Decoded, DecodeError> {
    let id = info(&mut fields)?.id;
    Ok(if is_ours(&id) { Decoded::SaUpdated(SaId { mark: mark(fields.rest())?, ..id }) } else { OTHERS })
}

/// `XFRM_MSG_DELSA`: `struct xfrm_usersa_id`; attributes repeat the SA.
pub(super) fn gone(mut fields: Fields<'_>) -> Result<Decoded, DecodeError> {
    let (destination, spi, number, protocol) =
        (fields.address()?, fields.network_u32()?, fields.u16()?, Protocol::of(fields.u8()?));
    fields.skip(1)?;
    let version = family(number)?.ok_or(DecodeError::Family)?;
    let id = SaId { destination: destination.of(version), spi, protocol, mark: mark(fields.rest())? };
    Ok(if is_ours(&id) { Decoded::SaGone(id) } else { OTHERS })
}

/// `XFRM_MSG_EXPIRE`: `struct xfrm_user_expire`.
pub(super) fn expired(mut fields: Fields<'_>) -> Result<Decoded, DecodeError> {
    let id = info(&mut fields)?.id;
    let hard = fields.u8()?;
    fields.skip(7)?;
    let id = SaId { mark: mark(fields.rest())?, ..id };
    Ok(if is_ours(&id) { Decoded::SaExpired(id, expiry(hard)) } else { OTHERS })
}
