//! Who may speak on a connection: both sides prove that they have the cluster's key, then every message carries a tag.
//!
//! ```text
//!  both      greeting, version; 1 if there is a key; 32 random bytes
//!  client    HMAC("client proof", both hellos)      a stranger hears nothing more
//!  host      HMAC("host proof", both hellos)
//!  both      messages, each with HMAC(its number in this direction, its length, its bytes)
//! ```
//!
//! Each direction of each connection has a tag key of its own, made of both sides' random bytes. So a message of another connection, of
//! the other direction or from earlier in the same one has a wrong tag, as has the message behind a missing one. Messages are not
//! encrypted. Without a key file (`insecure = true`) there are neither proofs nor tags.

use packet::sync::lock;
use std::io;
use std::path::Path;
use std::sync::Mutex;

use aws_lc_rs::hmac;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::cluster::key::{Key, KeyFile, random};

/// Whom one speaks with, and the version of the messages.
const GREETING: &[u8; 16] = b"brickway store 2";

/// Where a hello says whether its sender has a key.
const HAS_KEY: usize = GREETING.len();

/// Bytes of a hello.
const HELLO: usize = HAS_KEY + 1 + 32;

/// Bytes of a proof and of a tag.
pub(super) const TAG: usize = 32;

/// One of the two sides of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Host,
}

impl Side {
    fn other(self) -> Side {
        match self {
            Side::Client => Side::Host,
            Side::Host => Side::Client,
        }
    }

    /// What this side authenticates for `purpose` on the connection of these hellos.
    fn text(self, purpose: &str, hellos: &[u8]) -> Vec<u8> {
        let side: &[u8] = if self == Side::Client { b"client " } else { b"host " };
        [side, purpose.as_bytes(), hellos].concat()
    }
}

fn of_store(key: &Key) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, &key.derive("store"))
}

/// The tags of one direction of a connection.
pub(super) struct Seal {
    /// `None` where there is no key.
    key: Option<hmac::Key>,
    /// The number of the next message.
    next: u64,
}

impl Seal {
    /// Of a direction without tags.
    pub(super) fn open() -> Seal {
        Seal { key: None, next: 0 }
    }

    fn of(side: Side, key: &Key, hellos: &[u8]) -> Seal {
        let secret = hmac::sign(&of_store(key), &side.text("messages", hellos));
        Seal { key: Some(hmac::Key::new(hmac::HMAC_SHA256, secret.as_ref())), next: 0 }
    }

    /// Returns how long a tag is.
    pub(super) fn length(&self) -> usize {
        if self.key.is_some() { TAG } else { 0 }
    }

    /// Appends the tag of the next message to a frame.
    pub(super) fn seal(&mut self, frame: &mut Vec<u8>) {
        if let Some(key) = &self.key {
            let mut tag = hmac::Context::with_key(key);
            tag.update(&self.next.to_be_bytes());
            tag.update(frame);
            self.next += 1;
            frame.extend_from_slice(tag.sign().as_ref());
        }
    }

    /// Returns whether this is the tag of the next message. Takes the same time whatever the tag is.
    pub(super) fn fits(&mut self, frame: &[u8], tag: &[u8]) -> bool {
        let Some(key) = &self.key else { return tag.is_empty() };
        let numbered = [&self.next.to_be_bytes(), frame].concat();
        self.next += 1;
        hmac::verify(key, &numbered, tag).is_ok()
    }
}

fn denied(text: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, text)
}

/// The keys of one side, where there are any.
#[derive(Debug)]
pub(super) struct StoreKeys(Option<Mutex<KeyFile>>);

impl StoreKeys {
    /// Reads the key file.
    pub(super) fn open(file: Option<&Path>) -> io::Result<Self> {
        let load = |file| KeyFile::load(file).map_err(|error| io::Error::other(error.to_string()));
        Ok(Self(file.map(load).transpose()?.map(Mutex::new)))
    }

