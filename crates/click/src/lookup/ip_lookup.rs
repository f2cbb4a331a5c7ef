//! The element behind all lookup classes, for IPv4 and IPv6.

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Arc;

use elements::runs::{Destinations, Route as Crossed, Watch};
use fib::publish::Reader;
use fib::{Kind, NextHop, NextHopIndex, Resolver};
use graph::lang::split_words;
use graph::{Ask, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Put, Setup};
use packet::{Batch, MAX_BATCH, Packet};

use super::family::{MAIN_INDEX, RouteFamily, RouteState};
use super::origin_file;
use super::route::{FORM, REMOVAL_FORM, Route, Via};
use super::routes::{Command, Routes};

/// The output of packets without a route.
const NO_OUTPUT: u16 = u16::MAX;

/// Makes a lookup element.
pub(super) fn make<A: RouteFamily>(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let outputs = setup.outputs();
    Ok(Box::new(look_for::<A>(setup, FORM, |text| Route::parse(text, outputs))?))
}

/// Makes one whose routes are written in this form and read by `read`, once for all copies.
pub(crate) fn look_for<A: RouteFamily>(
    setup: &mut Setup<'_>,
    form: &str,
    read: impl FnMut(&str) -> Result<Route<A>, String>,
) -> Result<IpLookup<A>, ConfigError> {
    let outputs = setup.outputs();
    let table = setup.arguments.keyword::<String>("TABLE")?.unwrap_or_default();
    let kind = match table.as_str() {
        "" => Kind::default(),
        name => Kind::<A>::named(name).map_err(|error| ConfigError::new(format!("TABLE: {error}")))?,
    };
    let file = setup.arguments.keyword::<String>("FILE")?.unwrap_or_default();
    let via = setup.arguments.keyword::<String>("VIA")?.unwrap_or_default();
    let mut arguments = setup.arguments.rest_with_names();
    // What is left of `FILE $ROUTES` when the variable is empty.
    arguments.retain(|argument| !["TABLE", "FILE", "VIA"].contains(&argument.as_str()));
    setup.arguments.finish()?;
    let routes = setup.shared_by_copies(|| configured(kind, &arguments, &file, &via, outputs, form, read))?;
    routes.join(setup.copy().index);
    Ok(IpLookup {
        name: setup.name().to_owned(),
        reader: routes.reader(),
        routes,
        copy: setup.copy().index,
        addresses: Box::new([A::MIN; MAX_BATCH]),
        numbers: Box::new([NextHopIndex::NONE; MAX_BATCH]),
        outputs: Box::new([0; MAX_BATCH]),
    })
}

/// The routes of the configuration.
fn configured<A: RouteFamily>(
    kind: Kind<A>,
    arguments: &[String],
    file: &str,
    via: &str,
    outputs: usize,
    form: &str,
    mut read: impl FnMut(&str) -> Result<Route<A>, String>,
) -> Result<Routes<A>, ConfigError> {
    let routes = Routes::new(kind)?;
    let notes = routes.load(|rib, transaction| {
        let mut mistakes = Vec::new();
        let mut notes = Vec::new();
        for (index, text) in arguments.iter().enumerate() {
            let added = read(text).and_then(|route| {
                let prefix = route.prefix;
                let via = route.via.expect("a route that is not for removal has a next hop");
                let number = transaction.number(via)?;
                match rib.get(prefix) {
                    // As in Click the first counts.
                    Some(known) if known != number => {
                        notes.push(format!(
                            "argument {}: {prefix} has a route already; '{route}' is left out",
                            index + 1
                        ));
                    }
                    Some(_) => {}
                    None => {
                        rib.insert(prefix, number).map_err(|error| error.to_string())?;
                    }
                }
                Ok(())
            });
            if let Err(error) = added {
                mistakes.push(format!("argument {} should be '{form}': {error}", index + 1));
            }
        }
        match origin_file::parse_via(via, outputs) {
            Ok(via) if !file.is_empty() && mistakes.is_empty() => {
                notes.extend(origin_file::load(file, &via, rib, transaction)?);
            }
            Ok(_) => {}
            Err(error) => mistakes.extend(error.messages),
        }
        if mistakes.is_empty() { Ok(notes) } else { Err(ConfigError::from(mistakes)) }
    })?;
    routes.set_notes(notes);
    Ok(routes)
}

