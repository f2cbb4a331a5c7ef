// A router with four Ethernet ports: RFC 1812's checks, ARP, ICMP errors, fragmentation, and a
// routing table read from a file. Read it from top to bottom; change it; run it:
//
//   brickway run examples/ip-router.click PORT0=eth1 IP0=192.0.2.1 MAC0=02:00:00:00:00:01 ...
//
// Every name defined below can be set on the command line that way.

define($PORT0 eth0, $IP0 10.0.0.1, $NET0 10.0.0.0/24, $HOST0 10.0.0.2, $MAC0 02:00:00:00:00:01);
define($PORT1 eth1, $IP1 10.0.1.1, $NET1 10.0.1.0/24, $HOST1 10.0.1.2, $MAC1 02:00:00:00:01:01);
define($PORT2 eth2, $IP2 10.0.2.1, $NET2 10.0.2.0/24, $HOST2 10.0.2.2, $MAC2 02:00:00:00:02:01);
define($PORT3 eth3, $IP3 10.0.3.1, $NET3 10.0.3.0/24, $HOST3 10.0.3.2, $MAC3 02:00:00:00:03:01);
define($MTU 1500);
define($TABLE "", $VIA "$HOST0 1, $HOST1 2, $HOST2 3, $HOST3 4");

// What comes in by a port. Output 0: IP packets, Ethernet header stripped, painted with the port's
// colour. Output 1: our answers to ARP requests. Output 2: ARP replies.
elementclass PortInput { $port, $ip, $mac, $colour |
    FromDevice($port)
        -> HostEtherFilter($mac)        // not for us: dropped; marks broadcasts
        -> kind :: Classifier(12/0800, 12/0806 20/0001, 12/0806 20/0002, -);
    kind[0] -> Paint($colour) -> Strip(14) -> [0] output;
    kind[1] -> ARPResponder($ip $mac) -> [1] output;
    kind[2] -> [2] output;
    kind[3] -> Discard;
}

// What leaves by a port. Input 0: routed IP packets. Input 1: Ethernet frames to send as they are.
// Input 2: ARP replies for the querier. Output 0: ICMP errors, to be routed like any other packet.
// What the fast path does not finish goes through a Punt to the slow thread, so that nobody's ping
// flood slows the others.
elementclass PortOutput { $port, $ip, $mac, $colour |
    to :: ToDevice($port);
    arp :: ARPQuerier($ip, $mac);

    input
        -> DropBroadcasts               // RFC 1812 5.3.4: link-layer broadcasts are not forwarded
        -> redirect :: PaintTee($colour)
        -> options :: IPGWOptions($ip)
        -> FixIPSrc($ip)
        -> ttl :: DecIPTTL              // RFC 1812 5.3.1
        -> fragment :: IPFragmenter($MTU)
        -> arp
        -> to;
    input[1] -> to;
    input[2] -> [1] arp;
    arp[1] -> to;

    redirect[1] -> Punt -> ICMPError($ip, redirect, host) -> output;
    options[1]  -> Punt -> ICMPError($ip, parameterproblem) -> output;
    ttl[1]      -> Punt -> ICMPError($ip, timeexceeded) -> output;
    fragment[1] -> Punt -> ICMPError($ip, unreachable, needfrag, PMTU $MTU) -> output;
}

in0 :: PortInput($PORT0, $IP0, $MAC0, 1);
in1 :: PortInput($PORT1, $IP1, $MAC1, 2);
in2 :: PortInput($PORT2, $IP2, $MAC2, 3);
in3 :: PortInput($PORT3, $IP3, $MAC3, 4);

out0 :: PortOutput($PORT0, $IP0, $MAC0, 1);
out1 :: PortOutput($PORT1, $IP1, $MAC1, 2);
out2 :: PortOutput($PORT2, $IP2, $MAC2, 3);
out3 :: PortOutput($PORT3, $IP3, $MAC3, 4);

check :: CheckIPHeader(INTERFACES $IP0/24 $IP1/24 $IP2/24 $IP3/24, MARTIANS true, VERBOSE false);

// Output 0 is the router itself, 1 to 4 are the ports, 5 is for what no other route fits. Prefixes
// of the table's file leave over one of the four gateways, chosen by the hash of their origin.
rt :: RadixIPLookup(
    $IP0/32 0, $IP1/32 0, $IP2/32 0, $IP3/32 0,
    $NET0 1, $NET1 2, $NET2 3, $NET3 4, 0.0.0.0/0 5,
    FILE $TABLE,
    VIA $VIA);

in0[0], in1[0], in2[0], in3[0] => check, check, check, check;
check -> rt;

in0[1] -> [1] out0;  in0[2] -> [2] out0;
in1[1] -> [1] out1;  in1[2] -> [2] out1;
in2[1] -> [1] out2;  in2[2] -> [2] out2;
in3[1] -> [1] out3;  in3[2] -> [2] out3;

rt[1] -> out0;
rt[2] -> out1;
rt[3] -> out2;
rt[4] -> out3;
out0, out1, out2, out3 => rt, rt, rt, rt;

// RFC 1812 5.2.7.1: "If a router can not forward a packet because it has no routes at all to the
// destination", it says so.
rt[5] -> Punt -> ICMPError($IP0, unreachable, net) -> rt;

// Packets to the router's own addresses: it answers pings, and says of everything else that nobody
// listens.
rt[0] -> Punt -> local :: IPClassifier(icmp type echo, udp or tcp, -);
local[0] -> ICMPPingResponder -> rt;
local[1] -> ICMPError($IP0, unreachable, port) -> rt;
local[2] -> Discard;
