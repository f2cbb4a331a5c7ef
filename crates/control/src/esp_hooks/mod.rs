//! ESP of Linux's, caught in its packet filter for a caller in this process to judge or replace.
//!
//! The router shares IPsec's security associations with the kernel, and while it runs only the router counts sequence numbers and keeps
//! replay windows. Two hooks see what Linux does with ESP by itself:
//!
//! - [`Hook::Output`]: ESP that Linux made, of the host's own packets and of those that it forwards, before it leaves.
//! - [`Hook::Input`]: ESP to this host, whole again if it came in fragments, before Linux opens it. What the router itself hands to
//!   Linux has a bit in its mark, or a source address at the link layer that nobody else knows, and passes without being seen.
//!
//! In both directions this is ESP behind an IP header, and in UDP from or to [ports](EspHooks::set_udp_ports) of NAT traversal. IKE
//! and keepalives on these ports pass.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `table` | the rules, in a table of nftables that goes when the process ends |
//! | `queue` | the queues that they lead to: packets from Linux, verdicts to it |
//!
//! Nothing passes unjudged: Linux drops what finds no place in the queue, and without a reader everything. A network namespace, that
//! of the thread that calls [`EspHooks::raise`], can have one router with these hooks.
//!
//! # What the hooks do not see
//!
//! - ESP that Linux opens during generic receive offload (GRO), before any packet filter. It does so on all interfaces with GRO while
//!   its modules `esp4_offload` and `esp6_offload` are loaded, which happens when an association with `offload` is added. The
//!   hooks are not raised then, but the modules may be loaded later: see [`offload_modules`].
//! - ESP that a network card makes or opens by itself (`ip xfrm state ... offload packet`).
//! - ESP in TCP (RFC 9329).
//!
//! # What they see too early
//!
//! While these modules are loaded, Linux encrypts ESP behind the output hook, which sees it in plain text and without an integrity
//! check value. Packets that Linux is to segment, too, are dropped unjudged.
//!
//! # What they see twice
//!
//! - ESP that leaves by a VRF passes the output hook for the VRF and once more for the interface below.
//! - ESP inside AH over IPv6 passes the input hook before AH is checked, and again afterwards.

mod queue;
mod table;

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

use queue::Queues;
pub use table::NAME as TABLE;
use table::Table;

/// Parts that a kernel may refuse.
const QUEUE: &str = "queue (nfnetlink_queue)";
const TABLE_WITH_MODULES: &str = "table (nf_tables with nft_queue, nft_ct and nft_tproxy)";

/// Where a packet was caught.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// To this host, before Linux opens it.
    Input,
    /// Made by Linux, before it leaves. It is not fragmented yet.
    Output,
}

/// What becomes of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on unchanged.
    Accept,
    /// It is dropped.
    Drop,
    /// This whole IP packet goes on in its place. It has the same IP header but for lengths and checksum, and all checksums are right:
    /// Linux neither routes it again nor looks for other headers. One longer than 65,531 bytes is dropped.
    Replace(Vec<u8>),
}

/// Packets of a hook by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HookCounters {
    /// Packets that went on unchanged.
    pub accepted: u64,
    /// Packets that were dropped.
    pub dropped: u64,
    /// Packets in whose place another one went on.
    pub replaced: u64,
}

/// What was counted since the hooks were raised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EspHookCounters {
    /// Of the input hook.
    pub input: HookCounters,
    /// Of the output hook.
    pub output: HookCounters,
    /// Packets that Linux dropped because the queue was full. They are known once a later packet has come.
    pub lost: u64,
    /// Packets that were gone when their verdict came. Linux drops all that wait where a chain of the packet filter is removed, and those
    /// of an interface that goes down.
    pub expired: u64,
    /// Packets that were dropped unjudged: Linux gave only a part of them, or they came from a hook that is not ours.
    pub unreadable: u64,
    /// Packets that were dropped unjudged because Linux was to segment them and to encrypt them afterwards; see [`offload_modules`].
    pub unencrypted: u64,
}

/// Why there are no hooks.
#[derive(Debug, thiserror::Error)]
pub enum EspHooksError {
    /// The kernel refuses a part.
    #[error(
        "the hooks for ESP in Linux's packet filter: no {part}: {error}; expected CAP_NET_ADMIN, no other router with IPsec in this \
         network namespace, and a kernel with nf_tables, nfnetlink_queue, nft_queue, nft_ct and nft_tproxy (modprobe -a \
         nfnetlink_queue nft_queue nft_ct nft_tproxy)"
    )]
    Refused {
        /// What is missing.
        part: &'static str,
        /// What the kernel said.
        #[source]
        error: io::Error,
    },
    /// Linux opens ESP before its packet filter, and encrypts it behind.
    #[error(
        "the hooks for ESP in Linux's packet filter: ESP bypasses them while the module {0} is loaded; stop the IKE daemon, then 'ip xfrm \
         state flush' and 'modprobe -r {0}', and start it without 'offload' in its associations"
    )]
    Offload(&'static str),
}

/// Lists the modules of the kernel by which ESP bypasses the hooks, as far as they are loaded. One that was built into the kernel is not
/// found.
pub fn offload_modules() -> impl Iterator<Item = &'static str> {
    let is_loaded = |module: &&str| Path::new("/sys/module").join(module).exists();
    ["esp4_offload", "esp6_offload"].into_iter().filter(is_loaded)
}

