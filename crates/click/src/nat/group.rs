//! Rewriters of one copy that have a capacity in common, often just one: their table, their rules, and how mappings are
//! found and made.
//!
//! **Who shares it.** ICMPRewriter and FTPPortMapper look into the tables of rewriters that they name, and rewriters
//! share capacities; elements never call each other. So a group lies among the copy's shared things, behind a mutex. No
//! other thread ever takes that: each copy has groups of its own, and handlers run on the copy's thread. It is locked
//! once for each batch, some 40 cycles, one or two for each packet of a full one; nobody waits, and nothing is
//! called while it is held.

use packet::sync::lock;
use std::fmt::Write;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use graph::{ConfigError, Setup};
use packet::Packet;

use super::flow::{Flow, Key, Tuple};
use super::kind::{Kind, Sight};
use super::options::{CAPACITY, Capacity, Classes, Options};
use super::rule::{Action, Rule};
use super::table::{Place, Table};
use super::translate::{Annotate, translate};

/// A rewriter's part of its group.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) kind: Kind,
    pub(super) classes: Classes,
    pub(super) annotate: Annotate,
    /// One an input, and behind those the ones that other elements brought.
    pub(super) rules: Vec<Rule>,
    pub(super) inputs: usize,
    /// Most flows that packets of one host may have begun.
    pub(super) host_flows: Option<u32>,
    pub(super) failures: u64,
}

/// Rewriters with a capacity in common.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) table: Table,
    pub(super) members: Vec<Member>,
    /// Ports are to be unpredictable (RFC 6056): a pseudo-random function with a key of the operating
    /// system's random numbers, and how often it was asked.
    random: RandomState,
    drawn: u64,
}

/// A group, and who of it.
#[derive(Clone, Debug)]
pub(super) struct Membership {
    group: Arc<Mutex<Group>>,
    pub(super) member: usize,
}

/// Where an element finds a rewriter that may be made later.
type MemberSlot = OnceLock<Membership>;

/// A rewriter that an element named.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) outputs: usize,
    slot: Arc<MemberSlot>,
}

/// Why a packet got no mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It passes, by this output.
    Pass(u16),
    Drop(&'static str),
}

/// Most flows of one host where nobody gave a number: half of the table, unless that is small.
fn default_host_flows(capacity: usize) -> u32 {
    (capacity / 2).max(1024) as u32
}

fn slot(setup: &Setup<'_>, name: &str) -> Result<Arc<MemberSlot>, ConfigError> {
    let key = format!("IP rewriter {name} on {}", setup.copy().index);
    setup.shared().get_or_make(&key, || Ok(MemberSlot::new()))
}

impl Named {
    /// The rewriter that `name` means to the element being made.
    pub(super) fn find(setup: &Setup<'_>, name: &str) -> Result<Self, ConfigError> {
        let element = setup.find(name).ok_or_else(|| format!("there is no element named '{name}'"))?;
        let kind = Kind::of(&element.class)
            .ok_or_else(|| format!("'{name}' is a {}, not an IP rewriter", element.class))?;
        let slot = slot(setup, &element.name)?;
        Ok(Self { name: name.to_owned(), kind, outputs: element.outputs, slot })
    }

    /// The rewriter itself, once all elements are made.
    pub(super) fn get(&self) -> Result<Membership, String> {
        self.slot.get().cloned().ok_or_else(|| format!("'{}' does not work on this thread", self.name))
    }
}

impl Membership {
    /// Makes the element being made a member of its group; its rules come with `outputs` outputs.
    pub(super) fn join(setup: &Setup<'_>, kind: Kind, options: &Options) -> Result<Self, ConfigError> {
        let leader = options.capacity.leader(setup)?;
        let key = format!("IP rewriters of {leader} on {}", setup.copy().index);
        let group = setup.shared().get_or_make(&key, || {
            let table = Table::new(CAPACITY, setup.flow_key())?;
            let random = RandomState::new();
            Ok::<_, String>(Mutex::new(Group { table, members: Vec::new(), random, drawn: 0 }))
        })?;
        let mut inside = lock(&group);
        if let Capacity::Of(capacity) = options.capacity {
            inside.table.set_capacity(capacity)?;
        }
        let classes = options.classes(&mut inside.table)?;
        let inputs = setup.inputs();
        let Options { annotate, host_flows, .. } = *options;
        let rules = Vec::new();
        inside.members.push(Member { kind, classes, annotate, rules, inputs, host_flows, failures: 0 });
        let member = inside.members.len() - 1;
        drop(inside);
        let membership = Self { group, member };
        let _ = slot(setup, setup.name())?.set(membership.clone());
        Ok(membership)
    }

    /// The group.
    #[inline(always)]
    pub(super) fn lock(&self) -> MutexGuard<'_, Group> {
        lock(&self.group)
    }
}

impl Group {
    /// Adds a rule; packets of an input find theirs by its number.
    pub(super) fn add_rule(&mut self, member: usize, mut rule: Rule) -> Result<usize, String> {
        rule.owner = self.table.owner()?;
        let member = self.members.get_mut(member).ok_or("no such rewriter")?;
        member.rules.push(rule);
        Ok(member.rules.len() - 1)
    }

