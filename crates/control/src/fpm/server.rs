//! The server: one peer at a time, polled by the thread that owns it.
//!
//! The newest connection wins, once it has something to say: a zebra that was restarted need not wait until the end of the old
//! one is noticed, and a connection that is silent takes nobody's place.

use std::io::{self, ErrorKind, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::net::sockopt;

use crate::accounts;
use crate::change::Change;
use crate::doors;
use crate::fpm::stream::{EndReason, Stream};
use crate::netlink::Reasons;
use crate::readiness::Readiness;

/// Reads of one call of [`Server::receive`]; each gives at most 256 KB, some 4,000 routes.
const READS_PER_CALL: usize = 4;

/// Connections that one call of [`Server::receive`] accepts or refuses.
const ACCEPTS_PER_CALL: usize = 16;

/// How long no connection is accepted after the system refused one, for want of file descriptors say.
const PAUSE: Duration = Duration::from_secs(1);

/// How long a peer may be silent before its host is asked whether it lives, and how often.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// The user that FRR's daemons run as.
const FRR: &str = "frr";

/// Who may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peers {
    /// Programs of this host that run as root, as the router's own user, or as one of these users, by name or number.
    Users(Vec<String>),
    /// Everybody who reaches the address, from other hosts too: anybody can then make routes.
    Anybody,
}

impl Default for Peers {
    /// FRR's user, where there is one.
    fn default() -> Peers {
        Peers::Users(accounts::user(FRR).map(|_| FRR.to_owned()).into_iter().collect())
    }
}

/// Where to listen, for whom, and when a peer has told all.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Where zebra connects to.
    pub address: SocketAddr,
    /// Who may connect.
    pub peers: Peers,
    /// After so long without a message zebra has sent all that it had when it connected.
    pub quiet: Duration,
    /// The time in which a connection has to say something to take the place of the one there is.
    pub greeting: Duration,
}

impl ServerOptions {
    /// For FRR's own user at this address; and as long as daemons need to find a restarted zebra.
    pub fn new(address: SocketAddr) -> ServerOptions {
        let (quiet, greeting) = (Duration::from_secs(30), Duration::from_secs(10));
        ServerOptions { address, peers: Peers::default(), quiet, greeting }
    }
}

impl Default for ServerOptions {
    /// Where FRR connects to by default.
    fn default() -> ServerOptions {
        ServerOptions::new((Ipv4Addr::LOCALHOST, 2620).into())
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
    /// Connections that were closed at once, by reason.
    pub refused: Reasons,
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
        rows.extend(self.refused.iter().map(|(reason, count)| (format!("refused: {reason}"), count)));
        rows.extend(self.ignored.iter().map(|(reason, count)| (format!("ignored: {reason}"), count)));
        rows.extend(self.ended.iter().map(|(reason, count)| (format!("ended: {reason}"), count)));
        rows
    }
}

/// Listens for zebra, in the network namespace of the thread that opened it. Poll [`Server::fd`], then call
/// [`Server::receive`]; drop it to stop. Who does not call it slows zebra down, and loses nothing.
pub struct Server {
    address: SocketAddr,
    /// None while another program has the address.
    listener: Option<TcpListener>,
    readiness: Readiness,
    quiet: Duration,
    greeting: Duration,
    /// The numbers of those who may connect beside root and our own user; `None` for anybody.
    users: Option<Vec<u32>>,
    peer: Option<Peer>,
    /// The newest connection, while there is a peer and it has said nothing.
    silent: Option<Silent>,
    /// When connections are accepted again, while they are not, or the address is tried again.
    accepts_at: Option<Instant>,
    stream: Stream,
    connections: u64,
    refused: Reasons,
    ended: Reasons,
}

struct Peer {
    socket: TcpStream,
    /// When its replay is over, if nothing comes till then.
    replay_ends: Option<Instant>,
}

struct Silent {
    socket: TcpStream,
    address: SocketAddr,
    /// When it is closed.
    until: Instant,
}

