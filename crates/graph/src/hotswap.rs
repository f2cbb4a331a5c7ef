//! Another configuration in a running one's place.
//!
//! A new configuration is made beside the one that runs, which goes on meanwhile and stays if anything is wrong with the new
//! one ([`Swap::prepare`]). Then each copy of the graph is exchanged at a batch boundary, one after the other
//! ([`Router::apply`](crate::router::Router::apply)).
//!
//! **What stays.** An element of the same name, class, arguments and ports is not made anew: it moves into the new graph as it
//! is, with its packets, counters, tables, timers and open ports. One that looked around while it was made (a source that
//! waits for queues) moves only if what it found stays too. Where only the arguments differ the new element
//! [inherits](crate::Element::inherit) what the old one [leaves](crate::Element::leave) it. Frames and the clock stay those of
//! the copy, so no packet is lost.
//!
//! **Elements without a name** are numbered in the order of the text, so one more changes the numbers of those behind it. Such an
//! element gets the name of a running one of its class and arguments; of several the first of both go together.

use packet::sync::lock;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use packet::{Pool, PoolOptions};

use crate::context::Globals;
use crate::graph::{Graph, Registry, no_memory, presence};
use crate::lang::{Diagnostic, FlatConfig};
use crate::names;
use crate::router::{Control, RouterOptions};
use crate::setup::{CopyId, DRIVER_SCRIPT, Shared};

/// Frames of a copy while it is made; then it gets those of the copy whose place it takes.
const FRAMES_AT_FIRST: usize = 64;

/// Names that elements asked for while they were made, and what they found.
#[derive(Debug, Default)]
pub(crate) struct Found(Mutex<BTreeMap<String, BTreeSet<String>>>);

impl Found {
    /// Under which key it lies.
    pub(crate) const KEY: &str = "what elements found";

    /// Notes that `element` was notified of `other`.
    pub(crate) fn note(&self, element: &str, other: &str) {
        let mut all = lock(&self.0);
        all.entry(element.to_owned()).or_default().insert(other.to_owned());
    }

    fn of(&self, element: &str) -> BTreeSet<String> {
        lock(&self.0).get(element).cloned().unwrap_or_default()
    }
}

/// What runs, as far as its successor has to know.
#[derive(Clone, Debug)]
pub struct Running {
    pub(crate) config: Arc<FlatConfig>,
    pub(crate) shared: Shared,
    pub(crate) options: RouterOptions,
    pub(crate) control: Arc<Control>,
}

impl Running {
    /// The configuration.
    pub fn config(&self) -> &Arc<FlatConfig> {
        &self.config
    }

    /// What its elements share.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }
}

/// Which elements of the old graph go where.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    /// The old number of each element that moves as it is, by its new one.
    pub(crate) moves: Vec<Option<usize>>,
    /// New and old number of elements of the same name and class that are made anew.
    pub(crate) inherits: Vec<(usize, usize)>,
}

/// A configuration that is ready to take another one's place.
#[derive(Debug)]
pub struct Swap {
    pub(crate) running: Running,
    pub(crate) graphs: Vec<Graph>,
    pub(crate) plan: Plan,
    pub(crate) driver: Option<usize>,
}

/// The number of each element by its name.
fn numbers(config: &FlatConfig) -> HashMap<&str, usize> {
    config.elements.iter().enumerate().map(|(number, element)| (element.name.as_str(), number)).collect()
}

/// Returns whether the language has named an element: `Counter@3`.
fn is_anonymous(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    !name.contains('/') && name.rsplit_once('@').is_some_and(|(_, number)| is_number(number))
}

