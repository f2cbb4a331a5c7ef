//! Messages that a kernel wrote, read.

use std::net::IpAddr;

use packet::IpVersion;
use testbed::{in_namespace, ip};

use super::*;
use crate::netlink::frames::frames;
use crate::netlink::sockets::{KernelSocket, Received};

/// Bytes from 0 on, as all keys here have them.
fn key(length: u8) -> Key {
    Key::new(&(0..length).collect::<Vec<_>>())
}

fn algorithm(name: &str, key_bytes: u8, icv_bits: Option<u32>) -> Option<Algorithm> {
    Some(Algorithm { name: name.to_owned(), key: key(key_bytes), icv_bits })
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// The selector of all packets of a family.
fn all(version: IpVersion) -> Selector {
    let prefix: ipnet::IpNet = if version == IpVersion::V4 { "0.0.0.0/0" } else { "::/0" }.parse().unwrap();
    let any = PortMatch::default();
    Selector {
        version,
        source: prefix,
        destination: prefix,
        protocol: 0,
        source_port: any,
        destination_port: any,
        interface: 0,
        user: 0,
    }
}

/// What all SAs here have in common.
fn plain(number: u32) -> Sa {
    Sa {
        id: SaId {
            destination: address("10.0.0.2"),
            spi: 0x1000 + number,
            protocol: Protocol::Esp,
            mark: Mark::default(),
        },
        source: address("10.0.0.1"),
        selector: Some(all(IpVersion::V4)),
        mode: Mode::Tunnel,
        request_id: number,
        flags: SaFlags::default(),
        direction: None,
        replay: Replay::none(0),
        limits: Limits::default(),
        usage: Usage::default(),
        last_used_at: None,
        failures: Failures::default(),
        aead: None,
        encryption: None,
        authentication: None,
        compression: None,
        encapsulation: None,
        set_mark: None,
        interface_id: 0,
        offload: None,
        padded_length: 0,
        cpu: None,
        care_of_address: None,
        has_security_context: false,
        nat_keepalive_seconds: 0,
        mapping_report_seconds: 0,
        unknown: Vec::new(),
    }
}

/// One with AES-GCM of 128 bits and its salt.
fn gcm(number: u32) -> Sa {
    Sa { aead: algorithm("rfc4106(gcm(aes))", 20, Some(128)), ..plain(number) }
}

/// One with AES-CBC, and a hash with its key and ICV.
fn cbc(number: u32, key_bytes: u8, hash: &str, hash_key_bytes: u8, icv_bits: u32) -> Sa {
    Sa {
        encryption: algorithm("cbc(aes)", key_bytes, None),
        authentication: algorithm(hash, hash_key_bytes, Some(icv_bits)),
        ..plain(number)
    }
}

/// One over IPv6.
fn over_ipv6(sa: Sa) -> Sa {
    let id = SaId { destination: address("2001:db8::2"), ..sa.id };
    Sa { id, source: address("2001:db8::1"), selector: Some(all(IpVersion::V6)), ..sa }
}

/// Replay state of a long window, of which nothing is used.
fn long(window: u32) -> Replay {
    Replay::long_for_test(window)
}

/// The SAs of `recorded.txt`, in their order.
fn expected() -> Vec<Sa> {
    let limit = |soft, hard| Limit { soft: Some(soft), hard: Some(hard) };
    let marked = gcm(9);
    vec![
        Sa { replay: Replay::none(32), ..gcm(1) },
        Sa {
            aead: algorithm("rfc4106(gcm(aes))", 36, Some(128)),
            flags: SaFlags { extended_sequence_numbers: true, ..SaFlags::default() },
            replay: long(1024),
            ..plain(2)
        },
        Sa { mode: Mode::Transport, ..cbc(3, 16, "hmac(sha1)", 20, 96) },
        // A window of more than 32 has the long form, without extended sequence numbers, too.
        Sa { replay: long(64), ..cbc(4, 32, "hmac(sha256)", 32, 128) },
        cbc(5, 32, "hmac(sha512)", 64, 256),
        Sa {
            aead: algorithm("rfc7539esp(chacha20,poly1305)", 36, Some(128)),
            flags: SaFlags {
                decapsulates_dscp: true,
                no_path_mtu_discovery: true,
                no_encapsulated_dscp: true,
                ..SaFlags::default()
            },
            ..plain(6)
        },
        Sa {
            aead: algorithm("rfc4106(gcm(aes))", 20, Some(96)),
            encapsulation: Some(Encapsulation {
                kind: EncapsulationKind::Udp,
                source_port: 4500,
                destination_port: 4501,
                original_address: address("0.0.0.0"),
            }),
            ..plain(7)
        },
        Sa {
            limits: Limits {
                bytes: limit(1000, 2000),
                packets: limit(30, 40),
                seconds_since_add: limit(5000, 6000),
                seconds_since_use: limit(7000, 8000),
            },
            ..gcm(8)
        },
        Sa {
            id: SaId { mark: Mark { value: 0x12, mask: 0xff }, ..marked.id },
            set_mark: Some(Mark { value: 0x34, mask: 0xf0 }),
            interface_id: 0x77,
            selector: Some(Selector {
                source: "192.168.1.0/24".parse().unwrap(),
                destination: "192.168.2.0/24".parse().unwrap(),
                protocol: 6,
                source_port: PortMatch { port: 80, mask: 0xffff },
                destination_port: PortMatch { port: 443, mask: 0xffff },
                ..all(IpVersion::V4)
            }),
            ..marked
        },
        Sa {
            selector: None,
            flags: SaFlags { any_family: true, ..SaFlags::default() },
            ..over_ipv6(gcm(10))
        },
        Sa { mode: Mode::Transport, ..over_ipv6(cbc(11, 16, "hmac(sha256)", 32, 128)) },
        // Without a length of the ICV the kernel has 96 bits, against RFC 4868.
        Sa { mode: Mode::Beet, request_id: 0, ..cbc(12, 16, "hmac(sha256)", 32, 96) },
    ]
}

/// All that was recorded, in order, with the times at which things were added taken out.
fn decoded() -> Vec<Decoded> {
    let messages = recorded().into_iter().flat_map(|(_, messages)| messages);
    let mut all: Vec<Decoded> =
        messages.map(|(kind, payload)| decode_parts(kind, &payload).unwrap()).collect();
    for decoded in &mut all {
        let usage = match decoded {
            Decoded::Sa(sa) => &mut sa.usage,
            Decoded::Policy(policy) => &mut policy.usage,
            _ => continue,
        };
        assert!(usage.added_at > 1_700_000_000);
        usage.added_at = 0;
    }
    all
}

#[test]
fn sas_of_every_suite_are_read() {
    let (decoded, expected) = (decoded(), expected());
    for (decoded, expected) in decoded.iter().zip(&expected) {
        assert_eq!(*decoded, Decoded::Sa(Box::new(expected.clone())));
        assert!(!expected.is_larval());
    }
    let id = |number: usize| expected[number - 1].id;
    let rest = [
        Decoded::SaUpdated(id(1)),
        Decoded::SaGone(id(9)),
        Decoded::SaGone(id(10)),
        Decoded::SasFlushed(Protocol::Esp.number()),
    ];
    assert_eq!(decoded[expected.len()..][..rest.len()], rest);
}

#[test]
fn expiry_is_read() {
    for (number, mark) in [(1, Mark::default()), (9, Mark { value: 0x12, mask: 0xff })] {
        let (_, sa) = &recorded()[number - 1].1[0];
        for (hard, expiry) in [(0, Expiry::Soft), (1, Expiry::Hard)] {
            let fixed = [&sa[..224], &[hard, 0, 0, 0, 0, 0, 0, 0]].concat();
            let attribute = [[12, 0, 21, 0], mark.value.to_ne_bytes(), mark.mask.to_ne_bytes()].concat();
            let decoded = decode_parts(message::kind::EXPIRE, &[fixed, attribute].concat());
            assert_eq!(decoded, Ok(Decoded::SaExpired(SaId { mark, ..expected()[number - 1].id }, expiry)));
        }
    }
    let (_, policy) = &recorded()[16].1[0];
    let bytes = [&policy[..168], &[1, 0, 0, 0, 0, 0, 0, 0], &policy[168..]].concat();
    let decoded = decode_parts(message::kind::POLICY_EXPIRE, &bytes);
    assert_eq!(decoded, Ok(Decoded::PolicyExpired(1, Expiry::Hard)));
}

#[test]
fn policies_are_read() {
    let decoded = decoded().split_off(expected().len() + 4);
    let every = Algorithms { authentication: u32::MAX, encryption: u32::MAX, compression: u32::MAX };
    let tunnel = Template {
        destination: address("10.0.0.2"),
        source: address("10.0.0.1"),
        spi: 0x1009,
        protocol: Protocol::Esp,
        request_id: 9,
        mode: Mode::Tunnel,
        share: Share::Any,
        is_optional: false,
        algorithms: every,
    };
    let out = Policy {
        index: 1,
        direction: Direction::Out,
        selector: Selector {
            source: "192.168.1.0/24".parse().unwrap(),
            destination: "192.168.2.0/24".parse().unwrap(),
            ..all(IpVersion::V4)
        },
        priority: 1000,
        action: Action::Allow,
        may_be_overridden: false,
        icmp: false,
        unknown_flags: 0,
        templates: vec![tunnel.clone()],
        mark: Mark { value: 5, mask: 7 },
        interface_id: 0x77,
        kind: PolicyType::Main,
        limits: Limits::default(),
        usage: Usage::default(),
        offload: None,
        has_security_context: false,
        unknown: Vec::new(),
    };
    let port = |port| PortMatch { port, mask: 0xffff };
    // It stands behind the tunnel, and has its family.
    let compression = Template {
        destination: address("0.0.0.0"),
        source: address("0.0.0.0"),
        spi: 0,
        protocol: Protocol::Comp,
        request_id: 0,
        mode: Mode::Transport,
        ..tunnel.clone()
    };
    let forward = Policy {
        index: 10,
        direction: Direction::Forward,
        selector: Selector {
            source: "2001:db8:1::/48".parse().unwrap(),
            destination: "2001:db8:2::/48".parse().unwrap(),
            protocol: 17,
            source_port: port(500),
            destination_port: port(4500),
            ..all(IpVersion::V6)
        },
        priority: 7,
        icmp: true,
        limits: Limits { packets: Limit { soft: None, hard: Some(77) }, ..Limits::default() },
        mark: Mark::default(),
        interface_id: 0,
        templates: vec![
            Template {
                destination: address("10.0.0.1"),
                source: address("10.0.0.2"),
                spi: 0,
                request_id: 10,
                is_optional: true,
                ..tunnel
            },
            compression,
        ],
        ..out.clone()
    };
    let blocks = Policy {
        index: 16,
        direction: Direction::In,
        selector: Selector { destination: "10.0.0.0/8".parse().unwrap(), ..all(IpVersion::V4) },
        priority: 0,
        action: Action::Block,
        templates: Vec::new(),
        mark: Mark::default(),
        interface_id: 0,
        ..out.clone()
    };
    let replaced = Policy { priority: 3, action: Action::Allow, may_be_overridden: true, ..blocks.clone() };
    let policy = |policy| Decoded::Policy(Box::new(policy));
    let defaults = Defaults { input: Action::Block, forward: Action::Block, output: Action::Allow };
    let expected = [
        policy(out),
        policy(forward),
        policy(blocks),
        policy(replaced),
        Decoded::PolicyGone(16),
        Decoded::Defaults(defaults),
        Decoded::PoliciesFlushed(PolicyType::Main),
    ];
    assert_eq!(decoded, expected);
}

/// Prints what the kernel says to each command of `recorded.txt`, in the format of that file.
#[test]
#[ignore = "makes test data; needs a kernel with ESP"]
fn record() {
    in_namespace(|| {
        let socket = KernelSocket::for_notifications(ask::XFRM, &[2, 3, 4], 1 << 20).unwrap();
        let mut buffer = vec![0; 1 << 16];
        for (command, _) in recorded() {
            println!("$ {command}");
            ip(command.strip_prefix("ip ").unwrap());
            while let Ok(Received::Bytes(length)) = socket.receive(&mut buffer) {
                for frame in frames(&buffer[..length]) {
                    let frame = frame.unwrap();
                    let hex: String = frame.payload.iter().map(|byte| format!("{byte:02x}")).collect();
                    println!("{:x} {hex}", frame.kind);
                }
            }
        }
        println!("# end");
    });
}
