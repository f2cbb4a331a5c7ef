//! All copies of a graph, each on its thread, and the one place from which they are controlled.
//!
//! A worker runs turn after turn ([`Context::turn`](crate::Context::turn)). Between turns, at a batch
//! boundary, it looks whether the control thread left something in its mail box: a closure that gets the
//! whole copy. So handlers, statistics and changes see a graph at rest, and no element needs a lock.
//!
//! **Idle workers block.** After a few hundred turns without work a worker says that it is asleep, turns once
//! more (so that nothing that came in between is missed), and blocks on the file descriptors of its ports, on
//! its waker and on the next timer. Ports that have no file descriptor are looked at every now and then, ever more
//! rarely up to once a millisecond, until there is work again. A thread that leaves it mail, or punts to it, looks at the asleep flag after
//! having left it (both sides sequentially consistent), and only then pays for the system call.

use packet::sync::lock;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use packet::pulse::Beats;
use packet::{Pool, PoolOptions, PoolStats};

use crate::context::{ElementStats, combined};
use crate::graph::{Graph, GraphOptions, Registry, no_memory};
use crate::handler::{Combine, Handler, METRICS};
use crate::hotswap::{Running, Swap};
use crate::lang::{Diagnostic, FlatConfig};
use crate::mail::{Mail, MailBox};
use crate::roles::{Mode, Roles};
use crate::setup::{CopyId, DRIVER_SCRIPT, Shared};

pub use crate::mail::Waker;

/// Turns without work after which a worker blocks. At some 100 ns a turn that is 20 to 50 us of polling, about
/// what waking up costs.
const IDLE_TURNS: u32 = 256;

/// How long a worker rests before it looks again whether a task without a file descriptor has work: at first, and
/// after some 10 ms without any. A look costs up to 15 us (on a virtual machine, whose timers are slow), so an idle
/// worker takes 1 to 2% of a core.
const FIRST_REST: Duration = Duration::from_micros(50);
const LONGEST_REST: Duration = Duration::from_millis(1);

/// Longest time that a start waits for a thread's first turn.
const LONGEST_START: Duration = Duration::from_secs(3);

/// The nice value of the slow thread, if Linux allows it: what waits for it is short and has a time (hellos of a cluster's links, timers), and
/// workers that poll, or a routing daemon that is busy, would keep it from its CPU for longer than that.
const SLOW_PRIORITY: i32 = -10;

/// How late the kernel may end a worker's sleep, so that it ends several with one interrupt.
const TIMER_SLACK_NS: std::num::NonZeroU64 = std::num::NonZeroU64::new(1_000).expect("not zero");

/// Longest time a worker blocks at all.
pub const LONGEST_SLEEP: Duration = packet::pulse::PIECE;

/// Longest time that [`Router::run_here`] blocks before it looks whether it was stopped: a signal wakes nobody.
pub const LONGEST_WAIT: Duration = Duration::from_millis(50);

/// The name of the thread of copy `index`.
fn thread_name(index: usize, is_slow: bool) -> String {
    if is_slow { "slow".to_owned() } else { format!("worker {index}") }
}

/// The CPU of worker `index`.
fn cpu_of(index: usize, cpus: &[usize]) -> Option<usize> {
    cpus.get(index % cpus.len().max(1)).copied()
}

