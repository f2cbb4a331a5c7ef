//! Nodes that serve classes of flows.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;

use super::{ALIVE, Cluster};

/// A frame with an IPv4 or an IPv6 packet of UDP from a host of this number.
fn udp(host: u8, is_ipv6: bool, port: u16) -> Vec<u8> {
    let transport = [&[0x80, host][..], &port.to_be_bytes(), &[0; 12]].concat();
    let (kind, packet) = match is_ipv6 {
        true => (
            [0x86, 0xdd],
            testbed::ipv6::ipv6(Ipv6Addr::from_bits(host.into()), testbed::ipv6::FAR, 17, &transport),
        ),
        false => ([8, 0], testbed::ipv4::ipv4([10, 0, 0, host], [10, 2, 0, 1], 17, &transport)),
    };
    [&[2; 12][..], &kind, &packet].concat()
}

/// Nodes 0 and 1 are general, 2 and 3 have what a resolver and telephones send.
const SPECIALISED: &str =
    "0 1, 1 3, 2 1 serves udp any any port 53;udp any port 5060-5061 any, 3 1 serves udp any any port 53";

/// Where node 4 sends frames: for each other node, those that came.
fn sent(cluster: &mut Cluster, frames: &[Vec<u8>]) -> [BTreeSet<Vec<u8>>; 4] {
    for frames in frames.chunks(100) {
        let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
        cluster.nodes[4].push("frames", &frames);
    }
    cluster.carry();
    [0, 1, 2, 3].map(|node| cluster.out(node, "host").into_iter().collect())
}

#[test]
fn flows_of_a_class_go_to_the_nodes_that_serve_it_and_others_to_general_nodes() {
    let mut cluster = Cluster::new("mesh(5)", ALIVE);
    cluster.nodes[4].write("encap.node", SPECIALISED).unwrap();
    assert_eq!(cluster.nodes[4].read("encap.node"), SPECIALISED);
    let with = |port: u16| (0..200).map(move |host| udp(host, host % 2 == 1, port));
    let (dns, others): (Vec<_>, Vec<_>) = (with(53).collect(), with(80).collect());
    let voice: Vec<Vec<u8>> = (0..50)
        .map(|host| {
            let mut frame = udp(host, false, 99);
            frame[34..36].copy_from_slice(&5061_u16.to_be_bytes());
            frame
        })
        .collect();
    let all: Vec<Vec<u8>> =
        dns.iter().zip(&others).flat_map(|(a, b)| [a, b]).chain(&voice).cloned().collect();
    let set = |frames: &[Vec<u8>]| frames.iter().cloned().collect::<BTreeSet<_>>();
    let (dns, others, voice) = (set(&dns), set(&others), set(&voice));
    let whole = sent(&mut cluster, &all);
    assert_eq!(&whole[0] | &whole[1], others);
    assert_eq!(&whole[2] | &whole[3], &dns | &voice);
    assert!(whole[2].is_superset(&voice) && whole[2].len() > 50 + 70 && whole[3].len() > 70);
    assert!(whole[0].len() < 80 && whole[1].len() > 120, "weights 1 and 3");
    let classes = |cluster: &mut Cluster| cluster.nodes[4].read("encap.classes");
    let shown = "200 0:0,1:0,2:512,3:512 udp any any port 53\n\
                 50 0:0,1:0,2:1024,3:0 udp any port 5060-5061 any\n\
                 200 0:256,1:768,2:0,3:0 others\n";
    assert_eq!(classes(&mut cluster), shown);

    // Another weight moves flows of the class only, and counts go on.
    cluster.nodes[4].write("encap.node", &SPECIALISED.replace("3 1 serves", "3 0 serves")).unwrap();
    let drained = sent(&mut cluster, &all);
    assert_eq!((&drained[0], &drained[1]), (&whole[0], &whole[1]));
    assert_eq!(drained[2], &dns | &voice);
    assert!(classes(&mut cluster).starts_with("400 0:0,1:0,2:1024,3:0 udp any any port 53\n100 "));
    // A class more in front of the others.
    let more = format!("1 3 serves udp any any port 80, {}", SPECIALISED.replace(" 1 3,", ""));
    cluster.nodes[4].write("encap.node", &more).unwrap();
    let after = sent(&mut cluster, &all);
    assert_eq!(after[1], others);
    assert!(drained[2].is_superset(&after[2]) && after[3].len() == whole[3].len());
    assert_eq!(
        classes(&mut cluster),
        "200 1:1024,0:0,2:0,3:0 udp any any port 80\n600 1:0,0:0,2:512,3:512 udp any any port 53\n\
         150 1:0,0:0,2:1024,3:0 udp any port 5060-5061 any\n400 1:0,0:1024,2:0,3:0 others\n"
    );
}

