//! Handlers: the named values of elements and of the router, read and written from outside and by other elements.
//!
//! An element calls another one's handlers by name ([`Context::call_read`], [`Context::call_write`]), at once: what a
//! `Counter` has changed when it reaches its count is in force for the packet that it counted last. With several copies
//! of the graph the first one asks the others and combines what they say; another one tells them and does not wait.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use super::{Context, ElementStats};
use crate::element::Element;
use crate::handler::{Combine, Handler};
use crate::lang::{FlatConfig, PortKind};
use crate::mail::Mail;
use crate::router::Control;
use crate::secrets::Secrets;
use crate::setup::{Shared, bound_worker, resolve};

/// Handlers that every element has.
static COMMON_HANDLERS: [Handler; 11] = [
    Handler::more_to_read("batches", Combine::Sum),
    Handler::more_to_read("class", Combine::First),
    Handler::more_to_read_and_write("config", Combine::First),
    Handler::more_to_read("cycles", Combine::Sum),
    Handler::more_to_read("drops", Combine::Sum),
    Handler::more_to_read("handlers", Combine::First),
    Handler::more_to_read("home_thread", Combine::First),
    Handler::more_to_read("name", Combine::First),
    Handler::more_to_read("packets", Combine::Sum),
    Handler::more_to_read("ports", Combine::First),
    Handler::more_to_read("scheduled", Combine::First),
];

/// Handlers of the router itself.
pub static GLOBAL_HANDLERS: [Handler; 11] = [
    Handler::more_to_read("classes", Combine::First),
    Handler::more_to_read("config", Combine::First),
    Handler::more_to_read("driver", Combine::First),
    Handler::more_to_read("flatconfig", Combine::First),
    Handler::more_to_read("handlers", Combine::First),
    Handler::to_write("hotconfig"),
    Handler::more_to_read("list", Combine::First),
    Handler::more_to_read("packages", Combine::First),
    Handler::more_to_read("requirements", Combine::First),
    Handler::to_write("stop"),
    Handler::more_to_read("version", Combine::First),
];

/// Takes another configuration's text and the time (in nanoseconds since 1970) and puts it in this one's place, soon, or says why
/// not.
pub type HotConfig = dyn Fn(&str, u64) -> Result<(), String> + Send + Sync;

/// Takes an element's name, another configuration string for it, and the time, and has that take the place of the one it has,
/// soon, or says why not.
pub type Reconfigure = dyn Fn(&str, &str, u64) -> Result<(), String> + Send + Sync;

/// What the router's own handlers tell. The program leaves it among the shared things.
#[derive(Default)]
pub struct Globals {
    /// The configuration's text, as it was written.
    pub source: String,
    /// The classes that configurations may use.
    pub classes: Vec<String>,
    /// The program's version.
    pub version: String,
    /// What the handler `hotconfig` does, where it is allowed.
    pub hotconfig: Option<Arc<HotConfig>>,
    /// What writing an element's handler `config` does, where that is possible.
    pub reconfigure: Option<Arc<Reconfigure>>,
}

impl Globals {
    /// Under which key it lies.
    pub const KEY: &str = "global handlers";
}

impl std::fmt::Debug for Globals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Globals").field("version", &self.version).finish_non_exhaustive()
    }
}

/// What a copy of the graph knows of its configuration, its router, and the other copies.
#[derive(Debug)]
pub(crate) struct Known {
    pub(super) config: Arc<FlatConfig>,
    by_name: HashMap<String, usize>,
    globals: Arc<Globals>,
    secrets: Arc<Secrets>,
    /// Number of workers.
    workers: usize,
    /// How to reach the other copies.
    peers: Vec<Mail>,
    /// How others reach this one.
    own: Option<Mail>,
}

impl Known {
    pub(crate) fn new(config: Arc<FlatConfig>, shared: &Shared, workers: usize) -> Self {
        let names = config.elements.iter().enumerate();
        let by_name = names.map(|(index, flat)| (flat.name.clone(), index)).collect();
        let globals = shared.get(Globals::KEY).unwrap_or_default();
        let Ok(secrets) = shared.get_or_make(Secrets::KEY, || Ok::<_, Infallible>(Secrets::default()));
        Self { config, by_name, globals, secrets, workers, peers: Vec::new(), own: None }
    }

