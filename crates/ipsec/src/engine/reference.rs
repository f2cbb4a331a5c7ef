//! aws-lc-rs: on every processor, one packet at a time.
//!
//! aws-lc-rs offers AES-CBC with a padding of its own only, which is not ESP's, and allocates for each packet; that mode is from
//! the crates `aes` and `cbc`.

use aes::cipher::inout::InOutBuf;
use aes::cipher::{Block, BlockDecryptMut, BlockEncryptMut, InnerIvInit, KeyInit};
use aes::{Aes128, Aes256};
use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;
use cbc::{Decryptor, Encryptor};

use super::{Engine, HEADER_BYTES, Job};
use crate::suite::{AES_BLOCK_BYTES, Protection, SALT_BYTES, Suite};

/// Keys of this backend.
pub(super) enum Schedule {
    Combined { key: Box<LessSafeKey>, salt: zeroize::Zeroizing<[u8; SALT_BYTES]> },
    Cbc128 { cipher: Box<Aes128>, auth: Box<hmac::Key> },
    Cbc256 { cipher: Box<Aes256>, auth: Box<hmac::Key> },
}

impl Schedule {
    /// The lengths are right.
    pub(super) fn new(suite: Suite, cipher: &[u8], auth: &[u8]) -> Self {
        let (key, salt) = cipher.split_at(suite.cipher_key_bytes());
        let (algorithm, hash) = match (suite.protection(), key.len()) {
            (Protection::AesGcm, 16) => (&AES_128_GCM, None),
            (Protection::AesGcm, _) => (&AES_256_GCM, None),
            (Protection::ChaCha20Poly1305, _) => (&CHACHA20_POLY1305, None),
            (Protection::AesCbcSha1, _) => (&AES_128_GCM, Some(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY)),
            (Protection::AesCbcSha256, _) => (&AES_128_GCM, Some(hmac::HMAC_SHA256)),
            (Protection::AesCbcSha512, _) => (&AES_128_GCM, Some(hmac::HMAC_SHA512)),
        };
        let auth = hash.map(|hash| Box::new(hmac::Key::new(hash, auth)));
        const LENGTH: &str = "the length of the key was checked";
        match (auth, key.len()) {
            (Some(auth), 16) => {
                Self::Cbc128 { cipher: Box::new(Aes128::new_from_slice(key).expect(LENGTH)), auth }
            }
            (Some(auth), _) => {
                Self::Cbc256 { cipher: Box::new(Aes256::new_from_slice(key).expect(LENGTH)), auth }
            }
            (None, _) => Self::Combined {
                key: Box::new(LessSafeKey::new(UnboundKey::new(algorithm, key).expect(LENGTH))),
                salt: zeroize::Zeroizing::new(salt.try_into().expect(LENGTH)),
            },
        }
    }
}

/// The engine.
pub(super) struct Reference;

impl Engine for Reference {
    fn name(&self) -> String {
        "aws-lc".to_owned()
    }

    fn seal(&mut self, jobs: &mut [Job<'_>]) {
        jobs.iter_mut().for_each(|job| job.is_right = seal(job).is_some());
    }

    fn open(&mut self, jobs: &mut [Job<'_>]) {
        jobs.iter_mut().for_each(|job| job.is_right = open(job).is_some());
    }
}

/// A packet's parts.
struct Parts<'a> {
    header: &'a [u8; HEADER_BYTES],
    iv: &'a mut [u8],
    /// Encrypted, and the ICV behind it.
    rest: &'a mut [u8],
}

fn parts<'a>(esp: &'a mut [u8], suite: Suite) -> Option<Parts<'a>> {
    let (header, rest) = esp.split_first_chunk_mut()?;
    let (iv, rest) = rest.split_at_mut_checked(suite.iv_bytes())?;
    Some(Parts { header, iv, rest })
}

fn schedule<'a>(job: &Job<'a>) -> Option<&'a Schedule> {
    match &job.keys.schedule {
        super::Schedule::Reference(schedule) if job.is_whole() => Some(schedule),
        _ => None,
    }
}

/// RFC 4106, section 4: the nonce is the salt, and the IV.
fn nonce(salt: &[u8; SALT_BYTES], iv: &[u8]) -> Option<Nonce> {
    let mut nonce = [0; 12];
    nonce[..SALT_BYTES].copy_from_slice(salt);
    nonce[SALT_BYTES..].copy_from_slice(iv.get(..8)?);
    Some(Nonce::assume_unique_for_key(nonce))
}

