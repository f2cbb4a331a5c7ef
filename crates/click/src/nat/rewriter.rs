//! The element behind the classes of rewriters, which differ in their [`Kind`] only.
//!
//! A batch goes over its packets twice: first all of their flows are read and hashed, and the table's memory asked for;
//! then one packet after the other is looked up, gets a mapping if it has none, and is rewritten.

use std::net::Ipv4Addr;

use graph::lang::split_words;
use graph::{Ask, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Put, Setup};
use packet::{Batch, MAX_BATCH};

use super::flow::Tuple;
use super::group::{Group, Membership};
use super::kind::{Kind, Sight, TCP, UDP};
use super::options::Options;
use super::rule::{Action, Reader, Rule};

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

/// The handlers of a rewriter: `own`, and those of all.
macro_rules! handlers {
    ($($own:expr),* $(,)?) => {
        &[
            $($own,)*
            Handler::read("nmappings", Combine::Sum, "Number of mappings.", &COUNT).metric("nat_mappings"),
            Handler::read("table_size", Combine::Sum, "As nmappings.", &COUNT),
            Handler::read(
                "mapping_failures",
                Combine::Sum,
                "Number of mappings that could not be made.",
                &Get(|e: &mut Rewriter| e.failures().to_string()),
            )
            .metric("nat_mapping_failures_total"),
            Handler::read(
                "size",
                Combine::Sum,
                "Number of mappings of all elements with the same capacity.",
                &Get(|e: &mut Rewriter| e.membership.lock().table.len().to_string()),
            ),
            Handler::read_write(
                "capacity",
                Combine::First,
                "The capacity of each worker.",
                &Get(|e: &mut Rewriter| e.membership.lock().table.capacity().to_string()),
                &Put(|e: &mut Rewriter, _, value| {
                    e.membership.lock().table.set_capacity(usize::from_value(value)?)
                }),
            ),
            Handler::read(
                "patterns",
                Combine::Join,
                "The INPUTSPECs, with their numbers of mappings. pattern0 and so on are one each, and can be \
                 written: the mappings that the old one made go then.",
                &Get(|e: &mut Rewriter| e.rules_text(None)),
            ),
            Handler::write(
                "clear",
                "Removes all mappings.",
                &Put(|e: &mut Rewriter, _, _| {
                    e.membership.lock().table.remove_if(|_| true);
                    Ok(())
                }),
            ),
        ]
    };
}

const COUNT: Get<Rewriter> = Get(|e| e.membership.lock().count(e.membership.member).to_string());
const ALL_MAPPINGS: Ask<Rewriter> = Ask(|e, cx, _| Ok(e.text(cx, |_| true)));
const TCP_MAPPINGS: Ask<Rewriter> = Ask(|e, cx, _| Ok(e.text(cx, |protocol| protocol == TCP)));
const UDP_MAPPINGS: Ask<Rewriter> = Ask(|e, cx, _| Ok(e.text(cx, |protocol| protocol == UDP)));
const TCP_LOOKUP: Ask<Rewriter> = Ask(|e, _, argument| e.lookup(TCP, argument));
const UDP_LOOKUP: Ask<Rewriter> = Ask(|e, _, argument| e.lookup(UDP, argument));

/// Those of IPRewriter.
pub(super) const BOTH_HANDLERS: &[Handler] = handlers!(
    Handler::read(
        "tcp_table",
        Combine::Join,
        "The mappings of TCP, two lines each: what becomes what, the outputs, with a star at the one that \
         counts, the input that made it, seconds until it expires.",
        &TCP_MAPPINGS,
    ),
    Handler::read("udp_table", Combine::Join, "The mappings of UDP, likewise.", &UDP_MAPPINGS),
    Handler::read("tcp_mappings", Combine::Join, "As tcp_table.", &TCP_MAPPINGS),
    Handler::read("udp_mappings", Combine::Join, "As udp_table.", &UDP_MAPPINGS),
    Handler::read(
        "tcp_lookup",
        Combine::Join,
        "Takes SADDR SPORT DADDR DPORT and returns what that becomes, if there is a mapping of TCP.",
        &TCP_LOOKUP,
    ),
    Handler::read("udp_lookup", Combine::Join, "The same for UDP.", &UDP_LOOKUP),
);

/// Those of TCPRewriter.
pub(super) const TCP_HANDLERS: &[Handler] = handlers!(
    Handler::read(
        "table",
        Combine::Join,
        "The mappings, as IPRewriter's tcp_table; behind a mapping whose sequence numbers differ, by how \
         much.",
        &ALL_MAPPINGS,
    ),
    Handler::read("mappings", Combine::Join, "As table.", &ALL_MAPPINGS),
    Handler::read(
        "lookup",
        Combine::Join,
        "Takes SADDR SPORT DADDR DPORT and returns what that becomes, if there is a mapping.",
        &TCP_LOOKUP,
    ),
);

/// Those of UDPRewriter.
pub(super) const UDP_HANDLERS: &[Handler] = handlers!(
    Handler::read("table", Combine::Join, "The mappings, as IPRewriter's udp_table.", &ALL_MAPPINGS),
    Handler::read("mappings", Combine::Join, "As table.", &ALL_MAPPINGS),
    Handler::read(
        "lookup",
        Combine::Join,
        "Takes SADDR SPORT DADDR DPORT of UDP and returns what that becomes, if there is a mapping.",
        &UDP_LOOKUP,
    ),
);

/// Those of ICMPPingRewriter.
pub(super) const PING_HANDLERS: &[Handler] = handlers!(
    Handler::read(
        "table",
        Combine::Join,
        "The mappings, two lines each: source, destination, identifier.",
        &ALL_MAPPINGS,
    ),
    Handler::read("mappings", Combine::Join, "As table.", &ALL_MAPPINGS),
);

/// Those of IPAddrRewriter and IPAddrPairRewriter.
pub(super) const ADDRESS_HANDLERS: &[Handler] = handlers!(
    Handler::read("table", Combine::Join, "The mappings, two lines each.", &ALL_MAPPINGS),
    Handler::read("mappings", Combine::Join, "As table.", &ALL_MAPPINGS),
);

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

    /// The mappings of the protocols that `which` says.
    fn text(&self, cx: &Context, which: impl Fn(u8) -> bool) -> String {
        self.membership.lock().text(self.membership.member, which, cx.now_ns())
    }

    /// The INPUTSPECs, or `only` one of them.
    fn rules_text(&self, only: Option<usize>) -> String {
        self.membership.lock().rules_text(self.membership.member, only)
    }

    /// Mappings that could not be made.
    fn failures(&self) -> u64 {
        self.membership.lock().members[self.membership.member].failures
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

    fn more_handlers(&self, name: &str) -> Option<Handler> {
        self.rule_number(name).map(|_| Handler::more_to_read_and_write("pattern", Combine::Join))
    }

    fn read_more(&mut self, _cx: &mut Context, name: &str, _argument: &str) -> Result<String, String> {
        let number = self.rule_number(name).ok_or_else(|| format!("no read handler '{name}'"))?;
        Ok(self.rules_text(Some(number)))
    }

    fn write_more(&mut self, _cx: &mut Context, name: &str, value: &str) -> Result<(), String> {
        let number = self.rule_number(name).ok_or_else(|| format!("no write handler '{name}'"))?;
        let mut group = self.membership.lock();
        let rule = self.reader.rule(None, value)?;
        group.replace_rule(self.membership.member, number, rule);
        Ok(())
    }
}
