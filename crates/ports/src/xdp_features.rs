//! What a driver can do with XDP, as the kernel says it (the family `netdev` of generic netlink, Linux 6.3).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{RecvFlags, SocketFlags, netlink};

use crate::generic_netlink::{Family, attribute, socket};

/// What a driver can do with XDP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpFeatures(u64);

// enum netdev_xdp_act of linux/netdev.h.
const BASIC: u64 = 1;
const SENDS_REDIRECTED: u64 = 1 << 2;
const ZERO_COPY: u64 = 1 << 3;
const RECEIVES_FRAGMENTS: u64 = 1 << 5;
const SENDS_FRAGMENTS: u64 = 1 << 6;

impl XdpFeatures {
    /// Returns whether it runs programs in the driver.
    pub fn is_native(self) -> bool {
        self.0 & BASIC != 0
    }

    /// Returns whether it sends frames that programs of other interfaces redirect to it, at this moment. A veth does while
    /// its other end polls (NAPI): with an XDP program there, or with GRO on.
    pub fn sends_redirected(self) -> bool {
        self.0 & SENDS_REDIRECTED != 0
    }

    /// Returns whether AF_XDP sockets work without copies.
    pub fn is_zero_copy(self) -> bool {
        self.0 & ZERO_COPY != 0
    }

    /// Returns whether frames of several buffers are received, and sent when they are redirected.
    pub fn has_fragments(self) -> bool {
        self.0 & RECEIVES_FRAGMENTS != 0 && self.0 & SENDS_FRAGMENTS != 0
    }

    /// Returns whether frames of several buffers are received.
    pub fn receives_fragments(self) -> bool {
        self.0 & RECEIVES_FRAGMENTS != 0
    }

    /// Asks the kernel about the interface of this number; nothing is known of an interface that is gone.
    ///
    /// # Errors
    ///
    /// The kernel is older than Linux 6.3 (`ENOENT`), or has no memory.
    pub fn ask(interface: u32) -> io::Result<Self> {
        let family = Family::named("netdev")?;
        let answer = family.ask(NETDEV_CMD_DEV_GET, NETDEV_A_DEV_IFINDEX, &interface.to_ne_bytes())?;
        let features =
            attribute(&answer, NETDEV_A_DEV_XDP_FEATURES).and_then(|value| value.first_chunk().copied());
        Ok(Self(features.map_or(0, u64::from_ne_bytes)))
    }
}

/// Hears of devices of this network namespace whose features change.
#[derive(Debug)]
pub struct XdpFeatureChanges(OwnedFd);

impl XdpFeatureChanges {
    /// Begins to listen.
    ///
    /// # Errors
    ///
    /// As [`XdpFeatures::ask`].
    pub fn listen() -> io::Result<Self> {
        let group = Family::named("netdev")?.group("mgmt").ok_or(io::ErrorKind::InvalidData)?;
        let socket = socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        // Only a socket with an address receives messages of its groups.
        rustix::net::bind(&socket, &netlink::SocketAddrNetlink::new(0, 0))?;
        join(&socket, group)?;
        Ok(Self(socket))
    }

    /// Returns whether something has changed since the last call, or may have.
    pub fn take(&self) -> bool {
        let mut has_changed = false;
        loop {
            let mut message = [0; 4096];
            match rustix::net::recv(&self.0, &mut message, RecvFlags::empty()) {
                Err(rustix::io::Errno::AGAIN) => return has_changed,
                // Too many came: some were lost.
                Ok(_) | Err(rustix::io::Errno::NOBUFS) => has_changed = true,
                Err(_) => return true,
            }
        }
    }
}

/// Joins a multicast group of netlink.
fn join(socket: &OwnedFd, group: u32) -> io::Result<()> {
    let (level, name) = (libc::SOL_NETLINK, libc::NETLINK_ADD_MEMBERSHIP);
    let length = size_of_val(&group) as libc::socklen_t;
    #[allow(unsafe_code, reason = "a socket option that has no safe interface")]
    // SAFETY: the option takes a number of this length, which the kernel copies.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const group).cast(), length) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

// include/uapi/linux/netdev.h.
const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Links;
    use crate::testing::{in_namespace, ip, soon, veth_pair};

    #[test]
    fn a_veth_sends_what_is_redirected_while_its_other_end_polls() {
        in_namespace(|| {
            veth_pair("left", "right");
            ip("link set left up");
            ip("link set right up");
            let index = Links::ask().unwrap().named("left").unwrap().index;
            let features = || XdpFeatures::ask(index).unwrap();
            let changes = XdpFeatureChanges::listen().unwrap();
            assert!(!changes.take());
            assert!(features().is_native() && !features().is_zero_copy());
            assert!(!features().sends_redirected());
            let ethtool = std::process::Command::new("ethtool").args(["-K", "right", "gro", "on"]).status();
            assert!(ethtool.unwrap().success());
            soon("the other end polls", || features().sends_redirected());
            soon("it is heard of", || changes.take());
            assert_eq!(XdpFeatures::ask(u32::MAX / 2).unwrap_err().raw_os_error(), Some(libc::ENODEV));
        });
    }
}
