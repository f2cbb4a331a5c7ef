//! Properties of random programs: they decide what the direct interpretation of their expressions
//! decides, optimised or not, and no text and no packet makes anything panic.

use proptest::prelude::*;

use super::expr::{Expr, Test, lower};
use super::ip_names::Configured;
use super::optimise::optimise;
use super::*;

/// What the expressions say by themselves, rule by rule.
fn interpret(rules: &[Rule], data: &[u8], network: usize, transport: usize) -> Option<u32> {
    let byte = |base: Base, offset: u16| {
        let (origin, offset) = match base {
            Base::Data => (0, usize::from(offset)),
            Base::Link => (network.checked_sub(14)?, usize::from(offset) - 2),
            Base::Network => (network, usize::from(offset)),
            Base::Transport => (transport, usize::from(offset)),
        };
        data.get(origin.checked_add(offset)?).copied()
    };
    let rule = rules.iter().find(|rule| rule.expr.eval(&|test| test.eval(&byte)))?;
    match rule.action {
        Jump::Output(output) => Some(output),
        _ => None,
    }
}

/// Words that expressions are made of, so that random text gets far into the parser.
const WORDS: &[&str] = &[
    "tcp",
    "udp",
    "icmp",
    "ip",
    "ether",
    "transp",
    "tcpudp",
    "src",
    "dst",
    "and",
    "or",
    "not",
    "!",
    "&&",
    "||",
    "(",
    ")",
    "?",
    ":",
    "[",
    "]",
    "&",
    "=",
    "==",
    "!=",
    "<",
    ">",
    "<=",
    ">=",
    "host",
    "net",
    "port",
    "proto",
    "opt",
    "type",
    "win",
    "tos",
    "dscp",
    "ttl",
    "vers",
    "hl",
    "id",
    "len",
    "ect",
    "ce",
    "frag",
    "unfrag",
    "syn",
    "ack",
    "echo",
    "www",
    "mask",
    "true",
    "false",
    "-",
    "any",
    "0",
    "1",
    "2:2",
    "0,1",
    "80",
    "1024-2000",
    "0x1f",
    "255",
    "65535",
    "-5",
    "4294967295",
    "99999999999",
    "10.0.0.1",
    "10.0.0.0/8",
    "255.255.0.0",
    "1:2:3:4:5:6",
    "allow",
    "deny",
    "é",
    "\"",
];

fn random_words() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(WORDS), 0..14).prop_map(|words| words.join(" "))
}

/// Primitives of every kind; ports, addresses and the like from small sets, so that tests meet.
fn primitive() -> impl Strategy<Value = String> {
    let direction = prop::sample::select(&["", "src ", "dst ", "src or dst ", "src and dst "][..]);
    let relation = prop::sample::select(&["", "= ", "!= ", "< ", "> ", "<= ", ">= "][..]);
    let equality = prop::sample::select(&["", "== ", "!= "][..]);
    let transport = prop::sample::select(&["", "tcp ", "udp ", "tcpudp "][..]);
    let bits = prop::sample::select(&["", "& 0xff00 ", "& 5 ", "& 0x8001 "][..]);
    prop_oneof![
        (direction.clone(), transport, bits, relation.clone(), 0u16..6).prop_map(|(d, t, b, r, p)| format!(
            "{d}{t}port {b}{r}{}",
            [0, 1, 80, 81, 1024, 65535][usize::from(p)]
        )),
        (direction.clone(), 0u16..3, 0u16..900).prop_map(|(d, lo, n)| format!(
            "{d}port {}-{}",
            lo * 80,
            lo * 80 + n
        )),
        (direction.clone(), equality.clone(), 0u8..4).prop_map(|(d, e, h)| format!("{d}host {e}10.0.0.{h}")),
        (direction.clone(), 0u8..33).prop_map(|(d, bits)| format!("{d}net 10.0.0.1/{bits}")),
        (direction, equality, 0u8..2).prop_map(|(d, e, h)| format!("{d}ether host {e}0:0:0:0:1:{h}")),
        (relation.clone(), prop::sample::select(&[1u8, 6, 17, 7][..]))
            .prop_map(|(r, p)| format!("ip proto {r}{p}")),
        (relation.clone(), prop::sample::select(&["ttl", "tos", "id", "len"][..]), 0u8..4)
            .prop_map(|(r, f, v)| format!("ip {f} {r}{v}")),
        (relation.clone(), 0u8..13).prop_map(|(r, v)| format!("ip hl {r}{v}")),
        (relation.clone(), 0u8..4).prop_map(|(r, v)| format!("icmp type {r}{v}")),
        (relation.clone(), 0u8..4).prop_map(|(r, v)| format!("tcp win {r}{v}")),
        (relation, prop::sample::select(&["ip", "transp", "tcp", "udp"][..]), 0u8..24, 1u8..5, 0u32..300)
            .prop_map(|(r, base, position, length, value)| {
                let length = length.min(4 - position % 4);
                let value = if length == 1 { value & 0xff } else { value };
                format!("{base}[{position}:{length}] {r}{value}")
            }),
        prop::sample::select(
            &[
                "tcp",
                "udp",
                "icmp",
                "syn",
                "ack",
                "tcp opt 18",
                "ip frag",
                "unfrag",
                "ip ect",
                "ce",
                "true",
                "false"
            ][..]
        )
        .prop_map(str::to_owned),
    ]
}

