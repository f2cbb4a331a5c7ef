//! The interfaces that Linux has for VLANs, and those that we make.

use std::collections::HashSet;

use anyhow::{Result, bail};
use control::mirror::Mirror;
use packet::wire::ethernet::MacAddr;
use ports::{VlanId, VlanShare, set_link_address, set_mtu};

use crate::drop_in::{Device, RouterPort};
use crate::settings::Host;

/// Finds out how Linux sees those ports that are VLANs: where it has an interface for one, as that interface; else as a TAP
/// interface that we make for it, as for a device that Linux does not see. Below a port that Linux sees nothing of there
/// is nothing.
pub(crate) fn settle(ports: &mut [RouterPort], mirror: &Mirror) -> Result<()> {
    let link = |name: &str| mirror.ports().find(|port| port.name == name).and_then(|port| port.link);
    let all = ports.to_vec();
    for port in ports {
        let Some((below, number)) = &port.vlan else { continue };
        let Some(below) = all.iter().find(|port| port.name == *below) else { continue };
        let of_below = link(&below.name);
        let of_linux = of_below.as_ref().and_then(|link| mirror.vlan_interface(link.index, *number));
        if let Some(other) = of_linux.filter(|name| *name != port.name) {
            bail!(
                "Linux has the VLAN {number} of '{1}' as '{other}', and the port would be another interface, '{0}'; expected one \
                 name; run 'ip link set {other} name {0}'",
                port.name,
                below.name
            );
        }
        // A TAP device is that of a router that runs, of which somebody wants the configuration, or was made for us.
        if let Some(known) = link(&port.name).filter(|known| known.kind != "tun") {
            let is_it = known.vlan == Some(*number) && known.below == of_below.map(|link| link.index);
            if !is_it {
                bail!(
                    "there is an interface '{0}', but it is not the VLAN {number} (802.1Q) of '{1}'; give it another name, or make \
                     it one: ip link add link {1} name {0} type vlan id {number}",
                    port.name,
                    below.name
                );
            }
            continue;
        }
        port.host = if below.host == Host::None { Host::None } else { Host::Tap };
        port.device = below.device.or_else(|| {
            let link = of_below?;
            Some(Device { mac: MacAddr(link.mac?), mtu: link.mtu })
        });
    }
    Ok(())
}

/// Returns the VLANs of a port that are ports too, and what of them is ours: what `transit` says where Linux has an interface
/// for one, else everything. By an interface that is down (not `up`) nothing comes in.
pub(crate) fn shares(
    ports: &[RouterPort],
    below: &RouterPort,
    up: &HashSet<&str>,
    transit: impl Fn(&str) -> VlanShare,
) -> Vec<(VlanId, VlanShare)> {
    let vlans = ports.iter().filter_map(|port| {
        let (_, number) = port.vlan.as_ref().filter(|(name, _)| *name == below.name)?;
        let share = if port.host == Host::Interface { transit(&port.name) } else { VlanShare::All };
        (port.host == Host::None || up.contains(port.name.as_str())).then_some((*number, share))
    });
    vlans.collect()
}

/// Gives the interfaces that we made for VLANs of a port the link address of that port, which is the one that it takes
/// frames to. Linux does the same with its own. Returns what went wrong.
pub(crate) fn follow_below(ports: &[RouterPort], below: &str, mac: MacAddr) -> Option<String> {
    let is_twin = |port: &&RouterPort| {
        port.host == Host::Tap && port.vlan.as_ref().is_some_and(|(name, _)| name == below)
    };
    let told = ports.iter().filter(is_twin).try_for_each(|port| set_link_address(&port.name, mac));
    told.err().map(|error| error.to_string())
}