    /// Takes the mail boxes of `old`.
    pub(super) fn take_mails(&mut self, old: &mut Self) {
        self.peers = std::mem::take(&mut old.peers);
        self.own = old.own.take();
    }
}

/// Why there is no handler of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// There is no element of this name.
    Element(String),
    /// The element, or the router, has no such handler.
    Handler,
    /// The router has ended.
    Router,
}

/// Reads and writes handlers from another thread, at batch boundaries. Names are those of the whole configuration; an element
/// may be named by its number too, from 1.
#[derive(Clone, Debug)]
pub struct Remote {
    mail: Mail,
    control: Arc<Control>,
}

impl Remote {
    fn ask<R: Send + 'static>(
        &self,
        name: &str,
        call: impl FnOnce(&mut Context, &str) -> R + Send + 'static,
    ) -> Option<R> {
        let name = name.to_owned();
        self.mail.ask(move |graph| {
            let context = graph.context();
            let name = context.without_number(&name);
            let result = call(context, &name);
            context.finish();
            result
        })
    }

    /// The handler called `name`; private ones are not there for others.
    pub fn find(&self, name: &str) -> Result<Handler, Missing> {
        let found = self.ask(name, |context, name| context.named_handler(name, ""));
        let handler = found.unwrap_or(Err(Missing::Router))?;
        if handler.private { Err(Missing::Handler) } else { Ok(handler) }
    }

    /// Reads a handler, of all copies of the graph.
    pub fn read(&self, name: &str, argument: &str) -> Result<String, String> {
        let argument = argument.to_owned();
        let read = move |context: &mut Context, name: &str| context.read_as("", name, &argument);
        self.ask(name, read).unwrap_or_else(|| Err(ENDED.to_owned()))
    }

    /// Writes a handler, of all copies of the graph.
    pub fn write(&self, name: &str, value: &str) -> Result<(), String> {
        let value = value.to_owned();
        let write = move |context: &mut Context, name: &str| context.write_as("", name, &value);
        self.ask(name, write).unwrap_or_else(|| Err(ENDED.to_owned()))
    }

    /// Waits until a configuration that was to take the running one's place has done so, at most `timeout`.
    pub fn wait_for_change(&self, timeout: Duration) {
        self.control.wait_for_change(timeout);
    }

    /// Prints a message, as elements do.
    pub fn message(&self, line: &str) {
        self.control.message(line);
    }
}

/// What is said to those who come too late.
const ENDED: &str = "the router has ended";

/// Whose handler a name means.
enum Target {
    Element(usize, String),
    Router(String),
}

