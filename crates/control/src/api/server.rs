//! The server of the control socket: a thread that accepts, and one for each of a few connections.
//!
//! Nothing that a client does reaches the packets or takes memory without bound: connections are few, a line
//! has a longest length and a time in which it has to be complete, and a client that does not read its answer
//! is cut off.
//!
//! # The files
//!
//! A router that was killed leaves its socket's file. Nobody accepts there any more, so connecting is
//! refused, and the file is replaced. If somebody does accept, another router is running. Access is by the
//! file's mode, 0660, which is set before the socket listens, so that there is no moment in which others can
//! connect. The kernel then compares all groups of the client with the file's.
//!
//! Those who may only look have a socket of their own beside it ([`reading_path`]), with connections of its own, so that they
//! keep nobody out who may do more.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{FlockOperation, Mode};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::Gid;
use serde::Serialize;

use super::asker::{log_begin, log_end, log_intrusion};
use super::place::{make_folder, reading_path, sweep};
use super::request::{Request, Show, VERSION};
use super::rows::Row;
use crate::accounts;
use crate::doors::{self, Peer};
use crate::supervisor::{LONGEST_WAIT, Pulse, Supervisor};

/// Connections at a time, of each socket, of which each user has a share. Clients come, ask and go.
const CONNECTIONS: usize = 16;
/// Longest request, in bytes; the longest are values for handlers.
const LONGEST_LINE: usize = 1 << 20;
/// Bytes of rows that are sent at once.
const BUFFER: usize = 16 << 10;

/// Where to listen, and for whom.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// The socket's path.
    pub path: PathBuf,
    /// The group that may show and change everything, by name or number; without one root alone.
    pub write_group: Option<String>,
    /// The group that may show everything, and change nothing: it gets a socket of its own, at [`reading_path`].
    pub read_group: Option<String>,
    /// The time in which a request has to come, counted from the connection or the last answer.
    pub patience: Duration,
    /// The time in which a client has to take what was sent.
    pub send_timeout: Duration,
    /// Who watches the thread that accepts.
    pub supervisor: Supervisor,
}

impl ServerOptions {
    /// The usual times at this path.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let (patience, send_timeout) = (Duration::from_secs(30), Duration::from_secs(10));
        let supervisor = Supervisor::default();
        Self { path: path.into(), write_group: None, read_group: None, patience, send_timeout, supervisor }
    }
}

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// Somebody answers there.
    #[error(
        "a router is running: it answers at '{}' ({process}); stop it, or give this one another socket",
        path.display()
    )]
    Running {
        /// The socket.
        path: PathBuf,
        /// `process NUMBER`.
        process: String,
    },
    /// There is a file that is not a socket.
    #[error("'{}' is not a socket; remove it, or give the router another path for its socket", .0.display())]
    NoSocket(PathBuf),
    /// No such group.
    #[error("there is no group '{0}' in /etc/group; its number will do too")]
    NoGroup(String),
    /// The system refused.
    #[error("the control socket '{}' cannot be made: {action}: {error}", path.display())]
    System {
        /// The socket.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What it said.
        error: io::Error,
    },
}

/// Why a request has no answer, or only part of one.
#[derive(Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// The client is gone, or takes nothing.
    ClientGone,
    /// The reason, which the client gets: what is wrong, and what was expected.
    Refused(String),
    /// Options of the settings file that cannot change while the router runs; nothing was changed.
    NeedsRestart(Vec<String>),
}

impl std::fmt::Display for Unanswered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::ClientGone => f.write_str("the client is gone"),
            Self::Refused(reason) => f.write_str(reason),
            Self::NeedsRestart(options) => write!(
                f,
                "nothing was changed: {} cannot change while the router runs; restart it",
                options.join(", ")
            ),
        }
    }
}

impl From<String> for Unanswered {
    fn from(reason: String) -> Self {
        Self::Refused(reason)
    }
}

impl From<&str> for Unanswered {
    fn from(reason: &str) -> Self {
        Self::Refused(reason.to_owned())
    }
}

