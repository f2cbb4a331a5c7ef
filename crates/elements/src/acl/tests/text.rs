//! What is written and read: rules, mistakes, handlers.

use graph::testing::{Bench, configure};

use super::super::CLASSES;
use super::super::parse::parse_rule;
use super::super::rule::{Inputs, Written};
use super::{A, B, bench, permits, tcp};
use crate::registry;

fn inputs() -> Inputs {
    Inputs(vec![("eth0".into(), 1), ("eth1".into(), 2)])
}

/// Reads a rule and writes it again.
fn again(line: &str) -> Result<String, String> {
    let rule = parse_rule(line, 40, &inputs())?;
    Ok(rule.map_or_else(String::new, |rule| Written { rule: &rule, inputs: &inputs() }.to_string()))
}

#[test]
fn rules_are_written_as_they_are_read() {
    for line in [
        "10 permit any any any",
        "10 deny ipv4 any any any",
        "10 permit ipv6 tcp any any port 80-443",
        "4294967295 permit tcp 192.0.2.0/24 port 1024-65535 198.51.100.1/32 port 80 in eth1 established",
        "1 deny icmp any any icmp-type 3/4",
        "1 deny icmp6 2001:db8::/32 any icmp-type 135",
        "1 deny 6in4 any any fragment",
        "1 permit sctp any port 0 any port 65535 in 7",
        "1 permit 255 0.0.0.0/0 any",
    ] {
        assert_eq!(again(line).as_deref(), Ok(line));
    }
    for (line, expected) in [
        ("permit 6 any 192.0.2.1 port 80-80  # web", "50 permit tcp any 192.0.2.1/32 port 80"),
        ("7 permit ipv4 icmp any 192.0.2.1 in 1", "7 permit icmp any 192.0.2.1/32 in eth0"),
        ("  # nothing", ""),
        ("", ""),
    ] {
        assert_eq!(again(line).as_deref(), Ok(expected), "{line}");
    }
}

#[test]
fn every_protocol_has_one_name() {
    for number in 0..=u8::MAX {
        let line = again(&format!("10 permit {number} any any")).unwrap();
        assert_eq!(again(&line).unwrap(), line);
        let other = again(&format!("10 permit {} any any", u16::from(number) + 1));
        assert_ne!(other.as_ref(), Ok(&line));
    }
}

#[test]
fn mistakes_say_what_would_be_right() {
    for (line, expected) in [
        ("10", "the line ends before word 2; expected permit or deny"),
        (
            "0 permit any any any",
            "word 1 is '0'; expected a sequence number from 1 to 4294967295, permit or deny",
        ),
        ("10x permit any any any", "word 1 is '10x'; expected a sequence number"),
        ("allow any any any", "word 1 is 'allow'; expected a sequence number"),
        ("10 accept any any any", "word 2 is 'accept'; expected permit or deny"),
        ("10 permit ip any any", "word 3 is 'ip'; expected any, a protocol's name such as tcp"),
        ("10 permit 256 any any", "word 3 is '256'; expected any, a protocol's name"),
        ("10 permit ipv6 icmp any any", "word 4 is 'icmp'; expected ipv6, as before in this rule"),
        ("10 permit tcp host any", "word 4 is 'host'; expected the source: any, an address, or a prefix"),
        ("10 permit tcp any", "the line ends before word 5; expected the destination: any, an address"),
        (
            "10 permit any 10.0.0.1/8 any",
            "word 4 is '10.0.0.1/8'; expected 10.0.0.0/8: the prefix has host bits set",
        ),
        ("10 permit any 10.0.0.0/8 ::/0", "word 5 is '::/0'; expected ipv4, as before in this rule"),
        ("10 permit any any any port 80", "word 6 is 'port'; expected a rule without ports, or one for tcp"),
        ("10 permit tcp any any port 443-80", "word 7 is '443-80'; expected a port from 0 to 65535"),
        ("10 permit tcp any any port http", "word 7 is 'http'; expected a port from 0 to 65535"),
        ("10 permit tcp any any in eth7", "no port 'eth7'; expected eth0 or eth1"),
        ("10 permit tcp any any icmp-type 3", "word 6 is 'icmp-type'; expected a rule for icmp or icmp6"),
        ("10 permit icmp any any icmp-type 3/x", "word 7 is '3/x'; expected an ICMP type from 0 to 255"),
        ("10 permit udp any any established", "word 6 is 'established'; expected a rule for tcp"),
        ("10 permit udp any any fragment fragment", "word 7 is 'fragment'; expected each condition once"),
        ("10 permit udp any any port 5 fragment", "'fragment' means fragments other than the first"),
        (
            "10 permit udp any any log",
            "word 6 is 'log'; expected port, in, icmp-type, established, fragment or",
        ),
    ] {
        let error = again(line).unwrap_err();
        assert!(error.starts_with(expected), "{line}: {error}");
    }
}

