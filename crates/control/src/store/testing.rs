//! A real etcd for tests, here and in other crates: those add `control = { workspace = true, features = ["testing"] }` to
//! their dev-dependencies.

use packet::sync::lock;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::{EtcdPlace, Place, Store};
use crate::cluster::key::Key;

/// How long etcd may take to come up on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// An etcd of one member on free ports of 127.0.0.1, with its data in a temporary directory. Both go when it is dropped.
pub struct Etcd {
    process: Option<Child>,
    directory: PathBuf,
    client_port: u16,
    peer_port: u16,
    arguments: Vec<String>,
}

impl Etcd {
    /// Starts one and waits until it answers. Panics where Debian's `etcd-server` is missing.
    pub fn start() -> Etcd {
        let directory = temporary_directory();
        let etcd = Etcd { process: None, directory, client_port: 0, peer_port: 0, arguments: Vec::new() };
        etcd.begin()
    }

    /// Starts one that clients reach with TLS only; the directory holds the `server.pem` and `server.key` to use, and is
    /// removed like one of its own.
    pub fn start_with_tls(directory: PathBuf) -> Etcd {
        let file = |name: &str| directory.join(name).display().to_string();
        let arguments =
            vec!["--cert-file".into(), file("server.pem"), "--key-file".into(), file("server.key")];
        Etcd { process: None, directory, client_port: 0, peer_port: 0, arguments }.begin()
    }

    fn begin(mut self) -> Etcd {
        // A port that was free may be somebody else's by the time etcd asks for it.
        for _ in 0..5 {
            (self.client_port, self.peer_port) = (free_port(), free_port());
            if self.try_spawn() {
                return self;
            }
        }
        panic!("etcd does not start; its output is in {}", self.directory.display());
    }

    /// Kills it with SIGKILL; its data stay.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().expect("a child can be killed");
            process.wait().expect("and waited for");
        }
    }

    /// Starts it anew on the same ports and data, after [`Etcd::kill`].
    pub fn restart(&mut self) {
        assert!(self.try_spawn(), "etcd does not start again; its output is in {}", self.directory.display());
    }

    /// Kills it and starts it on the same ports, as if its disk had been replaced.
    pub fn restart_empty(&mut self) {
        self.kill();
        std::fs::remove_dir_all(self.directory.join("data")).expect("the directory is ours");
        self.restart();
    }

    /// Where clients reach it.
    pub fn endpoint(&self) -> String {
        let scheme = if self.arguments.is_empty() { "http" } else { "https" };
        format!("{scheme}://127.0.0.1:{}", self.client_port)
    }

    /// The same, for [`Store::open`].
    pub fn place(&self) -> Place {
        Place::Etcd(EtcdPlace { endpoints: vec![self.endpoint()], ..EtcdPlace::default() })
    }

    /// A store in it.
    pub fn open(&self, prefix: &str) -> Store {
        Store::open(&self.place(), prefix).expect("etcd runs")
    }

    /// Where it keeps its data and its output.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    fn try_spawn(&mut self) -> bool {
        let peer = format!("http://127.0.0.1:{}", self.peer_port);
        let output = std::fs::File::create(self.directory.join("output")).expect("the directory is ours");
        let mut process = Command::new("etcd")
            .args(["--name", "test", "--data-dir"])
            .arg(self.directory.join("data"))
            .args(["--listen-client-urls", &self.endpoint(), "--advertise-client-urls", &self.endpoint()])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("test={peer}")])
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("a file has copies"))
            .stderr(output)
            .spawn()
            .expect("etcd starts; is Debian's etcd-server installed?");
        let end = Instant::now() + PATIENCE;
        let mut runs = false;
        // It says so; and it has ended if the port is taken.
        while !runs && Instant::now() < end && matches!(process.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(20));
            let output = std::fs::read_to_string(self.directory.join("output")).unwrap_or_default();
            runs = output.contains("ready to serve client requests");
        }
        self.process = Some(process);
        if !runs {
            self.kill();
        }
        runs
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Has an empty hosted store hear these bytes as what a client without a key sends behind its greeting, and as the inside of one message.
/// Returns how many messages it understood.
pub fn hosted_store_hears(bytes: &[u8]) -> usize {
    thread_local! {
        static RUNTIME: tokio::runtime::Runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime without I/O");
    }
    let message = [&(bytes.len() as u32).to_be_bytes(), bytes].concat();
    RUNTIME.with(|runtime| {
        runtime.block_on(async { super::hosted::hears(bytes).await + super::hosted::hears(&message).await })
    })
}

