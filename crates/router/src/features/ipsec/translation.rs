//! What the kernel says of IPsec, as elements and crate `ipsec` have it.

use std::net::IpAddr;

use control::netlink::xfrm::{
    Action, Algorithm, Direction, EncapsulationKind, Mark, Mode as KernelMode, Policy as KernelPolicy,
    PolicyType, PortMatch, Protocol, Sa, Selector as KernelSelector, Template as KernelTemplate,
};
use elements::ipsec::{Direction as OurDirection, Policy, PolicyAction, Selector, Template};
use ipsec::association::{DontFragment, Limit, Mode, Settings, UdpPorts, Used};
use ipsec::{Backend, Endpoints, Keys, Protection, Suite};
use packet::wire::IpProtocol;
use ports::PERMITTED_MARK;

/// The TTL of outer headers, of which the lookup behind EspEncap takes one.
const HOP_LIMIT: u8 = 65;

/// Makes an association of a kernel's; `window` is the smallest window against replays.
///
/// # Errors
///
/// What the fast path cannot do, in a few words.
pub(super) fn settings(sa: &Sa, backend: Backend, window: u32) -> Result<Settings, String> {
    let no = |reason: &str| Err(reason.to_owned());
    match sa.mode {
        KernelMode::Tunnel => {}
        KernelMode::Transport => return no("transport mode"),
        KernelMode::Beet => return no("mode beet"),
        KernelMode::Other(number) => return Err(format!("mode {number}")),
    }
    if !sa.unknown.is_empty() || sa.flags.unknown != 0 {
        return no("attributes that are not known");
    }
    if sa.offload.is_some() {
        return no("offloaded to a card");
    }
    if sa.interface_id != 0 {
        return Err(format!("XFRM interface {}", sa.interface_id));
    }
    if sa.id.mark.mask != 0 || sa.set_mark.is_some() {
        return no("marks");
    }
    if sa.selector.as_ref().is_some_and(is_narrow) {
        return no("a selector of its own");
    }
    let others = [
        (sa.flags.wildcard_receive, "receives for all addresses"),
        (sa.flags.may_wrap, "sequence numbers begin anew"),
        (sa.padded_length != 0, "padded to a length"),
        (sa.cpu.is_some(), "of one CPU"),
        (sa.care_of_address.is_some(), "a care-of address"),
        (sa.has_security_context, "a security context"),
        (sa.compression.is_some(), "compression"),
    ];
    if let Some((_, reason)) = others.into_iter().find(|(is, _)| *is) {
        return no(reason);
    }
    let udp = match sa.encapsulation {
        None => None,
        Some(encapsulation) if encapsulation.kind == EncapsulationKind::Udp => {
            Some(UdpPorts { source: encapsulation.source_port, destination: encapsulation.destination_port })
        }
        Some(_) => return no("an encapsulation other than UDP"),
    };
    let endpoints = Endpoints::new(sa.source, sa.id.destination).ok_or("addresses of two families")?;
    let window = if sa.replay.window == 0 { 0 } else { sa.replay.window.max(window).min(ipsec::MAX_WINDOW) };
    let limit = |bytes: Option<u64>, packets: Option<u64>| Limit {
        bytes: bytes.unwrap_or(u64::MAX),
        packets: packets.unwrap_or(u64::MAX),
    };
    Ok(Settings {
        mode: Mode::Tunnel,
        udp,
        is_extended: sa.flags.extended_sequence_numbers,
        window,
        sequence: sa.replay.sent.max(sa.replay.received),
        used: Used { bytes: sa.usage.bytes, packets: sa.usage.packets },
        soft: limit(sa.limits.bytes.soft, sa.limits.packets.soft),
        hard: limit(sa.limits.bytes.hard, sa.limits.packets.hard),
        hop_limit: HOP_LIMIT,
        dont_fragment: if sa.flags.no_path_mtu_discovery { DontFragment::Clear } else { DontFragment::Copy },
        copies_dscp: !sa.flags.no_encapsulated_dscp,
        takes_dscp: sa.flags.decapsulates_dscp,
        copies_ecn: !sa.flags.no_ecn,
        ..Settings::new(sa.id.spi, endpoints, keys(sa, backend)?)
    })
}

fn is_narrow(selector: &KernelSelector) -> bool {
    selector.source.prefix_len() != 0
        || selector.destination.prefix_len() != 0
        || selector.protocol != 0
        || selector.source_port.mask != 0
        || selector.destination_port.mask != 0
        || selector.interface != 0
}

