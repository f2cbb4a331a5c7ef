//! One worker's copy of all elements, made from a flat configuration.
//!
//! **What a copy holds.** Without a `Punt` every copy has every element. With one, the elements that can only
//! be reached through a `Punt` exist once, in the slow thread's copy; that copy also has its own instance of
//! everything downstream of them (the lookup, the queues, the ports' transmit side), so a packet that
//! crossed over never needs to come back.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use packet::{Batch, Pool, PoolOptions, PoolStats};

use crate::clock::Clock;
use crate::context::{
    Context, ContextOptions, CopyCost, ElementStats, End, Known, Observer, ReadMisses, Slot, Watched,
};
use crate::element::{Class, Element};
use crate::handler::{Combine, Handler};
use crate::hotswap::Plan;
use crate::lang::{ClassSpec, ClassTable, Diagnostic, FlatConfig, PortKind, Severity};
use crate::names;
use crate::punt;
use crate::router::Control;
use crate::setup::{CopyId, Setup, Shared};

/// The classes that configurations may use.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    /// By name; a class with aliases stands here under each of its names.
    classes: BTreeMap<&'static str, &'static Class>,
}

impl Registry {
    /// Only what the graph itself brings: `Punt`.
    pub fn new() -> Self {
        let mut registry = Self::default();
        registry.add(&[&punt::CLASS]);
        registry
    }

    /// Adds classes; a later one of the same name takes the earlier one's place.
    pub fn add(&mut self, classes: &[&'static Class]) {
        for &class in classes {
            let aliases = class.aliases.iter().map(|alias| alias.name);
            self.classes.extend(std::iter::once(class.name).chain(aliases).map(|name| (name, class)));
        }
    }

    /// The class of that name, which may be an alias.
    pub fn class(&self, name: &str) -> Option<&'static Class> {
        self.classes.get(name).copied()
    }

    /// All names of classes, in order, aliases too, each with its class.
    pub fn classes(&self) -> impl Iterator<Item = (&'static str, &'static Class)> {
        self.classes.iter().map(|(&name, &class)| (name, class))
    }
}

impl ClassTable for Registry {
    fn lookup(&self, name: &str) -> Option<ClassSpec> {
        let (&name, class) = self.classes.get_key_value(name)?;
        Some(ClassSpec {
            name,
            ports: class.ports,
            processing: class.processing,
            flow: class.flow,
            capabilities: class.capabilities,
        })
    }

    fn names(&self) -> Vec<String> {
        self.classes.keys().map(|&name| name.to_owned()).collect()
    }
}

/// How to make a copy of a graph.
#[derive(Clone, Copy, Debug)]
pub struct GraphOptions {
    /// Packets that a source takes at a time, 1 to 256.
    pub burst: usize,
    /// The copy's pool of frames.
    pub pool: PoolOptions,
    /// Where time starts if it stands still unless it is moved, in nanoseconds since 1970.
    pub simulated_time: Option<u64>,
}

impl Default for GraphOptions {
    fn default() -> Self {
        Self { burst: 64, pool: PoolOptions::default(), simulated_time: None }
    }
}

/// One copy of all elements.
#[derive(Debug)]
pub struct Graph {
    context: Context,
    copy: CopyId,
}

/// Which elements are in `copy`, by index.
pub(crate) fn presence(config: &FlatConfig, copy: CopyId) -> Vec<bool> {
    let count = config.elements.len();
    if !copy.slow_thread {
        return vec![true; count];
    }
    let is_punt = |index: usize| config.elements[index].class == punt::CLASS.name;
    let mut downstream = vec![Vec::new(); count];
    let mut has_input = vec![false; count];
    for connection in &config.connections {
        downstream[connection.from.0].push(connection.to.0);
        has_input[connection.to.0] = true;
    }
    let spread = |roots: Vec<usize>, through_punts: bool| {
        let mut reached = vec![false; count];
        let mut open = roots;
        while let Some(index) = open.pop() {
            if !std::mem::replace(&mut reached[index], true) && (through_punts || !is_punt(index)) {
                open.extend(&downstream[index]);
            }
        }
        reached
    };
    let slow = spread((0..count).filter(|&index| is_punt(index)).collect(), true);
    if copy.is_slow() {
        return slow;
    }
    let fast = spread((0..count).filter(|&index| !has_input[index]).collect(), false);
    (0..count).map(|index| fast[index] || !slow[index]).collect()
}

