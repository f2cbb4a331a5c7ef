//! Two IPsec gateways between two hosts. The router in the middle has no route to the hosts' networks, and its end of the link to `g1` is
//! where packets are watched.
//!
//! ```text
//!   h1 ------- eth1 g1 eth2 ------- eth1 m eth2 ------- eth2 g2 eth1 ------- h2
//!    .2  10.0.1.0/24  .1  .1  10.1.1.0/24  .254  .254  10.1.2.0/24  .1  .1  10.0.2.0/24  .2
//!   ::2  2001:db8:1::  ::1  2001:db8:11::  ::fe    2001:db8:12::  ::1  2001:db8:2::  ::2
//! ```
//!
//! Security associations and policies are Linux's. Gateway `g2` is always Linux; `g1` is what the test names.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use testbed::DEADLINE;

use super::{Network, Running, eventually, router};

/// What forwards in `g1`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Gateway {
    Linux,
    /// `brickway run eth1 eth2`.
    Brickway,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Ip {
    V4,
    V6,
}

pub(crate) const BOTH: [Ip; 2] = [Ip::V4, Ip::V6];

impl Ip {
    /// The address of a host.
    pub(crate) fn host(self, side: u8) -> String {
        match self {
            Self::V4 => format!("10.0.{side}.2"),
            Self::V6 => format!("2001:db8:{side}::2"),
        }
    }

    /// The address of a gateway towards its host.
    pub(crate) fn router(self, side: u8) -> String {
        match self {
            Self::V4 => format!("10.0.{side}.1"),
            Self::V6 => format!("2001:db8:{side}::1"),
        }
    }

    /// The network of a host.
    pub(crate) fn network(self, side: u8) -> String {
        match self {
            Self::V4 => format!("10.0.{side}.0/24"),
            Self::V6 => format!("2001:db8:{side}::/64"),
        }
    }

    /// The address of a gateway towards the middle.
    pub(crate) fn gateway(self, side: u8) -> String {
        match self {
            Self::V4 => format!("10.1.{side}.1"),
            Self::V6 => format!("2001:db8:1{side}::1"),
        }
    }
}

/// Encryption and authentication by their names in `ip xfrm state`: type, name, bytes of key, bits of the integrity check value.
pub(crate) type Suite = &'static [(&'static str, &'static str, usize, &'static str)];

/// Every suite of the router.
pub(crate) const SUITES: [Suite; 6] = [
    &[("aead", "rfc4106(gcm(aes))", 20, "128")],
    &[("aead", "rfc4106(gcm(aes))", 36, "128")],
    &[("aead", "rfc7539esp(chacha20,poly1305)", 36, "128")],
    &[("enc", "cbc(aes)", 16, ""), ("auth-trunc", "hmac(sha1)", 20, "96")],
    &[("enc", "cbc(aes)", 32, ""), ("auth-trunc", "hmac(sha256)", 32, "128")],
    &[("enc", "cbc(aes)", 32, ""), ("auth-trunc", "hmac(sha512)", 64, "256")],
];

/// A pair of security associations by `ip xfrm`, and the policies that lead to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tunnel {
    pub suite: Suite,
    /// The family of the gateways' addresses.
    pub outer: Ip,
    /// Tunnel mode between the hosts' networks; without it transport mode between the gateways.
    pub is_tunnel: bool,
    /// NAT traversal: in UDP, port 4500.
    pub in_udp: bool,
    /// Extended sequence numbers.
    pub esn: bool,
    pub replay_window: u32,
    /// The number of the last packet before the first one.
    pub last_number: u32,
}

impl Tunnel {
    pub(crate) const DEFAULT: Self = Self {
        suite: SUITES[0],
        outer: Ip::V4,
        is_tunnel: true,
        in_udp: false,
        esn: false,
        replay_window: 32,
        last_number: 0,
    };

