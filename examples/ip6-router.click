// A router with two Ethernet ports for IPv4 and IPv6 side by side: the checks of RFC 1812 and RFC
// 8200, ARP and neighbour discovery, ICMP errors of both versions, routing tables read from files.
// Read examples/ip-router.click first, from which the IPv4 half is; run this one:
//
//   brickway run examples/ip6-router.click PORT0=eth1 IP0=192.0.2.1 IP6_0=2001:db8:1::1 ...
//
// Every name defined below can be set on the command line that way. LINK is the port's link-local
// address, by which hosts know their router.

define($PORT0 eth0, $IP0 10.0.0.1, $NET0 10.0.0.0/24, $HOST0 10.0.0.2, $MAC0 02:00:00:00:00:01);
define($PORT1 eth1, $IP1 10.0.1.1, $NET1 10.0.1.0/24, $HOST1 10.0.1.2, $MAC1 02:00:00:00:01:01);
define($IP6_0 2001:db8:0:0::1, $NET6_0 2001:db8:0:0::/64, $HOST6_0 2001:db8:0:0::2, $LINK0 fe80::1);
define($IP6_1 2001:db8:0:1::1, $NET6_1 2001:db8:0:1::/64, $HOST6_1 2001:db8:0:1::2, $LINK1 fe80::2);
define($MTU 1500);
define($TABLE "", $VIA "$HOST0 1, $HOST1 2");
define($TABLE6 "", $VIA6 "$HOST6_0 1, $HOST6_1 2");

// What comes in by a port. Outputs 0 and 1: IPv4 and IPv6 packets, Ethernet header stripped,
// painted with the port's colour. Output 2: our answers to ARP requests and neighbour
// solicitations. Outputs 3 and 4: ARP replies and neighbour advertisements.
elementclass PortInput { $port, $ip, $ip6, $link, $mac, $colour |
    FromDevice($port)
        -> HostEtherFilter($mac)
        // ICMPv6 with hop limit 255 and type 135 is a neighbour solicitation, with type 136 an
        // advertisement.
        -> kind :: Classifier(12/86dd 20/3aff 54/87, 12/86dd 20/3aff 54/88,
                              12/86dd, 12/0800, 12/0806 20/0001, 12/0806 20/0002, -);
    kind[0] -> IP6NDAdvertiser($ip6 $link $mac) -> [2] output;
    kind[1] -> [4] output;
    kind[2] -> Paint($colour) -> Strip(14) -> [1] output;
    kind[3] -> Paint($colour) -> Strip(14) -> [0] output;
    kind[4] -> ARPResponder($ip $mac) -> [2] output;
    kind[5] -> [3] output;
    kind[6] -> Discard;
}

// What leaves by a port. Inputs 0 and 1: routed IPv4 and IPv6 packets. Input 2: Ethernet frames to
// send as they are. Inputs 3 and 4: ARP replies and neighbour advertisements. Input 5: our own IPv6
// packets to neighbours on this link. Outputs 0 and 1: ICMP and ICMPv6 errors.
elementclass PortOutput { $port, $ip, $ip6, $mac, $colour |
    to :: ToDevice($port);
    arp :: ARPQuerier($ip, $mac);
    nd :: IP6NDSolicitor($ip6, $mac);

    input
        -> DropBroadcasts
        -> redirect :: PaintTee($colour)
        -> options :: IPGWOptions($ip)
        -> FixIPSrc($ip)
        -> ttl :: DecIPTTL
        -> fragment :: IPFragmenter($MTU)
        -> arp
        -> to;
    input[1]
        -> DropBroadcasts
        -> scope :: CheckIP6Scope       // RFC 4291 2.5.6: what is link-local stays on its link
        -> hops :: DecIP6HLIM           // RFC 8200 3
        -> mtu :: CheckLength($MTU)     // RFC 8200 5: routers do not fragment
        -> nd
        -> to;
    input[2] -> to;
    input[3] -> [1] arp;
    input[4] -> [1] nd;
    input[5] -> nd;
    arp[1] -> to;
    nd[1] -> to;

    redirect[1] -> Punt -> ICMPError($ip, redirect, host) -> output;
    options[1]  -> Punt -> ICMPError($ip, parameterproblem) -> output;
    ttl[1]      -> Punt -> ICMPError($ip, timeexceeded) -> output;
    fragment[1] -> Punt -> ICMPError($ip, unreachable, needfrag, PMTU $MTU) -> output;
    arp[2]      -> Punt -> ICMPError($ip, unreachable, host) -> output;
    scope[1]    -> Punt -> ICMP6Error($IP6_0 $IP6_1, unreachable, beyondscope) -> [1] output;
    hops[1]     -> Punt -> expired6 :: ICMP6Error($IP6_0 $IP6_1, timeexceeded) -> [1] output;
    mtu[1]      -> Punt -> ICMP6Error($IP6_0 $IP6_1, packettoobig, PMTU $MTU) -> [1] output;
    nd[2]       -> Punt -> ICMP6Error($IP6_0 $IP6_1, unreachable, address) -> [1] output;
}

