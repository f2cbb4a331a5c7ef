//! From the kernel's policy rules to what workers evaluate ([`fib::policy`]).
//!
//! With the kernel's own rules only (0 local, 32766 main, 32767 default while that is empty, 1000 l3mdev while no port
//! is in a VRF) one lookup in the main table says it all. Otherwise rules are compiled one by one; names of interfaces
//! become numbers of ports, tables become indices, and tables of the FIB are made for what is not a table of Linux as it
//! stands: the local routes alone, and tables without their short prefixes (`suppress_prefixlength`).
//!
//! Merging local and main is wrong for one arrangement of rules: main before local, with routes in main to addresses of
//! the host itself. The kernel's own merged trie has no such order either; it splits the two then.
//!
//! | rule | what becomes of it |
//! | --- | --- |
//! | selects by a mark, and nothing in Linux sets marks | a mark that is not 0 selects no forwarded packet; with `not` all |
//! | selects by a mark, and Linux's rules may set marks ([`Mirror::set_marks`]) | what it may select is punted |
//! | selects by an interface that is not a port, and no VRF of ports | selects no forwarded packet |
//! | selects by something else that is not known here, or does something that is not | what it may select is punted |
//! | looks up in a table without routes | nothing |
//! | looks up in a table for which there was no room | what it selects is punted |
//! | goto to a rule that is not there, or before it | nothing, as in the kernel |

use super::routes::{DEFAULT, Filter, LOCAL, MirrorFamily, View};
use super::{Mirror, Problem};
use crate::change::{Rule, RuleAction};
use fib::policy::{AddressRange, PolicyAction, PolicyRule};
use fib::publish::{self, Readers, Writer};
use fib::{Decision, MAIN, Policy, Rules};
use packet::IpVersion;
use std::collections::BTreeSet;
use std::fmt::Write;

/// The rules, and what workers have of them.
pub(super) struct KernelRules {
    /// In the order in which they came, with the dump in which each was last seen.
    pub(super) list: Vec<(Rule, u8)>,
    /// Something that matters for workers may have changed.
    pub(super) is_dirty: bool,
    /// Whether something in Linux may give packets marks before it asks the rules.
    may_be_marked: bool,
    writer: Writer<Policy>,
    readers: Readers<Policy>,
}

impl Default for KernelRules {
    fn default() -> Self {
        let (writer, readers) = publish::pair(Policy::default(), Policy::default());
        KernelRules { list: Vec::new(), is_dirty: false, may_be_marked: false, writer, readers }
    }
}

/// What a rule does, before tables of the FIB are made for it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Draft {
    Lookup(u32, Filter),
    Ready(PolicyAction),
}

impl Mirror {
    /// What workers see of the policy rules.
    pub fn policy(&self) -> &Policy {
        self.policy.writer.active()
    }

    /// Where workers get their readers of it. Enter the policy before the FIB's state, and leave it after.
    pub fn policy_readers(&self) -> &Readers<Policy> {
        &self.policy.readers
    }

    /// Says whether something in Linux (packet filters, filters of tc, IPsec) may give packets marks before it asks
    /// the rules. Returns whether that is news.
    pub fn set_marks(&mut self, may_be_marked: bool) -> bool {
        let is_new = may_be_marked != self.policy.may_be_marked;
        self.policy.is_dirty |= is_new;
        self.policy.may_be_marked = may_be_marked;
        is_new
    }

    pub(super) fn put_rule(&mut self, rule: Rule) {
        let epoch = self.epochs.of_rules();
        match self.policy.list.iter_mut().find(|(known, _)| *known == rule) {
            Some((_, seen)) => *seen = epoch,
            None => {
                self.policy.list.push((rule, epoch));
                self.policy.is_dirty = true;
            }
        }
    }

    pub(super) fn remove_rule(&mut self, rule: &Rule) -> bool {
        let place = self.policy.list.iter().position(|(known, _)| known == rule);
        if let Some(place) = place {
            self.policy.list.remove(place);
            self.policy.is_dirty = true;
        }
        place.is_some()
    }

