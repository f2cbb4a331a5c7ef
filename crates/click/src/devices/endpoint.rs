//! The sockets behind Socket, FromSocket and ToSocket: TCP, UDP and Unix ones, waiting for a peer (servers) or bound to one
//! (clients). One worker receives; all may send, so what they share is behind a lock.

use packet::sync::lock;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

/// Bytes that wait for a stream that is slower than what comes in; what is beyond is dropped.
const MOST_UNSENT: usize = 1 << 18;

/// Where a socket is, or its peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Ip(SocketAddrV4),
    File(PathBuf),
}

/// What is to be opened.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) is_stream: bool,
    pub(super) is_client: bool,
    /// A client's peer; where a server is.
    pub(super) place: Place,
    /// Where a client is.
    pub(super) local: Option<Place>,
    pub(super) no_delay: bool,
    pub(super) send_buffer: Option<usize>,
    pub(super) receive_buffer: Option<usize>,
}

/// A connection, or a socket for datagrams.
#[derive(Debug)]
pub(super) enum Line {
    Tcp(TcpStream),
    Unix(UnixStream),
    Udp(UdpSocket),
    UnixDatagram(UnixDatagram),
}

#[derive(Debug)]
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// What all copies of an element share.
#[derive(Debug)]
pub(super) struct Endpoint {
    plan: Plan,
    listener: Option<Listener>,
    state: Mutex<State>,
    /// A file that was made for the socket.
    file: Option<PathBuf>,
}

#[derive(Debug, Default)]
struct State {
    line: Option<Arc<Line>>,
    unsent: Vec<u8>,
    /// Who sent the last datagram to a server.
    peer: Option<Place>,
}

/// What came of an attempt to receive.
pub(super) enum Received {
    /// So many bytes, from this address where it is one of IPv4.
    Bytes(usize, Option<Ipv4Addr>),
    Nothing,
    /// The peer has closed.
    Closed,
}

fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

fn ip_of(address: &SocketAddr) -> Option<SocketAddrV4> {
    match address {
        SocketAddr::V4(address) => Some(*address),
        SocketAddr::V6(_) => None,
    }
}

impl Line {
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(line) => line.as_fd(),
            Self::Unix(line) => line.as_fd(),
            Self::Udp(line) => line.as_fd(),
            Self::UnixDatagram(line) => line.as_fd(),
        }
    }

    fn prepare(self, plan: &Plan) -> io::Result<Arc<Self>> {
        match &self {
            Self::Tcp(line) => {
                line.set_nodelay(plan.no_delay)?;
                line.set_nonblocking(true)?;
            }
            Self::Unix(line) => line.set_nonblocking(true)?,
            Self::Udp(line) => line.set_nonblocking(true)?,
            Self::UnixDatagram(line) => line.set_nonblocking(true)?,
        }
        if let Some(bytes) = plan.send_buffer {
            sockopt::set_socket_send_buffer_size(self.fd(), bytes)?;
        }
        if let Some(bytes) = plan.receive_buffer {
            sockopt::set_socket_recv_buffer_size(self.fd(), bytes)?;
        }
        Ok(Arc::new(self))
    }
}

impl Endpoint {
    pub(super) fn open(plan: Plan) -> io::Result<Self> {
        let mut endpoint = Self { plan, listener: None, state: Mutex::default(), file: None };
        let plan = &endpoint.plan;
        let own = if plan.is_client { plan.local.as_ref() } else { Some(&plan.place) };
        let file = match own {
            Some(Place::File(path)) => Some(path.clone()),
            _ => None,
        };
        let line = match (&plan.place, plan.is_stream, plan.is_client) {
            (Place::Ip(address), true, false) => {
                endpoint.listener = Some(Listener::Tcp(TcpListener::bind(address)?));
                None
            }
            (Place::File(path), true, false) => {
                endpoint.listener = Some(Listener::Unix(UnixListener::bind(path)?));
                None
            }
            (Place::Ip(address), true, true) => Some(Line::Tcp(connect(*address, own)?)),
            (Place::File(path), true, true) => Some(Line::Unix(UnixStream::connect(path)?)),
            (Place::Ip(_), false, _) => {
                let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
                let own = if let Some(Place::Ip(own)) = own { *own } else { any };
                Some(Line::Udp(UdpSocket::bind(own)?))
            }
            (Place::File(_), false, _) => Some(Line::UnixDatagram(match &file {
                Some(path) => UnixDatagram::bind(path)?,
                None => UnixDatagram::unbound()?,
            })),
        };
        match &endpoint.listener {
            Some(Listener::Tcp(listener)) => listener.set_nonblocking(true)?,
            Some(Listener::Unix(listener)) => listener.set_nonblocking(true)?,
            None => {}
        }
        let line = line.map(|line| line.prepare(plan)).transpose()?;
        // A stream's client has no file of its own.
        endpoint.file = file.filter(|_| endpoint.listener.is_some() || !endpoint.plan.is_stream);
        endpoint.state = Mutex::new(State { line, ..State::default() });
        Ok(endpoint)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// The line that there is.
    pub(super) fn line(&self) -> Option<Arc<Line>> {
        self.lock().line.clone()
    }

    /// What becomes readable when a peer connects.
    pub(super) fn listener_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(match self.listener.as_ref()? {
            Listener::Tcp(listener) => listener.as_fd(),
            Listener::Unix(listener) => listener.as_fd(),
        })
    }

