// A router that is Linux's: its addresses, routes and neighbours, its tools; our forwarding. Made by `brickway run PORT...`.
// To change it, save it and run the file: `brickway run FILE.click`.

// What comes in by a port. Output 0: IPv4, output 1: IPv6, both checked, without Ethernet header, painted with the port's
// number. Output 2: everything else, as it came.
elementclass Input { $port, $mac, $number |
    from :: TestInput
        -> filter :: HostEtherFilter($mac)
        -> kind :: Classifier(12/0800, 12/86dd, -);
    // A tag of VLAN 0 only gives the frame a priority (IEEE 802.1Q, 6.9.1).
    kind[2] -> priority :: Classifier(12/8100 14/0000%0fff, 12/88a8 14/0000%0fff, -);
    priority[0] -> VLANDecap(false) -> untagged :: Classifier(12/0800, 12/86dd, -);
    priority[1] -> VLANDecap(false, ETHERTYPE 0x88a8) -> untagged;
    priority[2] -> other :: Paint($number) -> [2] output;
    untagged[2] -> other;
    kind[0] -> Paint($number) -> Strip(14) -> check4 :: CheckIPHeader(MARTIANS true) -> [0] output;
    kind[1] -> Paint($number) -> Strip(14) -> check6 :: CheckIP6Header(MARTIANS true) -> [1] output;
    untagged[0] -> Paint($number) -> Strip(14) -> untagged4 :: CheckIPHeader(MARTIANS true) -> [0] output;
    untagged[1] -> Paint($number) -> Strip(14) -> untagged6 :: CheckIP6Header(MARTIANS true) -> [1] output;
}

// What leaves by a port. Inputs 0 and 1: routed IPv4 and IPv6. Input 2: Ethernet frames to send as they are. Outputs 0 and 2:
// IPv4 and IPv6 too long for the port; outputs 1 and 3: what has lived too long.
elementclass Output { $port, $mtu |
    to :: TestOutput;
    input[0] -> DropBroadcasts -> mtu4 :: CheckLength($mtu) -> ttl :: DecIPTTL -> UnstripToMACHeader -> to;
    input[1] -> DropBroadcasts -> mtu6 :: CheckLength($mtu) -> limit :: DecIP6HLIM -> UnstripToMACHeader -> to;
    input[2] -> to;
    mtu4[1] -> [0] output;  ttl[1] -> [1] output;
    mtu6[1] -> [2] output;  limit[1] -> [3] output;
}

in1 :: Input(eth1, 02-00-00-00-00-01, 1);
out1 :: Output(eth1, 1500);
in2 :: Input(eth2, 02-00-00-00-00-02, 2);
out2 :: Output(eth2, 1500);

// Where packets go: Linux's routes and neighbours, mirrored.
rt4 :: FIBLookup(eth1, eth2);
rt6 :: FIBLookup6(eth1, eth2);

// To Linux, as if it came in by the port that its paint says. The slow thread does this, so that nobody's ping flood slows the
// others.
frames :: Punt -> as_it_came :: PaintSwitch;
as_it_came[0] -> Discard;
// What the filters have permitted gets a mark: where something filters, Linux forwards nothing from our ports without it.
permitted :: Punt -> as_permitted :: PaintSwitch;
as_permitted[0] -> Discard;
whole :: EspReseal -> UnstripToMACHeader -> permitted;
host1 :: TestOutput;
Idle -> [2] out1;
as_it_came[1] -> host1;
permit1 :: TestOutput;
as_permitted[1] -> permit1;
in1[2] -> frames;
host2 :: TestOutput;
Idle -> [2] out2;
as_it_came[2] -> host2;
permit2 :: TestOutput;
as_permitted[2] -> permit2;
in2[2] -> frames;

// Packets that were in ESP are ESP again for Linux, whose policies refuse others.
sealed4 :: Punt -> by_port_sealed4 :: PaintSwitch;
sealed6 :: Punt -> by_port_sealed6 :: PaintSwitch;
by_port_sealed4[0], by_port_sealed6[0] => Discard, Discard;
sealed4_1 :: EtherEncap(0x0800, 02-00-00-00-00-01, 02-00-00-00-00-01) -> permit1;
by_port_sealed4[1] -> sealed4_1;
sealed6_1 :: EtherEncap(0x86dd, 02-00-00-00-00-01, 02-00-00-00-00-01) -> permit1;
by_port_sealed6[1] -> sealed6_1;
sealed4_2 :: EtherEncap(0x0800, 02-00-00-00-00-02, 02-00-00-00-00-02) -> permit2;
by_port_sealed4[2] -> sealed4_2;
sealed6_2 :: EtherEncap(0x86dd, 02-00-00-00-00-02, 02-00-00-00-00-02) -> permit2;
by_port_sealed6[2] -> sealed6_2;
whole[1] -> sealed4;  whole[2] -> sealed6;

// IPsec by Linux's policies and associations (RFC 4301). Without any these elements do nothing.
ipsec4 :: IpsecPolicy -> rt4;
ipsec6 :: IpsecPolicy -> rt6;
decap :: EspDecap;  encap :: EspEncap;  no_gateway :: NoGateway;
ipsec4[1] -> decap;  ipsec4[2] -> DecIPTTL -> encap;  ipsec4[3] -> whole;
ipsec6[1] -> decap;  ipsec6[2] -> DecIP6HLIM -> encap;  ipsec6[3] -> whole;
decap[2] -> UnstripToMACHeader -> frames;