pub(crate) struct IpLookup<A: RouteFamily> {
    name: String,
    routes: Arc<Routes<A>>,
    /// This copy's access to the tables.
    reader: Reader<RouteState<A>>,
    /// Which copy of the graph this is in.
    copy: usize,
    /// Room for the lookups of one batch.
    addresses: Box<[A; MAX_BATCH]>,
    numbers: Box<[NextHopIndex; MAX_BATCH]>,
    outputs: Box<[u16; MAX_BATCH]>,
}

/// Only one copy answers, the one that makes changes: a full table is 20 MB of text.
impl<A: RouteFamily> IpLookup<A> {
    const CHECK: Handler = Handler::read(
        "check",
        Combine::Join,
        "Compares the tables with the routes, without disturbing packets: a line for each of the two copies, \
         the one in use and the one that takes changes, with its routes, ranges of addresses with one next \
         hop, a digest that equal routes have in common, bytes of memory, and `ok` or the first address on \
         which table and routes disagree.",
        &Get(|e: &mut Self| e.text(Routes::check)),
    );

    const LOOKUP: Handler = Handler::read(
        "lookup",
        Combine::First,
        "Returns the output for an address and, if there is one, the gateway; -1 without a route.",
        &Ask(|e: &mut Self, _, argument| e.lookup(argument)),
    );

    const MEMORY: Handler = Handler::read(
        "memory",
        Combine::Join,
        "Bytes of memory that routes, tables and next hops take.",
        &Get(|e: &mut Self| e.text(|routes| routes.memory_bytes().to_string())),
    );

    const TABLE: Handler = Handler::read(
        "table",
        Combine::Join,
        "All routes, in the order of their addresses.",
        &Get(|e: &mut Self| e.table()),
    );

    /// The handlers of a table that can be changed.
    pub(super) const HANDLERS: &'static [Handler] = &[
        Handler::write(
            "add",
            "Adds a route, `ADDR/MASK [GATEWAY] OUTPUT`. Fails if there is one for `ADDR/MASK`.",
            &Put(|e: &mut Self, cx, value| e.change(cx, "add", value)),
        ),
        Self::CHECK,
        Handler::write(
            "ctrl",
            "Changes many routes at once: lines of `add ROUTE`, `set ROUTE` or `remove ROUTE`. If one of \
             them fails, nothing is changed, and packets see all changes or none.",
            &Put(|e: &mut Self, cx, value| e.change(cx, "ctrl", value)),
        ),
        Handler::write("flush", "Removes all routes.", &Put(|e: &mut Self, _, _| e.flush())),
        Self::LOOKUP,
        Self::MEMORY,
        Handler::write(
            "remove",
            "Removes a route, `ADDR/MASK [GATEWAY OUTPUT]`. If gateway and output are given they must be \
             those of the route.",
            &Put(|e: &mut Self, cx, value| e.change(cx, "remove", value)),
        ),
        Handler::write(
            "set",
            "Sets a route, whether or not there is one for `ADDR/MASK`.",
            &Put(|e: &mut Self, cx, value| e.change(cx, "set", value)),
        ),
        Self::TABLE,
    ];

    /// Those of a table whose routes stay.
    pub(super) const FIXED_HANDLERS: &'static [Handler] =
        &[Self::CHECK, Self::LOOKUP, Self::MEMORY, Self::TABLE];

    /// What `text` says of the routes, in the copy that answers.
    fn text(&self, text: impl FnOnce(&Routes<A>) -> String) -> String {
        if self.routes.is_last(self.copy) { text(&self.routes) } else { String::new() }
    }

    /// Output and gateway of an address.
    pub(crate) fn lookup(&mut self, argument: &str) -> Result<String, String> {
        let address = A::Ip::from_value(argument)?.into();
        let state = self.reader.enter();
        let number = A::table(&state, MAIN_INDEX).map_or(NextHopIndex::NONE, |table| table.lookup(address));
        let via = resolve(state.next_hops(), number);
        Ok(match (via.output, via.gateway()) {
            (NO_OUTPUT, _) => "-1".to_owned(),
            (output, None) => output.to_string(),
            (output, Some(gateway)) => format!("{output} {gateway}"),
        })
    }

    /// Writes the handler `name`, one of those that change routes.
    fn change(&self, cx: &Context, name: &str, value: &str) -> Result<(), String> {
        if !self.routes.is_last(self.copy) {
            return Ok(());
        }
        let outputs = cx.outputs();
        self.transact(&commands(name, value, |name, text| command(name, text, outputs))?)
    }

    /// Carries out all commands, or none.
    pub(crate) fn transact(&self, commands: &[Command<A>]) -> Result<(), String> {
        if commands.is_empty() { Ok(()) } else { self.routes.transact(commands) }
    }

    /// Whether this copy makes the changes that handlers ask of all copies.
    pub(crate) fn makes_changes(&self) -> bool {
        self.routes.is_last(self.copy)
    }

    /// The security parameters indices of all tunnels.
    pub(crate) fn spis(&self) -> BTreeSet<u32> {
        self.routes.spis()
    }

    /// All routes, as the handler `table` has them.
    pub(crate) fn table(&self) -> String {
        self.text(Routes::text)
    }

    /// Looks up the packets of a batch, and writes down the next hop of each; `None` without a route.
    pub(crate) fn look_up(&mut self, batch: &Batch, vias: &mut [Option<Via<A>>; MAX_BATCH]) {
        let addresses = &mut self.addresses[..batch.len()];
        let numbers = &mut self.numbers[..batch.len()];
        for (packet, address) in batch.packets().iter().zip(&mut *addresses) {
            *address = A::destination(packet.annotations());
        }
        let state = self.reader.enter();
        match A::table(&state, MAIN_INDEX) {
            Some(table) => table.lookup_batch(addresses, numbers),
            None => numbers.fill(NextHopIndex::NONE),
        }
        for (via, &number) in vias.iter_mut().zip(&*numbers) {
            let found = resolve(state.next_hops(), number);
            *via = (found.output != NO_OUTPUT).then_some(found);
        }
    }

    /// Removes all routes.
    pub(crate) fn flush(&self) -> Result<(), String> {
        if self.routes.is_last(self.copy) { self.routes.flush() } else { Ok(()) }
    }
}

