//! Policy rules (`ip rule`): which tables a packet is looked up in, in which order.
//!
//! Most routers have no rules but the kernel's own, and then one lookup in the main table says it all:
//! [`Rules::is_main_only`] tells, once for a batch. With others, [`Rules::evaluate`] walks them for one packet as Linux
//! does (`fib_rules_lookup`): the first rule that selects the packet acts, and one that looks up in a table where there
//! is not a route lets the next one try. That includes a *throw* route, which is a route to number 0
//! ([`NextHopIndex::NONE`]) in a table.
//!
//! What is here is plain data that workers read; the mirror of the kernel's rules compiles it. Names are resolved
//! then (ports, indices of VRFs), rules that can select no forwarded packet are left out, and jumps lead forward, so
//! that a walk always ends.

use crate::NextHopIndex;
use packet::Family;

/// The rules of both families.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Those for IPv4.
    pub ipv4: Rules<u32>,
    /// Those for IPv6.
    pub ipv6: Rules<u128>,
}

/// The rules of a family, in the order in which they are asked. The default is the main table only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules<A: Family> {
    /// `None`: the main table only.
    rules: Option<Vec<PolicyRule<A>>>,
}

impl<A: Family> Default for Rules<A> {
    fn default() -> Self {
        Rules { rules: None }
    }
}

/// Addresses from the first to the last of a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange<A> {
    pub(crate) first: A,
    pub(crate) last: A,
}

impl<A: Family> AddressRange<A> {
    /// All addresses of a prefix.
    pub fn of(prefix: A::Net) -> AddressRange<A> {
        let (first, last) = A::bounds(prefix);
        AddressRange { first, last }
    }

    #[inline]
    fn contains(&self, address: A) -> bool {
        self.first <= address && address <= self.last
    }
}

/// A rule, ready to be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyRule<A> {
    /// Source addresses that it selects; `None` for all.
    pub from: Option<AddressRange<A>>,
    /// Destination addresses that it selects; `None` for all.
    pub to: Option<AddressRange<A>>,
    /// Ports by which the packets it selects came in; `None` for all.
    pub input_ports: Option<Vec<u16>>,
    /// Whether it selects what the above does not (`not`).
    pub is_inverted: bool,
    /// Whether it also selects by something that is not known here. What it may select is the kernel's to decide.
    pub is_partly_unknown: bool,
    /// What it does with a packet that it selects.
    pub action: PolicyAction,
}

/// What a rule does with packets that it selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyAction {
    /// Looks up in the VRF of this index; without a route the next rule is asked.
    Lookup(usize),
    /// Looks up in the VRF of the packet's port, by number of the port; ports in no VRF ask the next rule.
    LookupOfPort(Vec<Option<usize>>),
    /// Goes on at the rule with this place in the list, which is further on.
    Goto(usize),
    /// Nothing.
    Nop,
    /// The search ends so.
    End(Decision),
}

/// What the rules say of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// A table has a route: a number of the FIB's next hops, not 0.
    Route(NextHopIndex),
    /// No rule found a route.
    NoRoute,
    /// A rule drops it without a word.
    Blackhole,
    /// A rule drops it with "network unreachable".
    Unreachable,
    /// A rule drops it with "administratively prohibited".
    Prohibit,
    /// The kernel must decide.
    Punt,
}

impl<A: Family> Rules<A> {
    /// These rules, in this order.
    ///
    /// # Panics
    ///
    /// If a [`PolicyAction::Goto`] does not lead forward.
    pub fn new(rules: Vec<PolicyRule<A>>) -> Rules<A> {
        let forward = |(place, rule): (usize, &PolicyRule<A>)| match rule.action {
            PolicyAction::Goto(target) => target > place,
            _ => true,
        };
        assert!(rules.iter().enumerate().all(forward), "a goto that leads back would never end");
        Rules { rules: Some(rules) }
    }

    /// Whether every packet is looked up in the main table (index 0) and nowhere else.
    #[inline]
    pub fn is_main_only(&self) -> bool {
        self.rules.is_none()
    }

    /// The rules; none where [`Rules::is_main_only`] says it all.
    pub fn list(&self) -> &[PolicyRule<A>] {
        self.rules.as_deref().unwrap_or_default()
    }

    /// What happens to a packet. `lookup` is asked for the next hop of `destination` in VRFs by index, as
    /// [`State::ipv4`](crate::State::ipv4) knows them.
    pub fn evaluate(
        &self,
        input_port: u16,
        source: A,
        destination: A,
        lookup: impl FnMut(usize) -> NextHopIndex,
    ) -> Decision {
        self.walk(input_port, Some(input_port), source, destination, lookup)
    }

