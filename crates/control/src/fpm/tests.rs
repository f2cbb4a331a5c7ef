//! The stream with bytes that a real zebra sent, and the server with a real zebra (FRR 8.4) in a network
//! namespace.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path as FilePath, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use rustix::event::{PollFd, PollFlags, poll};

use super::*;
use crate::change::{Change, Hops, Object, ObjectKind, Route, RouteKind};
use crate::netlink::DecodeError;
use testbed::{in_namespace, ip, veth_pair};

/// FRR 8.4.4: a next hop, a group of two, a route to it, a route to a black hole, and a route replaced by
/// another one, both in one message.
const ZEBRA: &str = "
    01010034 30000000680001050000000000000000 02000b0000000000080001000e000000080006000a0000020800050003000000
    01010038 34000000680001050000000000000000 00000b0000000000080001000f000000
             140002000e000000000000001000000000000000
    01010038 34000000180001050000000000000000 02100000fec4000100000000080001000a330000
             080006001400000008001e000f000000
    01010030 2c000000180001050000000000000000 02100000fec4000600000000080001000a3400000800060014000000
    01010064 2c000000190001040000000000000000 02100000fec4000000000000080001000a3300000800060014000000
             34000000180001050000000000000000 02100000fec4000100000000080001000a330000
             080006001400000008001e0016000000";

/// A route with a label.
const LABELLED: &str = "
    01010044 40000000180001050000000000000000 02100000fec4000100000000080001000a350000
             0800040003000000 0600150001000000 0c0016800800010000064100";

fn zebra_bytes() -> Vec<u8> {
    bytes(ZEBRA)
}

fn bytes(digits: &str) -> Vec<u8> {
    let digits: Vec<u8> = digits.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// What a stream says that comes in these pieces.
fn changes<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Change>, Result<(), EndReason>, bool) {
    let (mut stream, mut changes) = (Stream::default(), Vec::new());
    for piece in pieces {
        stream.room()[..piece.len()].copy_from_slice(piece);
        if let Err(reason) = stream.received(piece.len(), &mut |change| changes.push(change)) {
            return (changes, Err(reason), stream.is_inside());
        }
    }
    (changes, Ok(()), stream.is_inside())
}

#[test]
fn what_zebra_sends_is_understood() {
    let (changes, result, is_inside) = changes([&zebra_bytes()[..]]);
    assert_eq!((result, is_inside), (Ok(()), false));
    let [hop, group, route, hole, gone, replaced] = &changes[..] else { panic!("{changes:#?}") };
    let Change::Object(Object { id: 14, kind: ObjectKind::Path(path) }) = hop else { panic!("{hop:?}") };
    assert_eq!((path.index, path.gateway), (3, Some("10.0.0.2".parse().unwrap())));
    assert_eq!(*group, Change::Object(Object { id: 15, kind: ObjectKind::Group(vec![(14, 1), (16, 1)]) }));
    let Change::Route(route) = route else { panic!("{route:?}") };
    assert_eq!((route.key.table, route.key.metric, route.protocol), (254, 20, 196));
    assert_eq!((route.key.prefix.to_string().as_str(), &route.hops), ("10.51.0.0/16", &Hops::Object(15)));
    let Change::Route(hole) = hole else { panic!("{hole:?}") };
    assert_eq!((hole.kind, &hole.hops), (RouteKind::Blackhole, &Hops::None));
    assert_eq!(*gone, Change::RouteGone(route.key));
    let Change::Route(replaced) = replaced else { panic!("{replaced:?}") };
    assert_eq!(replaced.hops, Hops::Object(22));
}

#[test]
fn labels_are_counted_and_marked() {
    let (mut stream, mut changes, bytes) = (Stream::default(), Vec::new(), bytes(LABELLED));
    stream.room()[..bytes.len()].copy_from_slice(&bytes);
    assert_eq!(stream.received(bytes.len(), &mut |change| changes.push(change)), Ok(()));
    let [Change::Route(route)] = &changes[..] else { panic!("{changes:#?}") };
    assert!(matches!(&route.hops, Hops::Paths(paths) if paths.len() == 1 && paths[0].has_encapsulation));
    assert_eq!(stream.encapsulated, 1);
}

#[test]
fn what_does_not_fit_ends_the_stream_with_its_reason() {
    let good = zebra_bytes();
    let spoilt = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        changes([&bytes[..]]).1
    };
    assert_eq!(spoilt(0, 9), Err(EndReason::Version(9)));
    assert_eq!(spoilt(1, 2), Err(EndReason::Kind(2)));
    assert_eq!(spoilt(3, 19), Err(EndReason::Length(19)));
    // A length that reaches into the next message: what follows is no header.
    assert!(spoilt(3, 0x38).is_err());
    assert_eq!(spoilt(4, 0x31), Err(EndReason::Message(DecodeError::MessageLength)));
    // The first attribute.
    assert_eq!(spoilt(28, 3), Err(EndReason::Message(DecodeError::AttributeFraming)));
    let (changes, result, is_inside) = changes([&good[..good.len() - 1]]);
    assert_eq!((changes.len(), result, is_inside), (4, Ok(()), true));
}