/// Binds this thread to a CPU. A container may forbid it; the thread then runs where the kernel puts it.
fn bind_to(cpu: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

/// Has each worker's frames lie on the memory node of the worker's CPU: memory is where it is touched first.
fn place_frames(pools: &mut [Pool]) {
    let cpus = usable_cpus();
    std::thread::scope(|scope| {
        for (index, pool) in pools.iter_mut().enumerate() {
            let cpu = cpu_of(index, &cpus);
            scope.spawn(move || {
                cpu.into_iter().for_each(bind_to);
                pool.touch();
            });
        }
    });
}

/// An error that belongs to no line of the configuration.
fn plain_error(message: String) -> Diagnostic {
    Diagnostic {
        location: None,
        severity: crate::lang::Severity::Error,
        message,
        help: None,
        context: None,
        excerpt: None,
    }
}

/// The CPUs that this process may run on (`taskset` chooses them).
fn usable_cpus() -> Vec<usize> {
    let set = rustix::thread::sched_getaffinity(None).ok();
    set.map_or(Vec::new(), |set| {
        (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
    })
}

fn no_descriptor(error: &std::io::Error) -> Vec<Diagnostic> {
    let help = Some("raise the limit of open files (ulimit -n)".into());
    vec![Diagnostic { help, ..plain_error(format!("cannot make an event descriptor: {error}")) }]
}

/// A run count that no script brings back to life.
const HALTED: i64 = i64::MIN / 2;

/// What all copies share with the control thread.
pub struct Control {
    run_count: AtomicI64,
    stopped: Mutex<bool>,
    stop_signal: Condvar,
    /// Whether who waits has something to do before the end.
    woken: AtomicBool,
    sink: Box<Listener>,
    /// Others that get messages.
    listeners: Mutex<Vec<Box<Listener>>>,
    /// What is to take the running configuration's place.
    swaps: Mutex<VecDeque<Swap>>,
    has_swap: AtomicBool,
    /// How many have been left and have not yet taken its place.
    changes: AtomicUsize,
}

/// A function that gets messages, a line at a time.
type Listener = dyn Fn(&str) + Send + Sync;

impl Control {
    /// Messages of elements go to `sink`, a line at a time.
    pub fn new(sink: impl Fn(&str) + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            run_count: AtomicI64::new(1),
            stopped: Mutex::new(false),
            stop_signal: Condvar::new(),
            woken: AtomicBool::new(false),
            sink: Box::new(sink),
            listeners: Mutex::default(),
            swaps: Mutex::default(),
            has_swap: AtomicBool::new(false),
            changes: AtomicUsize::new(0),
        })
    }

    /// Prints a message of an element.
    pub fn message(&self, line: &str) {
        (self.sink)(line);
        for listener in &*lock(&self.listeners) {
            listener(line);
        }
    }

    /// Leaves a configuration that is to take the running one's place, behind those left before; the thread that runs the router does
    /// that soon ([`Router::apply_waiting`]).
    pub fn leave(&self, swap: Swap) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        lock(&self.swaps).push_back(swap);
        self.has_swap.store(true, Ordering::Release);
        self.stop_signal.notify_all();
    }

    /// Whether a configuration is about to take the running one's place.
    pub(crate) fn has_swap(&self) -> bool {
        self.changes.load(Ordering::Acquire) > 0
    }

    /// Waits until none is, or until the router is to stop, at most `timeout`.
    pub(crate) fn wait_for_change(&self, timeout: Duration) {
        let stopped = lock(&self.stopped);
        let waits = |stopped: &mut bool| !*stopped && self.has_swap();
        drop(self.stop_signal.wait_timeout_while(stopped, timeout, waits));
    }

    /// Says that a configuration that was left has taken the running one's place.
    fn changed(&self) {
        self.changes.fetch_sub(1, Ordering::AcqRel);
        drop(lock(&self.stopped));
        self.stop_signal.notify_all();
    }

    fn take_swaps(&self) -> VecDeque<Swap> {
        if !self.has_swap.swap(false, Ordering::AcqRel) {
            return VecDeque::new();
        }
        std::mem::take(&mut *lock(&self.swaps))
    }

    /// Has `listener` told each message from now on.
    pub(crate) fn listen(&self, listener: Box<Listener>) {
        lock(&self.listeners).push(listener);
    }

    /// Takes one from the run count; at zero the router is to stop.
    pub fn stop(&self) {
        self.stop_times(1);
    }

    /// The same so many times at once.
    pub fn stop_times(&self, times: u32) {
        let times = i64::from(times);
        if self.run_count.fetch_sub(times, Ordering::AcqRel) <= times {
            *lock(&self.stopped) = true;
            self.stop_signal.notify_all();
        }
    }

    /// Gives one back to the run count: a script that manages the router's end goes on.
    pub fn resume(&self) {
        // Below zero, as much as was asked for beyond the end stays to be answered.
        if self.run_count.fetch_add(1, Ordering::AcqRel) >= 0 {
            *lock(&self.stopped) = false;
        }
    }

    /// Has the router stop, whatever a script says.
    pub fn halt(&self) {
        self.run_count.store(HALTED, Ordering::Release);
        *lock(&self.stopped) = true;
        self.stop_signal.notify_all();
    }

    /// Whether the router is to stop whatever a script says.
    pub fn is_halted(&self) -> bool {
        self.run_count.load(Ordering::Acquire) <= HALTED / 2
    }

    /// Whether the router is to stop.
    pub fn is_stopped(&self) -> bool {
        self.run_count.load(Ordering::Acquire) <= 0
    }

    /// Ends a [`Control::wait`] early: the present one, or the next.
    pub fn wake(&self) {
        // The lock is held by who is about to wait, so that the signal cannot come between the look and the wait.
        let _waiter = lock(&self.stopped);
        self.woken.store(true, Ordering::Release);
        self.stop_signal.notify_all();
    }

    /// Waits until the router is to stop or somebody calls [`Control::wake`], at most `timeout`; returns whether it is to stop.
    pub fn wait(&self, timeout: Duration) -> bool {
        let stopped = lock(&self.stopped);
        let (stopped, _) = self
            .stop_signal
            .wait_timeout_while(stopped, timeout, |stopped| {
                !*stopped && !self.woken.swap(false, Ordering::AcqRel)
            })
            .unwrap_or_else(PoisonError::into_inner);
        *stopped
    }
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").field("run_count", &self.run_count).finish_non_exhaustive()
    }
}

