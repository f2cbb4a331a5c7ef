//! What messages of `NETLINK_XFRM` say, from bytes. Any bytes give a [`Decoded`] or a named [`DecodeError`], never a panic.
//!
//! An attribute that we do not know is kept by its number: it may change what an SA or a policy does.

mod fields;
mod policy;
mod sa;

use crate::netlink::attributes::attributes;
use crate::netlink::frames::Frame;
use crate::netlink::message::DecodeError;

use super::{
    Action, Defaults, Expiry, Limit, Limits, Mark, Policy, PolicyIndex, PolicyType, Sa, SaId, Usage,
};
pub(super) use fields::Fields;

/// Types of messages (`XFRM_MSG_*`).
pub(super) mod kind {
    pub(in super::super) const NEW_SA: u16 = 0x10;
    pub(in super::super) const DEL_SA: u16 = 0x11;
    pub(in super::super) const GET_SA: u16 = 0x12;
    pub(in super::super) const NEW_POLICY: u16 = 0x13;
    pub(in super::super) const DEL_POLICY: u16 = 0x14;
    pub(in super::super) const GET_POLICY: u16 = 0x15;
    pub(in super::super) const EXPIRE: u16 = 0x18;
    pub(in super::super) const UPD_POLICY: u16 = 0x19;
    pub(in super::super) const UPD_SA: u16 = 0x1a;
    pub(in super::super) const POLICY_EXPIRE: u16 = 0x1b;
    pub(in super::super) const FLUSH_SA: u16 = 0x1c;
    pub(in super::super) const FLUSH_POLICY: u16 = 0x1d;
    pub(in super::super) const NEW_AE: u16 = 0x1e;
    pub(in super::super) const MIGRATE: u16 = 0x21;
    pub(in super::super) const GET_DEFAULT: u16 = 0x28;
}

/// Attributes (`XFRMA_*`).
pub(super) mod attribute {
    pub(in super::super) const ALG_AUTH: u16 = 1;
    pub(in super::super) const ALG_CRYPT: u16 = 2;
    pub(in super::super) const ALG_COMP: u16 = 3;
    pub(in super::super) const ENCAP: u16 = 4;
    pub(in super::super) const TMPL: u16 = 5;
    pub(in super::super) const POLICY: u16 = 7;
    pub(in super::super) const SEC_CTX: u16 = 8;
    pub(in super::super) const LTIME_VAL: u16 = 9;
    pub(in super::super) const REPLAY_VAL: u16 = 10;
    pub(in super::super) const COADDR: u16 = 14;
    pub(in super::super) const LASTUSED: u16 = 15;
    pub(in super::super) const POLICY_TYPE: u16 = 16;
    pub(in super::super) const ALG_AEAD: u16 = 18;
    pub(in super::super) const ALG_AUTH_TRUNC: u16 = 20;
    pub(in super::super) const MARK: u16 = 21;
    pub(in super::super) const TFCPAD: u16 = 22;
    pub(in super::super) const REPLAY_ESN_VAL: u16 = 23;
    pub(in super::super) const SA_EXTRA_FLAGS: u16 = 24;
    pub(in super::super) const PAD: u16 = 27;
    pub(in super::super) const OFFLOAD_DEV: u16 = 28;
    pub(in super::super) const SET_MARK: u16 = 29;
    pub(in super::super) const SET_MARK_MASK: u16 = 30;
    pub(in super::super) const IF_ID: u16 = 31;
    pub(in super::super) const MTIMER_THRESH: u16 = 32;
    pub(in super::super) const SA_DIR: u16 = 33;
    pub(in super::super) const NAT_KEEPALIVE_INTERVAL: u16 = 34;
    pub(in super::super) const SA_PCPU: u16 = 35;
}