    /// Compiles the rules and makes the tables that they need. [`Mirror::publish_policy`] follows, when these are
    /// published.
    pub(super) fn compile_policy(&mut self) -> Policy {
        let drafts = (self.draft::<u32>(), self.draft::<u128>());
        let lookups = |draft: &Draft| match draft {
            Draft::Lookup(table, filter) if *filter != Filter::default() => Some((*table, *filter)),
            _ => None,
        };
        let mut wanted: BTreeSet<(u32, Filter)> = BTreeSet::new();
        wanted.extend(drafts.0.iter().flatten().filter_map(|(_, draft)| lookups(draft)));
        wanted.extend(drafts.1.iter().flatten().filter_map(|(_, draft)| lookups(draft)));
        for &(table, filter) in &wanted {
            self.add_table_for_rules(table, filter);
        }
        let unneeded = self.tables.for_rules.iter().filter(|(made_for, _)| !wanted.contains(made_for));
        let mut unneeded: Vec<u32> = unneeded.map(|(_, &fib_table)| fib_table).collect();
        let empty = self.tables.tables.keys().filter(|&&table| self.is_unneeded(table));
        unneeded.extend(empty.filter(|table| self.fib.vrf_index(**table).is_some()));
        self.tables.unneeded = unneeded;
        Policy { ipv4: self.rules_of(drafts.0), ipv6: self.rules_of(drafts.1) }
    }

    /// Lets workers have the rules.
    pub(super) fn publish_policy(&mut self, policy: Policy) {
        self.policy.writer.both().0.clone_from(&policy);
        self.policy.writer.publish();
        *self.policy.writer.both().0 = policy;
    }

    /// Whether nothing would be found in a table, now or soon.
    pub(super) fn is_unneeded(&self, table: u32) -> bool {
        let is_empty = self.tables.tables.get(&table).is_none_or(|table| table.is_empty());
        table != MAIN && is_empty && !self.links.is_vrf_table(table)
    }

    fn add_table_for_rules(&mut self, table: u32, filter: Filter) {
        if self.tables.for_rules.contains_key(&(table, filter)) {
            return;
        }
        // Linux numbers tables from below, by hand.
        let is_free =
            |number: &u32| self.fib.vrf_index(*number).is_none() && !self.tables.tables.contains_key(number);
        let number = (0..=u32::MAX).rev().find(is_free).expect("there are more numbers than tables");
        if self.add_fib_table(number) {
            self.tables.for_rules.insert((table, filter), number);
            self.add_view(table, View { fib_table: number, filter });
        }
    }

    /// The rules of a family, as far as they can select packets that we forward. `None` for the main table only, also
    /// while the kernel has not told any rules.
    fn draft<A: MirrorFamily>(&self) -> Option<Vec<(PolicyRule<A>, Draft)>> {
        let all = self.policy.list.iter().map(|(rule, _)| rule);
        let mut rules: Vec<&Rule> = all.filter(|rule| rule.version == A::VERSION).collect();
        rules.sort_by_key(|rule| rule.priority);
        let mut drafts: Vec<(PolicyRule<A>, Draft)> = Vec::with_capacity(rules.len());
        for (place, rule) in rules.iter().enumerate() {
            let target = |priority: u32| {
                let found = rules.iter().position(|rule| rule.priority == priority);
                found.filter(|target| *target > place)
            };
            let nothing = || (PolicyRule::all(PolicyAction::Nop), Draft::Ready(PolicyAction::Nop));
            drafts.push(match self.selector::<A>(rule) {
                Some(selector) => (selector, self.draft_action(rule, target)),
                None => nothing(),
            });
        }
        let is_jump =
            |(_, draft): &(PolicyRule<A>, Draft)| matches!(draft, Draft::Ready(PolicyAction::Goto(_)));
        if !drafts.iter().any(is_jump) {
            drafts.retain(|(_, draft)| *draft != Draft::Ready(PolicyAction::Nop));
        }
        // The kernel's own rules.
        let main = |draft: &(PolicyRule<A>, Draft)| {
            draft.0.selects_all() && draft.1 == Draft::Lookup(MAIN, Filter::default())
        };
        let local = |draft: &(PolicyRule<A>, Draft)| {
            draft.0.selects_all() && draft.1 == Draft::Lookup(MAIN, ONLY_LOCAL)
        };
        // Over IPv4 the two are one table until a rule comes or goes, whatever it selects (net/ipv4/fib_rules.c,
        // `fib_unmerge`).
        let is_kernels = |rule: &Rule| {
            matches!(
                (rule.priority, rule.action),
                (0, RuleAction::Table(LOCAL))
                    | (32_766, RuleAction::Table(MAIN))
                    | (32_767, RuleAction::Table(DEFAULT))
            )
        };
        let is_split = A::BITS == 128 || rules.len() < 3 || !rules.iter().all(|rule| is_kernels(rule));
        let hides_main = is_split && self.tables.local_networks[usize::from(A::BITS == 128)] > 0;
        match &drafts[..] {
            [only] if main(only) => None,
            // Linux looks in table local first: its prefixes hide longer ones of the main table.
            [first, second] if local(first) && main(second) && !hides_main => None,
            _ if rules.is_empty() => None,
            _ => Some(drafts),
        }
    }