fn expression() -> impl Strategy<Value = String> {
    primitive().prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 2..4).prop_map(|parts| format!("({})", parts.join(" and "))),
            prop::collection::vec(inner.clone(), 2..4).prop_map(|parts| format!("({})", parts.join(" or "))),
            prop::collection::vec(inner.clone(), 2..4)
                .prop_map(|parts| format!("({})", parts.join(") && ("))),
            inner.clone().prop_map(|part| format!("not ({part})")),
            (inner.clone(), inner.clone(), inner).prop_map(|(a, b, c)| format!("({a} ? {b} : {c})")),
        ]
    })
}

/// A rule as people write them, most of them for few packets.
fn usual_rule() -> impl Strategy<Value = String> {
    let protocol =
        prop::sample::select(&["", "tcp", "udp", "icmp", "ip proto 7", "not udp", "tcp opt syn"][..]);
    let end = || {
        let net = prop_oneof![
            1 => Just(String::new()),
            3 => (0u8..4, 24u8..33).prop_map(|(host, bits)| format!("net 10.0.0.{host}/{bits}")),
            2 => (0u8..4).prop_map(|host| format!("host 10.0.{host}.1")),
        ];
        let ports = prop_oneof![
            2 => Just(String::new()),
            1 => (0u32..1100).prop_map(|port| format!("port {port}")),
            1 => (0u32..700, 0u32..700).prop_map(|(first, more)| format!("port {first}-{}", first + more)),
            1 => (0u32..700).prop_map(|port| format!("port > {port}")),
        ];
        (net, ports)
    };
    (protocol, end(), end()).prop_map(|(protocol, source, destination)| {
        let mut parts = vec![protocol.to_owned()];
        for (direction, (net, ports)) in [("src", source), ("dst", destination)] {
            let said = [net, ports].into_iter().filter(|part| !part.is_empty());
            parts.extend(said.map(|part| format!("{direction} {part}")));
        }
        parts.retain(|part| !part.is_empty());
        if parts.is_empty() { "host 10.0.0.9".to_owned() } else { parts.join(" && ") }
    })
}

/// Bytes with few distinct values, so that tests succeed now and then.
fn packet() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![4 => 0u8..4, 1 => prop::sample::select(&[6u8, 17, 80, 81, 0x45, 255][..]), 1 => any::<u8>()];
    let header = (prop::sample::select(&[1u8, 6, 17, 7][..]), prop::bool::weighted(0.2), 0u8..4, 0u8..4);
    (prop::collection::vec(byte, 0..80), header).prop_map(|(mut bytes, (protocol, fragment, src, dst))| {
        let fields = [(23, protocol), (20, 0), (21, u8::from(fragment)), (26, 10), (30, 10)];
        let addresses = [(27, 0), (28, 0), (29, src), (31, 0), (32, 0), (33, dst)];
        for (place, value) in fields.into_iter().chain(addresses) {
            if let Some(byte) = bytes.get_mut(place) {
                *byte = value;
            }
        }
        bytes
    })
}

fn offset() -> impl Strategy<Value = usize> {
    prop_oneof![0usize..90, Just(usize::MAX), Just(usize::MAX - 3), any::<usize>()]
}