/// What the server asks: the router.
pub trait Backend: Send + Sync + 'static {
    /// Answers a request with rows of the kind that [`Show`](super::Show) and [`Action`](super::Action) name.
    /// The filter need not be applied, but a table with many rows saves work by doing so.
    ///
    /// It is called by a thread of the server, several at a time. [`Rows::send`] may take seconds when the
    /// client is slow, so no lock may be held, and no thread kept waiting, across it: collect some hundred
    /// rows, let go, send them, and go on behind the last one.
    ///
    /// # Errors
    /// The request cannot be answered; the reason is sent to the client. Errors of [`Rows::send`] are handed
    /// on by `?`.
    fn answer(&self, request: &Request, rows: &mut Rows<'_>) -> Result<(), Unanswered>;
}

/// Where a backend puts its rows.
pub struct Rows<'a> {
    request: &'a Request,
    client: Option<&'a UnixStream>,
    to: &'a mut dyn Write,
    count: u64,
    is_begun: bool,
    /// Whether there is nothing but rows.
    is_bare: bool,
}

impl<'a> Rows<'a> {
    /// Rows in answer to `request`, written to `to`.
    pub fn new(request: &'a Request, to: &'a mut dyn Write) -> Self {
        Self { request, client: None, to, count: 0, is_begun: false, is_bare: false }
    }

    /// The same without a head and an end: a line for each row, the row alone.
    pub fn bare(request: &'a Request, to: &'a mut dyn Write) -> Self {
        Self { is_bare: true, ..Self::new(request, to) }
    }

    /// Waits so long, while the client does.
    ///
    /// # Errors
    /// [`Unanswered::ClientGone`] as soon as it has gone.
    pub fn wait(&self, time: Duration) -> Result<(), Unanswered> {
        let deadline = Instant::now() + time;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            let Some(client) = self.client else {
                std::thread::sleep(left);
                continue;
            };
            let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            // A client that asks nothing more has closed its half; one that is gone both.
            let mut ends = [PollFd::from_borrowed_fd(client.as_fd(), PollFlags::empty())];
            // Interrupted by a signal: the next turn waits for what is left.
            let _ = rustix::event::poll(&mut ends, Some(&timeout));
            if ends[0].revents().intersects(PollFlags::HUP | PollFlags::ERR) {
                return Err(Unanswered::ClientGone);
            }
        }
    }

    /// Waits until the client takes more, at most so long, and returns whether it does. Rows of some kilobytes are then sent at once.
    ///
    /// # Errors
    /// [`Unanswered::ClientGone`] as soon as it has gone.
    pub fn wait_for_room(&self, time: Duration) -> Result<bool, Unanswered> {
        let Some(client) = self.client else { return Ok(true) };
        let timeout = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
        let mut ends = [PollFd::from_borrowed_fd(client.as_fd(), PollFlags::OUT)];
        // Interrupted by a signal: there is no room yet, and the caller comes again.
        let _ = rustix::event::poll(&mut ends, Some(&timeout));
        let found = ends[0].revents();
        if found.intersects(PollFlags::HUP | PollFlags::ERR) {
            return Err(Unanswered::ClientGone);
        }
        Ok(found.contains(PollFlags::OUT))
    }

    /// Sends what was written so far.
    ///
    /// # Errors
    /// [`Unanswered::ClientGone`].
    pub fn flush(&mut self) -> Result<(), Unanswered> {
        self.to.flush().map_err(|_| Unanswered::ClientGone)
    }

    /// Sends a row if the request's filter selects it.
    ///
    /// # Errors
    /// [`Unanswered::ClientGone`]: nobody wants more.
    pub fn send(&mut self, row: impl Into<Row>) -> Result<(), Unanswered> {
        let row = row.into();
        if !self.request.selects(&row) {
            return Ok(());
        }
        if self.is_bare {
            return write_line(self.to, &row).map_err(|_| Unanswered::ClientGone);
        }
        self.begin()?;
        self.count += 1;
        write_line(self.to, &Line::Row(row)).map_err(|_| Unanswered::ClientGone)
    }

    fn begin(&mut self) -> Result<(), Unanswered> {
        if std::mem::replace(&mut self.is_begun, true) {
            return Ok(());
        }
        let head = Head { version: VERSION, line: Line::Ok(self.request.name()) };
        write_line(self.to, &head).map_err(|_| Unanswered::ClientGone)
    }

    fn end(mut self) -> Result<(), Unanswered> {
        self.begin()?;
        write_line(self.to, &Line::End(self.count)).map_err(|_| Unanswered::ClientGone)
    }
}