/// Gives elements without a name those that elements of their class and arguments have in the `old` configuration.
fn with_old_names(old: &FlatConfig, config: &Arc<FlatConfig>) -> Arc<FlatConfig> {
    let anonymous = |config: &FlatConfig| -> Vec<usize> {
        let all = config.elements.iter().enumerate();
        all.filter(|(_, element)| is_anonymous(&element.name)).map(|(number, _)| number).collect()
    };
    let mut free: HashMap<(&str, &str), VecDeque<&str>> = HashMap::new();
    for number in anonymous(old) {
        let element = &old.elements[number];
        free.entry((&element.class, &element.config)).or_default().push_back(&element.name);
    }
    let mut renamed = FlatConfig::clone(config);
    let named = config.elements.iter().filter(|element| !is_anonymous(&element.name));
    let mut taken: BTreeSet<String> = named.map(|element| element.name.clone()).collect();
    let mut others = Vec::new();
    for number in anonymous(config) {
        let element = &config.elements[number];
        match free.get_mut(&(&*element.class, &*element.config)).and_then(VecDeque::pop_front) {
            Some(name) => {
                taken.insert(name.to_owned());
                name.clone_into(&mut renamed.elements[number].name);
            }
            None => others.push(number),
        }
    }
    for number in others {
        let element = &mut renamed.elements[number];
        let stem = element.name.rsplit_once('@').map_or("", |(stem, _)| stem).to_owned();
        let mut next = old.elements.len() + config.elements.len();
        while !taken.insert(element.name.clone()) {
            next += 1;
            element.name = format!("{stem}@{next}");
        }
    }
    Arc::new(renamed)
}

/// The names of the elements that are the same in both: class, arguments and what names in them stand for, ports.
fn same<'c>(old: &FlatConfig, config: &'c FlatConfig) -> BTreeSet<&'c str> {
    let (numbers_before, numbers) = (numbers(old), numbers(config));
    let unchanged: BTreeSet<&str> = config
        .elements
        .iter()
        .filter(|new| {
            numbers_before.get(new.name.as_str()).is_some_and(|&number| {
                let old = &old.elements[number];
                (&old.class, &old.config) == (&new.class, &new.config)
                    && (&old.input_kinds, &old.output_kinds) == (&new.input_kinds, &new.output_kinds)
            })
        })
        .map(|element| element.name.as_str())
        .collect();
    // What a name stands for may have changed where the name itself has not.
    let all = config.elements.iter().chain(&old.elements);
    let names: BTreeSet<String> =
        all.filter(|element| !unchanged.contains(element.name.as_str())).flat_map(names::given).collect();
    let uses = |name: &str| {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let config = numbers.get(name).map_or("", |&number| &config.elements[number].config);
        config.split(|c| !is_part(c)).any(|word| names.contains(word))
    };
    unchanged.into_iter().filter(|name| names.is_empty() || !uses(name)).collect()
}

impl Swap {
    /// How many elements move as they are.
    pub fn moving(&self) -> usize {
        self.plan.moves.iter().flatten().count()
    }

    /// What will run.
    pub fn running(&self) -> Running {
        self.running.clone()
    }