/// RFC 4106, section 5: the header, with all of an extended sequence number.
fn associated(header: &[u8; HEADER_BYTES], high: Option<u32>) -> ([u8; 12], usize) {
    let mut data = [0; 12];
    let (spi, low) = header.split_at(4);
    data[..4].copy_from_slice(spi);
    let Some(high) = high else {
        data[4..8].copy_from_slice(low);
        return (data, 8);
    };
    data[4..8].copy_from_slice(&high.to_be_bytes());
    data[8..].copy_from_slice(low);
    (data, 12)
}

fn mac(auth: &hmac::Key, authenticated: &[u8], high: Option<u32>) -> hmac::Tag {
    let mut context = hmac::Context::with_key(auth);
    context.update(authenticated);
    if let Some(high) = high {
        context.update(&high.to_be_bytes());
    }
    context.sign()
}

fn seal(job: &mut Job<'_>) -> Option<()> {
    let schedule = schedule(job)?;
    let suite = job.keys.suite();
    let high = job.sequence_high;
    let payload_end = job.esp.len() - suite.icv_bytes();
    let auth = match schedule {
        Schedule::Combined { key, salt } => {
            let Parts { header, iv, rest } = parts(job.esp, suite)?;
            let (data, bytes) = associated(header, high);
            let payload = rest.len() - suite.icv_bytes();
            let (payload, icv) = rest.split_at_mut(payload);
            let tag =
                key.seal_in_place_separate_tag(nonce(salt, iv)?, Aad::from(&data[..bytes]), payload).ok()?;
            icv.copy_from_slice(tag.as_ref());
            return Some(());
        }
        // The nonce is encrypted with no IV before it, and what comes of it is the IV (NIST SP 800-38A, appendix C).
        Schedule::Cbc128 { cipher, auth } => {
            let mut mode = Encryptor::inner_iv_init((**cipher).clone(), &Block::<Aes128>::default());
            let (blocks, _) = InOutBuf::from(&mut job.esp[HEADER_BYTES..payload_end]).into_chunks();
            mode.encrypt_blocks_inout_mut(blocks);
            auth
        }
        Schedule::Cbc256 { cipher, auth } => {
            let mut mode = Encryptor::inner_iv_init((**cipher).clone(), &Block::<Aes256>::default());
            let (blocks, _) = InOutBuf::from(&mut job.esp[HEADER_BYTES..payload_end]).into_chunks();
            mode.encrypt_blocks_inout_mut(blocks);
            auth
        }
    };
    let (authenticated, icv) = job.esp.split_at_mut(payload_end);
    icv.copy_from_slice(&mac(auth, authenticated, high).as_ref()[..suite.icv_bytes()]);
    Some(())
}

fn open(job: &mut Job<'_>) -> Option<()> {
    let schedule = schedule(job)?;
    let suite = job.keys.suite();
    let high = job.sequence_high;
    let payload_end = job.esp.len() - suite.icv_bytes();
    let auth = match schedule {
        Schedule::Combined { key, salt } => {
            let Parts { header, iv, rest } = parts(job.esp, suite)?;
            let (data, bytes) = associated(header, high);
            return key.open_in_place(nonce(salt, iv)?, Aad::from(&data[..bytes]), rest).ok().map(drop);
        }
        Schedule::Cbc128 { auth, .. } | Schedule::Cbc256 { auth, .. } => auth,
    };
    let (authenticated, icv) = job.esp.split_at(payload_end);
    verify_slices_are_equal(&mac(auth, authenticated, high).as_ref()[..suite.icv_bytes()], icv).ok()?;
    let Parts { iv, rest, .. } = parts(&mut job.esp[..payload_end], suite)?;
    let (blocks, _) = InOutBuf::from(rest).into_chunks();
    let iv = Block::<Aes128>::from_slice(&iv[..AES_BLOCK_BYTES]);
    match schedule {
        Schedule::Cbc128 { cipher, .. } => {
            Decryptor::inner_iv_init((**cipher).clone(), iv).decrypt_blocks_inout_mut(blocks)
        }
        Schedule::Cbc256 { cipher, .. } => {
            Decryptor::inner_iv_init((**cipher).clone(), iv).decrypt_blocks_inout_mut(blocks)
        }
        Schedule::Combined { .. } => {}
    }
    Some(())
}