/// Large frames of the slow thread at most.
const MOST_SLOW_LARGE: usize = 16;

/// How to run a graph.
#[derive(Clone, Copy, Debug)]
pub struct RouterOptions {
    /// Number of workers, 1 or more.
    pub workers: usize,
    /// How each copy is made.
    pub graph: GraphOptions,
    /// The slow thread's pool.
    pub slow_pool: PoolOptions,
    /// Frames of each worker for packets in which several are merged.
    pub large_frames: usize,
    /// Whether each worker is bound to one CPU.
    pub pin: bool,
    /// How the workers share the work.
    pub mode: Mode,
}

impl Default for RouterOptions {
    fn default() -> Self {
        Self {
            workers: 1,
            graph: GraphOptions::default(),
            slow_pool: PoolOptions { frames: 4096, ..PoolOptions::default() },
            large_frames: 0,
            pin: false,
            mode: Mode::Parallel,
        }
    }
}

/// A copy and how to reach it.
struct Worker {
    mail: Mail,
    /// What its thread gets; here while none runs.
    resting: Option<(Graph, MailBox)>,
    thread: Option<JoinHandle<()>>,
    end: Arc<AtomicBool>,
    turns: Arc<Turns>,
}

impl Worker {
    /// Runs `call` on the copy at a batch boundary; `None` when its thread ended.
    fn ask<R: Send + 'static>(&mut self, call: impl FnOnce(&mut Graph) -> R + Send + 'static) -> Option<R> {
        match &mut self.resting {
            Some((graph, _)) => Some(call(graph)),
            None => self.mail.ask(call),
        }
    }
}

/// How busy a worker was.
#[derive(Debug, Default)]
struct Turns {
    /// Rounds of the thread, and what long jobs count within one.
    beats: Arc<Beats>,
    busy_ns: AtomicI64,
    since: Mutex<Option<Instant>>,
}

/// A running router.
pub struct Router {
    config: Arc<FlatConfig>,
    control: Arc<Control>,
    workers: Vec<Worker>,
    pin: bool,
    /// The script that decides what happens when the router is to stop.
    driver: Option<usize>,
    running: Running,
}

/// What one copy did.
#[derive(Clone, Debug)]
pub struct CopyStats {
    /// Number of the copy: the worker, or the number of workers for the slow thread.
    pub copy: usize,
    /// What each element did, in the order of the configuration.
    pub elements: Vec<ElementStats>,
    /// How the pool of frames does.
    pub pool: PoolStats,
    /// Share of the time since the start that the thread worked, 0 to 1.
    pub busy: f64,
    /// Nanoseconds that the thread worked.
    pub busy_ns: u64,
}

