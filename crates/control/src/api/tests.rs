//! Client and server over a real socket, with a backend that makes its answers up.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::*;

/// Answers with as many routes as it was made with, and counts how many it could send.
#[derive(Default)]
struct Fake {
    routes: u32,
    sent: AtomicU64,
}

fn route(number: u32) -> RouteRow {
    let address = IpAddr::from((number << 8).to_be_bytes());
    let path = PathRow {
        gateway: Some([10, 0, 0, 1].into()),
        interface: if number.is_multiple_of(2) { "eth0" } else { "eth1" }.into(),
        weight: 1,
        is_usable: true,
    };
    RouteRow {
        prefix: ipnet::IpNet::new(address, 24).unwrap(),
        table: 254,
        kind: "unicast".into(),
        protocol: "bgp".into(),
        source: "netlink".into(),
        metric: 20,
        object: None,
        paths: vec![path],
        is_in_force: true,
        is_fast: true,
    }
}

impl Backend for Fake {
    fn answer(&self, request: &Request, rows: &mut Rows<'_>) -> Result<(), Unanswered> {
        match request {
            Request::Show(Show::Routes(_)) => {
                for number in 0..self.routes {
                    rows.send(route(number))?;
                    self.sent.fetch_add(1, Ordering::SeqCst);
                }
                Ok(())
            }
            Request::Show(Show::Handlers(HandlerFilter { name: Some(name) })) => {
                Ok(rows.send(HandlerRow { name: name.clone(), value: Some("1\n2".into()) })?)
            }
            Request::Show(Show::Drift(_)) => {
                rows.send(TextRow { text: "first".into() })?;
                Err("the table vanished".into())
            }
            Request::Show(_) | Request::Table(_) => Ok(()),
            Request::Do(_) => Err("not now".into()),
        }
    }
}

/// A path for a socket of one test.
fn socket_path() -> PathBuf {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("brickway-api-{}-{number}.sock", std::process::id()))
}

fn start(fake: Fake) -> (Server, Arc<Fake>) {
    let fake = Arc::new(fake);
    (Server::start(&ServerOptions::new(socket_path()), fake.clone()).unwrap(), fake)
}

fn ask(server: &Server, request: &Request) -> Vec<Result<String, String>> {
    let mut client = Client::connect(server.path()).unwrap();
    match client.ask(request) {
        Ok(answer) => answer.map(|row| row.map_err(|error| error.to_string())).collect(),
        Err(error) => vec![Err(error.to_string())],
    }
}

/// What a plain program reads in answer to these bytes.
fn say(server: &Server, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(server.path()).unwrap();
    // The server may have had enough of us already.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut bytes = Vec::new();
    // A server that closes with some of our bytes unread resets the connection; what came before that counts.
    if let Err(error) = stream.read_to_end(&mut bytes) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
    String::from_utf8(bytes).unwrap()
}

fn routes(filter: RouteFilter) -> Request {
    Request::Show(Show::Routes(filter))
}

#[test]
fn many_rows_come_one_by_one_and_filtered() {
    let (server, _) = start(Fake { routes: 20_000, ..Fake::default() });
    let rows = ask(&server, &routes(RouteFilter::default()));
    assert_eq!(rows.len(), 20_000);
    let last: RouteRow = serde_json::from_str(rows[19_999].as_ref().unwrap()).unwrap();
    assert_eq!(last, route(19_999));
    let filter = RouteFilter { interface: Some("eth1".into()), ..RouteFilter::default() };
    assert_eq!(ask(&server, &routes(filter)).len(), 10_000);
    let within = Some("0.0.16.0/20".parse().unwrap());
    assert_eq!(ask(&server, &routes(RouteFilter { within, ..RouteFilter::default() })).len(), 16);
}

#[test]
fn the_bytes_are_those_of_the_description() {
    let (server, _) = start(Fake { routes: 1, ..Fake::default() });
    let text = say(&server, b"{\"version\":1,\"show\":\"routes\"}\n{\"version\":1,\"show\":\"acl\"}\n");
    let expected = "{\"version\":1,\"ok\":\"routes\"}\n{\"row\":{\"prefix\":\"0.0.0.0/24\",\"table\":254,\
        \"kind\":\"unicast\",\"protocol\":\"bgp\",\"source\":\"netlink\",\"metric\":20,\"object\":null,\"paths\":\
        [{\"gateway\":\"10.0.0.1\",\"interface\":\"eth0\",\"weight\":1,\"is_usable\":true}],\"is_in_force\":true,\
        \"is_fast\":true}}\n{\"end\":1}\n{\"version\":1,\"ok\":\"acl\"}\n{\"end\":0}\n";
    assert_eq!(text, expected);
}

