//! =c
//! IPsecESPUnencap()
//!
//! =s ipsec
//! takes Click's ESP header off packets
//!
//! =d
//! Expects packets as IPsecAuthHMACSHA1(1) leaves them: decrypted, without digest, with the association annotation of
//! RadixIPsecLookup. Looks whether the sequence number was accepted before, checks the padding, and takes off header,
//! padding and trailer. The inner packet begins with its own IP header, which CheckIPHeader is to check.
//!
//! The number is checked and remembered here, as in Click. So this element has to stand behind
//! IPsecAuthHMACSHA1(1). A forged number would move the window.
//!
//! Drop reasons: `IPsec: no association`, `ESP: truncated`, `ESP: replayed`,
//! `ESP: older than the replay window`, `ESP: bad padding`.
//!
//! =e
//!   rt[0] -> StripIPHeader -> IPsecAES(0) -> IPsecAuthHMACSHA1(1)
//!     -> IPsecESPUnencap -> CheckIPHeader -> rt;
//!
//! =a IPsecESPEncap, IPsecAuthHMACSHA1, IPsecAES, RadixIPsecLookup, EspDecap

use graph::{Class, ConfigError, Context, Element, Setup};
use ipsec::Fault;
use packet::{Batch, Packet};

use super::HEADER_BYTES;
use super::association::Association;
use super::associations::Access;

pub(crate) static CLASS: Class =
    Class { name: "IPsecESPUnencap", manual: graph::manual!("ipsec_esp_unencap.rs"), make, ..Class::DEFAULT };

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    setup.arguments.finish()?;
    Ok(Box::new(IpsecEspUnencap(Access::new(setup))))
}

struct IpsecEspUnencap(Access);

fn unencapsulate(packet: &mut Packet, association: &Association) -> Result<(), Fault> {
    let (header, payload) = packet.data().split_first_chunk::<HEADER_BYTES>().ok_or(Fault::Truncated)?;
    let (payload, [length, _]) = payload.split_last_chunk::<2>().ok_or(Fault::Truncated)?;
    let sequence = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
    association.accept(sequence)?;
    let left = payload.len().checked_sub(usize::from(*length)).ok_or(Fault::BadPadding)?;
    if !payload[left..].iter().copied().eq(1..=*length) {
        return Err(Fault::BadPadding);
    }
    packet.truncate(HEADER_BYTES + left);
    packet.strip(HEADER_BYTES);
    Ok(())
}

impl Element for IpsecEspUnencap {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        self.0.each(cx, batch, unencapsulate);
    }
}
