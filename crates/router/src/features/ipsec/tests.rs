//! Translation of the kernel's SAs and policies, reports to it, and ESP that was caught.

use std::collections::BTreeMap;
use std::net::IpAddr;

use control::esp_hooks::{EspHooksError, Hook, Verdict};
use control::netlink::Frame;
use control::netlink::xfrm::{Action, Decoded, Defaults, Policy as KernelPolicy, Rank, Sa, SaId, decode};
use elements::ipsec::{Direction, PolicyAction, PolicyCount};
use ipsec::esp::{Opener, Sealer, find};
use ipsec::{Association, Backend};
use packet::{Pool, PoolOptions, checksum};

use super::caught::Judge;
use super::foretold::Foretold;
use super::linux_ipsec::{Known, State};
use super::report::numbers;
use super::{show, translation};
use crate::table::Table;

/// `XFRM_MSG_NEWSA`, `XFRM_MSG_NEWPOLICY`, `XFRMA_ALG_AEAD`, `XFRMA_TMPL`, `XFRMA_MARK` and `XFRMA_IF_ID`.
const NEW_SA: u16 = 0x10;
const NEW_POLICY: u16 = 0x13;
const AEAD: u16 = 18;
const TEMPLATES: u16 = 5;
const MARK: u16 = 21;
const INTERFACE: u16 = 31;

const NEAR: [u8; 4] = [192, 0, 2, 1];
const FAR: [u8; 4] = [192, 0, 2, 2];
const SPI: u32 = 0x1234;

fn attribute(kind: u16, bytes: &[u8]) -> Vec<u8> {
    let mut attribute = (4 + bytes.len() as u16).to_ne_bytes().to_vec();
    attribute.extend(kind.to_ne_bytes());
    attribute.extend(bytes);
    attribute.resize(attribute.len().next_multiple_of(4), 0);
    attribute
}

/// An association of `struct xfrm_usersa_info` with this mode, window and attributes.
fn sa_with(mode: u8, window: u8, name: &str, icv_bits: u32, key: &[u8], more: &[u8]) -> Sa {
    let mut message = vec![0; 224];
    message[40..42].copy_from_slice(&2_u16.to_ne_bytes());
    message[56..60].copy_from_slice(&FAR);
    message[72..76].copy_from_slice(&SPI.to_be_bytes());
    message[76] = 50;
    message[80..84].copy_from_slice(&NEAR);
    message[96..160].fill(0xff);
    message[208..212].copy_from_slice(&7_u32.to_ne_bytes());
    message[212..214].copy_from_slice(&2_u16.to_ne_bytes());
    (message[214], message[215]) = (mode, window);
    let mut aead = name.as_bytes().to_vec();
    aead.resize(64, 0);
    aead.extend((key.len() as u32 * 8).to_ne_bytes());
    aead.extend(icv_bits.to_ne_bytes());
    aead.extend(key);
    message.extend(attribute(AEAD, &aead));
    message.extend(more);
    match decode(&Frame { kind: NEW_SA, flags: 0, sequence: 0, payload: &message }) {
        Ok(Decoded::Sa(sa)) => *sa,
        other => panic!("{other:?}"),
    }
}

fn sa() -> Sa {
    sa_with(1, 32, "rfc4106(gcm(aes))", 128, &[5; 20], &[])
}

fn lack(sa: &Sa) -> String {
    translation::settings(sa, Backend::best(), 1024).map(drop).unwrap_err()
}