// To the other gateways. What cannot go there is dropped; the slow thread keeps what waits for a neighbour.
gateway4 :: FIBLookup(eth1, eth2);  late_gateway4 :: FIBLookup(eth1, eth2);
encap[0] -> gateway4;
gateway4[6] -> Punt -> gateway_waits4 :: AwaitNeighbour(eth1, eth2) -> late_gateway4;
late_gateway4[6] -> gateway_waits4;  gateway_waits4[1] -> no_gateway;
gateway4[0] -> [0] out1;  late_gateway4[0] -> [0] out1;
gateway4[1] -> [0] out2;  late_gateway4[1] -> [0] out2;
gateway4[2], late_gateway4[2] => no_gateway, no_gateway;
gateway4[3], late_gateway4[3] => no_gateway, no_gateway;
gateway4[4], late_gateway4[4] => no_gateway, no_gateway;
gateway4[5], late_gateway4[5] => no_gateway, no_gateway;
gateway6 :: FIBLookup6(eth1, eth2);  late_gateway6 :: FIBLookup6(eth1, eth2);
encap[1] -> gateway6;
gateway6[6] -> Punt -> gateway_waits6 :: AwaitNeighbour6(eth1, eth2) -> late_gateway6;
late_gateway6[6] -> gateway_waits6;  gateway_waits6[1] -> no_gateway;
gateway6[0] -> [1] out1;  late_gateway6[0] -> [1] out1;
gateway6[1] -> [1] out2;  late_gateway6[1] -> [1] out2;
gateway6[2], late_gateway6[2] => no_gateway, no_gateway;
gateway6[3], late_gateway6[3] => no_gateway, no_gateway;
gateway6[4], late_gateway6[4] => no_gateway, no_gateway;
gateway6[5], late_gateway6[5] => no_gateway, no_gateway;

// Sources that are believed (RFC 3704); those that only Linux can judge go there.
source4 :: CheckReversePath(eth1, eth2, MODE strict) -> ipsec4;
source4[1] -> whole;
source6 :: CheckReversePath6(eth1, eth2, MODE strict) -> ipsec6;
source6[1] -> whole;

// The access list.
acl4 :: ACL(10 deny tcp any any port 23, 20 deny udp any 10.2.0.0/16, INPUTS "eth1 1, eth2 2") -> source4;
acl6 :: ACL(10 deny tcp any any port 23, 20 deny udp any 10.2.0.0/16, INPUTS "eth1 1, eth2 2") -> source6;

// What was inside ESP meets all checks and filters.
decap[0] -> inner4 :: CheckIPHeader(MARTIANS true) -> acl4;
decap[1] -> inner6 :: CheckIP6Header(MARTIANS true) -> acl6;
esp4 :: EspToHost -> acl4;
esp4[1] -> decap;
esp6 :: EspToHost -> acl6;
esp6[1] -> decap;

// From the ports to the lookups, and from these to the ports.
in1[0] -> esp4;  in1[1] -> esp6;
rt4[0] -> [0] out1;  rt6[0] -> [1] out1;
in2[0] -> esp4;  in2[1] -> esp6;
rt4[1] -> [0] out2;  rt6[1] -> [1] out2;

// What has the header of its next hop already gets one of ours.
packets4 :: EspReseal -> sealed4;  packets4[1] -> sealed4;  packets4[2] -> sealed6;
packets6 :: EspReseal -> sealed6;  packets6[1] -> sealed4;  packets6[2] -> sealed6;

// To this host, a neighbour to resolve, options; no route, unreachable, prohibited, too long, lived too long: Linux
// resolves, answers or fragments. It would answer about ICMPv6 redirects too (RFC 4443, 2.4 (e.2)).
about_a_redirect :: Discard;
errors6 :: Classifier(6/3a 40/89, -);  errors6[0] -> about_a_redirect;  errors6[1] -> whole;
resolve6 :: Classifier(6/3a 7/00%fe 40/89, -);  resolve6[0] -> about_a_redirect;  resolve6[1] -> whole;
errors_behind6 :: Classifier(6/3a 40/89, -);  errors_behind6[0] -> about_a_redirect;  errors_behind6[1] -> packets6;
rt4[2] -> whole;  rt6[2] -> whole;
rt4[3] -> whole;  rt6[3] -> errors6;
rt4[4] -> whole;  rt6[4] -> errors6;
rt4[5] -> whole;  rt6[5] -> errors6;
rt4[6] -> whole;  rt6[6] -> resolve6;
out1[0], out1[1] => packets4, packets4;
out1[2], out1[3] => errors_behind6, errors_behind6;
out2[0], out2[1] => packets4, packets4;
out2[2], out2[3] => errors_behind6, errors_behind6;

// A few a second of those that leave by the port they came by: Linux forwards them and tells their senders of the
// better way (RFC 1812 5.2.7.2, RFC 4861 8.2).
rt4[7] -> packets4;
rt6[7] -> packets6;

// What follows Linux.
FollowLinux(
    ether eth1 in1/filter.ether sealed4_1.src sealed4_1.dst sealed6_1.src sealed6_1.dst,
    stations eth1 in1/filter.stations,
    own4 eth1 in1/check4.own in1/untagged4.own,
    ether eth2 in2/filter.ether sealed4_2.src sealed4_2.dst sealed6_2.src sealed6_2.dst,
    stations eth2 in2/filter.stations,
    own4 eth2 in2/check4.own in2/untagged4.own,
    ipsec ipsec4.refresh ipsec6.refresh esp4.refresh esp6.refresh,
    mtu4 eth1 out1/mtu4.length,
    mtu6 eth1 out1/mtu6.length,
    forwarding eth1,
    mtu4 eth2 out2/mtu4.length,
    mtu6 eth2 out2/mtu6.length,
    forwarding eth2);