/// The keys of an association.
fn keys(sa: &Sa, backend: Backend) -> Result<Keys, String> {
    let icv = |algorithm: &Algorithm| algorithm.icv_bits.unwrap_or(0);
    let unknown = |algorithm: &Algorithm| match algorithm.icv_bits {
        Some(bits) => format!("{} with {bits} bits of ICV", algorithm.name),
        None => algorithm.name.clone(),
    };
    let (protection, cipher, hash) = match (&sa.aead, &sa.encryption, &sa.authentication) {
        (Some(aead), None, None) => {
            let protection = match (aead.name.as_str(), icv(aead)) {
                ("rfc4106(gcm(aes))", 128) => Protection::AesGcm,
                ("rfc7539esp(chacha20,poly1305)", 128) => Protection::ChaCha20Poly1305,
                _ => return Err(unknown(aead)),
            };
            (protection, aead, None)
        }
        (None, Some(cipher), Some(hash)) => {
            if cipher.name != "cbc(aes)" {
                return Err(unknown(cipher));
            }
            let protection = match (hash.name.as_str(), icv(hash)) {
                ("hmac(sha1)", 96) => Protection::AesCbcSha1,
                ("hmac(sha256)", 128) => Protection::AesCbcSha256,
                ("hmac(sha512)", 256) => Protection::AesCbcSha512,
                _ => return Err(unknown(hash)),
            };
            (protection, cipher, Some(hash))
        }
        (_, Some(cipher), None) => return Err(format!("{} without authentication", cipher.name)),
        (_, None, Some(hash)) => return Err(format!("{} without encryption", hash.name)),
        _ => return Err("algorithms that do not go together".to_owned()),
    };
    let hash = hash.map(|hash| &hash.key);
    if cipher.key.is_withheld() || hash.is_some_and(|key| key.is_withheld()) {
        return Err("the kernel does not show its keys (lockdown)".to_owned());
    }
    let salt =
        if protection == Protection::AesGcm || protection == Protection::ChaCha20Poly1305 { 4 } else { 0 };
    let bytes = cipher.key.bytes().len();
    let suite = bytes.checked_sub(salt).and_then(|bytes| Suite::new(protection, bytes));
    let suite = suite.ok_or_else(|| format!("{} with a key of {} bits", cipher.name, bytes * 8))?;
    let auth = hash.map_or(&[][..], |key| key.bytes());
    Keys::new(suite, cipher.key.bytes(), auth, backend).map_err(|error| error.to_string())
}

/// Returns which packets a policy is for, if those of our ports do not meet it: they are not for this host, have no mark, and go
/// through no XFRM interface.
pub(super) fn others(policy: &KernelPolicy) -> Option<String> {
    let Mark { value, mask } = policy.mark;
    match (policy.direction, policy.interface_id) {
        (Direction::In, _) => Some("packets to this host".to_owned()),
        (_, interface) if interface != 0 => Some(format!("packets of XFRM interface {interface}")),
        _ if value != 0 => Some(format!("packets with mark {value:#x}/{mask:#x}")),
        _ => None,
    }
}

/// Whether a policy, in transport mode between two addresses, is for packets that the host sends and gets itself: no others match it.
pub(super) fn is_of_host_itself(policy: &KernelPolicy) -> bool {
    let KernelSelector { source, destination, .. } = &policy.selector;
    [source, destination].into_iter().all(|net| net.prefix_len() == net.max_prefix_len())
        && policy.templates.iter().any(|template| template.mode == KernelMode::Transport)
}

/// Whether a policy asks that packets do not have the mark by which the router tells Linux that it has checked them.
pub(super) fn asks_for_our_mark(policy: &KernelPolicy) -> bool {
    policy.mark.mask & PERMITTED_MARK != 0
}

/// Makes a policy of a kernel's. `None` for one that packets of our ports do not meet ([`others`]).
pub(super) fn policy(policy: &KernelPolicy) -> Option<Policy> {
    if others(policy).is_some() {
        return None;
    }
    let direction = match policy.direction {
        Direction::In => return None,
        Direction::Out => OurDirection::Out,
        Direction::Forward => OurDirection::Forward,
    };
    let action = match action(policy).unwrap_or_else(PolicyAction::Linux) {
        // Linux would not find it for the packets that we hand over.
        PolicyAction::Protect(_) | PolicyAction::Linux(_) if asks_for_our_mark(policy) => {
            PolicyAction::Discard
        }
        action => action,
    };
    let selector = selector(&policy.selector).filter(Selector::can_match);
    Some(match selector {
        Some(selector) => Policy { direction, selector, action },
        // Linux looks at more of them than it had to.
        None => {
            let KernelSelector { source, destination, .. } = &policy.selector;
            let selector = Selector::between(source.trunc(), destination.trunc());
            let lack = if policy.selector.interface != 0 {
                "a selector of an interface"
            } else if policy.selector.protocol == IpProtocol::GRE.0 {
                "a selector of a GRE key"
            } else {
                "ports by a mask, or of a protocol without ports"
            };
            let action = match asks_for_our_mark(policy) {
                true => PolicyAction::Discard,
                false => PolicyAction::Linux(lack.to_owned()),
            };
            Policy { direction, selector, action }
        }
    })
}

