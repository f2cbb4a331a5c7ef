//! =c
//! IPsecAES(ENCRYPT)
//!
//! =s ipsec
//! encrypts or decrypts Click's ESP packets with AES
//!
//! =d
//! Expects packets that begin with their ESP header and end with the 12 bytes of a digest, with the
//! association annotation of RadixIPsecLookup. With an ENCRYPT of 1 the bytes between them are
//! encrypted, with 0 they are decrypted, in place. The key is ENCRYPT_KEY of the association, 128
//! bits.
//!
//! The mode is Click's. As in CBC each block depends on the block before, but only by its first 8
//! bytes. For the first block these are the IV. If half a block remains, the first 8 bytes of the
//! digest are encrypted with it.
//!
//! Drop reasons: `IPsec: no association`, `ESP: truncated`.
//!
//! WHAT IS NOT SAFE
//!
//! The chaining is half as wide as that of CBC. By chance, in one of 2^64 pairs of blocks the first
//! halves are equal behind the chaining. The pair then shows whether its second halves are equal.
//! 64 GB have such a pair, so keys should be changed long before.
//!
//! =a IPsecAuthHMACSHA1, IPsecESPEncap, IPsecESPUnencap, RadixIPsecLookup, EspEncap, EspDecap

use aes::cipher::{BlockDecrypt, BlockEncrypt};
use aes::{Aes128, Block};
use graph::{Class, ConfigError, Context, Element, FromArgument, Setup};
use ipsec::Fault;
use packet::Batch;

use super::associations::Access;
use super::{DIGEST_BYTES, HEADER_BYTES};

pub(crate) static CLASS: Class =
    Class { name: "IPsecAES", manual: graph::manual!("ipsec_aes.rs"), make, ..Class::DEFAULT };

/// Bytes of the IV, and of each block that the next one depends on.
const CHAINED_BYTES: usize = 8;
const BLOCK_BYTES: usize = 16;

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let Encrypts(encrypts) = setup.arguments.required("ENCRYPT")?;
    setup.arguments.finish()?;
    Ok(Box::new(IpsecAes { associations: Access::new(setup), encrypts }))
}

/// What the argument ENCRYPT says.
struct Encrypts(bool);

impl FromArgument for Encrypts {
    const EXPECTED: &'static str = "0 to decrypt or 1 to encrypt";
    fn from_argument(text: &str) -> Option<Self> {
        i64::from_argument(text).filter(|number| matches!(number, 0 | 1)).map(|number| Self(number == 1))
    }
}

struct IpsecAes {
    associations: Access,
    encrypts: bool,
}

/// The IV of a packet, and its whole blocks, the last of which may reach into the digest.
fn parts(esp: &mut [u8]) -> Option<([u8; CHAINED_BYTES], &mut [u8])> {
    let (header, rest) = esp.split_first_chunk_mut::<HEADER_BYTES>()?;
    let payload = rest.len().checked_sub(DIGEST_BYTES).filter(|bytes| bytes.is_multiple_of(CHAINED_BYTES))?;
    let blocks = rest.get_mut(..payload.next_multiple_of(BLOCK_BYTES))?;
    Some((*header.last_chunk()?, blocks))
}

fn encrypt(cipher: &Aes128, mut chained: [u8; CHAINED_BYTES], blocks: &mut [u8]) {
    for block in blocks.chunks_exact_mut(BLOCK_BYTES).map(Block::from_mut_slice) {
        block.iter_mut().zip(chained).for_each(|(byte, before)| *byte ^= before);
        cipher.encrypt_block(block);
        chained.copy_from_slice(&block[..CHAINED_BYTES]);
    }
}

fn decrypt(cipher: &Aes128, mut chained: [u8; CHAINED_BYTES], blocks: &mut [u8]) {
    for block in blocks.chunks_exact_mut(BLOCK_BYTES).map(Block::from_mut_slice) {
        let mut before = chained;
        chained.copy_from_slice(&block[..CHAINED_BYTES]);
        cipher.decrypt_block(block);
        block.iter_mut().zip(&mut before).for_each(|(byte, before)| *byte ^= *before);
    }
}

impl Element for IpsecAes {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        let work = if self.encrypts { encrypt } else { decrypt };
        self.associations.each(cx, batch, |packet, association| {
            let (iv, blocks) = parts(packet.data_mut()).ok_or(Fault::Truncated)?;
            work(&association.cipher, iv, blocks);
            Ok(())
        });
    }
}
