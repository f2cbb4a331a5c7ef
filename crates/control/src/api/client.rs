//! The client's side of the control socket.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::place::{is_elsewhere, process_at, reading_path};
use super::request::{Request, VERSION};

/// The longest time without a byte from the router before it is taken for hung.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why there is no answer, or only part of one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// Nobody listens.
    #[error(
        "no router answers at '{}'; is one running? ('brickway run', or --socket if it has another socket)",
        .0.display()
    )]
    NotRunning(PathBuf),
    /// The file does not allow it.
    #[error("not permitted to use '{}'; run as root, or as a member of the write_group of [control], to look also of its read_group", .0.display())]
    NotPermitted(PathBuf),
    /// The router says why not.
    #[error("{0}")]
    Refused(String),
    /// The router names options that cannot change while it runs, and has changed nothing.
    #[error("{0}")]
    NeedsRestart(String),
    /// It speaks another version of the protocol.
    #[error(
        "the router speaks version {0} of the protocol, this program version {VERSION}; use the program that it runs"
    )]
    OtherVersion(u32),
    /// The answer ended in the middle, or is not one.
    #[error("the router's answer is broken after {rows} rows: {problem}")]
    Broken {
        /// Rows that came.
        rows: u64,
        /// What is wrong.
        problem: String,
    },
}

/// A connection to a running router.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
}

impl Client {
    /// Connects to the router whose socket is at `path`.
    ///
    /// # Errors
    /// [`ClientError::NotRunning`], [`ClientError::NotPermitted`].
    pub fn connect(path: &Path) -> Result<Self, ClientError> {
        Self::at(path)
    }

    /// As [`Client::connect`], for who only wants to be shown something: the socket for that will do.
    ///
    /// # Errors
    /// As there.
    pub fn connect_to_show(path: &Path) -> Result<Self, ClientError> {
        match Self::at(path) {
            Err(ClientError::NotPermitted(_)) => {
                Self::at(&reading_path(path)).map_err(|_| ClientError::NotPermitted(path.to_owned()))
            }
            other => other,
        }
    }

    /// The router's process, if it runs in another network namespace than this thread and may be looked at.
    pub fn is_elsewhere(&self) -> Option<i32> {
        is_elsewhere(self.stream.get_ref())
    }

    /// The router's process.
    pub fn process(&self) -> Option<i32> {
        process_at(self.stream.get_ref())
    }

    fn at(path: &Path) -> Result<Self, ClientError> {
        let stream = UnixStream::connect(path).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => ClientError::NotPermitted(path.to_owned()),
            _ => ClientError::NotRunning(path.to_owned()),
        })?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(|error| broken(0, &error.to_string()))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Asks, and waits for the head of the answer; the rows follow as they come.
    ///
    /// # Errors
    /// [`ClientError::Refused`] and what can go wrong on the way.
    pub fn ask(&mut self, request: &Request) -> Result<Answer<'_>, ClientError> {
        // A router that has no time for us says so at once and closes, which makes writing fail; what it said
        // is read.
        let sent = self.stream.get_mut().write_all(request.to_line().as_bytes());
        let mut answer = Answer { stream: &mut self.stream, line: String::new(), rows: 0, is_over: false };
        if !answer.read_line()? {
            let problem = sent.err().map_or_else(|| "it closed the connection".to_owned(), |e| e.to_string());
            return Err(broken(0, &problem));
        }
        match answer.parse()? {
            Line { ok: Some(_), version: Some(VERSION), .. } => Ok(answer),
            Line { version: Some(version), .. } if version != VERSION => {
                Err(ClientError::OtherVersion(version))
            }
            Line { error: Some(error), needs_restart: Some(_), .. } => Err(ClientError::NeedsRestart(error)),
            Line { error: Some(error), .. } => Err(ClientError::Refused(error)),
            _ => Err(broken(0, &format!("it begins with {}", answer.line.trim_end()))),
        }
    }
}

fn broken(rows: u64, problem: &str) -> ClientError {
    ClientError::Broken { rows, problem: problem.to_owned() }
}

/// A line of an answer: of the fields one is there, and the version with the first two.
#[derive(Deserialize)]
struct Line<'a> {
    version: Option<u32>,
    ok: Option<String>,
    error: Option<String>,
    needs_restart: Option<Vec<String>>,
    #[serde(borrow)]
    row: Option<&'a RawValue>,
    end: Option<u64>,
}

/// The rows of an answer, each as its JSON text.
#[derive(Debug)]
pub struct Answer<'a> {
    stream: &'a mut BufReader<UnixStream>,
    line: String,
    rows: u64,
    is_over: bool,
}

impl Answer<'_> {
    /// Whether there was a line.
    fn read_line(&mut self) -> Result<bool, ClientError> {
        self.line.clear();
        match self.stream.read_line(&mut self.line) {
            Ok(0) => Ok(false),
            Ok(_) if self.line.ends_with('\n') => Ok(true),
            Ok(_) => Err(broken(self.rows, "a line has no end")),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(broken(self.rows, &format!("nothing came for {} s", PATIENCE.as_secs())))
            }
            Err(error) => Err(broken(self.rows, &error.to_string())),
        }
    }

    fn parse(&self) -> Result<Line<'_>, ClientError> {
        serde_json::from_str(&self.line).map_err(|error| broken(self.rows, &error.to_string()))
    }

    fn next_row(&mut self) -> Result<Option<String>, ClientError> {
        if !self.read_line()? {
            return Err(broken(self.rows, "it ended early"));
        }
        match self.parse()? {
            Line { row: Some(row), .. } => {
                let row = row.get().to_owned();
                self.rows += 1;
                Ok(Some(row))
            }
            Line { end: Some(rows), .. } if rows == self.rows => Ok(None),
            Line { end: Some(rows), .. } => Err(broken(self.rows, &format!("{rows} were sent"))),
            Line { error: Some(error), .. } => Err(ClientError::Refused(error)),
            _ => Err(broken(self.rows, &format!("what is {}", self.line.trim_end()))),
        }
    }
}

impl Iterator for Answer<'_> {
    type Item = Result<String, ClientError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let next = self.next_row().transpose();
        self.is_over = !matches!(next, Some(Ok(_)));
        next
    }
}