in0 :: PortInput($PORT0, $IP0, $IP6_0, $LINK0, $MAC0, 1);
in1 :: PortInput($PORT1, $IP1, $IP6_1, $LINK1, $MAC1, 2);
out0 :: PortOutput($PORT0, $IP0, $IP6_0, $MAC0, 1);
out1 :: PortOutput($PORT1, $IP1, $IP6_1, $MAC1, 2);

in0[2] -> [2] out0;  in0[3] -> [3] out0;  in0[4] -> [4] out0;
in1[2] -> [2] out1;  in1[3] -> [3] out1;  in1[4] -> [4] out1;

// IPv4. Output 0 is the router itself, 1 and 2 are the ports, 3 is for what no other route fits.
check :: CheckIPHeader(INTERFACES $IP0/24 $IP1/24);
rt :: RadixIPLookup($IP0/32 0, $IP1/32 0, $NET0 1, $NET1 2, 0.0.0.0/0 3, FILE $TABLE, VIA $VIA);

in0[0], in1[0] => check, check;
check -> rt;
rt[1] -> out0;
rt[2] -> out1;
out0, out1 => rt, rt;
rt[3] -> Punt -> ICMPError($IP0, unreachable, net) -> rt;
rt[0] -> Punt -> local :: IPClassifier(icmp type echo, udp or tcp, -);
local[0] -> ICMPPingResponder -> rt;
local[1] -> ICMPError($IP0, unreachable, port) -> rt;
local[2] -> Discard;

// IPv6. Output 4 is for groups and for link-local addresses that are not ours, which are nothing to
// forward.
check6 :: CheckIP6Header;
rt6 :: LookupIP6Route($IP6_0/128 0, $IP6_1/128 0, $LINK0/128 0, $LINK1/128 0,
                      fe80::/10 4, ff00::/8 4, $NET6_0 1, $NET6_1 2, ::/0 3,
                      FILE $TABLE6, VIA $VIA6);

in0[1], in1[1] => check6, check6;
check6 -> rt6;
rt6[1] -> [1] out0;
rt6[2] -> [1] out1;
rt6[4] -> Discard;

// What we say ourselves: to a link-local address it goes back by the port where the packet came in
// that it is about, which the paint still tells; else it goes by its route.
ours :: Classifier(24/fe80%ffc0, -);
ours[1] -> rt6;
ours[0] -> back :: PaintSwitch;
back[0] -> Discard;
back[1] -> [5] out0;
back[2] -> [5] out1;
out0[1], out1[1] => ours, ours;

rt6[3] -> Punt -> ICMP6Error($IP6_0 $IP6_1, unreachable, noroute) -> ours;
rt6[0] -> Punt -> local6 :: Classifier(6/3a 40/80, 6/06, 6/11, -);
local6[0] -> ICMP6PingResponder -> ours;
local6[1] -> nobody6 :: ICMP6Error($IP6_0 $IP6_1 $LINK0 $LINK1, unreachable, port) -> ours;
local6[2] -> nobody6;
local6[3] -> Discard;
