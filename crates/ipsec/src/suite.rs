//! Which ciphers protect the packets of an association, and what they ask of a packet.

use std::fmt;

/// How packets are encrypted and authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protection {
    /// AES in Galois/Counter Mode with an ICV of 16 bytes (RFC 4106).
    AesGcm,
    /// ChaCha20 and Poly1305 (RFC 7634).
    ChaCha20Poly1305,
    /// AES-CBC (RFC 3602) with HMAC-SHA-1-96 (RFC 2404).
    AesCbcSha1,
    /// AES-CBC with HMAC-SHA-256-128 (RFC 4868).
    AesCbcSha256,
    /// AES-CBC with HMAC-SHA-512-256 (RFC 4868).
    AesCbcSha512,
}

/// A protection and the length of its cipher's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Suite {
    protection: Protection,
    key_bytes: u8,
}

/// Bytes of an AES block.
pub(crate) const AES_BLOCK_BYTES: usize = 16;
/// Bytes of the salt behind the key of AES-GCM and ChaCha20-Poly1305.
pub(crate) const SALT_BYTES: usize = 4;

impl Suite {
    /// All suites.
    pub const ALL: [Self; 9] = [
        Self { protection: Protection::AesGcm, key_bytes: 16 },
        Self { protection: Protection::AesGcm, key_bytes: 32 },
        Self { protection: Protection::ChaCha20Poly1305, key_bytes: 32 },
        Self { protection: Protection::AesCbcSha1, key_bytes: 16 },
        Self { protection: Protection::AesCbcSha1, key_bytes: 32 },
        Self { protection: Protection::AesCbcSha256, key_bytes: 16 },
        Self { protection: Protection::AesCbcSha256, key_bytes: 32 },
        Self { protection: Protection::AesCbcSha512, key_bytes: 16 },
        Self { protection: Protection::AesCbcSha512, key_bytes: 32 },
    ];

    /// Returns the suite of a protection with a cipher's key of so many bytes, without salt; `None` if there is none.
    pub fn new(protection: Protection, key_bytes: usize) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|suite| suite.protection == protection && suite.cipher_key_bytes() == key_bytes)
    }

    /// Returns how packets are protected.
    pub fn protection(self) -> Protection {
        self.protection
    }

    /// Returns the bytes of the cipher's key, without salt.
    pub fn cipher_key_bytes(self) -> usize {
        usize::from(self.key_bytes)
    }

    /// Returns the bytes of key material of the cipher: its key, and the salt behind it.
    pub fn key_material_bytes(self) -> usize {
        self.cipher_key_bytes() + if self.is_combined() { SALT_BYTES } else { 0 }
    }

    /// Returns the bytes of the authentication key that the RFCs ask for; 0 where the cipher authenticates by itself.
    pub fn auth_key_bytes(self) -> usize {
        match self.protection {
            Protection::AesGcm | Protection::ChaCha20Poly1305 => 0,
            Protection::AesCbcSha1 => 20,
            Protection::AesCbcSha256 => 32,
            Protection::AesCbcSha512 => 64,
        }
    }

    /// Returns the bytes of a block of the authentication's hash, which its key must not exceed.
    pub(crate) fn hash_block_bytes(self) -> usize {
        match self.protection {
            Protection::AesGcm | Protection::ChaCha20Poly1305 => 0,
            Protection::AesCbcSha1 | Protection::AesCbcSha256 => 64,
            Protection::AesCbcSha512 => 128,
        }
    }

    /// Whether the cipher authenticates by itself (AEAD).
    pub fn is_combined(self) -> bool {
        matches!(self.protection, Protection::AesGcm | Protection::ChaCha20Poly1305)
    }

    /// Returns the bytes of the IV in each packet.
    #[inline]
    pub fn iv_bytes(self) -> usize {
        if self.is_combined() { 8 } else { AES_BLOCK_BYTES }
    }

    /// Returns the bytes of the ICV at the end of each packet.
    #[inline]
    pub fn icv_bytes(self) -> usize {
        match self.protection {
            Protection::AesGcm | Protection::ChaCha20Poly1305 => 16,
            Protection::AesCbcSha1 => 12,
            Protection::AesCbcSha256 => 16,
            Protection::AesCbcSha512 => 32,
        }
    }

    /// Returns the number of bytes of which the encrypted part is a multiple.
    #[inline]
    pub fn alignment(self) -> usize {
        if self.is_combined() { 4 } else { AES_BLOCK_BYTES }
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.cipher_key_bytes() * 8;
        match self.protection {
            Protection::AesGcm => write!(f, "aes{bits}-gcm"),
            Protection::ChaCha20Poly1305 => f.write_str("chacha20-poly1305"),
            Protection::AesCbcSha1 => write!(f, "aes{bits}-cbc-sha1"),
            Protection::AesCbcSha256 => write!(f, "aes{bits}-cbc-sha256"),
            Protection::AesCbcSha512 => write!(f, "aes{bits}-cbc-sha512"),
        }
    }
}
