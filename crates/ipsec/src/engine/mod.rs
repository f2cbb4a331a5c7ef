//! Engines encrypt and decrypt packets, many at a time and in place.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `mod` | [`Engine`], [`Job`], [`Keys`], and which [`Backend`] works here |
//! | `multi_buffer` | intel-ipsec-mb, on x86-64: the fast one |
//! | `reference` | aws-lc-rs, everywhere: what the other one is compared with |
//!
//! [`Keys`] are made once an association, by the backend whose engines use them. A worker has an [`Engine`] of its own.

#[cfg(multi_buffer)]
mod multi_buffer;
mod reference;
#[cfg(test)]
mod tests;

use std::fmt;

use packet::Vectors;

use crate::suite::{AES_BLOCK_BYTES, Suite};

/// Bytes before the IV: SPI and sequence number.
pub(crate) const HEADER_BYTES: usize = 8;

/// A library that does the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// aws-lc-rs.
    Reference,
    /// intel-ipsec-mb.
    MultiBuffer(Level),
}

/// How much of the processor intel-ipsec-mb may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// All that it has.
    All,
    /// At most AVX2.
    Avx2,
    /// At most SSE 4 and AES-NI.
    Sse,
}

impl Backend {
    /// Returns the fastest that works here, with the vectors that may be used ([`Vectors::best`]).
    pub fn best() -> Self {
        let level = match Vectors::chosen() {
            #[cfg(target_arch = "x86_64")]
            Ok(Some(Vectors::Avx2)) => Level::Avx2,
            Ok(Some(Vectors::None)) => Level::Sse,
            _ => Level::All,
        };
        let fast = Self::MultiBuffer(level);
        if fast.engine().is_some() { fast } else { Self::Reference }
    }

    /// Returns an engine; `None` if the processor, or this build, has not what the backend needs.
    pub fn engine(self) -> Option<Box<dyn Engine>> {
        match self {
            Self::Reference => Some(Box::new(reference::Reference)),
            #[cfg(multi_buffer)]
            Self::MultiBuffer(level) => Some(Box::new(multi_buffer::MultiBuffer::new(level)?)),
            #[cfg(not(multi_buffer))]
            Self::MultiBuffer(_) => None,
        }
    }
}

/// Why keys cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The cipher's key has another length than the suite's.
    #[error("cipher key of {0} bytes; expected {1}")]
    CipherKey(usize, usize),
    /// The authentication key is empty, or longer than a block of its hash.
    #[error("authentication key of {0} bytes; expected 1 to {1}")]
    AuthKey(usize, usize),
    /// The backend does not work here.
    #[error("the processor lacks what the cipher library needs")]
    Backend,
}

/// The keys of an association, ready for use. They are zeroed when they go, and never printed.
pub struct Keys {
    suite: Suite,
    shape: Shape,
    schedule: Schedule,
}

/// What a suite asks of packets, looked up once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Bytes of the IV.
    pub(crate) iv: usize,
    /// Bytes of the ICV.
    pub(crate) icv: usize,
    /// The number of bytes of which the payload is a multiple, less one.
    pub(crate) mask: usize,
}

enum Schedule {
    Reference(Box<reference::Schedule>),
    #[cfg(multi_buffer)]
    MultiBuffer(multi_buffer::Schedule),
}

impl Keys {
    /// Prepares keys. `cipher` is the cipher's key, with the salt behind it for suites that have one; `auth` is the authentication's,
    /// empty for ciphers that authenticate by themselves.
    ///
    /// # Errors
    ///
    /// A key has a wrong length, or the backend does not work here.
    pub fn new(suite: Suite, cipher: &[u8], auth: &[u8], backend: Backend) -> Result<Self, KeyError> {
        if cipher.len() != suite.key_material_bytes() {
            return Err(KeyError::CipherKey(cipher.len(), suite.key_material_bytes()));
        }
        let most = suite.hash_block_bytes();
        if auth.len() > most || auth.is_empty() != (most == 0) {
            return Err(KeyError::AuthKey(auth.len(), most));
        }
        let schedule = match backend {
            Backend::Reference => {
                Schedule::Reference(Box::new(reference::Schedule::new(suite, cipher, auth)))
            }
            #[cfg(multi_buffer)]
            Backend::MultiBuffer(level) => Schedule::MultiBuffer(
                multi_buffer::Schedule::new(suite, cipher, auth, level).ok_or(KeyError::Backend)?,
            ),
            #[cfg(not(multi_buffer))]
            Backend::MultiBuffer(_) => return Err(KeyError::Backend),
        };
        let shape = Shape { iv: suite.iv_bytes(), icv: suite.icv_bytes(), mask: suite.alignment() - 1 };
        Ok(Self { suite, shape, schedule })
    }

    /// Returns the suite that they are for.
    #[inline]
    pub fn suite(&self) -> Suite {
        self.suite
    }

    /// Returns what the suite asks of packets.
    #[inline(always)]
    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({})", self.suite)
    }
}

/// A packet to be sealed or opened.
#[derive(Debug)]
pub struct Job<'a> {
    /// Keys of the engine's own backend.
    pub keys: &'a Keys,
    /// From the SPI to the end of the ICV: header, IV, payload with its trailer, ICV. The payload is a multiple of the suite's
    /// [alignment](Suite::alignment), and not empty. To be sealed, the place of the IV holds a number that no other packet of the
    /// association has: AES-GCM and ChaCha20-Poly1305 take it as IV, AES-CBC makes one of it that nobody can predict.
    pub esp: &'a mut [u8],
    /// The upper half of an extended sequence number (RFC 4303, section 2.2.1), if the association has these.
    pub sequence_high: Option<u32>,
    /// Whether the work succeeded; of an opened packet, whether its ICV is right. Payloads of others are rubbish.
    pub is_right: bool,
}

impl<'a> Job<'a> {
    /// Makes one that is not done yet.
    #[inline]
    pub fn new(keys: &'a Keys, esp: &'a mut [u8], sequence_high: Option<u32>) -> Self {
        Self { keys, esp, sequence_high, is_right: false }
    }

    /// Whether the lengths are as the engines need them.
    #[inline]
    fn is_whole(&self) -> bool {
        let Shape { iv, icv, mask } = self.keys.shape();
        let around = HEADER_BYTES + iv + icv;
        // Modes without blocks take any length.
        let blocks = if iv == AES_BLOCK_BYTES { mask } else { 0 };
        self.esp.len() > around && (self.esp.len() - around) & blocks == 0
    }
}

/// Encrypts and decrypts packets in place. Every worker has one of its own.
pub trait Engine: Send {
    /// Returns its name and what of the processor it uses, for people.
    fn name(&self) -> String;

    /// Encrypts the payloads and writes IVs and ICVs.
    fn seal(&mut self, jobs: &mut [Job<'_>]);

    /// Compares the ICVs, without letting the time tell where one differs, and decrypts the payloads.
    fn open(&mut self, jobs: &mut [Job<'_>]);
}
