//! =c
//! ToHost([DEVNAME])
//!
//! =s devices
//! hands packets to Linux
//!
//! =d
//! Gives Ethernet frames to Linux as if they had come in by the interface DEVNAME. A FromHost with
//! the same DEVNAME makes that interface, a virtual one (a TAP device). Without such a FromHost,
//! the interface is one that exists, such as a network card (Linux 6.6 or newer). If there is none,
//! a virtual interface is made. Without DEVNAME the interface is that of the first FromHost, or
//! C<host0>. Several ToHosts may have one DEVNAME. Its input is agnostic, as ToDevice's.
//!
//! =e
//!   rt[0] -> EtherEncap(0x0800, 1:1:1:1:1:1, 2:2:2:2:2:2) -> ToHost(fake0);
//!
//! =a FromHost, ToDevice

use graph::{Class, ConfigError, Element, Setup};

use super::to_device::{self, ToDevice};
use super::{OpenPort, Unopened, from_host};

pub(crate) static CLASS: Class = Class {
    name: "ToHost",
    capabilities: &[graph::KEEPS_ALL],
    manual: graph::manual!("to_host.rs"),
    make,
    ..to_device::CLASS
};

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let name: Option<String> = setup.arguments.optional("DEVNAME")?;
    setup.arguments.finish()?;
    if setup.is_check() {
        return Ok(Box::new(Unopened));
    }
    let name =
        name.or_else(|| from_host::names(setup).into_iter().next()).unwrap_or_else(|| "host0".to_owned());
    let port = OpenPort::of_host(setup, &name, &[])?;
    let place = port.sender(setup.name());
    Ok(Box::new(ToDevice::new_among(setup, port, place)?))
}

#[cfg(test)]
mod tests {
    use crate::registry;
    use graph::setup::Shared;
    use graph::testing::Bench;
    use testbed::{in_namespace, ip, wait_until};

    #[test]
    fn linux_answers_over_the_interface() {
        in_namespace(|| {
            let config = "FromHost(host0, 192.0.2.1/24, ETHER 02:00:00:00:00:99) -> out :: TestOutput;
                in :: TestInput -> ToHost(host0);";
            let mut bench = Bench::try_new(&registry(), config, 32, &Shared::default()).unwrap();
            // Who has 192.0.2.1? Tell 192.0.2.7.
            let mut request = vec![0xff; 6];
            request.extend([2, 0, 0, 0, 0, 7, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 7, 192, 0, 2, 7]);
            request.extend([0, 0, 0, 0, 0, 0, 192, 0, 2, 1]);
            wait_until("an ARP reply", || {
                bench.push("in", &[&request]);
                bench.run(4);
                let answers = bench.taken("out");
                answers.iter().any(|frame| frame[12..14] == [8, 6] && frame[20..22] == [0, 2])
            });
        });
    }

    #[test]
    fn several_and_into_an_interface_that_is_there() {
        in_namespace(|| {
            ip("link add one type veth peer name other");
            ip("link set one up");
            ip("addr add 192.0.2.1/24 dev one");
            let config = "in0 :: TestInput -> a :: ToHost; in1 :: TestInput -> b :: ToHost;
                in2 :: TestInput -> c :: ToHost(one); in3 :: TestInput -> d :: ToHost(one);
                FromHost(host1) -> Discard";
            let mut bench = Bench::try_new(&registry(), config, 32, &Shared::default()).unwrap();
            for input in ["in0", "in1", "in2", "in3"] {
                bench.push(input, &[&[1; 60][..]]);
            }
            bench.run(4);
            for (element, name) in [("a", "host1 "), ("b", "host1 "), ("c", "one "), ("d", "one ")] {
                assert_eq!(bench.read(&format!("{element}.count")), "1", "{element}");
                assert!(bench.read(&format!("{element}.device")).starts_with(name));
            }
        });
    }
}