    fn mode(&self) -> &'static str {
        if self.is_tunnel { "tunnel" } else { "transport" }
    }

    /// Policies and associations of `g1` as element IpsecPolicy reads them.
    fn file(&self) -> String {
        let [near, far] = [1, 2].map(|side| self.outer.gateway(side));
        let mut lines = Vec::new();
        for inner in BOTH {
            let [mine, theirs] = [1, 2].map(|side| inner.network(side));
            lines.push(format!("policy out any {mine} {theirs} protect {near} {far} request 1"));
            lines.push(format!("policy fwd any {theirs} {mine} protect {far} {near} request 1"));
        }
        let names = [
            "aes128-gcm",
            "aes256-gcm",
            "chacha20-poly1305",
            "aes128-cbc-sha1",
            "aes256-cbc-sha256",
            "aes256-cbc-sha512",
        ];
        let suite = SUITES.iter().position(|suite| *suite == self.suite).unwrap();
        let keys: Vec<String> = ["key", "auth"]
            .iter()
            .zip(self.suite)
            .map(|(word, part)| format!("{word} {}", key(part.2, 7)))
            .collect();
        for (from, source, destination) in [(1, &near, &far), (2, &far, &near)] {
            let mut line = format!(
                "association {:#x} {source} {destination} {} {} request 1 window {}",
                spi(from),
                names[suite],
                keys.join(" "),
                self.replay_window
            );
            line += if self.esn { " extended" } else { "" };
            line += if self.in_udp { " udp 4500 4500" } else { "" };
            lines.push(line);
        }
        lines.join("\n") + "\n"
    }

    /// What `ip xfrm state add` needs of the association of a direction; `seed` decides its keys.
    fn state(&self, from: u8, to: u8, seed: u8) -> String {
        let (source, destination) = (self.outer.gateway(from), self.outer.gateway(to));
        let mut words = format!(
            "src {source} dst {destination} proto esp spi {:#x} reqid 1 mode {} replay-window {}",
            spi(from),
            self.mode(),
            self.replay_window
        );
        if self.last_number != 0 {
            words += &format!(" replay-seq {0} replay-oseq {0}", self.last_number);
        }
        if self.is_tunnel || self.esn {
            words += " flag";
            words += if self.is_tunnel { " af-unspec" } else { "" };
            words += if self.esn { " esn" } else { "" };
        }
        for (kind, name, key_bytes, icv_bits) in self.suite {
            words += &format!(" {kind} {name} {} {icv_bits}", key(*key_bytes, seed));
        }
        if self.in_udp {
            words += " encap espinudp 4500 4500 0.0.0.0";
        }
        words
    }
}

/// A key of so many bytes.
fn key(bytes: usize, seed: u8) -> String {
    let digits: String = (0..bytes).map(|at| format!("{:02x}", (at * 37) as u8 ^ seed)).collect();
    format!("0x{digits}")
}

/// The SPI of what a gateway sends.
pub(crate) fn spi(from: u8) -> u32 {
    0x1000 + u32::from(from)
}

/// The hosts, the gateways and what runs in them.
pub(crate) struct Bed {
    pub network: Network,
    _gateway: Option<Running>,
}

impl Bed {
    /// All of them, without an association or policy.
    pub(crate) fn new(gateway: Gateway) -> Self {
        let network = Network::new(&["h1", "g1", "m", "g2", "h2"]);
        for side in [1, 2] {
            let [host, gateway, link] = [format!("h{side}"), format!("g{side}"), format!("eth{side}")];
            let address = |last: u8| format!("02:00:00:00:0{side}:{last:02x}");
            network.link((&host, "eth0", &address(1)), (&gateway, "eth1", &address(2)));
            network.link((&gateway, "eth2", &address(3)), ("m", &link, &address(4)));
            let ends = [
                (&host[..], "eth0", "10.0", "", "2"),
                (&gateway, "eth1", "10.0", "", "1"),
                (&gateway, "eth2", "10.1", "1", "1"),
                ("m", &link, "10.1", "1", "254"),
            ];
            for (label, device, net, tens, last) in ends {
                let last6 = if last == "254" { "fe" } else { last };
                let settings =
                    ["all", "default", device].map(|scope| format!("net.ipv6.conf.{scope}.disable_ipv6=0"));
                network.set(label, &settings.join(" "));
                network.ip_batch(
                    label,
                    &[
                        format!("addr add {net}.{side}.{last}/24 dev {device}"),
                        format!("addr add 2001:db8:{tens}{side}::{last6}/64 dev {device} nodad"),
                    ],
                );
            }
            let default = |net: &str, tens: &str, last: &str, last6: &str| {
                [
                    format!("route add default via {net}.{side}.{last}"),
                    format!("route add default via 2001:db8:{tens}{side}::{last6}"),
                ]
            };
            network.ip_batch(&host, &default("10.0", "", "1", "1"));
            network.ip_batch(&gateway, &default("10.1", "1", "254", "fe"));
            network.forward(&gateway);
        }
        network.forward("m");
        let gateway = (gateway == Gateway::Brickway).then(|| router::start_in(&network, "g1", "eth1 eth2"));
        Self { network, _gateway: gateway }
    }

