//! All copies of a graph, each on its thread, and the one place from which they are controlled.
//!
//! A worker runs turn after turn ([`Context::turn`](crate::Context::turn)). Between turns, at a batch
//! boundary, it looks whether the control thread left something in its mail box: a closure that gets the
//! whole copy. So handlers, statistics and changes see a graph at rest, and no element needs a lock.
//!
//! **Idle workers block.** After a few hundred turns without work a worker says that it is asleep, turns once
//! more (so that nothing that came in between is missed), and blocks on the file descriptors of its ports, on
//! its waker and on the next timer. Ports that have no file descriptor are looked at every now and then, ever more
//! rarely up to once a millisecond, until there is work again. Whoever leaves it mail, or punts to it, looks at the asleep flag after
//! having left it (both sides sequentially consistent), and only then pays for the system call.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use packet::{Pool, PoolOptions, PoolStats};

use crate::context::ElementStats;
use crate::element::Combine;
use crate::graph::{Graph, GraphOptions, Registry, no_memory};
use crate::lang::{Diagnostic, FlatConfig};
use crate::punt;
use crate::roles::{Mode, Roles};
use crate::setup::{Copy, Shared};

/// Turns without work after which a worker blocks. At some 100 ns a turn that is 20 to 50 us of polling, about
/// what waking up costs.
const IDLE_TURNS: u32 = 256;

/// How long a worker rests before it looks again whether a task without a file descriptor has work: at first, and
/// after some 10 ms without any. A look costs up to 15 us (on a virtual machine, whose timers are slow), so an idle
/// worker takes 1 to 2% of a core.
const FIRST_REST: Duration = Duration::from_micros(50);
const LONGEST_REST: Duration = Duration::from_millis(1);

/// The nice value of the slow thread, if Linux allows it: what waits for it is short and has a time (hellos of a cluster's links, timers), and
/// workers that poll, or a routing daemon that is busy, would keep it from its CPU for longer than that.
const SLOW_PRIORITY: i32 = -10;

/// How late the kernel may end a worker's sleep, so that it ends several with one interrupt.
const TIMER_SLACK_NS: std::num::NonZeroU64 = std::num::NonZeroU64::new(1_000).expect("not zero");

/// Longest time a worker blocks at all.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// Wakes one thread.
#[derive(Debug)]
pub struct Waker {
    asleep: AtomicBool,
    event: OwnedFd,
}

impl Waker {
    /// A waker for one thread. Fails when the process has no file descriptors left.
    pub fn new() -> std::io::Result<Self> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { asleep: AtomicBool::new(false), event })
    }

    /// Wakes the thread if it sleeps; one load when it does not.
    #[inline]
    pub fn wake_if_asleep(&self) {
        std::sync::atomic::fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst) && self.asleep.swap(false, Ordering::SeqCst) {
            // A full counter means that the thread was woken already.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }

    /// Under which key elements find the waker of copy `copy` in what they share.
    pub fn key(copy: usize) -> String {
        format!("waker of copy {copy}")
    }

    /// Readable when the thread was woken.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    fn clear(&self) {
        self.asleep.store(false, Ordering::SeqCst);
        // Nothing to read means that something else ended the sleep.
        let _ = rustix::io::read(&self.event, &mut [0u8; 8]);
    }
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

/// What all copies share with the control thread.
pub struct Control {
    run_count: AtomicI64,
    stopped: Mutex<bool>,
    stop_signal: Condvar,
    sink: Box<dyn Fn(&str) + Send + Sync>,
}

impl Control {
    /// Messages of elements go to `sink`, a line at a time.
    pub fn new(sink: impl Fn(&str) + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            run_count: AtomicI64::new(1),
            stopped: Mutex::new(false),
            stop_signal: Condvar::new(),
            sink: Box::new(sink),
        })
    }

    /// Prints a message of an element.
    pub fn message(&self, line: &str) {
        (self.sink)(line);
    }

    /// Takes one from the run count; at zero the router is to stop.
    pub fn stop(&self) {
        if self.run_count.fetch_sub(1, Ordering::AcqRel) <= 1 {
            *self.stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
            self.stop_signal.notify_all();
        }
    }

    /// Whether the router is to stop.
    pub fn is_stopped(&self) -> bool {
        self.run_count.load(Ordering::Acquire) <= 0
    }

    /// Waits until the router is to stop, at most `timeout`; returns whether it is.
    pub fn wait(&self, timeout: Duration) -> bool {
        let stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        let (stopped, _) = self
            .stop_signal
            .wait_timeout_while(stopped, timeout, |stopped| !*stopped)
            .unwrap_or_else(PoisonError::into_inner);
        *stopped
    }
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").field("run_count", &self.run_count).finish_non_exhaustive()
    }
}

