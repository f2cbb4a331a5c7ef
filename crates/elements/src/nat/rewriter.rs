//! The element behind the classes of rewriters, which differ in their [`Kind`] only.
//!
//! A batch goes over its packets twice: first all of their flows are read and hashed, and the table's memory asked for;
//! then one packet after the other is looked up, gets a mapping if it has none, and is rewritten.

use std::net::Ipv4Addr;

use graph::lang::split_words;
use graph::{Combine, ConfigError, Context, Element, FromArgument, Handler, Setup};
use packet::{Batch, MAX_BATCH};

use super::flow::Tuple;
use super::group::{Group, Membership};
use super::kind::{Kind, Sight, TCP, UDP};
use super::options::Options;
use super::rule::{Action, Reader, Rule};

/// The port code of rewriters.
pub(super) const PORTS: &str = "1-/1-";

/// Makes a rewriter.
pub(super) fn make(setup: &mut Setup<'_>, kind: Kind) -> Result<Box<dyn Element>, ConfigError> {
    let options = Options::read(&mut setup.arguments, kind)?;
    let texts = setup.arguments.rest();
    setup.arguments.finish()?;
    let mut errors = Vec::new();
    if texts.len() != setup.inputs() {
        let (inputs, given) = (setup.inputs(), texts.len());
        errors.push(format!("expected {inputs} INPUTSPECs, one an input, got {given}"));
    }
    let reader = Reader::new(setup, kind, setup.outputs());
    let mut rules = Vec::new();
    for (number, text) in texts.iter().enumerate() {
        match reader.rule(Some(setup), text) {
            Ok(rule) => rules.push(rule),
            Err(error) => errors.push(format!("input spec {number}: {error}")),
        }
    }
    if !errors.is_empty() {
        return Err(errors.into());
    }
    let membership = Membership::join(setup, kind, &options)?;
    let mut group = membership.lock();
    for rule in rules {
        group.add_rule(membership.member, rule)?;
    }
    drop(group);
    let seen = Vec::with_capacity(MAX_BATCH);
    Ok(Box::new(Rewriter { kind, membership, reader, reap_ns: options.reap_ns, seen }))
}

struct Rewriter {
    kind: Kind,
    membership: Membership,
    reader: Reader,
    reap_ns: u64,
    /// Flows of a batch's packets, with their hashes, or why they have none.
    seen: Vec<Result<(Sight, u32), &'static str>>,
}

/// Handlers of all rewriters.
macro_rules! handlers {
    ($($own:expr),*) => {
        &[
            $($own,)*
            Handler::read("nmappings", Combine::Sum),
            Handler::read("table_size", Combine::Sum),
            Handler::read("mapping_failures", Combine::Sum),
            Handler::read("size", Combine::Sum),
            Handler::read_write("capacity", Combine::First),
            Handler::read("patterns", Combine::Join),
            Handler::write("clear"),
        ]
    };
}

const BOTH_HANDLERS: &[Handler] = handlers!(
    Handler::read("tcp_table", Combine::Join),
    Handler::read("udp_table", Combine::Join),
    Handler::read("tcp_mappings", Combine::Join),
    Handler::read("udp_mappings", Combine::Join),
    Handler::read("tcp_lookup", Combine::Join),
    Handler::read("udp_lookup", Combine::Join)
);

const PORT_HANDLERS: &[Handler] = handlers!(
    Handler::read("table", Combine::Join),
    Handler::read("mappings", Combine::Join),
    Handler::read("lookup", Combine::Join)
);

const HANDLERS: &[Handler] =
    handlers!(Handler::read("table", Combine::Join), Handler::read("mappings", Combine::Join));

impl Rewriter {
    /// The number in `pattern0`, `pattern1` ...
    fn rule_number(&self, name: &str) -> Option<usize> {
        let digits =
            name.strip_prefix("pattern").filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))?;
        digits
            .parse()
            .ok()
            .filter(|number| *number < self.membership.lock().members[self.membership.member].inputs)
    }

    fn lookup(&self, protocol: u8, argument: &str) -> Result<String, String> {
        let words = split_words(argument);
        let read = || -> Option<Tuple> {
            let [source, source_port, destination, destination_port] = words.as_slice() else { return None };
            Some(Tuple {
                source: Ipv4Addr::from_argument(source)?.to_bits(),
                destination: Ipv4Addr::from_argument(destination)?.to_bits(),
                source_port: u16::from_argument(source_port)?,
                destination_port: u16::from_argument(destination_port)?,
            })
        };
        let tuple = read().ok_or_else(|| format!("expected SADDR SPORT DADDR DPORT, got '{argument}'"))?;
        let (group, member) = (self.membership.lock(), self.membership.member);
        let found = group.find(member, &Sight { tuple, protocol, begins: true });
        let Some(new) = found.and_then(|place| group.translated(member, place, tuple)) else {
            return Ok(String::new());
        };
        let [source, destination] = [new.source, new.destination].map(Ipv4Addr::from_bits);
        Ok(format!("{source} {} {destination} {}", new.source_port, new.destination_port))
    }

    /// Whether what mappers choose fits this rewriter.
    fn check_mappers(&self, rules: &[Rule]) -> Result<(), String> {
        for (input, rule) in rules.iter().enumerate() {
            let Action::Mapper(mapper) = &rule.action else { continue };
            let mapper =
                mapper.get().ok_or_else(|| format!("input {input}: the mapper does not work here"))?;
            for (pattern, outputs) in &mapper.patterns {
                self.kind.accepts(pattern)?;
                if let Some(output) =
                    outputs.iter().find(|output| usize::from(**output) >= self.reader.outputs)
                {
                    return Err(format!("input {input}: the mapper's output {output} is out of range"));
                }
            }
        }
        Ok(())
    }
}