    /// Puts another rule in the place of one, whose flows go.
    pub(super) fn replace_rule(&mut self, member: usize, number: usize, rule: Rule) {
        let rules = self.members.get_mut(member).map(|member| &mut member.rules);
        if let Some(known) = rules.and_then(|rules| rules.get_mut(number)) {
            let owner = known.owner;
            *known = Rule { owner, ..rule };
            self.table.remove_if(|flow| flow.owner == owner);
        }
    }

    /// Begins a batch.
    #[inline(always)]
    pub(super) fn begin(&mut self, now_ns: u64) {
        self.table.expire(now_ns);
    }

    fn map(member: usize, protocol: u8) -> u32 {
        (member as u32) << 8 | u32::from(protocol)
    }

    /// What the table is asked for.
    #[inline(always)]
    pub(super) fn key(kind: Kind, member: usize, sight: &Sight) -> Key {
        let protocol = if matches!(kind, Kind::Address | Kind::Pair) { 0 } else { sight.protocol };
        Key { tuple: kind.tuple(sight.tuple), map: Self::map(member, protocol) }
    }

    /// The mapping of a packet.
    #[inline(always)]
    pub(super) fn find_hashed(&self, kind: Kind, hash: u32, key: &Key, sight: &Sight) -> Option<Place> {
        let found = self.table.find_hashed(hash, key);
        found.or_else(|| kind.second_key(sight, key.map).and_then(|key| self.table.find(&key)))
    }

    /// The mapping of a packet seen so.
    pub(super) fn find(&self, member: usize, sight: &Sight) -> Option<Place> {
        let kind = self.members.get(member)?.kind;
        let key = Self::key(kind, member, sight);
        self.find_hashed(kind, self.table.hash(&key), &key, sight)
    }

    /// What a packet of a mapping becomes.
    pub(super) fn translated(&self, member: usize, place: Place, packet: Tuple) -> Option<Tuple> {
        let (member, flow) = (self.members.get(member)?, self.table.get(place.flow)?);
        Some(member.kind.translated(flow, place.reply, packet))
    }

    /// Makes a mapping as rule `number` says.
    #[cold]
    #[inline(never)]
    pub(super) fn make(
        &mut self,
        number: usize,
        member: usize,
        sight: &Sight,
        now_ns: u64,
    ) -> Result<Place, Refusal> {
        let Self { table, members, random, drawn } = self;
        let known = members.get_mut(member).ok_or(Refusal::Drop("no mapping"))?;
        let rule = known.rules.get(number).ok_or(Refusal::Drop("no mapping"))?;
        let (kind, owner) = (known.kind, rule.owner);
        let Key { tuple: original, map } = Self::key(kind, member, sight);
        let settle = kind.settle();
        let mut draw = || {
            *drawn = drawn.wrapping_add(1);
            random.hash_one(*drawn)
        };
        let taken = |tuple: Tuple| table.seems_taken(&Key { tuple: tuple.reversed(), map });
        let most = known.host_flows.unwrap_or_else(|| default_host_flows(table.capacity()));
        let (rewritten, outputs) = match &rule.action {
            Action::Pass => return Err(Refusal::Pass(rule.outputs[0])),
            Action::Drop => return Err(Refusal::Drop("no mapping")),
            _ if !sight.begins => return Err(Refusal::Drop("no mapping")),
            _ if table.of_host(original.source) >= most => {
                known.failures += 1;
                return Err(Refusal::Drop("too many flows of one host"));
            }
            Action::Keep => (Some(original), rule.outputs),
            Action::Pattern(pattern) => (pattern.rewrite(original, taken, settle, draw), rule.outputs),
            Action::Mapper(mapper) => {
                let mut found = (None, rule.outputs);
                for (pattern, outputs) in mapper.get().iter().flat_map(|mapper| mapper.candidates(original)) {
                    found = (pattern.rewrite(original, taken, settle, &mut draw), *outputs);
                    if found.0.is_some() {
                        break;
                    }
                }
                found
            }
        };
        let Some(rewritten) = rewritten else {
            known.failures += 1;
            return Err(Refusal::Drop("no port or address free"));
        };
        let flow = Flow::new(original, rewritten, map, outputs, owner);
        let class = known.classes.of(kind, &flow);
        match table.insert(flow, class, now_ns) {
            Some(flow) => Ok(Place { flow, reply: false }),
            None => {
                known.failures += 1;
                Err(Refusal::Drop("mapping table full"))
            }
        }
    }