/// How to run a graph.
#[derive(Clone, Copy, Debug)]
pub struct RouterOptions {
    /// Number of workers, 1 or more.
    pub workers: usize,
    /// How each copy is made.
    pub graph: GraphOptions,
    /// The slow thread's pool.
    pub slow_pool: PoolOptions,
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
            pin: false,
            mode: Mode::Parallel,
        }
    }
}

/// A command for a worker, carried out at a batch boundary.
type Command = Box<dyn FnOnce(&mut Graph) + Send>;

/// A copy and how to reach it.
struct Worker {
    mail: Sender<Command>,
    has_mail: Arc<AtomicBool>,
    waker: Arc<Waker>,
    graph: Option<Graph>,
    mailbox: Option<Receiver<Command>>,
    thread: Option<JoinHandle<()>>,
    end: Arc<AtomicBool>,
    turns: Arc<Turns>,
}

impl Worker {
    /// Runs `call` on the copy at a batch boundary; `None` when its thread ended.
    fn ask<R: Send + 'static>(&mut self, call: impl FnOnce(&mut Graph) -> R + Send + 'static) -> Option<R> {
        if let Some(graph) = &mut self.graph {
            return Some(call(graph));
        }
        let (sender, receiver) = channel();
        let command: Command = Box::new(move |graph| {
            // Nobody waits any more only when the control thread gave up.
            let _ = sender.send(call(graph));
        });
        self.mail.send(command).ok()?;
        self.has_mail.store(true, Ordering::SeqCst);
        self.waker.wake_if_asleep();
        receiver.recv().ok()
    }
}

/// How busy a worker was.
#[derive(Debug, Default)]
struct Turns {
    busy_ns: AtomicI64,
    since: Mutex<Option<Instant>>,
}

