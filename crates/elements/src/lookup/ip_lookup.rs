//! The element behind all lookup classes.

use std::net::Ipv4Addr;
use std::sync::Arc;

use fib::{NextHopIndex, Rib4};
use graph::lang::split_words;
use graph::{Combine, ConfigError, Context, Element, FromArgument, Handler, Setup};
use packet::{Batch, MAX_BATCH};

use super::origin_file;
use super::publish::Published;
use super::route::{NextHop, Route};
use super::table::{Command, Design, NextHops, RouteTable};

/// The output of packets without a route.
const NO_OUTPUT: u16 = NextHop::NONE.output;

/// Ports of all lookup classes.
pub(super) const PORTS: &str = "1/-";

const LOOKUP: Handler = Handler::read("lookup", Combine::First);
/// Only one copy answers: a full table is 20 MB of text.
const TABLE: Handler = Handler::read("table", Combine::Join);

/// The handlers of a table that can be changed.
const DYNAMIC: &[Handler] = &[
    Handler::write("add"),
    Handler::write("ctrl"),
    Handler::write("flush"),
    LOOKUP,
    Handler::write("remove"),
    Handler::write("set"),
    TABLE,
];
/// The handlers of `StaticIPLookup`.
const STATIC: &[Handler] = &[LOOKUP, TABLE];

/// Makes a lookup element whose routes can be changed by handlers.
pub(super) fn make(setup: &mut Setup<'_>, design: Design) -> Result<Box<dyn Element>, ConfigError> {
    make_with(setup, design, DYNAMIC)
}

/// Makes a lookup element whose routes stay.
pub(super) fn make_static(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    make_with(setup, Design::BySize, STATIC)
}

fn make_with(
    setup: &mut Setup<'_>,
    design: Design,
    handlers: &'static [Handler],
) -> Result<Box<dyn Element>, ConfigError> {
    let outputs = setup.outputs();
    let file = setup.arguments.keyword::<String>("FILE")?.unwrap_or_default();
    let via = setup.arguments.keyword::<String>("VIA")?.unwrap_or_default();
    let mut routes = setup.arguments.rest();
    // What is left of `FILE $TABLE` when the variable is empty.
    routes.retain(|route| route != "FILE" && route != "VIA");
    setup.arguments.finish()?;
    let published = setup.shared_by_copies(|| publish(&routes, &file, &via, outputs, design))?;
    published.join(setup.copy().index);
    let (generation, table) = published.snapshot();
    Ok(Box::new(IpLookup {
        name: setup.name().to_owned(),
        published,
        generation,
        table: Some(table),
        copy: setup.copy().index,
        handlers,
        addresses: Box::new([0; MAX_BATCH]),
        numbers: Box::new([NextHopIndex::NONE; MAX_BATCH]),
        outputs: Box::new([0; MAX_BATCH]),
    }))
}

/// Compiles the routes of the configuration.
fn publish(
    routes: &[String],
    file: &str,
    via: &str,
    outputs: usize,
    design: Design,
) -> Result<Published, ConfigError> {
    let mut rib = Rib4::new();
    let mut next_hops = NextHops::default();
    let mut mistakes = Vec::new();
    let mut notes = Vec::new();
    for (index, text) in routes.iter().enumerate() {
        let added = Route::parse(text, outputs).and_then(|Route { prefix, next_hop }| {
            let number = next_hops.number(next_hop.unwrap_or(NextHop::NONE), &rib)?;
            match rib.get(prefix) {
                // As in Click the first counts.
                Some(known) if known != number => {
                    notes.push(format!(
                        "argument {}: {prefix} has a route already; '{text}' is left out",
                        index + 1
                    ));
                }
                Some(_) => {}
                None => rib.insert(prefix, number).map_err(|error| error.to_string())?,
            }
            Ok(())
        });
        if let Err(error) = added {
            mistakes.push(format!("argument {} should be '{}': {error}", index + 1, Route::FORM));
        }
    }
    match origin_file::parse_via(via, outputs) {
        Ok(via) if !file.is_empty() && mistakes.is_empty() => {
            notes.extend(origin_file::load(file, &via, &mut rib, &mut next_hops)?);
        }
        Ok(_) => {}
        Err(error) => mistakes.extend(error.messages),
    }
    if !mistakes.is_empty() {
        return Err(mistakes.into());
    }
    let table = RouteTable::build(rib, next_hops, design).map_err(|error| error.to_string())?;
    Ok(Published::new(table, notes))
}

struct IpLookup {
    name: String,
    published: Arc<Published>,
    /// That of `table`.
    generation: u64,
    /// The snapshot; `None` only while the routes are being changed.
    table: Option<Arc<RouteTable>>,
    /// Which copy of the graph this is in.
    copy: usize,
    handlers: &'static [Handler],
    /// Room for the lookups of one batch.
    addresses: Box<[u32; MAX_BATCH]>,
    numbers: Box<[NextHopIndex; MAX_BATCH]>,
    outputs: Box<[u16; MAX_BATCH]>,
}