impl Context {
    /// Number of the element called `name`.
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.known.by_name.get(name).copied()
    }

    pub(crate) fn config(&self) -> &Arc<FlatConfig> {
        &self.known.config
    }

    /// Says how the other copies are reached, and this one.
    pub(crate) fn set_mails(&mut self, peers: Vec<Mail>, own: Mail) {
        self.known.peers = peers;
        self.known.own = Some(own);
    }

    /// How another thread reads and writes the handlers of the whole router, through this copy, which should be the first;
    /// `None` before the router is complete.
    pub fn remote(&self) -> Option<Remote> {
        Some(Remote { mail: self.known.own.clone()?, control: self.control.clone() })
    }

    /// Has `listener` told each message from now on.
    pub fn listen(&self, listener: Box<dyn Fn(&str) + Send + Sync>) {
        self.control.listen(listener);
    }

    /// All handlers of an element by name, those that every element has included.
    pub(crate) fn handlers(&self, element: usize) -> Vec<(String, Handler)> {
        let slot = &self.slots[element];
        let mut handlers: BTreeMap<String, Handler> =
            COMMON_HANDLERS.iter().map(|handler| (handler.name.to_owned(), *handler)).collect();
        if let Some(element) = &slot.element {
            let listed = slot.handlers.iter().filter(|own| element.has_handler(own.name));
            handlers.extend(listed.map(|handler| (handler.name.to_owned(), *handler)));
            let more = element.names_of_more_handlers().into_iter();
            handlers
                .extend(more.filter_map(|name| element.more_handlers(&name).map(|handler| (name, handler))));
        }
        handlers.into_iter().collect()
    }

    /// An element's handler of its own, not one that every element has.
    fn own_handler(&self, element: usize, name: &str) -> Option<Handler> {
        let here = self.slots[element].element.as_ref()?;
        self.listed(element, name).or_else(|| here.more_handlers(name))
    }

    /// An element's handler that its class lists.
    fn listed(&self, element: usize, name: &str) -> Option<Handler> {
        let slot = &self.slots[element];
        let listed = slot.handlers.iter().find(|own| own.name == name).copied()?;
        slot.element.as_ref()?.has_handler(name).then_some(listed)
    }

    pub(crate) fn handler(&self, element: usize, name: &str) -> Option<Handler> {
        let common = || COMMON_HANDLERS.iter().find(|common| common.name == name).copied();
        self.own_handler(element, name).or_else(common)
    }

    /// What an element did so far.
    pub(crate) fn settled_stats(&mut self, element: usize) -> ElementStats {
        // An element that this copy does not have counted nothing.
        let _ = self.visit(element, |element, cx| element.settle(cx));
        self.stats(element)
    }

    /// Reads a handler. `None` when this copy does not have the element, or it is at work itself.
    pub(crate) fn read_handler(
        &mut self,
        element: usize,
        name: &str,
        argument: &str,
    ) -> Option<Result<String, String>> {
        self.slots[element].element.as_ref()?;
        match self.handler(element, name) {
            None => Some(Err(self.no_handler(element, name, "read"))),
            Some(handler) if !handler.is_readable() => {
                let full = &self.known.config.elements[element].name;
                Some(Err(format!("no '{full}.{name}' read handler; it can only be written")))
            }
            Some(_) if self.own_handler(element, name).is_some() => {
                let listed = self.listed(element, name).and_then(|handler| handler.read);
                self.visit(element, |element, cx| match listed {
                    Some(read) => read.read(element, cx, argument),
                    None => element.read_more(cx, name, argument),
                })
            }
            Some(_) => Some(Ok(self.read_common(element, name))),
        }
    }

    fn no_handler(&self, element: usize, name: &str, kind: &str) -> String {
        let known: Vec<_> = self.handlers(element).into_iter().map(|(name, _)| name).collect();
        let flat = &self.known.config.elements[element];
        format!("no '{}.{name}' {kind} handler; '{}' has {}", flat.name, flat.class, known.join(", "))
    }

    fn read_common(&mut self, element: usize, name: &str) -> String {
        let stats = self.settled_stats(element);
        let flat = &self.known.config.elements[element];
        match name {
            "name" => flat.name.clone(),
            "class" => flat.class.clone(),
            "config" => self.known.secrets.hidden_in(flat.config.clone()),
            "packets" => stats.packets.to_string(),
            "batches" => stats.batches.to_string(),
            "cycles" => format!("{:.0}", stats.cycles),
            "drops" => stats.dropped().to_string(),
            "handlers" => {
                table(self.handlers(element).iter().map(|(name, handler)| (name.as_str(), handler)))
            }
            "home_thread" => {
                bound_worker(&self.known.config, &flat.name, self.known.workers).unwrap_or(0).to_string()
            }
            "scheduled" => self.slots[element].is_scheduled().to_string(),
            _ => ports_text(&self.known.config, element),
        }
    }

    /// Writes `config`, the one of the common handlers that can be written. One copy speaks for all.
    fn write_common(&mut self, element: usize, value: &str) -> Result<(), String> {
        if self.copy > 0 {
            return Ok(());
        }
        let name = &self.known.config.elements[element].name;
        match &self.known.globals.reconfigure {
            Some(reconfigure) => reconfigure(name, value, self.clock.now_ns()),
            None => {
                Err(format!("'{name}' cannot be reconfigured here; change the file, and 'brickway reload'"))
            }
        }
    }

    /// Writes a handler. `None` when this copy does not have the element, or it is at work itself.
    pub(crate) fn write_handler(
        &mut self,
        element: usize,
        name: &str,
        value: &str,
    ) -> Option<Result<(), String>> {
        self.slots[element].element.as_ref()?;
        match self.handler(element, name) {
            None => Some(Err(self.no_handler(element, name, "write"))),
            Some(handler) if !handler.is_writable() => {
                let full = &self.known.config.elements[element].name;
                Some(Err(format!("no '{full}.{name}' write handler; it can only be read")))
            }
            Some(_) if self.own_handler(element, name).is_none() => Some(self.write_common(element, value)),
            Some(_) => {
                let listed = self.listed(element, name).and_then(|handler| handler.write);
                let (result, changed) = self.visit(element, |element, cx| {
                    let before = element.ordinary();
                    let result = match listed {
                        Some(write) => write.write(element, cx, value),
                        None => element.write_more(cx, name, value),
                    };
                    let changed = element.ordinary() != before;
                    if changed {
                        // What the element emits now must not meet a run that is out of date.
                        cx.find_runs(false);
                    }
                    (result, changed)
                })?;
                if changed {
                    self.find_runs(self.fused);
                }
                Some(result)
            }
        }
    }

    /// Calls an element while another one may be at work: what it emits is worked off when that one is done.
    pub(super) fn visit<R>(
        &mut self,
        element: usize,
        call: impl FnOnce(&mut dyn Element, &mut Self) -> R,
    ) -> Option<R> {
        let mut taken = self.slots[element].element.take()?;
        let before = self.current;
        self.close_outputs();
        self.current = element as u32;
        let result = call(taken.as_mut(), self);
        self.close_outputs();
        self.slots[element].element = Some(taken);
        self.current = before;
        Some(result)
    }

    /// `3.count` as the name of the third element's handler, `0.list` as that of one of the router.
    fn without_number(&self, name: &str) -> String {
        let split =
            name.split_once('.').and_then(|(owner, handler)| Some((owner.parse::<usize>().ok()?, handler)));
        match split {
            Some((0, handler)) => handler.to_owned(),
            Some((number, handler)) if self.find(name.split('.').next().unwrap_or_default()).is_none() => {
                let element = self.known.config.elements.get(number - 1);
                element.map_or_else(|| name.to_owned(), |element| format!("{}.{handler}", element.name))
            }
            _ => name.to_owned(),
        }
    }

    // ---- calls by name ----------------------------------------------------------------------------------

    /// The running element's name.
    fn user(&self) -> String {
        let user = self.known.config.elements.get(self.current as usize);
        user.map(|user| user.name.clone()).unwrap_or_default()
    }

    /// Whose handler `name` means to the element `user`: `ELEMENT.HANDLER`, looked for outwards from the compound element
    /// that it stands in, or a handler of the router.
    fn target(&self, name: &str, user: &str) -> Result<Target, String> {
        let Some((owner, handler)) = name.split_once('.').filter(|(owner, _)| !owner.is_empty()) else {
            return Ok(Target::Router(name.trim_start_matches('.').to_owned()));
        };
        if handler.is_empty() {
            return Err(format!("'{name}': empty handler name"));
        }
        let found = resolve(&self.known.config, user, owner);
        match found.and_then(|flat| self.find(&flat.name)) {
            Some(index) => Ok(Target::Element(index, handler.to_owned())),
            None => Err(format!("no element named '{owner}'")),
        }
    }

    /// The handler that `name` means if it is one of the running element itself.
    pub fn own_name(&self, name: &str) -> Option<String> {
        match self.target(name, &self.user()) {
            Ok(Target::Element(element, handler)) if element == self.current as usize => Some(handler),
            _ => None,
        }
    }

    /// Whether `name` is a handler that can be read, or written.
    pub fn has_handler(&self, name: &str, writable: bool) -> bool {
        let handler = self.named_handler(name, &self.user());
        handler.is_ok_and(|handler| if writable { handler.is_writable() } else { handler.is_readable() })
    }

    fn named_handler(&self, name: &str, user: &str) -> Result<Handler, Missing> {
        let found = match self.target(name, user) {
            Ok(Target::Element(element, name)) => self.handler(element, &name),
            Ok(Target::Router(name)) => GLOBAL_HANDLERS.iter().find(|handler| handler.name == name).copied(),
            Err(_) => return Err(Missing::Element(name.split('.').next().unwrap_or_default().to_owned())),
        };
        found.ok_or(Missing::Handler)
    }

    /// Reads the handler that `name` means to the running element, of all copies of the graph.
    pub fn call_read(&mut self, name: &str, argument: &str) -> Result<String, String> {
        self.read_as(&self.user(), name, argument)
    }

    fn read_as(&mut self, user: &str, name: &str, argument: &str) -> Result<String, String> {
        let (element, handler) = match self.target(name, user)? {
            Target::Element(element, handler) => (element, handler),
            Target::Router(handler) => return self.read_global(&handler),
        };
        let mut values = Vec::new();
        values.extend(self.read_handler(element, &handler, argument).transpose()?);
        let combine = self.handler(element, &handler).map_or(Combine::First, |known| known.combine);
        if self.copy == 0 {
            for peer in self.known.peers.clone() {
                let (handler, argument) = (handler.clone(), argument.to_owned());
                let value = peer.ask(move |graph| graph.read(element, &handler, &argument)).flatten();
                values.extend(value.transpose()?);
            }
        }
        match values.is_empty() {
            true => Err(format!("'{name}' is at work, and cannot be asked by what it calls itself")),
            false => Ok(combined(combine, values)),
        }
    }

    /// Writes the handler that `name` means to the running element, of all copies of the graph.
    pub fn call_write(&mut self, name: &str, value: &str) -> Result<(), String> {
        self.write_as(&self.user(), name, value)
    }

    /// As [`Context::call_write`]; what it writes to the handlers of the running element itself, which cannot take it now, is
    /// returned, names and values, for the element to take afterwards.
    pub fn call_write_hearing(
        &mut self,
        name: &str,
        value: &str,
    ) -> (Result<(), String>, Vec<(String, String)>) {
        let before = self.hearing.replace((self.current, Vec::new()));
        let result = self.call_write(name, value);
        let heard = std::mem::replace(&mut self.hearing, before);
        (result, heard.map_or_else(Vec::new, |(_, heard)| heard))
    }

    fn write_as(&mut self, user: &str, name: &str, value: &str) -> Result<(), String> {
        let (element, handler) = match self.target(name, user)? {
            Target::Element(element, handler) => (element, handler),
            Target::Router(handler) => return self.write_global(&handler, value),
        };
        let mut results = Vec::new();
        match &mut self.hearing {
            Some((listener, heard)) if *listener as usize == element => {
                heard.push((handler.clone(), value.to_owned()));
                results.push(Ok(()));
            }
            _ => results.extend(self.write_handler(element, &handler, value)),
        }
        let waits = self.copy == 0;
        for peer in self.known.peers.clone() {
            let (handler, value) = (handler.clone(), value.to_owned());
            let write = move |graph: &mut crate::graph::Graph| graph.write(element, &handler, &value);
            if waits {
                results.extend(peer.ask(write).flatten());
            } else {
                peer.post(move |graph| drop(write(graph)));
            }
        }
        match results.is_empty() && waits {
            true => Err(format!("'{name}' is at work, and cannot be asked by what it calls itself")),
            false => results.into_iter().collect(),
        }
    }

    /// Reads a handler of the router itself.
    pub fn read_global(&mut self, name: &str) -> Result<String, String> {
        let Known { config, globals, secrets, .. } = &self.known;
        let lines = |lines: &mut dyn Iterator<Item = &str>| lines.map(|line| format!("{line}\n")).collect();
        Ok(match name {
            "classes" => lines(&mut globals.classes.iter().map(String::as_str)),
            "config" => secrets.hidden_in(globals.source.clone()),
            "driver" => "userlevel\n".to_owned(),
            "flatconfig" => secrets.hidden_in(config.flat_text()),
            "handlers" => table(GLOBAL_HANDLERS.iter().map(|handler| (handler.name, handler))),
            "list" => {
                let names: String = lines(&mut config.elements.iter().map(|element| element.name.as_str()));
                format!("{}\n{names}", config.elements.len())
            }
            // There are no packages to load: all classes are in the program.
            "packages" => String::new(),
            "requirements" => lines(&mut config.requirements.iter().map(|needed| needed.value.as_str())),
            "version" => format!("{}\n", globals.version),
            _ => return Err(no_global("read", name)),
        })
    }

    /// Writes a handler of the router itself.
    pub fn write_global(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "stop" => self.control.stop_times(stops(value)),
            "hotconfig" => match &self.known.globals.hotconfig {
                Some(replace) => replace(value, self.clock.now_ns())?,
                None => return Err("no 'hotconfig' write handler; -R allows it".into()),
            },
            _ => return Err(no_global("write", name)),
        }
        Ok(())
    }
}

