//! What an element sees while it is made.
//!
//! Every worker makes its own copy of every element. What the copies must have in common (a port whose
//! queues they share out, a neighbour table, a ring between threads) is made by the first copy that asks and
//! handed to the others: [`Setup::shared`].

use packet::sync::lock;
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use packet::flow::FlowKey;

use crate::arguments::Arguments;
use crate::element::{Capability, ConfigError};
use crate::hotswap::Found;
use crate::lang::{FlatConfig, FlatElement, Location, PortKind, split_arguments};
use crate::secrets::Secrets;

/// Things that the copies of a graph share, by type and key; also how the program hands things to elements
/// (the map of port names, say).
#[derive(Clone, Default)]
pub struct Shared {
    things: Arc<Mutex<Things>>,
    /// The thread that makes a thing holds the lock of its key. Others that ask for it meanwhile wait.
    making: Arc<Mutex<HashMap<Key, Arc<Mutex<()>>>>>,
}

/// Things by type and key.
type Things = HashMap<Key, Arc<dyn Any + Send + Sync>>;
type Key = (TypeId, String);

impl Shared {
    /// Under which key lies the [`FlowKey`] of a router that is to choose the same every time it runs: a
    /// test, a bench.
    pub const FLOW_KEY: &str = "flow-key";

    /// The thing of type `T` under `key`; made by `make` when there is none yet.
    pub fn get_or_make<T: Any + Send + Sync, E>(
        &self,
        key: &str,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        if let Some(thing) = self.get(key) {
            return Ok(thing);
        }
        // The things' own lock is not held, because making one thing may ask for another.
        let turn = lock(&self.making).entry((TypeId::of::<T>(), key.to_owned())).or_default().clone();
        let _turn = lock(&turn);
        if let Some(thing) = self.get(key) {
            return Ok(thing);
        }
        let made: Arc<T> = Arc::new(make()?);
        let mut things = lock(&self.things);
        things.insert((TypeId::of::<T>(), key.to_owned()), made.clone());
        Ok(made)
    }

    /// Another collection with the things whose keys `stays` accepts.
    pub(crate) fn fork(&self, stays: impl Fn(&str) -> bool) -> Self {
        let things = lock(&self.things);
        let staying = things.iter().filter(|((_, key), _)| stays(key));
        let things = staying.map(|(key, thing)| (key.clone(), thing.clone())).collect();
        Self { things: Arc::new(Mutex::new(things)), making: Arc::default() }
    }

    /// Puts a thing under `key`, in the place of another one of its type.
    pub(crate) fn put<T: Any + Send + Sync>(&self, key: &str, thing: T) {
        let mut things = lock(&self.things);
        things.insert((TypeId::of::<T>(), key.to_owned()), Arc::new(thing));
    }

    /// The thing of type `T` under `key`, if there is one.
    pub fn get<T: Any + Send + Sync>(&self, key: &str) -> Option<Arc<T>> {
        let things = lock(&self.things);
        things.get(&(TypeId::of::<T>(), key.to_owned())).cloned()?.downcast().ok()
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shared(..)")
    }
}

/// Which copy of the graph is being made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyId {
    /// Number of this copy: workers are 0 to `workers - 1`, the slow thread comes after them.
    pub index: usize,
    /// Number of workers.
    pub workers: usize,
    /// Whether a slow thread exists beside the workers.
    pub slow_thread: bool,
}

impl CopyId {
    /// Whether a configuration needs a slow thread beside the workers: it has a `Punt`.
    pub(crate) fn needs_slow_thread(config: &FlatConfig) -> bool {
        config.elements.iter().any(|element| element.class == crate::punt::CLASS.name)
    }

    /// Whether this is the slow thread's copy.
    pub fn is_slow(&self) -> bool {
        self.index >= self.workers
    }

    /// Number of copies in all, the slow thread's included.
    pub fn count(&self) -> usize {
        self.workers + usize::from(self.slow_thread)
    }
}

/// Which way to look from an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Along its output of this number, where packets go.
    Downstream(usize),
    /// Along its input of this number, where packets come from.
    Upstream(usize),
}