/// A line of an answer.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Line {
    Ok(String),
    Row(Row),
    End(u64),
}

/// The first line says in which version it is spoken.
#[derive(Serialize)]
struct Head {
    version: u32,
    #[serde(flatten)]
    line: Line,
}

/// A first line that says why there is no answer.
#[derive(Serialize)]
struct Refusal<'a> {
    version: u32,
    error: &'a str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    needs_restart: &'a [String],
}

fn write_line(to: &mut dyn Write, line: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *to, line)?;
    to.write_all(b"\n")
}

/// What a client may do, by the socket that it came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum May {
    All,
    Show,
}

/// Answers a line: what the server does with each.
fn answer(
    line: &[u8],
    may: May,
    backend: &dyn Backend,
    client: &UnixStream,
    to: &mut dyn Write,
) -> Result<(), Unanswered> {
    let result = Request::parse(line).map_err(Unanswered::Refused).and_then(|request| {
        if may == May::Show && request.is_privileged() {
            let what = if let Request::Show(Show::Cost(_)) = request {
                format!("{} --unfused", request.name())
            } else {
                request.name()
            };
            let reason = format!("'{what}' is not permitted here: members of the read group may only show");
            log_intrusion(&request.name(), client);
            return Err(Unanswered::Refused(reason));
        }
        log_begin(&request, client);
        let mut rows = Rows { client: Some(client), ..Rows::new(&request, to) };
        let answered = backend.answer(&request, &mut rows);
        log_end(&request, client, &answered);
        answered?;
        rows.end()
    });
    match result {
        Ok(()) | Err(Unanswered::ClientGone) => result,
        Err(reason) => {
            let options = if let Unanswered::NeedsRestart(options) = &reason { options } else { &Vec::new() };
            refuse(to, &reason.to_string(), options).map_err(|_| Unanswered::ClientGone)
        }
    }
}

fn refuse(to: &mut dyn Write, reason: &str, needs_restart: &[String]) -> io::Result<()> {
    write_line(to, &Refusal { version: VERSION, error: reason, needs_restart })?;
    to.flush()
}

/// Sockets that clients connect to, before anybody answers there: a process that is about to give up its rights opens them first.
/// Dropping them removes the files, if the process may.
#[derive(Debug)]
pub struct Sockets {
    doors: Vec<Door>,
    patience: Duration,
    send_timeout: Duration,
}

impl Sockets {
    /// Listens.
    ///
    /// # Errors
    /// [`ServerError`]; another router may be running.
    pub fn open(options: &ServerOptions) -> Result<Self, ServerError> {
        let failed =
            |error| ServerError::System { path: options.path.clone(), action: "making its folder", error };
        make_folder(&options.path).map_err(failed)?;
        let mut doors = vec![Door::open(May::All, &options.path, options.write_group.as_deref())?];
        if let Some(group) = &options.read_group {
            doors.push(Door::open(May::Show, &reading_path(&options.path), Some(group))?);
        }
        Ok(Self { doors, patience: options.patience, send_timeout: options.send_timeout })
    }
}

/// The control socket of a running router. Dropping it removes the file, if the process may; nobody can ask any more. Threads
/// that are in the middle of an answer end with it, on their own.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    /// Closing it wakes the thread that accepts.
    waker: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens and answers.
    ///
    /// # Errors
    /// [`ServerError`]; another router may be running.
    pub fn start(options: &ServerOptions, backend: Arc<dyn Backend>) -> Result<Self, ServerError> {
        Self::serve(Sockets::open(options)?, &options.supervisor, backend)
    }

    /// Answers at sockets that are open.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn serve(
        sockets: Sockets,
        supervisor: &Supervisor,
        backend: Arc<dyn Backend>,
    ) -> Result<Self, ServerError> {
        let Sockets { doors, patience, send_timeout } = sockets;
        let path = doors[0].path.clone();
        let failed = |action| {
            let path = path.clone();
            move |error: io::Error| ServerError::System { path, action, error }
        };
        let (waker, woken) = UnixStream::pair().map_err(failed("making a waker"))?;
        let stop = Arc::new(AtomicBool::new(false));
        let acceptor = Acceptor { backend, patience, send_timeout, stop: stop.clone() };
        let thread = supervisor
            .spawn("control-socket", move |pulse| acceptor.accept(&doors, &woken, pulse))
            .map_err(failed("starting a thread"))?;
        Ok(Self { path, stop, waker: Some(waker), thread: Some(thread) })
    }

    /// The socket's path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        drop(self.waker.take());
        if let Some(thread) = self.thread.take() {
            // A panic of that thread was printed when it happened.
            let _ = thread.join();
        }
    }
}

