//! Offloads: what a card, or the other end of a veth pair, does to packets before we get them. A host that
//! ends connections wants them; a router gets packets that it cannot forward as they are.

use super::{Driver, Failure, Finding, Remedy};
use crate::features::vlan::vlan_of;

/// What `ethtool -k` prints: which features are on, and which of them can be turned off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Features(Vec<(String, bool)>);

impl Features {
    pub(super) fn parse(text: &str) -> Self {
        let on = text.lines().filter_map(|line| {
            let (name, state) = line.trim().split_once(": ")?;
            state.starts_with("on").then(|| (name.to_owned(), state.contains("[fixed]")))
        });
        Self(on.collect())
    }

    /// `None`: off, or not there. Else whether it is on for ever.
    pub(super) fn fixed_on(&self, name: &str) -> Option<bool> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, fixed)| *fixed)
    }
}

/// A feature that harms.
struct Harmful {
    /// As `ethtool -k` prints it.
    feature: &'static str,
    /// As `ethtool -K` takes it.
    switch: &'static str,
    what: &'static str,
    why: &'static str,
}

/// Of our own interface, with any driver.
const MERGING: [Harmful; 2] = [
    Harmful {
        feature: "large-receive-offload",
        switch: "lro",
        what: "it merges received packets (large receive offload)",
        why: "merged packets are longer than any MTU, and cannot be forwarded",
    },
    Harmful {
        feature: "rx-gro-hw",
        switch: "rx-gro-hw",
        what: "it merges received packets in the card (hardware GRO)",
        why: "merged packets are longer than any MTU, and cannot be forwarded",
    },
];

/// With AF_XDP: the tag goes beside the packet, where an XDP program does not see it. A port has its card leave tags in the packet, if
/// the card can. A veth takes them out at its other end.
const STRIPPED_TAGS: Harmful = Harmful {
    feature: "rx-vlan-offload",
    switch: "rxvlan",
    what: "it takes VLAN tags out of received packets",
    why: "packets of all VLANs look untagged, and are forwarded as if they were",
};

/// With AF_PACKET: Linux merges before the port sees packets, and the port leaves merged ones to Linux.
const GRO: Harmful = Harmful {
    feature: "generic-receive-offload",
    switch: "gro",
    what: "Linux merges received packets (GRO)",
    why: "merged packets take the slow path; a router that filters turns this off",
};

/// Of the port below a VLAN that Linux has no interface for. A card learns from those interfaces which VLANs to let in.
const FILTERED_VLANS: Harmful = Harmful {
    feature: "rx-vlan-filter",
    switch: "rx-vlan-filter",
    what: "drops packets of VLANs that Linux has no interface for",
    why: "nothing comes in by this VLAN",
};

/// Of the same, with AF_PACKET. Nobody else can take them.
const GRO_OF_VLAN: Harmful =
    Harmful { what: "gets received packets merged by Linux (GRO)", why: "merged packets are lost", ..GRO };

/// Of the other end of a veth pair: what it leaves undone, counting on a card that is not there. Checksums are computed, or
/// Linux's to compute.
const UNDONE: [Harmful; 3] = [
    Harmful {
        feature: "tcp-segmentation-offload",
        switch: "tso",
        what: "TCP segments",
        why: "merged packets are lost while something filters",
    },
    Harmful {
        feature: "generic-segmentation-offload",
        switch: "gso",
        what: "segments",
        why: "merged packets are lost while something filters",
    },
    Harmful {
        feature: "tx-vlan-offload",
        switch: "txvlan",
        what: "VLAN tags",
        why: "packets of VLANs look like those without a tag",
    },
];

/// What the other end of a veth should not leave undone: segments if something filters and packets come by AF_PACKET, tags if they
/// come by XDP.
fn undone(driver: Driver, filters: bool) -> impl Iterator<Item = &'static Harmful> {
    let harms = move |harmful: &&Harmful| match harmful.switch {
        "txvlan" => driver.is_xdp(),
        _ => filters && driver == Driver::AfPacket,
    };
    UNDONE.iter().filter(harms)
}

/// Drivers that stop merging by themselves for a program of XDP: `virtnet_xdp_set()`, `vmxnet3_xdp_set()`.
const STOPS_MERGING: [&str; 2] = ["virtio_net", "vmxnet3"];

