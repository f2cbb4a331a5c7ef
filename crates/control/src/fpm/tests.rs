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
    // A length that reaches into the next message: what follows is not a header.
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
        let options = ServerOptions { quiet, ..ServerOptions::new(address.parse().unwrap()) };
        Listener::with(&options)
    }

    fn with(options: &ServerOptions) -> Listener {
        Listener { server: Server::open(options).unwrap(), events: Vec::new() }
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

    // A silent one takes nobody's place, the next one does as soon as it says something.
    let _silent = TcpStream::connect(listener.address()).unwrap();
    peer.write_all(&zebra_bytes()[..60]).unwrap();
    listener.until("one more change", |events| events.len() == 9);
    let mut newest = TcpStream::connect(listener.address()).unwrap();
    newest.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    listener.until("the end of the newest", |events| events.len() == 12);
    assert_eq!(listener.events[9], Event::Disconnected(EndReason::Replaced));
    assert!(matches!(listener.events[10], Event::Connected(_)));
    assert_eq!(listener.events[11], Event::Disconnected(EndReason::Version(b'G')));
    let mut nothing = Vec::new();
    let _ = newest.read_to_end(&mut nothing);
    let _ = peer.read_to_end(&mut nothing);

    let mut last = TcpStream::connect(listener.address()).unwrap();
    last.write_all(&zebra_bytes()[..60]).unwrap();
    listener.until("the change of the last", |events| events.len() == 14);
    drop(last);
    listener.until("its end", |events| events.len() == 15);
    assert_eq!(listener.events[14], Event::Disconnected(EndReason::ClosedInside));
    let counters = listener.server.counters();
    assert_eq!((counters.connections, counters.messages, counters.ended.total()), (3, 8, 3));
    assert_eq!(counters.refused.iter().collect::<Vec<_>>(), [("said nothing", 1)]);
}