/// Small trees over few words, values and lengths: these make the optimiser work.
fn tree() -> impl Strategy<Value = Expr> {
    let mask = prop::sample::select(
        &[0x0000_0001u32, 0x0100_0000, 0x0300_0000, 0x0003_0000, 0x0000_0300, 0x0101_0101][..],
    );
    let base = prop::sample::select(&[Base::Data, Base::Network][..]);
    let test = (base, 0u16..2, 0u8..5, mask, any::<u32>(), any::<bool>()).prop_map(
        |(base, word, need, mask, value, when_short)| {
            let needed = 4 - (mask.trailing_zeros() / 8) as u8;
            Expr::Test(Test {
                base,
                offset: word * 4,
                need: need.max(needed),
                mask,
                value: value & mask,
                when_short,
            })
        },
    );
    prop_oneof![8 => test, 1 => any::<bool>().prop_map(Expr::Always)].prop_recursive(5, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 2..5).prop_map(Expr::And),
            prop::collection::vec(inner.clone(), 2..5).prop_map(Expr::Or),
            inner.clone().prop_map(|part| Expr::Not(Box::new(part))),
            (inner.clone(), inner.clone(), inner)
                .prop_map(|(a, b, c)| Expr::Choose(vec![(a, b)], Box::new(c))),
        ]
    })
}

fn tree_rules() -> impl Strategy<Value = Vec<Rule>> {
    prop::collection::vec((tree(), 0u32..3), 1..6).prop_map(|rules| {
        let action = |output| if output == 2 { Jump::Drop } else { Jump::Output(output) };
        rules.into_iter().map(|(expr, output)| Rule { expr, action: action(output) }).collect()
    })
}

/// Whether it is negated, its offset, its values and masks.
type Clause = (bool, usize, Vec<(u8, u8)>);

