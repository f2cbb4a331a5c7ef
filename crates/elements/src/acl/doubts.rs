//! What the operator of a router should know of a list: that it denies nothing, or more than was meant.

use ipnet::IpNet;
use packet::IpVersion;
use packet::wire::IpProtocol;

use super::rule::{Action, Rule};

/// What is new in this release, for lists on which it has an effect.
const DENIED_NOW: &str = "packets that no rule of the access list matches are denied; before 0.1.0 they passed. [acl] default = \"permit\" \
     has them pass, \"deny\" ends this message";

/// Returns what there is to know of a list, a sentence each. `said` is what somebody said of packets that no rule matches.
/// With `of_settings` the list is that of a router's settings, whose default was another one.
pub(super) fn doubts(rules: &[Rule], said: Option<Action>, of_settings: bool) -> Vec<String> {
    let default = said.unwrap_or_else(|| Action::of_the_rest(rules));
    if default == Action::Permit && rules.iter().all(|rule| rule.action == Action::Permit) {
        return vec![
            "the access list denies nothing: no rule denies, and what no rule matches is permitted; a last \
             rule 'deny any any any' changes that"
                .to_owned(),
        ];
    }
    let is_new = of_settings && said.is_none() && default == Action::Deny && !rules.iter().any(matches_all);
    let versions = [IpVersion::V4, IpVersion::V6].into_iter();
    let ends = versions.filter(|&version| ends_path_mtu(rules, default, version));
    let one_way = (default == Action::Deny || rules.iter().any(denies_all)).then(|| one_way(rules)).flatten();
    is_new
        .then(|| DENIED_NOW.to_owned())
        .into_iter()
        .chain(ends.map(|version| told(rules, version)))
        .chain(one_way)
        .collect()
}

/// Whether no packet of some family passes this rule.
fn denies_all(rule: &Rule) -> bool {
    rule.action == Action::Deny && rule.protocol.is_none() && !rule.fragment && is_for_all_ways(rule)
}

/// What to say of a list that permits TCP to servers and none of their answers, which a list without state has to permit too.
fn one_way(rules: &[Rule]) -> Option<String> {
    let tcp = IpProtocol::TCP.0;
    let permits = |rule: &&Rule| rule.action == Action::Permit && !rule.fragment;
    let overlap = |one: Option<IpNet>, other: Option<IpNet>| match (one, other) {
        (Some(one), Some(other)) => one.contains(&other) || other.contains(&one),
        _ => true,
    };
    let to_servers = |rule: &&Rule| {
        permits(rule) && rule.protocol == Some(tcp) && rule.destination_ports.is_some() && !rule.established
    };
    let answers = |to: &Rule| {
        rules.iter().filter(permits).any(|rule| {
            rule.protocol.is_none_or(|its| its == tcp)
                && rule.destination_ports.is_none()
                && overlap(rule.source, to.destination)
                && overlap(rule.destination, to.source)
                && (rule.input.is_none() || rule.input != to.input)
        })
    };
    let rule = rules.iter().filter(to_servers).find(|rule| !answers(rule))?;
    Some(format!(
        "the access list permits TCP to a server by rule {} and denies the answers: lists have no state; \
         a rule 'permit tcp any any established' permits them",
        rule.sequence
    ))
}

/// The ICMP message by which senders learn the MTU of a path, RFC 1191 section 4 and RFC 4443 section 3.2: its protocol, type and code.
const fn too_big(version: IpVersion) -> (u8, u8, u8) {
    match version {
        IpVersion::V4 => (IpProtocol::ICMP.0, 3, 4),
        IpVersion::V6 => (IpProtocol::ICMPV6.0, 2, 0),
    }
}

/// Whether no packet comes to the rules behind this one.
fn matches_all(rule: &Rule) -> bool {
    rule.version.is_none() && rule.protocol.is_none() && !rule.fragment && is_for_all_ways(rule)
}

/// Whether a rule asks neither for addresses nor for an input port.
fn is_for_all_ways(rule: &Rule) -> bool {
    let is_any = |prefix: Option<IpNet>| prefix.is_none_or(|prefix| prefix.prefix_len() == 0);
    is_any(rule.source) && is_any(rule.destination) && rule.input.is_none()
}

/// Whether packets of the family pass whose senders never learn that they are too big for a link behind the router.
fn ends_path_mtu(rules: &[Rule], default: Action, version: IpVersion) -> bool {
    let (icmp, kind, code) = too_big(version);
    let is_for = |rule: &&Rule| rule.version.is_none_or(|its| its == version);
    let decides = |rule: &&Rule| match rule.action {
        Action::Permit => rule.protocol != Some(icmp),
        Action::Deny => denies_all(rule),
    };
    let passes = rules.iter().filter(is_for).find(decides).map_or(default, |rule| rule.action);
    if passes == Action::Deny {
        return false;
    }
    let may_match = |rule: &&Rule| {
        let has_type =
            |(its, its_code): (u8, Option<u8>)| its == kind && its_code.is_none_or(|its| its == code);
        rule.protocol.is_none_or(|its| its == icmp) && !rule.fragment && rule.icmp_type.is_none_or(has_type)
    };
    for rule in rules.iter().filter(is_for).filter(may_match) {
        match rule.action {
            Action::Permit => return false,
            Action::Deny if is_for_all_ways(rule) => return true,
            Action::Deny => {}
        }
    }
    default == Action::Deny
}

