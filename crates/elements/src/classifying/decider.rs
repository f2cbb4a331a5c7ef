//! What `Classifier`, `IPClassifier` and `IPFilter` have in common: a decision program at work.

use graph::runs::Ordinary;
use graph::{Arguments, Ask, Combine, ConfigError, Context, Element, Get, Handler, Put, Setup};
use packet::{Batch, Packet};

use crate::decision::{Compiled, Program, Room, Shortcut, View};
use crate::runs::{self, Step};

/// Compiles the patterns of an element with so many outputs.
pub type Compile = fn(&[String], usize) -> Compiled;

/// An element that sends packets where its program says. `IP` is whether that looks at IP headers.
pub struct Decider<const IP: bool> {
    program: Program,
    patterns: Vec<String>,
    outputs: usize,
    compile: Compile,
    /// Why packets are dropped that the program sends nowhere.
    reason: &'static str,
    warnings: Vec<String>,
    name: String,
    /// For programs of many rules.
    room: Option<Box<Room>>,
}

/// Makes the element; all of its configuration string is patterns.
pub fn make<const IP: bool>(
    setup: &mut Setup<'_>,
    compile: Compile,
    reason: &'static str,
) -> Result<Box<dyn Element>, ConfigError> {
    let patterns = Arguments::all_positional(setup.config()).rest();
    let outputs = setup.outputs();
    let (program, warnings) = compile(&patterns, outputs)?;
    let (name, room) = (setup.name().to_owned(), program.by_fields().map(|_| Room::new()));
    Ok(Box::new(Decider::<IP> { program, patterns, outputs, compile, reason, warnings, name, room }))
}

/// An error unless there is one pattern for each output.
pub fn one_for_each_output(patterns: &[String], outputs: usize) -> Result<(), Vec<String>> {
    if patterns.len() == outputs {
        return Ok(());
    }
    Err(vec![format!(
        "expected {outputs} pattern{}, one for each connected output, got {}",
        if outputs == 1 { "" } else { "s" },
        patterns.len()
    )])
}

/// What a program about IP headers sees of a packet.
#[inline(always)]
pub fn view_by_ip(packet: &Packet) -> View<'_> {
    match packet.network_offset() {
        Some(network) if network >= 0 => View {
            data: packet.data(),
            network: network.unsigned_abs(),
            transport: offset_or_beyond(packet.transport_offset()),
        },
        network => view_by_hidden_ip(packet, network),
    }
}

/// An offset as programs take it; beyond every packet if it is unknown or before the data.
#[inline(always)]
fn offset_or_beyond(offset: Option<isize>) -> usize {
    offset.and_then(|offset| usize::try_from(offset).ok()).unwrap_or(usize::MAX)
}

/// The same where the IP header was stripped or is not known at all.
#[cold]
#[inline(never)]
fn view_by_hidden_ip(packet: &Packet, network: Option<isize>) -> View<'_> {
    match (packet.network(), network) {
        (Some(data), Some(network)) => {
            let transport = packet.transport_offset().map(|transport| transport - network);
            View { data, network: 0, transport: offset_or_beyond(transport) }
        }
        // Every test finds the packet too short.
        _ => View { data: &[], network: usize::MAX, transport: usize::MAX },
    }
}

/// What a program sees of a packet.
#[inline(always)]
fn view<const IP: bool>(packet: &Packet) -> View<'_> {
    if IP { view_by_ip(packet) } else { View { data: packet.data(), network: 0, transport: 0 } }
}

/// What happens to packets for which this comparison holds.
fn ordinary(shortcut: Shortcut) -> Option<Ordinary> {
    let step = Step::Match { offset: shortcut.offset, mask: shortcut.mask, value: shortcut.value };
    runs::ordinary_to(shortcut.decision? as usize, [step])
}

impl<const IP: bool> Element for Decider<IP> {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        if cx.copy_index() == 0 {
            for warning in &self.warnings {
                cx.message(&format!("{}: warning: {warning}", self.name));
            }
        }
        Ok(())
    }

    /// An ordinary packet passes the one comparison that decides most packets.
    fn ordinary(&self) -> Option<Ordinary> {
        self.program.shortcut().filter(|_| !IP).and_then(ordinary)
    }

    fn ordinary_else(&self) -> Option<Ordinary> {
        self.program.second_shortcut().filter(|_| !IP).and_then(ordinary)
    }

    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        let Self { program, reason, room, .. } = self;
        if let (Some(by_fields), Some(room)) = (program.by_fields(), room) {
            let mut decided = by_fields.decide(batch.iter().map(view::<IP>), room).iter();
            cx.classify(batch, |_| {
                decided.next().copied().flatten().map(|output| output as usize).ok_or(*reason)
            });
            return;
        }
        cx.classify(batch, |packet| {
            let View { data, network, transport } = view::<IP>(packet);
            program.run(data, network, transport).map(|output| output as usize).ok_or(*reason)
        });
    }

    fn has_handler(&self, name: &str) -> bool {
        pattern_number(name).is_none_or(|number| number < self.patterns.len())
    }
}

/// The handlers: the program, and one for each pattern of these numbers.
macro_rules! handlers {
    ($($number:literal)*) => {
        &[
            Handler::read(
                "program",
                Combine::First,
                "The decision program.",
                &Get(|e: &mut Self| e.program.to_string()),
            ),
            $(Handler::read_write(
                concat!("pattern", $number),
                Combine::First,
                concat!("Pattern ", $number, ", counted from 0, and its action if it has one."),
                &Ask(|e: &mut Self, _, _| e.pattern($number)),
                &Put(|e: &mut Self, cx, value| e.set_pattern(cx, $number, value)),
            ),)*
        ]
    };
}

impl<const IP: bool> Decider<IP> {
    /// The handlers of its classes. Patterns beyond these have none.
    pub const HANDLERS: &'static [Handler] = handlers! {
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
    };

    fn pattern(&self, number: usize) -> Result<String, String> {
        self.patterns.get(number).cloned().ok_or_else(|| format!("no pattern {number}"))
    }

    /// Takes another pattern in the place of one of these.
    fn set_pattern(&mut self, cx: &mut Context, number: usize, value: &str) -> Result<(), String> {
        let mut patterns = self.patterns.clone();
        let place = patterns.get_mut(number).ok_or_else(|| format!("no pattern {number}"))?;
        *place = value.trim().to_owned();
        let (program, warnings) =
            (self.compile)(&patterns, self.outputs).map_err(|errors| errors.join("\n"))?;
        self.room = program.by_fields().map(|_| Room::new());
        (self.program, self.patterns, self.warnings) = (program, patterns, warnings);
        self.initialise(cx)
    }
}

/// The number of the pattern that a handler is for.
fn pattern_number(handler: &str) -> Option<usize> {
    handler.strip_prefix("pattern")?.parse().ok()
}
