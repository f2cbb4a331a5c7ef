//! =c
//! ACL(RULE, ... [, I<keywords> FILE, DEFAULT, INPUTS])
//!
//! =s ip
//! permits and denies packets by an ordered list of rules
//!
//! =d
//! The first rule that matches a packet, in the order of the rules' numbers, permits or denies it.
//! DEFAULT decides on a packet that matches none of them. Permitted packets leave by output 0.
//! Denied packets leave by output 1 if that is connected, and are dropped otherwise. The input
//! takes IPv4 packets as CheckIPHeader leaves them, IPv6 packets as CheckIP6Header does, or both
//! mixed. Packets are not changed.
//!
//! A rule is
//!
//!   [NUMBER] permit|deny [ipv4|ipv6] PROTOCOL FROM [port A[-B]] TO [port A[-B]] [CONDITION ...]
//!
//! PROTOCOL is `any`, a name such as tcp, udp, icmp, icmp6, gre, esp, ospf, or a number. FROM and
//! TO are `any`, an address, or a prefix such as 192.0.2.0/24 or 2001:db8::/32. A rule with a
//! prefix is for the prefix's family only. So is a rule with icmp, icmp6, `ipv4` or `ipv6`. Other
//! rules are for both families. Ports belong to tcp, udp, sctp, dccp and udplite. A rule without
//! NUMBER gets the number of the rule before plus ten. `#` begins a comment. Conditions are:
//!
//! =item in INTERFACE
//! the paint annotation of the packet, by number, or by a name given in INPUTS.
//!
//! =item icmp-type TYPE[/CODE]
//! ICMP messages of this TYPE and, if given, this CODE. The PROTOCOL is icmp or icmp6.
//!
//! =item established
//! TCP segments with the ACK or the RST bit: not the first one of a connection.
//!
//! =item fragment
//! fragments other than the first.
//!
//! =back
//!
//! Keyword arguments are:
//!
//! =item FILE
//! a file with rules, one a line, beside those among the arguments.
//!
//! =item DEFAULT
//! `permit` or `deny`, for packets that no rule matches. Without it a list that has a `permit`, or
//! no rule, denies them; a list of nothing but denials permits them. Rules that are added or
//! removed one by one do not change that.
//!
//! =item INPUTS
//! names of paints, such as "eth0 1, eth1 2", behind `Paint(1)` and `Paint(2)` after the FromDevice of these
//! interfaces.
//!
//! =back
//!
//! B<Fragments.> A fragment other than the first has no transport header. Rules with ports,
//! icmp-type or established do not match such a fragment; rules without these do. A list that is to
//! deny such fragments needs a rule with `fragment`. So does a list that is to permit the fragments
//! that belong to a permitted first fragment.
//!
//! The attacks of RFC 1858 and RFC 3128 use fragments. Against them, a list that has a rule with
//! ports, icmp-type or established always denies these packets, whatever its other rules permit:
//!
//! =item *
//! a first fragment that ends before its ports or, of TCP, within its first 16 octets,
//!
//! =item *
//! a second TCP fragment that begins inside the header (offset 8),
//!
//! =item *
//! a fragment that ends beyond 65,535 octets,
//!
//! =item *
//! a whole packet that is too short for its transport header.
//!
//! =back
//!
//! B<IPv6 extension headers.> The protocol is that of the header behind hop-by-hop options, routing,
//! fragment, destination options and authentication headers, at most eight. Where these do not lead
//! to such a header, the protocol is hidden. This is so in a later fragment too, if the first
//! fragment holds more of these headers. Then a list denies the packet if one of its rules asks for
//! a protocol, or for fields behind it.
//!
//! B<Changes> are made while packets flow. Each batch is judged by the list before the change or by
//! the list after it. A thousand rules take some milliseconds to compile. When the program reads
//! its access list again, it compiles on a thread of its own. After a write to a handler, the slow
//! thread compiles if the configuration has one for this element (behind a Punt). Otherwise the
//! last worker compiles, between two batches.
//!
//! Drop reasons: `denied by rule`, `denied by default`, `tiny fragment`,
//! `fragment beyond 65535 octets`, `truncated transport header`, `no IP header`,
//! `fragment of a hidden protocol`, and those of IPv6 extension headers.
//!
//! =e
//!   ... -> Strip(14) -> CheckIPHeader
//!       -> ACL(10 permit tcp any 192.0.2.0/24 port 80-443 in eth1,
//!              20 permit tcp any any established,
//!              30 permit icmp any any icmp-type 8,
//!              40 deny any 198.51.100.0/24 any,
//!              50 permit udp any port 53 any,
//!              DEFAULT deny, INPUTS "eth0 1, eth1 2")
//!       -> ...
//!
//! =a IPFilter, IPClassifier, CheckIPHeader, Paint

