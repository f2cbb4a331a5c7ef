//! Linux hosts: network namespaces joined by veth links, and programs that run on them. Everything that a test makes is
//! removed when its [`Network`] is dropped.

use std::fs::File;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Namespaces and links of one test.
pub struct Network {
    tag: String,
    namespaces: Vec<String>,
}

/// The names of all network namespaces that `ip netns` knows.
pub fn namespaces() -> Vec<String> {
    let output = ip("netns list");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().filter_map(|line| line.split_whitespace().next().map(str::to_owned)).collect()
}

fn ip(arguments: &str) -> Output {
    Command::new("ip").args(arguments.split_whitespace()).output().expect("the program ip is installed")
}

fn must(arguments: &str) {
    let output = ip(arguments);
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

impl Network {
    /// One with namespaces of these labels; their real names hold the process id, so that tests do not meet.
    pub fn new(labels: &[&str]) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let mut network =
            Self { tag: format!("bwtest-{}-{number}", std::process::id()), namespaces: Vec::new() };
        for label in labels {
            let name = network.name(label);
            must(&format!("netns add {name}"));
            network.namespaces.push(name.clone());
            // Router advertisements and duplicate address detection would be noise. A kernel without IPv6 has no
            // such setting, which is as good.
            for scope in ["all", "default"] {
                let setting = format!("net.ipv6.conf.{scope}.disable_ipv6=1");
                let _ = network.on(label, &format!("sysctl -qw {setting}")).output();
            }
            must(&format!("-n {name} link set lo up"));
        }
        network
    }

    /// The real name of a namespace.
    pub fn name(&self, label: &str) -> String {
        format!("{}-{label}", self.tag)
    }

    /// Links interface `left.1` of namespace `left.0` to `right.1` of `right.0`, with these Ethernet addresses.
    pub fn link(&self, left: (&str, &str, &str), right: (&str, &str, &str)) {
        must(&format!(
            "-n {} link add {} address {} type veth peer name {} address {} netns {}",
            self.name(left.0),
            left.1,
            left.2,
            right.1,
            right.2,
            self.name(right.0)
        ));
        for (namespace, device, _) in [left, right] {
            must(&format!("-n {} link set {device} up", self.name(namespace)));
            // As on a wire: no segments of 64 KiB, no checksums that nobody computed.
            let output = self
                .on(namespace, &format!("ethtool -K {device} tx off rx off tso off gso off gro off"))
                .output()
                .expect("the program ethtool is installed");
            assert!(output.status.success(), "ethtool: {}", String::from_utf8_lossy(&output.stderr));
        }
    }

    /// Runs `ip -n NAMESPACE ...`.
    pub fn ip(&self, label: &str, arguments: &str) {
        must(&format!("-n {} {arguments}", self.name(label)));
    }

    /// Sets a `sysctl` in a namespace.
    pub fn set(&self, label: &str, setting: &str) {
        let (set, text) = self.run(label, &format!("sysctl -qw {setting}"));
        assert!(set, "{label}: {setting}: {text}");
    }

    /// Allows IPv6 on an interface.
    pub fn allow_ipv6(&self, label: &str, device: &str) {
        for scope in ["all", "default", device] {
            self.set(label, &format!("net.ipv6.conf.{scope}.disable_ipv6=0"));
        }
    }

    /// Makes a namespace a router.
    pub fn forward(&self, label: &str) {
        self.set(label, "net.ipv4.ip_forward=1");
        self.set(label, "net.ipv6.conf.all.forwarding=1");
    }

    /// A command to be run in a namespace; its words are separated by spaces.
    pub fn on(&self, label: &str, command: &str) -> Command {
        let mut ip = Command::new("ip");
        ip.args(["netns", "exec", &self.name(label)]).args(command.split_whitespace());
        ip.env("LC_ALL", "C").stdin(Stdio::null());
        ip
    }

    /// Runs a shell's script in a namespace; whether it succeeded, and what it printed.
    pub fn script(&self, label: &str, script: &str) -> (bool, String) {
        let output = self.on(label, "sh -ec").arg(script).output().expect("the program ip is installed");
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        (output.status.success(), text.into_owned())
    }

    /// A UDP socket in a namespace.
    pub fn udp_socket(&self, label: &str, address: &str) -> UdpSocket {
        let namespace =
            File::open(format!("/run/netns/{}", self.name(label))).expect("the namespace is there");
        let address = address.to_owned();
        let open = move || {
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(namespace.as_fd(), kind).expect("root may enter namespaces");
            UdpSocket::bind(address).expect("the address is the host's")
        };
        std::thread::spawn(open).join().expect("sockets can be made")
    }

    /// Runs a command in a namespace; whether it succeeded, and what it printed.
    pub fn run(&self, label: &str, command: &str) -> (bool, String) {
        let output = self.on(label, command).output().expect("the program ip is installed");
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        (output.status.success(), text.into_owned())
    }

    /// How many of ten pings from a host are answered. Where only the last ones are not, it pings again: ping waits for these for
    /// two round trips only, and a host may wait longer for its CPU.
    pub fn answers(&self, host: &str, options: &str) -> usize {
        let mut count = 0;
        for _ in 0..3 {
            let (_, text) = self.run(host, &format!("ping -n -c 10 -i 0.02 -W 1 {options}"));
            let numbers: Vec<usize> = text.lines().filter_map(reply_number).collect();
            count = numbers.len();
            if count < 10 {
                println!("ping {options}:\n{text}");
            }
            let lacks_the_last_only = (1..10).contains(&count) && numbers.iter().max() == Some(&count);
            if !lacks_the_last_only {
                break;
            }
        }
        count
    }

    /// Starts a program in a namespace that runs until it is told to stop.
    pub fn start(&self, label: &str, command: &str) -> Running {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let log = std::env::temp_dir().join(format!("{}-{label}-{number}.log", self.tag));
        let file = File::create(&log).expect("the temporary folder can be written");
        let copy = file.try_clone().expect("a file can be opened twice");
        let child = self.on(label, command).stdout(file).stderr(copy).spawn();
        Running { child: child.expect("the program ip is installed"), log }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in &self.namespaces {
            ip(&format!("netns del {name}"));
        }
    }
}

/// A program that runs; killed when dropped.
pub struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    /// What it printed so far.
    pub fn printed(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Whether it ended, and how.
    pub fn ended(&mut self) -> Option<i32> {
        self.child.try_wait().ok().flatten().map(|status| status.code().unwrap_or(-1))
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let process = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(process, signal).expect("the process is ours");
    }

    /// Presses Ctrl-C and waits; the exit code.
    pub fn interrupt(&mut self) -> i32 {
        interrupt(&mut self.child)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.log);
    }
}

/// Sends SIGINT and waits for the end, at most a minute; returns the exit code.
pub fn interrupt(child: &mut Child) -> i32 {
    let process = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(process, rustix::process::Signal::INT).expect("the process is ours");
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("the process is ours") {
            return status.code().unwrap_or(-1);
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "it does not end on SIGINT");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The number of the ping that a line of `ping` says the answer of.
pub fn reply_number(line: &str) -> Option<usize> {
    let (_, rest) = line.split_once("bytes from")?.1.split_once("icmp_seq=")?;
    rest.split(' ').next()?.parse().ok()
}