impl Server {
    /// Listens, or does so later where another program has the address.
    pub fn open(options: &ServerOptions) -> io::Result<Server> {
        let address = options.address;
        let users = match &options.peers {
            Peers::Anybody => None,
            Peers::Users(names) => {
                let number = |name: &String| {
                    let none = || {
                        io::Error::new(
                            ErrorKind::NotFound,
                            format!("there is no user '{name}' in /etc/passwd"),
                        )
                    };
                    accounts::user(name).ok_or_else(none)
                };
                Some(names.iter().map(number).collect::<io::Result<Vec<u32>>>()?)
            }
        };
        let listener = listen(address)?;
        let mut readiness = Readiness::new()?;
        let mut accepts_at = None;
        match &listener {
            Some(listener) => readiness.watch(listener)?,
            None => {
                accepts_at = Some(Instant::now() + PAUSE);
                readiness.wake_at(accepts_at)?;
                tracing::warn!(
                    event = "fpm",
                    "FPM: another program has {address}; it is tried again every second"
                );
            }
        }
        Ok(Server {
            address,
            listener,
            readiness,
            quiet: options.quiet,
            greeting: options.greeting,
            users,
            peer: None,
            silent: None,
            accepts_at,
            stream: Stream::default(),
            connections: 0,
            refused: Reasons::default(),
            ended: Reasons::default(),
        })
    }