impl IpLookup {
    /// Takes the newest table.
    #[cold]
    #[inline(never)]
    fn refresh(&mut self) {
        let (generation, table) = self.published.snapshot();
        self.generation = generation;
        self.table = Some(table);
    }

    /// Reads the commands of a write handler.
    fn commands(name: &str, value: &str, outputs: usize) -> Result<Vec<Command>, String> {
        if name != "ctrl" {
            return Ok(vec![command(name, value, outputs)?]);
        }
        let mut commands = Vec::new();
        for (index, line) in value.lines().enumerate() {
            // Splitting takes comments out.
            let words = split_words(line);
            let Some((first, rest)) = words.split_first() else { continue };
            let parsed = match first.as_str() {
                "add" | "set" | "remove" => command(first, &rest.join(" "), outputs),
                other => Err(format!("bad command '{other}'; right would be add, set or remove")),
            };
            commands.push(parsed.map_err(|error| format!("line {}: {error}", index + 1))?);
        }
        Ok(commands)
    }

    fn change(&self, name: &str, value: &str, outputs: usize) -> Result<(), String> {
        if name == "flush" {
            return self.published.flush();
        }
        let commands = Self::commands(name, value, outputs)?;
        if commands.is_empty() { Ok(()) } else { self.published.change(&commands) }
    }
}

fn command(name: &str, value: &str, outputs: usize) -> Result<Command, String> {
    let (parsed, form) = match name {
        "add" => (Route::parse(value, outputs).map(Command::Add), Route::FORM),
        "set" => (Route::parse(value, outputs).map(Command::Set), Route::FORM),
        _ => (Route::parse_removal(value, outputs).map(Command::Remove), Route::REMOVAL_FORM),
    };
    parsed.map_err(|error| format!("expected '{form}', got '{}': {error}", value.trim()))
}

impl Element for IpLookup {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        for note in self.published.take_notes() {
            cx.message(&format!("{}: {note}", self.name));
        }
        Ok(())
    }

    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        if self.published.generation() != self.generation {
            self.refresh();
        }
        let Some(table) = &self.table else { return cx.drop_batch(batch, "no route") };
        let addresses = &mut self.addresses[..batch.len()];
        let numbers = &mut self.numbers[..batch.len()];
        for (packet, address) in batch.packets().iter().zip(&mut *addresses) {
            *address = packet.annotations().destination_ip();
        }
        table.lookup_batch(addresses, numbers);
        let Some(&number) = numbers.first() else { return };
        let first = table.next_hop(number).output;
        let outputs = &mut self.outputs[..batch.len()];
        let mut difference = 0;
        for ((packet, &mut number), place) in batch.packets_mut().iter_mut().zip(numbers).zip(&mut *outputs) {
            let NextHop { gateway, output } = table.next_hop(number);
            if gateway != 0 {
                packet.annotations_mut().set_destination_ip(gateway);
            }
            *place = output;
            difference |= output ^ first;
        }
        match first {
            // All by output 0: the batch goes on as it is.
            0 if difference == 0 => {}
            NO_OUTPUT if difference == 0 => cx.drop_batch(batch, "no route"),
            output if difference == 0 => cx.emit_batch(usize::from(output), batch),
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

    fn handlers(&self) -> &'static [Handler] {
        self.handlers
    }

    fn read(&mut self, name: &str, argument: &str) -> Result<String, String> {
        self.refresh();
        let Some(table) = &self.table else { return Ok(String::new()) };
        match name {
            "table" if self.published.is_last(self.copy) => Ok(table.text()),
            "table" => Ok(String::new()),
            "lookup" => {
                let address = Ipv4Addr::from_value(argument)?;
                let next_hop = table.lookup(address.into());
                Ok(match next_hop {
                    NextHop::NONE => "-1".to_owned(),
                    NextHop { gateway: 0, output } => output.to_string(),
                    NextHop { gateway, output } => format!("{output} {}", Ipv4Addr::from(gateway)),
                })
            }
            _ => Err(format!("no read handler '{name}'")),
        }
    }

    fn write(&mut self, cx: &mut Context, name: &str, value: &str) -> Result<(), String> {
        if !self.handlers.iter().any(|handler| handler.writable && handler.name == name) {
            return Err(format!("no write handler '{name}'"));
        }
        let result = if self.published.is_last(self.copy) {
            // The table is changed in place if nobody else holds it.
            self.table = None;
            self.change(name, value, cx.outputs())
        } else {
            Ok(())
        };
        self.refresh();
        result
    }
}
