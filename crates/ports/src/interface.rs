//! What Linux says about a port's interface, and what a port changes there.
//!
//! All of it holds in the calling thread's network namespace, for which sysfs would be the wrong witness: it shows the
//! namespace in which it was mounted. Hence ioctl, which never waits as netlink may ([`crate::link`]), and `/proc/thread-self`.

use packet::sync::lock;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, Weak};

use packet::wire::ethernet::MacAddr;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::PortError;
use crate::af_packet::socket as packet_socket;
use crate::link::Links;

/// Link type of Ethernet (ARPHRD_ETHER).
const ARPHRD_ETHER: u16 = 1;

/// An interface's name as the kernel has it.
type KernelName = [libc::c_char; libc::IFNAMSIZ];

/// An interface, and a socket to ask the kernel about it.
///
/// It is that of its index, whatever its name becomes, and another one that gets the name meanwhile is not it. When it is
/// gone, or has left the network namespace for a moment, the next one is it that has the name: the one that it had last, or
/// the one that it was named by; alternative names count at the start. All that were named alike in a network namespace are
/// the same.
pub(crate) struct Interface {
    name: String,
    socket: OwnedFd,
    namespace: u64,
    known: Arc<Mutex<Known>>,
}

/// What is known of an interface: the index, once there was one, and the last name.
#[derive(Clone)]
struct Known {
    index: Option<i32>,
    name: KernelName,
    /// A packet socket on it that receives nothing. Another interface may get the index, or this one may come back as another
    /// one; the kernel takes the socket off at that, for ever. Without the right to open one the index alone counts.
    witness: Option<Arc<OwnedFd>>,
}

impl Known {
    /// The index, while the interface has been there since.
    fn index(&self) -> Option<i32> {
        let index = self.index?;
        self.witness.as_ref().is_none_or(|witness| packet_socket::is_on(witness, index)).then_some(index)
    }
}

/// An interface of this process: its network namespace, and what it was named.
struct Named {
    namespace: u64,
    name: String,
    known: Weak<Mutex<Known>>,
}

static NAMED: Mutex<Vec<Named>> = Mutex::new(Vec::new());

impl Interface {
    /// An interface by its name, or an alternative one; it need not be there.
    pub(crate) fn new(name: &str) -> Result<Self, PortError> {
        let request = match request_for(name) {
            Ok(request) => request,
            Err(error) => match Links::ask().ok().and_then(|links| Some(links.named(name)?.name.clone())) {
                Some(real) => request_for(&real)?,
                None => return Err(error),
            },
        };
        let socket =
            rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
                .map_err(|error| PortError::system(name, "opening a socket", error))?;
        let namespace = namespace();
        let mut all = lock(&NAMED);
        all.retain(|named| named.known.strong_count() > 0);
        let before = all.iter().find(|named| named.namespace == namespace && named.name == name);
        let known = before.and_then(|named| named.known.upgrade()).unwrap_or_else(|| {
            let known = Arc::new(Mutex::new(Known { index: None, name: request.ifr_name, witness: None }));
            all.push(Named { namespace, name: name.to_owned(), known: Arc::downgrade(&known) });
            known
        });
        drop(all);
        Ok(Self { name: name.to_owned(), socket, namespace, known })
    }

    /// Whether this is an interface of another name in this process.
    fn is_anothers(&self, index: i32) -> bool {
        let others: Vec<_> = (lock(&NAMED).iter())
            .filter(|named| named.namespace == self.namespace && named.name != self.name)
            .filter_map(|named| named.known.upgrade())
            .collect();
        others.iter().any(|known| lock(known).index() == Some(index))
    }

    /// An interface that has to be there, and Ethernet, or the error that says what there is.
    pub(crate) fn existing(name: &str) -> Result<Self, PortError> {
        let interface = Self::new(name)?;
        interface.index()?;
        Ok(interface)
    }

