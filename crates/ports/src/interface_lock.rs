//! The lock that makes an interface one port's: a listening unix socket with an abstract name. Such names belong to a network
//! namespace, as interfaces do, and vanish with the process however it ends.
//!
//! Every user may take such a name. So a lock counts only if its socket is root's, our own user's, or that of a process that may
//! have ports at all (NET_ADMIN). The kernel says whose a socket is (sock_diag(7)), also of one that does not listen or whose
//! queue is full. While a stranger has the name, the lock is a socket whose name nobody can foresee: the word, and a random number
//! behind it, which the kernel's list of sockets has.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use packet::sync::lock;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, netlink};
use rustix::process::Pid;

use crate::PortError;
use crate::interface::Interface;
use crate::link::{ask, attributes, number};

/// The lock that makes an interface one port's.
#[derive(Debug)]
pub(crate) struct InterfaceLock {
    _claim: Claim,
    /// Without one while a stranger has the name.
    _socket: Option<OwnedFd>,
    /// The one that is there in its place.
    _aside: Option<OwnedFd>,
}

/// What a port of this process has or is about to have, with the number of the network namespace.
#[derive(Debug)]
struct Claim(u64, String);

/// By what they have: their names.
static CLAIMED: Mutex<BTreeMap<(u64, String), String>> = Mutex::new(BTreeMap::new());

impl Claim {
    /// Makes one, or returns the name of the port that has it.
    fn make(port: &str, what: &str) -> Result<Result<Self, String>, Errno> {
        let namespace = rustix::fs::stat("/proc/thread-self/ns/net")?.st_ino;
        Ok(match lock(&CLAIMED).entry((namespace, what.to_owned())) {
            Entry::Occupied(other) => Err(other.get().clone()),
            Entry::Vacant(place) => {
                place.insert(port.to_owned());
                Ok(Self(namespace, what.to_owned()))
            }
        })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut claimed = lock(&CLAIMED);
        claimed.remove(&(self.0, std::mem::take(&mut self.1)));
    }
}

/// How long a child process that this one forks may take to its exec on a busy machine.
const LONGEST_FORK: Duration = Duration::from_secs(10);

/// How long a name may belong to a socket that neither listens nor is new, as no lock does.
const LONGEST_GONE: Duration = Duration::from_secs(1);

/// Connections that may wait at a lock, of those who asked whose it is. Nobody accepts them.
const MOST_ASKING: i32 = 4_096;

/// Who has a lock.
#[derive(Debug, PartialEq, Eq)]
enum Holder {
    /// A process that may have ports.
    Process(Pid),
    /// One that does not listen yet, or was dropped just now.
    Unknown,
    /// One of which the kernel does not say more.
    Somebody,
    /// A socket that cannot be a lock, or one that is gone.
    Nobody,
    /// A user who cannot have ports.
    Stranger,
}

impl InterfaceLock {
    /// Takes the lock on a name, also while no interface has it, or says which process has it.
    pub(crate) fn of_name(name: &str) -> Result<Self, PortError> {
        Self::take(name, &Self::word_of_name(name))
    }

    /// Takes the lock on the interface of a port, whatever its name, or says which process has it.
    pub(crate) fn of_index(port: &str, index: i32) -> Result<Self, PortError> {
        Self::take(port, &Self::word_of_index(index))
    }

