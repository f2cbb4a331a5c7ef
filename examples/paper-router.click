// The IP router of "The Click Modular Router" (Kohler, Morris, Chen, Jannotti, Kaashoek; ACM TOCS
// 18(3), 2000): the elements of its figure 8 in their places, for two interfaces and in today's
// spellings. Where Click wrote PollDevice there is FromDevice, where CheckPaint gave a copy there
// is PaintTee, and LookupIPRoute has become StaticIPLookup. No punting, no compound elements:
// ip-router.click is the one to build on.
//
//   brickway run examples/paper-router.click DEV0=eth1 DEV1=eth2

define($DEV0 eth0, $DEV1 eth1);       // 10.0.0.1/24 and 10.0.1.1/24; 10.0.1.2 is the gateway

// What comes in: ARP queries, ARP replies, IP, the rest.
FromDevice($DEV0) -> in0 :: Classifier(12/0806 20/0001, 12/0806 20/0002, 12/0800, -);
FromDevice($DEV1) -> in1 :: Classifier(12/0806 20/0001, 12/0806 20/0002, 12/0800, -);

// What leaves.
out0 :: Queue(200) -> to0 :: ToDevice($DEV0);
out1 :: Queue(200) -> to1 :: ToDevice($DEV1);

// ARP. The host gets a copy of each reply, as it would want to know the neighbours too.
in0[0] -> ARPResponder(10.0.0.1 02:00:00:00:00:01) -> out0;
in1[0] -> ARPResponder(10.0.1.1 02:00:00:00:01:01) -> out1;
arp0 :: ARPQuerier(10.0.0.1, 02:00:00:00:00:01) -> out0;
arp1 :: ARPQuerier(10.0.1.1, 02:00:00:00:01:01) -> out1;
replies :: Tee(3);
in0[1] -> replies;
in1[1] -> replies;
replies[0] -> [1] arp0;
replies[1] -> [1] arp1;

// The host itself would be ToHost here; this router has none behind it.
host :: Discard;
replies[2] -> host;

// The way of IP packets to the route: the colour tells where they came in. Nothing has a broadcast
// address or 0.0.0.0 as its source (RFC 1812, 5.3.7).
rt :: StaticIPLookup(
    10.0.0.1/32 0, 10.0.0.255/32 0, 10.0.0.0/32 0,
    10.0.1.1/32 0, 10.0.1.255/32 0, 10.0.1.0/32 0,
    255.255.255.255/32 0, 0.0.0.0/32 0,
    10.0.0.0/24 1, 10.0.1.0/24 2,
    0.0.0.0/0 10.0.1.2 2);
ip :: Strip(14) -> CheckIPHeader(10.0.0.255 10.0.1.255) -> GetIPAddress(16) -> [0] rt;
in0[2] -> Paint(1) -> ip;
in1[2] -> Paint(2) -> ip;

rt[0] -> EtherEncap(0x0800, 1:1:1:1:1:1, 2:2:2:2:2:2) -> host;

// The way out by the first interface, and the ICMP errors that it makes.
rt[1] -> DropBroadcasts
    -> redirect0 :: PaintTee(1)
    -> options0 :: IPGWOptions(10.0.0.1)
    -> FixIPSrc(10.0.0.1)
    -> ttl0 :: DecIPTTL
    -> fragment0 :: IPFragmenter(1500)
    -> [0] arp0;
redirect0[1] -> ICMPError(10.0.0.1, redirect, host) -> [0] rt;
options0[1]  -> ICMPError(10.0.0.1, parameterproblem) -> [0] rt;
ttl0[1]      -> ICMPError(10.0.0.1, timeexceeded) -> [0] rt;
fragment0[1] -> ICMPError(10.0.0.1, unreachable, needfrag, PMTU 1500) -> [0] rt;

// And by the second.
rt[2] -> DropBroadcasts
    -> redirect1 :: PaintTee(2)
    -> options1 :: IPGWOptions(10.0.1.1)
    -> FixIPSrc(10.0.1.1)
    -> ttl1 :: DecIPTTL
    -> fragment1 :: IPFragmenter(1500)
    -> [0] arp1;
redirect1[1] -> ICMPError(10.0.1.1, 5, 1) -> [0] rt;                // the same, by numbers
options1[1]  -> ICMPError(10.0.1.1, 12, 0) -> [0] rt;
ttl1[1]      -> ICMPError(10.0.1.1, 11, 0) -> [0] rt;
fragment1[1] -> ICMPError(10.0.1.1, 3, 4, PMTU 1500) -> [0] rt;

in0[3] -> Discard;
in1[3] -> Discard;