    /// What becomes of a packet that cannot have a mapping, for `reason`.
    #[cold]
    pub(super) fn without_mapping(
        &self,
        member: usize,
        input: usize,
        reason: &'static str,
    ) -> Result<usize, &'static str> {
        match self.members.get(member).and_then(|member| member.rules.get(input)) {
            Some(Rule { action: Action::Pass, outputs: [output, _], .. }) if reason != "no IP header" => {
                Ok(usize::from(*output))
            }
            _ => Err(reason),
        }
    }

    /// Translates a packet; the output it leaves by.
    #[inline(always)]
    pub(super) fn translate(
        &mut self,
        (input, member, hash): (usize, usize, u32),
        sight: &Sight,
        packet: &mut Packet,
        now_ns: u64,
    ) -> Result<usize, &'static str> {
        let Some(&Member { kind, classes, annotate, .. }) = self.members.get(member) else {
            return Err("no mapping");
        };
        let key = Self::key(kind, member, sight);
        let (place, kept) = match self.find_hashed(kind, hash, &key, sight) {
            Some(place) => (place, None),
            None => match self.make(input, member, sight, now_ns) {
                Ok(place) => (place, Some(annotate.kept(packet))),
                Err(Refusal::Pass(output)) => return Ok(usize::from(output)),
                Err(Refusal::Drop(reason)) => return Err(reason),
            },
        };
        let Some((flow, shifts)) = self.table.get_mut(place.flow) else { return Err("no mapping") };
        if let Some(kept) = kept {
            flow.reply_annotation = kept;
        }
        let output = usize::from(flow.outputs[usize::from(place.reply)]);
        translate(kind, (&mut *flow, shifts), place.reply, packet, sight.tuple, &annotate);
        let class = classes.of(kind, flow);
        self.table.touch(place.flow, class, now_ns);
        Ok(output)
    }

    // ---- for people -------------------------------------------------------------------------------------

    /// The mappings of a rewriter whose protocol `which` says; two lines each.
    pub(super) fn text(&self, member: usize, which: impl Fn(u8) -> bool, now_ns: u64) -> String {
        let mut text = String::new();
        let Some(known) = self.members.get(member) else { return text };
        for flow in self.table.iter().filter(|flow| flow.map >> 8 == member as u32 && which(flow.protocol()))
        {
            let rule = known.rules.iter().position(|rule| rule.owner == flow.owner).unwrap_or(0);
            let left_ns = self.table.expiry_ns(flow).saturating_sub(now_ns);
            let seconds = (left_ns + 500_000_000) / 1_000_000_000;
            for reply in [false, true] {
                if !reply && flow.key(false) == flow.key(true) {
                    continue;
                }
                // Writing into a string does not fail.
                let _ = write!(text, "{}", Line { kind: known.kind, flow, reply });
                let shift = self.table.known_shifts(flow).map_or(0, |shifts| shifts.latest(reply));
                if shift != 0 {
                    let _ = write!(text, " seq {shift:+}");
                }
                let [forward, back] = flow.outputs;
                let (one, other) = if reply { ("", "*") } else { ("*", "") };
                let _ = writeln!(text, " [{one}{forward} {other}{back}] i{rule} exp{seconds}");
            }
        }
        text
    }

    /// The rules of a rewriter's inputs, or that of one.
    pub(super) fn rules_text(&self, member: usize, only: Option<usize>) -> String {
        let mut text = String::new();
        let Some(known) = self.members.get(member) else { return text };
        for (number, rule) in known.rules.iter().enumerate().take(known.inputs) {
            if only.is_some_and(|only| only != number) {
                continue;
            }
            let _ = match &rule.action {
                Action::Drop => write!(text, "<drop>"),
                Action::Pass => write!(text, "<nochange>"),
                Action::Keep => write!(text, "<keep>"),
                Action::Pattern(pattern) => write!(text, "{pattern}"),
                Action::Mapper(_) => write!(text, "<mapper>"),
            };
            let _ = match self.table.count(rule.owner) {
                0 => writeln!(text),
                count => writeln!(text, " [{count}]"),
            };
        }
        text
    }

    /// Number of a rewriter's mappings.
    pub(super) fn count(&self, member: usize) -> u64 {
        let rules = self.members.get(member).map_or(&[][..], |member| &member.rules);
        rules.iter().map(|rule| u64::from(self.table.count(rule.owner))).sum()
    }
}

/// One way of a mapping, as each kind prints it.
struct Line<'a> {
    kind: Kind,
    flow: &'a Flow,
    reply: bool,
}

impl std::fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (from, to) = (self.flow.key(self.reply).tuple, self.flow.target(self.reply));
        let address = |address: u32| std::net::Ipv4Addr::from_bits(address);
        let addresses = |tuple: Tuple| (address(tuple.source), address(tuple.destination));
        let ((a, b), (c, d)) = (addresses(from), addresses(to));
        match (self.kind, self.reply) {
            (Kind::Address, false) => write!(f, "{a} => {c}"),
            (Kind::Address, true) => write!(f, "{b} => {d}"),
            (Kind::Pair, _) => write!(f, "({a}, {b}) => ({c}, {d})"),
            (Kind::Ping, false) => {
                write!(f, "({a}, {b}, {}) => ({c}, {d}, {})", from.source_port, to.source_port)
            }
            (Kind::Ping, true) => {
                write!(f, "({a}, {b}, {}) => ({c}, {d}, {})", from.destination_port, to.destination_port)
            }
            _ => write!(f, "{from} => {to}"),
        }
    }
}
