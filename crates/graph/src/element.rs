//! What an author of an element implements.
//!
//! An element is one file: a manual at its top (it feeds `brickway help`), a struct, a [`Class`], one or two
//! methods of [`Element`], tests at its foot. `CONTRIBUTING.md` shows one in ten lines.

use std::any::Any;
use std::fmt;
use std::os::fd::BorrowedFd;

use packet::Batch;

use crate::context::Context;
use crate::handler::Handler;
use crate::runs::{Ordinary, Sieve};
use crate::setup::Setup;

/// Something that a class of elements is or does, for elements and programs that look for others of which it is true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability(pub &'static str);

/// The capability of elements that keep all packets that are right, whatever their arguments say: a graph of these alone is
/// not a filter. It does not count for packets that leave by no output because none is connected.
pub const KEEPS_ALL: Capability = Capability("keeps all packets");

/// The capability of elements that take packets in which several are merged ([`Packet::merged`](packet::Packet::merged)) on all inputs, do
/// to them what they would do to each of the packets, and pass them on whole. Before others stands one that divides them.
pub const TAKES_MERGED: Capability = Capability("takes merged packets");

/// The capability of elements behind which no packet is merged.
pub const DIVIDES: Capability = Capability("divides merged packets");

/// Another name of a class.
#[derive(Clone, Copy, Debug)]
pub struct Alias {
    /// The name in configurations.
    pub name: &'static str,
    /// For the manual: how Click's class of this name differs from its class of the other name, and what holds here.
    pub difference: &'static str,
}

/// A kind of element: its name in configurations, its ports, how to make one. [`Class::DEFAULT`] has what most have.
#[derive(Debug)]
pub struct Class {
    /// The name in configurations, Click's where Click has one.
    pub name: &'static str,
    /// Further names of the class. Messages and handlers print the name that the configuration used.
    pub aliases: &'static [Alias],
    /// Port counts in Click's code: inputs, slash, outputs; each a number, a range (`1-2`, `1-`), `-` (any), or
    /// `=` (as many as inputs).
    pub ports: &'static str,
    /// Push (`h`), pull (`l`) or agnostic (`a`) per input and output, in Click's code: `a/ah` is agnostic
    /// with further outputs push.
    pub processing: &'static str,
    /// Which inputs reach which outputs, in Click's code; `x/x` (all to all) is usual.
    pub flow: &'static str,
    /// What the class is or does beyond that.
    pub capabilities: &'static [Capability],
    /// The handlers of its elements, beyond those that every element has.
    pub handlers: &'static [Handler],
    /// The manual, in Click's form (`=c` synopsis, `=s` subject and summary, `=d` description, ...): [`manual!`](crate::manual)
    /// takes it from the top of the element's file.
    pub manual: &'static str,
    /// Reads the arguments and makes an element, once for every worker.
    pub make: fn(&mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError>,
}

impl Class {
    /// A class without a name, of elements with an input and an output that work in push and in pull paths.
    pub const DEFAULT: Self = Self {
        name: "",
        aliases: &[],
        ports: "1/1",
        processing: Self::AGNOSTIC,
        flow: Self::COMPLETE_FLOW,
        capabilities: &[],
        handlers: &[],
        manual: "",
        make: |_| Err(ConfigError { messages: Vec::new() }),
    };
    /// Processing code of an element that works in push and in pull paths.
    pub const AGNOSTIC: &'static str = "a/a";
    /// Processing code of an agnostic element whose outputs from 1 on are push.
    pub const AGNOSTIC_WITH_ERRORS: &'static str = "a/ah";
    /// Processing code of an element with push ports only.
    pub const PUSH: &'static str = "h/h";
    /// Processing code of an element with pull ports only.
    pub const PULL: &'static str = "l/l";
    /// Flow code of an element whose inputs all reach all outputs.
    pub const COMPLETE_FLOW: &'static str = "x/x";
}

/// What a task did, and whether it wants to run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskStatus {
    /// Moved packets; run again.
    Busy,
    /// Found nothing to do; look again (the worker may block until a file descriptor or timer is ready).
    Idle,
    /// Do not run until woken: by a queue upstream that gets packets, a timer, or [`Context::wake`].
    Asleep,
}

/// What an element moved over one queue of a port since the port was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// The port, as the configuration names it.
    pub port: String,
    /// The number of the queue on the port; none for what stands for a port without queues.
    pub queue: Option<usize>,
    /// Whether it sends; else it receives.
    pub sends: bool,
    /// Packets received or sent.
    pub packets: u64,
    /// Their bytes, link header included, frame check sequence not.
    pub bytes: u64,
    /// Packets that were lost because they, or the device, had an error.
    pub errors: u64,
    /// Packets that the driver left to the host, by reason.
    pub left_to_host: Vec<(&'static str, u64)>,
    /// Packets that the driver lost, errors among them, by reason.
    pub lost: Vec<(&'static str, u64)>,
}

/// What is wrong with an element's configuration: one message per mistake, each with what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The messages.
    pub messages: Vec<String>,
}

impl ConfigError {
    /// One mistake.
    pub fn new(message: impl Into<String>) -> Self {
        Self { messages: vec![message.into()] }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.messages.join("\n"))
    }
}

impl std::error::Error for ConfigError {}

impl From<String> for ConfigError {
    fn from(message: String) -> Self {
        Self::new(message)
    }
}

impl From<Vec<String>> for ConfigError {
    fn from(messages: Vec<String>) -> Self {
        Self { messages }
    }
}