#[test]
fn the_configuration_names_arguments_and_lines() {
    let file = std::env::temp_dir().join(format!("brickway-acl-{}", std::process::id()));
    std::fs::write(&file, "# ours\n10 permit any any any\n20 permit tcp any\n").unwrap();
    let path = file.display();
    let errors = configure(CLASSES[0], &format!("10 deny any any any, 5 drop, FILE {path}")).unwrap_err();
    assert_eq!(errors[0], "argument 2: word 2 is 'drop'; expected permit or deny");
    assert!(errors[1].starts_with(&format!("{path}:3: the line ends before word 5")), "{errors:?}");
    std::fs::write(&file, "10 permit any any any\npermit udp any any # the next").unwrap();
    let errors = configure(CLASSES[0], &format!("10 deny any any any, FILE {path}")).unwrap_err();
    assert_eq!(
        errors,
        [format!("{path}:1: number 10 is that of argument 1 already; expected a number of its own")]
    );
    let mut bench = Bench::element(&registry(), &format!("ACL(5 deny tcp any any, FILE {path})"), 1, 2);
    assert_eq!(bench.read("e.count"), "3");
    assert!(bench.read("e.rules").contains("20 permit udp any any"));
    std::fs::remove_file(&file).unwrap();
    for (arguments, expected) in [
        ("FILE /nowhere", "FILE: cannot read '/nowhere': "),
        ("DEFAULT drop", "DEFAULT is 'drop'; expected permit or deny"),
        ("INPUTS \"eth0\"", "INPUTS: 'eth0': not an input; expected a name and a paint from 0 to 255"),
        ("INPUTS \"eth0 1, eth1 1\"", "INPUTS: 'eth1 1': expected a name and a paint of its own"),
        ("INPUTS \"7 1\"", "INPUTS: '7 1': expected a name"),
        ("BURST 3", "unsupported argument 'BURST'"),
    ] {
        let errors = configure(CLASSES[0], arguments).unwrap_err();
        assert!(errors[0].starts_with(expected), "{arguments}: {errors:?}");
    }
}

#[test]
fn handlers_change_all_or_nothing_and_keep_counts() {
    let mut bench = bench("10 permit tcp any any, 20 deny any any any, DEFAULT permit, INPUTS \"eth0 1\"");
    let packet = tcp(A, B, 80);
    assert!(permits(&mut bench, &packet));
    let before = bench.read("e.rules");
    for (handler, value, expected) in [
        ("e.set", "10 permit any any any\n20 permit tcp any", "line 2: the line ends before word 5"),
        (
            "e.set",
            "10 permit any any any\n10 deny any any any",
            "line 2: number 10 is that of line 1 already",
        ),
        (
            "e.add",
            "20 permit tcp any any",
            "there is a rule 20 already: '20 deny any any any'; remove it first",
        ),
        ("e.add", "# nothing", "there is no rule in it"),
        ("e.remove", "15", "there is no rule 15"),
        ("e.remove", "ten", "expected integer from 0 to 4294967295, got 'ten'"),
    ] {
        let error = bench.write(handler, value).unwrap_err();
        assert!(error.starts_with(expected), "{handler} {value}: {error}");
        assert_eq!(bench.read("e.rules"), before);
    }
    bench.write("e.add", "5 deny tcp any 192.0.2.0/24").unwrap();
    bench.write("e.add", "permit any any any in eth0").unwrap();
    assert!(permits(&mut bench, &packet));
    assert!(!permits(&mut bench, &tcp(B, A, 80)));
    let expected = "5 deny tcp any 192.0.2.0/24 # 1 packets, 40 bytes\n\
                    10 permit tcp any any # 2 packets, 80 bytes\n\
                    20 deny any any any # 0 packets, 0 bytes\n\
                    30 permit any any any in eth0 # 0 packets, 0 bytes\n";
    assert_eq!(bench.read("e.rules"), expected);
    // What it prints is what it takes.
    bench.write("e.set", expected).unwrap();
    assert_eq!(bench.read("e.rules"), expected);
    // Another text is another rule.
    bench.write("e.set", "10 permit tcp any any in eth0").unwrap();
    assert_eq!(bench.read("e.rules"), "10 permit tcp any any in eth0 # 0 packets, 0 bytes\n");
    assert!(permits(&mut bench, &packet));
    assert_eq!(bench.read("e.default"), "permit # 1 packets, 40 bytes");
    bench.write("e.set", "").unwrap();
    assert!(permits(&mut bench, &packet));
    assert_eq!(bench.read("e.default"), "permit # 2 packets, 80 bytes");
}