/// A socket that clients come to. Dropping it removes the file.
#[derive(Debug)]
struct Door {
    listener: UnixListener,
    path: PathBuf,
    may: May,
    places: doors::Door,
}

impl Door {
    fn open(may: May, path: &Path, group: Option<&str>) -> Result<Self, ServerError> {
        let listener = listen(path, group)?;
        Ok(Self { listener, path: path.to_owned(), may, places: doors::Door::new(CONNECTIONS) })
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        // It may have been removed by hand. A router that is not root's may not: the next one does.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Makes the socket, in the place of a stale one.
fn listen(path: &Path, group: Option<&str>) -> Result<UnixListener, ServerError> {
    let failed = |action: &'static str| {
        move |error: Errno| ServerError::System { path: path.to_owned(), action, error: error.into() }
    };
    let number = |group: &str| accounts::group(group).ok_or_else(|| ServerError::NoGroup(group.to_owned()));
    let group = group.map(number).transpose()?.map(Gid::from_raw);
    let address = SocketAddrUnix::new(path).map_err(failed("reading its path"))?;
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(failed("opening a socket"))?;
    // Another router that has its socket but does not listen yet would look like one that is no more.
    let turn = own_turn(path);
    if turn.is_some() {
        sweep(path);
    }
    match rustix::net::bind(&socket, &address) {
        Err(Errno::ADDRINUSE) => {
            remove_stale(path)?;
            rustix::net::bind(&socket, &address)
        }
        other => other,
    }
    .map_err(failed("binding it"))?;
    let set_mode =
        |mode| rustix::fs::chmod(path, Mode::from_raw_mode(mode)).map_err(failed("setting its mode"));
    // The process's own group may have members of whom nobody spoke.
    set_mode(0o600)?;
    if let Some(group) = group {
        rustix::fs::chown(path, None, Some(group)).map_err(failed("setting its group"))?;
        set_mode(0o660)?;
    }
    rustix::net::listen(&socket, 16).map_err(failed("listening"))?;
    Ok(UnixListener::from(socket))
}

/// Holds the folder's lock, so that routers that begin at the same moment make their sockets one after the other. Somebody who
/// holds it for longer than a second is not waited for. The lock is a file that other users cannot open.
fn own_turn(path: &Path) -> Option<File> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut options = File::options();
    options.write(true).create(true).truncate(false).mode(0o600);
    options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32);
    let lock = options.open(folder.join(".brickway.lock")).ok()?;
    for _ in 0..100 {
        if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            return Some(lock);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    None
}

/// Removes the socket of a router that is no more.
fn remove_stale(path: &Path) -> Result<(), ServerError> {
    let system =
        |action| move |error: io::Error| ServerError::System { path: path.to_owned(), action, error };
    let kind = std::fs::symlink_metadata(path).map_err(system("looking at what is there"))?.file_type();
    if !kind.is_socket() {
        return Err(ServerError::NoSocket(path.to_owned()));
    }
    match UnixStream::connect(path) {
        Ok(stream) => {
            let peer = rustix::net::sockopt::socket_peercred(&stream);
            let process = match peer {
                Ok(peer) => format!("process {}", peer.pid.as_raw_nonzero()),
                Err(_) => "an unknown process".to_owned(),
            };
            Err(ServerError::Running { path: path.to_owned(), process })
        }
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(system("removing a stale one"))
        }
        Err(error) => Err(system("asking who answers there")(error)),
    }
}

