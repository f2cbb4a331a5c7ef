//! The tag that every hello ends with: HMAC-SHA-256 (RFC 2104, RFC 4231) of all bytes before it.

use std::fmt;

use aws_lc_rs::hmac;

/// The keys of a cluster's hellos. Hellos are tagged with the first and believed with any of them, so that all nodes can change
/// to another key one after the other.
#[derive(Clone)]
pub struct Keys(Vec<hmac::Key>);

impl Keys {
    /// Length of a key in bytes.
    pub const KEY_LEN: usize = 32;
    /// Length of a tag in bytes.
    pub(crate) const TAG_LEN: usize = 32;

    /// Keys from their bytes, the one for sending first.
    pub fn new(keys: &[[u8; Self::KEY_LEN]]) -> Keys {
        Keys(keys.iter().map(|key| hmac::Key::new(hmac::HMAC_SHA256, key)).collect())
    }

    /// A key that everybody knows, for a cluster without one: tags prove nothing.
    pub fn public() -> Keys {
        Keys::new(&[[0; Self::KEY_LEN]])
    }

    /// Returns a secret that all nodes have in common whose first key is the same; another one for each `purpose`.
    pub fn secret(&self, purpose: &str) -> [u8; 16] {
        let tag = self.0.first().map(|key| hmac::sign(key, purpose.as_bytes()));
        tag.and_then(|tag| tag.as_ref().first_chunk().copied()).unwrap_or_default()
    }

    /// Appends the tag of all `bytes`.
    pub(crate) fn seal(&self, bytes: &mut Vec<u8>) {
        // Without any key the tag is one that nobody believes.
        let tag = self.0.first().map(|key| hmac::sign(key, bytes));
        bytes.extend(tag.as_ref().map_or(&[0; Self::TAG_LEN][..], AsRef::as_ref));
    }

    /// Returns whether the tag of `bytes` was made with one of the keys.
    pub(crate) fn are_of(&self, bytes: &[u8], tag: &[u8]) -> bool {
        self.0.iter().any(|key| hmac::verify(key, bytes, tag).is_ok())
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keys", self.0.len())
    }
}