/// Makes every element of a configuration only to see whether its arguments are right, or odd; nothing is opened.
/// Elements of unknown classes are passed over: the compiler reported them already.
pub fn check_arguments(config: &FlatConfig, registry: &Registry) -> Vec<Diagnostic> {
    let shared = Shared::default();
    let copy = CopyId { index: 0, workers: 1, slow_thread: false };
    let names_of = Arc::new(config.clone());
    let mut problems = Vec::new();
    for (index, flat) in config.elements.iter().enumerate() {
        let Some(class) = registry.class(&flat.class) else { continue };
        let mut setup = Setup::new(flat, &shared, copy).within(config, index).for_check();
        if let Err(error) = names::within(&names_of, &flat.name, || (class.make)(&mut setup)) {
            problems
                .extend(error.messages.into_iter().map(|text| problem(config, index, "configuring", text)));
        }
        problems.extend(setup.warnings.into_iter().map(|text| Diagnostic {
            severity: Severity::Warning,
            ..problem(config, index, "configuring", text)
        }));
    }
    problems
}

/// That frames are not to be had.
pub(crate) fn no_memory(frames: usize, error: &std::io::Error) -> Vec<Diagnostic> {
    vec![Diagnostic {
        location: None,
        severity: Severity::Error,
        message: format!("no memory for {frames} frames: {error}"),
        help: Some("ask for fewer frames, or free memory".into()),
        context: None,
        excerpt: None,
    }]
}

impl Graph {
    /// Makes all elements, wires and initialises them. All elements are made even after a mistake, so that
    /// every mistake is reported; initialisation stops at the first.
    pub fn build(
        config: &Arc<FlatConfig>,
        registry: &Registry,
        shared: &Shared,
        copy: CopyId,
        options: &GraphOptions,
        control: &Arc<Control>,
    ) -> Result<Self, Vec<Diagnostic>> {
        let pool = Pool::new(options.pool).map_err(|error| no_memory(options.pool.frames, &error))?;
        let mut graph = Self::with_pool(config, registry, shared, copy, options, pool, control, &|_| false)?;
        graph.context.begin();
        Ok(graph)
    }

    /// As [`Graph::build`], with frames out of `pool`, and without the elements that are `kept` of another graph: these come
    /// with [`Graph::take_place_of`]. It does not run before [`Context::begin`].
    #[expect(clippy::too_many_arguments, reason = "the parts of a copy, each from elsewhere")]
    pub(crate) fn with_pool(
        config: &Arc<FlatConfig>,
        registry: &Registry,
        shared: &Shared,
        copy: CopyId,
        options: &GraphOptions,
        pool: Pool,
        control: &Arc<Control>,
        kept: &dyn Fn(usize) -> bool,
    ) -> Result<Self, Vec<Diagnostic>> {
        let mut present = presence(config, copy);
        present.iter_mut().enumerate().for_each(|(index, present)| *present &= !kept(index));
        let mut problems = Vec::new();
        let mut slots = Vec::with_capacity(config.elements.len());
        for (index, flat) in config.elements.iter().enumerate() {
            let mut made = None;
            if present[index] {
                let result = match registry.class(&flat.class) {
                    Some(class) => names::within(config, &flat.name, || {
                        (class.make)(&mut Setup::new(flat, shared, copy).within(config, index))
                    }),
                    None => Err(format!("unknown element class '{}'", flat.class).into()),
                };
                match result {
                    Ok(element) => made = Some(element),
                    Err(error) => problems.extend(
                        error.messages.into_iter().map(|text| problem(config, index, "configuring", text)),
                    ),
                }
            }
            let handlers = registry.class(&flat.class).map_or(&[][..], |class| class.handlers);
            slots.push(Slot::new(made, handlers, flat.inputs, flat.outputs));
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        wire(&mut slots, config, &present);
        let clock = options.simulated_time.map_or_else(Clock::real, Clock::simulated_from);
        let context_options = ContextOptions { burst: options.burst, copy: copy.index };
        let known = Known::new(config.clone(), shared, copy.workers);
        let context = Context::new(slots, pool, clock, context_options, control.clone(), known);
        let mut graph = Self { context, copy };
        for index in 0..config.elements.len() {
            match graph.context.enter(index, |element, cx| element.initialise(cx)) {
                None | Some(Ok(())) => {}
                Some(Err(text)) => return Err(vec![problem(config, index, "initializing", text)]),
            }
        }
        graph.context.find_runs(true);
        Ok(graph)
    }

    /// Takes the place of `old`: the elements that the plan names move here, what others leave is inherited, and
    /// frames, clock and mail box are those of `old`, of which only what has no place here is left.
    pub(crate) fn take_place_of(&mut self, old: &mut Self, plan: &Plan) {
        old.context.unwatch_all();
        self.context.take_over(&mut old.context, plan);
        let present = presence(self.context.config(), self.copy);
        let config = self.context.config().clone();
        wire(&mut self.context.slots, &config, &present);
        self.context.inherit(&mut old.context, plan);
        self.context.finish();
        self.context.set_fused(true);
        self.context.begin();
    }

    /// The configuration this was made from.
    pub fn config(&self) -> &Arc<FlatConfig> {
        self.context.config()
    }

    /// Which copy this is.
    pub fn copy(&self) -> CopyId {
        self.copy
    }

    /// The machine.
    pub fn context(&mut self) -> &mut Context {
        &mut self.context
    }

    /// Number of the element called `name` that this copy has.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.context.find(name).filter(|&index| self.context.slots[index].element.is_some())
    }

