//! =c
//! Socket(TYPE, IP, PORT [, LOCALIP, LOCALPORT, I<keywords> CLIENT, SNAPLEN, NODELAY, SNDBUF, RCVBUF, TIMESTAMP, ALLOW, DENY, VERBOSE])
//! Socket(TYPE, FILENAME [, LOCALFILENAME, I<keywords>])
//!
//! =s comm
//! exchanges packets' data with a program over a socket
//!
//! =d
//! Packets of the input are sent over a socket of this host. Data that the socket receives leave by
//! the output, with no headers. TYPE is TCP or UDP, with an address and a port, or UNIX or
//! UNIX_DGRAM, with a file. A stream (TCP, UNIX) has no borders between packets. Data that arrive
//! at once are one packet.
//!
//! A server waits at the address or file. Of streams it serves one client at a time, and answers to
//! datagrams go to the sender of the last one. A client connects to the address or file. With
//! LOCALIP and LOCALPORT, or LOCALFILENAME, it does so from there. A UDP client with the IP 0.0.0.0
//! sends every packet to the packet's own destination annotation.
//!
//! The input is agnostic. A stream that is slower than its input keeps 256 KiB. Pulled, it then
//! takes nothing. Pushed, further packets are dropped as "socket busy". Other reasons are "nobody
//! is connected" and "socket error".
//!
//! Keyword arguments are:
//!
//! =over 8
//!
//! =item CLIENT
//!
//! Boolean. Whether it is a client. By default it is where it has no output, or where it has a local address or file.
//!
//! =item SNAPLEN
//!
//! Most bytes of a packet that is received. 2048 by default.
//!
//! =item NODELAY
//!
//! Boolean. False lets TCP wait for more to send. True by default.
//!
//! =item SNDBUF, RCVBUF
//!
//! Sizes of the socket's buffers in bytes.
//!
//! =item TIMESTAMP
//!
//! Boolean. Whether packets carry the time when they came. True by default.
//!
//! =item ALLOW, DENY
//!
//! Names of IP lookup elements (RadixIPLookup ...). A server takes clients, and datagrams, from addresses that ALLOW has a route
//! for, and from those that DENY has none for.
//!
//! =item VERBOSE
//!
//! Boolean. Whether opened and closed connections are reported. False by default.
//!
//! =back
//!
//! On a router of several workers the first one receives, all send.
//!
//! =e
//!   Socket(TCP, 0.0.0.0, 8000) -> ...;  ... -> Socket(UDP, 192.0.2.1, 9000);
//!
//! =a FromSocket, ToSocket, ChatterSocket
//!
//! =c
//! FromSocket(TYPE, IP, PORT [, LOCALIP, LOCALPORT, I<keywords>])
//! FromSocket(TYPE, FILENAME [, LOCALFILENAME, I<keywords>])
//!
//! =s comm
//! receives packets' data from a program over a socket
//!
//! =d
//! A Socket without an input, with the same arguments. It is a server unless CLIENT says otherwise.
//!
//! =e
//!   FromSocket(UDP, 0.0.0.0, 9000) -> ...
//!
//! =a Socket, ToSocket
//!
//! =c
//! ToSocket(TYPE, IP, PORT [, LOCALIP, LOCALPORT, I<keywords>])
//! ToSocket(TYPE, FILENAME [, LOCALFILENAME, I<keywords>])
//!
//! =s comm
//! sends packets' data to a program over a socket
//!
//! =d
//! A Socket without an output, with the same arguments. It is a client unless CLIENT says otherwise.
//!
//! =e
//!   ... -> ToSocket(UDP, 192.0.2.1, 9000);
//!
//! =a Socket, FromSocket

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use elements::devices::Unopened;
use graph::services::{TcpPort, UdpPort};
use graph::{Arguments, Class, ConfigError, Context, Element, Setup, TaskStatus};
use packet::Batch;

use super::endpoint::{Endpoint, Line, Place, Plan, Received};

pub(crate) static CLASS: Class = Class {
    name: "Socket",
    ports: "0-1/0-1",
    processing: "a/h",
    flow: "x/y",
    manual: graph::manual!("socket.rs", "Socket"),
    make,
    ..Class::DEFAULT
};