    /// Takes a waiting connection, if `may` permits its address. Returns the line, and its peer.
    pub(super) fn accept(
        &self,
        may: impl FnOnce(Ipv4Addr) -> bool,
    ) -> io::Result<Option<(Arc<Line>, String)>> {
        let accepted = match &self.listener {
            None => return Ok(None),
            Some(Listener::Tcp(listener)) => {
                listener.accept().map(|(line, from)| (Line::Tcp(line), Some(from)))
            }
            Some(Listener::Unix(listener)) => listener.accept().map(|(line, _)| (Line::Unix(line), None)),
        };
        let (line, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) if is_nothing(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        if let Some(address) = from.as_ref().and_then(ip_of)
            && !may(*address.ip())
        {
            return Ok(None);
        }
        let line = line.prepare(&self.plan)?;
        let mut state = self.lock();
        state.line = Some(line.clone());
        state.unsent.clear();
        Ok(Some((line, from.map_or_else(|| "a local process".to_owned(), |from| from.to_string()))))
    }

    /// The peer of a stream is gone.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.line = None;
        state.unsent.clear();
    }

    /// Receives into `room`.
    pub(super) fn receive(&self, line: &Line, room: &mut [u8]) -> Received {
        let stream = |result: io::Result<usize>| match result {
            Ok(0) => Received::Closed,
            Ok(count) => Received::Bytes(count, None),
            Err(error) if is_nothing(&error) => Received::Nothing,
            Err(_) => Received::Closed,
        };
        match line {
            Line::Tcp(line) => stream((&mut &*line).read(room)),
            Line::Unix(line) => stream((&mut &*line).read(room)),
            // An error is that of an earlier datagram (a port that nobody has).
            Line::Udp(line) => line.recv_from(room).map_or(Received::Nothing, |(count, from)| {
                let from = ip_of(&from);
                self.lock().peer = from.map(Place::Ip);
                Received::Bytes(count, from.map(|from| *from.ip()))
            }),
            Line::UnixDatagram(line) => line.recv_from(room).map_or(Received::Nothing, |(count, from)| {
                self.lock().peer = from.as_pathname().map(|path| Place::File(path.to_path_buf()));
                Received::Bytes(count, None)
            }),
        }
    }

    /// Sends what waits for a stream; whether nothing waits any more.
    pub(super) fn flush(&self) -> bool {
        let mut state = self.lock();
        let State { line, unsent, .. } = &mut *state;
        while let Some(line) = line.as_deref().filter(|_| !unsent.is_empty()) {
            match write(line, unsent) {
                Ok(count) => drop(unsent.drain(..count)),
                Err(error) if is_nothing(&error) => break,
                Err(_) => unsent.clear(),
            }
        }
        unsent.is_empty()
    }

    /// Sends a packet; the error is why it is dropped. `destination` is where the packet itself says that it goes.
    pub(super) fn send(&self, data: &[u8], destination: u32) -> Result<(), &'static str> {
        const NOBODY: &str = "nobody is connected";
        const BUSY: &str = "socket busy";
        let mut state = self.lock();
        let State { line, unsent, peer } = &mut *state;
        let line = line.as_deref().ok_or(NOBODY)?;
        let to = if self.plan.is_client { Some(&self.plan.place) } else { peer.as_ref() };
        let result = match line {
            Line::Tcp(_) | Line::Unix(_) => {
                if unsent.len() + data.len() > MOST_UNSENT {
                    return Err(BUSY);
                }
                let sent = if unsent.is_empty() { write(line, data) } else { Ok(0) };
                let sent = sent.or_else(|error| if is_nothing(&error) { Ok(0) } else { Err(error) });
                sent.map(|sent| unsent.extend_from_slice(&data[sent..]))
            }
            Line::Udp(line) => match to {
                Some(Place::Ip(to)) if to.ip().is_unspecified() => {
                    line.send_to(data, (Ipv4Addr::from_bits(destination), to.port())).map(drop)
                }
                Some(Place::Ip(to)) => line.send_to(data, to).map(drop),
                _ => return Err(NOBODY),
            },
            Line::UnixDatagram(line) => match to {
                Some(Place::File(to)) => line.send_to(data, to).map(drop),
                _ => return Err(NOBODY),
            },
        };
        result.map_err(|error| if is_nothing(&error) { BUSY } else { "socket error" })
    }
}

fn write(line: &Line, data: &[u8]) -> io::Result<usize> {
    match line {
        Line::Tcp(line) => (&mut &*line).write(data),
        Line::Unix(line) => (&mut &*line).write(data),
        Line::Udp(_) | Line::UnixDatagram(_) => Ok(data.len()),
    }
}

/// Connects, from `own` where that is said.
fn connect(to: SocketAddrV4, own: Option<&Place>) -> io::Result<TcpStream> {
    let Some(Place::Ip(own)) = own else { return TcpStream::connect(to) };
    let socket =
        rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    rustix::net::bind(&socket, own)?;
    rustix::net::connect(&socket, &to)?;
    Ok(socket.into())
}

fn remove(path: &Path) {
    // Somebody may have removed it before.
    let _ = std::fs::remove_file(path);
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if let Some(path) = &self.file {
            remove(path);
        }
    }
}
