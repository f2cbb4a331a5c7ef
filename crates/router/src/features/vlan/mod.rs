//! Ports that are VLANs (802.1Q) of other ports: `eth1.100` beside `eth1`.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `mod` | names of VLANs, and what is wrong with them |
//! | `configuration` | VLANs in the configuration |
//! | `linux` | the interfaces that Linux has for VLANs, and those that we make |

mod configuration;
mod linux;

use crate::settings::{Driver, Host, PortSettings};

pub(crate) use configuration::{INPUT, OUTPUT, connect, input_of_others, port};
pub(crate) use linux::{follow_below, limit_mtus, settle, shares};

/// What a VLAN's name says: the port below it, and its number.
pub(crate) fn vlan_of(name: &str) -> Option<(&str, u16)> {
    let (below, number) = name.rsplit_once('.')?;
    let is_plain = number.bytes().all(|byte| byte.is_ascii_digit()) && !number.starts_with('0');
    let number = number.parse().ok().filter(|number| is_plain && (1..=4094).contains(number))?;
    (!below.is_empty()).then_some((below, number))
}

/// Makes VLANs of those ports that are named so and have a port below them, where nothing says that they are something
/// else: `is_open` says whether a port's driver is left open.
pub(crate) fn find_vlans(ports: &mut [PortSettings], is_open: impl Fn(usize) -> bool) {
    let named: Vec<usize> =
        (0..ports.len()).filter(|&at| is_open(at) && port_below(ports, &ports[at].name).is_some()).collect();
    for at in named {
        (ports[at].driver, ports[at].host) = (Driver::Vlan, Host::Interface);
    }
}

/// The port below the VLAN of this name.
fn port_below<'a>(ports: &'a [PortSettings], name: &str) -> Option<&'a PortSettings> {
    let (below, _) = vlan_of(name)?;
    ports.iter().find(|port| port.name == below)
}

/// What is wrong with a VLAN: the option to blame, what it is, and what was expected.
pub(crate) fn problem(port: &PortSettings, ports: &[PortSettings]) -> Option<(&'static str, String, String)> {
    if port.driver != Driver::Vlan {
        return None;
    }
    let name = &port.name;
    let Some((below, _)) = vlan_of(name) else {
        let right = "expected the port below it and a number from 1 to 4094, as eth1.100";
        return Some(("name", format!("'{name}' is not a name of a VLAN"), right.to_owned()));
    };
    match port_below(ports, name).map(|below| below.driver) {
        None => {
            let message = format!("the VLAN '{name}' has no port below it");
            return Some(("name", message, format!("expected '{below}' as a port too")));
        }
        Some(Driver::Vlan) => {
            let message = format!("the port '{below}' below the VLAN '{name}' is a VLAN itself");
            return Some((
                "name",
                message,
                "expected a port without a tag, since a frame has one tag".to_owned(),
            ));
        }
        Some(_) => {}
    }
    let given = [
        ("device", port.device.is_some()),
        ("options", !port.options.is_empty()),
        ("host", port.host != Host::Interface),
    ];
    let (key, _) = given.into_iter().find(|(_, given)| *given)?;
    Some((
        key,
        format!("the VLAN '{name}' has a {key} of its own"),
        format!("expected that of '{below}' alone"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Settings, parse};

    #[test]
    fn names_say_it() {
        assert_eq!(vlan_of("eth1.100"), Some(("eth1", 100)));
        assert_eq!(vlan_of("a.b.4094"), Some(("a.b", 4094)));
        for name in ["eth1", "eth1.", "eth1.0", "eth1.4095", "eth1.0100", "eth1.+1", "eth1.x", ".7"] {
            assert_eq!(vlan_of(name), None, "{name}");
        }
    }

    #[test]
    fn a_port_named_so_beside_the_port_below_is_a_vlan() {
        let drivers = |names: &[&str]| -> Vec<Driver> {
            let settings = Settings::of_ports(names.iter().copied(), Driver::AfPacket).unwrap();
            assert_eq!(parse("x", &settings.to_toml()).unwrap(), settings);
            settings.ports.iter().map(|port| port.driver).collect()
        };
        use Driver::{AfPacket, AfXdp, Vlan};
        assert_eq!(drivers(&["eth1.100", "eth1", "eth2.100"]), [Vlan, AfPacket, AfPacket]);
        assert_eq!(drivers(&["eth1", "af_xdp:eth1.100", "eth1.7?ring=512"]), [AfPacket, AfXdp, AfPacket]);
        assert_eq!(drivers(&["wan=tap:vm0", "vlan:wan.5"]), [Driver::Tap, Vlan]);
        let text = "[[port]]\nname = \"eth1.100\"\n[[port]]\nname = \"eth1\"\n";
        let settings = parse("x", text).unwrap();
        assert_eq!(settings, Settings::of_ports(["eth1.100", "eth1"], Driver::Auto).unwrap());
        assert!(settings.summary().contains("vlan:eth1.100"), "{}", settings.summary());
        let text = text.replacen('\n', "\ndriver = \"af_xdp\"\n", 1);
        assert_eq!(parse("x", &text).unwrap().ports[0].driver, AfXdp);
    }

    #[test]
    fn mistakes_are_explained() {
        let problem = |names: &[&str]| Settings::of_ports(names.iter().copied(), Driver::AfXdp).unwrap_err();
        assert_eq!(
            problem(&["vlan:eth1.100"]),
            "the VLAN 'eth1.100' has no port below it; expected 'eth1' as a port too"
        );
        assert!(problem(&["vlan:eth1", "eth2"]).contains("not a name of a VLAN; expected the port below"));
        assert!(problem(&["eth1", "eth1.5", "vlan:eth1.5.6"]).contains("is a VLAN itself"));
        let text =
            "[[port]]\nname = \"eth1\"\n[[port]]\nname = \"eth1.7\"\ndriver = \"vlan\"\nhost = \"tap\"\n";
        let error = parse("x", text).unwrap_err().render(false);
        assert!(error.contains("x:6: ") && error.contains("has a host of its own"), "{error}");
    }
}