pub(crate) static FROM: Class =
    Class { name: "FromSocket", ports: "0/1", manual: graph::manual!("socket.rs", "FromSocket"), ..CLASS };

pub(crate) static TO: Class =
    Class { name: "ToSocket", ports: "1/0", manual: graph::manual!("socket.rs", "ToSocket"), ..CLASS };

/// The types of sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Tcp,
    Udp,
    Unix,
    UnixDatagram,
}

impl Kind {
    fn read(arguments: &mut Arguments) -> Result<Self, ConfigError> {
        let text: String = arguments.required("TYPE")?;
        Ok(match text.to_ascii_uppercase().as_str() {
            "TCP" => Self::Tcp,
            "UDP" => Self::Udp,
            "UNIX" => Self::Unix,
            "UNIX_DGRAM" => Self::UnixDatagram,
            _ => {
                return Err(
                    format!("unknown socket type '{text}'; expected TCP, UDP, UNIX or UNIX_DGRAM").into()
                );
            }
        })
    }

    fn port(self, arguments: &mut Arguments, name: &'static str) -> Result<Option<u16>, ConfigError> {
        Ok(match self {
            Self::Udp => arguments.optional::<UdpPort>(name)?.map(|UdpPort(port)| port),
            _ => arguments.optional::<TcpPort>(name)?.map(|TcpPort(port)| port),
        })
    }

    /// Both places.
    fn places(self, arguments: &mut Arguments) -> Result<(Place, Option<Place>), ConfigError> {
        if matches!(self, Self::Unix | Self::UnixDatagram) {
            let file: String = arguments.required("FILENAME")?;
            let local: Option<String> = arguments.optional("LOCALFILENAME")?;
            return Ok((Place::File(file.into()), local.map(|local| Place::File(local.into()))));
        }
        let address: Ipv4Addr = arguments.required("IP")?;
        let port =
            self.port(arguments, "PORT")?.ok_or_else(|| "missing argument 3: PORT is required".to_owned())?;
        let local: Option<Ipv4Addr> = arguments.optional("LOCALIP")?;
        let local_port = self.port(arguments, "LOCALPORT")?.unwrap_or(0);
        let place = Place::Ip(SocketAddrV4::new(address, port));
        Ok((place, local.map(|local| Place::Ip(SocketAddrV4::new(local, local_port)))))
    }
}

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let has_output = setup.outputs() > 0;
    let arguments = &mut setup.arguments;
    let kind = Kind::read(arguments)?;
    let (place, local) = kind.places(arguments)?;
    let is_client = arguments.keyword("CLIENT")?.unwrap_or(local.is_some() || !has_output);
    let snap_length: usize = arguments.keyword_or("SNAPLEN", 2048)?;
    let no_delay = arguments.keyword_or("NODELAY", true)?;
    let send_buffer = arguments.keyword("SNDBUF")?;
    let receive_buffer = arguments.keyword("RCVBUF")?;
    let timestamp = arguments.keyword_or("TIMESTAMP", true)?;
    let allow: Option<String> = arguments.keyword("ALLOW")?;
    let deny: Option<String> = arguments.keyword("DENY")?;
    let verbose = arguments.keyword_or("VERBOSE", false)?;
    arguments.finish()?;
    if snap_length == 0 {
        return Err("SNAPLEN: expected 1 or more bytes, got 0".to_owned().into());
    }
    for name in [&allow, &deny].into_iter().flatten() {
        if setup.find(name).is_none() {
            return Err(format!("no element named '{name}'").into());
        }
    }
    if setup.is_check() {
        return Ok(Box::new(Unopened));
    }
    let plan = Plan {
        is_stream: matches!(kind, Kind::Tcp | Kind::Unix),
        is_client,
        place,
        local,
        no_delay,
        send_buffer,
        receive_buffer,
    };
    let endpoint = setup.shared_by_copies(|| {
        let place = plan.place.clone();
        Endpoint::open(plan).map_err(|error| ConfigError::new(format!("{}: {error}", describe(&place))))
    })?;
    let line = endpoint.line();
    Ok(Box::new(Socket {
        endpoint,
        line,
        receives: setup.works_here(),
        is_datagram: matches!(kind, Kind::Udp | Kind::UnixDatagram),
        has_output,
        pulls: setup.inputs() > 0 && setup.input_is_pull(0),
        snap_length,
        timestamp,
        allow,
        deny,
        checks: !is_client,
        verbose,
        may_pull: false,
        name: setup.name().to_owned(),
    }))
}

