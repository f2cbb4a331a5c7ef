//! Which cases there are: DRIVER/WORKLOAD/ENGINE.

use anyhow::{Result, bail};
use packet::IpVersion;

/// Where frames come in and go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Driver {
    /// A loop in this program's memory; what is sent is freed.
    Memory,
    /// DPDK's vdev that loops a file from memory; what is sent is freed.
    NetPcap,
    /// DPDK's vdev that makes frames without content.
    NetNull,
    /// Our AF_PACKET driver on veth.
    AfPacket,
    /// Our AF_XDP driver on veth.
    AfXdp,
    /// Our tables in the kernel, on veth.
    Xdp,
    /// The same by generic XDP.
    XdpGeneric,
    /// The kernel itself on veth.
    Veth,
}

impl Driver {
    fn name(self) -> &'static str {
        match self {
            Driver::Memory => "memory",
            Driver::NetPcap => "net_pcap",
            Driver::NetNull => "net_null",
            Driver::AfPacket => "af_packet",
            Driver::AfXdp => "af_xdp",
            Driver::Xdp => "xdp",
            Driver::XdpGeneric => "xdp-generic",
            Driver::Veth => "veth",
        }
    }

    /// Whether its frames cross the kernel's links.
    pub(super) fn is_on_veth(self) -> bool {
        use Driver::*;
        matches!(self, AfPacket | AfXdp | Xdp | XdpGeneric | Veth)
    }
}

/// Who forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Engine {
    Brickway,
    /// Ours with metrics and web page, which clients read every second.
    Watched,
    Testpmd,
    /// DPDK's l3fwd with `rte_fib`, and with `rte_lpm`.
    L3fwdFib,
    L3fwdLpm,
    Kernel,
    KernelXdp,
    /// `bpf_fib_lookup` in XDP, by the program of xdp-tools.
    XdpForward,
}

impl Engine {
    fn name(self) -> &'static str {
        match self {
            Engine::Brickway => "brickway",
            Engine::Watched => "watched",
            Engine::Testpmd => "testpmd",
            Engine::L3fwdFib => "l3fwd-fib",
            Engine::L3fwdLpm => "l3fwd-lpm",
            Engine::Kernel => "kernel",
            Engine::KernelXdp => "kernel-xdp",
            Engine::XdpForward => "xdp-forward",
        }
    }
}

/// What is done with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Received and sent.
    Minimal,
    /// Through the example router.
    Route,
    /// Through the graph of `brickway run PORT...`.
    DropIn,
    /// Forwarded by Linux's routes: by Linux, or by our router in its place.
    Forward,
    /// The same, behind an access list of [`RULES`] rules, none of which denies a frame; Linux has them as nftables.
    Listed,
    /// Encrypted (ESP, AES-128-GCM) by Linux's policies and associations: by Linux, or by our router in its place.
    Esp,
    /// Sent on by an XDP program that looks nothing up.
    Redirect,
}

/// Rules of the access list of [`Work::Listed`].
pub(super) const RULES: usize = 100;

/// How many routes a table has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Routes {
    One,
    /// The real table, thinned or grown to this size.
    Grown(usize),
    /// The real table.
    Real,
}

/// The routes of a table, and the different destinations of the frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Load {
    name: &'static str,
    pub(super) family: IpVersion,
    pub(super) routes: Routes,
    pub(super) dests: usize,
}

impl Load {
    pub(super) const fn new(name: &'static str, family: IpVersion, routes: Routes, dests: usize) -> Self {
        Self { name, family, routes, dests }
    }
}

use IpVersion::{V4, V6};

/// One route, one destination.
const ONE: Load = Load::new("1-1", V4, Routes::One, 1);
const QUARTER_4096: Load = Load::new("256k-4096", V4, Routes::Grown(256 << 10), 4096);
const QUARTER_65536: Load = Load::new("256k-65536", V4, Routes::Grown(256 << 10), 65536);

/// What the frames are, from kind to cruel.
const LOADS: [Load; 4] =
    [ONE, QUARTER_4096, QUARTER_65536, Load::new("1m-65536", V4, Routes::Grown(1_000_000), 65536)];

/// The same on veth links.
const VETH_LOADS: [Load; 8] = [
    ONE,
    QUARTER_4096,
    QUARTER_65536,
    Load::new("full-4096", V4, Routes::Real, 4096),
    Load::new("full-65536", V4, Routes::Real, 65536),
    Load::new("1-1", V6, Routes::One, 1),
    Load::new("full-4096", V6, Routes::Real, 4096),
    Load::new("full-65536", V6, Routes::Real, 65536),
];

/// One thing to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) driver: Driver,
    pub(super) work: Work,
    pub(super) load: Load,
    pub(super) engine: Engine,
}

impl Case {
    pub(super) fn name(&self) -> String {
        let load = match self.load.family {
            V4 => format!("-{}", self.load.name),
            V6 => format!("6-{}", self.load.name),
        };
        let workload = match self.work {
            Work::Minimal if self.load == ONE => "minimal".to_owned(),
            Work::Minimal => format!("minimal{load}"),
            Work::Route => format!("route{load}"),
            Work::DropIn => format!("drop-in{load}"),
            Work::Forward => format!("forward{load}"),
            Work::Listed => format!("listed{load}"),
            Work::Esp => format!("esp{load}"),
            Work::Redirect => format!("redirect{load}"),
        };
        format!("{}/{workload}/{}", self.driver.name(), self.engine.name())
    }