/// What a message says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// There is this SA.
    Sa(Box<Sa>),
    /// This SA was updated. The message has what was asked for, of which the kernel takes a part: it is to be asked for what it has.
    SaUpdated(SaId),
    /// An SA was deleted.
    SaGone(SaId),
    /// All SAs of this protocol (IANA's number) were deleted; 0 is all, 255 all of ESP, AH and IPComp.
    SasFlushed(u8),
    /// An SA reached a limit. At the hard one it is deleted, which no other message says.
    SaExpired(SaId, Expiry),
    /// There is this policy.
    Policy(Box<Policy>),
    /// A policy was deleted.
    PolicyGone(PolicyIndex),
    /// All policies of this table were deleted.
    PoliciesFlushed(PolicyType),
    /// A policy reached a limit. At the hard one it is deleted, which no other message says.
    PolicyExpired(PolicyIndex, Expiry),
    /// What happens to packets that no policy matches.
    Defaults(Defaults),
    /// Addresses of SAs and policies changed (RFC 4555), which no other message says.
    Migrated,
    /// Nothing that we know or need, and why.
    NotForUs(&'static str),
}

/// Returns what the message says.
///
/// # Errors
///
/// Where it is too short for its type, or contradicts itself.
pub fn decode(frame: &Frame<'_>) -> Result<Decoded, DecodeError> {
    decode_parts(frame.kind, frame.payload)
}

/// The same from a type and what is behind the header.
pub(super) fn decode_parts(kind: u16, payload: &[u8]) -> Result<Decoded, DecodeError> {
    let mut fields = Fields::of_message(payload);
    match kind {
        kind::NEW_SA => sa::sa(fields),
        kind::UPD_SA => sa::updated(fields),
        kind::DEL_SA => sa::gone(fields),
        kind::EXPIRE => sa::expired(fields),
        kind::FLUSH_SA => fields.u8().map(Decoded::SasFlushed),
        kind::NEW_POLICY | kind::UPD_POLICY => policy::policy(fields),
        kind::DEL_POLICY => policy::gone(fields),
        kind::POLICY_EXPIRE => policy::expired(fields),
        kind::FLUSH_POLICY => policy::flushed(payload),
        kind::GET_DEFAULT => policy::defaults(fields),
        kind::MIGRATE => Ok(Decoded::Migrated),
        _ => Ok(Decoded::NotForUs("other message types")),
    }
}

/// `struct xfrm_lifetime_cfg`.
fn limits(fields: &mut Fields<'_>) -> Result<Limits, DecodeError> {
    let mut limit = |none: u64| -> Result<Limit, DecodeError> {
        let some = |value: u64| Some(value).filter(|&value| value != none);
        Ok(Limit { soft: some(fields.u64()?), hard: some(fields.u64()?) })
    };
    // `XFRM_INF` for amounts, zero for times.
    Ok(Limits {
        bytes: limit(u64::MAX)?,
        packets: limit(u64::MAX)?,
        seconds_since_add: limit(0)?,
        seconds_since_use: limit(0)?,
    })
}

/// `struct xfrm_lifetime_cur`.
fn usage(fields: &mut Fields<'_>) -> Result<Usage, DecodeError> {
    Ok(Usage {
        bytes: fields.u64()?,
        packets: fields.u64()?,
        added_at: fields.u64()?,
        used_at: Some(fields.u64()?).filter(|&time| time != 0),
    })
}

/// `struct xfrm_user_offload`.
fn offload(mut fields: Fields<'_>) -> Result<super::Offload, DecodeError> {
    Ok(super::Offload { interface: fields.u32()?, flags: fields.u8()? })
}

/// The mark among these attributes.
fn mark(bytes: &[u8]) -> Result<Mark, DecodeError> {
    let mut mark = Mark::default();
    for found in attributes(bytes) {
        let found = found?;
        if found.kind == attribute::MARK {
            mark = Fields::of_attribute(&found).mark()?;
        }
    }
    Ok(mark)
}

fn expiry(hard: u8) -> Expiry {
    if hard == 0 { Expiry::Soft } else { Expiry::Hard }
}

/// `XFRM_USERPOLICY_*`: unspecified and accept let packets pass.
fn verdict(number: u8) -> Action {
    match number {
        0 | 2 => Action::Allow,
        1 => Action::Block,
        other => Action::Other(other),
    }
}