impl Element for Rewriter {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        let group = self.membership.lock();
        let rules = group.members.get(self.membership.member).map_or(&[][..], |member| &member.rules);
        self.check_mappers(rules)?;
        if self.reap_ns > 0 {
            cx.set_timer(0, cx.now_ns().saturating_add(self.reap_ns));
        }
        Ok(())
    }

    fn push(&mut self, cx: &mut Context, input: usize, batch: &mut Batch) {
        let Self { kind, membership, seen, .. } = self;
        let (kind, member, now_ns) = (*kind, membership.member, cx.now_ns());
        let mut group = membership.lock();
        let group = &mut *group;
        group.begin(now_ns);
        seen.clear();
        seen.extend(batch.packets().iter().map(|packet| {
            let sight = kind.sight(packet)?;
            let hash = group.table.hash(&Group::key(kind, member, &sight));
            group.table.prefetch_index(hash);
            Ok((sight, hash))
        }));
        for (_, hash) in seen.iter().flatten() {
            group.table.prefetch_flow(*hash);
        }
        let mut seen = seen.iter();
        cx.classify(batch, |packet| match seen.next() {
            Some(Ok((sight, hash))) => group.translate((input, member, *hash), sight, packet, now_ns),
            Some(Err(reason)) => group.without_mapping(member, input, reason),
            None => Err("no mapping"),
        });
    }

    fn timer(&mut self, cx: &mut Context, _key: u32) {
        // Packets drop a few expired mappings on their way; this is for when none come.
        let more = self.membership.lock().table.expire(cx.now_ns());
        let next_ns = if more { 1_000_000 } else { self.reap_ns };
        cx.set_timer(0, cx.now_ns().saturating_add(next_ns));
    }

    fn handlers(&self) -> &'static [Handler] {
        match self.kind {
            Kind::Both => BOTH_HANDLERS,
            Kind::Tcp | Kind::Udp => PORT_HANDLERS,
            _ => HANDLERS,
        }
    }

    fn more_handlers(&self, name: &str) -> Option<Handler> {
        self.rule_number(name).map(|_| Handler::read_write("pattern", Combine::Join))
    }

    fn read_in(&mut self, cx: &mut Context, name: &str, argument: &str) -> Result<String, String> {
        let (member, now_ns) = (self.membership.member, cx.now_ns());
        match name {
            "tcp_lookup" => return self.lookup(TCP, argument),
            "lookup" if self.kind == Kind::Tcp => return self.lookup(TCP, argument),
            "udp_lookup" | "lookup" => return self.lookup(UDP, argument),
            _ => {}
        }
        let only = self.rule_number(name);
        let group = self.membership.lock();
        Ok(match name {
            "tcp_table" | "tcp_mappings" => group.text(member, |protocol| protocol == TCP, now_ns),
            "udp_table" | "udp_mappings" => group.text(member, |protocol| protocol == UDP, now_ns),
            "table" | "mappings" => group.text(member, |_| true, now_ns),
            "nmappings" | "table_size" => group.count(member).to_string(),
            "mapping_failures" => group.members[member].failures.to_string(),
            "size" => group.table.len().to_string(),
            "capacity" => group.table.capacity().to_string(),
            "patterns" => group.rules_text(member, None),
            _ if only.is_some() => group.rules_text(member, only),
            _ => return Err(format!("no read handler '{name}'")),
        })
    }

    fn write(&mut self, _cx: &mut Context, name: &str, value: &str) -> Result<(), String> {
        let (member, number) = (self.membership.member, self.rule_number(name));
        let mut group = self.membership.lock();
        match (name, number) {
            ("clear", _) => group.table.remove_if(|_| true),
            ("capacity", _) => group.table.set_capacity(usize::from_value(value)?)?,
            (_, Some(number)) => {
                let rule = self.reader.rule(None, value)?;
                group.replace_rule(member, number, rule);
            }
            _ => return Err(format!("no write handler '{name}'")),
        }
        Ok(())
    }
}
