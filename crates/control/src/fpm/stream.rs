//! From a stream of bytes to changes. What does not fit ends the stream: after a wrong length nobody knows
//! where the next message begins, and to guess would make routes of noise.

use crate::change::{Change, Hops, ObjectKind};
use crate::netlink::{DecodeError, Decoded, Reasons, decode, frames};

/// Version, type, length.
const HEADER: usize = 4;
const VERSION: u8 = 1;
/// The other one is 2, Google's protocol buffers.
const TYPE_NETLINK: u8 = 1;

/// A message is at most as long as its length says, which has 16 bits. Some fit at once.
const BUFFER: usize = 256 << 10;

/// Most paths of a route or next-hop group: zebra can be built for 999 (`--enable-multipath`). A message has room for 8,000, which
/// would take more memory here than they took there.
const MOST_PATHS: usize = 1_000;

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndReason {
    /// The peer closed it between two messages.
    Closed,
    /// The peer closed it inside a message.
    ClosedInside,
    /// A message of another version than 1.
    Version(u8),
    /// A message that is not of netlink: zebra's older module (`fpm`) can send others.
    Kind(u8),
    /// A length that has no room for a message of netlink.
    Length(u16),
    /// A message of netlink that is not understood.
    Message(DecodeError),
    /// A route or group of so many paths, which zebra does not send.
    Paths(usize),
    /// A newer connection took its place.
    Replaced,
    /// The system's error.
    Io(std::io::ErrorKind),
}

impl EndReason {
    /// The name that it is counted under.
    pub fn name(self) -> &'static str {
        match self {
            EndReason::Closed => "closed by the peer",
            EndReason::ClosedInside => "closed by the peer inside a message",
            EndReason::Version(_) => "unknown version",
            EndReason::Kind(_) => "messages other than netlink",
            EndReason::Length(_) => "wrong length",
            EndReason::Message(error) => error.reason(),
            EndReason::Paths(_) => "too many paths",
            EndReason::Replaced => "replaced by a newer connection",
            EndReason::Io(_) => "error of the system",
        }
    }
}

impl std::fmt::Display for EndReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            EndReason::Closed | EndReason::ClosedInside | EndReason::Replaced => f.write_str(self.name()),
            EndReason::Version(version) => write!(f, "FPM version {version}, where 1 is known"),
            EndReason::Kind(kind) => write!(f, "FPM message type {kind}, where 1 (netlink) is known"),
            EndReason::Length(length) => write!(f, "FPM message of {length} bytes, where 20 are the least"),
            EndReason::Message(error) => write!(f, "netlink message in FPM: {error}"),
            EndReason::Paths(paths) => {
                write!(f, "{paths} paths in one route or group, where {MOST_PATHS} are the most")
            }
            EndReason::Io(kind) => write!(f, "{kind}"),
        }
    }
}

/// The bytes of one connection.
pub struct Stream {
    buffer: Vec<u8>,
    /// What was received and not yet understood.
    begin: usize,
    end: usize,
    /// Messages of netlink.
    pub messages: u64,
    /// Routes and next-hop objects with labels or another encapsulation.
    pub encapsulated: u64,
    /// Messages that do not concern us, by reason.
    pub ignored: Reasons,
}

impl Default for Stream {
    fn default() -> Stream {
        let buffer = vec![0; BUFFER];
        Stream { buffer, begin: 0, end: 0, messages: 0, encapsulated: 0, ignored: Reasons::default() }
    }
}

impl Stream {
    /// Room for more bytes, never empty.
    pub fn room(&mut self) -> &mut [u8] {
        // What is left is less than a message.
        self.buffer.copy_within(self.begin..self.end, 0);
        (self.begin, self.end) = (0, self.end - self.begin);
        &mut self.buffer[self.end..]
    }

    /// So many bytes were written to the room: tells what they say.
    pub fn received(&mut self, length: usize, sink: &mut dyn FnMut(Change)) -> Result<(), EndReason> {
        self.end = self.buffer.len().min(self.end + length);
        while let Some(&[version, kind, high, low]) =
            self.buffer[self.begin..self.end].first_chunk::<HEADER>()
        {
            let length = u16::from_be_bytes([high, low]);
            if version != VERSION {
                return Err(EndReason::Version(version));
            }
            if kind != TYPE_NETLINK {
                return Err(EndReason::Kind(kind));
            }
            if usize::from(length) < HEADER + crate::netlink::HEADER_LENGTH {
                return Err(EndReason::Length(length));
            }
            let Some(message) = self.buffer[self.begin..self.end].get(HEADER..usize::from(length)) else {
                break;
            };
            for frame in frames(message) {
                let decoded = frame.and_then(|frame| decode(&frame)).map_err(EndReason::Message)?;
                self.messages += 1;
                match decoded {
                    Decoded::Change(change) => {
                        let paths = paths(&change);
                        if paths > MOST_PATHS {
                            return Err(EndReason::Paths(paths));
                        }
                        self.encapsulated += u64::from(has_encapsulation(&change));
                        sink(change);
                    }
                    Decoded::RouteGone(route) => sink(Change::RouteGone(route.key)),
                    Decoded::NotForUs(reason) => self.ignored.count(reason),
                }
            }
            self.begin += usize::from(length);
        }
        Ok(())
    }

    /// Whether a part of a message is there.
    pub fn is_inside(&self) -> bool {
        self.begin < self.end
    }

    /// The next bytes are those of another connection.
    pub fn start_over(&mut self) {
        (self.begin, self.end) = (0, 0);
    }
}

/// How many paths the change brings.
fn paths(change: &Change) -> usize {
    match change {
        Change::Route(route) => match &route.hops {
            Hops::Paths(paths) => paths.len(),
            Hops::None | Hops::Object(_) => 0,
        },
        Change::Object(object) => match &object.kind {
            ObjectKind::Group(members) => members.len(),
            _ => 0,
        },
        _ => 0,
    }
}

fn has_encapsulation(change: &Change) -> bool {
    match change {
        Change::Route(route) => match &route.hops {
            Hops::Paths(paths) => paths.iter().any(|path| path.has_encapsulation),
            Hops::None | Hops::Object(_) => false,
        },
        Change::Object(object) => matches!(object.kind, ObjectKind::Path(path) if path.has_encapsulation),
        _ => false,
    }
}
