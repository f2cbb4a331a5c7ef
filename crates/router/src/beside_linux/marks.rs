//! Whether something in Linux may give packets marks before it asks the policy rules (`ip rule ... fwmark`). Packets of the fast path
//! bypass it, so what rules by marks may select is left to Linux then.
//!
//! | what | looked at |
//! | --- | --- |
//! | chains of nftables and iptables at `prerouting` or `ingress` that have rules | always |
//! | filters and programs of tc at the ports' ingress | always |
//! | packet filters and translation that the settings ignore, whatever they say | counts as setting marks |
//!
//! IPsec sets marks on what it has decrypted. Such packets come from Linux, and are routed there.

use std::io;
use std::time::{Duration, Instant};

use control::netlink::ask::{ROUTE, dump};
use control::service::Service;

use super::{interfaces, legacy_chains, nftables};
use crate::settings::{Bypass, Settings};

/// Returns whether marks may be set.
pub(crate) fn may_be_set(settings: &Settings) -> bool {
    let ignores = |word| settings.beside_linux.ignore.contains(&word);
    if ignores(Bypass::Firewall) || ignores(Bypass::Nat) {
        return true;
    }
    let interfaces = interfaces(&settings.ports);
    let interfaces: Vec<&str> = interfaces.iter().map(String::as_str).collect();
    // What cannot be read may set marks.
    nftables::has_chains_before_routing(&interfaces).unwrap_or(true)
        || legacy_chains().map_or(true, |chains| chains.iter().any(|chain| chain.what.contains("PREROUTING")))
        || interfaces.iter().any(|interface| has_filters(interface).unwrap_or(true))
}

/// `RTM_GETTFILTER`.
const GET_FILTER: u16 = 46;
/// Where filters of the queueing discipline `ingress` are, and those of `clsact` for what comes in (`TC_H_MIN_INGRESS`).
const PARENTS: [u32; 2] = [0xffff_0000, 0xffff_fff2];

/// Returns whether tc has filters or programs for what comes in by an interface.
fn has_filters(interface: &str) -> io::Result<bool> {
    let path = format!("/sys/class/net/{interface}/ifindex");
    // An interface that is not there has none.
    let Some(index) = std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<i32>().ok())
    else {
        return Ok(false);
    };
    for parent in PARENTS {
        // `struct tcmsg`: family, padding, interface, handle, parent, information.
        let mut request = [0; 20];
        request[4..8].copy_from_slice(&index.to_ne_bytes());
        request[12..16].copy_from_slice(&parent.to_ne_bytes());
        let mut has_some = false;
        match dump(ROUTE, GET_FILTER, &request, &mut |_, _| {
            has_some = true;
            Ok(())
        }) {
            // There is no such queueing discipline, or tc is not in this kernel.
            Err(error) if matches!(error.raw_os_error(), Some(EINVAL | EOPNOTSUPP | ENODEV | ENOENT)) => {}
            other => other?,
        }
        if has_some {
            return Ok(true);
        }
    }
    // A kernel without tcx says so by an error.
    Ok(ports::tcx_programs(interface).is_ok_and(|programs| !programs.is_empty()))
}

const EINVAL: i32 = rustix::io::Errno::INVAL.raw_os_error();
const EOPNOTSUPP: i32 = rustix::io::Errno::OPNOTSUPP.raw_os_error();
const ENODEV: i32 = rustix::io::Errno::NODEV.raw_os_error();
const ENOENT: i32 = rustix::io::Errno::NOENT.raw_os_error();

/// How often a router that runs looks, at most, and how much of the time it may spend on that: a part in so many.
const PERIOD: Duration = Duration::from_millis(200);
const SHARE: u32 = 50;

/// Looks again while the router runs.
#[derive(Debug)]
pub(crate) struct MarkWatcher {
    next: Instant,
}

impl MarkWatcher {
    pub(crate) fn new() -> Self {
        Self { next: Instant::now() }
    }

    /// Brings the policy rules in line with what may set marks now.
    pub(crate) fn look(&mut self, service: &Service, settings: &Settings) {
        let begin = Instant::now();
        if begin < self.next {
            return;
        }
        let may_be_set = may_be_set(settings);
        self.next = Instant::now() + PERIOD.max(begin.elapsed() * SHARE);
        let mut state = service.lock();
        // Of a cluster's node the packets are the leader's Linux's, which this one does not know.
        if state.kernel.is_some() && state.mirror.set_marks(may_be_set) {
            state.mirror.publish();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_set_marks_before_routing_is_found() {
        testbed::in_namespace(|| {
            testbed::ip("link add eth1 type veth peer name eth2");
            let mut settings =
                Settings { ports: vec![crate::settings::PortSettings::new("eth1")], ..Settings::default() };
            assert!(!may_be_set(&settings));
            // A kernel without filters of tc has nothing to look at.
            let has_filter = |direction: &str| {
                let filter = format!("tc filter add dev eth1 {direction} matchall action skbedit mark 1");
                let done = std::process::Command::new("sh").args(["-c", &filter]).status();
                done.is_ok_and(|status| status.success())
            };
            if std::process::Command::new("tc")
                .args(["qdisc", "add", "dev", "eth1", "clsact"])
                .status()
                .is_ok()
                && has_filter("egress")
            {
                assert!(!may_be_set(&settings), "after routing");
                assert!(has_filter("ingress") && may_be_set(&settings), "tc");
                testbed::run("tc", "qdisc del dev eth1 clsact");
                assert!(!may_be_set(&settings));
            }
            testbed::run("nft", "add table ip t");
            testbed::run("nft", "add chain ip t f { type filter hook forward priority 0; }");
            testbed::run("nft", "add rule ip t f meta mark set 1");
            assert!(!may_be_set(&settings), "after routing");
            testbed::run("nft", "add chain ip t p { type filter hook prerouting priority 0; }");
            assert!(!may_be_set(&settings), "no rule");
            testbed::run("nft", "add rule ip t p meta mark set 1");
            assert!(may_be_set(&settings), "nft");
            testbed::run("nft", "flush ruleset");
            assert!(!may_be_set(&settings));
            settings.beside_linux.ignore = vec![Bypass::Nat];
            assert!(may_be_set(&settings), "ignored");
        });
    }
}
