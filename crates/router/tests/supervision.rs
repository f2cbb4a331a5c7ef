//! Each thread of a router and of a cluster's node hangs in turn: the router notices, and ends without it.
//!
//! A debugger's stop (`ptrace`) holds one thread of a process while the others go on.

#![allow(clippy::unwrap_used, reason = "a test")]

mod netns;

use std::time::{Duration, Instant};

use netns::cluster::{Cluster, Plan, StorePlan};
use netns::router::{between_hosts, start};
use netns::{Network, eventually};
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// The routers' processes in a namespace.
fn process(network: &Network, namespace: &str) -> Option<i32> {
    let (_, pids) = network.run(namespace, &format!("ip netns pids {}", network.name(namespace)));
    let pids = pids.split_whitespace().filter_map(|pid| pid.parse().ok());
    let name = |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    pids.into_iter().find(|pid| name(pid).trim() == "brickway")
}

/// The threads of this name in a process; its main thread has that of the program.
fn threads(process: i32, name: &str) -> Vec<i32> {
    let name = if name == "main" { "brickway" } else { name };
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let threads = threads.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_it = |thread: &i32| {
        let comm = std::fs::read_to_string(format!("/proc/{process}/task/{thread}/comm"));
        comm.is_ok_and(|comm| comm.trim() == name)
    };
    threads.filter(is_it).collect()
}

/// Has a thread hang, and waits until its process has ended; its exit code.
fn hang(network: &Network, namespace: &str, name: &str) -> i32 {
    let process = process(network, namespace).unwrap();
    loop {
        if let Some(code) = hang_once(process, name) {
            return code;
        }
        println!("'{name}' had done its work");
    }
}

/// The same; `None` if the thread was stopped when its work was done, and the process has begun another one for what is next.
fn hang_once(process: i32, name: &str) -> Option<i32> {
    let (mut stopped, mut last) = (None, String::new());
    // Threads that come and go may have gone again.
    let hangs = eventually(|| {
        let Some(thread) = threads(process, name).first().copied().map(Pid::from_raw) else { return false };
        let seized = ptrace::seize(thread, ptrace::Options::empty()).and_then(|()| ptrace::interrupt(thread));
        let came = seized.and_then(|()| waitpid(thread, Some(WaitPidFlag::__WALL)));
        let is_stopped = matches!(came, Ok(WaitStatus::Stopped(..) | WaitStatus::PtraceEvent(..)));
        last = format!("{came:?}");
        stopped = is_stopped.then_some(thread);
        is_stopped
    });
    assert!(hangs, "no thread '{name}' can be stopped: {last}");
    let (thread, begin) = (stopped.unwrap(), Instant::now());
    let (mut code, mut was_done) = (None, false);
    let ends = eventually(|| {
        let flags = WaitPidFlag::__WALL | WaitPidFlag::WNOHANG;
        code = match waitpid(thread, Some(flags)).unwrap() {
            WaitStatus::Exited(_, code) => Some(code),
            WaitStatus::Signaled(..) => Some(-1),
            _ => None,
        };
        was_done = threads(process, name).iter().any(|other| *other != thread.as_raw());
        code.is_some() || was_done
    });
    println!("'{name}' hangs: an end after {:.1} s", begin.elapsed().as_secs_f64());
    if code.is_none() {
        // Nobody else may wait for the end of a thread that is held.
        let _ = ptrace::detach(thread, None);
    }
    assert!(ends, "'{name}' hangs, and the router goes on");
    code
}

#[test]
fn a_router_ends_whichever_of_its_threads_hangs() {
    if !netns::is_root() {
        return;
    }
    let network = between_hosts();
    network.ip("r", "link set lo up");
    let text = "[[port]]\nname = \"eth1\"\n[[port]]\nname = \"eth2\"\n[tables]\ncheck_seconds = 0.1\n\
                [sflow]\ncollectors = [\"127.0.0.1:6343\"]\n[ipfix]\ncollectors = [\"127.0.0.1:4739\"]\n\
                [web]\nlisten = \"127.0.0.1:8080\"\n";
    let arguments = format!("--config {}", network.folder.write("brickway.toml", text));
    let threads = [
        "worker 0",
        "slow",
        "control",
        "control-socket",
        "main",
        "ipsec",
        "sflow",
        "ipfix",
        "drift",
        "web",
        "supervisor",
    ];
    for name in threads {
        let router = start(&network, &arguments);
        assert_eq!(hang(&network, "r", name), 1, "{name}:\n{}", router.printed());
        // It may name another thread, which waits for the one that hangs.
        assert!(router.printed().contains("has not answered for 1.5 s"), "{name}:\n{}", router.printed());
    }
}

#[test]
fn a_node_ends_whichever_of_its_threads_hangs() {
    if !netns::is_root() {
        return;
    }
    let plan = Plan { topology: "mesh(2)", store: StorePlan::Hosted, ..Plan::default() };
    let mut cluster = Cluster::new(plan);
    for name in ["store", "member", "control", "leader", "hooks"] {
        cluster.start("a");
        assert_eq!(cluster.next_leader(""), "a");
        let code = hang(&cluster.network, "a", name);
        assert_eq!(code, 1, "{name}:\n{}", cluster.said("a"));
        assert!(cluster.said("a").contains("has not answered for 1.5 s"), "{name}:\n{}", cluster.said("a"));
        cluster.kill("a");
    }
}

/// A router that gets little of the CPU, and one that was stopped altogether, have done nothing wrong.
#[test]
fn a_router_without_a_cpu_is_not_at_fault() {
    if !netns::is_root() {
        return;
    }
    let network = between_hosts();
    let router = start(&network, "eth1 eth2");
    router.signal(rustix::process::Signal::STOP);
    std::thread::sleep(Duration::from_secs(4));
    router.signal(rustix::process::Signal::CONT);
    assert_eq!(network.answers("a", "10.0.2.2"), 10, "{}", router.printed());
    assert_eq!(router.interrupt(), 0, "{}", router.printed());
}