#[test]
fn an_association_that_the_fast_path_can_do_is_translated() {
    let settings = translation::settings(&sa(), Backend::best(), 1024).unwrap();
    assert_eq!((settings.spi, settings.window, settings.sequence), (SPI, 1024, 0));
    assert_eq!(settings.endpoints.source(), IpAddr::from(NEAR));
    assert_eq!(settings.endpoints.destination(), IpAddr::from(FAR));
    assert_eq!(settings.keys.suite().to_string(), "aes128-gcm");
    assert!(
        (settings.soft, settings.hard) == (ipsec::association::Limit::NONE, ipsec::association::Limit::NONE)
    );
    // Without protection against replays there is none here.
    let none = sa_with(1, 0, "rfc4106(gcm(aes))", 128, &[5; 36], &[]);
    let settings = translation::settings(&none, Backend::best(), 1024).unwrap();
    assert_eq!((settings.window, settings.keys.suite().to_string().as_str()), (0, "aes256-gcm"));
}

#[test]
fn what_the_fast_path_lacks_is_named() {
    for (sa, expected) in [
        (sa_with(0, 32, "rfc4106(gcm(aes))", 128, &[5; 20], &[]), "transport mode"),
        (sa_with(4, 32, "rfc4106(gcm(aes))", 128, &[5; 20], &[]), "mode beet"),
        (sa_with(1, 32, "rfc4106(gcm(aes))", 64, &[5; 20], &[]), "rfc4106(gcm(aes)) with 64 bits of ICV"),
        (sa_with(1, 32, "rfc4106(gcm(aes))", 128, &[5; 28], &[]), "rfc4106(gcm(aes)) with a key of 224 bits"),
        (sa_with(1, 32, "rfc4309(ccm(aes))", 128, &[5; 19], &[]), "rfc4309(ccm(aes)) with 128 bits of ICV"),
        (
            sa_with(1, 32, "rfc4106(gcm(aes))", 128, &[0; 20], &[]),
            "the kernel does not show its keys (lockdown)",
        ),
        (
            sa_with(1, 32, "rfc4106(gcm(aes))", 128, &[5; 20], &attribute(INTERFACE, &9_u32.to_ne_bytes())),
            "XFRM interface 9",
        ),
        (
            sa_with(1, 32, "rfc4106(gcm(aes))", 128, &[5; 20], &attribute(200, &[0; 4])),
            "attributes that are not known",
        ),
    ] {
        assert_eq!(lack(&sa), expected);
    }
    let mut narrow = sa();
    narrow.selector.as_mut().unwrap().protocol = 6;
    assert_eq!(lack(&narrow), "a selector of its own");
}

/// A policy from 10.1.0.0/24 to 10.2.0.0/16 with templates of these modes.
fn policy_with(direction: u8, action: u8, templates: &[u8], more: &[u8]) -> KernelPolicy {
    let mut message = vec![0; 168];
    message[..4].copy_from_slice(&[10, 2, 0, 0]);
    message[16..20].copy_from_slice(&[10, 1, 0, 0]);
    message[40..42].copy_from_slice(&2_u16.to_ne_bytes());
    (message[42], message[43]) = (16, 24);
    (message[160], message[161]) = (direction, action);
    let templates: Vec<u8> = templates
        .iter()
        .flat_map(|mode| {
            let mut template = [0; 64];
            template[..4].copy_from_slice(&FAR);
            template[20] = 50;
            template[24..26].copy_from_slice(&2_u16.to_ne_bytes());
            template[28..32].copy_from_slice(&NEAR);
            template[44..48].copy_from_slice(&7_u32.to_ne_bytes());
            template[48] = *mode;
            template[52..64].fill(0xff);
            template
        })
        .collect();
    if !templates.is_empty() {
        message.extend(attribute(TEMPLATES, &templates));
    }
    message.extend(more);
    match decode(&Frame { kind: NEW_POLICY, flags: 0, sequence: 0, payload: &message }) {
        Ok(Decoded::Policy(policy)) => *policy,
        other => panic!("{other:?}"),
    }
}

