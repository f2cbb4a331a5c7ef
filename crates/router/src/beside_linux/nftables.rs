//! Base chains of nftables that forwarded packets pass, read over netlink (`linux/netfilter/nf_tables.h`). iptables-nft makes such
//! chains too.

use std::io;

use control::netlink::ask::{NETFILTER, dump};
use control::netlink::{Attribute, DecodeError, attributes};
use control::{backstop, esp_hooks};

use super::Bypassed;
use crate::settings::Bypass;

/// `NFNL_SUBSYS_NFTABLES` with `NFT_MSG_GETCHAIN`.
const GET_CHAIN: u16 = 10 << 8 | 4;
/// `struct nfgenmsg`: any family, version 0, no resource.
const ANY_FAMILY: [u8; 4] = [0; 4];

const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_POLICY: u16 = 5;
/// How many refer to the chain: of a base chain its rules, since nothing jumps there.
const CHAIN_USE: u16 = 6;
const CHAIN_TYPE: u16 = 7;
const HOOK_NUMBER: u16 = 1;
const HOOK_DEVICE: u16 = 3;
const HOOK_DEVICES: u16 = 4;

/// `NF_DROP`.
const POLICY_DROP: u32 = 0;

/// Lists the chains with rules, or with policy drop. Chains of interfaces count for these only.
pub(super) fn chains(interfaces: &[&str]) -> io::Result<Vec<Bypassed>> {
    let mut found = Vec::new();
    each_chain(&mut |chain| found.extend(chain.bypassed(interfaces)))?;
    Ok(found)
}

/// Returns whether there are chains with rules that packets pass before they are routed. Chains of interfaces count for these only.
pub(super) fn has_chains_before_routing(interfaces: &[&str]) -> io::Result<bool> {
    let mut has_some = false;
    each_chain(&mut |chain| {
        let is_before = matches!(chain.hook(interfaces), Some("prerouting" | "ingress"));
        has_some |= is_before && chain.bypassed(interfaces).is_some();
    })?;
    Ok(has_some)
}

fn each_chain(take: &mut dyn FnMut(&Chain)) -> io::Result<()> {
    let dumped = dump(NETFILTER, GET_CHAIN, &ANY_FAMILY, &mut |_, payload| {
        take(&Chain::read(payload).map_err(io::Error::other)?);
        Ok(())
    });
    match dumped {
        // The kernel was built without nftables or netfilter.
        Err(error) if matches!(error.raw_os_error(), Some(EINVAL | EPROTONOSUPPORT)) => Ok(()),
        other => other,
    }
}

const EINVAL: i32 = rustix::io::Errno::INVAL.raw_os_error();
const EPROTONOSUPPORT: i32 = rustix::io::Errno::PROTONOSUPPORT.raw_os_error();

#[derive(Debug, Default, PartialEq, Eq)]
struct Chain {
    /// `NFPROTO_*`.
    family: u8,
    table: String,
    name: String,
    /// `filter`, `nat`, `route`.
    kind: String,
    /// Of a base chain.
    hook: Option<u32>,
    devices: Vec<String>,
    drops: bool,
    rules: u32,
}

impl Chain {
    fn read(payload: &[u8]) -> Result<Self, DecodeError> {
        let (header, rest) = payload.split_at_checked(ANY_FAMILY.len()).ok_or(DecodeError::ShortMessage)?;
        let mut chain = Self { family: header[0], ..Self::default() };
        for attribute in attributes(rest) {
            let attribute = attribute?;
            match attribute.kind {
                CHAIN_TABLE => chain.table = attribute.text(),
                CHAIN_NAME => chain.name = attribute.text(),
                CHAIN_HOOK => chain.read_hook(&attribute)?,
                CHAIN_POLICY => chain.drops = attribute.network_u32()? == POLICY_DROP,
                CHAIN_USE => chain.rules = attribute.network_u32()?,
                CHAIN_TYPE => chain.kind = attribute.text(),
                _ => {}
            }
        }
        Ok(chain)
    }

