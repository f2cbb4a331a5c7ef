//! Generic receive offload: the kernel merges received packets of a flow before packet sockets see them. A merged frame
//! is longer than the MTU, so such a port leaves it to the kernel, which takes it apart again.

use std::io;

use crate::interface::{EthtoolValue, Interface, ask_driver};
use crate::link::{Link, Links, Merging, set_merging};

// include/uapi/linux/ethtool.h.
const ETHTOOL_GGRO: u32 = 0x2b;
const ETHTOOL_SGRO: u32 = 0x2c;

/// While this is there the kernel merges no packets that an interface receives.
#[derive(Debug)]
pub struct Unmerged {
    interface: Interface,
    name: String,
    before: Before,
}

/// What is set again at the end.
#[derive(Debug)]
enum Before {
    /// GRO was on.
    On,
    /// GRO was on, and still is, as a veth takes frames that programs redirect to its other end only while it is; a merged
    /// packet was of these bytes at most. Linux 5.18.
    Largest(Merging),
}

impl Unmerged {
    /// Has the kernel merge none from now on; `None` if it merges none already. When the value goes they are merged again. A
    /// process that is killed leaves it so.
    ///
    /// # Errors
    /// There is no such interface, or we lack the right (CAP_NET_ADMIN).
    pub fn begin(interface: &str) -> io::Result<Option<Unmerged>> {
        let name = interface.to_owned();
        let interface = Interface::existing(interface).map_err(io::Error::other)?;
        if ask(&interface, ETHTOOL_GGRO, 0)? == 0 {
            return Ok(None);
        }
        let before = match link(&interface.kernel_name()) {
            Some(Link { merging: Some(Merging::NONE), .. }) => return Ok(None),
            Some(Link { kind, merging: Some(largest), .. }) if kind == "veth" => Before::Largest(largest),
            _ => Before::On,
        };
        let unmerged = Unmerged { interface, name, before };
        unmerged.hold()?;
        Ok(Some(unmerged))
    }

    /// The same for an interface that was made anew, or on which merging was turned on meanwhile.
    pub fn again(&self) {
        // The interface may be gone.
        let _ = self.hold();
    }

    fn hold(&self) -> io::Result<()> {
        match self.before {
            Before::On => ask(&self.interface, ETHTOOL_SGRO, 0).map(drop),
            Before::Largest(_) => self.limit(Merging::NONE),
        }
    }

    fn limit(&self, largest: Merging) -> io::Result<()> {
        let index = self.interface.index().map_err(io::Error::other)?;
        set_merging(index as u32, largest)
    }

    /// The interface, as the caller named it.
    pub fn interface(&self) -> &str {
        &self.name
    }
}

impl Drop for Unmerged {
    fn drop(&mut self) {
        // The interface may be gone.
        let _ = match self.before {
            Before::On => ask(&self.interface, ETHTOOL_SGRO, 1).map(drop),
            Before::Largest(largest) => self.limit(largest),
        };
    }
}

fn ask(interface: &Interface, command: u32, data: u32) -> io::Result<u32> {
    let answer = ask_driver(&interface.kernel_name(), EthtoolValue { command, data });
    answer.map(|value| value.data)
}

fn link(name: &str) -> Option<Link> {
    Links::ask().ok()?.named(name).cloned()
}

/// Whether Linux merges packets that the interface of this name receives.
#[cfg(test)]
pub(crate) fn merges(name: &str) -> bool {
    is_on(name) && link(name).unwrap().merging != Some(Merging::NONE)
}

#[cfg(test)]
fn is_on(name: &str) -> bool {
    crate::testing::command("ethtool", &format!("-k {name}")).contains("generic-receive-offload: on")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{command, in_namespace, ip, veth_pair};

    #[test]
    fn nothing_is_merged_for_a_while() {
        in_namespace(|| {
            veth_pair("left", "right");
            assert!(Unmerged::begin("left").unwrap().is_none() && !merges("left"));
            command("ethtool", "-K left gro on");
            ip("link set left gro_max_size 30000");
            let before = link("left").unwrap().merging;
            let unmerged = Unmerged::begin("left").unwrap().unwrap();
            assert!(!merges("left") && unmerged.interface() == "left");
            // The other end still takes what programs redirect to it.
            let right = link("right").unwrap().index;
            assert!(crate::XdpFeatures::ask(right).unwrap().sends_redirected());
            assert!(Unmerged::begin("left").unwrap().is_none());
            ip("link set left name wan0");
            drop(unmerged);
            ip("link set wan0 name left");
            assert!(merges("left") && link("left").unwrap().merging == before);
            assert!(Unmerged::begin("none").is_err());
            ip("link delete left");

            // A tap has no other end: GRO itself is turned off.
            ip("tuntap add left mode tap");
            assert!(merges("left"));
            let unmerged = Unmerged::begin("left").unwrap().unwrap();
            assert!(!is_on("left") && Unmerged::begin("left").unwrap().is_none());
            drop(unmerged);
            assert!(is_on("left"));
        });
    }
}