/// Passes bytes on to a store, as long as it is plugged in.
pub struct Cable {
    /// Both ends of all connections over it; `None` while it is pulled out.
    ends: Arc<Mutex<Option<Vec<TcpStream>>>>,
}

impl Cable {
    /// One to this store, which is reached over it at the place that comes with it.
    pub fn to(place: &Place) -> (Place, Cable) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("one of many ports is free");
        let address = listener.local_addr().expect("it listens");
        let (through, target) = match place {
            Place::Etcd(place) => {
                let target = place.endpoints[0].trim_start_matches("http://").parse();
                let through = EtcdPlace { endpoints: vec![address.to_string()], ..place.clone() };
                (Place::Etcd(through), target.expect("the endpoint is an address"))
            }
            Place::Hosted { address: target, key_file, .. } => {
                (Place::Hosted { address, hosts: false, key_file: key_file.clone() }, *target)
            }
        };
        let cable = Cable { ends: Arc::new(Mutex::new(Some(Vec::new()))) };
        let ends = cable.ends.clone();
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                // One that comes while the cable is out, or the store away, is closed.
                if let Some(ends) = &mut *lock(&ends) {
                    connect(near, target, ends);
                }
            }
        });
        (through, cable)
    }

    /// Ends all connections; new ones are made.
    pub fn cut(&self) {
        if let Some(ends) = &mut *self.lock() {
            shut_down(ends);
        }
    }

    /// Ends all connections, and makes none until [`Cable::plug_in`].
    pub fn pull_out(&self) {
        self.lock().take().iter_mut().for_each(shut_down);
    }

    /// Makes connections again.
    pub fn plug_in(&self) {
        self.lock().get_or_insert_default();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Vec<TcpStream>>> {
        lock(&self.ends)
    }
}

fn connect(near: TcpStream, target: SocketAddr, ends: &mut Vec<TcpStream>) {
    let Ok(far) = TcpStream::connect(target) else { return };
    for (from, to) in [(&near, &far), (&far, &near)] {
        let copy = |stream: &TcpStream| stream.try_clone().expect("streams have copies");
        let (mut from, mut to) = (copy(from), copy(to));
        ends.push(copy(&from));
        std::thread::spawn(move || std::io::copy(&mut from, &mut to));
    }
}

fn shut_down(ends: &mut Vec<TcpStream>) {
    for end in ends.drain(..) {
        // It may be closed already.
        let _ = end.shutdown(Shutdown::Both);
    }
}

/// A new one, below the system's.
pub fn temporary_directory() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let directory = std::env::temp_dir().join(format!("brickway-store-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("the temporary directory can be written");
    directory
}

/// A key file below a new temporary directory, with these keys.
pub fn key_file(keys: &[Key]) -> PathBuf {
    let path = temporary_directory().join("key");
    let lines: String = keys.iter().map(|key| key.to_hex() + "\n").collect();
    std::fs::write(&path, lines).expect("the directory is ours");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("so is the file");
    path
}

/// A TCP port of 127.0.0.1 that nobody uses right now, and that the kernel gives to no connection: a server that was killed
/// gets it again.
pub fn free_port() -> u16 {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    // Below the kernel's range (net.ipv4.ip_local_port_range); each process begins elsewhere.
    let ports = std::iter::repeat_with(|| {
        let number = std::process::id().wrapping_mul(97).wrapping_add(COUNT.fetch_add(1, Ordering::Relaxed));
        20_000 + (number % 12_000) as u16
    });
    let mut free = ports.take(12_000).filter(|&port| TcpListener::bind(("127.0.0.1", port)).is_ok());
    free.next().expect("one of many ports is free")
}