    /// Runs `call` on an element and works off what it emits; `None` when this copy does not have it.
    pub fn enter<R>(
        &mut self,
        element: usize,
        call: impl FnOnce(&mut dyn Element, &mut Context) -> R,
    ) -> Option<R> {
        self.context.enter(element, call)
    }

    /// Pushes `batch` into `input` of `element` and works off all that follows.
    pub fn push(&mut self, element: usize, input: usize, batch: Batch) {
        self.context.run(End { element: element as u32, port: input as u32 }, batch);
    }

    /// Whether elements in a row work as one for batches of ordinary packets ([`runs`](crate::runs)). They do,
    /// unless this says otherwise: tests compare the two.
    pub fn set_fused(&mut self, fused: bool) {
        self.context.set_fused(fused);
    }

    /// What each element did so far, in the order of the configuration.
    pub fn stats(&mut self) -> Vec<ElementStats> {
        (0..self.config().elements.len()).map(|index| self.element_stats(index)).collect()
    }

    /// What one element did so far.
    pub fn element_stats(&mut self, element: usize) -> ElementStats {
        self.context.settled_stats(element)
    }

    /// Sets all elements' counters back to zero (not what their handlers count).
    pub fn reset_stats(&mut self) {
        self.context.reset_stats();
    }

    /// Begins to count what each step costs, for [`Graph::end_cost`]: each turn is timed from now on. With `unfused`, elements
    /// in a row do not work as one meanwhile, so that each is a step. `misses` reads the counters of the thread that runs this
    /// copy.
    pub fn begin_cost(&mut self, unfused: bool, misses: Option<ReadMisses>) {
        self.context.begin_cost(unfused, misses);
    }

    /// Ends it. Returns what each step did meanwhile; `None` where the configuration, or what elements do to ordinary packets,
    /// has changed, or it was not begun.
    pub fn end_cost(&mut self) -> Option<CopyCost> {
        self.context.end_cost()
    }

    /// Has `observer` see packets from now on: those on connections, those that are dropped. It ends with [`Graph::unwatch`] and
    /// this number, or when another configuration takes the place of this one; the observer is dropped then. Nothing happens to
    /// the packets, and nobody pays for what is not watched.
    pub fn watch(&mut self, number: u64, watched: Watched, observer: Box<dyn Observer>) {
        self.context.watch(number, watched, observer);
    }

    /// Ends what began with this number.
    pub fn unwatch(&mut self, number: u64) {
        self.context.unwatch(number);
    }

    /// The copy's pool of frames.
    pub fn pool(&mut self) -> &mut Pool {
        self.context.pool()
    }

    /// How the pool of frames does.
    pub fn pool_stats(&mut self) -> PoolStats {
        self.context.pool().stats()
    }