    fn take(port: &str, what: &str) -> Result<Self, PortError> {
        let in_use = |user: String| PortError::InUse { port: port.to_owned(), user };
        let failed = |error: Errno| PortError::system(port, "taking the lock", error);
        let address = SocketAddrUnix::new_abstract_name(what.as_bytes()).map_err(failed)?;
        let claim = Claim::make(port, what).map_err(failed)?.map_err(|other| {
            in_use(if other == port {
                "another port of this process".to_owned()
            } else {
                format!("port `{other}` of this process, which is the same interface")
            })
        })?;
        let begin = Instant::now();
        loop {
            if let Some(socket) = Self::try_take(&address).map_err(failed)? {
                if let Some(other) = Self::others_aside(what, None) {
                    return Err(in_use(other));
                }
                return Ok(Self { _claim: claim, _socket: Some(socket), _aside: None });
            }
            match Self::holder(&address) {
                // A child process that this one forks holds copies of all files until its exec, so that a lock dropped just
                // now seems to be ours still.
                Holder::Process(process)
                    if process == rustix::process::getpid() && begin.elapsed() < LONGEST_FORK => {}
                Holder::Process(process) => return Err(in_use(by_number(process))),
                Holder::Unknown if begin.elapsed() < LONGEST_FORK => {}
                Holder::Nobody if begin.elapsed() < LONGEST_GONE => {}
                Holder::Unknown | Holder::Somebody => return Err(in_use("another process".to_owned())),
                Holder::Nobody | Holder::Stranger => {
                    let aside = Self::take_aside(what).map_err(failed)?.map_err(in_use)?;
                    return Ok(Self { _claim: claim, _socket: None, _aside: Some(aside) });
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Takes the lock under a name that nobody foresees; the inner error is for people: who has one already.
    fn take_aside(what: &str) -> Result<Result<OwnedFd, String>, Errno> {
        if let Some(other) = Self::others_aside(what, None) {
            return Ok(Err(other));
        }
        let number = RandomState::new().hash_one(std::process::id());
        let address = SocketAddrUnix::new_abstract_name(format!("{what}/{number:016x}").as_bytes())?;
        let aside = Self::try_take(&address)?.ok_or(Errno::ADDRINUSE)?;
        // Of two that come at once the older process has it.
        let own = began(rustix::process::getpid());
        let others = Self::others_aside(what, own);
        let first = match Self::holder(&SocketAddrUnix::new_abstract_name(what.as_bytes())?) {
            Holder::Process(process) if process != rustix::process::getpid() => Some(by_number(process)),
            _ => None,
        };
        Ok(first.or(others).map_or(Ok(aside), Err))
    }

    /// Who has locks with random names behind this word.
    fn holders_aside(what: &str) -> Vec<Holder> {
        let (mut names, begin) = (Vec::new(), format!("{what}/"));
        let listed = each_socket(|name, owner| {
            if name.starts_with(begin.as_bytes()) {
                names.push((name.to_vec(), owner));
            }
        });
        let holder = |(name, owner): &(Vec<u8>, u32)| {
            SocketAddrUnix::new_abstract_name(name)
                .map_or(Holder::Nobody, |address| Self::holder_of(&address, *owner))
        };
        listed.map_or_else(|_| Vec::new(), |()| names.iter().map(holder).collect())
    }

    /// Another process that has one, for people, if it began before a moment; claims of this process are known.
    fn others_aside(what: &str, before: Option<u64>) -> Option<String> {
        Self::holders_aside(what).into_iter().find_map(|holder| match holder {
            Holder::Process(process) if process == rustix::process::getpid() => None,
            Holder::Process(process) => {
                let is_older = before.is_none_or(|before| began(process).is_none_or(|began| began <= before));
                is_older.then(|| by_number(process))
            }
            Holder::Unknown | Holder::Somebody => Some("another process".to_owned()),
            Holder::Nobody | Holder::Stranger => None,
        })
    }

    fn word_of_name(interface: &str) -> String {
        format!("brickway/port/{interface}")
    }

    fn word_of_index(index: i32) -> String {
        format!("brickway/index/{index}")
    }

    fn try_take(address: &SocketAddrUnix) -> Result<Option<OwnedFd>, Errno> {
        let socket = unix_socket()?;
        match rustix::net::bind(&socket, address) {
            Ok(()) => {
                // Listening lets others connect and so learn our process number.
                rustix::net::listen(&socket, MOST_ASKING)?;
                Ok(Some(socket))
            }
            Err(Errno::ADDRINUSE) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn holder(address: &SocketAddrUnix) -> Holder {
        match owner(address) {
            Ok(Some(user)) => Self::holder_of(address, user),
            Ok(None) => Holder::Nobody,
            // Of a kernel without sock_diag for unix sockets.
            Err(_) => Self::holder_of(address, peer_of(address).map_or(0, |peer| peer.uid.as_raw())),
        }
    }

    /// The same of a socket that is this user's.
    fn holder_of(address: &SocketAddrUnix, owner: u32) -> Holder {
        let peer = peer_of(address);
        let is_trusted = [0, rustix::process::geteuid().as_raw()].contains(&owner);
        match peer {
            Ok(peer) if is_trusted || peer.uid.as_raw() == owner && may_have_ports(peer.pid, owner) => {
                Holder::Process(peer.pid)
            }
            Err(Errno::CONNREFUSED) if is_trusted => Holder::Unknown,
            _ if is_trusted => Holder::Somebody,
            _ => Holder::Stranger,
        }
    }
}

/// The number of the process that has a port on this interface, if one of Brickway's has.
pub fn user_of(interface: &str) -> Option<i32> {
    let index = Interface::new(interface).ok()?.index().ok();
    let words = index.map(InterfaceLock::word_of_index).into_iter();
    let mut users = words.chain([InterfaceLock::word_of_name(interface)]).filter_map(|word| {
        let address = SocketAddrUnix::new_abstract_name(word.as_bytes()).ok()?;
        let aside = || InterfaceLock::holders_aside(&word);
        let holders = std::iter::once_with(|| InterfaceLock::holder(&address))
            .chain(std::iter::once_with(aside).flatten());
        let mut processes = holders.filter_map(|holder| match holder {
            Holder::Process(process) => Some(process.as_raw_nonzero().get()),
            _ => None,
        });
        processes.next()
    });
    users.next()
}

/// Who listens at an address.
fn peer_of(address: &SocketAddrUnix) -> Result<rustix::net::UCred, Errno> {
    let probe = unix_socket()?;
    rustix::net::connect(&probe, address)?;
    rustix::net::sockopt::socket_peercred(&probe)
}

/// A process, for people.
fn by_number(process: Pid) -> String {
    format!("process {}", process.as_raw_nonzero())
}

/// When a process began, in ticks since the machine did (proc_pid_stat(5), field 22).
fn began(process: Pid) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).ok()?;
    // The name, in brackets, may have spaces.
    text.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

fn unix_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// Whether a process of this user may change interfaces.
fn may_have_ports(process: Pid, user: u32) -> bool {
    const NET_ADMIN: u64 = 1 << 12;
    let file = format!("/proc/{}/status", process.as_raw_nonzero());
    let status = std::fs::read_to_string(file).unwrap_or_default();
    let value =
        |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next());
    let effective = value("CapEff:").and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or(0);
    value("Uid:").and_then(|word| word.parse().ok()) == Some(user) && effective & NET_ADMIN != 0
}

// include/uapi/linux/sock_diag.h, unix_diag.h, net/tcp_states.h.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const UDIAG_SHOW_NAME: u32 = 0x01;
const UDIAG_SHOW_UID: u32 = 0x40;
const UNIX_DIAG_NAME: u16 = 0;
const UNIX_DIAG_UID: u16 = 7;
const TCP_CLOSE: u32 = 7;
const TCP_LISTEN: u32 = 10;
/// Bytes of struct unix_diag_req and struct unix_diag_msg.
const QUESTION: usize = 24;
const ANSWER: usize = 16;

/// Returns the user of the socket with this address, of those that are not connected; `None` if there is none.
fn owner(address: &SocketAddrUnix) -> std::io::Result<Option<u32>> {
    let name = address.abstract_name().unwrap_or_default();
    let mut owner = None;
    each_socket(|known, user| {
        if known == name {
            owner = Some(user);
        }
    })?;
    Ok(owner)
}

/// Calls `tell` with the abstract name and the user of each stream socket that is not connected.
fn each_socket(mut tell: impl FnMut(&[u8], u32)) -> std::io::Result<()> {
    let mut question = [0; QUESTION];
    question[0] = libc::AF_UNIX as u8;
    question[4..8].copy_from_slice(&(1_u32 << TCP_CLOSE | 1 << TCP_LISTEN).to_ne_bytes());
    question[12..16].copy_from_slice(&(UDIAG_SHOW_NAME | UDIAG_SHOW_UID).to_ne_bytes());
    ask(Some(netlink::SOCK_DIAG), SOCK_DIAG_BY_FAMILY, &question, |kind, answer| {
        let is_stream = answer.get(1) == Some(&(libc::SOCK_STREAM as u8));
        let rest = answer.get(ANSWER..).unwrap_or_default();
        let value = |wanted| attributes(rest).find(|&(kind, _)| kind == wanted).map(|(_, value)| value);
        // An abstract name begins with a zero.
        let name = value(UNIX_DIAG_NAME).and_then(|text| text.strip_prefix(&[0]));
        if let Some(name) = name.filter(|_| kind == SOCK_DIAG_BY_FAMILY && is_stream) {
            tell(name, value(UNIX_DIAG_UID).and_then(number).unwrap_or(0));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{in_namespace, ip};

    /// Does something as another user, on a thread of its own.
    fn as_stranger<R: Send>(act: impl FnOnce() -> R + Send) -> R {
        let nobody = rustix::process::Uid::from_raw(65_534);
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
                act()
            });
            thread.join().unwrap()
        })
    }

    #[test]
    fn a_stranger_keeps_nobody_from_a_port() {
        in_namespace(|| {
            let word = InterfaceLock::word_of_name("left");
            let address = SocketAddrUnix::new_abstract_name(word.as_bytes()).unwrap();
            let bound = || {
                let socket = unix_socket().unwrap();
                rustix::net::bind(&socket, &address).unwrap();
                socket
            };
            type Squatter<'a> = (&'a str, Holder, Box<dyn Fn() -> Vec<OwnedFd> + Send + Sync + 'a>);
            let squatters: [Squatter<'_>; 4] = [
                ("bound", Holder::Stranger, Box::new(|| vec![bound()])),
                (
                    "listening",
                    Holder::Stranger,
                    Box::new(|| {
                        let socket = bound();
                        rustix::net::listen(&socket, 1).unwrap();
                        vec![socket]
                    }),
                ),
                (
                    "full",
                    Holder::Stranger,
                    Box::new(|| {
                        let mut sockets = vec![bound()];
                        rustix::net::listen(&sockets[0], 0).unwrap();
                        loop {
                            let client = unix_socket().unwrap();
                            if rustix::net::connect(&client, &address).is_err() {
                                return sockets;
                            }
                            sockets.push(client);
                        }
                    }),
                ),
                (
                    "connected",
                    Holder::Nobody,
                    Box::new(|| {
                        let server = unix_socket().unwrap();
                        let other = SocketAddrUnix::new_abstract_name(b"brickway/other").unwrap();
                        rustix::net::bind(&server, &other).unwrap();
                        rustix::net::listen(&server, 1).unwrap();
                        let client = bound();
                        rustix::net::connect(&client, &other).unwrap();
                        vec![client, server]
                    }),
                ),
            ];
            for (what, expected, make) in squatters {
                let sockets = as_stranger(make);
                assert_eq!(InterfaceLock::holder(&address), expected, "{what}");
                assert_eq!(user_of("left"), None, "{what}");
                let lock = InterfaceLock::of_name("left").unwrap();
                // Nor hides one from another router.
                assert_eq!(user_of("left"), Some(std::process::id() as i32), "{what}");
                assert_eq!(
                    InterfaceLock::holders_aside(&word),
                    [Holder::Process(rustix::process::getpid())],
                    "{what}"
                );
                drop(lock);
                drop(sockets);
                // Children that other tests fork hold copies of the sockets until their exec.
                let begin = Instant::now();
                while InterfaceLock::of_name("left").unwrap()._socket.is_none() {
                    assert!(begin.elapsed() < LONGEST_FORK, "{what}");
                }
            }
        });
    }

    #[test]
    fn a_stranger_who_fills_the_queue_of_a_lock_hides_it_from_nobody() {
        in_namespace(|| {
            let _lock = InterfaceLock::of_name("left").unwrap();
            let word = InterfaceLock::word_of_name("left");
            let address = SocketAddrUnix::new_abstract_name(word.as_bytes()).unwrap();
            assert_eq!(InterfaceLock::holder(&address), Holder::Process(rustix::process::getpid()));
            assert_eq!(owner(&address).unwrap(), Some(0));
            assert_eq!(as_stranger(|| owner(&address).unwrap()), Some(0));
        });
    }

    #[test]
    fn a_lock_of_an_interface_holds_by_all_its_names() {
        in_namespace(|| {
            ip("link add left type bridge");
            ip("link property add dev left altname uplink-to-the-provider");
            let index = Interface::existing("left").unwrap().index().unwrap();
            let lock = InterfaceLock::of_index("left", index).unwrap();
            let error = InterfaceLock::of_index("short", index).unwrap_err().to_string();
            assert!(
                error.starts_with("port `short` is already in use by port `left` of this process"),
                "{error}"
            );
            assert_eq!(user_of("uplink-to-the-provider"), Some(std::process::id() as i32));
            drop(lock);
            assert_eq!(user_of("left"), None);
        });
    }

    #[test]
    fn a_lock_is_for_one_and_for_its_namespace() {
        in_namespace(|| {
            let lock = InterfaceLock::of_name("left").unwrap();
            InterfaceLock::of_name("right").unwrap();
            assert_eq!((user_of("left"), user_of("middle")), (Some(std::process::id() as i32), None));
            let error = InterfaceLock::of_name("left").unwrap_err().to_string();
            let expected =
                "port `left` is already in use by another port of this process; stop it or use another port";
            assert_eq!(error, expected);
            in_namespace(|| {
                InterfaceLock::of_name("left").unwrap();
            });
            drop(lock);
            InterfaceLock::of_name("left").unwrap();
        });
    }

    #[test]
    fn a_lock_of_which_a_child_process_has_a_copy_is_waited_for() {
        in_namespace(|| {
            let lock = InterfaceLock::of_name("left").unwrap();
            let copy = lock._socket.as_ref().unwrap().try_clone().unwrap();
            drop(lock);
            let child = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(300));
                drop(copy);
            });
            InterfaceLock::of_name("left").unwrap();
            child.join().unwrap();
        });
    }
}