/// What the accepting thread has.
#[derive(Clone)]
struct Acceptor {
    backend: Arc<dyn Backend>,
    patience: Duration,
    send_timeout: Duration,
    stop: Arc<AtomicBool>,
}

impl Acceptor {
    fn accept(&self, doors: &[Door], woken: &UnixStream, pulse: &Pulse) {
        let longest_wait = Timespec { tv_sec: 0, tv_nsec: LONGEST_WAIT.subsec_nanos().into() };
        loop {
            pulse.beat();
            let all = doors.iter().map(|door| door.listener.as_fd()).chain([woken.as_fd()]);
            let mut ready: Vec<PollFd<'_>> =
                all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
            // Interrupted by a signal: the next turn waits again.
            let _ = rustix::event::poll(&mut ready, Some(&longest_wait));
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            for (door, _) in doors.iter().zip(&ready).filter(|(_, fd)| !fd.revents().is_empty()) {
                match door.listener.accept() {
                    Ok((stream, _)) => self.take(stream, door),
                    // Out of file descriptors, or a client that left at once. The former lasts a while.
                    Err(_) => std::thread::sleep(Duration::from_millis(20)),
                }
            }
        }
    }

    /// Gives a connection a thread, or says that there are too many.
    fn take(&self, mut stream: UnixStream, door: &Door) {
        let (peer, may) = (Peer::of_unix(&stream), door.may);
        if stream.set_write_timeout(Some(self.send_timeout)).is_err() {
            return;
        }
        // Those that say nothing end by themselves.
        let Some(place) = door.places.admit(peer, None) else {
            // It fits the socket's buffer, so this does not block; whether it arrives is the client's affair.
            let share = door.places.share(peer);
            let reason = format!("busy: you have {share} connections, or all are taken; try again");
            let _ = refuse(&mut stream, &reason, &[]);
            return;
        };
        let acceptor = self.clone();
        // Without a thread the connection closes, which the client sees.
        let _ = std::thread::Builder::new().name("control-client".to_owned()).spawn(move || {
            // An error is the client's end: it left, was too slow, or sent no line.
            let _ = acceptor.serve(&stream, may);
            drop(place);
        });
    }

    /// Answers line after line.
    fn serve(&self, stream: &UnixStream, may: May) -> io::Result<()> {
        let mut reader = BufReader::new(stream);
        let mut writer = BufWriter::with_capacity(BUFFER, stream);
        let mut line = Vec::new();
        loop {
            match read_line(&mut reader, &mut line, Instant::now() + self.patience)? {
                Received::Complete => {}
                Received::TooLong => {
                    return refuse(&mut writer, &format!("a line has at most {LONGEST_LINE} bytes"), &[]);
                }
                Received::End => return Ok(()),
            }
            if self.stop.load(Ordering::SeqCst) {
                return refuse(&mut writer, "the router is about to end", &[]);
            }
            if answer(&line, may, &*self.backend, stream, &mut writer).is_err() {
                // What is left in the writer would only be tried once more.
                drop(writer.into_parts());
                return Ok(());
            }
            writer.flush()?;
        }
    }
}

/// What came of a line.
enum Received {
    /// Without its end, which has been read.
    Complete,
    /// Longer than [`LONGEST_LINE`].
    TooLong,
    /// The client sends no more; half a line is not a request.
    End,
}

/// Reads a line that has to be complete at `deadline`.
fn read_line(
    reader: &mut BufReader<&UnixStream>,
    line: &mut Vec<u8>,
    deadline: Instant,
) -> io::Result<Received> {
    line.clear();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        reader.get_ref().set_read_timeout(Some(left))?;
        let bytes = match reader.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        if bytes.is_empty() {
            return Ok(Received::End);
        }
        let end = bytes.iter().position(|&byte| byte == b'\n');
        let part = end.unwrap_or(bytes.len());
        if line.len() + part > LONGEST_LINE {
            return Ok(Received::TooLong);
        }
        line.extend_from_slice(&bytes[..part]);
        reader.consume(part + usize::from(end.is_some()));
        if end.is_some() {
            return Ok(Received::Complete);
        }
    }
}
