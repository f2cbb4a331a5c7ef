//! What `Classifier`, `IPClassifier` and `IPFilter` have in common: a decision program at work.

use graph::runs::{Ordinary, Step};
use graph::{Arguments, Combine, ConfigError, Context, Element, Handler, Setup};
use packet::{Batch, Packet};

use crate::decision::{Compiled, Program, Room, Shortcut, View};

/// Compiles the patterns of an element with so many outputs.
pub(super) type Compile = fn(&[String], usize) -> Compiled;

/// An element that sends packets where its program says. `IP` is whether that looks at IP headers.
pub(super) struct Decider<const IP: bool> {
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
pub(super) fn make<const IP: bool>(
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
pub(super) fn one_for_each_output(patterns: &[String], outputs: usize) -> Result<(), Vec<String>> {
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
fn view_by_ip(packet: &Packet) -> View<'_> {
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
    Some(Ordinary { steps: vec![step], output: shortcut.decision? as usize })
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

    fn handlers(&self) -> &'static [Handler] {
        &HANDLERS[..1 + self.patterns.len().min(PATTERN_NAMES.len())]
    }

    fn read(&mut self, name: &str, _argument: &str) -> Result<String, String> {
        match pattern_number(name) {
            Some(number) => self.patterns.get(number).cloned().ok_or_else(|| format!("no pattern {number}")),
            None => Ok(self.program.to_string()),
        }
    }

    fn write(&mut self, cx: &mut Context, name: &str, value: &str) -> Result<(), String> {
        let mut patterns = self.patterns.clone();
        let place = pattern_number(name).and_then(|number| patterns.get_mut(number));
        *place.ok_or_else(|| format!("no write handler '{name}'"))? = value.trim().to_owned();
        let (program, warnings) =
            (self.compile)(&patterns, self.outputs).map_err(|errors| errors.join("\n"))?;
        self.room = program.by_fields().map(|_| Room::new());
        (self.program, self.patterns, self.warnings) = (program, patterns, warnings);
        self.initialise(cx)
    }
}

fn pattern_number(handler: &str) -> Option<usize> {
    handler.strip_prefix("pattern")?.parse().ok()
}

macro_rules! pattern_handlers {
    ($($name:literal)*) => {
        /// Patterns that have a handler; those beyond have none.
        const PATTERN_NAMES: &[&str] = &[$($name),*];
        const HANDLERS: &[Handler] = &[
            Handler::read("program", Combine::First),
            $(Handler::read_write($name, Combine::First)),*
        ];
    };
}

pattern_handlers! {
    "pattern0" "pattern1" "pattern2" "pattern3" "pattern4" "pattern5" "pattern6" "pattern7"
    "pattern8" "pattern9" "pattern10" "pattern11" "pattern12" "pattern13" "pattern14" "pattern15"
    "pattern16" "pattern17" "pattern18" "pattern19" "pattern20" "pattern21" "pattern22" "pattern23"
    "pattern24" "pattern25" "pattern26" "pattern27" "pattern28" "pattern29" "pattern30" "pattern31"
}
