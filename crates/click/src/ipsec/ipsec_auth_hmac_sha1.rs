//! =c
//! IPsecAuthHMACSHA1(VERIFY)
//!
//! =s ipsec
//! computes or verifies the digest of Click's ESP packets
//!
//! =d
//! Expects packets that begin with their ESP header, with the association annotation of
//! RadixIPsecLookup. With a VERIFY of 0 the first 96 bits of the HMAC-SHA-1 (RFC 2404) of all bytes
//! are appended. With 1 they are compared, in constant time, and removed. The key is AUTH_KEY of
//! the association.
//!
//! A packet with a wrong digest, or without one, leaves by output 1 if that is connected, and is
//! dropped otherwise.
//!
//! Drop reasons: `IPsec: no association`, `ESP: wrong ICV`, `ESP: truncated`,
//! `ESP: no room in the frame`.
//!
//! =a IPsecAES, IPsecESPEncap, IPsecESPUnencap, RadixIPsecLookup, EspEncap, EspDecap

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;
use graph::{Class, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Setup, Verdict};
use ipsec::Fault;
use packet::{Batch, Packet};

use super::association::Association;
use super::associations::{Access, NO_ASSOCIATION};
use super::{DIGEST_BYTES, HEADER_BYTES};

pub(crate) static CLASS: Class = Class {
    name: "IPsecAuthHMACSHA1",
    ports: "1/1-2",
    processing: Class::AGNOSTIC_WITH_ERRORS,
    handlers: &[Handler::read(
        "drops",
        Combine::Sum,
        "Packets without the right digest.",
        &Get(|e: &mut IpsecAuthHmacSha1| e.wrong.to_string()),
    )],
    manual: graph::manual!("ipsec_auth_hmac_sha1.rs"),
    make,
    ..Class::DEFAULT
};

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let Verifies(verifies) = setup.arguments.required("VERIFY")?;
    setup.arguments.finish()?;
    Ok(Box::new(IpsecAuthHmacSha1 { associations: Access::new(setup), verifies, wrong: 0 }))
}

/// What the argument VERIFY says.
struct Verifies(bool);

impl FromArgument for Verifies {
    const EXPECTED: &'static str = "0 to compute digests or 1 to verify them";
    fn from_argument(text: &str) -> Option<Self> {
        i64::from_argument(text).filter(|number| matches!(number, 0 | 1)).map(|number| Self(number == 1))
    }
}

struct IpsecAuthHmacSha1 {
    associations: Access,
    verifies: bool,
    /// Packets without the right digest.
    wrong: u64,
}

fn compute(packet: &mut Packet, association: &Association) -> Result<(), Fault> {
    let digest = hmac::sign(&association.auth, packet.data());
    let place = packet.append(DIGEST_BYTES).ok_or(Fault::NoRoom)?;
    place.copy_from_slice(&digest.as_ref()[..DIGEST_BYTES]);
    Ok(())
}

fn verify(packet: &mut Packet, association: &Association) -> Result<(), Fault> {
    let (data, digest) = packet.data().split_last_chunk::<DIGEST_BYTES>().ok_or(Fault::Truncated)?;
    if data.len() < HEADER_BYTES {
        return Err(Fault::Truncated);
    }
    let right = hmac::sign(&association.auth, data);
    verify_slices_are_equal(&right.as_ref()[..DIGEST_BYTES], digest).map_err(|_| Fault::WrongIcv)?;
    packet.truncate(packet.len() - DIGEST_BYTES);
    Ok(())
}

impl Element for IpsecAuthHmacSha1 {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        if !self.verifies {
            return self.associations.each(cx, batch, compute);
        }
        let associations = self.associations.enter();
        cx.filter(batch, |packet| {
            match associations.of(packet).map(|association| verify(packet, association)) {
                Some(Ok(())) => Verdict::Keep,
                Some(Err(fault)) => {
                    self.wrong += 1;
                    Verdict::Divert(1, fault.reason())
                }
                None => Verdict::Drop(NO_ASSOCIATION),
            }
        });
    }
}