    /// Adds the file descriptors that awake tasks wait for to `fds`; returns whether some awake task has
    /// none, so that it must be asked again soon.
    pub(crate) fn wait_fds<'a>(&'a self, fds: &mut Vec<BorrowedFd<'a>>) -> bool {
        let mut some_without = false;
        for slot in self.context.slots.iter().filter(|slot| slot.is_scheduled()) {
            some_without |= !slot.element.as_ref().is_some_and(|element| element.wait_fds(fds));
        }
        some_without
    }

    /// All handlers of an element by name, those that every element has included.
    pub fn handlers(&self, element: usize) -> Vec<(String, Handler)> {
        self.context.handlers(element)
    }

    /// How the values that several copies have for a handler become one.
    pub(crate) fn combine(&self, element: usize, name: &str) -> Combine {
        self.context.handler(element, name).map_or(Combine::First, |handler| handler.combine)
    }

    /// Reads a handler. `None` when this copy does not have the element.
    pub fn read(&mut self, element: usize, name: &str, argument: &str) -> Option<Result<String, String>> {
        let value = self.context.read_handler(element, name, argument);
        self.context.finish();
        value
    }

    /// Writes a handler. `None` when this copy does not have the element.
    pub fn write(&mut self, element: usize, name: &str, value: &str) -> Option<Result<(), String>> {
        let result = self.context.write_handler(element, name, value);
        self.context.finish();
        result
    }
}

fn problem(config: &FlatConfig, element: usize, doing: &str, message: String) -> Diagnostic {
    let flat = &config.elements[element];
    let help = undefined_variable(&message, &flat.config).map(|name| {
        format!("undefined variable '{name}': 'define({name} VALUE)' in the file gives it a value, or {}=VALUE behind the file's name", &name[1..])
    });
    Diagnostic {
        location: Some(flat.location.clone()),
        severity: Severity::Error,
        message,
        help,
        context: Some(format!("While {doing} '{} :: {}':", flat.name, flat.class)),
        excerpt: None,
    }
}

/// The variable without a value that a message about a configuration string names.
fn undefined_variable<'m>(message: &'m str, configuration: &str) -> Option<&'m str> {
    message.match_indices('$').find_map(|(start, _)| {
        let rest = &message[start + 1..];
        let length = rest.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
        let name = &message[start..start + 1 + length];
        (length > 0 && configuration.contains(name)).then_some(name)
    })
}

/// Fills in the slots' ends, and who wakes whom.
fn wire(slots: &mut [Slot], config: &FlatConfig, present: &[bool]) {
    let end = |(element, port): (usize, usize)| Some(End { element: element as u32, port: port as u32 });
    for connection in &config.connections {
        let (from, to) = (connection.from, connection.to);
        if !present[from.0] || !present[to.0] {
            continue;
        }
        match config.elements[from.0].output_kinds[from.1] {
            PortKind::Push => slots[from.0].outputs[from.1] = end(to),
            PortKind::Pull => slots[to.0].inputs[to.1] = end(from),
        }
    }
    for index in 0..slots.len() {
        for input in 0..slots[index].inputs.len() {
            let mut looked = 0;
            while looked < config.elements.len()
                && let Some(from) = slots[index].inputs[input]
                && let Some(element) = &slots[from.element as usize].element
                && let Some(before) = element.pulled_through(from.port as usize)
            {
                slots[index].inputs[input] =
                    slots[from.element as usize].inputs.get(before).copied().flatten();
                looked += 1;
            }
        }
    }
    let pulls = |kinds: &[PortKind]| kinds.contains(&PortKind::Pull);
    let mut listeners = vec![Vec::new(); slots.len()];
    for (index, flat) in config.elements.iter().enumerate() {
        if !present[index] || !pulls(&flat.input_kinds) || pulls(&flat.output_kinds) {
            continue;
        }
        let mut notifiers = Vec::new();
        let mut all_tell = true;
        let mut seen = vec![false; slots.len()];
        let mut open = vec![index];
        while let Some(at) = open.pop() {
            if std::mem::replace(&mut seen[at], true) {
                continue;
            }
            if at != index && slots[at].element.as_ref().is_some_and(|element| element.notifies()) {
                notifiers.push(at as u32);
                listeners[at].push(index as u32);
                continue;
            }
            if at != index && !pulls(&config.elements[at].input_kinds) {
                all_tell = false;
            }
            open.extend(slots[at].inputs.iter().flatten().map(|from| from.element as usize));
        }
        slots[index].notifiers = all_tell.then(|| notifiers.into());
    }
    for (slot, listeners) in slots.iter_mut().zip(listeners) {
        slot.listeners = listeners.into();
    }
}