use std::sync::Arc;

use fib::publish::Reader;
use graph::lang::{split_arguments, split_words, unquote};
use graph::{Class, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Put, Setup, Verdict};
use packet::{Batch, MAX_BATCH, Packet};

use crate::devices::MergedPorts;

use super::compiled::Answer;
use super::facts::{self, Flaw};
use super::list::{AccessList, List, Rooms};
use super::parse::{RuleMistake, parse_list};
use super::rule::{Action, Inputs, Rule};

pub(crate) static CLASS: Class = Class {
    name: "ACL",
    ports: "1/1-2",
    processing: Class::AGNOSTIC_WITH_ERRORS,
    capabilities: &[super::ACCESS_LIST, graph::TAKES_MERGED],
    handlers: HANDLERS,
    manual: graph::manual!("access_control.rs"),
    make,
    ..Class::DEFAULT
};

/// The output of denied packets.
const DENIED: usize = 1;

/// One copy answers, the one that makes changes.
const HANDLERS: &[Handler] = &[
    Handler::write(
        "add",
        "Adds a rule at its number, or behind the last.",
        &Put(|e: &mut AccessControl, _, value| e.change(|list| list.add(value))),
    ),
    Handler::read(
        "count",
        Combine::Join,
        "Number of rules.",
        &Get(|e: &mut AccessControl| e.tell(|list| list.len().to_string())),
    ),
    Handler::read(
        "default",
        Combine::Join,
        "What becomes of packets that no rule matches, and the count of these.",
        &Get(|e: &mut AccessControl| e.tell(AccessList::default_text)),
    ),
    Handler::read(
        "memory",
        Combine::Join,
        "Bytes of memory that the compiled list takes.",
        &Get(|e: &mut AccessControl| e.tell(|list| list.memory_bytes().to_string())),
    ),
    Handler::write(
        "remove",
        "Removes the rule of a number.",
        &Put(|e: &mut AccessControl, _, value| e.change(|list| list.remove(u32::from_value(value)?))),
    ),
    Handler::write(
        "reset_counts",
        "Counts from zero again.",
        &Put(|e: &mut AccessControl, _, _| {
            e.change(|list| {
                list.reset_counts();
                Ok(())
            })
        }),
    ),
    Handler::read(
        "rules",
        Combine::Join,
        "The rules in order, each with the packets and bytes (from the IP header on) that met it, as a \
         comment: what `set` takes.",
        &Get(|e: &mut AccessControl| e.tell(AccessList::text)),
    ),
    Handler::write(
        "set",
        "Lines of rules, which take the place of all there are. If one is wrong, nothing changes. Rules that \
         stay as they are keep their counts.",
        &Put(|e: &mut AccessControl, _, value| e.change(|list| list.replace(value))),
    ),
];

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let file = setup.arguments.keyword::<String>("FILE")?.unwrap_or_default();
    let default = match setup.arguments.keyword::<String>("DEFAULT")?.as_deref() {
        Some("permit") => Some(Action::Permit),
        Some("deny") => Some(Action::Deny),
        None => None,
        Some(other) => return Err(format!("DEFAULT is '{other}'; expected permit or deny").into()),
    };
    let inputs = parse_inputs(&setup.arguments.keyword::<String>("INPUTS")?.unwrap_or_default())?;
    let mut arguments = setup.arguments.rest();
    // What is left of `FILE $RULES` when the variable is empty.
    arguments.retain(|argument| argument != "FILE");
    setup.arguments.finish()?;
    let copy = setup.copy();
    let list = setup.shared_by_copies(|| {
        let rules = configured(&arguments, &file, &inputs)?;
        Ok::<_, ConfigError>(AccessList::new(rules, default, inputs, copy.count()))
    })?;
    list.join(copy.index);
    let merged = setup.shared().get::<MergedPorts>(MergedPorts::KEY);
    Ok(Box::new(AccessControl {
        may_be_merged: merged.is_some_and(|ports| !ports.0.is_empty()),
        reader: list.reader(),
        list,
        copy: copy.index,
        rooms: Box::new(Rooms::new()),
        answers: Box::new([Answer::FLAWED; MAX_BATCH]),
    }))
}