impl Router {
    /// Makes all copies. `shared` holds what the program hands to elements; all problems of all copies are
    /// reported, each once.
    pub fn build(
        config: Arc<FlatConfig>,
        registry: &Registry,
        shared: &Shared,
        options: &RouterOptions,
        control: Arc<Control>,
    ) -> Result<Self, Vec<Diagnostic>> {
        let slow_thread = CopyId::needs_slow_thread(&config);
        let copies = options.workers.max(1) + usize::from(slow_thread);
        let mut workers = Vec::new();
        let roles =
            Roles::new(options.mode, options.workers.max(1)).map_err(|error| vec![plain_error(error)])?;
        shared.get_or_make(Roles::KEY, || Ok::<_, Vec<Diagnostic>>(roles))?;
        // Whoever hands packets to another thread wakes it, so all wakers are there before the first element is.
        let wakers = (0..copies)
            .map(|index| shared.get_or_make(&Waker::key(index), Waker::new))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| no_descriptor(&error))?;
        let mut pool_options = vec![options.graph.pool; copies];
        if slow_thread {
            pool_options[copies - 1] = options.slow_pool;
        }
        let mut pools = Pool::group(&pool_options)
            .map_err(|error| no_memory(pool_options.iter().map(|pool| pool.frames).sum(), &error))?;
        if options.large_frames > 0 {
            for (number, pool) in pools.iter_mut().enumerate() {
                // The slow thread receives none; it copies some.
                let is_worker = number < options.workers.max(1);
                let frames =
                    if is_worker { options.large_frames } else { options.large_frames.min(MOST_SLOW_LARGE) };
                pool.add_large(frames).map_err(|error| no_memory(frames, &error))?;
            }
        }
        if options.pin {
            place_frames(&mut pools);
        }
        for ((index, pool), waker) in pools.into_iter().enumerate().zip(wakers) {
            let copy = CopyId { index, workers: options.workers.max(1), slow_thread };
            let (mail, mail_box) = Mail::new(waker);
            let graph =
                Graph::with_pool(&config, registry, shared, copy, &options.graph, pool, &control, &|_| {
                    false
                })?;
            workers.push(Worker {
                mail,
                resting: Some((graph, mail_box)),
                thread: None,
                end: Arc::default(),
                turns: Arc::default(),
            });
        }
        let mails: Vec<Mail> = workers.iter().map(|worker: &Worker| worker.mail.clone()).collect();
        for (index, worker) in workers.iter_mut().enumerate() {
            let others = mails.iter().enumerate().filter(|(other, _)| *other != index);
            let peers = others.map(|(_, mail)| mail.clone()).collect();
            if let Some((graph, _)) = &mut worker.resting {
                graph.context().begin();
                graph.context().set_mails(peers, worker.mail.clone());
            }
        }
        let driver = shared.get::<String>(DRIVER_SCRIPT).and_then(|name| config.find(&name));
        let running = Running {
            config: config.clone(),
            shared: shared.clone(),
            options: *options,
            control: control.clone(),
        };
        Ok(Self { config, control, workers, pin: options.pin, driver, running })
    }

    /// Starts the threads, and waits until each has had a turn: then all tasks have run, and ports have taken their packets.
    ///
    /// # Errors
    /// A thread cannot be made.
    pub fn start(&mut self) -> std::io::Result<()> {
        let cpus = usable_cpus();
        for (index, worker) in self.workers.iter_mut().enumerate() {
            let Some((graph, mail_box)) = worker.resting.take() else { continue };
            let name = thread_name(index, graph.copy().is_slow());
            let cpu =
                (self.pin && !graph.copy().is_slow() && !cpus.is_empty()).then(|| cpus[index % cpus.len()]);
            let thread = Thread {
                graph,
                mail_box,
                waker: worker.mail.waker().clone(),
                end: worker.end.clone(),
                turns: worker.turns.clone(),
                busy_since: None,
            };
            worker.thread = Some(std::thread::Builder::new().name(name).spawn(move || thread.run(cpu))?);
        }
        let begin = Instant::now();
        for Worker { thread, turns, .. } in &self.workers {
            // The first round is over when the second one has begun. A thread that hangs is the supervisor's.
            let is_on_its_way =
                || turns.beats.count().load(Ordering::Relaxed) < 2 && begin.elapsed() < LONGEST_START;
            while is_on_its_way() && thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        Ok(())
    }

    /// Runs the router's one copy on this thread until it is to stop; [`Control::halt`] ends it within [`LONGEST_WAIT`].
    /// Where time is simulated it goes on to the next timer whenever nothing else is left to do. Afterwards handlers can be
    /// read, and it can be run again.
    ///
    /// # Panics
    ///
    /// When there are several copies: those need [`Router::start`].
    pub fn run_here(&mut self) {
        assert_eq!(self.workers.len(), 1, "a thread can run one copy");
        while !self.run_one_here() {
            self.apply_waiting();
        }
    }

    /// Runs the configuration that there is; false when another one is to take its place.
    fn run_one_here(&mut self) -> bool {
        let worker = &mut self.workers[0];
        let Some((graph, mail_box)) = worker.resting.take() else { return true };
        let mut thread = Thread {
            graph,
            mail_box,
            waker: worker.mail.waker().clone(),
            end: worker.end.clone(),
            turns: worker.turns.clone(),
            busy_since: None,
        };
        let is_done = thread.run_until_stopped(&self.control, self.driver);
        worker.resting = Some((thread.graph, thread.mail_box));
        is_done
    }

    /// What runs, for [`Swap::prepare`].
    pub fn running(&self) -> Running {
        self.running.clone()
    }

    /// Has another configuration take the place of the one that runs, on one copy after the other, at a batch boundary each.
    pub fn apply(&mut self, swap: Swap) {
        drop(self.exchange(swap));
    }

    /// As [`Router::apply`]; returns what ran before.
    fn exchange(&mut self, swap: Swap) -> Vec<Graph> {
        let Swap { running, graphs, plan, driver } = swap;
        let mut replaced = Vec::new();
        for (worker, mut graph) in self.workers.iter_mut().zip(graphs) {
            let plan = plan.clone();
            replaced.extend(worker.ask(move |running| {
                graph.take_place_of(running, &plan);
                std::mem::replace(running, graph)
            }));
        }
        self.config = running.config.clone();
        self.driver = driver;
        self.running = running;
        replaced
    }

    /// As [`Router::apply`], with what [`Control::leave`] left, if anything.
    pub fn apply_waiting(&mut self) {
        for swap in self.control.take_swaps() {
            let replaced = self.exchange(swap);
            self.control.changed();
            // Here, and not on the workers' threads: a large table takes its time.
            drop(replaced);
        }
    }

    /// Asks the driver script, if there is one, what happens now that the router is to stop: whether it goes on.
    pub fn goes_on(&mut self) -> bool {
        let Some(driver) = self.driver.filter(|_| !self.control.is_halted()) else { return false };
        let control = self.control.clone();
        self.on_copy(0, move |graph| step_driver(graph, driver, &control)).unwrap_or(false)
    }

    /// The configuration that runs.
    pub fn config(&self) -> &Arc<FlatConfig> {
        &self.config
    }

    /// Number of workers, the slow thread not counted.
    pub fn workers(&self) -> usize {
        self.workers.len() - usize::from(self.has_slow_thread())
    }

    /// Whether there is a slow thread.
    pub fn has_slow_thread(&self) -> bool {
        CopyId::needs_slow_thread(&self.config)
    }

    /// What stops the router, and where messages go.
    pub fn control(&self) -> &Arc<Control> {
        &self.control
    }

    /// Runs `call` on every copy at a batch boundary and returns the results in order. A copy whose thread
    /// ended (it panicked) gives none.
    pub fn on_each<R: Send + 'static>(
        &mut self,
        call: impl Fn(&mut Graph) -> R + Clone + Send + 'static,
    ) -> Vec<R> {
        self.answers(call).into_iter().flatten().collect()
    }

    /// As [`Router::on_each`], on one copy; `None` when there is none of that number, or its thread ended.
    pub fn on_copy<R: Send + 'static>(
        &mut self,
        copy: usize,
        call: impl FnOnce(&mut Graph) -> R + Send + 'static,
    ) -> Option<R> {
        self.workers.get_mut(copy)?.ask(call)
    }

    /// As [`Router::on_each`]; `None` for a copy whose thread ended.
    fn answers<R: Send + 'static>(
        &mut self,
        call: impl Fn(&mut Graph) -> R + Clone + Send + 'static,
    ) -> Vec<Option<R>> {
        self.workers.iter_mut().map(|worker| worker.ask(call.clone())).collect()
    }

    /// Reads `element.handler argument` for somebody who may only look, and combines the values of all copies; without an element,
    /// a handler of the router.
    ///
    /// # Errors
    ///
    /// There is none, it has no value, or it is not for others: it reaches beyond the router, or reading it does something.
    pub fn read(&mut self, path: &str) -> Result<String, String> {
        let target = path.trim().split(char::is_whitespace).next().unwrap_or_default();
        if let Some((element, name)) = self.resolve(target)? {
            let name = name.to_owned();
            // Not every copy has every element.
            let answers = self.on_each(move |graph| graph.context().handler(element, &name));
            let known: Vec<Handler> = answers.into_iter().flatten().collect();
            if known.iter().any(|handler| handler.private) {
                return Err(format!("'{target}' is for scripts of the configuration only"));
            }
            if known.iter().any(|handler| handler.acts) {
                return Err(format!("reading '{target}' does something; expected a handler that only tells"));
            }
        }
        self.read_own(path)
    }

    /// As [`Router::read`], any handler, for the program that has the router.
    ///
    /// # Errors
    ///
    /// There is none, or it has no value.
    pub fn read_own(&mut self, path: &str) -> Result<String, String> {
        let (target, argument) = path.trim().split_once(char::is_whitespace).unwrap_or((path.trim(), ""));
        let Some((element, handler)) = self.resolve(target)? else {
            let name = target.to_owned();
            return self
                .on_copy(0, move |graph| graph.context().read_global(&name))
                .unwrap_or_else(no_thread);
        };
        let (handler_name, argument) = (handler.to_owned(), argument.trim().to_owned());
        let answers = self.on_each(move |graph| {
            let combine = graph.combine(element, &handler_name);
            graph.read(element, &handler_name, &argument).map(|value| (combine, value))
        });
        let mut values = Vec::new();
        let mut combine = Combine::First;
        for (how, value) in answers.into_iter().flatten() {
            combine = how;
            values.push(value?);
        }
        Ok(combined(combine, values))
    }

    /// Writes `value` to `element.handler` on every copy; without an element, to a handler of the router.
    pub fn write(&mut self, target: &str, value: &str) -> Result<(), String> {
        let value = value.to_owned();
        let Some((element, handler)) = self.resolve(target.trim())? else {
            let name = target.trim().to_owned();
            let write = move |graph: &mut Graph| graph.context().write_global(&name, &value);
            return self.on_copy(0, write).unwrap_or_else(no_thread);
        };
        let handler = handler.to_owned();
        let answers = self.on_each(move |graph| graph.write(element, &handler, &value));
        answers.into_iter().flatten().collect()
    }

    /// As [`Router::write`] of an element's handler, but waits for nobody: a thread may hang.
    pub fn post(&self, target: &str, value: &str) {
        let Ok(Some((element, handler))) = self.resolve(target.trim()) else { return };
        for worker in &self.workers {
            let (handler, value) = (handler.to_owned(), value.to_owned());
            worker.mail.post(move |graph| _ = graph.write(element, &handler, &value));
        }
    }

    /// The names of all read handlers, `element.handler`, in the order of the configuration.
    pub fn handlers(&mut self) -> Vec<String> {
        let config = self.config.clone();
        let names: Vec<String> = config.elements.iter().map(|element| element.name.clone()).collect();
        let of_copies = self.on_each(move |graph| {
            let mut all: Vec<Vec<String>> = Vec::new();
            for (element, name) in names.iter().enumerate() {
                let handlers = graph.handlers(element);
                let readable = handlers.iter().filter(|(_, handler)| handler.is_readable());
                all.push(readable.map(|(handler, _)| format!("{name}.{handler}")).collect());
            }
            all
        });
        // Not every copy has every element.
        let mut handlers: Vec<Vec<String>> = vec![Vec::new(); config.elements.len()];
        for copy in of_copies {
            for (known, found) in handlers.iter_mut().zip(copy) {
                if known.is_empty() {
                    *known = found;
                }
            }
        }
        handlers.concat()
    }

    /// Returns the handlers that are metrics, with the numbers of their elements and the values of all copies as one. Workers are
    /// asked where elements have some.
    pub fn metrics(&mut self) -> Vec<(usize, Handler, f64)> {
        let all = self.config.elements.iter().enumerate();
        let counting: Vec<usize> =
            all.filter(|(_, flat)| flat.has(METRICS)).map(|(element, _)| element).collect();
        if counting.is_empty() {
            return Vec::new();
        }
        let of_copies = self.on_each(move |graph| {
            let mut values = Vec::new();
            for &element in &counting {
                let handlers = graph.handlers(element).into_iter().map(|(_, handler)| handler);
                for handler in handlers.filter(|handler| handler.metric.is_some()) {
                    let text = graph.read(element, handler.name, "").and_then(Result::ok);
                    let value = text.and_then(|text| text.trim().parse::<f64>().ok());
                    values.extend(value.map(|value| (element, handler, value)));
                }
            }
            values
        });
        let mut metrics: Vec<(usize, Handler, f64)> = Vec::new();
        for (element, handler, value) in of_copies.into_iter().flatten() {
            match metrics.iter_mut().find(|(of, known, _)| (*of, known.name) == (element, handler.name)) {
                Some((_, _, sum)) if handler.combine == Combine::Sum => *sum += value,
                Some((_, _, most)) => *most = value.max(*most),
                None => metrics.push((element, handler, value)),
            }
        }
        metrics
    }

    /// Number of the element that `ELEMENT.HANDLER` names, and the handler; `None` for a handler of the router.
    fn resolve<'a>(&self, target: &'a str) -> Result<Option<(usize, &'a str)>, String> {
        let Some((name, handler)) = target.split_once('.') else { return Ok(None) };
        match self.config.find(name) {
            Some(index) => Ok(Some((index, handler))),
            None => Err(format!("no element named '{name}'")),
        }
    }

    /// What each copy did so far.
    pub fn stats(&mut self) -> Vec<CopyStats> {
        // The threads bring their account of busy time up to date when they read their mail.
        let answers = self.answers(|graph| (graph.stats(), graph.pool_stats()));
        let copies = self.workers.iter().zip(answers).enumerate();
        copies
            .filter_map(|(copy, (worker, answer))| {
                let (elements, pool) = answer?;
                let busy_ns = worker.turns.busy_ns.load(Ordering::Relaxed).max(0) as u64;
                Some(CopyStats { copy, elements, pool, busy: worker.turns.share(), busy_ns })
            })
            .collect()
    }

    /// The name of each thread, and its beats, at least one in [`LONGEST_SLEEP`] while it is at work.
    pub fn beats(&self) -> Vec<(String, Arc<Beats>)> {
        let workers = self.workers();
        let named = |(index, worker): (usize, &Worker)| {
            (thread_name(index, index >= workers), worker.turns.beats.clone())
        };
        self.workers.iter().enumerate().map(named).collect()
    }

    /// Whether a thread ended by a panic; its name.
    pub fn failed(&self) -> Option<String> {
        self.workers.iter().find_map(|worker| {
            let thread = worker.thread.as_ref()?;
            thread.is_finished().then(|| thread.thread().name().unwrap_or("worker").to_owned())
        })
    }

    /// Ends all threads at a batch boundary and waits for them. Returns the names of those that had panicked.
    pub fn stop(mut self) -> Vec<String> {
        self.end()
    }

    fn end(&mut self) -> Vec<String> {
        for worker in &self.workers {
            worker.end.store(true, Ordering::SeqCst);
            worker.mail.notify();
        }
        let mut panicked = Vec::new();
        for worker in &mut self.workers {
            if let Some(thread) = worker.thread.take() {
                let name = thread.thread().name().unwrap_or("worker").to_owned();
                if thread.join().is_err() {
                    panicked.push(name);
                }
            }
        }
        panicked
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        self.end();
    }
}