/// Gateway and output of a number, [`NO_OUTPUT`] where there is no route.
#[inline(always)]
fn resolve<A: RouteFamily>(next_hops: &Resolver<Via<A>>, number: NextHopIndex) -> Via<A> {
    match next_hops.resolve(number, 0) {
        NextHop::Forward(via) => *via,
        _ => Via { gateway: A::MIN, output: NO_OUTPUT, spi: 0 },
    }
}

/// Sets the gateways of packets and writes down their outputs. Returns 0 if these are all the same.
///
/// A function of its own, because only then does the compiler know that writing to packets does not change where the next
/// hops are.
#[inline]
fn forward<A: RouteFamily>(
    next_hops: &Resolver<Via<A>>,
    numbers: &[NextHopIndex],
    packets: &mut [Packet],
    gateways: &mut [A],
    outputs: &mut [u16],
) -> u16 {
    let first = numbers.first().map_or(0, |number| number.get());
    if numbers.iter().fold(0, |difference, number| difference | (number.get() ^ first)) == 0 {
        let Via { gateway, output, .. } = resolve(next_hops, NextHopIndex::new(first).unwrap_or_default());
        if gateway != A::MIN {
            packets.iter_mut().for_each(|packet| A::set_destination(packet.annotations_mut(), gateway));
        }
        outputs[0] = output;
        return 0;
    }
    for ((gateway, &number), place) in gateways.iter_mut().zip(numbers).zip(&mut *outputs) {
        let via = resolve(next_hops, number);
        *gateway = via.gateway;
        *place = via.output;
    }
    for (packet, gateway) in packets.iter_mut().zip(gateways) {
        if *gateway != A::MIN {
            A::set_destination(packet.annotations_mut(), *gateway);
        }
    }
    let first = outputs[0];
    outputs.iter().fold(0, |difference, output| difference | (output ^ first))
}