    /// The kernel's number of the interface.
    pub(crate) fn index(&self) -> Result<i32, PortError> {
        self.find().map(|(index, _)| index)
    }

    /// The name that Linux has for it now; the last one while it is gone.
    pub(crate) fn kernel_name(&self) -> String {
        let name = self.find().map_or_else(|_| lock(&self.known).name, |(_, name)| name);
        name_of(&name)
    }

    /// Looks for the interface: by its index, and if that is gone, by its names.
    fn find(&self) -> Result<(i32, KernelName), PortError> {
        let known = lock(&self.known).clone();
        if let Some(index) = known.index()
            && let Some(name) = self.name_of_index(index)
        {
            lock(&self.known).name = name;
            return Ok((index, name));
        }
        let names = [known.name].into_iter().chain(request_for(&self.name).ok().map(|it| it.ifr_name));
        let mut found = names.filter_map(|name| {
            let index = self.index_of_name(name)?;
            if known.index.is_some() && self.is_anothers(index) {
                return None;
            }
            let witness = witness_on(index).map(Arc::new);
            // The name that it has, where this one is an alternative. The witness is on what had the name before and after.
            let found = (self.index_of_name(name) == Some(index)).then(|| self.name_of_index(index))??;
            // Alternative names count at the start alone, as for what follows Linux.
            if known.index.is_some() && found != name {
                return None;
            }
            Some(Known { index: Some(index), name: found, witness })
        });
        let found = found.next().ok_or_else(|| no_such_interface(&self.name))?;
        let answer = (found.index.unwrap_or_default(), found.name);
        *lock(&self.known) = found;
        Ok(answer)
    }

    /// The index of the interface with this name, or alternative name.
    fn index_of_name(&self, name: KernelName) -> Option<i32> {
        let reply = ifreq_ioctl(&self.socket, libc::SIOCGIFINDEX as libc::Ioctl, named(name)).ok()?;
        #[allow(unsafe_code, reason = "a union of the C interface")]
        // SAFETY: SIOCGIFINDEX writes this member, and any bits are a number.
        Some(unsafe { reply.ifr_ifru.ifru_ifindex })
    }

    /// The name of the interface with this index; `None`: there is none.
    fn name_of_index(&self, index: i32) -> Option<KernelName> {
        let mut request = named([0; libc::IFNAMSIZ]);
        request.ifr_ifru.ifru_ifindex = index;
        let reply = ifreq_ioctl(&self.socket, libc::SIOCGIFNAME as libc::Ioctl, request);
        reply.ok().map(|reply| reply.ifr_name)
    }

    /// Whether there is such an interface.
    pub(crate) fn exists(&self) -> bool {
        self.index().is_ok()
    }

    /// The link address.
    pub(crate) fn mac(&self) -> Result<MacAddr, PortError> {
        let reply = self.get(libc::SIOCGIFHWADDR as libc::Ioctl, "asking for the link address")?;
        #[allow(unsafe_code, reason = "a union of the C interface")]
        // SAFETY: SIOCGIFHWADDR writes this member, and any bits are an address.
        let address = unsafe { reply.ifr_ifru.ifru_hwaddr };
        if address.sa_family != ARPHRD_ETHER {
            return Err(PortError::NotEthernet { name: self.name.clone(), link_type: address.sa_family });
        }
        let mut octets = [0; 6];
        for (octet, byte) in octets.iter_mut().zip(address.sa_data) {
            *octet = byte as u8;
        }
        Ok(MacAddr(octets))
    }

    /// The first IPv4 address and its network mask.
    fn ipv4(&self) -> Result<(Ipv4Addr, Ipv4Addr), PortError> {
        let address = self.get(libc::SIOCGIFADDR as libc::Ioctl, "asking for the IPv4 address")?;
        let mask = self.get(libc::SIOCGIFNETMASK as libc::Ioctl, "asking for the network mask")?;
        Ok((ipv4_in(&address), ipv4_in(&mask)))
    }