/// Returns what a selector asks of packets beside addresses: `tcp to port 80`.
pub(super) fn conditions(selector: &KernelSelector) -> String {
    let mut parts = Vec::new();
    let protocol = IpProtocol(selector.protocol);
    if selector.protocol != 0 {
        parts.push(protocol.to_string());
    }
    let number = |what: &str, number: PortMatch| match number.mask {
        0 => None,
        u16::MAX => Some(format!("{what} {}", number.port)),
        mask => Some(format!("{what} {:#x}/{mask:#x}", number.port)),
    };
    let [first, second] = match protocol {
        IpProtocol::ICMP | IpProtocol::ICMPV6 => ["type", "code"],
        IpProtocol::GRE => ["key high", "key low"],
        _ => ["from port", "to port"],
    };
    parts.extend(number(first, selector.source_port));
    parts.extend(number(second, selector.destination_port));
    if selector.interface != 0 {
        parts.push(format!("interface {}", selector.interface));
    }
    parts.join(" ")
}

/// Names a policy: `policy out 10.0.1.0/24 > 10.0.2.0/24, tcp to port 80`.
pub(super) fn name(policy: &KernelPolicy) -> String {
    let KernelSelector { source, destination, .. } = &policy.selector;
    let conditions = conditions(&policy.selector);
    let more = if conditions.is_empty() { "" } else { ", " };
    let direction = policy.direction.word();
    format!("policy {direction} {} > {}{more}{conditions}", source.trunc(), destination.trunc())
}

fn selector(selector: &KernelSelector) -> Option<Selector> {
    let ports = |port: PortMatch| match port.mask {
        0 => Some(None),
        u16::MAX => Some(Some((port.port, port.port))),
        _ => None,
    };
    if selector.interface != 0 {
        return None;
    }
    Some(Selector {
        source: selector.source.trunc(),
        destination: selector.destination.trunc(),
        protocol: (selector.protocol != 0).then_some(selector.protocol),
        source_ports: ports(selector.source_port)?,
        destination_ports: ports(selector.destination_port)?,
    })
}

/// What a policy says; `Err` is what the fast path lacks.
fn action(policy: &KernelPolicy) -> Result<PolicyAction, String> {
    if policy.kind != PolicyType::Main {
        return Err("a sub-policy".to_owned());
    }
    if policy.unknown_flags != 0 || !policy.unknown.is_empty() {
        return Err("attributes that are not known".to_owned());
    }
    if policy.has_security_context {
        return Err("a security context".to_owned());
    }
    match (policy.action, &policy.templates[..]) {
        (Action::Block, _) => Ok(PolicyAction::Discard),
        (Action::Other(number), _) => Err(format!("action {number}")),
        (Action::Allow, []) => Ok(PolicyAction::Bypass),
        (Action::Allow, [one]) if one.spi != 0 && policy.direction != Direction::Out => {
            Err("a fixed SPI of received packets".to_owned())
        }
        (Action::Allow, [one]) => template(one).map(PolicyAction::Protect),
        (Action::Allow, templates) => Err(format!("{} transformations", templates.len())),
    }
}

fn template(template: &KernelTemplate) -> Result<Template, String> {
    let KernelTemplate {
        destination, source, spi, protocol, request_id, mode, is_optional, algorithms, ..
    } = template;
    if *protocol != Protocol::Esp {
        return Err(protocol.to_string());
    }
    if *mode != KernelMode::Tunnel {
        return Err("a mode other than tunnel".to_owned());
    }
    if [algorithms.authentication, algorithms.encryption].iter().any(|bits| *bits != u32::MAX) {
        return Err("only some algorithms".to_owned());
    }
    let is_some = |address: &IpAddr| !address.is_unspecified();
    let endpoints = Endpoints::new(*source, *destination).filter(|_| is_some(source) && is_some(destination));
    let endpoints = endpoints.ok_or("a tunnel of any address")?;
    Ok(Template { endpoints, request: *request_id, spi: *spi, mode: Mode::Tunnel, is_optional: *is_optional })
}
