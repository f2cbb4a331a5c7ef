//! Network namespaces: what is set in them, the links between them, and programs that run in them.

use std::fs::File;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, bail};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A network namespace. It goes away with its links when dropped.
#[derive(Debug)]
pub struct Namespace(String);

impl Namespace {
    /// Makes one of this name, with a loopback interface.
    ///
    /// # Errors
    ///
    /// Where `ip` fails. Nothing is left of the namespace then.
    pub fn new(name: String) -> Result<Self> {
        let namespace = Self(name);
        output(&format!("ip netns add {}", namespace.0))?;
        namespace.ip("link set lo up")?;
        Ok(namespace)
    }

    /// The same without IPv6: router advertisements and duplicate address detection would be noise.
    ///
    /// # Errors
    ///
    /// Those of [`Namespace::new`].
    pub fn without_ipv6(name: String) -> Result<Self> {
        let namespace = Self::new(name)?;
        // A kernel without IPv6 has no such setting, which is as good.
        let _ =
            namespace.run("sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1");
        Ok(namespace)
    }

    /// A name that no other namespace of this machine has, of this kind.
    pub fn unique_name(kind: &str) -> String {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        format!("{kind}-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
    }

    /// The name that `ip netns` knows it by.
    pub fn name(&self) -> &str {
        &self.0
    }

    /// A program to be run in it, in English and without input.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0, program]).env("LC_ALL", "C").stdin(Stdio::null());
        command
    }

    /// Runs a program with these words in it. Returns its output.
    ///
    /// # Errors
    ///
    /// Where the program fails.
    pub fn run(&self, words: &str) -> Result<String> {
        output(&format!("ip netns exec {} {words}", self.0))
    }

    /// Runs `ip -n NAMESPACE` with these words.
    ///
    /// # Errors
    ///
    /// Where `ip` fails.
    pub fn ip(&self, words: &str) -> Result<()> {
        output(&format!("ip -n {} {words}", self.0)).map(drop)
    }

    /// Runs lines of shell in it until one fails.
    ///
    /// # Errors
    ///
    /// Where one fails.
    pub fn script(&self, lines: &str) -> Result<()> {
        let output = self.command("sh").args(["-ec", lines]).output().context("cannot run 'ip'")?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
            bail!("in {}: {lines}\nfailed: {}", self.0, said.trim());
        }
        Ok(())
    }

    /// Links an interface of this namespace to one of another by a veth pair, both up. Each is its name with what else `ip link add`
    /// takes, such as `eth0 address 02:00:00:00:00:01`.
    ///
    /// # Errors
    ///
    /// Where `ip` fails.
    pub fn link(&self, near: &str, far: (&Namespace, &str)) -> Result<()> {
        let (other, end) = far;
        self.ip(&format!("link add {near} type veth peer name {end} netns {}", other.0))?;
        [(self, near), far]
            .into_iter()
            .try_for_each(|(namespace, end)| namespace.ip(&format!("link set {} up", first_word(end))))
    }

    /// The same as on a wire: no segments of 64 KiB, no checksums that nobody computed, and ends that take what an XDP program
    /// redirects to their other end, which a veth does with GRO on.
    ///
    /// # Errors
    ///
    /// Where `ip` or `ethtool` fails.
    pub fn wire(&self, near: &str, far: (&Namespace, &str)) -> Result<()> {
        self.link(near, far)?;
        for (namespace, end) in [(self, near), far] {
            namespace.run(&format!("ethtool -K {} tx off rx off tso off gso off gro on", first_word(end)))?;
        }
        Ok(())
    }

    /// Calls `act` on a thread of its own inside the namespace. Returns its result.
    ///
    /// # Panics
    ///
    /// Where `act` panics or the namespace cannot be entered.
    pub fn enter<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        enter(&self.0, act)
    }
}

/// Calls `act` on a thread of its own inside the network namespace of this name. Returns its result.
///
/// # Panics
///
/// Where `act` panics or the namespace cannot be entered.
pub fn enter<T: Send>(namespace: &str, act: impl FnOnce() -> T + Send) -> T {
    let path = format!("/run/netns/{namespace}");
    let file = File::open(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let inside = || {
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
            .expect("root may enter a namespace");
        act()
    };
    let result = std::thread::scope(|scope| scope.spawn(inside).join());
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // One that was never made cannot be removed; nothing else to do about a failure.
        let _ = output(&format!("ip netns del {}", self.0));
    }
}

fn first_word(words: &str) -> &str {
    words.split(' ').next().unwrap_or_default()
}

/// Runs a program with its words to its end. Returns its standard output.
fn output(words: &str) -> Result<String> {
    let mut split = words.split_whitespace();
    let output = Command::new(split.next().unwrap_or_default()).args(split).output();
    let output = output.with_context(|| format!("cannot run '{words}'"))?;
    if !output.status.success() {
        bail!("'{words}' failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The names of all network namespaces that `ip netns` knows.
pub fn namespaces() -> Vec<String> {
    let text = ip("netns list");
    text.lines().filter_map(|line| line.split_whitespace().next().map(str::to_owned)).collect()
}

/// Runs `test` on a thread of its own inside a new network namespace with a loopback interface. The namespace goes away
/// with its links at the end. See [`is_root`](crate::is_root) for machines without root.
///
/// # Panics
///
/// Where the test panics or the namespace cannot be made.
pub fn in_namespace(test: impl FnOnce() + Send) {
    if crate::is_root() {
        Namespace::new(Namespace::unique_name("testbed")).expect("namespaces can be made").enter(test);
    }
}

/// Runs `ip` with these words in the thread's namespace; returns its output.
///
/// # Panics
///
/// Where `ip` fails.
pub fn ip(words: &str) -> String {
    run("ip", words)
}

/// Runs a program with these words in the thread's namespace; returns its output.
///
/// # Panics
///
/// Where the program is not installed ('make packages-test' installs it) or fails.
pub fn run(program: &str, words: &str) -> String {
    output(&format!("{program} {words}")).unwrap_or_else(|error| panic!("{error:#}"))
}

/// Makes a veth pair with `queues` queues in each direction, both ends up, without IPv6 addresses of their own.
///
/// # Panics
///
/// Where `ip` fails.
pub fn veth_pair(left: &str, right: &str, queues: u32) {
    let number = format!("numrxqueues {queues} numtxqueues {queues}");
    ip(&format!("link add {left} {number} type veth peer name {right} {number}"));
    for name in [left, right] {
        ip(&format!("link set {name} addrgenmode none"));
        ip(&format!("link set {name} up"));
    }
}
