//! The bytes that sources put into their packets.

use graph::Context;
use graph::arguments::{Arguments, Raw};
use graph::{ConfigError, FromArgument};
use packet::Packet;

/// What Click's sources send unless told otherwise; kept, so that sums and prints of it agree.
const DEFAULT_DATA: &[u8] = b"Random bullshit in a packet, at least 64 bytes long. Well, now it is.";

/// The contents of a source's packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Payload {
    data: Vec<u8>,
    length: Option<usize>,
    bytes: Vec<u8>,
}

impl Payload {
    pub(super) fn new(data: Vec<u8>, length: Option<usize>) -> Self {
        let mut payload = Self { data, length, bytes: Vec::new() };
        payload.compose();
        payload
    }

    /// Reads DATA, the next positional argument.
    pub(super) fn data_argument(arguments: &mut Arguments) -> Result<Vec<u8>, ConfigError> {
        let data = arguments.optional::<Raw>("DATA")?;
        Ok(data.map_or_else(|| DEFAULT_DATA.to_vec(), |Raw(text)| graph::lang::unquote_bytes(&text)))
    }

    /// Reads LENGTH, and DATASIZE, its old name.
    pub(super) fn length_argument(arguments: &mut Arguments) -> Result<Option<usize>, ConfigError> {
        let length: i64 = arguments.keyword_or("LENGTH", -1)?;
        let length = arguments.keyword_or("DATASIZE", length)?;
        checked_length(length).map_err(ConfigError::from)
    }

    /// The data are cut to the length or repeated until they have it.
    fn compose(&mut self) {
        let length = self.length.unwrap_or(self.data.len());
        self.bytes.clear();
        if self.data.is_empty() {
            self.bytes.resize(length, 0);
        } else {
            self.bytes.extend(self.data.iter().cycle().take(length));
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The data before they were cut or repeated, as text.
    pub(super) fn data_text(&self) -> String {
        String::from_utf8_lossy(&self.data).into_owned()
    }

    /// The length asked for; -1 is that of the data.
    pub(super) fn length_text(&self) -> String {
        self.length.map_or_else(|| "-1".to_owned(), |length| length.to_string())
    }

    /// Takes other data, as they stand.
    pub(super) fn set_data(&mut self, cx: &mut Context, data: &str) -> Result<(), String> {
        self.replace(cx, Self::new(data.as_bytes().to_vec(), self.length))
    }

    /// Takes another length; negative is that of the data.
    pub(super) fn set_length(&mut self, cx: &mut Context, length: &str) -> Result<(), String> {
        let length = checked_length(i64::from_value(length)?)?;
        self.replace(cx, Self::new(self.data.clone(), length))
    }

    fn replace(&mut self, cx: &mut Context, new: Self) -> Result<(), String> {
        new.check(cx)?;
        *self = new;
        Ok(())
    }

    /// Whether a packet of this router holds the bytes.
    pub(super) fn check(&self, cx: &mut Context) -> Result<(), String> {
        let room = cx.pool().data_bytes();
        if self.bytes.len() > room {
            return Err(format!("{} bytes of data; a packet of this router holds {room}", self.bytes.len()));
        }
        Ok(())
    }

    /// Fills a fresh packet.
    #[inline]
    pub(super) fn fill(&self, packet: &mut Packet) {
        let fits = packet.set_data(&self.bytes);
        debug_assert!(fits, "the length was checked against the pool");
    }
}

fn checked_length(length: i64) -> Result<Option<usize>, String> {
    const LONGEST: i64 = 65_535;
    if length > LONGEST {
        return Err(format!("LENGTH: expected at most {LONGEST} bytes, got {length}"));
    }
    Ok(usize::try_from(length).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_are_cut_and_repeated() {
        let bytes = |data: &[u8], length| Payload::new(data.to_vec(), length).bytes;
        assert_eq!(bytes(b"abc", None), b"abc");
        assert_eq!(bytes(b"abc", Some(2)), b"ab");
        assert_eq!(bytes(b"abc", Some(7)), b"abcabca");
        assert_eq!(bytes(b"", Some(3)), [0, 0, 0]);
        assert_eq!(DEFAULT_DATA.len(), 69);
        assert!(checked_length(65_536).is_err());
    }
}
