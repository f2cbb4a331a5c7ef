//! =c
//! IPsecESPEncap()
//!
//! =s ipsec
//! puts Click's ESP header before packets
//!
//! =d
//! Expects IP packets with the association annotation of RadixIPsecLookup. Each becomes the payload of an ESP packet:
//!
//!   bytes  what
//!   4      SPI of the association
//!   4      sequence number, from the association's REPLAY on
//!   8      random IV
//!   n      the packet, with its IP header
//!   0-7    padding: 1, 2, 3 and so on
//!   1      bytes of padding
//!   1      protocol of the packet's IP header (0 if none is marked)
//!
//! The padding makes the bytes behind the IV a multiple of 8. IPsecAuthHMACSHA1(0) and IPsecAES(1)
//! are to follow, in this order, and IPsecEncap for the outer IP header.
//!
//! After the number 2^32 - 1 follows REPLAY again. An argument has no effect, as in Click, and gets
//! a warning.
//!
//! Drop reasons: `IPsec: no association`, `ESP: no room in the frame`.
//!
//! ONLY FOR CLICK
//!
//! These are the packets of Click's elements, not those of RFC 4303. The IV is too short for AES,
//! the digest is computed before the encryption, and the payload is not named. Linux and other
//! gateways do not understand these packets. If one of two gateways does not use Click's elements,
//! use EspEncap and EspDecap.
//!
//! =e
//!   rt[1] -> IPsecESPEncap -> IPsecAuthHMACSHA1(0) -> IPsecAES(1) -> IPsecEncap(50) -> rt;
//!
//! =a IPsecESPUnencap, IPsecAuthHMACSHA1, IPsecAES, IPsecEncap, RadixIPsecLookup, EspEncap

use aes::Aes128;
use aes::cipher::{BlockEncrypt, KeyInit};
use graph::{Class, ConfigError, Context, Element, Setup};
use ipsec::Fault;
use packet::{Batch, Packet};
use zeroize::Zeroizing;

use super::HEADER_BYTES;
use super::association::Association;
use super::associations::Access;

pub(crate) static CLASS: Class =
    Class { name: "IPsecESPEncap", manual: graph::manual!("ipsec_esp_encap.rs"), make, ..Class::DEFAULT };

/// Bytes of which payload, padding and trailer are a multiple.
const ALIGNMENT: usize = 8;
/// Bytes of the trailer: length of the padding, protocol.
const TRAILER_BYTES: usize = 2;

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    if setup.arguments.optional::<u32>("SPI")?.is_some() {
        setup.warn("SPI is not used; the association of a packet has it");
    }
    setup.arguments.finish()?;
    Ok(Box::new(IpsecEspEncap { associations: Access::new(setup), ivs: Ivs::new()? }))
}

/// IVs that nobody can predict: a counter, encrypted by a key of this element's own.
struct Ivs {
    cipher: Aes128,
    count: u64,
}

impl Ivs {
    fn new() -> Result<Self, String> {
        let mut key = Zeroizing::new([0; 16]);
        aws_lc_rs::rand::fill(&mut *key).map_err(|_| "the system has no random numbers")?;
        Ok(Self { cipher: Aes128::new((&*key).into()), count: 0 })
    }

    fn next(&mut self) -> [u8; 8] {
        self.count += 1;
        let mut block = aes::Block::default();
        block[..8].copy_from_slice(&self.count.to_le_bytes());
        self.cipher.encrypt_block(&mut block);
        *block.first_chunk().expect("a block has 16 bytes")
    }
}

struct IpsecEspEncap {
    associations: Access,
    ivs: Ivs,
}

fn encapsulate(packet: &mut Packet, association: &Association, iv: [u8; 8]) -> Option<()> {
    let protocol = packet.network().and_then(|header| header.get(9)).copied().unwrap_or(0);
    let padding = (packet.len() + TRAILER_BYTES).next_multiple_of(ALIGNMENT) - packet.len() - TRAILER_BYTES;
    if packet.headroom() < HEADER_BYTES || packet.tailroom() < padding + TRAILER_BYTES {
        return None;
    }
    let trailer = packet.append(padding + TRAILER_BYTES)?;
    let (pad, [length, next]) = trailer.split_last_chunk_mut()?;
    pad.iter_mut().zip(1..).for_each(|(byte, number)| *byte = number);
    (*length, *next) = (padding as u8, protocol);
    let header = packet.prepend(HEADER_BYTES)?;
    header[..4].copy_from_slice(&association.settings.spi.to_be_bytes());
    header[4..8].copy_from_slice(&association.next().to_be_bytes());
    header[8..HEADER_BYTES].copy_from_slice(&iv);
    Some(())
}

impl Element for IpsecEspEncap {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        let ivs = &mut self.ivs;
        self.associations.each(cx, batch, |packet, association| {
            encapsulate(packet, association, ivs.next()).ok_or(Fault::NoRoom)
        });
    }
}