#[test]
fn policies_are_translated_and_none_is_left_out() {
    let of = |policy: &KernelPolicy| translation::policy(policy);
    // To the host itself; of an XFRM interface; of packets with a mark.
    assert_eq!(of(&policy_with(0, 0, &[1], &[])), None);
    assert_eq!(of(&policy_with(1, 0, &[1], &attribute(INTERFACE, &9_u32.to_ne_bytes()))), None);
    let mark = |value: u32, mask: u32| attribute(MARK, &[value.to_ne_bytes(), mask.to_ne_bytes()].concat());
    assert_eq!(of(&policy_with(1, 0, &[1], &mark(1, 1))), None);
    assert!(of(&policy_with(1, 0, &[1], &mark(0, 1))).is_some());
    // Packets that we hand over have our mark, and miss a policy that asks for none.
    assert_eq!(of(&policy_with(1, 0, &[1], &mark(0, u32::MAX))).unwrap().action, PolicyAction::Discard);
    assert_eq!(of(&policy_with(1, 0, &[0], &mark(0, u32::MAX))).unwrap().action, PolicyAction::Discard);
    assert_eq!(of(&policy_with(2, 0, &[], &mark(0, u32::MAX))).unwrap().action, PolicyAction::Bypass);
    let out = of(&policy_with(1, 0, &[1], &[])).unwrap();
    assert_eq!(
        (out.direction, out.selector.to_string().as_str()),
        (Direction::Out, "any 10.1.0.0/24 10.2.0.0/16")
    );
    let PolicyAction::Protect(template) = out.action else { panic!("{out:?}") };
    assert_eq!((template.request, template.endpoints.destination()), (7, IpAddr::from(FAR)));
    assert_eq!(of(&policy_with(2, 1, &[], &[])).unwrap().action, PolicyAction::Discard);
    assert_eq!(of(&policy_with(2, 0, &[], &[])).unwrap().action, PolicyAction::Bypass);
    for (policy, expected) in [
        (policy_with(1, 0, &[0], &[]), "a mode other than tunnel"),
        (policy_with(1, 0, &[1, 1], &[]), "2 transformations"),
        (policy_with(1, 5, &[], &[]), "action 5"),
        (policy_with(1, 0, &[1], &attribute(200, &[0; 4])), "attributes that are not known"),
    ] {
        assert_eq!(of(&policy).unwrap().action, PolicyAction::Linux(expected.to_owned()));
    }
    let mut own = policy_with(1, 0, &[0], &[]);
    assert!(!translation::is_of_host_itself(&own));
    (own.selector.source, own.selector.destination) =
        ("192.0.2.1/32".parse().unwrap(), "192.0.2.2/32".parse().unwrap());
    assert!(translation::is_of_host_itself(&own));
    // strongSwan names the association of packets that are sent.
    let mut fixed = policy_with(1, 0, &[1], &[]);
    fixed.templates[0].spi = SPI;
    assert!(matches!(of(&fixed).unwrap().action, PolicyAction::Protect(template) if template.spi == SPI));
    fixed.direction = control::netlink::xfrm::Direction::Forward;
    assert!(matches!(of(&fixed).unwrap().action, PolicyAction::Linux(_)));
    // Ports by a mask: Linux looks at all packets between these networks.
    let mut masked = policy_with(2, 1, &[], &[]);
    (masked.selector.protocol, masked.selector.destination_port.mask) = (17, 0xff00);
    let policy = of(&masked).unwrap();
    assert!(matches!(policy.action, PolicyAction::Linux(_)), "{policy:?}");
    assert_eq!(policy.selector.protocol, None);
}

/// Has what selectors of IPv6 can ask for at most.
fn widest(direction: u8, protocol: u8, ports: [u16; 2]) -> KernelPolicy {
    let mut policy = policy_with(direction, 0, &[1], &[]);
    let address = |last: u16| format!("fd00:1111:2222:3333:4444:5555:6666:{last:x}");
    policy.selector.source = format!("{}/128", address(0xaaaa)).parse().unwrap();
    policy.selector.destination = format!("{}/128", address(0xbbbb)).parse().unwrap();
    policy.selector.protocol = protocol;
    for (its, port) in
        [&mut policy.selector.source_port, &mut policy.selector.destination_port].into_iter().zip(ports)
    {
        (its.port, its.mask) = (port, 0xffff);
    }
    policy.templates[0].source = address(0xcccc).parse().unwrap();
    policy.templates[0].destination = address(0xdddd).parse().unwrap();
    policy
}