    /// Gives both gateways the associations and policies of a tunnel in the place of what they have.
    pub(crate) fn install(&self, tunnel: &Tunnel) {
        self.install_with_seeds(tunnel, [7, 7]);
    }

    /// The same with keys of each gateway's own.
    pub(crate) fn install_with_seeds(&self, tunnel: &Tunnel, seeds: [u8; 2]) {
        self.install_on(tunnel, &[(1, 2, seeds[0]), (2, 1, seeds[1])]);
    }

    /// Gives gateway `g2` the associations and policies of a tunnel, and starts in `g1` a router that has them from a file.
    pub(crate) fn start_with_file(&self, tunnel: &Tunnel) -> Running {
        self.install_on(tunnel, &[(2, 1, 7)]);
        // Linux forwards nothing past the router.
        self.network.set("g1", "net.ipv4.ip_forward=0 net.ipv6.conf.all.forwarding=0");
        let keys = self.network.folder.write("keys", tunnel.file());
        std::fs::set_permissions(&keys, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let mac = |side: u8, last: u8| format!("02:00:00:00:0{side}:{last:02x}");
        let [to_host, to_middle] =
            [(mac(1, 2), mac(1, 1), "eth1"), (mac(1, 3), mac(1, 4), "eth2")].map(|(from, to, device)| {
                format!(
                    "to_{device} :: ToDevice(af_packet:{device});
                 {device}_4 :: DecIPTTL -> EtherEncap(0x0800, {from}, {to}) -> to_{device};
                 {device}_6 :: DecIP6HLIM -> EtherEncap(0x86dd, {from}, {to}) -> to_{device};"
                )
            });
        let from = |device: &str| {
            format!(
                "FromDevice(af_packet:{device}) -> from_{device} :: Classifier(12/0800, 12/86dd, -);
                 from_{device}[0] -> Strip(14) -> CheckIPHeader -> ipsec;
                 from_{device}[1] -> Strip(14) -> CheckIP6Header -> ipsec;
                 from_{device}[2] -> Discard;"
            )
        };
        let config = format!(
            "ipsec :: IpsecPolicy(FILE \"{keys}\"); {to_host} {to_middle} {} {}
             ipsec[0] -> host :: Classifier(0/40%f0 16/0a0001, 0/60%f0 24/20010db80001, -);
             host[0] -> eth1_4; host[1] -> eth1_6; host[2] -> Discard;
             ipsec[1] -> decap :: EspDecap; decap[0] -> CheckIPHeader -> ipsec; decap[1] -> CheckIP6Header -> ipsec;
             ipsec[2] -> inner :: Classifier(0/40%f0, -); inner[0] -> DecIPTTL -> encap :: EspEncap; inner[1] -> DecIP6HLIM -> encap;
             encap[0] -> eth2_4; encap[1] -> eth2_6;
             ipsec[3] -> Discard;",
            from("eth1"),
            from("eth2")
        );
        let file = self.network.folder.write("gateway.click", config);
        router::start_in(&self.network, "g1", &file)
    }

    fn install_on(&self, tunnel: &Tunnel, gateways: &[(u8, u8, u8)]) {
        for &(side, other, seed) in gateways {
            let mut lines = vec!["xfrm state flush".to_owned(), "xfrm policy flush".to_owned()];
            for (from, to) in [(side, other), (other, side)] {
                lines.push(format!("xfrm state add {}", tunnel.state(from, to, seed)));
            }
            let mut policy = |direction: &str, from: u8, to: u8, [source, destination]: [String; 2]| {
                lines.push(format!(
                    "xfrm policy add src {source} dst {destination} dir {direction} \
                     tmpl src {} dst {} proto esp reqid 1 mode {}",
                    tunnel.outer.gateway(from),
                    tunnel.outer.gateway(to),
                    tunnel.mode()
                ));
            };
            if tunnel.is_tunnel {
                for inner in BOTH {
                    let between = |from, to| [inner.network(from), inner.network(to)];
                    policy("out", side, other, between(side, other));
                    policy("fwd", other, side, between(other, side));
                    policy("in", other, side, between(other, side));
                }
            } else {
                let between = |from, to| [tunnel.outer.gateway(from), tunnel.outer.gateway(to)];
                policy("out", side, other, between(side, other));
                policy("in", other, side, between(other, side));
            }
            self.network.ip_batch(&format!("g{side}"), &lines);
        }
    }

    /// Opens the ports that NAT traversal uses on both gateways. The kernel decrypts what comes to such a socket only.
    pub(crate) fn open_udp_ports(&self) -> Vec<Running> {
        // UDP_ENCAP = 100, UDP_ENCAP_ESPINUDP = 2; 41, 26: IPV6_V6ONLY.
        let script = "use Socket qw(:all); \
            socket($a, AF_INET, SOCK_DGRAM, 0) && bind($a, sockaddr_in(4500, INADDR_ANY)) or die; \
            socket($b, AF_INET6, SOCK_DGRAM, 0) && setsockopt($b, 41, 26, 1) or die; \
            bind($b, sockaddr_in6(4500, IN6ADDR_ANY)) or die; \
            for ($a, $b) { setsockopt($_, IPPROTO_UDP, 100, pack('i', 2)) or die; } \
            $| = 1; print qq(open\\n); sleep;";
        let file = self.network.folder.write("encap.pl", script);
        let open = |gateway: &str| {
            let holder = self.network.start(gateway, &format!("perl {file}"));
            holder.wait_until("ports of NAT traversal", || holder.printed().contains("open"));
            holder
        };
        vec![open("g1"), open("g2")]
    }

    /// Pings once from one namespace to an address. Returns whether it was answered.
    pub(crate) fn pings(&self, from: &str, to: &str) -> bool {
        self.network.run(from, &format!("ping -n -c 1 -W 2 {to}")).0
    }

    /// Sends datagrams of these bytes of payload from host h1 to h2, which sends each back before the next one.
    ///
    /// # Panics
    ///
    /// Where one does not come back unchanged.
    pub(crate) fn echo(&self, inner: Ip, sizes: impl IntoIterator<Item = usize>) {
        let (near, far) = self.sockets(inner);
        near.set_read_timeout(Some(DEADLINE)).unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| receive(&far, &is_over, |datagram, from| drop(far.send_to(datagram, from))));
            let _stop = Stop(&is_over);
            for size in sizes {
                let sent: Vec<u8> = (0..size).map(|at| (at * 31 + size) as u8).collect();
                near.send(&sent).unwrap();
                let mut back = [0; 2048];
                let got = near.recv(&mut back);
                assert_eq!(got.map(|len| &back[..len]).ok(), Some(&sent[..]), "{inner:?}, {size} bytes");
            }
        });
    }

    /// Sends numbered datagrams from host h1 to h2 while `act` runs. Returns how many were sent, and how often each of those that did
    /// not arrive exactly once arrived.
    pub(crate) fn stream_during(&self, inner: Ip, act: impl FnOnce()) -> (u64, BTreeMap<u64, u64>) {
        let (near, far) = self.sockets(inner);
        let [is_acted, is_over] = [AtomicBool::new(false), AtomicBool::new(false)];
        let received = AtomicU64::new(0);
        let mut arrivals = BTreeMap::new();
        let sent = std::thread::scope(|scope| {
            let (received, arrivals) = (&received, &mut arrivals);
            let is_over = &is_over;
            scope.spawn(move || {
                receive(&far, is_over, |datagram, _| {
                    let number = u64::from_be_bytes(datagram.try_into().unwrap());
                    *arrivals.entry(number).or_insert(0) += 1;
                    received.fetch_add(1, Ordering::Relaxed);
                });
            });
            let _stop = Stop(is_over);
            let sender = scope.spawn(|| {
                let mut number = 0u64;
                while !is_acted.load(Ordering::Relaxed) {
                    near.send(&number.to_be_bytes()).unwrap();
                    number += 1;
                    std::thread::sleep(Duration::from_millis(5));
                }
                number
            });
            {
                let _acted = Stop(&is_acted);
                act();
            }
            let sent = sender.join().unwrap();
            eventually(|| received.load(Ordering::Relaxed) >= sent);
            sent
        });
        let wrong = (0..sent).map(|number| (number, arrivals.get(&number).copied().unwrap_or(0)));
        (sent, wrong.filter(|(_, times)| *times != 1).collect())
    }

    /// A socket of h1, connected to one of h2.
    fn sockets(&self, inner: Ip) -> (UdpSocket, UdpSocket) {
        let any = if inner == Ip::V4 { "0.0.0.0:0" } else { "[::]:0" };
        let [near, far] = ["h1", "h2"].map(|host| self.network.udp_socket(host, any));
        let port = far.local_addr().unwrap().port();
        self.network.namespace("h1").enter(|| near.connect((&inner.host(2)[..], port))).unwrap();
        (near, far)
    }

    /// The packets of each association that a gateway has, by SPI (`ip -s xfrm state`).
    pub(crate) fn packets_by_spi(&self, gateway: &str) -> BTreeMap<u32, u64> {
        let (_, text) = self.network.run(gateway, "ip -s xfrm state");
        let mut packets = BTreeMap::new();
        let mut lines = text.lines().map(str::trim);
        let mut current = 0;
        while let Some(line) = lines.next() {
            if let Some((_, rest)) = line.split_once(" spi 0x") {
                current = u32::from_str_radix(&rest[..8], 16).unwrap();
            } else if line == "lifetime current:" {
                let (_, count) = lines.next().unwrap().split_once(", ").unwrap();
                packets.insert(current, count.strip_suffix("(packets)").unwrap().parse().unwrap());
            }
        }
        packets
    }

    /// The packets of each association that the router in `g1` has protected or opened, by SPI (`brickway show ipsec`).
    pub(crate) fn packets_of_router(&self) -> BTreeMap<u32, u64> {
        let (is_right, text) = self.network.run("g1", &format!("{} show ipsec --json", router::PROGRAM));
        assert!(is_right, "{text}");
        let rows: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let of_row = |row: &serde_json::Value| {
            let spi = row["what"].as_str()?.strip_prefix("esp 0x")?;
            Some((u32::from_str_radix(spi, 16).unwrap(), row["packets"].as_u64().unwrap_or(0)))
        };
        rows.iter().filter_map(of_row).collect()
    }

    /// The counters of XFRM's errors of a gateway ([`xfrm_errors`]).
    pub(crate) fn errors(&self, gateway: &str) -> Vec<String> {
        xfrm_errors(&self.network, gateway)
    }

    /// Watches the link between `g1` and the middle from now on.
    pub(crate) fn watch(&self) -> Watch {
        let tcpdump = self.network.start("m", "tcpdump -n -l -s 128 -B 8192 -i eth1");
        tcpdump.wait_until("tcpdump", || tcpdump.printed().contains("listening on"));
        Watch(tcpdump)
    }
}