#[test]
fn refusals_are_told_before_and_amid_the_rows() {
    let (server, _) = start(Fake::default());
    assert_eq!(ask(&server, &Request::Do(Action::Reload {})), [Err("not now".to_owned())]);
    let rows = ask(&server, &Request::Show(Show::Drift(NoFilter {})));
    assert_eq!(rows, [Ok("{\"text\":\"first\"}".to_owned()), Err("the table vanished".to_owned())]);
    // The connection lives on after a refusal.
    let mut client = Client::connect(server.path()).unwrap();
    assert!(matches!(client.ask(&Request::Do(Action::Reload {})), Err(ClientError::Refused(_))));
    let handler = Show::Handlers(HandlerFilter { name: Some("a.b".into()) });
    let rows: Vec<_> = client.ask(&Request::Show(handler)).unwrap().map(Result::unwrap).collect();
    assert_eq!(rows, [r#"{"name":"a.b","value":"1\n2"}"#]);
}

#[test]
fn of_routers_that_begin_at_the_same_moment_one_has_the_socket() {
    for _ in 0..30 {
        let path = socket_path();
        // What a router left behind that is no more.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let barrier = std::sync::Barrier::new(4);
        let begin = || {
            barrier.wait();
            Server::start(&ServerOptions::new(&path), Arc::new(Fake::default()))
        };
        let servers: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(begin)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let running =
            servers.iter().filter(|server| matches!(server, Err(ServerError::Running { .. }))).count();
        assert_eq!((servers.iter().filter(|server| server.is_ok()).count(), running), (1, 3), "{servers:?}");
    }
}

#[test]
fn other_users_cannot_take_the_turn_of_a_router_that_begins() {
    use std::os::unix::fs::PermissionsExt;
    let (server, _) = start(Fake::default());
    let lock = server.path().with_file_name(".brickway.lock");
    assert_eq!(std::fs::metadata(lock).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn garbage_and_half_lines_hurt_nobody() {
    let (server, _) = start(Fake::default());
    assert!(say(&server, b"\xff\xfe\n").contains("not a JSON object"));
    assert!(say(&server, b"\n").contains("not a JSON object"));
    assert_eq!(say(&server, b"{\"version\":1,\"show\":\"acl\"}"), "");
    let long = say(&server, &vec![b'x'; 3 << 20]);
    assert!(long.is_empty() || long.contains("a line has at most 1048576 bytes"), "{long}");
    let deep = [b"{\"version\":".to_vec(), vec![b'['; 100_000], vec![b'\n']].concat();
    assert!(say(&server, &deep).contains("recursion limit"), "{}", say(&server, &deep));
    assert!(say(&server, b"{\"version\":1,\"show\":\"acl\"}\n").contains("\"end\":0"));
}

#[test]
fn who_does_not_read_is_cut_off() {
    let fake = Arc::new(Fake { routes: u32::MAX, ..Fake::default() });
    let options =
        ServerOptions { send_timeout: Duration::from_millis(50), ..ServerOptions::new(socket_path()) };
    let server = Server::start(&options, fake.clone()).unwrap();
    let mut stream = UnixStream::connect(server.path()).unwrap();
    stream.write_all(routes(RouteFilter::default()).to_line().as_bytes()).unwrap();
    let begin = Instant::now();
    let mut before = u64::MAX;
    while before != fake.sent.load(Ordering::SeqCst) || before == 0 {
        before = fake.sent.load(Ordering::SeqCst);
        assert!(begin.elapsed() < Duration::from_secs(60), "it still sends to somebody who does not read");
        std::thread::sleep(Duration::from_millis(200));
    }
    // The answer has no end, and a client says so.
    let lines: Vec<String> = BufReader::new(stream).lines().map(Result::unwrap).collect();
    assert!(lines.len() > 10 && !lines.last().unwrap().contains("\"end\""));
}

#[test]
fn connections_are_few_and_impatiently_waited_for() {
    let options = ServerOptions { patience: Duration::from_millis(300), ..ServerOptions::new(socket_path()) };
    let server = Server::start(&options, Arc::new(Fake::default())).unwrap();
    let held: Vec<UnixStream> = (0..8).map(|_| UnixStream::connect(server.path()).unwrap()).collect();
    let busy = ask(&server, &Request::Show(Show::Workers(NoFilter {})));
    assert_eq!(busy, [Err("busy: you have 8 connections, or all are taken; try again".to_owned())]);
    // They say nothing, so their places are free again soon.
    let begin = Instant::now();
    while !ask(&server, &Request::Show(Show::Workers(NoFilter {}))).is_empty() {
        assert!(begin.elapsed() < Duration::from_secs(60), "silent clients keep their places");
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(held);
}

#[test]
fn one_router_a_socket_and_what_a_dead_one_left() {
    let (server, _) = start(Fake::default());
    let options = ServerOptions::new(server.path());
    let error = Server::start(&options, Arc::new(Fake::default())).unwrap_err();
    let expected = format!("(process {}); stop it, or give", std::process::id());
    assert!(error.to_string().contains(&expected), "{error}");
    assert_eq!(std::fs::metadata(server.path()).unwrap().permissions().mode() & 0o777, 0o600);
    drop(server);
    assert!(!options.path.exists());
    assert!(matches!(Client::connect(&options.path), Err(ClientError::NotRunning(_))));

    // As after `kill -9`: the file is there, nobody listens.
    drop(UnixListener::bind(&options.path).unwrap());
    assert!(options.path.exists());
    assert!(matches!(Client::connect(&options.path), Err(ClientError::NotRunning(_))));
    drop(Server::start(&options, Arc::new(Fake::default())).unwrap());

    std::fs::write(&options.path, "not a socket").unwrap();
    let error = Server::start(&options, Arc::new(Fake::default())).unwrap_err();
    assert!(matches!(error, ServerError::NoSocket(_)));
    assert_eq!(std::fs::read_to_string(&options.path).unwrap(), "not a socket");
    std::fs::remove_file(&options.path).unwrap();

    let nobody = ServerOptions { write_group: Some("no-such-group".into()), ..options.clone() };
    let error = Server::start(&nobody, Arc::new(Fake::default())).unwrap_err().to_string();
    assert_eq!(error, "there is no group 'no-such-group' in /etc/group; its number will do too");
}

/// A router of another time that answers any request with these lines.
fn answered_with(lines: &'static str) -> String {
    let path = socket_path();
    let listener = UnixListener::bind(&path).unwrap();
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).unwrap();
        stream.write_all(lines.as_bytes()).unwrap();
    });
    let mut client = Client::connect(&path).unwrap();
    let said = match client.ask(&Request::Do(Action::Reload {})) {
        Ok(answer) => format!("{:?}", answer.collect::<Vec<_>>().pop().unwrap().unwrap_err().to_string()),
        Err(error) => error.to_string(),
    };
    thread.join().unwrap();
    std::fs::remove_file(path).unwrap();
    said
}

#[test]
fn a_client_takes_no_broken_answer_for_a_whole_one() {
    for (lines, expected) in [
        ("", "it closed the connection"),
        ("hello\n", "expected value"),
        ("{\"version\":7,\"ok\":\"x\"}\n", "the router speaks version 7"),
        ("{\"version\":1,\"ok\":\"x\"}\n{\"row\":{}}\n", "broken after 1 rows: it ended early"),
        ("{\"version\":1,\"ok\":\"x\"}\n{\"row\":{}}\n{\"end\":2}\n", "2 were sent"),
        ("{\"version\":1,\"ok\":\"x\"}\n{\"row\":", "a line has no end"),
    ] {
        let said = answered_with(lines);
        assert!(said.contains(expected), "{lines}: {said}");
    }
}

/// What a process of another user with these groups gets at a router's sockets.
fn as_member_of(groups: &[u32], path: &std::path::Path, request: &Request) -> Result<usize, String> {
    use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};
    const NOBODY: u32 = 65_534;
    let ask = || {
        let groups: Vec<_> = groups.iter().map(|&group| rustix::process::Gid::from_raw(group)).collect();
        set_thread_groups(&groups).unwrap();
        set_thread_gid(rustix::process::Gid::from_raw(NOBODY)).unwrap();
        set_thread_uid(rustix::process::Uid::from_raw(NOBODY)).unwrap();
        let client = match request {
            Request::Show(_) | Request::Table(_) => Client::connect_to_show(path),
            Request::Do(_) => Client::connect(path),
        };
        let mut client = client.map_err(|error| error.to_string())?;
        let answer = client.ask(request).map_err(|error| error.to_string())?;
        Ok(answer.map(Result::unwrap).count())
    };
    // The thread alone becomes another one.
    std::thread::scope(|scope| scope.spawn(ask).join().unwrap())
}

#[test]
fn the_read_group_may_show_and_the_write_group_may_do_all() {
    if !testbed::is_root() {
        return;
    }
    let (read, write) = (60_001, 60_002);
    let options = ServerOptions {
        read_group: Some(read.to_string()),
        write_group: Some(write.to_string()),
        ..ServerOptions::new(socket_path())
    };
    let server = Server::start(&options, Arc::new(Fake { routes: 3, ..Fake::default() })).unwrap();
    let (show, act) = (routes(RouteFilter::default()), Request::Do(Action::Reload {}));
    let not_permitted = ClientError::NotPermitted(server.path().to_owned()).to_string();
    for (groups, shown, done) in [
        (&[][..], Err(not_permitted.clone()), Err(not_permitted.clone())),
        (&[1, read], Ok(3), Err(not_permitted)),
        (&[1, write], Ok(3), Err("not now".to_owned())),
    ] {
        assert_eq!(as_member_of(groups, server.path(), &show), shown, "{groups:?}");
        assert_eq!(as_member_of(groups, server.path(), &act), done, "{groups:?}");
    }
    // Whoever comes to the socket for showing may do no more there, and takes nobody's place at the other.
    let reading = reading_path(server.path());
    let mut client = Client::connect(&reading).unwrap();
    let refused = client.ask(&act).unwrap_err().to_string();
    assert_eq!(refused, "'reload' is not permitted here: members of the read group may only show");
    // What slows the router down is more than looking.
    let cost = |unfused| Request::Show(Show::Cost(CostFilter { unfused, ..CostFilter::default() }));
    let refused = client.ask(&cost(true)).unwrap_err().to_string();
    assert_eq!(refused, "'cost --unfused' is not permitted here: members of the read group may only show");
    // Nor may they read packets.
    let capture = Request::Show(Show::Capture(CaptureQuery::default()));
    let trace = Request::Show(Show::Trace(TraceQuery { count: 1, from: None, filter: None }));
    for (request, name) in [(capture, "capture"), (trace, "trace")] {
        let refused = client.ask(&request).unwrap_err().to_string();
        assert_eq!(
            refused,
            format!("'{name}' is not permitted here: members of the read group may only show")
        );
    }
    assert!(client.ask(&cost(false)).is_ok());
    drop(client);
    let held: Vec<UnixStream> = (0..8).map(|_| UnixStream::connect(&reading).unwrap()).collect();
    assert_eq!(ask(&server, &show).len(), 3);
    drop(held);
    drop(server);
    assert!(!reading.exists() && !options.path.exists());
}

/// A router that takes an hour for every answer, and reports how its waiting ended.
struct Patient(std::sync::mpsc::SyncSender<Result<(), Unanswered>>);

impl Backend for Patient {
    fn answer(&self, _: &Request, rows: &mut Rows<'_>) -> Result<(), Unanswered> {
        rows.wait(Duration::from_millis(1))?;
        let ended = rows.wait(Duration::from_secs(3600));
        self.0.send(ended).unwrap();
        Err(Unanswered::ClientGone)
    }
}

#[test]
fn a_router_stops_waiting_for_a_client_that_has_gone() {
    let (sender, ended) = std::sync::mpsc::sync_channel(1);
    let server = Server::start(&ServerOptions::new(socket_path()), Arc::new(Patient(sender))).unwrap();
    let mut client = UnixStream::connect(server.path()).unwrap();
    client.write_all(Request::Show(Show::Cost(CostFilter::default())).to_line().as_bytes()).unwrap();
    // One that has nothing more to ask still waits for its answer.
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(ended.recv_timeout(Duration::from_millis(100)).is_err());
    drop(client);
    assert_eq!(ended.recv_timeout(Duration::from_secs(60)), Ok(Err(Unanswered::ClientGone)));
}

/// A router whose settings file has options that cannot change.
struct Fixed;

impl Backend for Fixed {
    fn answer(&self, _: &Request, _: &mut Rows<'_>) -> Result<(), Unanswered> {
        Err(Unanswered::NeedsRestart(vec!["workers.count".into(), "port".into()]))
    }
}

#[test]
fn a_reload_that_needs_a_restart_names_the_options() {
    let server = Server::start(&ServerOptions::new(socket_path()), Arc::new(Fixed)).unwrap();
    let line = say(&server, b"{\"version\":1,\"do\":\"reload\"}\n");
    assert!(line.contains("\"needs_restart\":[\"workers.count\",\"port\"]"), "{line}");
    let mut client = Client::connect(server.path()).unwrap();
    let error = client.ask(&Request::Do(Action::Reload {})).unwrap_err();
    assert!(matches!(error, ClientError::NeedsRestart(_)));
    let expected = "nothing was changed: workers.count, port cannot change while the router runs; restart it";
    assert_eq!(error.to_string(), expected);
}
