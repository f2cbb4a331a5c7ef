//! `brickway top`: plain tables, and a person at a terminal.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use control::api::{Backend, PortRow, Request, Rows, Server, ServerOptions, Show, TrafficRow, Unanswered};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize};
use testbed::wait_until;

use super::{Router, ask};

/// A router whose port receives a thousand packets between two answers.
struct Growing(AtomicU64);

impl Backend for Growing {
    fn answer(&self, request: &Request, rows: &mut Rows<'_>) -> Result<(), Unanswered> {
        let Request::Show(Show::Ports(_)) = request else {
            return Router { drifts: false }.answer(request, rows);
        };
        let packets = self.0.fetch_add(1_000, Ordering::Relaxed);
        let rx = TrafficRow { packets, ..TrafficRow::default() };
        rows.send(PortRow { name: "eth1".into(), rx, ..PortRow::default() })
    }
}

/// A path for a socket of its own.
fn socket() -> PathBuf {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("brickway-top-{}-{number}.sock", std::process::id()))
}

fn serve(socket: &Path) -> Server {
    Server::start(&ServerOptions::new(socket), Arc::new(Growing(AtomicU64::new(0)))).unwrap()
}

#[test]
fn once_prints_plain_tables() {
    let (code, out, err) = ask(&["top", "--once", "--every", "0.5"], Some(Router { drifts: false }));
    let expected = "\
brickway 1.2.3  process 77  namespace 4026531840  up 1 d 01:01:01

ports
port  rx p/s  rx bit/s  tx p/s  tx bit/s  drop/s  err/s  Linux/s  link        driver
eth1       0         0       0         0       0      0        0  up          af_xdp zero-copy
eth2       0         0       0         0       0      0        0  no carrier  af_xdp zero-copy

workers
worker   busy  since start  packets/s  cycles/packet  receive queues
0       50.0%        25.0%          0           1500  eth1:0, eth2:0
slow     0.4%        25.0%          0              -  -

queues
queue   way  worker  packets/s  bit/s  drop/s  shared with, reasons of drops
eth1:0  rx   0               0      0       0  worker 0, worker 1, no free frame

drops
dropped/s  total  element  class          reason
        0   1005  check    CheckIPHeader  bad checksum
        0   1005  rt       CheckIPHeader  no route

punts
punted/s  total  element  class      reason
       0      7  rt       FIBLookup  no route
       0      7  ttl      FIBLookup  time to live expired

elements
cycles/s  share  packets/s  cycles/packet  dropped/s  element  class
       0      -          0              -          0  rt       FIBLookup
";
    assert_eq!((code, out.as_str(), err.as_str()), (0, expected, ""));
}

#[test]
fn once_measures_between_two_answers() {
    let socket = socket();
    let server = serve(&socket);
    let words = ["top", "--once", "--every", "0.5", "--socket"];
    let output = Command::new(env!("CARGO_BIN_EXE_brickway")).args(words).arg(&socket).output().unwrap();
    drop(server);
    let text = String::from_utf8(output.stdout).unwrap();
    let port: Vec<&str> =
        text.lines().find(|line| line.starts_with("eth1 ")).unwrap().split_whitespace().collect();
    let rate: f64 = port[1].parse().unwrap();
    // A thousand in half a second, or in more where the machine is busy.
    assert!(rate > 0.0 && rate <= 2_000.0, "{text}");
}

#[test]
fn without_a_terminal_or_a_router_the_exit_code_says_so() {
    let error = "brickway: standard output: not a terminal; expected one, or --once\n";
    assert_eq!(ask(&["top"], Some(Router { drifts: false })), (2, String::new(), error.to_owned()));
    let (code, out, err) = ask(&["top", "--once"], None);
    assert_eq!((code, out.as_str()), (4, ""));
    assert!(err.starts_with("brickway: no router answers at 'SOCKET'; is one running?"), "{err}");
    for every in ["0.4", "61", "often"] {
        let (code, _, err) = ask(&["top", "--once", "--every", every], None);
        assert_eq!(code, 2);
        assert!(err.contains("expected seconds from 0.5 to 60"), "{err}");
    }
}

/// `brickway top` on a terminal of 80 columns, and a person who looks and types.
struct Person {
    terminal: File,
    /// Holds the terminal when the program has ended.
    _line: File,
    seen: Arc<Mutex<Vec<u8>>>,
    program: Child,
    before: Termios,
}