/// What [`Setup::nearest`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nearest<'a> {
    /// Names of the elements, nearest first.
    pub names: Vec<&'a str>,
    /// Whether every way leads to one of them: no way ends elsewhere.
    pub everywhere: bool,
}

/// What an element sees while it is made.
#[derive(Debug)]
pub struct Setup<'a> {
    element: &'a FlatElement,
    shared: &'a Shared,
    copy: CopyId,
    place: Option<(&'a FlatConfig, usize)>,
    check_only: bool,
    pub(crate) warnings: Vec<String>,
    /// The arguments, to be read by the element.
    pub arguments: Arguments,
}

impl<'a> Setup<'a> {
    /// For the element `element` of the copy `copy`.
    pub fn new(element: &'a FlatElement, shared: &'a Shared, copy: CopyId) -> Self {
        Self {
            element,
            shared,
            copy,
            place: None,
            check_only: false,
            warnings: Vec::new(),
            arguments: Arguments::new(&element.config),
        }
    }

    /// Says that the element is number `index` of `config`, so that it can look around.
    pub fn within(mut self, config: &'a FlatConfig, index: usize) -> Self {
        self.place = Some((config, index));
        self
    }

    /// Says that the element is made only to see whether its arguments are right.
    pub fn for_check(mut self) -> Self {
        self.check_only = true;
        self
    }

    /// Whether the element is made only to see whether its arguments are right. It must then leave the world
    /// alone: open no port, write no file.
    pub fn is_check(&self) -> bool {
        self.check_only
    }