    fn read_hook(&mut self, hook: &Attribute<'_>) -> Result<(), DecodeError> {
        for attribute in hook.nested() {
            let attribute = attribute?;
            match attribute.kind {
                HOOK_NUMBER => self.hook = Some(attribute.network_u32()?),
                HOOK_DEVICE => self.devices.push(attribute.text()),
                HOOK_DEVICES => {
                    for device in attribute.nested() {
                        self.devices.push(device?.text());
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Names the hook if forwarded packets of these interfaces pass it (`enum nf_inet_hooks`, `nf_dev_hooks`).
    fn hook(&self, interfaces: &[&str]) -> Option<&'static str> {
        let is_ours = || self.devices.iter().any(|device| interfaces.contains(&device.as_str()));
        match (self.family_name()?, self.hook?) {
            ("ip" | "ip6" | "inet", 0) => Some("prerouting"),
            ("ip" | "ip6" | "inet", 2) => Some("forward"),
            ("ip" | "ip6" | "inet", 4) => Some("postrouting"),
            ("inet", 5) | ("netdev", 0) => Some("ingress").filter(|_| is_ours()),
            ("netdev", 1) => Some("egress").filter(|_| is_ours()),
            _ => None,
        }
    }

    /// Names the family if forwarded packets pass its chains.
    fn family_name(&self) -> Option<&'static str> {
        match self.family {
            1 => Some("inet"),
            2 => Some("ip"),
            5 => Some("netdev"),
            10 => Some("ip6"),
            _ => None,
        }
    }

    fn bypassed(&self, interfaces: &[&str]) -> Option<Bypassed> {
        let (hook, family) = (self.hook(interfaces)?, self.family_name()?);
        let is_backstop = [backstop::PREFIX, backstop::PREFIX_OF_OTHERS]
            .iter()
            .any(|prefix| self.table.starts_with(prefix));
        let is_ours = is_backstop || self.table == esp_hooks::TABLE;
        if is_ours || self.rules == 0 && !self.drops {
            return None;
        }
        let Chain { table, name, rules, .. } = self;
        let policy = if self.drops { ", policy drop" } else { "" };
        let plural = if *rules == 1 { "" } else { "s" };
        Some(Bypassed {
            word: if self.kind == "nat" { Bypass::Nat } else { Bypass::Firewall },
            subject: "nftables",
            what: format!(
                "chain '{name}' of table '{family} {table}' (hook {hook}, {rules} rule{plural}{policy})"
            ),
            shown_by: format!("nft list chain {family} {table} {name}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(family: u8, hook: Option<u32>) -> Chain {
        let text = str::to_owned;
        Chain {
            family,
            table: text("t"),
            name: text("c"),
            kind: text("filter"),
            hook,
            rules: 1,
            ..Chain::default()
        }
    }

    fn told(chain: &Chain) -> Option<String> {
        chain.bypassed(&["eth1"]).map(|found| found.to_string())
    }

    #[test]
    fn chains_that_forwarded_packets_pass_are_found() {
        let expected = "nftables: chain 'c' of table 'inet t' (hook forward, 1 rule) (firewall)";
        assert_eq!(told(&chain(1, Some(2))).as_deref(), Some(expected));
        let empty = Chain { rules: 0, ..chain(2, Some(2)) };
        assert_eq!(told(&empty), None);
        let expected = "nftables: chain 'c' of table 'ip t' (hook forward, 0 rules, policy drop) (firewall)";
        assert_eq!(told(&Chain { drops: true, ..empty }).as_deref(), Some(expected));
        let nat = Chain { kind: "nat".into(), ..chain(10, Some(4)) };
        let expected = "nftables: chain 'c' of table 'ip6 t' (hook postrouting, 1 rule) (nat)";
        assert_eq!(told(&nat).as_deref(), Some(expected));
    }

    #[test]
    fn chains_that_they_do_not_pass_are_left_out() {
        // Input and output, a chain that is jumped to, a bridge's, ARP's, and the table of a router of ours.
        for other in
            [chain(1, Some(1)), chain(2, Some(3)), chain(1, None), chain(7, Some(2)), chain(3, Some(0))]
        {
            assert_eq!(told(&other), None, "{other:?}");
        }
        assert_eq!(told(&Chain { table: format!("{}eth1", backstop::PREFIX), ..chain(1, Some(2)) }), None);
        let of_device = |name: &str| Chain { devices: vec![name.to_owned()], ..chain(5, Some(0)) };
        assert!(told(&of_device("eth1")).is_some());
        assert_eq!(told(&of_device("eth2")), None);
    }

    #[test]
    fn a_message_is_read() {
        let attribute = |kind: u16, value: &[u8]| {
            let mut bytes = (4 + value.len() as u16).to_ne_bytes().to_vec();
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(value);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        let hook = [attribute(HOOK_NUMBER, &[0, 0, 0, 2]), attribute(HOOK_DEVICE, b"eth1\0")].concat();
        let message = [
            vec![1, 0, 0, 0],
            attribute(CHAIN_TABLE, b"t\0"),
            attribute(CHAIN_NAME, b"c\0"),
            attribute(CHAIN_HOOK | 0x8000, &hook),
            attribute(CHAIN_POLICY, &[0, 0, 0, 0]),
            attribute(CHAIN_USE, &[0, 0, 1, 0]),
            attribute(CHAIN_TYPE, b"filter\0"),
        ];
        let devices = vec!["eth1".to_owned()];
        let expected = Chain { devices, drops: true, rules: 256, ..chain(1, Some(2)) };
        assert_eq!(Chain::read(&message.concat()).unwrap(), expected);
        assert_eq!(Chain::read(&[1, 0]), Err(DecodeError::ShortMessage));
    }
}