    /// Readable when [`Server::receive`] has something to do; always the same descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.readiness.fd()
    }

    /// Where it listens.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.listener.as_ref().map_or(Ok(self.address), TcpListener::local_addr)
    }

    /// Whether zebra is connected.
    pub fn is_connected(&self) -> bool {
        self.peer.is_some()
    }

    /// What was counted.
    pub fn counters(&self) -> Counters {
        Counters {
            connections: self.connections,
            refused: self.refused.clone(),
            messages: self.stream.messages,
            encapsulated: self.stream.encapsulated,
            ignored: self.stream.ignored.clone(),
            ended: self.ended.clone(),
        }
    }

    /// Receives what there is, a bounded part of it: if there is more, the descriptor stays readable. An error is one of the
    /// system, after which the next call tries again.
    pub fn receive(&mut self, sink: &mut dyn FnMut(Event)) -> io::Result<()> {
        let accepted = self.accept_or_pause(sink);
        self.listen_to_the_silent(sink);
        if self.peer.is_some()
            && let Err(reason) = self.read(sink)
        {
            self.end(reason, sink);
        }
        let moments = [
            self.peer.as_ref().and_then(|peer| peer.replay_ends),
            self.silent.as_ref().map(|silent| silent.until),
            self.accepts_at,
        ];
        self.readiness.wake_at(moments.into_iter().flatten().min())?;
        accepted
    }

    /// Accepts connections. After an error none for a while: the listener stays readable, and would be asked again at once.
    fn accept_or_pause(&mut self, sink: &mut dyn FnMut(Event)) -> io::Result<()> {
        match self.accepts_at {
            Some(moment) if Instant::now() < moment => return Ok(()),
            Some(_) => {
                if self.listener.is_none() {
                    self.accepts_at = Some(Instant::now() + PAUSE);
                    self.listener = listen(self.address)?;
                    let Some(_) = &self.listener else { return Ok(()) };
                    tracing::info!(event = "fpm", "FPM: {} is free now, and listened at", self.address);
                }
                self.listener.iter().try_for_each(|listener| self.readiness.watch(listener))?;
            }
            None => {}
        }
        self.accepts_at = None;
        self.accept(sink).inspect_err(|_| {
            let listener = self.listener.iter();
            if listener.map(|listener| self.readiness.forget(listener)).all(|done| done.is_ok()) {
                self.accepts_at = Some(Instant::now() + PAUSE);
            }
        })
    }

    fn accept(&mut self, sink: &mut dyn FnMut(Event)) -> io::Result<()> {
        for _ in 0..ACCEPTS_PER_CALL {
            let Some(listener) = &self.listener else { return Ok(()) };
            let (socket, address) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
                Err(error) if is_nothing(&error) => return Ok(()),
                Err(error) => return Err(error),
            };
            if let Some(reason) = self.objection(address, socket.local_addr()?) {
                self.refused.count(reason);
                tracing::warn!(event = "fpm", peer = %address, reason, "FPM: connection from {} refused: {reason}", address.ip());
                continue;
            }
            socket.set_nonblocking(true)?;
            // A peer whose host died never says so.
            sockopt::set_socket_keepalive(&socket, true)?;
            sockopt::set_tcp_keepidle(&socket, KEEPALIVE)?;
            sockopt::set_tcp_keepintvl(&socket, KEEPALIVE)?;
            self.readiness.watch(&socket)?;
            if self.peer.is_none() {
                self.take(socket, address, sink);
            } else {
                let until = Instant::now() + self.greeting;
                if self.silent.replace(Silent { socket, address, until }).is_some() {
                    self.refused.count(SAID_NOTHING);
                }
            }
        }
        Ok(())
    }

    /// Why a connection is not taken, if so.
    fn objection(&self, from: SocketAddr, to: SocketAddr) -> Option<&'static str> {
        let users = self.users.as_ref()?;
        match doors::Peer::of_tcp(from, to) {
            peer if peer.is_trusted() => None,
            doors::Peer::User(user) if users.contains(&user) => None,
            doors::Peer::User(_) => Some("from another user"),
            doors::Peer::Host(_) | doors::Peer::Unknown => Some("from an unknown user"),
        }
    }

    /// Has the newest connection take the peer's place when it says something, and closes it when it says nothing for too long.
    fn listen_to_the_silent(&mut self, sink: &mut dyn FnMut(Event)) {
        let Some(Silent { socket, address, until }) = self.silent.take() else { return };
        match socket.peek(&mut [0]) {
            Err(error) if is_nothing(&error) && Instant::now() < until => {
                self.silent = Some(Silent { socket, address, until });
            }
            Ok(1) => {
                if self.peer.is_some() {
                    self.end(EndReason::Replaced, sink);
                }
                self.take(socket, address, sink);
            }
            _ => self.refused.count(SAID_NOTHING),
        }
    }

    fn take(&mut self, socket: TcpStream, address: SocketAddr, sink: &mut dyn FnMut(Event)) {
        self.connections += 1;
        tracing::info!(event = "fpm", peer = %address, state = "connected", "FPM: {address} connected");
        self.stream.start_over();
        self.peer = Some(Peer { socket, replay_ends: Some(Instant::now() + self.quiet) });
        sink(Event::Connected(address));
    }

    fn end(&mut self, reason: EndReason, sink: &mut dyn FnMut(Event)) {
        self.peer = None;
        self.ended.count(reason.name());
        let name = reason.name();
        tracing::warn!(
            event = "fpm",
            state = "gone",
            reason = name,
            "FPM: the connection of zebra ended ({name}); its routes stay until it is back and has told all"
        );
        sink(Event::Disconnected(reason));
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

/// Why the newest connection did not become the peer.
const SAID_NOTHING: &str = "said nothing";

/// Listens; `None` if another program has the address, as any user's may.
fn listen(address: SocketAddr) -> io::Result<Option<TcpListener>> {
    let listener = match TcpListener::bind(address) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => return Ok(None),
        listener => listener.map_err(|error| {
            io::Error::new(error.kind(), format!("listening for FRR (FPM) on {address}: {error}"))
        })?,
    };
    listener.set_nonblocking(true)?;
    Ok(Some(listener))
}

fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::time::Timespec;

    use super::*;

    #[test]
    fn after_an_error_of_the_system_nobody_is_accepted_for_a_while() {
        let address = "127.0.0.1:0".parse().unwrap();
        let mut server = Server::open(&ServerOptions::new(address)).unwrap();
        rustix::net::shutdown(server.listener.as_ref().unwrap(), rustix::net::Shutdown::Both).unwrap();
        for _ in 0..2 {
            let begin = Instant::now();
            assert!(server.receive(&mut |_| {}).is_err());
            let long = Timespec { tv_sec: 60, tv_nsec: 0 };
            let readable = poll(&mut [PollFd::new(&server.fd(), PollFlags::IN)], Some(&long)).unwrap();
            assert_eq!(readable, 1, "it never asks again");
            assert!(begin.elapsed() >= PAUSE, "it asks again at once");
        }
    }
}