    /// Cases of one group take turns, run by run.
    pub(super) fn is_in_group_of(&self, other: &Case) -> bool {
        self.load == other.load && self.driver.is_on_veth() == other.driver.is_on_veth()
    }
}

/// Every case, the groups one after another.
pub(super) fn all() -> Vec<Case> {
    use {Driver::*, Engine::*, Work::*};
    let mut cases = Vec::new();
    for load in LOADS {
        let mut add = |driver, work, engine| cases.push(Case { driver, work, load, engine });
        for (driver, work, engine) in [
            (Memory, Minimal, Brickway),
            (Memory, Route, Brickway),
            (NetPcap, Minimal, Brickway),
            (NetPcap, Minimal, Testpmd),
            (NetPcap, Route, Brickway),
            (NetPcap, DropIn, Brickway),
            (NetPcap, Route, L3fwdFib),
        ] {
            add(driver, work, engine);
        }
        if load == ONE {
            // It takes minutes for a large table, and was slower there.
            add(NetPcap, Route, L3fwdLpm);
            add(NetNull, Minimal, Brickway);
            add(NetNull, Minimal, Testpmd);
        }
    }
    for (driver, work) in [(AfPacket, Minimal), (AfPacket, Route), (AfXdp, Minimal), (AfXdp, Route)] {
        cases.push(Case { driver, work, load: ONE, engine: Brickway });
    }
    for load in VETH_LOADS {
        for (driver, work, engine) in [
            (Veth, Forward, Kernel),
            (Veth, Redirect, KernelXdp),
            (Veth, Forward, XdpForward),
            (AfXdp, Forward, Brickway),
            (AfXdp, Forward, Watched),
            (Xdp, Forward, Brickway),
            (Xdp, Forward, Watched),
            (XdpGeneric, Forward, Brickway),
            (Veth, Listed, Kernel),
            (Xdp, Listed, Brickway),
        ] {
            cases.push(Case { driver, work, load, engine });
        }
        if load == ONE {
            for (driver, engine) in [(Veth, Kernel), (AfXdp, Brickway)] {
                cases.push(Case { driver, work: Esp, load, engine });
            }
        }
    }
    cases
}

/// Those of encryption.
pub(super) fn of_esp() -> Vec<Case> {
    all().into_iter().filter(|case| case.work == Work::Esp).collect()
}

/// The cases in whose names one of `patterns` stands; without patterns all.
pub(super) fn select(patterns: &[String]) -> Result<Vec<Case>> {
    let all = all();
    for pattern in patterns {
        if pattern.is_empty() {
            bail!(
                "--only: an empty text is in every name; expected a part of a case's name, such as net_pcap/minimal"
            );
        }
        if !all.iter().any(|case| case.name().contains(pattern.as_str())) {
            let names: Vec<String> = all.iter().map(|case| format!("  {}", case.name())).collect();
            bail!(
                "the cases are\n{}\n--only {pattern}: no case's name contains that; expected a part of one of these names",
                names.join("\n")
            );
        }
    }
    let wanted = |case: &Case| {
        patterns.is_empty() || patterns.iter().any(|pattern| case.name().contains(pattern.as_str()))
    };
    Ok(all.into_iter().filter(wanted).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn names_are_unique_and_select_their_cases() {
        let all = all();
        for case in &all {
            let name = case.name();
            assert_eq!(all.iter().filter(|other| other.name() == name).count(), 1, "{name}");
            assert!(select(std::slice::from_ref(&name)).unwrap().contains(case), "{name}");
        }
        for name in [
            "net_pcap/minimal/testpmd",
            "net_pcap/route-1m-65536/brickway",
            "veth/redirect-1-1/kernel-xdp",
            "veth/forward6-full-65536/xdp-forward",
            "xdp-generic/forward-256k-4096/brickway",
            "xdp/listed6-full-65536/brickway",
            "veth/esp-1-1/kernel",
        ] {
            assert_eq!(select(&[name.to_owned()]).unwrap().len(), 1);
        }
        assert_eq!(select(&[]).unwrap().len(), all.len());
        assert_eq!(select(&["memory/minimal".into(), "af_packet".into()]).unwrap().len(), 6);
        let error = select(&["memory".into(), "quux".into()]).unwrap_err().to_string();
        let (cases, last) = error.rsplit_once('\n').unwrap();
        assert!(last.starts_with("--only quux") && cases.contains("net_null/minimal/testpmd"), "{error}");
    }

    #[test]
    fn an_empty_text_selects_nothing() {
        for patterns in [vec![String::new()], vec!["memory".into(), String::new()]] {
            let error = select(&patterns).unwrap_err().to_string();
            assert!(
                error.contains("--only") && error.contains("expected a part of a case's name"),
                "{error}"
            );
        }
    }

    #[test]
    fn groups_lie_together() {
        let all = all();
        let mut groups: Vec<Case> = Vec::new();
        for case in all {
            if !groups.last().is_some_and(|last| last.is_in_group_of(&case)) {
                assert!(!groups.iter().any(|other| other.is_in_group_of(&case)), "{}", case.name());
                groups.push(case);
            }
        }
        assert_eq!(groups.len(), 12);
    }
}