/// Looks whether this kernel lets us have the hooks, also beside a router that has them. Nothing stays of it but modules of the kernel.
///
/// # Errors
///
/// Those of [`EspHooks::raise`].
pub fn probe() -> Result<(), EspHooksError> {
    if let Some(module) = offload_modules().next() {
        return Err(EspHooksError::Offload(module));
    }
    let refused = |part| move |error| EspHooksError::Refused { part, error };
    let queues = Queues::open().map_err(refused(QUEUE))?;
    Table::probe(queues.numbers().map(table::to_queue)).map_err(refused(TABLE_WITH_MODULES))
}

/// The hooks. Dropped, they are removed: Linux sends and opens ESP as it did before, and packets that still waited are lost.
#[derive(Debug)]
pub struct EspHooks {
    // The table goes first: while it is there, packets need the queue.
    table: Table,
    queues: Queues,
}

impl EspHooks {
    /// Sets up both hooks, without ports of UDP. Packets with one of the bits `permitted_mark` in their mark, and those whose frame
    /// came from `checked_source`, pass the input hook unseen.
    ///
    /// # Errors
    ///
    /// The kernel lacks a module, or has one of [`offload_modules`], or we lack the right, or another process has these hooks.
    pub fn raise(permitted_mark: u32, checked_source: Option<[u8; 6]>) -> Result<Self, EspHooksError> {
        if let Some(module) = offload_modules().next() {
            return Err(EspHooksError::Offload(module));
        }
        let refused = |part| move |error| EspHooksError::Refused { part, error };
        let queues = Queues::open().map_err(refused(QUEUE))?;
        let table = Table::raise(permitted_mark, checked_source, queues.numbers().map(table::to_queue))
            .map_err(refused(TABLE_WITH_MODULES))?;
        Ok(Self { table, queues })
    }

    /// Says on which ports of this host UDP carries ESP, in the place of those said before.
    ///
    /// # Errors
    ///
    /// The kernel's. The ports stay as they were then.
    pub fn set_udp_ports(&mut self, ports: &[u16]) -> io::Result<()> {
        self.table.set_udp_ports(ports)
    }

    /// The file descriptors of which one is readable while packets wait.
    pub fn fds(&self) -> [BorrowedFd<'_>; 2] {
        self.queues.fds()
    }

    /// Judges some of the packets that wait, each from its IP header on. Returns how many there were; 0 if none is left. It does not
    /// wait for packets.
    ///
    /// A packet may be anything that has the protocol number of ESP or the right UDP port: it may be cut short, and IPv6 may have
    /// extension headers before ESP.
    ///
    /// # Errors
    ///
    /// The socket's. Packets without a verdict stay in Linux's queue then; the hooks are best raised anew.
    pub fn receive(&mut self, judge: &mut dyn FnMut(Hook, &[u8]) -> Verdict) -> io::Result<usize> {
        self.queues.receive(judge)
    }

    /// Returns what was counted so far.
    pub fn counters(&self) -> EspHookCounters {
        self.queues.counters()
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use testbed::{eventually, in_namespace, run};

    use super::*;
    use crate::netfilter::{ACCEPT, verdict};

    #[test]
    fn without_a_module_nothing_is_left_behind() {
        in_namespace(|| {
            let raised = EspHooks::raise(1, None);
            if let Err(error) = &raised {
                let text = error.to_string();
                assert!(text.contains("modprobe"), "{text}");
                assert_eq!(run("nft", "list tables"), "", "{text}");
            }
            assert_eq!(probe().is_ok(), raised.is_ok());
            // Where the kernel has all of it they are there, for one process.
            if raised.is_ok() {
                assert!(run("nft", "list tables").contains(table::NAME));
                assert!(EspHooks::raise(1, None).is_err());
            }
            drop(raised);
            assert_eq!(run("nft", "list tables"), "");
        });
    }

    /// The table's rules about them are without a queue here, which not every kernel knows; the program iptables hands them to ours.
    #[test]
    fn fragments_over_ipv6_are_whole_in_the_input_hook() {
        const PAYLOAD: usize = 4000;
        in_namespace(|| {
            run("ip", "link set lo mtu 1280");
            let mut queues = Queues::open().unwrap();
            run("ip6tables-nft", &format!("-A INPUT -j NFQUEUE --queue-num {}", queues.numbers()[0]));
            let [near, far] = [0; 2].map(|_| UdpSocket::bind("[::1]:0").unwrap());
            let mut lengths = || {
                near.send_to(&[1; PAYLOAD], far.local_addr().unwrap()).unwrap();
                let mut lengths = Vec::new();
                let mut note = |_, packet: &[u8]| {
                    lengths.push(packet.len());
                    Verdict::Drop
                };
                while queues.receive(&mut note).unwrap() > 0 {}
                lengths
            };
            let is_in_pieces = |lengths: &[usize]| lengths.len() > 3;
            assert!(is_in_pieces(&lengths()));
            let table = Table::raise(1, None, [ACCEPT; 2].map(verdict)).unwrap();
            assert_eq!(lengths(), [PAYLOAD + 48]);
            drop(table);
            // Linux cleans up after a table a little later.
            assert!(eventually(|| is_in_pieces(&lengths())));
        });
    }
}