/// Reads the commands of a write handler, `add`, `set`, `remove` or `ctrl`; `read` takes the first three with their routes.
pub(crate) fn commands<A: RouteFamily>(
    name: &str,
    value: &str,
    mut read: impl FnMut(&str, &str) -> Result<Command<A>, String>,
) -> Result<Vec<Command<A>>, String> {
    if name != "ctrl" {
        return Ok(vec![read(name, value)?]);
    }
    let mut commands = Vec::new();
    for (index, line) in value.lines().enumerate() {
        // Splitting takes comments out.
        let words = split_words(line);
        let Some((first, rest)) = words.split_first() else { continue };
        let parsed = match first.as_str() {
            "add" | "set" | "remove" => read(first, &rest.join(" ")),
            other => Err(format!("bad command '{other}'; expected add, set or remove")),
        };
        commands.push(parsed.map_err(|error| format!("line {}: {error}", index + 1))?);
    }
    Ok(commands)
}

fn command<A: RouteFamily>(name: &str, value: &str, outputs: usize) -> Result<Command<A>, String> {
    let (parsed, form) = match name {
        "add" => (Route::parse(value, outputs).map(Command::Add), FORM),
        "set" => (Route::parse(value, outputs).map(Command::Set), FORM),
        _ => (Route::parse_removal(value, outputs).map(Command::Remove), REMOVAL_FORM),
    };
    parsed.map_err(|error| format!("expected '{form}', got '{}': {error}", value.trim()))
}

impl<A: RouteFamily> IpLookup<A> {
    /// The numbers of the next hops of addresses.
    fn find(&mut self, asked: &mut Destinations<A>) -> bool {
        let state = self.reader.enter();
        let Some(table) = A::table(&state, MAIN_INDEX) else { return false };
        table.lookup_batch(&asked.addresses[..asked.count], &mut asked.numbers[..asked.count]);
        asked.version = state.next_hops().version();
        true
    }

    /// What happens to packets of a number, which is known where they have a gateway.
    fn route(&mut self, asked: &mut Crossed<A>) -> bool {
        let state = self.reader.enter();
        asked.version = state.next_hops().version();
        let Via { gateway, output, .. } = resolve(state.next_hops(), asked.number);
        (asked.output, asked.gateway) = (usize::from(output), Some(gateway));
        output != NO_OUTPUT && gateway != A::MIN
    }
}

impl<A: RouteFamily> Element for IpLookup<A> {
    fn answer(&mut self, question: &mut dyn Any) -> bool {
        if let Some(asked) = question.downcast_mut::<Destinations<A>>() {
            return self.find(asked);
        }
        if let Some(asked) = question.downcast_mut::<Crossed<A>>() {
            return self.route(asked);
        }
        if let Some(watch) = question.downcast_mut::<Watch>() {
            watch.is_constant = true;
            return true;
        }
        false
    }

    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        for note in self.routes.take_notes() {
            cx.message(&format!("{}: {note}", self.name));
        }
        Ok(())
    }

    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        if batch.is_empty() {
            return;
        }
        let addresses = &mut self.addresses[..batch.len()];
        let numbers = &mut self.numbers[..batch.len()];
        let outputs = &mut self.outputs[..batch.len()];
        for (packet, address) in batch.packets().iter().zip(&mut *addresses) {
            *address = A::destination(packet.annotations());
        }
        let state = self.reader.enter();
        let Some(table) = A::table(&state, MAIN_INDEX) else { return cx.drop_batch(batch, "no route") };
        table.lookup_batch(addresses, numbers);
        let difference = forward(state.next_hops(), numbers, batch.packets_mut(), addresses, outputs);
        drop(state);
        let first = outputs[0];
        match first {
            // All by output 0: the batch goes on as it is.
            0 if difference == 0 => {}
            NO_OUTPUT if difference == 0 => cx.drop_batch(batch, "no route"),
            output if difference == 0 => cx.emit_batch(usize::from(output), batch),
            _ if !outputs.contains(&NO_OUTPUT) => cx.scatter(batch, outputs),
            _ => {
                for (packet, &output) in batch.drain().zip(&*outputs) {
                    match output {
                        NO_OUTPUT => cx.drop(packet, "no route"),
                        output => cx.emit(usize::from(output), packet),
                    }
                }
            }
        }
    }
}
