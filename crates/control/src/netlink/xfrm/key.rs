//! Keys.

use std::fmt;

use zeroize::Zeroize;

/// The bytes of a key. They are zeroed when it is dropped, and `Debug` prints their number only.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(Box<[u8]>);

impl Key {
    /// Takes a copy of the bytes.
    pub fn new(bytes: &[u8]) -> Key {
        Key(bytes.into())
    }

    /// Returns the bytes; for RFC 4106, RFC 7634 and counter modes, the last ones are the salt or nonce.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns whether the kernel keeps the key to itself: a kernel that is locked down for confidentiality (Linux 5.11) shows zeros.
    pub fn is_withheld(&self) -> bool {
        !self.0.is_empty() && self.0.iter().all(|&byte| byte == 0)
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({} bytes)", self.0.len())
    }
}
