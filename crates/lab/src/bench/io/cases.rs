//! Which cases there are: DRIVER/WORKLOAD/ENGINE.

use anyhow::{Result, bail};

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
            Driver::Veth => "veth",
        }
    }

    /// Whether its frames cross the kernel's links.
    pub(super) fn is_on_veth(self) -> bool {
        matches!(self, Driver::AfPacket | Driver::AfXdp | Driver::Veth)
    }
}

/// Who forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Engine {
    Brickway,
    Testpmd,
    Kernel,
    KernelXdp,
}

impl Engine {
    fn name(self) -> &'static str {
        match self {
            Engine::Brickway => "brickway",
            Engine::Testpmd => "testpmd",
            Engine::Kernel => "kernel",
            Engine::KernelXdp => "kernel-xdp",
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
    /// The kernel's IP forwarding.
    Forward,
    /// Sent on by an XDP program.
    Redirect,
}

/// The routes of a table, and the different destinations of the frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Load {
    name: &'static str,
    pub(super) routes: usize,
    pub(super) dests: usize,
}

/// One route, one destination.
const ONE: Load = Load { name: "1-1", routes: 1, dests: 1 };

/// What the frames are, from kind to cruel.
const LOADS: [Load; 4] = [
    ONE,
    Load { name: "256k-4096", routes: 256 << 10, dests: 4096 },
    Load { name: "256k-65536", routes: 256 << 10, dests: 65536 },
    Load { name: "1m-65536", routes: 1_000_000, dests: 65536 },
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
        let load = self.load.name;
        let workload = match self.work {
            Work::Minimal if self.load == ONE => "minimal".to_owned(),
            Work::Minimal => format!("minimal-{load}"),
            Work::Route => format!("route-{load}"),
            Work::Forward => "forward".to_owned(),
            Work::Redirect => "redirect".to_owned(),
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
        ] {
            add(driver, work, engine);
        }
        if load == ONE {
            add(NetNull, Minimal, Brickway);
            add(NetNull, Minimal, Testpmd);
        }
    }
    for (driver, work, engine) in [
        (AfPacket, Minimal, Brickway),
        (AfPacket, Route, Brickway),
        (AfXdp, Minimal, Brickway),
        (AfXdp, Route, Brickway),
        (Veth, Forward, Kernel),
        (Veth, Redirect, KernelXdp),
    ] {
        cases.push(Case { driver, work, load: ONE, engine });
    }
    cases
}

/// The cases in whose names one of `patterns` stands; without patterns all.
pub(super) fn select(patterns: &[String]) -> Result<Vec<Case>> {
    let all = all();
    for pattern in patterns {
        if !all.iter().any(|case| case.name().contains(pattern.as_str())) {
            let names: Vec<String> = all.iter().map(|case| format!("  {}", case.name())).collect();
            bail!("--only {pattern}: no case's name contains that; the cases are\n{}", names.join("\n"));
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
        for name in
            ["net_pcap/minimal/testpmd", "net_pcap/route-1m-65536/brickway", "veth/redirect/kernel-xdp"]
        {
            assert_eq!(select(&[name.to_owned()]).unwrap().len(), 1);
        }
        assert_eq!(select(&[]).unwrap().len(), all.len());
        assert_eq!(select(&["memory/minimal".into(), "af_packet".into()]).unwrap().len(), 6);
        let error = select(&["memory".into(), "quux".into()]).unwrap_err().to_string();
        assert!(error.contains("--only quux") && error.contains("net_null/minimal/testpmd"), "{error}");
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
        assert_eq!(groups.len(), 5);
    }
}
