//! Sockets on which elements wait for connections, each with a thread of its own: no worker looks at them.

use packet::sync::lock;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use control::doors::{Door, Peer, Place};
use graph::{Arguments, ConfigError};

/// Connections that a socket serves at a time; each user, and each other host, has a share.
const MOST_CONNECTIONS: usize = 64;

/// Milliseconds that the last answers have when a socket is closed.
const LAST_ANSWERS_MS: u32 = 500;

/// Ports that are tried for `PORT+`.
const MOST_PORTS: u16 = 11;

/// Where to listen.
#[derive(Clone, Debug)]
pub(super) enum Address {
    /// A TCP port, or one of so many from it on.
    Tcp { port: u16, tries: u16, address: IpAddr },
    /// A path.
    Unix(PathBuf),
}

impl Address {
    /// Reads the arguments TYPE and PORT or FILENAME, ADDRESS and LOCALHOST. What other hosts can reach has to be asked for.
    pub(super) fn read(arguments: &mut Arguments) -> Result<Self, ConfigError> {
        let kind: String = arguments.required("TYPE")?;
        let address: Option<String> = arguments.keyword("ADDRESS")?;
        let is_local = arguments.keyword_or("LOCALHOST", true)?;
        match kind.to_ascii_uppercase().as_str() {
            "TCP" => {
                let text: String = arguments.required("PORT")?;
                let (number, tries) = match text.strip_suffix('+') {
                    Some(number) => (number, MOST_PORTS),
                    None => (text.as_str(), 1),
                };
                let port = number.parse().map_err(|_| format!("PORT requires TCP port, not '{text}'"))?;
                let address = match address {
                    Some(text) => {
                        text.parse().map_err(|_| format!("ADDRESS: expected IP address, got '{text}'"))?
                    }
                    None if is_local => Ipv4Addr::LOCALHOST.into(),
                    None => Ipv4Addr::UNSPECIFIED.into(),
                };
                Ok(Self::Tcp { port, tries, address })
            }
            "UNIX" => Ok(Self::Unix(arguments.required::<String>("FILENAME")?.into())),
            _ => Err(format!("unknown socket type '{kind}'; expected TCP or UNIX").into()),
        }
    }

    /// Whether programs on other hosts may connect.
    pub(super) fn is_for_other_hosts(&self) -> bool {
        matches!(self, Self::Tcp { address, .. } if !address.is_loopback())
    }

    /// Listens there.
    pub(super) fn listen(&self) -> io::Result<Listener> {
        match self {
            Self::Tcp { port, tries, address } => {
                let mut bound = TcpListener::bind((*address, *port));
                for next in 1..*tries {
                    if bound.is_ok() {
                        break;
                    }
                    bound = TcpListener::bind((*address, port.saturating_add(next)));
                }
                bound.map(Listener::Tcp)
            }
            Self::Unix(path) => {
                let bound = UnixListener::bind(path).or_else(|error| {
                    // What a process left behind that is no more.
                    let is_left = error.kind() == io::ErrorKind::AddrInUse
                        && UnixStream::connect(path)
                            .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
                    if !is_left {
                        return Err(error);
                    }
                    std::fs::remove_file(path)?;
                    UnixListener::bind(path)
                });
                bound.map(|listener| Listener::Unix(listener, path.clone()))
            }
        }
    }
}