/// A step of processing. All methods have defaults; most elements implement [`Element::process`] or
/// [`Element::push`] and nothing else.
pub trait Element: Any + Send {
    /// Called once all elements of the graph are made, in the order of the configuration: open files, start
    /// tasks ([`Context::wake`]) and timers. An error stops the router from starting.
    fn initialise(&mut self, _cx: &mut Context) -> Result<(), String> {
        Ok(())
    }

    /// What the element does to an ordinary packet pushed into input 0, as data, so that it can work as one with
    /// those before and behind it (see [`runs`](crate::runs)). It must do exactly that to every packet that passes
    /// all tests of the steps, and nothing else may come of it: no message, no count of its own. It is
    /// asked again when a handler was written, and by nothing else. `None`: it works alone.
    fn ordinary(&self) -> Option<Ordinary> {
        None
    }

    /// What the element does to another kind of ordinary packet, for one that tells two kinds apart: no packet may pass the
    /// tests of both. Runs are tried for this kind where a batch is not of the first.
    fn ordinary_else(&self) -> Option<Ordinary> {
        None
    }

    /// Ends a run, for an element whose steps say that it finishes the run itself: does `work`, that of the elements before it,
    /// and its own to each packet of the sieve. `work` is of the type that the steps are for.
    fn finish(&mut self, _work: &mut dyn Any, sieve: &mut Sieve<'_>) {
        sieve.refuse();
    }

    /// Answers a question about what it does to ordinary packets, of a type that it knows; false if it cannot. Runs ask so
    /// ([`runs::Crossing`](crate::runs::Crossing)).
    fn answer(&mut self, _question: &mut dyn Any) -> bool {
        false
    }

    /// Returns whether the element looks at nothing of a packet pushed into it but its data, and no other element gets it.
    fn takes_data_alone(&self) -> bool {
        false
    }

    /// Works on packets that pass from input 0 to output 0, pushed or pulled. What is left in `batch` when it
    /// returns goes on by output 0; everything else must have been given to the context
    /// ([`Context::emit`], [`Context::drop`], [`Context::filter`] ...).
    fn process(&mut self, _cx: &mut Context, _batch: &mut Batch) {}

    /// A batch is pushed into `input`; it is never empty. What is left in it goes out by output 0 (it is an
    /// error to leave packets when there is no output 0).
    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        self.process(cx, batch);
    }

    /// The element behind `output` wants up to `max` packets; `batch` is empty at first, what is in it at the
    /// end are the packets. The default pulls from input 0 and [`process`](Element::process)es.
    fn pull(&mut self, cx: &mut Context, _output: usize, batch: &mut Batch, max: usize) {
        cx.pull(0, batch, max);
        if !batch.is_empty() {
            self.process(cx, batch);
        }
    }

    /// The input that is pulled when `output` is, for an element that adds nothing to that: the machine pulls from before it
    /// then, so that a way that leads out of the element and back into it can be pulled.
    fn pulled_through(&self, _output: usize) -> Option<usize> {
        None
    }

    /// Runs while the element is awake (see [`Context::wake`]): sources, and elements that move packets out of
    /// queues. One call handles about one burst ([`Context::burst`]).
    fn task(&mut self, _cx: &mut Context) -> TaskStatus {
        TaskStatus::Asleep
    }

    /// A timer set by [`Context::set_timer`] is due; `key` is what it was set with.
    fn timer(&mut self, _cx: &mut Context, _key: u32) {}

    /// Whether this element tells downstream tasks when it has packets ([`Context::set_signal`]): queues do.
    fn notifies(&self) -> bool {
        false
    }

    /// Adds the file descriptors that become readable when the task has something to do (what comes over a ring from
    /// another worker wakes this one anyway) and returns true, so that an idle worker blocks. False: nothing in the
    /// kernel will say, so the task has to look again soon.
    fn wait_fds<'a>(&'a self, _fds: &mut Vec<BorrowedFd<'a>>) -> bool {
        false
    }

    /// What it leaves to the element of the same name and class, but with other arguments, that takes its place while the router
    /// runs: the packets of a queue, say. It is not called again.
    fn leave(&mut self) -> Option<Box<dyn Any + Send>> {
        None
    }

    /// Takes what the element before it [left](Element::leave).
    fn inherit(&mut self, _cx: &mut Context, _left: Box<dyn Any + Send>) {}

    /// Returns what it moved over queues of ports so far.
    fn queues(&self) -> Vec<QueueCounts> {
        Vec::new()
    }

    /// The counters are about to be read: count what was not counted yet
    /// ([`Context::count_drop`]), losses that a driver reports, say.
    fn settle(&mut self, _cx: &mut Context) {}

    /// Returns whether this element has the handler of this name of its class: one may depend on arguments.
    fn has_handler(&self, _name: &str) -> bool {
        true
    }

    /// A handler that its class does not list: one whose name the configuration chose.
    fn more_handlers(&self, _name: &str) -> Option<Handler> {
        None
    }

    /// The names of such handlers, as far as they can be listed.
    fn names_of_more_handlers(&self) -> Vec<String> {
        Vec::new()
    }

    /// Reads such a handler.
    fn read_more(&mut self, _cx: &mut Context, name: &str, _argument: &str) -> Result<String, String> {
        Err(format!("no read handler '{name}'"))
    }

    /// Writes such a handler.
    fn write_more(&mut self, _cx: &mut Context, name: &str, _value: &str) -> Result<(), String> {
        Err(format!("no write handler '{name}'"))
    }
}
