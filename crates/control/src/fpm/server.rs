//! The server: one peer at a time, polled by the thread that owns it.

use std::io::{self, ErrorKind, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::net::sockopt;

use crate::change::Change;
use crate::fpm::stream::{EndReason, Stream};
use crate::netlink::Reasons;
use crate::readiness::Readiness;

/// Reads of one call of [`Server::receive`]; each gives at most 256 KB, some 4,000 routes.
const READS_PER_CALL: usize = 4;

/// How long a peer may be silent before its host is asked whether it lives, and how often.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// Where to listen, and when a peer has told all.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Where zebra connects to.
    pub address: SocketAddr,
    /// After so long without a message zebra has sent all that it had when it connected.
    pub quiet: Duration,
}

impl Default for ServerOptions {
    /// Where FRR connects to by default; and as long as daemons need to find a restarted zebra.
    fn default() -> ServerOptions {
        ServerOptions { address: (Ipv4Addr::LOCALHOST, 2620).into(), quiet: Duration::from_secs(30) }
    }
}

/// What comes from zebra.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// zebra connected, and will send everything that it has.
    Connected(SocketAddr),
    /// Something changed: routes and next-hop objects.
    Change(Change),
    /// What did not come since [`Event::Connected`] is not there any more. Once for each connection that
    /// lives long enough.
    ReplayEnds,
    /// The connection ended. What came over it still holds: packets flow while zebra restarts.
    Disconnected(EndReason),
}

/// What [`Server`] counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections that were taken.
    pub connections: u64,
    /// Messages of netlink.
    pub messages: u64,
    /// Routes and next-hop objects with labels or another encapsulation, which the fast path does not do.
    pub encapsulated: u64,
    /// Messages that do not concern us, by reason.
    pub ignored: Reasons,
    /// Connections that ended, by reason.
    pub ended: Reasons,
}

impl Counters {
    /// Name and count of each, to be shown.
    pub fn rows(&self) -> Vec<(String, u64)> {
        let mut rows: Vec<(String, u64)> = [
            ("connections", self.connections),
            ("messages", self.messages),
            ("with labels or encapsulation", self.encapsulated),
        ]
        .map(|(name, count)| (name.to_owned(), count))
        .into();
        rows.extend(self.ignored.iter().map(|(reason, count)| (format!("ignored: {reason}"), count)));
        rows.extend(self.ended.iter().map(|(reason, count)| (format!("ended: {reason}"), count)));
        rows
    }
}

/// Listens for zebra, in the network namespace of the thread that opened it. Poll [`Server::fd`], then call
/// [`Server::receive`]; drop it to stop. Who does not call it slows zebra down, and loses nothing.
pub struct Server {
    listener: TcpListener,
    readiness: Readiness,
    quiet: Duration,
    peer: Option<Peer>,
    stream: Stream,
    connections: u64,
    ended: Reasons,
}

struct Peer {
    socket: TcpStream,
    /// When its replay is over, if nothing comes till then.
    replay_ends: Option<Instant>,
}

impl Server {
    /// Listens.
    pub fn open(options: &ServerOptions) -> io::Result<Server> {
        let address = options.address;
        let listener = TcpListener::bind(address).map_err(|error| {
            io::Error::new(error.kind(), format!("listening for FRR (FPM) on {address}: {error}"))
        })?;
        listener.set_nonblocking(true)?;
        let readiness = Readiness::new()?;
        readiness.watch(&listener)?;
        Ok(Server {
            listener,
            readiness,
            quiet: options.quiet,
            peer: None,
            stream: Stream::default(),
            connections: 0,
            ended: Reasons::default(),
        })
    }

    /// Readable when [`Server::receive`] has something to do; always the same descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.readiness.fd()
    }

    /// Where it listens.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Whether zebra is connected.
    pub fn is_connected(&self) -> bool {
        self.peer.is_some()
    }

    /// What was counted.
    pub fn counters(&self) -> Counters {
        Counters {
            connections: self.connections,
            messages: self.stream.messages,
            encapsulated: self.stream.encapsulated,
            ignored: self.stream.ignored.clone(),
            ended: self.ended.clone(),
        }
    }

    /// Receives what there is, a bounded part of it: if there is more, the descriptor stays readable. A
    /// second peer waits until the first one is gone. An error is one of the system, after which the next
    /// call tries again.
    pub fn receive(&mut self, sink: &mut dyn FnMut(Event)) -> io::Result<()> {
        if self.peer.is_none() {
            self.accept(sink)?;
        }
        if self.peer.is_some()
            && let Err(reason) = self.read(sink)
        {
            self.peer = None;
            self.ended.count(reason.name());
            self.readiness.watch(&self.listener)?;
            sink(Event::Disconnected(reason));
        }
        self.readiness.wake_at(self.peer.as_ref().and_then(|peer| peer.replay_ends))
    }

    fn accept(&mut self, sink: &mut dyn FnMut(Event)) -> io::Result<()> {
        let (socket, address) = match self.listener.accept() {
            Ok(accepted) => accepted,
            Err(error) if is_nothing(&error) || error.kind() == ErrorKind::ConnectionAborted => return Ok(()),
            Err(error) => return Err(error),
        };
        socket.set_nonblocking(true)?;
        // A peer whose host died never says so.
        sockopt::set_socket_keepalive(&socket, true)?;
        sockopt::set_tcp_keepidle(&socket, KEEPALIVE)?;
        sockopt::set_tcp_keepintvl(&socket, KEEPALIVE)?;
        self.readiness.watch(&socket)?;
        self.readiness.forget(&self.listener)?;
        self.connections += 1;
        self.stream.start_over();
        self.peer = Some(Peer { socket, replay_ends: Some(Instant::now() + self.quiet) });
        sink(Event::Connected(address));
        Ok(())
    }

    fn read(&mut self, sink: &mut dyn FnMut(Event)) -> Result<(), EndReason> {
        let Some(peer) = &mut self.peer else { return Ok(()) };
        for _ in 0..READS_PER_CALL {
            let length = match peer.socket.read(self.stream.room()) {
                Ok(0) if self.stream.is_inside() => return Err(EndReason::ClosedInside),
                Ok(0) => return Err(EndReason::Closed),
                Ok(length) => length,
                Err(error) if is_nothing(&error) => break,
                Err(error) => return Err(EndReason::Io(error.kind())),
            };
            self.stream.received(length, &mut |change| sink(Event::Change(change)))?;
            if let Some(replay_ends) = &mut peer.replay_ends {
                *replay_ends = Instant::now() + self.quiet;
            }
        }
        if peer.replay_ends.is_some_and(|moment| moment <= Instant::now()) {
            peer.replay_ends = None;
            sink(Event::ReplayEnds);
        }
        Ok(())
    }
}

fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