/// What is wrong with the offloads of a port's own interface, whose driver in the kernel is `card`.
pub(super) fn of_interface(name: &str, features: &Features, driver: Driver, card: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let finding = |harmful: &Harmful, make: fn(&str, &'static str, &'static str, Remedy) -> Finding| {
        let remedy = match features.fixed_on(harmful.feature)? {
            false => Remedy::Run(format!("ethtool -K {name} {} off", harmful.switch)),
            true => Remedy::ByHand("the card cannot be told otherwise: use another one".to_owned()),
        };
        Some(make(name, harmful.what, harmful.why, remedy))
    };
    let stops = driver.is_xdp() && STOPS_MERGING.contains(&card);
    let merging = MERGING.iter().filter(|harmful| !stops || features.fixed_on(harmful.feature) == Some(true));
    findings.extend(merging.filter_map(|harmful| finding(harmful, Finding::bad)));
    if driver.is_xdp() && card != "veth" && features.fixed_on(STRIPPED_TAGS.feature) == Some(true) {
        findings.extend(finding(&STRIPPED_TAGS, Finding::bad));
    }
    if driver == Driver::AfPacket {
        findings.extend(finding(&GRO, Finding::warn));
    }
    findings
}

/// What is wrong with the offloads of the port below a VLAN that Linux has no interface for.
pub(super) fn of_port_below(vlan: &str, features: &Features, driver: Driver) -> Vec<Finding> {
    let Some((below, number)) = vlan_of(vlan) else { return Vec::new() };
    let harmful = [(FILTERED_VLANS, true), (GRO_OF_VLAN, driver == Driver::AfPacket)];
    let harmful = harmful.into_iter().filter(|(_, harms)| *harms);
    let findings = harmful.filter_map(|(harmful, _)| {
        let remedy = match features.fixed_on(harmful.feature)? {
            false => Remedy::Run(format!("ethtool -K {below} {} off", harmful.switch)),
            true => Remedy::ByHand(format!(
                "make one: ip link add link {below} name {vlan} type vlan id {number}"
            )),
        };
        Some(Finding::bad(vlan, format!("{below} {}", harmful.what), harmful.why, remedy))
    });
    findings.collect()
}

/// What is wrong with the offloads of the other end of a veth pair.
pub(super) fn of_peer(
    name: &str,
    peer: &str,
    features: &Features,
    driver: Driver,
    filters: bool,
) -> Option<Finding> {
    let on: Vec<&Harmful> =
        undone(driver, filters).filter(|harmful| features.fixed_on(harmful.feature) == Some(false)).collect();
    let undone: Vec<&str> = on.iter().map(|harmful| harmful.what).collect();
    let switches: Vec<String> = on.iter().map(|harmful| format!("{} off", harmful.switch)).collect();
    let why = on.last()?.why;
    let what = format!("its other end, {peer}, leaves {} to a card", undone.join(", "));
    let remedy = Remedy::Run(format!("ethtool -K {peer} {}", switches.join(" ")));
    Some(Finding::bad(name, what, why, remedy))
}

/// The other end of a veth pair cannot be seen from here.
pub(super) fn of_far_peer(name: &str, driver: Driver, filters: bool) -> Option<Finding> {
    let why = undone(driver, filters).last()?.why;
    let switches: Vec<String> =
        undone(driver, filters).map(|harmful| format!("{} off", harmful.switch)).collect();
    let remedy = Remedy::ByHand(format!("there, if not done: ethtool -K PEER {}", switches.join(" ")));
    let what = "its other end is in another network namespace, where its offloads cannot be seen";
    Some(Finding::warn(name, what, why, remedy))
}