fn bits() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(0u8..4, 0..14)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    /// Programs of trees: unoptimised, optimised, and the interpretation, all the same.
    #[test]
    fn optimised_as_unoptimised(rules in tree_rules(), packets in prop::collection::vec((bits(), 0usize..6), 40)) {
        let (entry, steps) = lower(&rules);
        let goes_forward = |(i, s): (usize, &Step)| [s.yes, s.no].into_iter().filter_map(Jump::step).all(|next| next > i);
        prop_assert!(steps.iter().enumerate().all(goes_forward));
        let plain = Program::from_steps(entry, steps.clone());
        let (entry, fewer) = optimise(entry, steps.clone());
        prop_assert!(fewer.len() <= steps.len());
        let optimised = Program::from_steps(entry, fewer);
        let by_fields = ByFields::compile(&rules);
        let mut room = Room::new();
        for (data, network) in packets {
            let expected = interpret(&rules, &data, network, 0);
            prop_assert_eq!(plain.run(&data, network, 0), expected, "{:?}\n{}", data, plain);
            prop_assert_eq!(optimised.run(&data, network, 0), expected, "{:?}\n{}{}", data, plain, optimised);
            if let Some(by_fields) = &by_fields {
                let view = View { data: &data, network, transport: 0 };
                let got = by_fields.decide(std::iter::once(view), &mut room)[0];
                prop_assert_eq!(got, expected, "{:?}\n{:?}", data, rules);
            }
        }
    }

    /// Programs of expressions decide what the expressions say.
    #[test]
    fn programs_mean_their_expressions(
        texts in prop::collection::vec(expression(), 1..5),
        packets in prop::collection::vec(packet(), 20),
        offsets in (offset(), offset()),
    ) {
        let (rules, _) = ip_expression::parse_expressions(&texts, &Configured).map_err(|errors| {
            TestCaseError::fail(format!("{texts:?}: {errors:?}"))
        })?;
        let program = Program::from_rules(&rules).unwrap();
        let by_fields = ByFields::compile(&rules);
        let mut room = Room::new();
        for data in packets {
            for (network, transport) in [(14, 34), (0, 20), offsets] {
                let expected = interpret(&rules, &data, network, transport);
                if let Some(by_fields) = &by_fields {
                    let view = View { data: &data, network, transport };
                    let got = by_fields.decide(std::iter::once(view), &mut room)[0];
                    prop_assert_eq!(got, expected, "{:?} {:?} at {} {}", &texts, &data, network, transport);
                }
                let got = program.run(&data, network, transport);
                prop_assert_eq!(got, expected, "{:?} {:?} at {} {}\n{}", &texts, &data, network, transport, &program);
            }
        }
    }

    /// Comparisons, made of equality tests, compare.
    #[test]
    fn comparisons_compare(mask in 1u16.., value: u16, field: u16, operator in 0usize..6, high: bool) {
        let texts = ["=", "!=", "<", ">", "<=", ">="];
        let text = format!("transp[{}:2] & {mask} {} {value}", if high { 0 } else { 2 }, texts[operator]);
        let mut packet = [0u8; 24];
        let place = if high { 20 } else { 22 };
        packet[place..place + 2].copy_from_slice(&field.to_be_bytes());
        let left = field & mask;
        let expected = match operator {
            // As in Click, bits of the value outside the mask do not count for equality.
            0 => left == value & mask,
            1 => left != value & mask,
            2 => left < value,
            3 => left > value,
            4 => left <= value,
            _ => left >= value,
        };
        let (program, _) = Program::ip_filter(&[format!("allow {text}")]).unwrap();
        prop_assert_eq!(program.run(&packet, 0, 20).is_some(), expected, "{} of {}\n{}", text, field, program);
    }

    /// Classifier patterns against a byte by byte reading of them.
    #[test]
    fn patterns_mean_their_bytes(
        patterns in prop::collection::vec(
            prop::collection::vec((any::<bool>(), 0usize..9, prop::collection::vec((0u8..4, 0u8..4), 1..6)), 0..4), 1..6),
        packets in prop::collection::vec(bits(), 30),
    ) {
        let text = |clauses: &Vec<Clause>| {
            let clause = |(negated, offset, bytes): &Clause| {
                let hex = |pick: fn(&(u8, u8)) -> u8| bytes.iter().map(|b| format!("{:02x}", pick(b))).collect::<String>();
                format!("{}{offset}/{}%{}", if *negated { "!" } else { "" }, hex(|b| b.0), hex(|b| b.1))
            };
            clauses.iter().map(clause).collect::<Vec<_>>().join(" ")
        };
        let texts: Vec<String> = patterns.iter().map(text).collect();
        let (program, _) = Program::classifier(&texts).unwrap();
        for data in packets {
            let expected = patterns.iter().position(|clauses| clauses.iter().all(|(negated, offset, bytes)| {
                *negated != bytes.iter().enumerate().all(|(i, (value, mask))| {
                    *mask == 0 || data.get(offset + i).is_some_and(|byte| byte & mask == value & mask)
                })
            }));
            let got = program.run(&data, 0, 0);
            prop_assert_eq!(got, expected.map(|i| i as u32), "{:?} on {:?}\n{}", &texts, &data, &program);
        }
    }

    /// No text makes the compiler panic, and what it makes runs on any packet.
    #[test]
    fn any_text_is_safe(
        words in prop::collection::vec(random_words(), 0..4),
        text in "\\PC{0,40}",
        pattern in "[-!?%/ 0-9a-f]{0,30}",
        data in bits(),
        offsets in (offset(), offset()),
    ) {
        let texts = [words, vec![text.clone(), format!("allow {text}"), pattern]].concat();
        for i in 0..texts.len() {
            for compile in [Program::classifier, Program::ip_classifier, Program::ip_filter] {
                match compile(&texts[i..=i]) {
                    Ok((program, _)) => drop(program.run(&data, offsets.0, offsets.1)),
                    Err(errors) => prop_assert!(errors.iter().all(|e| e.starts_with("pattern 0: ") && e.len() < 400)),
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// Many rules, and batches of packets: by fields as by steps.
    #[test]
    fn many_rules_by_fields(
        texts in prop::collection::vec((usual_rule(), any::<bool>()), 40..200),
        packets in prop::collection::vec(packet(), 100),
    ) {
        let action = |allowed| if allowed { "allow" } else { "deny" };
        let texts: Vec<String> = texts.iter().map(|(rule, allowed)| format!("{} {rule}", action(*allowed))).collect();
        let (rules, _) = ip_expression::parse_rules(&texts, None, &Configured).unwrap();
        let by_fields = ByFields::compile(&rules).expect("rules as people write them have few fields");
        let mut room = Room::new();
        let views = packets.iter().map(|data| View { data, network: 14, transport: 34 });
        // Twice: the second time much of it is known.
        for _ in 0..2 {
            for (got, data) in by_fields.decide(views.clone(), &mut room).iter().zip(&packets) {
                prop_assert_eq!(*got, interpret(&rules, data, 14, 34), "{:?}\n{:?}", data, &texts);
            }
        }
    }
}