impl std::fmt::Debug for Router {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Router").field("workers", &self.workers.len()).finish_non_exhaustive()
    }
}

impl Turns {
    fn share(&self) -> f64 {
        let since = *lock(&self.since);
        let Some(since) = since else { return 0.0 };
        let elapsed = since.elapsed().as_nanos() as f64;
        (self.busy_ns.load(Ordering::Relaxed) as f64 / elapsed).clamp(0.0, 1.0)
    }
}

/// What a worker's thread owns.
struct Thread {
    graph: Graph,
    mail_box: MailBox,
    waker: Arc<Waker>,
    end: Arc<AtomicBool>,
    turns: Arc<Turns>,
    /// When the current row of turns with work began, by the graph's clock.
    busy_since: Option<u64>,
}

/// For a copy whose thread panicked.
fn no_thread<R>() -> Result<R, String> {
    Err("the router's first thread has ended".to_owned())
}

/// Has the driver script take a step; whether the router goes on.
fn step_driver(graph: &mut Graph, driver: usize, control: &Control) -> bool {
    // Where it was asked for several times, the script has as many steps, as long as it takes them.
    loop {
        let before = control.run_count.load(Ordering::Acquire);
        if let Some(Err(error)) = graph.write(driver, "step", "router") {
            control.message(&error);
        }
        if !control.is_stopped() {
            return true;
        }
        if control.run_count.load(Ordering::Acquire) <= before {
            return false;
        }
    }
}