fn told(rules: &[Rule], version: IpVersion) -> String {
    let (name, remedy) = match version {
        IpVersion::V4 => ("IPv4's 'fragmentation needed'", "permit icmp any any icmp-type 3/4"),
        IpVersion::V6 => ("IPv6's 'packet too big'", "permit icmp6 any any icmp-type 2"),
    };
    let of = |protocol: IpProtocol| rules.iter().any(|rule| rule.protocol == Some(protocol.0));
    let note = match version {
        IpVersion::V6 if of(IpProtocol::ICMP) && !of(IpProtocol::ICMPV6) => " ('icmp' is IPv4's alone)",
        _ => "",
    };
    format!(
        "the access list denies {name}, by which senders learn the MTU of a path: where a link behind the router \
         has a smaller one, connections hang; a rule '{remedy}' permits it{note}"
    )
}

#[cfg(test)]
mod tests {
    use super::super::parse::{lines, parse_list};
    use super::super::rule::Inputs;
    use super::*;

    /// The families whose path MTU the list ends, and whether it denies nothing.
    fn doubts_of(text: &str, said: Option<Action>) -> String {
        let rules = parse_list(lines(text), &Inputs::default()).unwrap();
        let all = doubts(&rules, said, true);
        let short = |doubt: &String| match doubt {
            doubt if doubt.contains("'icmp' is IPv4's alone") => "6, icmp",
            doubt if doubt.contains("icmp6") => "6",
            doubt if doubt.contains("icmp-type 3/4") => "4",
            doubt if doubt.contains("denies nothing") => "nothing",
            doubt if doubt.contains("before 0.1.0 they passed") => "new",
            doubt if doubt.contains("denies the answers") => "one way",
            doubt => panic!("{doubt}"),
        };
        all.iter().map(short).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn a_list_that_ends_the_path_mtu_or_denies_nothing_is_doubtful() {
        for (text, doubts) in [
            ("permit tcp any any", "new; 4; 6"),
            ("permit tcp any any\npermit icmp any any", "new; 6, icmp"),
            ("permit tcp any any\npermit icmp any any\npermit icmp6 any any icmp-type 2", "new"),
            ("permit tcp any any\npermit icmp any any icmp-type 8\npermit icmp6 any any", "new; 4"),
            ("permit tcp 192.0.2.0/24 any\npermit icmp any any icmp-type 3\ndeny any any any", ""),
            ("deny udp any any port 53", ""),
            ("deny icmp any any", "4"),
            ("deny icmp6 any any icmp-type 2/0", "6"),
            ("deny icmp6 2001:db8::/32 any", ""),
            ("permit icmp6 any any\npermit icmp any any", "new"),
            ("permit any any any in 1\npermit udp any any fragment\ndeny any any any", ""),
            ("", "new"),
            ("deny any any any", ""),
            ("deny ipv4 any any any", ""),
            ("deny icmp 0.0.0.0/0 0.0.0.0/0", "4"),
        ] {
            assert_eq!(doubts_of(text, None), doubts, "{text}");
        }
        assert_eq!(doubts_of("permit tcp any any", Some(Action::Permit)), "nothing");
        assert_eq!(doubts_of("", Some(Action::Permit)), "nothing");
        assert_eq!(doubts_of("deny any any any", Some(Action::Deny)), "");
        assert_eq!(doubts_of("deny any any any\npermit icmp any any", Some(Action::Permit)), "");
        let web = "permit tcp any 192.0.2.0/24 port 80\npermit icmp any any\ndeny any any any";
        assert_eq!(doubts_of(web, Some(Action::Permit)), "one way");
        for answers in [
            "permit tcp any any established",
            "permit tcp 192.0.2.0/24 port 80 any",
            "permit any 192.0.0.0/16 any",
            "permit any any any in 2",
        ] {
            assert!(!doubts_of(&format!("{answers}\n{web}"), None).contains("one way"), "{answers}");
        }
        for others in ["permit tcp 198.51.100.0/24 any", "permit udp any any", "permit tcp any any port 22"] {
            assert!(doubts_of(&format!("{others}\n{web}"), None).contains("one way"), "{others}");
        }
        assert_eq!(doubts_of("deny tcp any any port 22", None), "");
    }
}