/// What people read of `brickway show ipsec`.
fn shown(state: &State, counts: &[PolicyCount]) -> String {
    let [shown] = show::SHOWN else { panic!("one table") };
    let mut table = Table::new(shown.columns).folded(shown.folds_at);
    for row in show::rows_of(state, counts) {
        let lines = (shown.lines)(serde_json::to_value(row).unwrap()).unwrap();
        lines.into_iter().for_each(|line| table.row(line));
    }
    table.render()
}

#[test]
fn what_there_is_is_shown_with_what_is_left_to_linux() {
    let mut state = State::catching();
    state.take(sa(), 1024);
    let mut transport = sa_with(0, 32, "rfc4106(gcm(aes))", 128, &[5; 20], &[]);
    transport.id.spi += 1;
    state.take(transport, 1024);
    let mark = attribute(MARK, &[7_u32.to_ne_bytes(), 0xff_u32.to_ne_bytes()].concat());
    let mut icmp = policy_with(2, 1, &[], &[]);
    icmp.selector.protocol = 1;
    (icmp.selector.source_port.port, icmp.selector.source_port.mask) = (8, 0xffff);
    let mut masked = policy_with(2, 0, &[], &[]);
    (masked.selector.protocol, masked.selector.destination_port.mask) = (17, 0xff00);
    let mut other = policy_with(1, 0, &[1], &[]);
    other.templates[0].request_id = 9;
    let all = [
        policy_with(1, 0, &[1], &[]),
        other,
        policy_with(0, 0, &[1], &[]),
        policy_with(1, 0, &[1], &attribute(INTERFACE, &9_u32.to_ne_bytes())),
        policy_with(1, 0, &[1], &mark),
        icmp,
        masked,
        policy_with(2, 0, &[], &[]),
        widest(1, 6, [65_535, 65_534]),
        widest(2, 58, [128, 0]),
    ];
    let put = |state: &mut State, (number, policy): (usize, &KernelPolicy)| {
        let index = number as u32;
        state.put(KernelPolicy { index, ..policy.clone() }, Rank { priority: index, age: 0 });
    };
    all.iter().enumerate().take(8).for_each(|policy| put(&mut state, policy));
    let block = Action::Block;
    state.defaults = Some(Defaults { input: block, forward: block, output: Action::Allow });
    let counts = [(&all[0], 1_024), (&all[8], 10_000_000_000)].map(|(policy, packets)| {
        let policy = translation::policy(policy).unwrap();
        PolicyCount { policy, packets, bytes: packets * 1_400 }
    });
    let foretold = Foretold::of(&mut state);
    assert_eq!((foretold.policies, foretold.associations, foretold.sees_transit), (8, 2, true));
    let masked = "policy fwd 10.1.0.0/24 > 10.2.0.0/16, udp to port 0x0/0xff00: left to Linux: ports by a mask, or of a protocol \
                  without ports";
    assert_eq!(foretold.left, [masked]);
    let mut text = shown(&state, &counts);
    all.iter().enumerate().for_each(|policy| put(&mut state, policy));
    text = text + "\n" + &shown(&state, &counts);
    assert_eq!(text, include_str!("shown.txt"), "{text}");
    assert!(text.lines().all(|line| line.len() <= 100), "{text}");
}

fn udp(length: usize) -> Vec<u8> {
    let total = 28 + length;
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 1, 0, 1, 10, 2, 0, 1];
    packet[2..4].copy_from_slice(&(total as u16).to_be_bytes());
    let check = checksum::ipv4_header_compute(&packet);
    packet[10..12].copy_from_slice(&check.to_be_bytes());
    packet.extend([0, 53, 0, 54]);
    packet.extend(((8 + length) as u16).to_be_bytes());
    packet.extend([0, 0]);
    packet.resize(total, 7);
    packet
}