/// A socket that waits for connections.
#[derive(Debug)]
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Listener {
    fn accept(&self) -> io::Result<(Stream, Peer)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, from) = listener.accept()?;
                let peer = Peer::of_tcp(from, stream.local_addr()?);
                Ok((Stream::Tcp(stream), peer))
            }
            Self::Unix(listener, _) => {
                let (stream, _) = listener.accept()?;
                let peer = Peer::of_unix(&stream);
                Ok((Stream::Unix(stream), peer))
            }
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener, _) => listener.as_fd(),
        }
    }

    /// The handler `port`.
    pub(super) fn port(&self) -> Result<String, String> {
        match self {
            Self::Tcp(listener) => {
                listener.local_addr().map(|address| address.port().to_string()).map_err(|e| e.to_string())
            }
            Self::Unix(..) => Err("a Unix socket has a filename, and no port".into()),
        }
    }

    /// The handler `filename`.
    pub(super) fn filename(&self) -> Result<String, String> {
        match self {
            Self::Tcp(_) => Err("a TCP socket has a port, and no filename".into()),
            Self::Unix(_, path) => Ok(path.display().to_string()),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            // Somebody may have removed it before.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A connection.
#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn try_clone(&self) -> io::Result<Self> {
        match self {
            Self::Tcp(stream) => stream.try_clone().map(Self::Tcp),
            Self::Unix(stream) => stream.try_clone().map(Self::Unix),
        }
    }

    fn end_reading(&self) {
        // As below.
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Read),
            Self::Unix(stream) => stream.shutdown(Shutdown::Read),
        };
    }

    fn close(&self) {
        // One that is closed already is as good.
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A connection with its place, which notes what it says.
#[derive(Debug)]
pub(super) struct Visitor {
    stream: Stream,
    pub(super) peer: Peer,
    place: Place,
}

impl Visitor {
    /// Whether it may do what the router's user may, in files too: as file permissions say of a Unix socket. At a TCP socket
    /// it is root, the router's user, or another host, where those were let in.
    pub(super) fn is_trusted(&self) -> bool {
        matches!((&self.stream, self.peer), (Stream::Unix(_), _) | (_, Peer::Host(_)))
            || self.peer.is_trusted()
    }
}

impl Read for Visitor {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.stream.read(buffer)?;
        self.place.note_activity();
        Ok(length)
    }
}

impl Write for Visitor {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The connections that are open, by number.
#[derive(Debug, Default)]
pub(super) struct Connections {
    open: Mutex<BTreeMap<u64, Stream>>,
    ends: AtomicBool,
}

impl Connections {
    pub(super) fn open(&self) -> MutexGuard<'_, BTreeMap<u64, Stream>> {
        lock(&self.open)
    }
}

/// Serves a socket until it is dropped.
#[derive(Debug)]
pub(super) struct Server {
    listener: Arc<Listener>,
    connections: Arc<Connections>,
}

impl Server {
    /// Has `serve` called for each connection, on a thread of its own.
    pub(super) fn start(
        listener: Arc<Listener>,
        connections: Arc<Connections>,
        serve: impl Fn(Visitor) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let server = Self { listener: listener.clone(), connections: connections.clone() };
        let (serve, door) = (Arc::new(serve), Door::new(MOST_CONNECTIONS));
        let accept = move || {
            for number in 0.. {
                let accepted = listener.accept();
                if connections.ends.load(Ordering::SeqCst) {
                    return;
                }
                let cloned = accepted
                    .and_then(|(stream, peer)| Ok((stream.try_clone()?, stream.try_clone()?, stream, peer)));
                let Ok((stream, closed, ours, peer)) = cloned else {
                    // Out of descriptors, say: there may be some again soon.
                    std::thread::sleep(std::time::Duration::from_millis(100));
                    continue;
                };
                let Some(place) = door.admit(peer, Some(Box::new(move || closed.close()))) else {
                    ours.close();
                    continue;
                };
                connections.open().insert(number, ours);
                let (serve, connections) = (serve.clone(), connections.clone());
                let visitor = Visitor { stream, peer, place };
                let handle = move || {
                    serve(visitor);
                    if let Some(stream) = connections.open().remove(&number) {
                        stream.close();
                    }
                };
                // Without a thread the connection ends with its last handle, in the list.
                let _ = std::thread::Builder::new().name("connection".into()).spawn(handle);
            }
        };
        std::thread::Builder::new().name("socket".into()).spawn(accept)?;
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.connections.ends.store(true, Ordering::SeqCst);
        // Ends the wait for connections.
        let _ = rustix::net::shutdown(self.listener.fd(), rustix::net::Shutdown::Both);
        // Nothing more is heard, but what was asked is answered, if that does not take long.
        self.connections.open().values().for_each(Stream::end_reading);
        for _ in 0..LAST_ANSWERS_MS {
            if self.connections.open().is_empty() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        self.connections.open().values().for_each(Stream::close);
    }
}