/// How often `stop` is meant: the number that was written, or once, whatever else was.
fn stops(value: &str) -> u32 {
    value.trim().parse().unwrap_or(1)
}

fn no_global(kind: &str, name: &str) -> String {
    let known: Vec<&str> = GLOBAL_HANDLERS.iter().map(|handler| handler.name).collect();
    format!("no '{name}' {kind} handler; the router has {}", known.join(", "))
}

/// The text of a `handlers` handler.
fn table<'h>(handlers: impl Iterator<Item = (&'h str, &'h Handler)>) -> String {
    let line = |(name, handler): (&str, &Handler)| {
        let read = if handler.is_readable() { "r" } else { "" };
        let write = if handler.is_writable() { "w" } else { "" };
        format!("{name}\t{read}{write}\n")
    };
    handlers.map(line).collect()
}

/// The text of the `ports` handler: a line per port, as in Click.
fn ports_text(config: &FlatConfig, element: usize) -> String {
    let flat = &config.elements[element];
    let mut text = String::new();
    for (title, kinds, input) in [("input", &flat.input_kinds, true), ("output", &flat.output_kinds, false)] {
        text.push_str(&format!("{} {title}{}\n", kinds.len(), if kinds.len() == 1 { "" } else { "s" }));
        for (port, kind) in kinds.iter().enumerate() {
            let kind = if *kind == PortKind::Push { "push" } else { "pull" };
            let peers: Vec<String> = config
                .connections
                .iter()
                .filter_map(|connection| match input {
                    true if connection.to == (element, port) => {
                        Some(format!("{} [{}]", config.elements[connection.from.0].name, connection.from.1))
                    }
                    false if connection.from == (element, port) => {
                        Some(format!("[{}] {}", connection.to.1, config.elements[connection.to.0].name))
                    }
                    _ => None,
                })
                .collect();
            text.push_str(&format!("{kind}\t-\t{}\n", peers.join(", ")));
        }
    }
    text
}

/// Makes one value of those of several copies.
pub(crate) fn combined(combine: Combine, values: Vec<String>) -> String {
    let numbers = || values.iter().map(|value| value.trim().parse::<f64>()).collect::<Result<Vec<_>, _>>();
    let integers = || values.iter().map(|value| value.trim().parse::<u64>()).collect::<Result<Vec<_>, _>>();
    match combine {
        // Kept as it is written: "007" and "1.50" are not ours to change.
        _ if values.len() == 1 => values.into_iter().next().unwrap_or_default(),
        Combine::Sum => match (integers(), numbers()) {
            (Ok(integers), _) => integers.iter().sum::<u64>().to_string(),
            (_, Ok(numbers)) => numbers.iter().sum::<f64>().to_string(),
            _ => values.join("\n"),
        },
        Combine::Max => match numbers() {
            Ok(numbers) => numbers.into_iter().fold(0.0, f64::max).to_string(),
            Err(_) => values.join("\n"),
        },
        Combine::Join => values.join(""),
        Combine::First => values.into_iter().next().unwrap_or_default(),
    }
}
