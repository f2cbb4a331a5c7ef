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

use control::service::Service;

use super::{interfaces, legacy_chains, nftables, tc};
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

/// Returns whether tc has filters or programs for what comes in by an interface.
fn has_filters(interface: &str) -> io::Result<bool> {
    // A kernel without tcx says so by an error.
    let has_programs = || ports::tcx_programs(interface).is_ok_and(|programs| !programs.is_empty());
    Ok(tc::has_filters_at_ingress(interface)? || has_programs())
}

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