    /// Returns those in force for a new connection. A file that was written since is read again; if it is wrong, the keys of before
    /// stay, as they do for hellos, and the node reports it there.
    pub(super) fn current(&self) -> Option<KeyFile> {
        let mut file = lock(self.0.as_ref()?);
        let _ = file.refresh();
        Some(file.clone())
    }
}

/// Exchanges hellos and proofs. Returns what seals messages to the other side, and what checks messages from there.
///
/// # Errors
///
/// The other side is a stranger, or takes this one for a stranger.
pub(super) async fn greet(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    side: Side,
    keys: Option<&KeyFile>,
) -> io::Result<(Seal, Seal)> {
    let mut own = [0; HELLO];
    own[..HAS_KEY].copy_from_slice(GREETING);
    own[HAS_KEY] = keys.is_some().into();
    own[HAS_KEY + 1..].copy_from_slice(&random()?);
    stream.write_all(&own).await?;
    let mut other = [0; HELLO];
    stream.read_exact(&mut other).await?;
    if other[..HAS_KEY] != *GREETING {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "what answers is not a store of this version",
        ));
    }
    if other[HAS_KEY] != own[HAS_KEY] {
        return Err(match keys {
            Some(_) => denied("the other side has no key; expected [security] key_file in its file"),
            None => denied("the other side wants a key; expected [security] key_file in this node's file"),
        });
    }
    let Some(keys) = keys else { return Ok((Seal::open(), Seal::open())) };
    let hellos = if side == Side::Client { [own, other] } else { [other, own] }.concat();
    let proof = hmac::sign(&of_store(keys.first()), &side.text("proof", &hellos));
    // A host proves nothing to strangers.
    if side == Side::Client {
        stream.write_all(proof.as_ref()).await?;
    }
    let mut answer = [0; TAG];
    stream.read_exact(&mut answer).await.map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => denied("the other side does not accept this node's key"),
        _ => error,
    })?;
    let text = side.other().text("proof", &hellos);
    let is_proven = |key: &&Key| hmac::verify(&of_store(key), &text, &answer).is_ok();
    let Some(theirs) = keys.keys().iter().find(is_proven) else {
        return Err(denied("the other side has another key than this node's key file"));
    };
    if side == Side::Host {
        stream.write_all(proof.as_ref()).await?;
    }
    Ok((Seal::of(side, keys.first(), &hellos), Seal::of(side.other(), theirs, &hellos)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seal(side: Side, hellos: &[u8]) -> Seal {
        Seal::of(side, &Key::from_hex(&"1f".repeat(32)).unwrap(), hellos)
    }

    #[test]
    fn a_message_fits_once_in_its_place_its_direction_and_its_connection() {
        let mut sender = seal(Side::Client, b"these");
        let sealed: Vec<(Vec<u8>, Vec<u8>)> = [b"one", b"two"]
            .map(|frame| {
                let mut sealed = frame.to_vec();
                sender.seal(&mut sealed);
                (frame.to_vec(), sealed[frame.len()..].to_vec())
            })
            .into();
        let [(one, tag1), (two, tag2)] = &sealed[..] else { unreachable!() };
        let receiver = || seal(Side::Client, b"these");
        let mut right = receiver();
        assert!(right.fits(one, tag1) && right.fits(two, tag2));
        assert!(!right.fits(two, tag2), "again");
        assert!(!receiver().fits(two, tag2), "the one before is missing");
        assert!(!receiver().fits(two, tag1), "other bytes");
        assert!(!receiver().fits(one, &tag1[..16]), "half a tag");
        assert!(!receiver().fits(one, &[]), "no tag");
        assert!(!seal(Side::Host, b"these").fits(one, tag1), "the other direction");
        assert!(!seal(Side::Client, b"those").fits(one, tag1), "another connection");
        assert!(Seal::open().fits(one, &[]) && !Seal::open().fits(one, tag1));
    }
}