/// The counters of XFRM's errors that are not zero (`/proc/net/xfrm_stat`), as `NAME COUNT`.
pub(crate) fn xfrm_errors(network: &Network, label: &str) -> Vec<String> {
    let (_, text) = network.run(label, "cat /proc/net/xfrm_stat");
    assert!(text.contains("XfrmInError"), "{text}");
    let counts = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    counts.filter(|line| !line.ends_with(" 0")).collect()
}

/// Sets a flag when dropped, after a panic too.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Calls `take` with each datagram and its sender until the flag is set.
fn receive(socket: &UdpSocket, is_over: &AtomicBool, mut take: impl FnMut(&[u8], std::net::SocketAddr)) {
    socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let mut bytes = [0; 2048];
    while !is_over.load(Ordering::Relaxed) {
        if let Ok((len, from)) = socket.recv_from(&mut bytes) {
            take(&bytes[..len], from);
        }
    }
}

/// The packets of a link, as `tcpdump` prints them.
pub(crate) struct Watch(Running);

impl Watch {
    /// All that was printed.
    pub(crate) fn printed(&self) -> String {
        self.0.printed()
    }

    /// The number of ESP packets by SPI, and all that is neither ESP nor IKE, a fragment or part of neighbour
    /// discovery.
    pub(crate) fn seen(&self) -> (BTreeMap<u32, u64>, Vec<String>) {
        let mut packets = BTreeMap::new();
        let mut others = Vec::new();
        let printed = self.0.printed();
        // The last line may not be whole yet.
        let (whole, _) = printed.rsplit_once('\n').unwrap_or_default();
        for line in whole.lines().filter(|line| line.contains(" IP ") || line.contains(" IP6 ")) {
            if let Some((_, rest)) = line.split_once("ESP(spi=0x") {
                *packets.entry(u32::from_str_radix(&rest[..8], 16).unwrap()).or_insert(0) += 1;
            } else if ![
                "isakmp",
                "NONESP-encap",
                "ICMP6, neighbor",
                "ICMP6, router",
                "multicast listener",
                "ip-proto-",
                "frag (",
            ]
            .iter()
            .any(|known| line.contains(known))
            {
                others.push(line.to_owned());
            }
        }
        (packets, others)
    }
}