    /// Makes the elements of `config` that are not among those that run. All problems are reported; nothing has
    /// happened then. `now_ns` is the time of the running one, where that is simulated.
    pub fn prepare(
        running: &Running,
        config: &Arc<FlatConfig>,
        registry: &Registry,
        globals: Globals,
        now_ns: u64,
    ) -> Result<Self, Vec<Diagnostic>> {
        let (old, options) = (&running.config, &running.options);
        let config = &with_old_names(old, config);
        let had_slow = CopyId::needs_slow_thread(old);
        if had_slow != CopyId::needs_slow_thread(config) {
            let message = "a configuration with Punt and one without cannot take each other's place: one has a thread more";
            return Err(vec![Diagnostic::error(None, message)]);
        }
        let same = same(old, config);
        let changed: BTreeSet<&str> = old
            .elements
            .iter()
            .map(|element| element.name.as_str())
            .filter(|name| !same.contains(name))
            .collect();
        let driver = running.shared.get::<String>(DRIVER_SCRIPT);
        let driver_goes = driver.is_some_and(|name| changed.contains(name.as_str()));
        let shared = running.shared.fork(|key| {
            // Keys name their elements: "element:NAME", "queue:NAME:COPY", "congestion of NAME".
            let is_ones = key.split([':', ' ']).any(|part| changed.contains(part));
            !is_ones && key != Globals::KEY && !(driver_goes && key == DRIVER_SCRIPT)
        });
        shared.put(Globals::KEY, globals);
        let workers = options.workers.max(1);
        let copies = (0..workers + usize::from(had_slow)).map(|index| CopyId {
            index,
            workers,
            slow_thread: had_slow,
        });
        // What only the slow thread has, or only the workers, may be elsewhere now.
        let presences: Vec<_> =
            copies.clone().map(|copy| (presence(old, copy), presence(config, copy))).collect();
        let is_where_it_was =
            |before: usize, now: usize| presences.iter().all(|(old, new)| old[before] == new[now]);
        let found = running.shared.get::<Found>(Found::KEY).unwrap_or_default();
        let mut plan = Plan::default();
        let numbers = numbers(old);
        for (index, new) in config.elements.iter().enumerate() {
            let before = numbers.get(new.name.as_str()).copied();
            let before = before.filter(|&number| old.elements[number].class == new.class);
            let stays = same.contains(new.name.as_str())
                && found.of(&new.name).iter().all(|name| same.contains(name.as_str()));
            let moves = before.filter(|&before| stays && is_where_it_was(before, index));
            plan.moves.push(moves);
            plan.inherits.extend(before.filter(|_| moves.is_none()).map(|before| (index, before)));
        }
        let mut graphs = Vec::new();
        for copy in copies {
            let pool = PoolOptions { frames: FRAMES_AT_FIRST, ..options.graph.pool };
            let pool = Pool::new(pool).map_err(|error| no_memory(FRAMES_AT_FIRST, &error))?;
            let mut options = options.graph;
            options.simulated_time = options.simulated_time.map(|_| now_ns);
            let is_kept = |index: usize| plan.moves[index].is_some();
            graphs.push(Graph::with_pool(
                config,
                registry,
                &shared,
                copy,
                &options,
                pool,
                &running.control,
                &is_kept,
            )?);
        }
        let driver = shared.get::<String>(DRIVER_SCRIPT).and_then(|name| config.find(&name));
        let running = Running { config: config.clone(), shared, ..running.clone() };
        Ok(Self { running, graphs, plan, driver })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::{Class, Element};
    use crate::handler::{Combine, Get, Handler};
    use crate::lang::{self, Source};
    use crate::router::Router;
    use crate::{Context, Setup};

    /// Counts how often it was asked, and how often one like it was made.
    struct Memory {
        asked: u64,
        left: u64,
    }

    fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, crate::ConfigError> {
        let _: Option<u32> = setup.arguments.optional("ANY")?;
        let other: Option<String> = setup.arguments.keyword("OTHER")?;
        if let Some(other) = other {
            setup.find(&other);
        }
        setup.arguments.finish()?;
        Ok(Box::new(Memory { asked: 0, left: 0 }))
    }

    impl Element for Memory {
        fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
            cx.set_timer(0, cx.now_ns() + 1_000);
            Ok(())
        }

        fn timer(&mut self, _cx: &mut Context, _key: u32) {
            self.asked += 100;
        }

        fn leave(&mut self) -> Option<Box<dyn std::any::Any + Send>> {
            Some(Box::new(self.asked))
        }

        fn inherit(&mut self, _cx: &mut Context, left: Box<dyn std::any::Any + Send>) {
            self.left = left.downcast().map_or(0, |asked| *asked);
        }
    }

    static MEMORY: Class = Class {
        name: "Memory",
        ports: "0/0",
        handlers: &[
            Handler::read(
                "asked",
                Combine::First,
                "How often it was asked.",
                &Get(|e: &mut Memory| {
                    e.asked += 1;
                    e.asked.to_string()
                }),
            ),
            Handler::read(
                "left",
                Combine::First,
                "What it inherited.",
                &Get(|e: &mut Memory| {
                    e.asked += 1;
                    e.left.to_string()
                }),
            ),
        ],
        make,
        ..Class::DEFAULT
    };