impl Thread {
    /// As [`Router::run_here`]; false when another configuration is to take this one's place first.
    fn run_until_stopped(&mut self, control: &Control, driver: Option<usize>) -> bool {
        self.graph.context().stop_at_once();
        let mut idle_turns = 0;
        loop {
            if control.is_stopped() {
                let goes_on = driver.is_some_and(|driver| {
                    !control.is_halted() && step_driver(&mut self.graph, driver, control)
                });
                if !goes_on {
                    return true;
                }
            }
            if control.has_swap.load(Ordering::Acquire) {
                return false;
            }
            if self.mail_box.may_have_mail() {
                self.read_mail();
            }
            if self.graph.context().turn() {
                idle_turns = 0;
                continue;
            }
            // Who asked for the end did so at this time, not at the next timer's.
            if control.is_stopped() || self.graph.context().skip_to_next_timer() {
                continue;
            }
            idle_turns += 1;
            if idle_turns > IDLE_TURNS {
                self.sleep(FIRST_REST.max(LONGEST_REST / 4), LONGEST_WAIT);
                idle_turns = 0;
            }
        }
    }

    fn run(mut self, cpu: Option<usize>) {
        if let Some(cpu) = cpu {
            bind_to(cpu);
        }
        *lock(&self.turns.since) = Some(Instant::now());
        // It is a matter of latency only, so a kernel that refuses is not an error.
        let _ = rustix::thread::set_current_timer_slack(Some(TIMER_SLACK_NS));
        // This thread's alone: Linux gives each one a priority of its own (setpriority(2), "C library/kernel differences").
        if self.graph.copy().is_slow()
            && rustix::process::getpriority_process(None).is_ok_and(|priority| priority > SLOW_PRIORITY)
            && let Err(error) = rustix::process::setpriority_process(None, SLOW_PRIORITY)
        {
            self.graph.context().message(&format!(
                "slow thread: cannot run at nice {SLOW_PRIORITY} ({error}), so busy workers may delay it; CAP_SYS_NICE allows it"
            ));
        }
        let (mut idle_turns, mut patience, mut rest) = (0, IDLE_TURNS, FIRST_REST);
        let beats = self.turns.beats.clone();
        beats.attach();
        loop {
            // No other thread writes the count, so a plain store will do.
            beats.count().store(beats.count().load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            if self.mail_box.may_have_mail() && self.read_mail() {
                return;
            }
            if self.graph.context().turn() {
                (idle_turns, patience, rest) = (0, IDLE_TURNS, FIRST_REST);
                if self.busy_since.is_none() {
                    self.busy_since = Some(self.graph.context().now_ns());
                }
                continue;
            }
            self.account();
            idle_turns += 1;
            if idle_turns > patience {
                if self.sleep(rest, LONGEST_SLEEP) {
                    (patience, rest) = (IDLE_TURNS, FIRST_REST);
                } else {
                    (patience, rest) = (0, (rest + rest / 8).min(LONGEST_REST));
                }
                idle_turns = 0;
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// Adds the current row of turns with work to the busy time; it begins anew with the next turn with work.
    fn account(&mut self) {
        if let Some(since) = self.busy_since.take() {
            let spent = self.graph.context().now_ns().saturating_sub(since) as i64;
            self.turns.busy_ns.fetch_add(spent, Ordering::Relaxed);
        }
    }

    /// Carries out what the control thread left; true when the thread is to end.
    fn read_mail(&mut self) -> bool {
        self.account();
        self.mail_box.read(&mut self.graph);
        self.end.load(Ordering::SeqCst)
    }

    /// Blocks, for at most `rest` if some task has no file descriptor; whether something ended that before its time.
    fn sleep(&mut self, rest: Duration, longest: Duration) -> bool {
        self.waker.asleep.store(true, Ordering::SeqCst);
        std::sync::atomic::fence(Ordering::SeqCst);
        // Whatever came before the flag was set is found by this turn; whoever comes later sees the flag.
        if self.mail_box.has_mail() || self.graph.context().turn() {
            self.waker.clear();
            return true;
        }
        let now = self.graph.context().now_ns();
        let mut timeout = longest;
        if let Some(due) = self.graph.context().next_timer_ns() {
            timeout = timeout.min(Duration::from_nanos(due.saturating_sub(now)));
        }
        let mut descriptors = vec![PollFd::from_borrowed_fd(self.waker.fd(), PollFlags::IN)];
        let mut fds = Vec::new();
        if self.graph.wait_fds(&mut fds) {
            timeout = timeout.min(rest);
        }
        descriptors.extend(fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)));
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
        // An interrupted poll is as good as one that ended: the next turn looks at everything.
        let ready = poll(&mut descriptors, Some(&timeout)).unwrap_or(0);
        self.waker.clear();
        ready > 0
    }
}
