//! Messages between clients and the host. Behind the greeting ([`super::guard`]) come frames of four bytes of length (big end first), a
//! message in postcard's format, and the message's tag. A side that receives anything else closes the connection.

use std::io;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::super::{Entry, Event, Failure, MOST_OPERATIONS, Operation};
use super::guard::Seal;
use crate::bounded::at_most;

/// Longest message: a commit or a value of the largest size with what belongs to it, or a page.
const MOST_FRAME: u32 = 4 << 20;

/// Bytes of keys and values after which a page, or a message with events, is full. With one more commit it fits into a frame.
pub(super) const PAGE_BYTES: usize = 1 << 20;

/// Silence after which a connection is dead.
pub(super) const SILENCE: Duration = Duration::from_secs(5);

/// Time between messages of a client that has nothing to say.
pub(super) const PING: Duration = Duration::from_secs(1);

/// From a client.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    /// Comes back in the answers.
    pub(super) id: u64,
    pub(super) body: Question,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Question {
    Ping,
    Get(String),
    List(String),
    Commit {
        guard: Option<(String, i64)>,
        #[serde(deserialize_with = "at_most::<_, _, MOST_OPERATIONS>")]
        operations: Vec<Operation>,
    },
    Grant {
        ttl: Duration,
    },
    Renew(i64),
    Revoke(i64),
    Take {
        session: i64,
        key: String,
        value: serde_bytes::ByteBuf,
    },
    Compact(i64),
    Follow {
        prefix: String,
        after: i64,
    },
    /// No more events for the request with this number.
    Leave(u64),
}

/// From the host.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Response {
    pub(super) id: u64,
    pub(super) body: Answer,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Done,
    Entry(Option<Entry>),
    Page {
        entries: Vec<Entry>,
        revision: i64,
        last: bool,
    },
    Revision(i64),
    Session {
        id: i64,
        ttl: Duration,
    },
    Taken(Option<i64>),
    /// More of the last one's revision follow unless `complete`.
    Events {
        events: Vec<Event>,
        complete: bool,
    },
    Lost(String),
    Fenced,
    SessionEnded,
    Compacted,
    Refused(String),
}

impl Answer {
    /// Whether others follow with the same number.
    pub(super) fn goes_on(&self) -> bool {
        matches!(self, Answer::Page { last: false, .. } | Answer::Events { .. })
    }
}

impl From<Failure> for Answer {
    fn from(failure: Failure) -> Answer {
        match failure {
            Failure::Fenced => Answer::Fenced,
            Failure::SessionEnded => Answer::SessionEnded,
            Failure::Compacted => Answer::Compacted,
            Failure::Refused(reason) | Failure::Away { reason, .. } => Answer::Refused(reason),
        }
    }
}

/// The message of a frame's bytes.
pub(super) fn decode<T: DeserializeOwned>(body: &[u8]) -> io::Result<T> {
    match postcard::take_from_bytes(body) {
        Ok((message, [])) => Ok(message),
        Ok((_, rest)) => Err(invalid(format!("{} bytes behind a message", rest.len()))),
        Err(error) => Err(invalid(format!("not a message: {error}"))),
    }
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// The next message; an error after [`SILENCE`].
pub(super) async fn receive<T: DeserializeOwned>(
    reader: &mut (impl AsyncRead + Unpin),
    seal: &mut Seal,
) -> io::Result<T> {
    let frame = async {
        let length = reader.read_u32().await?;
        if length > MOST_FRAME {
            return Err(invalid(format!("a message of {length} bytes")));
        }
        let mut frame = length.to_be_bytes().to_vec();
        // Memory is taken for what comes, not for what was announced.
        let size = u64::from(length) + seal.length() as u64;
        if reader.take(size).read_to_end(&mut frame).await? as u64 != size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(frame)
    };
    let frame = timeout(SILENCE, frame).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    let (sealed, tag) = frame.split_at(frame.len() - seal.length());
    match seal.fits(sealed, tag) {
        true => decode(&sealed[4..]),
        false => Err(invalid("a message with a wrong tag".to_owned())),
    }
}

/// Sends a message; an error if the other side takes nothing for [`SILENCE`].
pub(super) async fn send(
    writer: &mut (impl AsyncWrite + Unpin),
    seal: &mut Seal,
    message: &impl Serialize,
) -> io::Result<()> {
    let mut frame = postcard::to_extend(message, vec![0; 4]).map_err(io::Error::other)?;
    let length = (frame.len() - 4) as u32;
    frame[..4].copy_from_slice(&length.to_be_bytes());
    seal.seal(&mut frame);
    timeout(SILENCE, writer.write_all(&frame)).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}