    /// The MTU in bytes.
    pub(crate) fn mtu(&self) -> Result<usize, PortError> {
        let reply = self.get(libc::SIOCGIFMTU as libc::Ioctl, "asking for the MTU")?;
        #[allow(unsafe_code, reason = "a union of the C interface")]
        // SAFETY: SIOCGIFMTU writes this member, and any bits are a number.
        Ok(unsafe { reply.ifr_ifru.ifru_mtu } as usize)
    }

    /// Whether the interface is administratively up.
    pub(crate) fn is_up(&self) -> Result<bool, PortError> {
        Ok(self.flags()? & libc::IFF_UP as libc::c_short != 0)
    }

    /// Whether the interface is up and its cable is in; false when it is gone.
    pub(crate) fn is_running(&self) -> bool {
        self.flags().is_ok_and(|flags| flags & libc::IFF_RUNNING as libc::c_short != 0)
    }

    fn flags(&self) -> Result<libc::c_short, PortError> {
        let reply = self.get(libc::SIOCGIFFLAGS as libc::Ioctl, "asking for the flags")?;
        #[allow(unsafe_code, reason = "a union of the C interface")]
        // SAFETY: SIOCGIFFLAGS writes this member, and any bits are flags.
        Ok(unsafe { reply.ifr_ifru.ifru_flags })
    }

    /// Brings the interface up.
    pub(crate) fn set_up(&self) -> Result<(), PortError> {
        let mut request = named(self.find()?.1);
        request.ifr_ifru.ifru_flags = self.flags()? | libc::IFF_UP as libc::c_short;
        self.ioctl(libc::SIOCSIFFLAGS as libc::Ioctl, request, "bringing the interface up").map(drop)
    }

    /// Sets the MTU.
    pub(crate) fn set_mtu(&self, mtu: usize) -> Result<(), PortError> {
        let mut request = named(self.find()?.1);
        request.ifr_ifru.ifru_mtu = mtu as libc::c_int;
        self.ioctl(libc::SIOCSIFMTU as libc::Ioctl, request, "setting the MTU").map(drop)
    }

    /// Sets the link address.
    pub(crate) fn set_mac(&self, mac: MacAddr) -> Result<(), PortError> {
        let mut address = libc::sockaddr { sa_family: ARPHRD_ETHER, sa_data: [0; 14] };
        for (byte, octet) in address.sa_data.iter_mut().zip(mac.0) {
            *byte = octet as libc::c_char;
        }
        let mut request = named(self.find()?.1);
        request.ifr_ifru.ifru_hwaddr = address;
        self.ioctl(libc::SIOCSIFHWADDR as libc::Ioctl, request, "setting the link address").map(drop)
    }

    /// Asks by the last name, and then whether that is still its: it may be another's now.
    fn get(&self, operation: libc::Ioctl, action: &'static str) -> Result<libc::ifreq, PortError> {
        for _ in 0..MOST_RENAMES {
            let known = lock(&self.known).clone();
            if let Some(index) = known.index() {
                let reply = self.ioctl(operation, named(known.name), action);
                if self.name_of_index(index) == Some(known.name) {
                    return reply;
                }
            }
            self.find()?;
        }
        Err(PortError::system(&self.name, action, Errno::AGAIN))
    }

    fn ioctl(
        &self,
        operation: libc::Ioctl,
        request: libc::ifreq,
        action: &'static str,
    ) -> Result<libc::ifreq, PortError> {
        ifreq_ioctl(&self.socket, operation, request).map_err(|error| match error.raw_os_error() {
            Some(libc::ENODEV) => no_such_interface(&self.name),
            _ => PortError::system(&self.name, action, error),
        })
    }
}

impl fmt::Debug for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Interface").field(&self.name).finish()
    }
}

/// How often an interface may be renamed while it is asked about.
const MOST_RENAMES: usize = 16;

