//! The journal of systemd by its native protocol: a datagram an event, with a field a line. By hand as `notify` is: the crate for
//! it waits for the journal, and knows one path only.
//!
//! `JOURNAL_STREAM` says which standard error leads to the journal; there, text would be the same event a second time.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

use control::api::Level;
use serde_json::Value;

use super::Event;

/// Where the journal takes native messages (systemd-journald.service(8)).
const SOCKET: &str = "/run/systemd/journal/socket";

/// The journal, if it listens.
#[derive(Debug)]
pub(super) struct Journal {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Journal {
    /// Returns the journal that standard error leads to; `None` if it leads elsewhere.
    pub(super) fn of_standard_error() -> Option<Self> {
        let stream = std::env::var("JOURNAL_STREAM").ok()?;
        let stderr = File::from(std::io::stderr().as_fd().try_clone_to_owned().ok()?);
        let known = stderr.metadata().ok()?;
        (stream == format!("{}:{}", known.dev(), known.ino())).then(|| Self::at(SOCKET.into()))?.ok()
    }

    /// Returns the journal at this socket.
    fn at(path: PathBuf) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, path })
    }

    /// Sends an event, without waiting.
    ///
    /// # Errors
    /// The journal does not take it.
    pub(super) fn send(&self, event: &Event) -> io::Result<()> {
        self.socket.send_to(&encoded(event), &self.path).map(drop)
    }
}

/// An event in the journal's export format.
fn encoded(event: &Event) -> Vec<u8> {
    // Levels of syslog(3).
    let priority = match event.level {
        Level::Error => "3",
        Level::Warn => "4",
        Level::Info => "6",
        Level::Debug => "7",
    };
    let mut bytes = Vec::new();
    put(&mut bytes, "MESSAGE", &event.text);
    put(&mut bytes, "PRIORITY", priority);
    put(&mut bytes, "SYSLOG_IDENTIFIER", "brickway");
    for (name, value) in &event.fields {
        match value {
            Value::String(text) => put(&mut bytes, &name.to_ascii_uppercase(), text),
            other => put(&mut bytes, &name.to_ascii_uppercase(), &other.to_string()),
        }
    }
    bytes
}

/// A value of several lines has its length in front, in binary.
fn put(bytes: &mut Vec<u8>, name: &str, value: &str) {
    bytes.extend_from_slice(name.as_bytes());
    if value.contains('\n') {
        bytes.push(b'\n');
        bytes.extend_from_slice(&(value.len() as u64).to_le_bytes());
    } else {
        bytes.push(b'=');
    }
    bytes.extend_from_slice(value.as_bytes());
    bytes.push(b'\n');
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::super::{Collector, Log};
    use super::*;

    #[test]
    fn the_journal_gets_fields_of_its_own() {
        let path = std::env::temp_dir().join(format!("brickway-journal-{}", std::process::id()));
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let log = Arc::new(Log::new(Level::Info, Some(Journal::at(path.clone()).unwrap()), false));
        testbed::while_heard(Collector(log), || {
            tracing::warn!(
                event = "link",
                port = "eth1",
                reason = "no carrier",
                table = 254_u32,
                "eth1: link down"
            );
            tracing::error!("two\nlines");
        });
        let receive = || {
            let mut bytes = [0; 1_000];
            let length = socket.recv(&mut bytes).unwrap();
            bytes[..length].to_vec()
        };
        let first = String::from_utf8(receive()).unwrap();
        let mut lines: Vec<&str> = first.lines().collect();
        lines.sort_unstable();
        let expected = [
            "EVENT=link",
            "MESSAGE=eth1: link down",
            "PORT=eth1",
            "PRIORITY=4",
            "REASON=no carrier",
            "SYSLOG_IDENTIFIER=brickway",
            "TABLE=254",
        ];
        assert_eq!(lines, expected);
        let mut second = b"MESSAGE\n\x0b\0\0\0\0\0\0\0two\n  lines\n".to_vec();
        second.extend_from_slice(b"PRIORITY=3\nSYSLOG_IDENTIFIER=brickway\n");
        assert_eq!(receive(), second);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_journal_that_is_gone_or_full_refuses_at_once() {
        let event = Event {
            time: std::time::SystemTime::now(),
            level: Level::Info,
            text: "x".into(),
            fields: Default::default(),
        };
        assert!(Journal::at("/no/such/socket".into()).unwrap().send(&event).is_err());
        let path = std::env::temp_dir().join(format!("brickway-journal-full-{}", std::process::id()));
        let _socket = UnixDatagram::bind(&path).unwrap();
        let journal = Journal::at(path.clone()).unwrap();
        assert!((0..100_000).any(|_| journal.send(&event).is_err()), "nobody reads, and all is taken");
        std::fs::remove_file(path).unwrap();
    }
}