proptest! {
    #[test]
    fn it_does_not_matter_how_the_bytes_are_cut(cuts in prop::collection::vec(1..60usize, 1..40)) {
        let bytes = zebra_bytes();
        let (mut pieces, mut rest) = (Vec::new(), &bytes[..]);
        for &cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, tail) = rest.split_at(cut.min(rest.len()));
            pieces.push(piece);
            rest = tail;
        }
        prop_assert_eq!(changes(pieces), changes([&bytes[..]]));
    }

    #[test]
    fn any_bytes_are_changes_or_a_reason(
        mut bytes in prop::collection::vec(any::<u8>(), 0..300),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        noise: bool,
    ) {
        if !noise {
            bytes = zebra_bytes();
        }
        for (at, value) in damage {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
        }
        let _ = changes([&bytes[..]]);
    }
}

/// A server, and what it told.
struct Listener {
    server: Server,
    events: Vec<Event>,
}

impl Listener {
    fn new(address: &str, quiet: Duration) -> Listener {
        let options = ServerOptions { address: address.parse().unwrap(), quiet };
        Listener { server: Server::open(&options).unwrap(), events: Vec::new() }
    }

    fn address(&self) -> SocketAddr {
        self.server.local_address().unwrap()
    }

    fn until(&mut self, what: &str, is_so: impl Fn(&[Event]) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !is_so(&self.events) {
            assert!(Instant::now() < deadline, "{what}: {:#?}", self.events);
            let timeout = rustix::time::Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
            poll(&mut [PollFd::new(&self.server.fd(), PollFlags::IN)], Some(&timeout)).unwrap();
            self.server.receive(&mut |event| self.events.push(event)).unwrap();
        }
    }

    /// The last word on the main table's route to this prefix.
    fn route(events: &[Event], prefix: &str) -> Option<Route> {
        let prefix: ipnet::IpNet = prefix.parse().unwrap();
        let mut last = None;
        for event in events {
            match event {
                Event::Change(Change::Route(route)) if route.key.prefix == prefix => {
                    last = Some(route.clone())
                }
                Event::Change(Change::RouteGone(key)) if key.prefix == prefix => last = None,
                _ => {}
            }
        }
        last
    }
}

#[test]
fn one_peer_at_a_time_and_every_end_has_its_reason() {
    let mut listener = Listener::new("127.0.0.1:0", Duration::from_millis(50));
    let mut peer = TcpStream::connect(listener.address()).unwrap();
    peer.write_all(&zebra_bytes()).unwrap();
    listener.until("the end of the replay", |events| events.contains(&Event::ReplayEnds));
    assert!(matches!(listener.events[0], Event::Connected(_)));
    assert_eq!(listener.events.len(), 1 + 6 + 1);

    // A second one waits till the first one is gone.
    let mut second = TcpStream::connect(listener.address()).unwrap();
    second.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    peer.write_all(&zebra_bytes()[..60]).unwrap();
    listener.until("one more change", |events| events.len() == 9);
    drop(peer);
    listener.until("the end of the first", |events| events.len() >= 10);
    assert_eq!(listener.events[9], Event::Disconnected(EndReason::ClosedInside));
    listener.until("the end of the second", |events| events.len() == 12);
    assert_eq!(listener.events[11], Event::Disconnected(EndReason::Version(b'G')));
    let mut nothing = Vec::new();
    let _ = second.read_to_end(&mut nothing);

    drop(TcpStream::connect(listener.address()).unwrap());
    listener.until("the end of the third", |events| {
        events.last() == Some(&Event::Disconnected(EndReason::Closed))
    });
    let counters = listener.server.counters();
    assert_eq!((counters.connections, counters.messages, counters.ended.total()), (3, 7, 3));
}

#[test]
fn who_does_not_receive_slows_the_peer_down() {
    let mut listener = Listener::new("127.0.0.1:0", Duration::from_secs(60));
    let mut peer = TcpStream::connect(listener.address()).unwrap();
    peer.set_nonblocking(true).unwrap();
    let (block, mut sent) = (zebra_bytes().repeat(500), 0);
    loop {
        match peer.write(&block[sent % block.len()..]) {
            Ok(length) => sent += length,
            Err(error) => break assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
        }
    }
    drop(peer);
    listener.until("all of it", |events| matches!(events.last(), Some(Event::Disconnected(_))));
    let whole = sent / zebra_bytes().len() * 6;
    assert!((whole..whole + 6).contains(&(listener.events.len() - 2)), "{sent} bytes");
}

/// zebra and staticd with files and sockets of their own, in the network namespace of the thread.
struct Frr {
    directory: PathBuf,
    zebra: Option<Child>,
    staticd: Option<Child>,
}