/// The IPv4 address that the kernel wrote into a request.
fn ipv4_in(reply: &libc::ifreq) -> Ipv4Addr {
    #[allow(unsafe_code, reason = "a union of the C interface")]
    // SAFETY: SIOCGIFADDR and SIOCGIFNETMASK write this member, and any bits are an address.
    let address = unsafe { reply.ifr_ifru.ifru_addr };
    // A `sockaddr_in`: the port's two bytes, then the address.
    let octet = |place: usize| address.sa_data[2 + place] as u8;
    Ipv4Addr::new(octet(0), octet(1), octet(2), octet(3))
}

/// Opens a packet socket on an interface that receives nothing.
fn witness_on(index: i32) -> Option<OwnedFd> {
    let socket = packet_socket::open().ok()?;
    packet_socket::bind(&socket, index, false).ok()?;
    Some(socket)
}

/// Returns whether there is an interface of this name or alternative name, or one that was named so when this process opened it.
pub fn is_interface(name: &str) -> bool {
    Interface::new(name).is_ok_and(|interface| interface.exists())
}

/// Returns the name that Linux has now for the interface that was named so when this process opened it. It is the name
/// itself if nobody has renamed it, or if there is none.
pub fn kernel_name(interface: &str) -> String {
    let known = Interface::new(interface).ok().filter(Interface::exists);
    known.map_or_else(|| interface.to_owned(), |known| known.kernel_name())
}

/// The addresses of an interface: what Linux says first of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// IPv4 address and network mask.
    pub ipv4: Option<(Ipv4Addr, Ipv4Addr)>,
    /// IPv6 address and prefix length; one that is good everywhere before one of the link.
    pub ipv6: Option<(Ipv6Addr, u8)>,
    /// Link address.
    pub mac: Option<MacAddr>,
    /// IPv4 gateway of the default route over the interface.
    pub gateway: Option<Ipv4Addr>,
}

/// The addresses of the interface called `name`; `None` when there is none.
pub fn addresses(name: &str) -> Option<Addresses> {
    let interface = Interface::new(name).ok().filter(Interface::exists)?;
    let list = std::fs::read_to_string("/proc/thread-self/net/if_inet6").unwrap_or_default();
    let routes = std::fs::read_to_string("/proc/thread-self/net/route").unwrap_or_default();
    Some(Addresses {
        ipv4: interface.ipv4().ok(),
        ipv6: ipv6_in(&list, &interface.kernel_name()),
        mac: interface.mac().ok(),
        gateway: gateway_in(&routes, &interface.kernel_name()),
    })
}

/// The name of the interface that has the link address `mac`.
pub fn with_address(mac: MacAddr) -> Option<String> {
    Links::ask().ok()?.iter().find(|link| link.mac == Some(mac)).map(|link| link.name.clone())
}

/// The gateway of the default route over the interface `name` in the kernel's list: interface, destination, gateway, ...,
/// addresses as the numbers that their bytes are here.
fn gateway_in(list: &str, name: &str) -> Option<Ipv4Addr> {
    list.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let (of, destination, gateway) = (words.next()?, words.next()?, words.next()?);
        let gateway = u32::from_str_radix(gateway, 16).ok().filter(|&gateway| gateway != 0)?;
        (of == name && destination == "00000000").then(|| Ipv4Addr::from(gateway.to_ne_bytes()))
    })
}

/// The address of the interface `name` in the kernel's list: address, index, prefix length, scope, flags, name.
fn ipv6_in(list: &str, name: &str) -> Option<(Ipv6Addr, u8)> {
    let found = list.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let &[address, _, length, scope, _, of] = &words[..] else { return None };
        let address = Ipv6Addr::from_bits(u128::from_str_radix(address, 16).ok()?);
        (of == name).then_some((scope, (address, u8::from_str_radix(length, 16).ok()?)))
    });
    found.min_by_key(|(scope, _)| *scope).map(|(_, address)| address)
}