impl Person {
    fn sit_down(socket: &Path, variables: &[(&str, &str)]) -> Self {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        tcsetwinsize(&terminal, Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap();
        let name = Path::new(std::ffi::OsStr::from_bytes(name.as_bytes()));
        let line = OpenOptions::new().read(true).write(true).open(name).unwrap();
        let end = || OwnedFd::from(line.try_clone().unwrap());
        let before = tcgetattr(&terminal).unwrap();
        // In a session of its own the program knows no other terminal.
        let program = Command::new("setsid")
            .args(["--ctty", env!("CARGO_BIN_EXE_brickway"), "top", "--every", "0.5", "--socket"])
            .arg(socket)
            .env("TERM", "xterm")
            .env_remove("NO_COLOR")
            .envs(variables.iter().copied())
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        let terminal = File::from(terminal);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (mut from, to) = (terminal.try_clone().unwrap(), seen.clone());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = from.read(&mut bytes) {
                to.lock().unwrap().extend_from_slice(&bytes[..length]);
            }
        });
        Self { terminal, _line: line, seen, program, before }
    }

    fn press(&mut self, keys: &str) {
        self.terminal.write_all(keys.as_bytes()).unwrap();
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().unwrap()).into_owned()
    }

    /// Waits until a word is on the screen, which is drawn anew meanwhile: otherwise only what changed is written.
    fn sees(&mut self, word: &str) {
        self.seen.lock().unwrap().clear();
        let mut pressed = None::<Instant>;
        wait_until(&format!("'{word}' on the screen"), || {
            if pressed.is_none_or(|time| time.elapsed() > Duration::from_millis(300)) {
                self.press("\x0c");
                pressed = Some(Instant::now());
            }
            self.text().contains(word)
        });
    }

    fn has_lines(&self) -> bool {
        tcgetattr(&self.terminal).unwrap().local_modes.contains(LocalModes::ICANON)
    }

    /// Waits for the program's end; the terminal is as it was.
    fn leaves(mut self) -> i32 {
        wait_until("the end of the program", || self.program.try_wait().unwrap().is_some());
        let status = self.program.wait().unwrap();
        let after = tcgetattr(&self.terminal).unwrap();
        let modes = |of: &Termios| (of.input_modes, of.output_modes, of.local_modes);
        assert_eq!(modes(&after), modes(&self.before));
        // The usual screen, and a cursor.
        wait_until("the usual screen", || {
            let text = self.text();
            text.rfind("\x1b[?1049l") > text.rfind("\x1b[?1049h")
                && text.rfind("\x1b[?25h") > text.rfind("\x1b[?25l")
        });
        status.code().unwrap_or_else(|| -status.signal().unwrap_or(0))
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        // It has ended unless the test failed.
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

#[test]
fn keys_choose_what_is_seen_and_every_way_out_restores_the_terminal() {
    let socket = socket();
    let _server = serve(&socket);
    let mut person = Person::sit_down(&socket, &[]);
    person.sees("queues");
    assert!(!person.has_lines());
    person.press("5");
    person.sees("cycles/s");
    person.press("3");
    person.sees("checksum");
    person.press("/nothing\r");
    person.sees("'nothing':");
    person.press("?");
    person.sees("Enter");
    person.press("?q");
    assert_eq!(person.leaves(), 0);
    for out in ["\x1b", "\x03"] {
        let mut person = Person::sit_down(&socket, &[]);
        person.sees("queues");
        person.press(out);
        assert_eq!(person.leaves(), 0, "{out:?}");
    }
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let mut person = Person::sit_down(&socket, &[("NO_COLOR", "1")]);
        person.sees("queues");
        kill_process(Pid::from_child(&person.program), signal).unwrap();
        assert_eq!(person.leaves(), 0, "{signal:?}");
    }
}

#[test]
fn a_router_that_ends_is_missed_on_the_screen_until_another_answers() {
    let socket = socket();
    let server = serve(&socket);
    let mut person = Person::sit_down(&socket, &[]);
    person.sees("busy");
    drop(server);
    person.sees("trying");
    let _server = serve(&socket);
    person.sees("busy");
    person.press("q");
    assert_eq!(person.leaves(), 0);
}

#[test]
fn a_terminal_that_cannot_move_its_cursor_is_refused() {
    let socket = socket();
    let _server = serve(&socket);
    let mut person = Person::sit_down(&socket, &[("TERM", "dumb")]);
    wait_until("the end of the program", || person.program.try_wait().unwrap().is_some());
    assert_eq!(person.program.wait().unwrap().code(), Some(2));
    wait_until("its reason", || person.text().contains("TERM: 'dumb' cannot move its cursor"));
}