/// A running router.
pub struct Router {
    config: Arc<FlatConfig>,
    control: Arc<Control>,
    workers: Vec<Worker>,
    pin: bool,
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
        let slow_thread = config.elements.iter().any(|element| element.class == punt::CLASS.name);
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
        if options.pin {
            place_frames(&mut pools);
        }
        for ((index, pool), waker) in pools.into_iter().enumerate().zip(wakers) {
            let copy = Copy { index, workers: options.workers.max(1), slow_thread };
            let (mail, mailbox) = channel();
            let graph = Graph::with_pool(&config, registry, shared, copy, &options.graph, pool, &control)?;
            workers.push(Worker {
                mail,
                has_mail: Arc::default(),
                waker,
                graph: Some(graph),
                mailbox: Some(mailbox),
                thread: None,
                end: Arc::default(),
                turns: Arc::default(),
            });
        }
        Ok(Self { config, control, workers, pin: options.pin })
    }

    /// Starts the threads.
    pub fn start(&mut self) -> std::io::Result<()> {
        let cpus = usable_cpus();
        for (index, worker) in self.workers.iter_mut().enumerate() {
            let (Some(graph), Some(mailbox)) = (worker.graph.take(), worker.mailbox.take()) else { continue };
            let name = if graph.copy().is_slow() { "slow".to_owned() } else { format!("worker {index}") };
            let cpu =
                (self.pin && !graph.copy().is_slow() && !cpus.is_empty()).then(|| cpus[index % cpus.len()]);
            let thread = Thread {
                graph,
                mailbox,
                has_mail: worker.has_mail.clone(),
                waker: worker.waker.clone(),
                end: worker.end.clone(),
                turns: worker.turns.clone(),
                busy_since: None,
            };
            worker.thread = Some(std::thread::Builder::new().name(name).spawn(move || thread.run(cpu))?);
        }
        Ok(())
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
        self.config.elements.iter().any(|element| element.class == punt::CLASS.name)
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

    /// Reads `element.handler argument` and combines the values of all copies.
    pub fn read(&mut self, path: &str) -> Result<String, String> {
        let (target, argument) = path.trim().split_once(char::is_whitespace).unwrap_or((path.trim(), ""));
        let (element, handler) = self.resolve(target)?;
        let (handler_name, argument) = (handler.to_owned(), argument.trim().to_owned());
        let answers = self.on_each(move |graph| {
            let combine = graph
                .handlers(element)
                .iter()
                .find(|known| known.name == handler_name)
                .map_or(Combine::First, |known| known.combine);
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

    /// Writes `value` to `element.handler` on every copy.
    pub fn write(&mut self, target: &str, value: &str) -> Result<(), String> {
        let (element, handler) = self.resolve(target.trim())?;
        let (handler, value) = (handler.to_owned(), value.to_owned());
        let answers = self.on_each(move |graph| graph.write(element, &handler, &value));
        answers.into_iter().flatten().collect()
    }

    /// The names of all read handlers, `element.handler`, in the order of the configuration.
    pub fn handlers(&mut self) -> Vec<String> {
        let config = self.config.clone();
        let names: Vec<String> = config.elements.iter().map(|element| element.name.clone()).collect();
        let of_copies = self.on_each(move |graph| {
            let mut all: Vec<Vec<String>> = Vec::new();
            for (element, name) in names.iter().enumerate() {
                let handlers = graph.handlers(element);
                let readable = handlers.iter().filter(|known| known.readable);
                all.push(readable.map(|handler| format!("{name}.{}", handler.name)).collect());
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

    fn resolve<'a>(&self, target: &'a str) -> Result<(usize, &'a str), String> {
        let Some((name, handler)) = target.rsplit_once('.') else {
            return Err(format!("'{target}' is not of the form ELEMENT.HANDLER"));
        };
        match self.config.elements.iter().position(|element| element.name == name) {
            Some(index) => Ok((index, handler)),
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
            worker.has_mail.store(true, Ordering::SeqCst);
            worker.waker.wake_if_asleep();
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

/// Makes one value of those of several copies.
fn combined(combine: Combine, values: Vec<String>) -> String {
    let numbers = || values.iter().map(|value| value.trim().parse::<f64>()).collect::<Result<Vec<_>, _>>();
    let integers = || values.iter().map(|value| value.trim().parse::<u64>()).collect::<Result<Vec<_>, _>>();
    match combine {
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

impl Turns {
    fn share(&self) -> f64 {
        let since = *self.since.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(since) = since else { return 0.0 };
        let elapsed = since.elapsed().as_nanos() as f64;
        (self.busy_ns.load(Ordering::Relaxed) as f64 / elapsed).clamp(0.0, 1.0)
    }
}

/// What a worker's thread owns.
struct Thread {
    graph: Graph,
    mailbox: Receiver<Command>,
    has_mail: Arc<AtomicBool>,
    waker: Arc<Waker>,
    end: Arc<AtomicBool>,
    turns: Arc<Turns>,
    /// When the current row of turns with work began, by the graph's clock.
    busy_since: Option<u64>,
}

impl Thread {
    fn run(mut self, cpu: Option<usize>) {
        if let Some(cpu) = cpu {
            bind_to(cpu);
        }
        *self.turns.since.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        // It is a matter of latency only, so a kernel that refuses is no error.
        let _ = rustix::thread::set_current_timer_slack(Some(TIMER_SLACK_NS));
        // This thread's alone: Linux gives each one a priority of its own (setpriority(2), "C library/kernel differences").
        if self.graph.copy().is_slow()
            && rustix::process::getpriority_process(None).is_ok_and(|priority| priority > SLOW_PRIORITY)
        {
            let _ = rustix::process::setpriority_process(None, SLOW_PRIORITY);
        }
        let (mut idle_turns, mut patience, mut rest) = (0, IDLE_TURNS, FIRST_REST);
        loop {
            if self.has_mail.load(Ordering::Relaxed) && self.read_mail() {
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
                if self.sleep(rest) {
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
        self.has_mail.store(false, Ordering::SeqCst);
        while let Ok(command) = self.mailbox.try_recv() {
            command(&mut self.graph);
        }
        self.end.load(Ordering::SeqCst)
    }

    /// Blocks, for at most `rest` if some task has no file descriptor; whether something ended that before its time.
    fn sleep(&mut self, rest: Duration) -> bool {
        self.waker.asleep.store(true, Ordering::SeqCst);
        std::sync::atomic::fence(Ordering::SeqCst);
        // Whatever came before the flag was set is found by this turn; whoever comes later sees the flag.
        if self.has_mail.load(Ordering::SeqCst) || self.graph.context().turn() {
            self.waker.clear();
            return true;
        }
        let now = self.graph.context().now_ns();
        let mut timeout = LONGEST_SLEEP;
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