fn describe(place: &Place) -> String {
    match place {
        Place::Ip(address) => address.to_string(),
        Place::File(path) => path.display().to_string(),
    }
}

struct Socket {
    endpoint: Arc<Endpoint>,
    /// The line that this copy receives from.
    line: Option<Arc<Line>>,
    receives: bool,
    is_datagram: bool,
    has_output: bool,
    pulls: bool,
    snap_length: usize,
    timestamp: bool,
    allow: Option<String>,
    deny: Option<String>,
    /// Whether ALLOW and DENY are asked.
    checks: bool,
    verbose: bool,
    /// Whether a pull may find packets of which nothing in the kernel tells.
    may_pull: bool,
    name: String,
}

/// Whether a server takes what comes from `address`.
fn is_welcome(cx: &mut Context, allow: Option<&String>, deny: Option<&String>, address: Ipv4Addr) -> bool {
    let mut has_route = |name: &String| {
        let found = cx.call_read(&format!("{name}.lookup"), &address.to_string());
        found.is_ok_and(|output| output.trim() != "-1")
    };
    allow.is_some_and(&mut has_route) || !deny.is_some_and(&mut has_route)
}

impl Socket {
    fn tell(&self, cx: &Context, what: &str) {
        if self.verbose {
            cx.message(&format!("{}: {what}", self.name));
        }
    }

    /// Takes a client, if there is none and one waits.
    fn accept(&mut self, cx: &mut Context) {
        if self.line.is_some() {
            return;
        }
        let (allow, deny) = (self.allow.as_ref(), self.deny.as_ref());
        match self.endpoint.accept(|address| is_welcome(cx, allow, deny, address)) {
            Ok(None) => {}
            Ok(Some((line, from))) => {
                self.line = Some(line);
                self.tell(cx, &format!("opened connection from {from}"));
            }
            Err(error) => self.tell(cx, &format!("accept: {error}")),
        }
    }

    /// Receives; how many packets.
    fn receive(&mut self, cx: &mut Context) -> usize {
        self.accept(cx);
        let Some(line) = self.line.clone() else { return 0 };
        let mut batch = cx.spare_batch();
        let burst = cx.burst();
        while batch.len() < burst {
            let Some(mut packet) = cx.allocate() else { break };
            let room = self.snap_length.min(packet.len() + packet.tailroom());
            let Some(bytes) = packet.reset(room) else { break };
            match self.endpoint.receive(&line, bytes) {
                Received::Bytes(count, from) => {
                    packet.truncate(count);
                    let (allow, deny) = (self.allow.as_ref(), self.deny.as_ref());
                    if let Some(from) = from.filter(|_| self.checks)
                        && !is_welcome(cx, allow, deny, from)
                    {
                        cx.drop(packet, "not allowed");
                        continue;
                    }
                    if self.timestamp {
                        packet.set_timestamp_ns(cx.now_ns());
                    }
                    batch.push(packet);
                }
                Received::Nothing => {
                    cx.pool().free_packet(packet);
                    break;
                }
                Received::Closed => {
                    cx.pool().free_packet(packet);
                    self.endpoint.close();
                    self.line = None;
                    self.tell(cx, "closed connection");
                    break;
                }
            }
        }
        let count = batch.len();
        if self.has_output {
            cx.emit_batch(0, &mut batch)
        } else {
            cx.free(&mut batch)
        }
        cx.recycle(batch);
        count
    }

    fn send(&self, cx: &mut Context, batch: &mut Batch) {
        let mut packets = std::mem::replace(batch, cx.spare_batch());
        for packet in packets.drain() {
            match self.endpoint.send(packet.data(), packet.annotations().destination_ip()) {
                Ok(()) => cx.pool().free_packet(packet),
                Err(reason) => cx.drop(packet, reason),
            }
        }
        cx.recycle(packets);
    }
}