#[test]
fn the_shown_shares_follow_nodes_that_come_and_go_without_a_packet() {
    let mut cluster = Cluster::new("mesh(5)", "");
    cluster.nodes[4].write("encap.node", "0, 1").unwrap();
    let shares = |cluster: &mut Cluster| cluster.nodes[4].read("encap.classes");
    assert_eq!(shares(&mut cluster), "0 0:0,1:0 others\n");
    cluster.pass_ms(60);
    assert_eq!(shares(&mut cluster), "0 0:512,1:512 others\n");
    cluster.dead[0] = true;
    cluster.pass_ms(60);
    assert_eq!(shares(&mut cluster), "0 0:0,1:1024 others\n");
}

#[test]
fn a_class_whose_nodes_are_dead_goes_to_the_general_nodes_and_back() {
    let mut cluster = Cluster::new("mesh(5)", "");
    cluster.nodes[4].write("encap.node", SPECIALISED).unwrap();
    cluster.pass_ms(60);
    let dns: Vec<Vec<u8>> = (0..100).map(|host| udp(host, host % 2 == 1, 53)).collect();
    let others: Vec<Vec<u8>> = (0..100).map(|host| udp(host, host % 2 == 1, 80)).collect();
    let whole = sent(&mut cluster, &dns);
    let general = sent(&mut cluster, &others);
    assert_eq!((whole[2].len() + whole[3].len(), general[0].len() + general[1].len()), (100, 100));
    let dies = |cluster: &mut Cluster, dead: [bool; 4]| {
        cluster.dead[..4].copy_from_slice(&dead);
        cluster.pass_ms(60);
        (sent(cluster, &dns), sent(cluster, &others))
    };
    let (of_class, of_others) = dies(&mut cluster, [false, false, true, false]);
    assert_eq!((of_class[3].len(), &of_others), (100, &general));
    let (of_class, of_others) = dies(&mut cluster, [false, false, true, true]);
    assert_eq!((of_class[0].len() + of_class[1].len(), &of_others), (100, &general));
    let (of_class, of_others) = dies(&mut cluster, [true, true, false, false]);
    assert_eq!(of_class[2].len() + of_class[3].len(), 100);
    assert_eq!(of_others[2].len() + of_others[3].len(), 100, "every routing node can route");
    let (of_class, of_others) = dies(&mut cluster, [false; 4]);
    assert_eq!(of_class.iter().map(BTreeSet::len).sum::<usize>(), 100);
    assert_eq!((of_class[2].len() + of_class[3].len(), of_others[2].len() + of_others[3].len()), (100, 0));
    assert_eq!(cluster.drops(4, "encap", "no node"), 0);
}

#[test]
fn all_fragments_of_a_datagram_go_to_one_node_and_to_a_general_one_where_a_class_is_one_of_ports() {
    let mut cluster = Cluster::new("mesh(5)", ALIVE);
    let fragments = |host: u8, is_ipv6: bool| -> Vec<Vec<u8>> {
        let frame = udp(host, is_ipv6, 53);
        let part = |offset: u16, more: bool| {
            let mut frame = frame.clone();
            match is_ipv6 {
                true => {
                    let field = (offset | u16::from(more)).to_be_bytes();
                    frame.splice(54..54, [&[17, 0][..], &field, &[0, 0, 0, host]].concat());
                    frame[20] = 44;
                    frame[19] += 8;
                }
                false => {
                    frame[20..22].copy_from_slice(&((offset / 8) | (u16::from(more) << 13)).to_be_bytes())
                }
            }
            frame
        };
        vec![part(0, true), part(16, true), part(32, false)]
    };
    for (nodes, class) in [
        (SPECIALISED, [0, 1]),
        ("0, 1, 2 serves udp any any port 53, 3 serves udp any any", [3, 3]),
        ("0, 1, 2 serves udp any any port 53, 3 serves any any any fragment", [3, 3]),
    ] {
        cluster.nodes[4].write("encap.node", nodes).unwrap();
        for host in 0..40 {
            let whole = sent(&mut cluster, &[udp(host, host % 2 == 1, 53)]);
            assert_eq!(whole[2].len() + whole[3].len(), 1);
            let parts = sent(&mut cluster, &fragments(host, host % 2 == 1));
            let at: Vec<usize> = (0..4).filter(|&node| !parts[node].is_empty()).collect();
            assert!(
                at.len() == 1 && class.contains(&at[0]) && parts[at[0]].len() == 3,
                "{nodes}: {host}: {at:?}"
            );
        }
    }
}

#[test]
fn frames_without_a_proper_ip_header_are_of_no_class() {
    let mut cluster = Cluster::new("mesh(5)", ALIVE);
    cluster.nodes[4].write("encap.node", "0, 3 serves udp any any port 53; any 10.0.0.0/8 any").unwrap();
    let good = udp(1, false, 53);
    let mut arp = good.clone();
    arp[13] = 6;
    let mut version = good.clone();
    version[14] = 0x75;
    let frames = [arp, version, good[..20].to_vec(), good[..14].to_vec(), good[..13].to_vec(), vec![], good];
    let all = sent(&mut cluster, &frames);
    assert_eq!((all[0].len(), all[3].len()), (6, 1));
}
