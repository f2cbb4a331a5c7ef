//! The ports of a drop-in router: what opens them, and how Linux sees them.

use anyhow::{Context, Result, bail};
use control::mirror::Mirror;
use elements::devices::OpenPort;
use graph::setup::Shared;
use packet::wire::ethernet::MacAddr;
use ports::OpenOptions;

use crate::settings::{Driver, Host, PortSettings, vlan_of};

/// A port of a drop-in router.
#[derive(Clone, Debug)]
pub(crate) struct RouterPort {
    /// Its name: that of Linux's interface, which with a twin is the twin's.
    pub(crate) name: String,
    /// What opens it.
    pub(crate) spec: String,
    /// How Linux sees it.
    pub(crate) host: Host,
    /// For a device that Linux does not see: what it says of itself.
    pub(crate) device: Option<Device>,
    /// If it is a VLAN: the port below it, and its number.
    pub(crate) vlan: Option<(String, u16)>,
}

/// What a device says of itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Device {
    pub(crate) mac: MacAddr,
    pub(crate) mtu: u32,
}

impl RouterPort {
    /// The port of these settings. A device that Linux does not see is opened, with a queue for each of `workers`, because
    /// only then it says its address.
    pub(crate) fn of(settings: &PortSettings, workers: usize, shared: &Shared) -> Result<RouterPort> {
        let (name, spec, host) = (settings.name.clone(), settings.spec(), settings.host);
        if settings.driver == Driver::Vlan {
            let vlan = vlan_of(&name).map(|(below, number)| (below.to_owned(), number));
            return Ok(RouterPort { name, spec, host, device: None, vlan });
        }
        if host == Host::Interface {
            return Ok(RouterPort { name, spec, host, device: None, vlan: None });
        }
        let queues = OpenOptions { rx_queues: workers, tx_queues: workers + 1, warn: graph::messages::warn };
        let port = OpenPort::new(ports::open(&spec, &queues).with_context(|| format!("port '{name}'"))?);
        let device = Device { mac: port.info().mac, mtu: port.info().mtu as u32 };
        shared.get_or_make(&OpenPort::key(&name), || Ok::<_, anyhow::Error>(port))?;
        Ok(RouterPort { name, spec, host, device: Some(device), vlan: None })
    }
}

/// Finds out how Linux sees those ports that are VLANs: where it has an interface for one, as that interface; else as a TAP
/// interface that we make for it, as for a device that Linux does not see. Below a port that Linux sees nothing of there
/// is nothing.
pub(crate) fn settle_vlans(ports: &mut [RouterPort], mirror: &Mirror) -> Result<()> {
    let link = |name: &str| mirror.ports().find(|port| port.name == name).and_then(|port| port.link);
    let all = ports.to_vec();
    for port in ports {
        let Some((below, number)) = &port.vlan else { continue };
        let Some(below) = all.iter().find(|port| port.name == *below) else { continue };
        let of_below = link(&below.name);
        let of_linux = of_below.as_ref().and_then(|link| mirror.vlan_interface(link.index, *number));
        if let Some(other) = of_linux.filter(|name| *name != port.name) {
            bail!(
                "Linux has the VLAN {number} of '{1}' as '{other}', and the port would be another interface, '{0}'; one of them \
                 is right: ip link set {other} name {0}",
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

#[cfg(test)]
mod tests {
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
            RouterPort { spec: String::new(), host: Host::Interface, device: None, vlan, name }
        });
        ports[0].host = below;
        settle_vlans(&mut ports, &mirror)?;
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
            assert!(error.ends_with(&format!(": ip link set {name} name eth1.100")), "{error}");
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