    /// The element's name.
    pub fn name(&self) -> &'a str {
        &self.element.name
    }

    /// Where the element is declared.
    pub fn location(&self) -> &'a Location {
        &self.element.location
    }

    /// The element's class.
    pub fn class(&self) -> &'a str {
        &self.element.class
    }

    /// The configuration string as it stands in the configuration.
    pub fn config(&self) -> &'a str {
        &self.element.config
    }

    /// Number of inputs in use.
    pub fn inputs(&self) -> usize {
        self.element.inputs
    }

    /// Number of outputs in use.
    pub fn outputs(&self) -> usize {
        self.element.outputs
    }

    /// Whether the element pulls packets from its input `port` (they are pushed into it otherwise).
    pub fn input_is_pull(&self, port: usize) -> bool {
        self.element.input_kinds.get(port) == Some(&PortKind::Pull)
    }

    /// Whether packets are pulled out of the element's output `port` (it pushes them otherwise).
    pub fn output_is_pull(&self, port: usize) -> bool {
        self.element.output_kinds.get(port) == Some(&PortKind::Pull)
    }

    /// The element that `name` means to this one: a neighbour in its own compound element, or one further
    /// outside.
    pub fn find(&self, name: &str) -> Option<&'a FlatElement> {
        let (config, _) = self.place?;
        resolve(config, &self.element.name, name).inspect(|found| self.note(&found.name))
    }

    /// Remembers that this element knows of another one.
    fn note(&self, other: &str) {
        let Ok(found) = self.shared.get_or_make(Found::KEY, || Ok::<_, Infallible>(Found::default()));
        found.note(&self.element.name, other);
    }

    /// The elements of class `class` in this element's compound element and those around it, the innermost first: those
    /// whose definitions count here.
    pub fn visible(&self, class: &str) -> Vec<&'a FlatElement> {
        let Some((config, _)) = self.place else { return Vec::new() };
        let sees =
            |scope: &str| self.element.name.strip_prefix(scope).is_some_and(|rest| rest.starts_with('/'));
        let in_sight = |element: &&FlatElement| {
            element.class == class && element.name.rsplit_once('/').is_none_or(|(scope, _)| sees(scope))
        };
        let mut found: Vec<_> = config.elements.iter().filter(in_sight).collect();
        found.sort_by_key(|element| std::cmp::Reverse(element.name.matches('/').count()));
        found.iter().for_each(|element| self.note(&element.name));
        found
    }

    /// All elements of class `class`, wherever they are.
    pub fn all_of(&self, class: &'static str) -> impl Iterator<Item = &'a FlatElement> {
        let elements = self.place.map_or(&[][..], |(config, _)| &config.elements[..]);
        elements.iter().filter(move |element| element.class == class)
    }

    /// The worker to which a `StaticThreadSched` binds this element, if one does. A router with fewer workers than the
    /// configuration counts on begins again at the first.
    pub fn bound_worker(&self) -> Option<usize> {
        let (config, _) = self.place?;
        bound_worker(config, &self.element.name, self.copy.workers)
    }

    /// The elements that `name` means to a `StaticThreadSched`: one element, or all in a compound element.
    pub fn find_to_bind(&self, name: &str) -> Vec<&'a FlatElement> {
        let Some((config, _)) = self.place else { return Vec::new() };
        let meant = |element: &&FlatElement| is_meant(config, &self.element.name, name, &element.name);
        config.elements.iter().filter(meant).inspect(|found| self.note(&found.name)).collect()
    }

    /// Says what is odd about the configuration, though the element can be made.
    pub fn warn(&mut self, text: impl Into<String>) {
        self.warnings.push(text.into());
    }

    /// Whether an element that works on one worker only works on this one: the first, unless a `StaticThreadSched`
    /// binds it to another.
    pub fn works_here(&self) -> bool {
        self.copy.index == self.bound_worker().unwrap_or(0)
    }

    /// The nearest elements in `direction` whose class has a capability, on every way; elements behind them are
    /// not looked at.
    pub fn nearest(&self, direction: Direction, capability: Capability) -> Nearest<'a> {
        let mut found = Nearest { names: Vec::new(), everywhere: true };
        let Some((config, index)) = self.place else { return Nearest::default() };
        let beyond = |element: usize, only: Option<usize>| -> Vec<usize> {
            let fits = |port: usize| only.is_none_or(|only| only == port);
            let ends = config.connections.iter().filter_map(|connection| {
                let (here, there) = match direction {
                    Direction::Downstream(_) => (connection.from, connection.to),
                    Direction::Upstream(_) => (connection.to, connection.from),
                };
                (here.0 == element && fits(here.1)).then_some(there.0)
            });
            ends.collect()
        };
        let (Direction::Downstream(port) | Direction::Upstream(port)) = direction;
        let mut seen = vec![false; config.elements.len()];
        let mut open = std::collections::VecDeque::from(beyond(index, Some(port)));
        found.everywhere = !open.is_empty();
        while let Some(at) = open.pop_front() {
            if std::mem::replace(&mut seen[at], true) {
                continue;
            }
            if config.elements[at].has(capability) {
                found.names.push(&config.elements[at].name);
                self.note(&config.elements[at].name);
                continue;
            }
            let next = beyond(at, None);
            found.everywhere &= !next.is_empty();
            open.extend(next);
        }
        found
    }

    /// Makes this element the one whose handler `step` is written with "router" when the router is to stop; it then says,
    /// by [`Control::resume`](crate::router::Control::resume), whether that goes on. There can be one.
    pub fn manage_driver(&self) -> Result<(), ConfigError> {
        let name = self.shared.get_or_make(DRIVER_SCRIPT, || Ok::<_, ConfigError>(self.name().to_owned()))?;
        match *name == self.name() {
            true => Ok(()),
            false => Err("router has more than one driver script".to_owned().into()),
        }
    }

    /// Which copy of the graph this is for.
    pub fn copy(&self) -> CopyId {
        self.copy
    }

    /// What all copies share.
    pub fn shared(&self) -> &'a Shared {
        self.shared
    }

    /// The key by which all elements of this router hash flows: the process's, or the one under
    /// [`Shared::FLOW_KEY`]. It stays when the configuration changes, so flows keep their workers and next
    /// hops.
    pub fn flow_key(&self) -> FlowKey {
        self.shared.get(Shared::FLOW_KEY).map_or_else(FlowKey::of_process, |key| *key)
    }

    /// Has handlers that print configurations (`config`, `flatconfig`) print `***` for this word, which is a key. It is what the
    /// configuration has, quotes included. Programs that print a configuration they have read themselves still print it.
    pub fn hide(&self, word: String) {
        let Ok(secrets) = self.shared.get_or_make(Secrets::KEY, || Ok::<_, Infallible>(Secrets::default()));
        secrets.add(word);
    }

    /// The thing of type `T` that the copies of this element share; the first copy makes it.
    pub fn shared_by_copies<T: Any + Send + Sync, E>(
        &self,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        self.shared.get_or_make(&format!("element:{}", self.element.name), make)
    }
}