#[test]
fn an_address_that_another_program_has_is_listened_at_later() {
    // A client of 127.0.0.1 that tries again and again cannot come to connect to itself there.
    let stranger = std::net::TcpListener::bind("127.0.0.2:0").unwrap();
    let address = stranger.local_addr().unwrap();
    let mut listener = Listener::with(&ServerOptions::new(address));
    drop(stranger);
    let zebra = std::thread::spawn(move || {
        let begin = Instant::now();
        loop {
            match TcpStream::connect(address) {
                Ok(stream) => return stream,
                Err(error) => assert!(begin.elapsed() < Duration::from_secs(60), "{error}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    listener.until("zebra", |events| matches!(events, [Event::Connected(_)]));
    drop(zebra.join().unwrap());
}

#[test]
fn a_connection_that_says_nothing_is_closed_and_takes_nobody_s_place() {
    let address = "127.0.0.1:0".parse().unwrap();
    let greeting = Duration::from_millis(50);
    let mut listener = Listener::with(&ServerOptions { greeting, ..ServerOptions::new(address) });
    let mut peer = TcpStream::connect(listener.address()).unwrap();
    listener.until("the peer", |events| events.len() == 1);
    let mut silent = TcpStream::connect(listener.address()).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while listener.server.counters().refused.total() == 0 {
        assert!(Instant::now() < deadline, "a silent connection stays");
        let timeout = rustix::time::Timespec { tv_sec: 20, tv_nsec: 0 };
        poll(&mut [PollFd::new(&listener.server.fd(), PollFlags::IN)], Some(&timeout)).unwrap();
        listener.server.receive(&mut |event| listener.events.push(event)).unwrap();
    }
    assert_eq!(silent.read(&mut [0]).unwrap(), 0);
    peer.write_all(&zebra_bytes()).unwrap();
    listener.until("what the peer says", |events| events.len() == 7);
}

/// A program of another user that connects and waits.
fn stranger(to: SocketAddr) -> Child {
    use std::os::unix::process::CommandExt;
    let script =
        format!("exec 3<>/dev/tcp/{}/{}; printf '%b' '\\1\\1' >&3; read -r -u 3", to.ip(), to.port());
    Command::new("bash").args(["-c", &script]).uid(NOBODY).gid(NOBODY).spawn().unwrap()
}

const NOBODY: u32 = 65_534;

#[test]
fn a_user_who_was_not_named_makes_no_routes() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: being another user needs root");
        return;
    }
    let address = "127.0.0.1:0".parse().unwrap();
    for (users, is_taken) in [(Vec::new(), false), (vec![NOBODY.to_string()], true)] {
        let options = ServerOptions { peers: Peers::Users(users), ..ServerOptions::new(address) };
        let mut listener = Listener::with(&options);
        let stranger = stranger(listener.address());
        let deadline = Instant::now() + Duration::from_secs(20);
        let counters = loop {
            listener.server.receive(&mut |event| listener.events.push(event)).unwrap();
            let counters = listener.server.counters();
            if counters.connections + counters.refused.total() > 0 {
                break counters;
            }
            assert!(Instant::now() < deadline, "nobody connects");
            std::thread::sleep(Duration::from_millis(10));
        };
        let refused: Vec<(&str, u64)> = counters.refused.iter().collect();
        let expected: &[(&str, u64)] = if is_taken { &[] } else { &[("from another user", 1)] };
        assert_eq!((counters.connections, &refused[..]), (u64::from(is_taken), expected));
        end(Some(stranger));
    }
    let nobody = Peers::Users(vec!["no-such-user".into()]);
    let error = Server::open(&ServerOptions { peers: nobody, ..ServerOptions::new(address) }).err().unwrap();
    assert_eq!(error.to_string(), "there is no user 'no-such-user' in /etc/passwd");
}

/// A message with one route over so many paths, as large as a message can be.
fn many_paths(paths: usize) -> Vec<u8> {
    let hops: Vec<u8> = [8, 0, 0, 0, 3, 0, 0, 0].repeat(paths);
    // RTA_DST 10.51.0.0, RTA_MULTIPATH.
    let mut attributes = vec![8, 0, 1, 0, 10, 51, 0, 0];
    attributes.extend((4 + hops.len() as u16).to_ne_bytes());
    attributes.extend([9, 0]);
    attributes.extend(hops);
    let mut netlink = bytes("00000000 1800 0105 00000000 00000000 02100000fec4000100000000");
    netlink.extend(attributes);
    let length = netlink.len() as u32;
    netlink[..4].copy_from_slice(&length.to_ne_bytes());
    let mut message = vec![1, 1];
    message.extend((4 + netlink.len() as u16).to_be_bytes());
    message.extend(netlink);
    message
}

#[test]
fn a_route_with_more_paths_than_zebra_has_ends_the_connection() {
    let (most, too_many) = (many_paths(999), many_paths(8_000));
    let (taken, result, _) = changes([&most[..]]);
    assert_eq!((taken.len(), result), (1, Ok(())));
    let (taken, result, _) = changes([&too_many[..]]);
    assert_eq!((taken.len(), result), (0, Err(EndReason::Paths(8_000))));
}

#[test]
fn who_does_not_receive_slows_the_peer_down() {
    let mut listener = Listener::new("127.0.0.1:0", Duration::from_secs(60));
    let mut peer = TcpStream::connect(listener.address()).unwrap();
    listener.until("the peer", |events| events.len() == 1);
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
    /// FRR 10 and newer: it has staticd's configuration.
    has_mgmtd: bool,
    mgmtd: Option<Child>,
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
        let has_mgmtd = FilePath::new("/usr/lib/frr/mgmtd").exists();
        let mut frr = Frr { directory, zebra: None, staticd: None, has_mgmtd, mgmtd: None };
        frr.mgmtd = has_mgmtd.then(|| frr.start("mgmtd", &[]));
        frr.start_zebra();
        frr.staticd = Some(frr.start("staticd", &[]));
        if has_mgmtd {
            frr.configure(routes);
        }
        frr
    }

    /// Types lines of the configuration, as an operator does.
    fn configure(&self, lines: &str) {
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut vtysh = Command::new("vtysh");
        vtysh.arg("--vty_socket").arg(&self.directory).args(["-c", "configure terminal"]);
        lines.lines().for_each(|line| _ = vtysh.args(["-c", line]));
        loop {
            let output = vtysh.output().unwrap();
            if output.status.success() {
                break;
            }
            assert!(Instant::now() < deadline, "{output:?}");
            std::thread::sleep(Duration::from_millis(100));
        }
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
        let mut command = Command::new(FilePath::new("/usr/lib/frr").join(daemon));
        if daemon == "zebra" || !self.has_mgmtd {
            command.arg("-f").arg(file(format!("{daemon}.conf")));
        }
        command
            .args(words)
            .args(["-A", "127.0.0.1", "-P", "0", "--vty_socket"])
            .arg(&self.directory)
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
        end(self.mgmtd.take());
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
