//! Tells the service manager how we are: sd_notify(3), a datagram of `NAME=VALUE` lines to the socket that
//! `NOTIFY_SOCKET` names. Started by hand there is no such socket, and nothing happens.
//!
//! A router forwards whether or not systemd listens, so nothing here blocks or fails: what cannot be
//! delivered is lost.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use rustix::time::ClockId;

/// The service manager, if there is one.
#[derive(Debug)]
pub(crate) struct Notify {
    manager: Option<(UnixDatagram, SocketAddr)>,
    watchdog_period: Option<Duration>,
}

impl Notify {
    /// The manager that started this process.
    pub(crate) fn from_environment() -> Self {
        let socket = std::env::var_os("NOTIFY_SOCKET");
        // sd_watchdog_enabled(3): with a WATCHDOG_PID that is not ours the watchdog is for another process.
        let ours = std::env::var("WATCHDOG_PID").map_or(true, |pid| pid == std::process::id().to_string());
        let timeout = std::env::var("WATCHDOG_USEC").ok().filter(|_| ours).and_then(|text| text.parse().ok());
        Self::new(socket.as_deref(), timeout)
    }

    /// The manager at `socket`: a path, or `@NAME` for an abstract name. It restarts us when it hears nothing
    /// for `watchdog_us`.
    fn new(socket: Option<&OsStr>, watchdog_us: Option<u64>) -> Self {
        let manager = socket.and_then(|socket| {
            let address = match socket.as_bytes() {
                [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
                _ => SocketAddr::from_pathname(socket),
            };
            let datagrams = UnixDatagram::unbound().ok()?;
            datagrams.set_nonblocking(true).ok()?;
            Some((datagrams, address.ok()?))
        });
        // The manual recommends to report twice in the time after which it is too late.
        let period = watchdog_us.filter(|&us| us > 0).map(|us| Duration::from_micros(us) / 2);
        Self { watchdog_period: period.filter(|_| manager.is_some()), manager }
    }

    fn send(&self, lines: &str) {
        if let Some((datagrams, address)) = &self.manager {
            // See the top: a manager that does not take it is not a reason to stop.
            let _ = datagrams.send_to_addr(lines.as_bytes(), address);
        }
    }

    /// The router forwards; `systemctl status` prints `status`. Also ends a reload.
    pub(crate) fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={}", one_line(status)));
    }

    /// What it does now, for people.
    pub(crate) fn status(&self, status: &str) {
        self.send(&format!("STATUS={}", one_line(status)));
    }

    /// The settings are being read again; [`Notify::ready`] ends it.
    pub(crate) fn reloading(&self) {
        // Services of Type=notify-reload have to say when, so that an old message is not taken for the
        // answer.
        let now = rustix::time::clock_gettime(ClockId::Monotonic);
        let now_us = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={now_us}"));
    }

    /// The router is about to end.
    pub(crate) fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// How often [`Notify::watchdog`] is to be called; `None` when nobody waits for it.
    pub(crate) fn watchdog_period(&self) -> Option<Duration> {
        self.watchdog_period
    }

    /// All threads are alive.
    pub(crate) fn watchdog(&self) {
        self.send("WATCHDOG=1");
    }
}

/// A status is one line: what follows would be another message.
fn one_line(text: &str) -> String {
    text.replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Receives what `tell` says to a manager at this socket.
    fn heard(socket: &UnixDatagram, name: &str, tell: impl FnOnce(&Notify)) -> String {
        tell(&Notify::new(Some(OsStr::new(name)), Some(3_000_000)));
        let mut bytes = [0; 200];
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }

    #[test]
    fn a_manager_at_a_path_hears_all_of_it() {
        let path = std::env::temp_dir().join(format!("brickway-notify-{}", std::process::id()));
        let name = path.to_str().unwrap();
        let socket = UnixDatagram::bind(&path).unwrap();
        assert_eq!(heard(&socket, name, |n| n.ready("2 ports\nREADY=0")), "READY=1\nSTATUS=2 ports READY=0");
        assert_eq!(heard(&socket, name, |n| n.status("busy")), "STATUS=busy");
        assert_eq!(heard(&socket, name, |n| n.stopping()), "STOPPING=1");
        assert_eq!(heard(&socket, name, |n| n.watchdog()), "WATCHDOG=1");
        let reloading = heard(&socket, name, |n| n.reloading());
        let time = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
        assert!(time.parse::<u64>().unwrap() > 0);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn an_abstract_name_will_do() {
        let name = format!("brickway-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        assert_eq!(heard(&socket, &format!("@{name}"), |n| n.watchdog()), "WATCHDOG=1");
    }

    #[test]
    fn nobody_listens() {
        let nobody = Notify::new(None, Some(1_000_000));
        nobody.ready("x");
        assert_eq!(nobody.watchdog_period(), None);
        let gone = Notify::new(Some(OsStr::new("/no/such/socket")), Some(3_000_000));
        gone.ready("x");
        assert_eq!(gone.watchdog_period(), Some(Duration::from_millis(1_500)));
        assert_eq!(Notify::new(Some(OsStr::new("/x")), Some(0)).watchdog_period(), None);
    }
}
