//! Generic receive offload: the kernel merges received packets of a flow before packet sockets see them. A merged frame
//! is longer than the MTU, so such a port leaves it to the kernel, which takes it apart again.

use std::io;

use crate::interface::{EthtoolValue, Interface, ask_driver};

// include/uapi/linux/ethtool.h.
const ETHTOOL_GGRO: u32 = 0x2b;
const ETHTOOL_SGRO: u32 = 0x2c;

/// While this is there the kernel merges no packets that an interface receives.
#[derive(Debug)]
pub struct GroOff {
    interface: Interface,
    name: String,
}

impl GroOff {
    /// Turns it off; `None` if it was off. When the value goes it is turned on again. A process that is killed leaves it
    /// off.
    ///
    /// # Errors
    /// There is no such interface, or we lack the right (CAP_NET_ADMIN).
    pub fn turn(interface: &str) -> io::Result<Option<GroOff>> {
        let name = interface.to_owned();
        let interface = Interface::existing(interface).map_err(io::Error::other)?;
        if ask(&interface, ETHTOOL_GGRO, 0)? == 0 {
            return Ok(None);
        }
        ask(&interface, ETHTOOL_SGRO, 0)?;
        Ok(Some(GroOff { interface, name }))
    }

    /// Turns it off on an interface that was made anew, or turned it on meanwhile.
    pub(crate) fn again(&self) {
        // The interface may be gone.
        let _ = ask(&self.interface, ETHTOOL_SGRO, 0);
    }

    /// The interface, as the caller named it.
    pub fn interface(&self) -> &str {
        &self.name
    }
}

impl Drop for GroOff {
    fn drop(&mut self) {
        // The interface may be gone.
        let _ = ask(&self.interface, ETHTOOL_SGRO, 1);
    }
}

fn ask(interface: &Interface, command: u32, data: u32) -> io::Result<u32> {
    let answer = ask_driver(&interface.kernel_name(), EthtoolValue { command, data });
    answer.map(|value| value.data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{command, in_namespace, ip, veth_pair};

    #[test]
    fn it_is_off_for_a_while() {
        in_namespace(|| {
            veth_pair("left", "right");
            let is_on = || command("ethtool", "-k left").contains("generic-receive-offload: on");
            command("ethtool", "-K left gro on");
            let off = GroOff::turn("left").unwrap().unwrap();
            assert!(!is_on() && off.interface() == "left");
            assert!(GroOff::turn("left").unwrap().is_none());
            ip("link set left name wan0");
            drop(off);
            ip("link set wan0 name left");
            assert!(is_on());
            assert!(GroOff::turn("none").is_err());
        });
    }
}