/// The number of the thread's network namespace, by which tables of this process know whose interface an index means.
pub(crate) fn namespace() -> u64 {
    rustix::fs::stat("/proc/thread-self/ns/net").map_or(0, |file| file.st_ino)
}

/// An interface request with the name filled in.
pub(crate) fn request_for(name: &str) -> Result<libc::ifreq, PortError> {
    // netdevice(7): at most IFNAMSIZ with its NUL; the kernel refuses these characters too.
    if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains(['/', '\0', ' ']) {
        let hint = if name.contains('/') || name.ends_with(".pcap") || name.ends_with(".pcapng") {
            format!("to read a file write `pcap:{name}`")
        } else {
            format!("an interface's name has at most {} characters", libc::IFNAMSIZ - 1)
        };
        return Err(PortError::NoSuchInterface { name: name.to_owned(), hint });
    }
    let mut bytes = [0; libc::IFNAMSIZ];
    for (to, from) in bytes.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(named(bytes))
}

/// A request about the interface of this name.
fn named(name: KernelName) -> libc::ifreq {
    #[allow(unsafe_code, reason = "a struct of the C interface")]
    // SAFETY: an `ifreq` is numbers and bytes, for which zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name = name;
    request
}

/// The interface's name in a request that the kernel answered.
pub(crate) fn name_in(request: &libc::ifreq) -> String {
    name_of(&request.ifr_name)
}