/// Reads `NAME PAINT, NAME PAINT`.
pub(super) fn parse_inputs(text: &str) -> Result<Inputs, String> {
    let mut inputs = Inputs::default();
    for part in split_arguments(text) {
        let paint = match split_words(&part).as_slice() {
            [name, paint] => u8::from_argument(paint).map(|paint| (unquote(name), paint)),
            _ => None,
        };
        let Some((name, paint)) = paint else {
            return Err(format!(
                "INPUTS: '{part}': not an input; expected a name and a paint from 0 to 255, such as 'eth0 1'"
            ));
        };
        // A name that is a number would be taken for the paint.
        let clash = inputs.0.iter().any(|(known, its)| *known == name || *its == paint);
        if clash || name.parse::<u8>().is_ok() {
            return Err(format!(
                "INPUTS: '{part}': expected a name and a paint of its own; the name must not be a number"
            ));
        }
        inputs.0.push((name, paint));
    }
    Ok(inputs)
}

/// The rules of the configuration.
fn configured(arguments: &[String], file: &str, inputs: &Inputs) -> Result<Vec<Rule>, ConfigError> {
    let text = match file {
        "" => String::new(),
        path => graph::files::read_text(path.as_ref()).map_err(|error| {
            format!("FILE: cannot read '{path}': {error}; expected a text file with one rule a line")
        })?,
    };
    let of_arguments = arguments.iter().enumerate();
    let of_arguments = of_arguments.map(|(index, text)| (format!("argument {}", index + 1), text.as_str()));
    let of_file = (1..).zip(text.lines()).map(|(number, line)| (format!("{file}:{number}"), line));
    Ok(parse_list(of_arguments.chain(of_file), inputs).map_err(RuleMistake::texts)?)
}

struct AccessControl {
    list: Arc<AccessList>,
    /// This copy's access to the compiled list.
    reader: Reader<Arc<List>>,
    /// Which copy of the graph this is in.
    copy: usize,
    /// Whether packets may be merged.
    may_be_merged: bool,
    rooms: Box<Rooms>,
    answers: Box<[Answer; MAX_BATCH]>,
}

impl AccessControl {
    /// What the copy that answers says of the list; nothing on the others.
    fn tell(&self, text: impl FnOnce(&AccessList) -> String) -> String {
        if self.list.is_last(self.copy) { text(&self.list) } else { String::new() }
    }

    /// Changes the list, on the copy that does so.
    fn change(&self, change: impl FnOnce(&AccessList) -> Result<(), String>) -> Result<(), String> {
        if self.list.is_last(self.copy) { change(&self.list) } else { Ok(()) }
    }
}

impl Element for AccessControl {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        let answers = &mut self.answers[..batch.len()];
        let list = self.reader.enter();
        let permitted = list.judge(self.copy, batch.packets(), &mut self.rooms, answers);
        if self.may_be_merged {
            count_pieces(&list, self.copy, batch.packets(), answers);
        }
        let default = list.default_rule();
        drop(list);
        if permitted == answers.len() {
            return;
        }
        let mut answers = answers.iter();
        cx.filter(batch, |packet| match answers.next() {
            Some(answer) if answer.permits() => Verdict::Keep,
            Some(answer) if answer.rule() == default => Verdict::Divert(DENIED, "denied by default"),
            Some(answer) if *answer != Answer::FLAWED => Verdict::Divert(DENIED, "denied by rule"),
            _ => Verdict::Divert(DENIED, flaw(packet).reason()),
        });
    }
}

/// Counts merged packets, which are counted as one each, as what they are on a link.
#[cold]
fn count_pieces(list: &List, copy: usize, packets: &[Packet], answers: &[Answer]) {
    for (packet, answer) in packets.iter().zip(answers).filter(|(_, answer)| **answer != Answer::FLAWED) {
        if let Some(merged) = packet.merged() {
            let more = packet.pieces() - 1;
            list.count(copy, answer.rule(), more, more * u64::from(merged.payload - merged.network));
        }
    }
}

/// What is wrong with a packet that no rule could judge.
#[cold]
fn flaw(packet: &Packet) -> Flaw {
    let facts = match facts::version(packet) {
        Some(4) => facts::of_ipv4(packet).map(|(.., facts)| facts),
        Some(6) => facts::of_ipv6(packet).map(|(.., facts)| facts),
        _ => None,
    };
    facts.and_then(|facts| facts.flaw).unwrap_or(Flaw::NoHeader)
}