    fn config(registry: &Registry, text: &str) -> Arc<FlatConfig> {
        let source = Source { name: "test.click".into(), text: text.into() };
        Arc::new(lang::compile(&source, &lang::Options::default(), registry).0.unwrap())
    }

    #[test]
    fn what_stays_and_what_is_made_anew() {
        let mut registry = Registry::new();
        registry.add(&[&MEMORY]);
        let mut options = RouterOptions::default();
        options.graph.simulated_time = Some(5_000_000);
        let text = "a :: Memory; b :: Memory(1); c :: Memory(OTHER b); d :: Memory(OTHER a)";
        let control = Control::new(|_| {});
        let first = config(&registry, text);
        let mut router = Router::build(first, &registry, &Shared::default(), &options, control).unwrap();
        for name in ["a", "b", "c", "d"] {
            assert_eq!(router.read(&format!("{name}.asked")).unwrap(), "1");
        }
        let text = "new :: Memory; b :: Memory(2); d :: Memory(OTHER a); c :: Memory(OTHER b); a :: Memory";
        let second = config(&registry, text);
        let swap =
            Swap::prepare(&router.running(), &second, &registry, Globals::default(), 5_000_000).unwrap();
        router.apply(swap);
        // b has other arguments, and c had found it; a and d stay.
        let asked = ["new", "a", "b", "c", "d"].map(|name| router.read(&format!("{name}.asked")).unwrap());
        assert_eq!(asked, ["1", "2", "1", "1", "2"]);
        let left = ["a", "b", "c"].map(|name| router.read(&format!("{name}.left")).unwrap());
        assert_eq!(left, ["0", "1", "1"]);
        // Timers go on, those of elements that moved and those of new ones.
        router.on_each(|graph| {
            let due = graph.context().next_timer_ns();
            assert_eq!(due, Some(5_001_000));
            graph.context().clock.set(6_000_000);
            graph.context().turn();
        });
        let asked = ["new", "a", "b"].map(|name| router.read(&format!("{name}.asked")).unwrap());
        assert_eq!(asked, ["102", "104", "103"]);
    }

    #[test]
    fn elements_without_a_name_stay_though_their_numbers_change() {
        let mut registry = Registry::new();
        registry.add(&[&MEMORY]);
        let control = Control::new(|_| {});
        let first = config(&registry, "Memory(1); Memory; Memory(2)");
        let mut router =
            Router::build(first, &registry, &Shared::default(), &RouterOptions::default(), control).unwrap();
        let names = |router: &Router| -> Vec<String> {
            router.config().elements.iter().map(|element| element.name.clone()).collect()
        };
        assert_eq!(names(&router), ["Memory@1", "Memory@2", "Memory@3"]);
        assert_eq!(router.read("Memory@3.asked").unwrap(), "1");
        let second = config(&registry, "Memory(7); Memory(1); Memory(2); Memory");
        let swap = Swap::prepare(&router.running(), &second, &registry, Globals::default(), 0).unwrap();
        assert_eq!(swap.moving(), 3);
        router.apply(swap);
        // The new one has a number that nobody has.
        assert_eq!(names(&router), ["Memory@8", "Memory@1", "Memory@3", "Memory@2"]);
        assert_eq!(router.read("Memory@3.asked").unwrap(), "2");
    }

    #[test]
    fn what_is_wrong_changes_nothing() {
        let mut registry = Registry::new();
        registry.add(&[&MEMORY]);
        let first = config(&registry, "a :: Memory");
        let control = Control::new(|_| {});
        let mut router =
            Router::build(first, &registry, &Shared::default(), &RouterOptions::default(), control).unwrap();
        let second = config(&registry, "a :: Memory; b :: Memory(x)");
        let problems =
            Swap::prepare(&router.running(), &second, &registry, Globals::default(), 0).unwrap_err();
        assert!(problems[0].message.starts_with("ANY: expected"));
        assert_eq!(router.read("a.asked").unwrap(), "1");
        assert!(router.read("b.asked").is_err());
    }
}
