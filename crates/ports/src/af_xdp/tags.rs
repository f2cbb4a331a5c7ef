//! VLAN tags stay in the frames that a card receives: XDP programs see no others.

use std::io;
use std::sync::{Arc, Mutex};

use packet::sync::lock;

use crate::interface::{EthtoolValue, Interface, ask_driver};

const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_SFLAGS: u32 = 0x26;
/// ETH_FLAG_RXVLAN.
const TAKES_TAGS_OUT: u32 = 1 << 8;

fn flags(name: &str) -> io::Result<u32> {
    Ok(ask_driver(name, EthtoolValue { command: ETHTOOL_GFLAGS, data: 0 })?.data)
}

/// Whether the card takes VLAN tags out of frames, so that XDP sees none.
pub fn takes_tags_out(name: &str) -> bool {
    flags(name).is_ok_and(|flags| flags & TAKES_TAGS_OUT != 0)
}

/// Has a card take tags out, or leave them in.
fn set(name: &str, takes: bool) -> io::Result<()> {
    let rest = flags(name)? & !TAKES_TAGS_OUT;
    let data = if takes { rest | TAKES_TAGS_OUT } else { rest };
    ask_driver(name, EthtoolValue { command: ETHTOOL_SFLAGS, data }).map(drop)
}

/// While this is there a card leaves tags in frames that took them out before. A process that is killed leaves it so.
pub(super) struct Kept {
    interface: Arc<Interface>,
}

/// The cards that are to take tags out again.
static CHANGED: Mutex<Vec<Arc<Interface>>> = Mutex::new(Vec::new());

/// Has all cards of this process's ports take tags out again that did so before, for a process that is about to end.
pub fn restore_cards() {
    std::mem::take(&mut *lock(&CHANGED)).iter().for_each(|interface| restore(interface));
}

fn restore(interface: &Interface) {
    // The interface may be gone.
    let _ = set(&interface.kernel_name(), true);
}

impl Kept {
    /// Has the card leave them in from now on; `None` if it does already.
    ///
    /// # Errors
    /// It cannot, or we lack the right (CAP_NET_ADMIN).
    pub(super) fn begin(name: &str) -> io::Result<Option<Self>> {
        let interface = Arc::new(Interface::existing(name).map_err(io::Error::other)?);
        if !takes_tags_out(&interface.kernel_name()) {
            return Ok(None);
        }
        lock(&CHANGED).push(interface.clone());
        let kept = Kept { interface };
        kept.again()?;
        Ok(Some(kept))
    }

    /// The same for an interface that was made anew, or where somebody had the card take them out meanwhile.
    pub(super) fn again(&self) -> io::Result<()> {
        let name = self.interface.kernel_name();
        if !takes_tags_out(&name) {
            return Ok(());
        }
        set(&name, false)?;
        // Some cards say yes and do not.
        if takes_tags_out(&name) { Err(io::ErrorKind::Unsupported.into()) } else { Ok(()) }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let mut changed = lock(&CHANGED);
        let before = changed.len();
        changed.retain(|interface| !Arc::ptr_eq(interface, &self.interface));
        if changed.len() < before {
            restore(&self.interface);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{command, in_namespace, veth_pair};

    #[test]
    fn tags_stay_in_frames_for_a_while() {
        in_namespace(|| {
            veth_pair("left", "right");
            command("ethtool", "-K left rxvlan off");
            assert!(Kept::begin("left").unwrap().is_none());
            command("ethtool", "-K left rxvlan on");
            let kept = Kept::begin("left").unwrap().unwrap();
            assert!(!takes_tags_out("left") && command("ethtool", "-k left").contains("rx-vlan-offload: off"));
            command("ethtool", "-K left rxvlan on");
            kept.again().unwrap();
            assert!(!takes_tags_out("left"));
            drop(kept);
            assert!(takes_tags_out("left") && command("ethtool", "-k left").contains("rx-vlan-offload: on"));
            assert!(Kept::begin("none").is_err());
            // Once, for a port that stays to the end of the process.
            let kept = Kept::begin("left").unwrap().unwrap();
            restore_cards();
            assert!(takes_tags_out("left"));
            command("ethtool", "-K left rxvlan off");
            drop(kept);
            assert!(!takes_tags_out("left"));
        });
    }
}