/// The signals that elements wait for, by their numbers: what else the program does on them it leaves alone.
#[derive(Debug, Default)]
pub struct TakenSignals(Mutex<Vec<i32>>);

impl TakenSignals {
    /// Under which key they lie.
    pub const KEY: &str = "taken signals";

    /// Says that an element waits for a signal.
    pub fn take(&self, signal: i32) {
        lock(&self.0).push(signal);
    }

    /// Says that an element waits for a signal no longer.
    pub fn give_back(&self, signal: i32) {
        let mut all = lock(&self.0);
        if let Some(at) = all.iter().position(|&taken| taken == signal) {
            all.remove(at);
        }
    }

    /// Whether an element waits for a signal.
    pub fn has(&self, signal: i32) -> bool {
        lock(&self.0).contains(&signal)
    }
}

/// Under which key the driver script's name lies.
pub(crate) const DRIVER_SCRIPT: &str = "driver script";

/// The class that binds elements to workers.
pub const STATIC_THREAD_SCHED: &str = "StaticThreadSched";

/// The worker, of so many, to which a `StaticThreadSched` of `config` binds the element called `element`.
pub(crate) fn bound_worker(config: &FlatConfig, element: &str, workers: usize) -> Option<usize> {
    let schedulers = config.elements.iter().filter(|element| element.class == STATIC_THREAD_SCHED);
    let bindings = schedulers.flat_map(|scheduler| {
        let bindings = split_arguments(&scheduler.config).into_iter();
        bindings.filter_map(|binding| {
            let (name, thread) = binding.rsplit_once(char::is_whitespace)?;
            let thread = thread.parse::<usize>().ok()?;
            is_meant(config, &scheduler.name, name.trim(), element).then_some(thread)
        })
    });
    // The one that comes last says it.
    bindings.last().map(|thread| thread % workers.max(1))
}

/// Whether `name`, said by the StaticThreadSched `user`, means `element`: by itself, or as a member of a compound element
/// beside `user`.
fn is_meant(config: &FlatConfig, user: &str, name: &str, element: &str) -> bool {
    if let Some(found) = resolve(config, user, name) {
        return found.name == element;
    }
    let scope = user.rsplit_once('/').map_or("", |(scope, _)| scope);
    let inside = element.strip_prefix(scope).map(|rest| rest.strip_prefix('/').unwrap_or(rest));
    inside.and_then(|rest| rest.strip_prefix(name)).is_some_and(|rest| rest.starts_with('/'))
}