    /// What a rule selects; `None` if that is not a packet that we forward. The action is the caller's.
    fn selector<A: MirrorFamily>(&self, rule: &Rule) -> Option<PolicyRule<A>> {
        let mut selector = PolicyRule::all(PolicyAction::Nop);
        let is_by_mark = self.policy.may_be_marked && rule.mark.is_some();
        let mut selects_nothing = !is_by_mark && rule.mark.is_some_and(|(mark, mask)| mark & mask != 0);
        for (prefix, place) in [(rule.from, &mut selector.from), (rule.to, &mut selector.to)] {
            match prefix.map(|prefix| (prefix.prefix_len(), A::from_net(prefix))) {
                None | Some((0, Some(_))) => {}
                Some((_, Some(prefix))) => *place = Some(AddressRange::of(prefix)),
                Some((_, None)) => selects_nothing = true,
            }
        }
        if let Some(name) = &rule.input {
            let ports = self.links.ports_of_input(name);
            selects_nothing |= ports.is_empty();
            selector.input_ports = Some(ports);
        }
        if selects_nothing {
            return rule.is_inverted.then(|| PolicyRule::all(PolicyAction::Nop));
        }
        selector.is_inverted = rule.is_inverted;
        selector.is_partly_unknown = rule.has_other_selectors || is_by_mark;
        Some(selector)
    }

    fn draft_action(&self, rule: &Rule, place_of: impl Fn(u32) -> Option<usize>) -> Draft {
        let nothing = Draft::Ready(PolicyAction::Nop);
        let end = |decision| Draft::Ready(PolicyAction::End(decision));
        if rule.is_l3mdev {
            return self.draft_of_ports(rule);
        }
        match rule.action {
            RuleAction::Nop => nothing,
            RuleAction::Blackhole => end(Decision::Blackhole),
            RuleAction::Unreachable => end(Decision::Unreachable),
            RuleAction::Prohibit => end(Decision::Prohibit),
            RuleAction::Unknown(_) => end(Decision::Punt),
            RuleAction::Goto(priority) => {
                place_of(priority).map_or(nothing, |place| Draft::Ready(PolicyAction::Goto(place)))
            }
            RuleAction::Table(LOCAL) => {
                Draft::Lookup(MAIN, Filter { longer_than: rule.suppress_prefix_length, ..ONLY_LOCAL })
            }
            RuleAction::Table(table) if self.is_unneeded(table) => nothing,
            RuleAction::Table(table) => {
                Draft::Lookup(table, Filter { only_local: false, longer_than: rule.suppress_prefix_length })
            }
        }
    }

    /// A rule of which the table depends on the port.
    fn draft_of_ports(&self, rule: &Rule) -> Draft {
        let last = self.links.ports.iter().map(|(_, port)| usize::from(port) + 1).max().unwrap_or(0);
        let mut vrfs = vec![None; last];
        for interface in self.links.interfaces.values() {
            let Some(place) = interface.port.and_then(|port| vrfs.get_mut(usize::from(port))) else {
                continue;
            };
            let Some(table) = self.links.vrf_table(interface) else { continue };
            *place = self.fib.vrf_index(table);
            if place.is_none() {
                return Draft::Ready(PolicyAction::End(Decision::Punt));
            }
        }
        Draft::Ready(match (vrfs.iter().all(Option::is_none), rule.suppress_prefix_length) {
            (true, _) => PolicyAction::Nop,
            (false, None) => PolicyAction::LookupOfPort(vrfs),
            // Nobody seems to combine the two.
            (false, Some(_)) => PolicyAction::End(Decision::Punt),
        })
    }

    /// Returns whether table local is asked for all packets of a family before the tables of VRFs. The host's addresses outside of VRFs
    /// are its own to their members then.
    pub fn asks_local_first(&self, version: IpVersion) -> bool {
        let rules = self.policy.list.iter().map(|(rule, _)| rule).filter(|rule| rule.version == version);
        let first = |is_it: fn(&&Rule) -> bool| rules.clone().filter(is_it).map(|rule| rule.priority).min();
        let local = first(|rule| {
            let selects =
                rule.from.is_some() || rule.to.is_some() || rule.input.is_some() || rule.mark.is_some();
            let is_plain = !selects && !rule.is_inverted && !rule.has_other_selectors;
            is_plain && !rule.is_l3mdev && rule.action == RuleAction::Table(LOCAL)
        });
        let of_vrfs = first(|rule| rule.is_l3mdev);
        local.is_some_and(|local| of_vrfs.is_none_or(|of_vrfs| local < of_vrfs))
    }