/// The kernel's copy of an association, and what it makes of packets.
struct Kernel {
    association: Association,
    pool: Pool,
}

impl Kernel {
    fn new() -> Self {
        let settings = translation::settings(&sa(), Backend::best(), 1024).unwrap();
        let pool = Pool::new(PoolOptions { frames: 8, ..PoolOptions::default() }).unwrap();
        Self { association: Association::new(settings), pool }
    }

    fn seal(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut packet = self.pool.allocate().unwrap();
        assert!(packet.set_data(bytes));
        packet.set_network_header(0);
        let mut sealer = Sealer::new(Backend::best()).unwrap();
        sealer.seal(std::slice::from_mut(&mut packet), &[&self.association], &mut [None]);
        packet.data().to_vec()
    }

    fn open(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut packet = self.pool.allocate().unwrap();
        assert!(packet.set_data(bytes));
        packet.set_network_header(0);
        let at = find(bytes)?.offset as u16;
        let mut result = [Ok(())];
        let mut opener = Opener::new(Backend::best()).unwrap();
        opener.open(std::slice::from_mut(&mut packet), &[&self.association], &[at], &mut result);
        result[0].is_ok().then(|| packet.data().to_vec())
    }
}

fn number(packet: &[u8]) -> u32 {
    u32::from_be_bytes(*packet[24..].first_chunk().unwrap())
}

#[test]
fn what_linux_makes_gets_a_number_of_ours_and_what_it_opens_is_checked() {
    let sa = sa();
    let association = Association::new(translation::settings(&sa, Backend::best(), 1024).unwrap());
    association.window().accept(1).unwrap();
    let known = Known::for_test(sa, association);
    let id = known.sa.id;
    let sas: BTreeMap<SaId, Known> = [(id, known)].into();
    let (mut judge, mut kernel, mut peer) = (Judge::new().unwrap(), Kernel::new(), Kernel::new());
    // The kernel begins at 1 again and again; the other end gets numbers of ours.
    for expected in 1..=20 {
        let mut kernel_anew = Kernel::new();
        let made = kernel_anew.seal(&udp(expected as usize));
        assert_eq!(number(&made), 1);
        let Verdict::Replace(packet) = judge.judge(&sas, Hook::Output, &made) else { panic!("{expected}") };
        assert_eq!(number(&packet), expected);
        assert_eq!(peer.open(&packet), Some(udp(expected as usize)));
    }
    // Forged, cut short, or of nobody.
    let mut forged = kernel.seal(&udp(9));
    forged[40] ^= 1;
    assert_eq!(judge.judge(&sas, Hook::Output, &forged), Verdict::Drop);
    assert_eq!(judge.judge(&sas, Hook::Output, &forged[..40]), Verdict::Drop);
    assert_eq!(judge.judge(&BTreeMap::new(), Hook::Output, &forged), Verdict::Accept);
    assert_eq!(judge.judge(&sas, Hook::Output, &udp(5)), Verdict::Accept);
    // Linux might open what we cannot look into: here nine extension headers before ESP.
    let mut hidden = vec![0x60, 0, 0, 0, 0, 88, 60, 64];
    hidden.extend([0xfd; 32]);
    (0..9).for_each(|number| hidden.extend([if number == 8 { 50 } else { 60 }, 0, 1, 4, 0, 0, 0, 0]));
    hidden.extend([0; 16]);
    for packet in [&hidden[..], &[]] {
        assert_eq!(judge.judge(&sas, Hook::Input, packet), Verdict::Drop);
    }
    // Number 1 has been received; the kernel may open 2 to 4, once.
    let mut sender = Kernel::new();
    let sent: Vec<Vec<u8>> = (0..4).map(|length| sender.seal(&udp(length))).collect();
    let verdicts = |judge: &mut Judge| -> Vec<bool> {
        sent.iter().map(|packet| judge.judge(&sas, Hook::Input, packet) == Verdict::Accept).collect()
    };
    // In UDP, which was not agreed upon: nothing is opened, and no number used.
    let mut in_udp = sent[1][..20].to_vec();
    in_udp[9] = 17;
    in_udp.extend([0x11, 0x94, 0x11, 0x94, 0, 0, 0, 0]);
    in_udp.extend(&sent[1][20..]);
    assert_eq!(judge.judge(&sas, Hook::Input, &in_udp), Verdict::Drop);
    assert_eq!(verdicts(&mut judge), [false, true, true, true]);
    assert_eq!(verdicts(&mut judge), [false; 4]);
}

