//! Linux hosts of a test: network namespaces joined by veth links, and programs that run on them. Everything that a test makes is
//! removed when its [`Network`] is dropped.

use std::net::UdpSocket;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{Folder, Namespace, Running};

/// Namespaces and links of one test, and a folder for its files.
pub struct Network {
    namespaces: Vec<(String, Namespace)>,
    /// Logs of programs are in it too.
    pub folder: Folder,
}

impl Network {
    /// One with namespaces of these labels; their real names hold the process id, so that tests do not meet.
    pub fn new(labels: &[&str]) -> Self {
        let tag = Namespace::unique_name("bwtest");
        let make = |label: &&str| {
            let namespace = Namespace::without_ipv6(format!("{tag}-{label}"));
            ((*label).to_owned(), namespace.expect("namespaces can be made"))
        };
        Self { namespaces: labels.iter().map(make).collect(), folder: Folder::new() }
    }

    /// The namespace of a label.
    pub fn namespace(&self, label: &str) -> &Namespace {
        let found = self.namespaces.iter().find(|(known, _)| known == label);
        &found.unwrap_or_else(|| panic!("there is no namespace '{label}'")).1
    }

    /// The real name of a namespace.
    pub fn name(&self, label: &str) -> &str {
        self.namespace(label).name()
    }

    /// Links interface `left.1` of namespace `left.0` to `right.1` of `right.0`, with these Ethernet addresses.
    pub fn link(&self, left: (&str, &str, &str), right: (&str, &str, &str)) {
        let [near, far] = [left, right].map(|(_, device, address)| format!("{device} address {address}"));
        let linked = self.namespace(left.0).wire(&near, (self.namespace(right.0), &far));
        linked.unwrap_or_else(|error| panic!("{error:#}"));
    }

    /// Runs `ip -n NAMESPACE ...`.
    pub fn ip(&self, label: &str, arguments: &str) {
        self.namespace(label).ip(arguments).unwrap_or_else(|error| panic!("{error:#}"));
    }

    /// Runs `ip -n NAMESPACE` with each of these lines, by one process: it is for many lines, or where processes are slow to start.
    pub fn ip_batch(&self, label: &str, lines: &[String]) {
        let file = self.folder.write(&format!("{label}.ip"), lines.join("\n") + "\n");
        self.ip(label, &format!("-batch {file}"));
    }

    /// Sets a `sysctl` in a namespace, or several.
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
        let mut words = command.split_whitespace();
        let mut command = self.namespace(label).command(words.next().unwrap_or_default());
        command.args(words);
        command
    }

    /// Runs a shell's script in a namespace; whether it succeeded, and what it printed.
    pub fn script(&self, label: &str, script: &str) -> (bool, String) {
        said(self.on(label, "sh -ec").arg(script))
    }

    /// A UDP socket in a namespace.
    pub fn udp_socket(&self, label: &str, address: &str) -> UdpSocket {
        self.namespace(label).enter(|| UdpSocket::bind(address).expect("the address is the host's"))
    }

    /// Runs a command in a namespace; whether it succeeded, and what it printed.
    pub fn run(&self, label: &str, command: &str) -> (bool, String) {
        said(&mut self.on(label, command))
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

    /// Starts a program in a namespace that runs until it is stopped.
    pub fn start(&self, label: &str, command: &str) -> Running {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let log = self.folder.path().join(format!("{label}-{number}.log"));
        Running::start(&mut self.on(label, command), log).unwrap_or_else(|error| panic!("{error:#}"))
    }
}

fn said(command: &mut Command) -> (bool, String) {
    let output = command.output().expect("the program ip is installed");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text.into_owned())
}

/// The number of the ping that a line of `ping` says the answer of.
pub fn reply_number(line: &str) -> Option<usize> {
    let (_, rest) = line.split_once("bytes from")?.1.split_once("icmp_seq=")?;
    rest.split(' ').next()?.parse().ok()
}