/// Lets no interface that we made for a VLAN have a larger MTU than the port below. Linux does the same with its own. Returns what
/// went wrong.
pub(crate) fn limit_mtus(ports: &[RouterPort], mtu: impl Fn(&str) -> Option<u32>) -> Vec<String> {
    let twins = ports.iter().filter(|port| port.host == Host::Tap);
    let failed = twins.filter_map(|port| {
        let (below, _) = port.vlan.as_ref()?;
        let most = mtu(below)?;
        mtu(&port.name).filter(|&mtu| mtu > most)?;
        set_mtu(&port.name, most as usize).err()
    });
    failed.map(|error| error.to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::vlan_of;
    use super::*;
    use control::change::{Change, Link, Source};

    /// A router of eth1 and its VLAN 100, in whose Linux there is this interface eth1.100; how Linux sees the VLAN.
    fn settled(vlan: Option<Link>, below: Host) -> Result<RouterPort> {
        let names = ["eth1", "eth1.100"].map(str::to_owned);
        let mut mirror = Mirror::new(names.clone().into_iter().zip(0..)).unwrap();
        let below_link =
            Link { index: 3, name: "eth1".into(), kind: String::new(), vlan: None, below: None, ..link() };
        mirror.apply(Source::Netlink, Change::Link(below_link));
        if let Some(vlan) = vlan {
            mirror.apply(Source::Netlink, Change::Link(vlan));
        }
        let mut ports = names.map(|name| {
            let vlan = vlan_of(&name).map(|(below, number)| (below.to_owned(), number));
            RouterPort {
                spec: String::new(),
                host: Host::Interface,
                device: None,
                vlan,
                name,
                driver: crate::settings::Driver::Auto,
            }
        });
        ports[0].host = below;
        settle(&mut ports, &mirror)?;
        let [_, vlan] = ports;
        Ok(vlan)
    }

    fn link() -> Link {
        Link {
            index: 9,
            name: "eth1.100".into(),
            mac: Some([2, 0, 0, 0, 0, 1]),
            mtu: 1_400,
            is_up: true,
            has_carrier: true,
            master: None,
            below: Some(3),
            kind: "vlan".into(),
            vlan: Some(100),
            has_priorities: false,
            vrf_table: None,
        }
    }

    #[test]
    fn linux_keeps_its_vlan_interface_and_gets_one_where_it_has_none() {
        let of_linux = settled(Some(link()), Host::Interface).unwrap();
        assert!(of_linux.host == Host::Interface && of_linux.device.is_none());
        let made = settled(None, Host::Interface).unwrap();
        let device = made.device.unwrap();
        assert_eq!((made.host, device.mac, device.mtu), (Host::Tap, MacAddr([2, 0, 0, 0, 0, 1]), 1_400));
        assert_eq!(settled(None, Host::None).unwrap().host, Host::None);
        // There is one that we made, or that somebody made for us.
        let tap = Link { kind: "tun".into(), vlan: None, below: None, ..link() };
        assert_eq!(settled(Some(tap), Host::Interface).unwrap().host, Host::Tap);
    }

    #[test]
    fn an_interface_of_another_name_is_not_cut_off() {
        for name in ["vlan100", "eth1.0100"] {
            let error = settled(Some(Link { name: name.into(), ..link() }), Host::Interface).unwrap_err();
            let error = error.to_string();
            assert!(error.contains(&format!("Linux has the VLAN 100 of 'eth1' as '{name}'")), "{error}");
            assert!(error.ends_with(&format!("; run 'ip link set {name} name eth1.100'")), "{error}");
        }
        let other = Link { name: "vlan100".into(), vlan: Some(101), ..link() };
        assert_eq!(settled(Some(other), Host::Interface).unwrap().host, Host::Tap);
    }

    #[test]
    fn another_interface_of_this_name_is_in_the_way() {
        let others = [
            Link { vlan: Some(101), ..link() },
            Link { vlan: None, kind: "dummy".into(), below: None, ..link() },
            Link { below: Some(4), ..link() },
        ];
        for other in others {
            let error = settled(Some(other), Host::Interface).unwrap_err().to_string();
            assert!(error.contains("'eth1.100', but it is not the VLAN 100 (802.1Q) of 'eth1'"), "{error}");
            assert!(error.ends_with("ip link add link eth1 name eth1.100 type vlan id 100"), "{error}");
        }
    }
}