/// The element that `name` means to the element `user`: a neighbour in its own compound element, or one further outside.
pub(crate) fn resolve<'a>(config: &'a FlatConfig, user: &str, name: &str) -> Option<&'a FlatElement> {
    let mut scope = user;
    loop {
        scope = scope.rsplit_once('/').map_or("", |(outer, _)| outer);
        let full = if scope.is_empty() { name.to_owned() } else { format!("{scope}/{name}") };
        match config.find(&full) {
            Some(index) => return Some(&config.elements[index]),
            None if scope.is_empty() => return None,
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::{Class, Element};
    use crate::graph::Registry;
    use crate::lang::{self, Source};

    struct Nothing;
    impl Element for Nothing {}

    const IS_STORE: Capability = Capability("store");

    const ANY: Class = Class { ports: "-/-", make: |_| Ok(Box::new(Nothing)), ..Class::DEFAULT };
    static STEP: Class = Class { name: "Step", ..ANY };
    static STORE: Class = Class { name: "Store", processing: "h/l", capabilities: &[IS_STORE], ..ANY };
    static PUMP: Class = Class { name: "Pump", processing: "l/h", ..ANY };

    fn config(text: &str) -> FlatConfig {
        let mut registry = Registry::new();
        registry.add(&[&STEP, &STORE, &PUMP]);
        let source = Source { name: "test.click".into(), text: text.into() };
        let (flat, diagnostics) = lang::compile(&source, &lang::Options::default(), &registry);
        assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
        flat.unwrap()
    }

    #[test]
    fn a_thing_is_made_once_however_many_ask_for_it_at_a_time() {
        let (shared, made) = (Shared::default(), Mutex::new(0));
        let barrier = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    barrier.wait();
                    let make = || {
                        // It asks for another one.
                        shared.get_or_make::<u64, Infallible>("other", || Ok(1))?;
                        std::thread::yield_now();
                        *lock(&made) += 1;
                        Ok::<_, Infallible>(*lock(&made))
                    };
                    assert_eq!(*shared.get_or_make::<i32, _>("one", make).unwrap(), 1);
                });
            }
        });
        assert_eq!(*lock(&made), 1);
        // What could not be made is made by the next who asks.
        assert!(shared.get_or_make::<i32, _>("two", || Err(())).is_err());
        assert_eq!(*shared.get_or_make::<i32, ()>("two", || Ok(2)).unwrap(), 2);
    }

    fn with_setup<R>(config: &FlatConfig, name: &str, look: impl FnOnce(&Setup<'_>) -> R) -> R {
        let index = config.find(name).unwrap();
        let shared = Shared::default();
        let copy = CopyId { index: 0, workers: 1, slow_thread: false };
        look(&Setup::new(&config.elements[index], &shared, copy).within(config, index))
    }

    fn stores(config: &FlatConfig, name: &str, direction: Direction) -> (Vec<String>, bool) {
        with_setup(config, name, |setup| {
            let found = setup.nearest(direction, IS_STORE);
            (found.names.into_iter().map(str::to_owned).collect(), found.everywhere)
        })
    }

    #[test]
    fn the_nearest_elements_on_every_way() {
        let config = config(
            "a, b, c, d :: Step; q, r, s :: Store;
             a -> b -> q -> Pump -> c -> r; b[1] -> s; a[1] -> d; q[1] -> Pump -> a; d -> d",
        );
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        assert_eq!(stores(&config, "a", Direction::Downstream(0)), (names(&["q", "s"]), true));
        assert_eq!(stores(&config, "b", Direction::Downstream(1)), (names(&["s"]), true));
        assert_eq!(stores(&config, "c", Direction::Upstream(0)), (names(&["q"]), true));
        assert_eq!(stores(&config, "b", Direction::Upstream(0)), (names(&["q"]), true));
        assert_eq!(stores(&config, "c", Direction::Downstream(7)), (Vec::new(), false));
    }

    #[test]
    fn a_way_that_ends_elsewhere_is_noticed() {
        let config = config("a, b :: Step; q :: Store; a -> b -> q -> Pump; b[1] -> end :: Step");
        assert_eq!(stores(&config, "a", Direction::Downstream(0)), (vec!["q".to_owned()], false));
    }

    #[test]
    fn names_are_looked_for_outwards() {
        let config = config(
            "elementclass C { input -> x :: Step -> q :: Store -> output };
             Step -> c :: C -> Step; Step -> r :: Store -> Step",
        );
        let find = |name: &str| with_setup(&config, "c/x", |setup| setup.find(name).map(|e| e.name.clone()));
        assert_eq!(find("q").as_deref(), Some("c/q"));
        assert_eq!(find("r").as_deref(), Some("r"));
        assert_eq!(find("c/q").as_deref(), Some("c/q"));
        assert_eq!(find("nothing"), None);
    }

    #[test]
    fn definitions_count_inside_and_below() {
        let config = config(
            "elementclass C { input -> x :: Step -> q :: Store -> output };
             Step -> c :: C -> Step; Step -> r :: Store -> Step; Step -> d :: C -> Step",
        );
        let names = |element: &str| {
            with_setup(&config, element, |setup| {
                setup.visible("Store").iter().map(|found| found.name.clone()).collect::<Vec<_>>()
            })
        };
        assert_eq!(names("c/x"), ["c/q", "r"]);
        assert_eq!(names("r"), ["r"]);
    }

    #[test]
    fn ports_know_who_moves_packets() {
        let config = config("Step -> q :: Store -> Step");
        with_setup(&config, "q", |setup| {
            assert_eq!((setup.input_is_pull(0), setup.output_is_pull(0)), (false, true));
            assert!(!setup.output_is_pull(1));
        });
    }
}