impl Frr {
    fn new(fpm: SocketAddr, routes: &str) -> Frr {
        let directory = std::env::temp_dir().join(format!("brickway-control-frr-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        // FRR's daemons give up root.
        let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(&directory, everybody).unwrap();
        std::fs::write(
            directory.join("zebra.conf"),
            format!("fpm address {} port {}\n", fpm.ip(), fpm.port()),
        )
        .unwrap();
        std::fs::write(directory.join("staticd.conf"), routes).unwrap();
        let mut frr = Frr { directory, zebra: None, staticd: None };
        frr.start_zebra();
        frr.staticd = Some(frr.start("staticd", &[]));
        frr
    }

    fn start_zebra(&mut self) {
        self.zebra = Some(self.start("zebra", &["-M", "dplane_fpm_nl"]));
        let socket = self.directory.join("zserv.api");
        let deadline = Instant::now() + Duration::from_secs(60);
        while !socket.exists() {
            assert!(Instant::now() < deadline, "zebra makes no socket");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn stop_zebra(&mut self) {
        end(self.zebra.take());
        let _ = std::fs::remove_file(self.directory.join("zserv.api"));
    }

    fn start(&self, daemon: &str, words: &[&str]) -> Child {
        let file = |name: String| self.directory.join(name).into_os_string();
        Command::new(FilePath::new("/usr/lib/frr").join(daemon))
            .args(words)
            .args(["-A", "127.0.0.1", "-P", "0", "--vty_socket"])
            .arg(&self.directory)
            .arg("-f")
            .arg(file(format!("{daemon}.conf")))
            .arg("-i")
            .arg(file(format!("{daemon}.pid")))
            .arg("-z")
            .arg(file("zserv.api".into()))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }
}

impl Drop for Frr {
    fn drop(&mut self) {
        end(self.staticd.take());
        end(self.zebra.take());
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn end(child: Option<Child>) {
    if let Some(mut child) = child {
        let _ = child.kill();
        let _ = child.wait();
    }
}

#[test]
fn a_real_zebra_sends_its_routes_dies_and_sends_them_again() {
    testbed::is_installed("/usr/lib/x86_64-linux-gnu/frr/modules/dplane_fpm_nl.so");
    in_namespace(|| {
        veth_pair("left0", "right0", 1);
        ip("addr add 10.0.0.1/24 dev left0");
        ip("addr add 2001:db8::1/64 dev left0 nodad");
        let mut listener = Listener::new("127.0.0.1:2620", Duration::from_millis(500));
        let mut frr = Frr::new(
            listener.address(),
            "ip route 10.50.0.0/16 10.0.0.2\nip route 10.51.0.0/16 10.0.0.2\nip route 10.51.0.0/16 10.0.0.3\n\
             ip route 10.52.0.0/16 blackhole\nipv6 route 2001:db8:50::/48 2001:db8::2\n",
        );
        let prefixes = ["10.50.0.0/16", "10.51.0.0/16", "10.52.0.0/16", "2001:db8:50::/48"];
        let has_all =
            |events: &[Event]| prefixes.iter().all(|prefix| Listener::route(events, prefix).is_some());
        for round in 0..2 {
            listener.until("the routes and the end of the replay", |events| {
                has_all(events) && events.contains(&Event::ReplayEnds)
            });
            let events = &listener.events;
            let object = |id| {
                events.iter().rev().find_map(|event| match event {
                    Event::Change(Change::Object(object)) if object.id == id => Some(object.kind.clone()),
                    _ => None,
                })
            };
            let hops = |prefix| Listener::route(events, prefix).unwrap().hops;
            let Hops::Object(group) = hops("10.51.0.0/16") else { panic!("{events:#?}") };
            let Some(ObjectKind::Group(members)) = object(group) else { panic!("{events:#?}") };
            let mut gateways: Vec<String> = members
                .iter()
                .map(|&(id, _)| match object(id) {
                    Some(ObjectKind::Path(path)) => path.gateway.unwrap().to_string(),
                    other => panic!("{other:?}"),
                })
                .collect();
            gateways.sort();
            assert_eq!(gateways, ["10.0.0.2", "10.0.0.3"], "round {round}");
            assert_eq!(Listener::route(events, "10.52.0.0/16").unwrap().kind, RouteKind::Blackhole);
            assert_eq!(listener.server.counters().ignored.total(), 0);

            if round == 0 {
                frr.stop_zebra();
                listener.until("zebra goes", |events| matches!(events.last(), Some(Event::Disconnected(_))));
                listener.events.clear();
                frr.start_zebra();
                // Rather than wait until staticd looks for zebra again.
                end(frr.staticd.take());
                frr.staticd = Some(frr.start("staticd", &[]));
            }
        }
        assert_eq!(listener.server.counters().connections, 2);
    });
}