    /// What would happen to an answer to a packet that came in by `input_port`: one from the packet's `destination` to its `source`, of
    /// which `lookup` is asked for the next hop. The port's VRF is its own. To Linux (`__fib_validate_source`) it comes in by the
    /// interface that the packet leaves by, which is not known here: a rule that selects by this is [`Decision::Punt`].
    pub fn evaluate_answer(
        &self,
        input_port: u16,
        source: A,
        destination: A,
        lookup: impl FnMut(usize) -> NextHopIndex,
    ) -> Decision {
        self.walk(input_port, None, destination, source, lookup)
    }

    /// The walk over the rules for a packet of the VRF of a port, which came in by a port or is our own.
    #[inline(always)]
    fn walk(
        &self,
        port: u16,
        input_port: Option<u16>,
        source: A,
        destination: A,
        mut lookup: impl FnMut(usize) -> NextHopIndex,
    ) -> Decision {
        let found = |index: NextHopIndex| index.is_some().then_some(Decision::Route(index));
        let may_come_by = |ports: &Vec<u16>| input_port.is_none_or(|port| ports.contains(&port));
        let Some(rules) = &self.rules else {
            return found(lookup(0)).unwrap_or(Decision::NoRoute);
        };
        let mut place = 0;
        while let Some(rule) = rules.get(place) {
            place += 1;
            let is_like_it = rule.from.is_none_or(|from| from.contains(source))
                && rule.to.is_none_or(|to| to.contains(destination))
                && rule.input_ports.as_ref().is_none_or(may_come_by);
            let is_unknown = rule.is_partly_unknown || input_port.is_none() && rule.input_ports.is_some();
            if is_like_it && is_unknown {
                return Decision::Punt;
            }
            if is_like_it == rule.is_inverted {
                continue;
            }
            let decision = match &rule.action {
                PolicyAction::Lookup(vrf) => found(lookup(*vrf)),
                PolicyAction::LookupOfPort(vrfs) => {
                    let vrf = vrfs.get(usize::from(port)).copied().flatten();
                    vrf.and_then(|vrf| found(lookup(vrf)))
                }
                PolicyAction::Goto(target) => {
                    place = *target;
                    None
                }
                PolicyAction::Nop => None,
                PolicyAction::End(decision) => Some(*decision),
            };
            if let Some(decision) = decision {
                return decision;
            }
        }
        Decision::NoRoute
    }
}

impl<A: Family> PolicyRule<A> {
    /// A rule that selects every packet.
    pub const fn all(action: PolicyAction) -> PolicyRule<A> {
        PolicyRule {
            from: None,
            to: None,
            input_ports: None,
            is_inverted: false,
            is_partly_unknown: false,
            action,
        }
    }

