//! Messages in a row of bytes, as a socket or FRR gives them: each with its length in front, padded to four
//! bytes.

use netlink_packet_core::NetlinkBuffer;

use crate::netlink::message::DecodeError;

/// Length of the header of a message (`struct nlmsghdr`).
pub(crate) const HEADER_LENGTH: usize = 16;

/// A message: the fields of its header that we use, and what is behind the header.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// `RTM_NEWROUTE` and so on.
    pub kind: u16,
    /// `NLM_F_*`.
    pub flags: u16,
    /// The number of the request that it answers.
    pub sequence: u32,
    /// What is behind the header.
    pub payload: &'a [u8],
}

/// The messages that `bytes` consists of. After an error there is nothing more: where the next one begins is
/// unknown.
pub fn frames(bytes: &[u8]) -> impl Iterator<Item = Result<Frame<'_>, DecodeError>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let Ok(buffer) = NetlinkBuffer::new_checked(rest) else {
            rest = &[];
            return Some(Err(DecodeError::MessageLength));
        };
        let length = buffer.length() as usize;
        let frame = Frame {
            kind: buffer.message_type(),
            flags: buffer.flags(),
            sequence: buffer.sequence_number(),
            payload: &rest[HEADER_LENGTH..length],
        };
        // The last one may come without its padding.
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some(Ok(frame))
    })
}