    /// Rules that workers cannot follow, in the order in which they are asked. What such a rule selects goes to Linux.
    pub fn rule_problems(&self) -> Vec<Problem> {
        let mut rules: Vec<&Rule> = self.policy.list.iter().map(|(rule, _)| rule).collect();
        // No tables are made for the kernel's own rules, which are not asked one by one.
        let has_rules = [self.draft::<u32>().is_some(), self.draft::<u128>().is_some()];
        rules.retain(|rule| has_rules[rule.version as usize]);
        rules.sort_by_key(|rule| (rule.version, rule.priority));
        let problems = rules.into_iter().filter_map(|rule| {
            let why = if rule.version == IpVersion::V6 {
                self.why_not::<u128>(rule)
            } else {
                self.why_not::<u32>(rule)
            }?;
            Some(Problem { route: None, reason: format!("{}: {why}", text_of(rule)) })
        });
        problems.collect()
    }

    /// Why workers cannot follow a rule, if they cannot.
    fn why_not<A: MirrorFamily>(&self, rule: &Rule) -> Option<&'static str> {
        let selector = self.selector::<A>(rule)?;
        if self.policy.may_be_marked && rule.mark.is_some() {
            return Some("Linux's rules may mark packets, so what it may select goes to Linux");
        }
        if selector.is_partly_unknown {
            return Some(
                "it selects by more than addresses and the incoming interface, so what it may select goes to Linux",
            );
        }
        match self.action_of(self.draft_action(rule, |_| None)) {
            PolicyAction::End(Decision::Punt) if rule.is_l3mdev && rule.suppress_prefix_length.is_some() => {
                Some("l3mdev with suppress_prefixlength is Linux's to do, so what it selects goes there")
            }
            PolicyAction::End(Decision::Punt) if matches!(rule.action, RuleAction::Unknown(_)) => {
                Some("its action is unknown, so what it selects goes to Linux")
            }
            PolicyAction::End(Decision::Punt) => {
                Some("the router has no room for its table, so what it selects goes to Linux")
            }
            _ => None,
        }
    }

    /// What a rule does, now that the tables are made.
    fn action_of(&self, draft: Draft) -> PolicyAction {
        match draft {
            Draft::Ready(action) => action,
            Draft::Lookup(table, filter) => {
                let made = self.tables.for_rules.get(&(table, filter)).copied();
                let fib_table = if filter == Filter::default() { Some(table) } else { made };
                let vrf = fib_table.and_then(|fib_table| self.fib.vrf_index(fib_table));
                vrf.map_or(PolicyAction::End(Decision::Punt), PolicyAction::Lookup)
            }
        }
    }

    fn rules_of<A: MirrorFamily>(&self, drafts: Option<Vec<(PolicyRule<A>, Draft)>>) -> Rules<A> {
        let Some(drafts) = drafts else { return Rules::default() };
        let ready = |(rule, draft)| PolicyRule { action: self.action_of(draft), ..rule };
        Rules::new(drafts.into_iter().map(ready).collect())
    }
}

/// A rule in the words of `ip rule`.
fn text_of(rule: &Rule) -> String {
    let mut text = format!("{} rule {}:", rule.version, rule.priority);
    let mut word = |words: std::fmt::Arguments<'_>| {
        // Writing to a string does not fail.
        let _ = write!(text, " {words}");
    };
    if rule.is_inverted {
        word(format_args!("not"));
    }
    match rule.from {
        Some(from) => word(format_args!("from {from}")),
        None => word(format_args!("from all")),
    }
    if let Some(to) = rule.to {
        word(format_args!("to {to}"));
    }
    if let Some(input) = &rule.input {
        word(format_args!("iif {input}"));
    }
    match rule.mark {
        Some((mark, u32::MAX)) => word(format_args!("fwmark {mark:#x}")),
        Some((mark, mask)) => word(format_args!("fwmark {mark:#x}/{mask:#x}")),
        None => {}
    }
    match rule.action {
        _ if rule.is_l3mdev => word(format_args!("lookup l3mdev")),
        RuleAction::Table(table) => word(format_args!("lookup {table}")),
        RuleAction::Goto(priority) => word(format_args!("goto {priority}")),
        RuleAction::Nop => word(format_args!("nop")),
        RuleAction::Blackhole => word(format_args!("blackhole")),
        RuleAction::Unreachable => word(format_args!("unreachable")),
        RuleAction::Prohibit => word(format_args!("prohibit")),
        RuleAction::Unknown(action) => word(format_args!("action {action}")),
    }
    if let Some(length) = rule.suppress_prefix_length {
        word(format_args!("suppress_prefixlength {length}"));
    }
    text
}

/// Table local.
const ONLY_LOCAL: Filter = Filter { only_local: true, longer_than: None };