    /// Whether it selects every packet.
    pub fn selects_all(&self) -> bool {
        let selects_by_nothing = self.from.is_none() && self.to.is_none() && self.input_ports.is_none();
        selects_by_nothing && !self.is_inverted && !self.is_partly_unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(number: u16) -> NextHopIndex {
        NextHopIndex::new(number).unwrap()
    }

    /// VRF `n` has a route to number `n`; VRF 9 has none.
    fn lookup(vrf: usize) -> NextHopIndex {
        if vrf == 9 { NextHopIndex::NONE } else { number(vrf as u16 + 1) }
    }

    fn range(prefix: &str) -> Option<AddressRange<u32>> {
        Some(AddressRange::of(prefix.parse().unwrap()))
    }

    fn rule(action: PolicyAction) -> PolicyRule<u32> {
        PolicyRule::all(action)
    }

    fn decide(rules: Vec<PolicyRule<u32>>, port: u16) -> Decision {
        Rules::new(rules).evaluate(port, 0x0a00_0001, 0xc000_0201, lookup)
    }

    #[test]
    fn the_default_is_one_lookup_in_the_main_table() {
        let rules = Rules::<u32>::default();
        assert!(rules.is_main_only() && rules.list().is_empty());
        assert_eq!(rules.evaluate(0, 1, 2, |vrf| number(vrf as u16 + 7)), Decision::Route(number(7)));
        assert_eq!(rules.evaluate(0, 1, 2, |_| NextHopIndex::NONE), Decision::NoRoute);
    }

    #[test]
    fn the_first_rule_with_a_route_decides() {
        use PolicyAction::*;
        let lookups = vec![rule(Lookup(9)), rule(Nop), rule(Lookup(3)), rule(Lookup(4))];
        assert_eq!(decide(lookups, 0), Decision::Route(number(4)));
        assert_eq!(decide(vec![rule(Lookup(9))], 0), Decision::NoRoute);
        let ends = vec![rule(End(Decision::Prohibit)), rule(Lookup(3))];
        assert_eq!(decide(ends, 0), Decision::Prohibit);
        let jump = vec![rule(Goto(2)), rule(End(Decision::Blackhole)), rule(Lookup(1))];
        assert_eq!(decide(jump, 0), Decision::Route(number(2)));
        assert_eq!(decide(vec![rule(Goto(5))], 0), Decision::NoRoute);
    }

    #[test]
    fn rules_select_by_source_destination_and_port() {
        use PolicyAction::*;
        let hit = Decision::Route(number(2));
        let select = |from: Option<AddressRange<u32>>, to, ports: Option<Vec<u16>>, is_inverted| {
            let selective = PolicyRule { from, to, input_ports: ports, is_inverted, ..rule(Lookup(1)) };
            assert!(!selective.selects_all());
            decide(vec![selective], 5)
        };
        assert_eq!(select(range("10.0.0.0/8"), None, None, false), hit);
        assert_eq!(select(range("11.0.0.0/8"), None, None, false), Decision::NoRoute);
        assert_eq!(select(range("11.0.0.0/8"), None, None, true), hit);
        assert_eq!(select(None, range("192.0.2.0/24"), None, false), hit);
        assert_eq!(select(None, range("192.0.2.0/32"), None, false), Decision::NoRoute);
        assert_eq!(select(None, None, Some(vec![4, 5]), false), hit);
        assert_eq!(select(None, None, Some(vec![4]), false), Decision::NoRoute);
        assert_eq!(select(range("10.0.0.0/8"), range("10.0.0.0/8"), None, true), hit);
        let of_port = rule(LookupOfPort(vec![None, Some(2)]));
        assert_eq!(decide(vec![of_port.clone()], 1), Decision::Route(number(3)));
        assert_eq!(decide(vec![of_port.clone()], 0), Decision::NoRoute);
        assert_eq!(decide(vec![of_port], 7), Decision::NoRoute);
    }

    #[test]
    fn an_answer_goes_the_other_way_and_nobody_knows_by_which_port_it_came() {
        use PolicyAction::*;
        let answer = |rule| Rules::new(vec![rule]).evaluate_answer(1, 0x0a00_0001, 0xc000_0201, lookup);
        let hit = Decision::Route(number(2));
        assert_eq!(answer(PolicyRule { to: range("10.0.0.0/8"), ..rule(Lookup(1)) }), hit);
        assert_eq!(answer(PolicyRule { from: range("192.0.2.0/24"), ..rule(Lookup(1)) }), hit);
        assert_eq!(answer(PolicyRule { from: range("10.0.0.0/8"), ..rule(Lookup(1)) }), Decision::NoRoute);
        let by_port = PolicyRule { input_ports: Some(vec![1]), ..rule(Lookup(1)) };
        assert_eq!(answer(by_port.clone()), Decision::Punt);
        assert_eq!(answer(PolicyRule { is_inverted: true, ..by_port.clone() }), Decision::Punt);
        assert_eq!(answer(PolicyRule { to: range("11.0.0.0/8"), ..by_port }), Decision::NoRoute);
        assert_eq!(answer(rule(LookupOfPort(vec![None, Some(2)]))), Decision::Route(number(3)));
    }

    #[test]
    fn what_a_partly_unknown_rule_may_select_is_the_kernels() {
        use PolicyAction::*;
        let unknown = |from, is_inverted| {
            let rule = PolicyRule { from, is_inverted, is_partly_unknown: true, ..rule(Lookup(1)) };
            decide(vec![rule, PolicyRule::all(End(Decision::Blackhole))], 0)
        };
        assert_eq!(unknown(range("10.0.0.0/8"), false), Decision::Punt);
        assert_eq!(unknown(range("11.0.0.0/8"), false), Decision::Blackhole);
        assert_eq!(unknown(range("10.0.0.0/8"), true), Decision::Punt);
        // Whatever the unknown selector says, the known one does not match, so the inverted rule does.
        assert_eq!(unknown(range("11.0.0.0/8"), true), Decision::Route(number(2)));
    }

    #[test]
    #[should_panic(expected = "never end")]
    fn a_jump_back_is_refused() {
        Rules::new(vec![rule(PolicyAction::Nop), rule(PolicyAction::Goto(0))]);
    }
}