/// `ethtool` does not say.
pub(super) fn unknown(name: &str, failure: &Failure) -> Finding {
    let remedy = match failure {
        Failure::Missing(program) => Remedy::ByHand(format!("install {program}")),
        Failure::Failed(_) => Remedy::None,
    };
    let why = "offloads that merge packets or leave checksums undone are not found";
    Finding::warn(name, format!("its offloads are not known: {failure}"), why, remedy)
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    const CARD: &str = "Features for eth1:
rx-checksumming: on
tx-checksumming: on
\ttx-checksum-ipv4: on
tcp-segmentation-offload: on
generic-segmentation-offload: off [requested on]
generic-receive-offload: on
large-receive-offload: on
rx-vlan-offload: on [fixed]
tx-vlan-offload: on [fixed]
rx-gro-hw: off [fixed]
";

    #[test]
    fn features_are_read() {
        let features = Features::parse(CARD);
        assert_eq!(features.fixed_on("large-receive-offload"), Some(false));
        assert_eq!(features.fixed_on("rx-vlan-offload"), Some(true));
        assert_eq!(features.fixed_on("rx-gro-hw"), None);
        assert_eq!(features.fixed_on("generic-segmentation-offload"), None);
        assert_eq!(Features::parse("ethtool: what?"), Features::default());
    }

    #[test]
    fn what_harms_depends_on_the_driver() {
        let features = Features::parse(CARD);
        let told = |driver, card| -> Vec<(Verdict, String)> {
            let findings = of_interface("eth1", &features, driver, card);
            findings.into_iter().map(|finding| (finding.verdict, finding.remedy.text())).collect()
        };
        let lro = (Verdict::Bad, "ethtool -K eth1 lro off".to_owned());
        let tags = (Verdict::Bad, "the card cannot be told otherwise: use another one".to_owned());
        assert_eq!(told(Driver::AfXdp, "igb"), [lro.clone(), tags.clone()]);
        assert_eq!(told(Driver::AfXdp, "vmxnet3"), [tags]);
        assert_eq!(told(Driver::AfXdp, "veth"), std::slice::from_ref(&lro));
        assert_eq!(
            told(Driver::AfPacket, "vmxnet3"),
            [lro, (Verdict::Warn, "ethtool -K eth1 gro off".to_owned())]
        );
    }

    #[test]
    fn a_vlan_that_linux_has_no_interface_for() {
        let told = |features: &str, driver| -> Vec<(String, String)> {
            let findings = of_port_below("eth1.100", &Features::parse(features), driver);
            findings.into_iter().map(|finding| (finding.what.clone(), finding.remedy.text())).collect()
        };
        let filter = |remedy: &str| {
            ("eth1 drops packets of VLANs that Linux has no interface for".to_owned(), remedy.to_owned())
        };
        let off = filter("ethtool -K eth1 rx-vlan-filter off");
        assert_eq!(told("rx-vlan-filter: on\n", Driver::AfXdp), std::slice::from_ref(&off));
        let by_hand = filter("make one: ip link add link eth1 name eth1.100 type vlan id 100");
        assert_eq!(told("rx-vlan-filter: on [fixed]\n", Driver::AfXdp), [by_hand]);
        assert_eq!(told("rx-vlan-filter: off\ngeneric-receive-offload: on\n", Driver::AfXdp), []);
        let gro = "eth1 gets received packets merged by Linux (GRO)".to_owned();
        assert_eq!(
            told("rx-vlan-filter: on\ngeneric-receive-offload: on\n", Driver::AfPacket),
            [off, (gro, "ethtool -K eth1 gro off".to_owned())]
        );
    }

    #[test]
    fn the_other_end_of_a_veth_pair() {
        let features = Features::parse(CARD);
        let of = |driver, filters| {
            let finding = of_peer("vd0", "vd1", &features, driver, filters)?;
            Some((finding.what.clone(), finding.remedy.text()))
        };
        assert_eq!((of(Driver::Auto, true), of(Driver::AfPacket, false)), (None, None));
        let told = "its other end, vd1, leaves TCP segments to a card".to_owned();
        assert_eq!(of(Driver::AfPacket, true), Some((told, "ethtool -K vd1 tso off".to_owned())));
        let tags = Features::parse("tx-vlan-offload: on\n");
        let finding = of_peer("vd0", "vd1", &tags, Driver::Auto, false).unwrap();
        assert_eq!(finding.remedy, Remedy::Run("ethtool -K vd1 txvlan off".to_owned()));
        assert_eq!(of_far_peer("vd0", Driver::AfPacket, false), None);
        let far = of_far_peer("vd0", Driver::AfPacket, true).unwrap();
        assert!(far.details()[1].contains("ethtool -K PEER tso off gso off"));
    }
}
