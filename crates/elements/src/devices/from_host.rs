//! =c
//! FromHost(DEVNAME, [ADDR/MASK, GATEWAY, I<keywords> ETHER, MTU])
//!
//! =s devices
//! receives packets that Linux sends to a virtual interface
//!
//! =d
//! Makes the virtual Ethernet interface DEVNAME (a TAP device) and pushes the frames that Linux sends by it.
//! ADDR/MASK is given to the interface, and with GATEWAY a default route over it is made. ToHost with the same
//! DEVNAME is the other direction. The interface is gone when the router ends.
//!
//! Linux asks for link addresses by ARP before it sends; an ARPResponder can answer with any.
//!
//! Arguments are:
//!
//! ETHER: the link address of Linux's end. The kernel chooses one by default.
//!
//! MTU: the interface's MTU in bytes.
//!
//! =e
//!   FromHost(fake0, 192.0.2.1/24) -> kind :: Classifier(12/0806, 12/0800);
//!   kind[0] -> ARPResponder(0.0.0.0/0 1:1:1:1:1:1) -> ToHost(fake0);
//!
//! =a ToHost, FromDevice

use std::net::Ipv4Addr;
use std::process::Command;

use graph::arguments::Raw;
use graph::lang::first_name;
use graph::{Class, ConfigError, Element, FromArgument, Setup};
use ipnet::Ipv4Net;
use packet::wire::ethernet::MacAddr;

use super::from_device::{self, FromDevice};
use super::{OpenPort, Unopened};

pub(crate) static CLASS: Class = Class {
    name: "FromHost",
    capabilities: &[graph::KEEPS_ALL],
    aliases: &[],
    manual: graph::manual!("from_host.rs"),
    make,
    ..from_device::CLASS
};

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let name: String = setup.arguments.required("DEVNAME")?;
    let address: Option<Raw> = setup.arguments.optional("PREFIX")?;
    let gateway: Option<Ipv4Addr> = setup.arguments.optional("GATEWAY")?;
    let ether: Option<MacAddr> = setup.arguments.keyword("ETHER")?;
    let mtu: Option<u16> = setup.arguments.keyword("MTU")?;
    setup.arguments.finish()?;
    let address = match address {
        None => None,
        Some(Raw(text)) => Some(Ipv4Net::from_argument(&text).ok_or_else(|| {
            ConfigError::new(format!("PREFIX: expected {}, got '{text}'", Ipv4Net::EXPECTED))
        })?),
    };
    if setup.is_check() {
        return Ok(Box::new(Unopened));
    }
    let mut options = Vec::new();
    if let Some(ether) = ether {
        options.push(format!("mac={ether}"));
    }
    if let Some(mtu) = mtu {
        options.push(format!("mtu={mtu}"));
    }
    let port = OpenPort::of_host(setup, &name, &options)?;
    if setup.copy().index == 0 {
        if let Some(address) = address {
            ip(&["addr", "add", &address.to_string(), "dev", &name])?;
        }
        if let Some(gateway) = gateway {
            ip(&["route", "add", "default", "via", &gateway.to_string(), "dev", &name])?;
        }
    }
    Ok(Box::new(FromDevice::new(setup, port)?))
}

/// The devices of all FromHosts of the configuration.
pub(super) fn names(setup: &Setup<'_>) -> Vec<String> {
    setup.all_of(CLASS.name).filter_map(|element| first_name(&element.config)).collect()
}

/// Runs iproute2's `ip`, as an administrator would.
pub fn ip(arguments: &[&str]) -> Result<(), ConfigError> {
    run("ip", arguments)
}

/// Runs a program of iproute2.
pub(super) fn run(program: &str, arguments: &[&str]) -> Result<(), ConfigError> {
    let command = format!("{program} {}", arguments.join(" "));
    match packet::pulse::aside(|| Command::new(program).args(arguments).output()) {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!("'{command}' failed: {}", said.trim()).into())
        }
        Err(error) => Err(format!("cannot run '{command}': {error}; install iproute2").into()),
    }
}