fn name_of(name: &KernelName) -> String {
    let bytes: Vec<u8> = name.iter().map(|&byte| byte as u8).take_while(|&byte| byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Asks the kernel something about an interface; `operation` must be one that takes an `ifreq`.
pub(crate) fn ifreq_ioctl(
    socket: &impl AsRawFd,
    operation: libc::Ioctl,
    mut request: libc::ifreq,
) -> io::Result<libc::ifreq> {
    #[allow(unsafe_code, reason = "the C interface of netdevice(7)")]
    // SAFETY: every caller passes an operation that reads and writes one `ifreq`, which lives for the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), operation, &raw mut request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(request) }
}

/// A structure of include/uapi/linux/ethtool.h.
///
/// # Safety
/// It is laid out as there, any bytes of it are a value, and its first field is a command that reads and writes no more
/// than it.
#[allow(unsafe_code, reason = "the kernel writes to what implements it")]
pub(crate) unsafe trait EthtoolCommand: Copy {}

/// struct ethtool_value.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct EthtoolValue {
    pub(crate) command: u32,
    pub(crate) data: u32,
}

#[allow(unsafe_code, reason = "a structure of ethtool.h")]
// SAFETY: two numbers, as in ethtool.h; the commands that are given take just this structure.
unsafe impl EthtoolCommand for EthtoolValue {}

/// Asks an interface's driver something; the answer.
pub(crate) fn ask_driver<T: EthtoolCommand>(name: &str, mut question: T) -> io::Result<T> {
    let (family, flags) = (AddressFamily::INET, SocketFlags::CLOEXEC);
    let socket = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
    let mut request = request_for(name).map_err(io::Error::other)?;
    request.ifr_ifru.ifru_data = (&raw mut question).cast();
    ifreq_ioctl(&socket, libc::SIOCETHTOOL as libc::Ioctl, request)?;
    Ok(question)
}

fn no_such_interface(name: &str) -> PortError {
    let names = names();
    let hint = if name.ends_with(".pcap") || name.ends_with(".pcapng") {
        format!("to read a file write `pcap:{name}`")
    } else if names.is_empty() {
        "there is none in this network namespace".to_owned()
    } else {
        format!("there are {}", names.join(", "))
    };
    PortError::NoSuchInterface { name: name.to_owned(), hint }
}

/// The names of all interfaces of the thread's network namespace.
fn names() -> Vec<String> {
    let links = Links::ask().unwrap_or_default();
    let mut names: Vec<String> = links.iter().map(|link| link.name.clone()).collect();
    names.sort();
    names
}

/// Gives an interface of the thread's network namespace another link address.
///
/// # Errors
/// [`PortError::NoSuchInterface`], and [`PortError::System`] when the kernel refuses.
pub fn set_link_address(interface: &str, mac: MacAddr) -> Result<(), PortError> {
    Interface::existing(interface)?.set_mac(mac)
}

/// Gives an interface of the thread's network namespace another MTU.
///
/// # Errors
/// As [`set_link_address`].
pub fn set_mtu(interface: &str, mtu: usize) -> Result<(), PortError> {
    Interface::existing(interface)?.set_mtu(mtu)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{in_namespace, ip, veth_pair};

    #[test]
    fn names_that_cannot_be() {
        for name in ["", "sixteen-letters-", "a b", "a/b"] {
            assert!(matches!(Interface::new(name), Err(PortError::NoSuchInterface { .. })), "{name}");
        }
        let error = Interface::new("/tmp/in.pcap").unwrap_err().to_string();
        assert!(error.ends_with("to read a file write `pcap:/tmp/in.pcap`"), "{error}");
    }

    #[test]
    fn addresses_of_an_interface() {
        in_namespace(|| {
            ip("link add one type veth peer name other");
            ip("link set one address 02:00:00:00:00:07 up");
            ip("link set other up");
            ip("addr add 192.0.2.1/24 dev one");
            ip("addr add 2001:db8::1/64 dev one nodad");
            ip("route add default via 192.0.2.254 dev one");
            let addresses = addresses("one").unwrap();
            assert_eq!(addresses.ipv4.unwrap().0, Ipv4Addr::new(192, 0, 2, 1));
            assert_eq!(addresses.ipv4.unwrap().1, Ipv4Addr::new(255, 255, 255, 0));
            assert_eq!(addresses.ipv6, Some(("2001:db8::1".parse().unwrap(), 64)));
            assert_eq!(addresses.mac, Some(MacAddr([2, 0, 0, 0, 0, 7])));
            assert_eq!(addresses.gateway, Some(Ipv4Addr::new(192, 0, 2, 254)));
            assert!(super::addresses("two").is_none());
            assert_eq!(with_address(MacAddr([2, 0, 0, 0, 0, 7])).as_deref(), Some("one"));
            assert_eq!(with_address(MacAddr([2, 0, 0, 0, 0, 8])), None);
        });
    }

    #[test]
    fn an_interface_says_what_it_is() {
        in_namespace(|| {
            veth_pair("left", "right");
            ip("link set left address 02:00:00:00:00:07 mtu 1400");
            let left = Interface::existing("left").unwrap();
            assert_eq!(left.mac().unwrap(), MacAddr([2, 0, 0, 0, 0, 7]));
            assert_eq!((left.mtu().unwrap(), left.is_up().unwrap()), (1_400, true));
            ip("link set left down");
            assert!(!left.is_up().unwrap());
            let error = Interface::existing("middle").unwrap_err().to_string();
            assert_eq!(error, "there is no interface `middle`; there are left, lo, right");
            assert!(matches!(
                Interface::existing("lo").unwrap().mac(),
                Err(PortError::NotEthernet { link_type: 772, .. })
            ));
        });
    }

    #[test]
    fn an_interface_is_its_index_and_its_name_follows() {
        in_namespace(|| {
            veth_pair("left", "right");
            let (left, again) = (Interface::existing("left").unwrap(), Interface::new("left").unwrap());
            let right = Interface::existing("right").unwrap();
            let index = left.index().unwrap();
            ip("link set left name wan0");
            // Another one gets the name.
            ip("link add left mtu 1234 type bridge");
            assert_eq!((left.index().unwrap(), again.index().unwrap()), (index, index));
            assert_eq!((left.mtu().unwrap(), left.is_up().unwrap()), (1_500, true));
            left.set_mtu(1_300).unwrap();
            assert_eq!((again.mtu().unwrap(), again.kernel_name().as_str()), (1_300, "wan0"));

            // It goes, and the one with the name is it.
            ip("link del wan0");
            assert_eq!((left.mtu().unwrap(), left.kernel_name().as_str()), (1_234, "left"));
            ip("link del left");
            assert!(!left.exists() && !right.exists());
            // One of the last name, or of the first.
            ip("link add left type bridge");
            ip("link set left name wan1");
            assert!(!left.exists());
            ip("link set wan1 name left");
            let third = left.index().unwrap();
            ip("link set left name wan2");
            assert_eq!(again.kernel_name(), "wan2");
            ip("link del wan2");
            ip("link add wan2 type bridge");
            assert_ne!(again.index().unwrap(), third);
        });
    }

    #[test]
    fn what_left_the_namespace_is_found_by_its_name_again() {
        in_namespace(|| {
            veth_pair("left", "right");
            let (left, right) = (Interface::existing("left").unwrap(), Interface::existing("right").unwrap());
            let [first, second] = [&left, &right].map(|it| it.index().unwrap());
            // A namespace in which numbers are free, and what an interface is called there.
            let elsewhere = |moves: &[(&str, &str)]| {
                let (ready, told) = std::sync::mpsc::channel();
                let (go, moved) = std::sync::mpsc::channel::<()>();
                let here = format!("/proc/{}/ns/net", rustix::thread::gettid().as_raw_nonzero());
                std::thread::scope(|scope| {
                    scope.spawn(move || {
                        testbed::in_namespace(move || {
                            ready.send(rustix::thread::gettid().as_raw_nonzero()).unwrap();
                            moved.recv().unwrap();
                            for (from, _) in moves {
                                ip(&format!("link set {from} name {from}0"));
                            }
                            for (from, to) in moves {
                                ip(&format!("link set {from}0 name {to}"));
                            }
                            for (_, to) in moves {
                                ip(&format!("link set {to} netns {here}"));
                            }
                        });
                    });
                    let there = told.recv().unwrap();
                    for (from, _) in moves {
                        ip(&format!("link set {from} netns {there}"));
                    }
                    go.send(()).unwrap();
                });
            };
            // It comes back as another one, with its old number.
            elsewhere(&[("left", "other")]);
            assert!(crate::testing::command("ip", "link").contains(&format!("{first}: other")));
            assert!(!left.exists());
            ip("link set other name left");
            assert_eq!(left.index().unwrap(), first);
            // Both come back, each with the other one's name.
            elsewhere(&[("left", "right"), ("right", "left")]);
            assert_eq!([&left, &right].map(|it| it.index().unwrap()), [second, first]);
            // Another one has the number, or the name as an alternative one.
            ip("link set left name away");
            ip("link del away");
            ip("link add apart type bridge");
            ip("link property add dev apart altname left");
            assert!(!left.exists());
            ip(&format!("link add other index {second} type bridge"));
            assert!(!left.exists());
        });
    }

    #[test]
    fn an_interface_of_another_name_is_not_taken_over() {
        in_namespace(|| {
            for name in ["left", "right"] {
                ip(&format!("link add {name} type bridge"));
            }
            let (left, right) = (Interface::existing("left").unwrap(), Interface::existing("right").unwrap());
            let index = right.index().unwrap();
            ip("link del left");
            ip("link set right name left");
            assert!(!left.exists());
            assert_eq!((right.index().unwrap(), right.kernel_name().as_str()), (index, "left"));
            drop(right);
            assert_eq!(left.index().unwrap(), index);
        });
    }

    #[test]
    fn an_interface_has_alternative_names() {
        in_namespace(|| {
            ip("link add left type bridge");
            let index = Interface::existing("left").unwrap().index().unwrap();
            for name in ["short", "uplink-to-the-provider"] {
                ip(&format!("link property add dev left altname {name}"));
                let by_it = Interface::existing(name).unwrap();
                assert_eq!((by_it.index().unwrap(), by_it.kernel_name().as_str()), (index, "left"));
            }
        });
    }
}