/// strongSwan on both gateways, which agree on a pre-shared key. Its files and sockets are each gateway's own.
pub(crate) struct StrongSwan {
    _daemons: Vec<Running>,
}

impl StrongSwan {
    /// Starts both; `g1` makes a tunnel between the hosts' networks and renews its keys every 10 seconds.
    pub(crate) fn start(bed: &Bed, in_udp: bool) -> Self {
        let network = &bed.network;
        let daemons = [(1u8, 2u8), (2, 1)].map(|(side, other)| {
            let gateway = format!("g{side}");
            let socket = format!("unix://{}", network.folder.file(&format!("{gateway}.vici")));
            let settings = network.folder.write(
                &format!("{gateway}.strongswan.conf"),
                format!(
                    "charon-systemd {{
                       load = random nonce aes sha1 sha2 hmac kdf gmp kernel-netlink socket-default vici
                       install_routes = no
                       filelog {{ output {{ path = stderr\n default = 1 }} }}
                       plugins {{ vici {{ socket = {socket} }} }}
                     }}
                     swanctl {{ load = random }}"
                ),
            );
            let connection = network.folder.write(
                &format!("{gateway}.swanctl.conf"),
                format!(
                    "connections {{ peer {{
                       version = 2
                       local_addrs = {}
                       remote_addrs = {}
                       proposals = aes128-sha256-modp2048
                       encap = {}
                       local {{ auth = psk\n id = g{side} }}
                       remote {{ auth = psk\n id = g{other} }}
                       children {{ net {{
                         local_ts = {},{}
                         remote_ts = {},{}
                         esp_proposals = aes128gcm16
                         rekey_time = {}
                         rand_time = 0
                       }} }}
                     }} }}
                     secrets {{ ike {{ secret = \"between two gateways\" }} }}",
                    Ip::V4.gateway(side),
                    Ip::V4.gateway(other),
                    if in_udp { "yes" } else { "no" },
                    Ip::V4.network(side),
                    Ip::V6.network(side),
                    Ip::V4.network(other),
                    Ip::V6.network(other),
                    if side == 1 { "10s" } else { "0s" },
                ),
            );
            let environment = format!("env STRONGSWAN_CONF={settings}");
            let daemon = network.start(&gateway, &format!("{environment} charon-systemd"));
            let swanctl =
                |words: &str| network.run(&gateway, &format!("{environment} swanctl {words} --uri {socket}"));
            daemon.wait_until("strongSwan", || swanctl("--stats").0);
            let (is_loaded, text) = swanctl(&format!("--load-all --noprompt --file {connection}"));
            assert!(is_loaded, "{text}\n{}", daemon.printed());
            (daemon, socket, environment)
        });
        let [(near, socket, environment), (far, ..)] = daemons;
        let initiate = format!("{environment} swanctl --initiate --child net --uri {socket}");
        let (is_up, text) = network.run("g1", &initiate);
        assert!(is_up, "{text}\n{}\n{}", near.printed(), far.printed());
        Self { _daemons: vec![near, far] }
    }
}