#[test]
fn the_kernel_is_told_numbers_of_the_direction_that_was_used() {
    let mut sa = sa();
    sa.replay.received = 100;
    let association = Association::new(translation::settings(&sa, Backend::best(), 1024).unwrap());
    let known = Known::for_test(sa.clone(), association);
    let association = known.association.clone().unwrap();
    let numbers = |sent, received| numbers(&known, &known.sa.replay, &association, sent, received);
    // Nothing happened: the kernel's own.
    assert_eq!(numbers(5_000, 5_000), (0, 100));
    association.window().accept(120).unwrap();
    association.window().advance(120);
    assert_eq!(numbers(5_000, 110), (0, 110));
    // Never back.
    assert_eq!(numbers(5_000, 90), (0, 100));
}

#[test]
fn a_new_association_begins_with_the_numbers_that_linux_has_come_to() {
    let mut state = State::catching();
    let sequence = |state: &State| {
        let known = state.sas.values().next().unwrap();
        known.association.as_ref().unwrap().settings().sequence
    };
    state.take(sa(), 1024);
    assert_eq!(sequence(&state), 0);
    let mut asked = 0;
    let mut ask = |_: &SaId| {
        asked += 1;
        let mut sa = sa();
        sa.replay.sent = 44;
        Some(sa)
    };
    // The tables have the old one: they have to be made anew.
    assert!(state.catch_up(&mut ask, 1024));
    assert_eq!(sequence(&state), 44);
    assert!(!state.catch_up(&mut ask, 1024));
    // Told again, it is the same.
    state.take(sa(), 1024);
    assert!(!state.catch_up(&mut ask, 1024));
    assert_eq!((sequence(&state), asked), (44, 1));
    // A module has come by which ESP bypasses the hooks: Linux goes on, until it is gone.
    let ours = state.stop_catching(&EspHooksError::Offload("esp4_offload"));
    assert_eq!(ours.len(), 1);
    let contents = state.contents();
    assert_eq!((contents.associations.len(), contents.kept.len()), (0, 1));
    assert!(
        state.problems().iter().any(|problem| problem.contains("esp4_offload")),
        "{:?}",
        state.problems()
    );
    state.take(sa(), 1024);
    assert!(state.sas.values().all(|known| known.association.is_err()));
    state.catches = true;
    state.take_over(1024);
    let mut ask = |_: &SaId| {
        let mut sa = sa();
        sa.replay.sent = 99;
        Some(sa)
    };
    assert!(state.catch_up(&mut ask, 1024));
    assert_eq!((sequence(&state), state.contents().associations.len()), (99, 1));
    // Linux does not say: nobody may use its numbers.
    let mut state = State::catching();
    state.take(sa(), 1024);
    assert!(state.catch_up(&mut |_| None, 1024));
    assert!(state.sas.values().next().unwrap().association.is_err());
    // Without hooks it stays Linux's.
    let mut state = State::default();
    state.take(sa(), 1024);
    assert_eq!(state.sas.values().next().unwrap().association.as_ref().unwrap_err(), "its ESP is not caught");
}
