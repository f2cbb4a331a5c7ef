//! Names of services, where a TCP or UDP port is wanted: those that a configuration gives (`PortInfo`), the well-known
//! ones, and those of the host's list (`/etc/services`, services(5)).

use std::collections::HashMap;
use std::sync::OnceLock;

use crate::FromArgument;
use crate::lang::unquote;
use crate::names;

/// Well-known ports, the same for TCP and UDP: those of Click, and a few services that Click finds in the host's list.
const WELL_KNOWN: [(&str, u16); 51] = [
    ("echo", 7),
    ("discard", 9),
    ("daytime", 13),
    ("chargen", 19),
    ("ftp-data", 20),
    ("ftp", 21),
    ("ssh", 22),
    ("telnet", 23),
    ("smtp", 25),
    ("whois", 43),
    ("domain", 53),
    ("dns", 53),
    ("bootps", 67),
    ("bootpc", 68),
    ("tftp", 69),
    ("finger", 79),
    ("www", 80),
    ("http", 80),
    ("kerberos", 88),
    ("pop3", 110),
    ("sunrpc", 111),
    ("auth", 113),
    ("nntp", 119),
    ("ntp", 123),
    ("netbios-ns", 137),
    ("netbios-dgm", 138),
    ("netbios-ssn", 139),
    ("imap2", 143),
    ("imap", 143),
    ("snmp", 161),
    ("snmp-trap", 162),
    ("bgp", 179),
    ("irc", 194),
    ("imap3", 220),
    ("ldap", 389),
    ("https", 443),
    ("microsoft-ds", 445),
    ("isakmp", 500),
    ("rip", 520),
    ("route", 520),
    ("submission", 587),
    ("ipp", 631),
    ("ldaps", 636),
    ("rsync", 873),
    ("imaps", 993),
    ("pop3s", 995),
    ("socks", 1080),
    ("openvpn", 1194),
    ("pptp", 1723),
    ("radius", 1812),
    ("nfs", 2049),
];

/// The well-known port called `name`.
pub fn well_known(name: &str) -> Option<u16> {
    WELL_KNOWN.iter().find(|(known, _)| *known == name).map(|(_, port)| *port)
}

/// The port of `protocol` (`tcp` or `udp`) that the host's list calls `name`. The list is read once.
pub fn of_host(name: &str, protocol: &str) -> Option<u16> {
    static LIST: OnceLock<HashMap<String, u16>> = OnceLock::new();
    let list = LIST.get_or_init(|| parse(&std::fs::read_to_string("/etc/services").unwrap_or_default()));
    list.get(&format!("{name}/{protocol}")).copied()
}

/// Lines `NAME PORT/PROTOCOL [ALIAS ...]`; ports by `NAME/PROTOCOL`, the first of a name.
fn parse(text: &str) -> HashMap<String, u16> {
    let mut list = HashMap::new();
    for line in text.lines() {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        let (Some(name), Some(port)) = (words.next(), words.next()) else { continue };
        let Some((port, protocol)) = port.split_once('/') else { continue };
        let Ok(port) = port.parse() else { continue };
        for name in std::iter::once(name).chain(words) {
            list.entry(format!("{name}/{protocol}")).or_insert(port);
        }
    }
    list
}

/// The port of `protocol` (`tcp` or `udp`) called `name`, by the configuration, else by everybody.
pub fn port(name: &str, protocol: &str) -> Option<u16> {
    names::port(name, protocol).or_else(|| well_known(name)).or_else(|| of_host(name, protocol))
}

/// A UDP port: its number, or the name of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpPort(pub u16);

impl FromArgument for UdpPort {
    const EXPECTED: &'static str = "UDP port, such as 53 or domain";
    fn from_argument(text: &str) -> Option<Self> {
        u16::from_argument(text).or_else(|| port(&unquote(text), "udp")).map(Self)
    }
}

/// A TCP port: its number, or the name of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpPort(pub u16);

impl FromArgument for TcpPort {
    const EXPECTED: &'static str = "TCP port, such as 80 or http";
    fn from_argument(text: &str) -> Option<Self> {
        u16::from_argument(text).or_else(|| port(&unquote(text), "tcp")).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names() {
        assert_eq!(UdpPort::from_argument("domain"), Some(UdpPort(53)));
        assert_eq!(TcpPort::from_argument("0x50"), Some(TcpPort(80)));
        assert_eq!(TcpPort::from_argument("no-such-service"), None);
    }

    #[test]
    fn the_list_of_the_host() {
        let list =
            parse("# services\nssh 22/tcp # shell\ntelnet\t23/tcp\nbad x/tcp\nntp 123/udp time-2 ssh\n");
        let found = |name: &str| list.get(name).copied();
        assert_eq!(
            (found("ssh/tcp"), found("ssh/udp"), found("time-2/udp")),
            (Some(22), Some(123), Some(123))
        );
        assert_eq!((list.len(), found("bad/tcp")), (5, None));
    }
}