impl Element for Socket {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        if self.receives || self.pulls {
            cx.wake();
        }
        Ok(())
    }

    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        self.send(cx, batch);
        if !self.is_datagram {
            cx.wake();
        }
    }

    fn task(&mut self, cx: &mut Context) -> TaskStatus {
        let received = if self.receives { self.receive(cx) } else { 0 };
        let has_room = self.is_datagram || self.endpoint.flush();
        let mut moved = received > 0;
        if self.pulls && has_room && (self.is_datagram || self.endpoint.line().is_some()) {
            let mut batch = cx.spare_batch();
            let burst = cx.burst();
            cx.pull(0, &mut batch, burst);
            moved |= !batch.is_empty();
            self.send(cx, &mut batch);
            cx.recycle(batch);
        }
        self.may_pull = !has_room || self.pulls && cx.upstream_active();
        match (moved, self.receives || self.may_pull) {
            (true, _) => TaskStatus::Busy,
            (false, true) => TaskStatus::Idle,
            (false, false) => TaskStatus::Asleep,
        }
    }

    fn wait_fds<'a>(&'a self, fds: &mut Vec<BorrowedFd<'a>>) -> bool {
        let fd = self.line.as_ref().map(|line| line.fd()).or_else(|| self.endpoint.listener_fd());
        fds.extend(fd);
        // A client whose server has closed waits for nothing.
        !self.may_pull
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::testing::until;
    use graph::testing::{Bench, configure};
    use testbed::Folder;

    /// Both ends in one router: what goes in at either comes out at the other.
    fn both_ways(server: &str, client: &str) {
        let config = format!(
            "a :: TestInput -> s :: Socket({server}) -> from_client :: TestOutput;
             b :: TestInput -> c :: Socket({client}, CLIENT true) -> from_server :: TestOutput"
        );
        let mut bench = Bench::new(&crate::registry(), &config);
        let mut text = Vec::new();
        bench.push("b", &[b"question"]);
        until(&mut bench, |bench| {
            bench.taken("from_client").iter().for_each(|data| text.extend_from_slice(data));
            text == b"question"
        });
        text.clear();
        bench.push("a", &[b"answer"]);
        until(&mut bench, |bench| {
            bench.taken("from_server").iter().for_each(|data| text.extend_from_slice(data));
            text == b"answer"
        });
    }

    /// A port that nobody has.
    fn free_port() -> u16 {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    }

    #[test]
    fn tcp_and_udp() {
        let place = format!("127.0.0.1, {}", free_port());
        both_ways(&format!("TCP, {place}"), &format!("TCP, {place}, 127.0.0.1, 0"));
        let place = format!("127.0.0.1, {}", free_port());
        both_ways(&format!("UDP, {place}"), &format!("UDP, {place}"));
    }

    #[test]
    fn unix_sockets() {
        let folder = Folder::new();
        let (stream, one, two) = (folder.file("stream"), folder.file("one"), folder.file("two"));
        both_ways(&format!("UNIX, {stream}"), &format!("UNIX, {stream}"));
        assert!(!std::path::Path::new(&stream).exists(), "it goes with the socket");
        both_ways(&format!("UNIX_DGRAM, {one}"), &format!("UNIX_DGRAM, {one}, {two}"));
    }

    #[test]
    fn who_is_not_allowed_is_not_heard() {
        let place = format!("UDP, 127.0.0.1, {}", free_port());
        let config = format!(
            "b :: TestInput -> ToSocket({place}); f :: FromSocket({place}, DENY deny) -> out :: TestOutput;
             c :: TestInput -> Socket(UDP, 0.0.0.0, 9);
             i :: Idle -> deny :: RadixIPLookup(127.0.0.0/8 0) -> Discard"
        );
        let mut bench = Bench::new(&crate::registry(), &config);
        bench.push("b", &[b"hello"]);
        until(&mut bench, |bench| bench.drops("f", "not allowed") == 1);
        assert!(bench.taken("out").is_empty());
    }

    #[test]
    fn mistakes() {
        let error = |arguments: &str| configure(&CLASS, arguments).unwrap_err().remove(0);
        assert!(error("SCTP, 1.2.3.4, 5").starts_with("unknown socket type 'SCTP'"));
        assert!(error("TCP, 1.2.3.4").contains("PORT is required"));
        assert!(error("UDP, 1.2.3.4, 5, ALLOW nobody").contains("no element named 'nobody'"));
        assert!(error("UNIX, /no/such/folder/socket, CLIENT false").contains("/no/such/folder/socket"));
    }
}
