//! =c
//! Lua([SCRIPT], I<keywords> FILE, ARGS, ERRORS, BUDGET, ALLOW)
//!
//! =s control
//! runs a Lua script on packets
//!
//! =d
//! Calls the script's function C<process(batch)> with each batch of packets that is pushed into an
//! input. The script reads and changes the packets in place, and chooses the output of each.
//! Packets for which it makes no choice leave by output 0, or end here if there is none. LuaJIT
//! compiles code that runs often.
//!
//! Each worker has a copy of the script with variables of its own, which stay from batch to batch.
//!
//! =item SCRIPT
//! the script, in quotes. Either this or FILE.
//!
//! =item FILE
//! the file of the script.
//!
//! =item ARGS
//! a text for the script: C<brickway.args>.
//!
//! =item ERRORS
//! the output of packets on which the script failed. Without it they are dropped as "script error",
//! or as "script stopped" once the script is out of the way.
//!
//! =item BUDGET
//! how long a call may take, in CPU time. Half a second by default.
//!
//! =item ALLOW
//! libraries that the script gets besides C<string>, C<table>, C<math>, C<bit> and C<coroutine>.
//! These are C<ffi>, C<io>, C<os>, C<require>, in quotes if several. With them a script can do
//! anything that this program can, and C<ffi> can crash it.
//!
//! =back
//!
//! B<Batches.> C<#batch> or C<batch.count> is the number of packets, and C<batch[1]> the first one.
//! The loop is C<for number, p in batch:each() do>. C<batch.input> is the input.
//! C<batch:send(output)> and C<batch:drop(reason)> are for all packets.
//!
//! B<Packets.> C<p:send(output)> and C<p:drop(reason)> choose where a packet goes; the last one
//! counts. C<p.length>, C<p.input_port>, C<p.paint>, C<p.destination> (the annotation) and
//! C<p.timestamp> describe it.
//!
//! =item *
//! These read, in network byte order: C<p:u8(offset)>, C<p:u16>, C<p:u32>,
//! C<p:bytes(offset, count)>.
//!
//! =item *
//! These write, in network byte order: C<p:set_u8(offset, value)>, C<p:set_u16>, C<p:set_u32>,
//! C<p:set_bytes(offset, text)>.
//!
//! =item *
//! These move the ends: C<p:strip(count)>, C<p:prepend(count)>, C<p:truncate(length)>,
//! C<p:append(count)>.
//!
//! =item *
//! These read and write annotations: C<p:annotation_u8(offset)>, C<p:annotation_u32>,
//! C<p:set_annotation_u8(offset, value)>, C<p:set_annotation_u32>.
//!
//! =back
//!
//! B<Merged packets.> Hosts of the same machine send frames in which many packets of TCP or UDP are
//! merged. The script gets them divided, and whole after C<brickway.take_merged()>. C<p.pieces>, and
//! C<mask:pieces()> or C<batch:pieces()> of several, are the packets that they are on a link. Their ends cannot be moved
//! (C<truncate>, C<append>). Changes of headers hold for all pieces. The checksum of TCP or UDP in a
//! merged packet means nothing.
//!
//! B<Masks> are some packets of a batch. A batch has at most 64 masks. C<batch:all()>,
//! C<batch:none()> and C<batch:undecided()> (those without a choice) make a mask.
//!
//! =item *
//! Its packets: C<#mask>, C<mask:has(number)>, C<mask:set(number)>, C<mask:clear(number)>,
//! C<mask:is_empty()>, C<mask:each()>.
//!
//! =item *
//! Other masks from it: C<mask:union(other)>, C<mask:minus(other)>, C<mask:intersection(other)>.
//!
//! =item *
//! Verdicts on its packets: C<mask:send(output)>, C<mask:drop(reason)>.
//!
//! =back
//!
//! B<Filters> have the language of IPClassifier: C<brickway.filter("udp port 53")> compiles one. Of
//! the packets of the mask, or of all packets, C<batch:match(filter, mask)> returns those that the
//! filter matches.
//!
//! B<Queues.> C<brickway.queue { output = 0, capacity = 512, priority = 100 }> makes a queue of an
//! output. Packets join it by C<p:enqueue(queue)> and C<mask:enqueue(queue)>; its length is
//! C<queue:length()>. An output takes packets by priority, 0 first, from queues of one priority in
//! turns. With C<red_min>, C<red_max> (average lengths) and C<red_probability> packets are dropped
//! at random before the queue is full (RED).
//!
//! C<brickway.pace { output = 0, rate = 1e9, batch = 32, timeout = 1e-4 }> limits an output to the
//! rate, in bits a second (0 for no limit). The output waits until it has a batch of that many
//! packets, but at most for the timeout in seconds. Packets sent to an output with queues wait in
//! one of its own, of priority 100 and 1,024 packets. On reload queued packets leave at once.
//!
//! B<A main loop> can stand in the place of C<process>: C<for batch in brickway.batches() do>. The
//! script waits there until a batch comes. An error ends the loop, which then begins anew, as after
//! a reload.
//!
//! B<Headers.> A header is nil if the packet does not have the whole of it. Headers are looked for
//! behind the network header that is marked. Without one, they are looked for behind an Ethernet
//! header and up to two VLAN tags.
//!
//! =item p.eth
//! C<dst>, C<src> (6 bytes), C<type>
//!
//! =item p.vlan
//! C<id>, C<priority>, C<tci>, C<type>
//!
//! =item p.ip
//! C<src>, C<dst> (numbers; C<brickway.ip("192.0.2.1")>), C<ttl>, C<protocol>, C<tos>, C<dscp>, C<ecn>, C<id>, C<total_length>,
//! C<header_length>, C<checksum>, C<dont_fragment>, C<more_fragments>, C<fragment_offset>
//!
//! =item p.ip6
//! C<src>, C<dst> (16 bytes; C<brickway.ip6("2001:db8::1")>), C<hop_limit>, C<next_header>, C<payload_length>,
//! C<traffic_class>, C<flow_label>
//!
//! =item p.udp
//! C<src_port>, C<dst_port>, C<length>, C<checksum>
//!
//! =item p.tcp
//! C<src_port>, C<dst_port>, C<seq>, C<ack>, C<flags>, C<fin>, C<syn>, C<rst>, C<psh>, C<has_ack>, C<window>, C<checksum>,
//! C<header_length>
//!
//! =item p.icmp
//! C<type>, C<code>, C<id>, C<seq>, C<checksum>; of IPv6 too
//!
//! =back
//!
//! C<start> of each is its offset in the packet's data. Fields can be set, except for C<ecn>,
//! C<header_length>, C<version>, C<dont_fragment>, C<more_fragments>, C<fragment_offset>,
//! C<priority>, C<traffic_class>, C<flow_label> and single flags. The checksum of an IPv4 header is
//! updated when a field is set. Those of TCP, UDP and ICMP are updated when their own fields or the
//! addresses of IPv4 are set.
//!
//! B<Other functions.> C<brickway.now()> is the time in seconds since 1970.
//! C<brickway.set_timer(seconds, key)> calls C<timer(key)> after that time.
//! C<brickway.transmit(bytes, output)> sends a new packet. C<brickway.log(...)>, also C<print>,
//! writes to the log. C<brickway.worker>, C<brickway.workers> and C<brickway.element> identify the
//! copy. C<brickway.format_ip(number)> writes an address.
//!
//! C<handlers.read(name, function(argument) ... end, combine)> and
//! C<handlers.write(name, function(value) ... end)> declare handlers. C<combine> makes one value of
//! the workers' values: C<first>, C<sum>, C<max> or C<join>.
//!
//! Functions of libraries that run to their end whatever the budget have limits. The work for a
//! pattern and its text is limited. C<string.rep> makes 16 MB at most, and C<table.sort> takes
//! 200,000 values. In quotes, a newline of the script's own strings is written C<\\n>.
//!
//! B<Errors.> To use bytes outside of a packet, or a packet of an earlier batch, is an error; it
//! never reads other memory. An error ends the call, and its batch goes to ERRORS. The first errors
//! of a second are logged with file and line. In these cases the script is out of the way until it
//! is loaded again:
//!
//! =item *
//! there were 100 errors within a second,
//!
//! =item *
//! a call has used up its budget,
//!
//! =item *
//! the script has used up 1 GB of memory.
//!
//! =back
//!
//! B<Reload.> Writing the handler C<reload> reads FILE again. So does a new configuration with
//! other arguments. C<restore(value)> of the new script gets the value (tables, numbers, strings,
//! booleans) that C<save()> returned. If the new script has a mistake the old one goes on.
//!
//! Drop reasons: `script error`, `script stopped`, `no free frame` and `packet too long`
//! (C<transmit>), `queue full`, `dropped early` (RED), `no such queue`, `no such output` (of a new
//! configuration), and those that the script names.
//!
//! =e
//!   FromDevice(eth1) -> Lua("
//!     function process(batch)
//!       for number, p in batch:each() do
//!         local ip = p.ip
//!         if ip and ip.ttl < 5 then p:drop('low TTL') end
//!       end
//!     end") -> ToDevice(eth2);
//!
//! =a LuaRouter, Script, Classifier, IPClassifier

use std::any::Any;
use std::time::Duration;

use elements::devices::MergedPorts;
use elements::lookup::ForwardingSteps;
use elements::marking::divide::Divide;
use graph::arguments::Interval;
use graph::{Class, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, METRICS, Put, Setup};
use packet::{Batch, Packet};

use crate::queues::{FIRST_TIMER, Queues};
use crate::router::Ports;
use crate::saved::Saved;
use crate::script::{Failure, LIBRARIES, Origin, Script, Source};
use crate::stage::List;

/// Errors within a second after which a script is out of the way.
const MOST_ERRORS: u32 = 100;
/// Lines of a second that are logged.
const MOST_LINES: usize = 10;
const SECOND_NS: u64 = 1_000_000_000;
const BUDGET_NS: u64 = 500_000_000;
const LEAST_BUDGET: Duration = Duration::from_millis(10);

pub(crate) static CLASS: Class = Class {
    name: "Lua",
    ports: "-/-",
    processing: Class::PUSH,
    capabilities: &[METRICS, graph::TAKES_MERGED],
    handlers: HANDLERS,
    manual: graph::manual!("element.rs"),
    make,
    ..Class::DEFAULT
};

pub(crate) static HANDLERS: &[Handler] = &[
    Handler::read(
        "state",
        Combine::Join,
        "Whether the script runs, or why it is out of the way.",
        &Get(|e: &mut LuaElement| match &e.stopped {
            None => "running".to_owned(),
            Some(why) => format!("stopped: {why}"),
        }),
    ),
    Handler::read(
        "errors",
        Combine::Sum,
        "Calls that failed.",
        &Get(|e: &mut LuaElement| e.errors.to_string()),
    )
    .metric("lua_errors_total"),
    Handler::read(
        "last_error",
        Combine::Join,
        "The last failure, with file and line.",
        &Get(|e: &mut LuaElement| e.last_error.clone()),
    ),
    Handler::read(
        "memory",
        Combine::Sum,
        "Bytes that the script's values take.",
        &Get(|e: &mut LuaElement| e.script.used_bytes().to_string()),
    )
    .metric("lua_memory_bytes"),
    Handler::read(
        "exports",
        Combine::First,
        "Handlers that the script declares, one a line.",
        &Get(|e: &mut LuaElement| {
            e.script.exports.iter().map(|export| export.name.as_str()).collect::<Vec<_>>().join("\n")
        }),
    ),
    Handler::write(
        "reload",
        "Loads the script again; what it has saved goes to the new one. If that has a mistake the old one goes on.",
        &Put(|e: &mut LuaElement, cx, _| e.reload(cx)),
    ),
];

/// The ALLOW argument.
struct Allowed(Vec<String>);

impl FromArgument for Allowed {
    const EXPECTED: &'static str = "ffi, io, os or require, in quotes if several";
    fn from_argument(text: &str) -> Option<Self> {
        let text = graph::lang::unquote(text);
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        let is_known = words.iter().all(|word| LIBRARIES.contains(&word.as_str()));
        (is_known && !words.is_empty()).then_some(Self(words))
    }
}

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let text: Option<String> = setup.arguments.optional("SCRIPT")?;
    make_with(setup, text, |_| Ok(Ports::default()))
}

/// Makes the element. `ports` reads what a router has of ports, the last arguments.
pub(crate) fn make_with(
    setup: &mut Setup<'_>,
    text: Option<String>,
    ports: impl FnOnce(&mut Setup<'_>) -> Result<Ports, ConfigError>,
) -> Result<Box<dyn Element>, ConfigError> {
    let file: Option<String> = setup.arguments.keyword("FILE")?;
    let args: String = setup.arguments.keyword_or("ARGS", String::new())?;
    let errors: Option<usize> = setup.arguments.keyword("ERRORS")?;
    let budget = Duration::from_nanos(setup.arguments.keyword_or("BUDGET", Interval { ns: BUDGET_NS })?.ns);
    let allowed = setup.arguments.keyword::<Allowed>("ALLOW")?.map_or(Vec::new(), |allowed| allowed.0);
    let ports = ports(setup)?;
    setup.arguments.finish()?;
    if budget < LEAST_BUDGET {
        return Err(ConfigError::new(format!("BUDGET is {budget:?}; expected 10 ms or more")));
    }
    if let Some(text) =
        text.as_ref().filter(|text| text.ends_with(".lua") && !text.contains(char::is_whitespace))
    {
        return Err(ConfigError::new(format!("'{text}' names a file; expected FILE {text}")));
    }
    let source = match (text, file) {
        (Some(text), None) => Source::Text(text),
        (None, Some(file)) => Source::File(file),
        _ => return Err(ConfigError::new("expected a script in quotes, or FILE and its file; not both")),
    };
    if let Some(output) = errors.filter(|output| *output >= setup.outputs()) {
        return Err(ConfigError::new(format!(
            "ERRORS is {output}; expected one of the {} outputs, from 0 on",
            setup.outputs()
        )));
    }
    let origin = Origin {
        element: setup.name().to_owned(),
        source,
        args,
        allowed,
        budget,
        worker: setup.copy().index,
        workers: setup.copy().workers,
        ports: ports.names,
        outputs: setup.outputs(),
    };
    if setup.is_check() {
        // Within the usual budget. What may reach beyond the router is only compiled.
        let origin = Origin { budget: origin.budget.min(Duration::from_nanos(BUDGET_NS)), ..origin };
        if origin.allowed.is_empty() {
            drop(origin.load()?);
        } else {
            origin.check()?;
        }
        return Ok(Box::new(Checked));
    }
    let script = origin.load()?;
    if !origin.ports.is_empty() {
        let mut steps = ForwardingSteps::from_setup(setup, &origin.ports)?;
        steps.mtus = ports.mtus.into_iter().map(|mtu| [mtu; 2]).collect();
        script.stage().steps = Some(steps);
    }
    let merged = setup.shared().get::<MergedPorts>(MergedPorts::KEY);
    let may_be_merged = merged.is_some_and(|ports| !ports.0.is_empty());
    script.stage().may_be_merged = may_be_merged;
    Ok(Box::new(LuaElement {
        script,
        may_be_merged,
        divide: Divide::default(),
        queues: Queues::default(),
        origin,
        error_output: errors,
        errors: 0,
        last_error: String::new(),
        stopped: None,
        second: Second::default(),
    }))
}

/// Stands for the element when a configuration is only checked.
struct Checked;

impl Element for Checked {}

/// What an element leaves to the one that takes its place.
struct Left {
    saved: Option<Saved>,
    /// Packets of its queues, with their outputs.
    packets: Vec<(usize, Packet)>,
}

/// What happened in the current second.
#[derive(Default)]
struct Second {
    start_ns: u64,
    errors: u32,
    lines: usize,
    /// Lines that were left out.
    left_out: usize,
}

struct LuaElement {
    script: Script,
    /// Whether packets may be merged.
    may_be_merged: bool,
    /// For a script that does not take those. Empty between calls.
    divide: Divide,
    queues: Queues,
    origin: Origin,
    error_output: Option<usize>,
    errors: u64,
    last_error: String,
    /// Why the script is out of the way.
    stopped: Option<String>,
    second: Second,
}

impl LuaElement {
    /// Does what the script asked for, and counts its failure.
    fn finish(&mut self, cx: &mut Context, result: Result<(), Failure>) {
        if let Some(requests) = self.script.requests() {
            self.grant(cx, requests);
        }
        if let Err(failure) = result {
            self.fail(cx, failure);
        }
    }

    #[cold]
    fn grant(&mut self, cx: &mut Context, requests: List) {
        let List { timers, packets, wishes, lines, line_count } = requests;
        wishes.into_iter().for_each(|wish| self.queues.grant(cx, wish));
        for (key, after_ns) in timers {
            cx.set_timer(key, cx.now_ns().saturating_add(after_ns));
        }
        for (bytes, output) in packets {
            let Some(mut packet) = cx.allocate() else {
                cx.count_drop("no free frame", 1);
                continue;
            };
            match packet.set_data(&bytes) {
                true => cx.emit(output, packet),
                false => cx.drop(packet, "packet too long"),
            }
        }
        self.second.left_out += line_count - lines.len();
        for line in lines {
            self.log(cx, &line);
        }
    }

    /// Logs a line, unless there were many.
    fn log(&mut self, cx: &Context, line: &str) {
        self.begin_second(cx);
        if self.second.lines < MOST_LINES {
            self.second.lines += 1;
            cx.message(&format!("{}: {line}", self.origin.element));
        } else {
            self.second.left_out += 1;
        }
    }

    fn begin_second(&mut self, cx: &Context) {
        let now_ns = cx.now_ns();
        if now_ns.saturating_sub(self.second.start_ns) >= SECOND_NS {
            if self.second.left_out > 0 {
                cx.message(&format!("{}: {} more lines", self.origin.element, self.second.left_out));
            }
            self.second = Second { start_ns: now_ns, ..Second::default() };
        }
    }

    /// Counts a failure, and takes the script out of the way if it was one too many.
    fn fail(&mut self, cx: &Context, failure: Failure) {
        self.errors += 1;
        self.last_error.clone_from(&failure.message);
        self.log(cx, &failure.message);
        self.second.errors += 1;
        let why = match failure.was_stopped {
            true => failure.message,
            false if self.second.errors >= MOST_ERRORS => {
                format!("{MOST_ERRORS} errors within a second, the last: {}", failure.message)
            }
            false => return,
        };
        cx.message(&format!(
            "{}: the script is out of the way: {why}; `brickway reload`, or writing the handler {}.reload, loads it again",
            self.origin.element, self.origin.element
        ));
        self.stopped = Some(why);
    }

    /// Lets go a batch on which the script did not work. That of a router as it came.
    fn pass_over(&self, cx: &mut Context, batch: &mut Batch, reason: &'static str) {
        if self.error_output.is_some() && !self.origin.ports.is_empty() {
            batch.iter_mut().for_each(|packet| {
                ForwardingSteps::whole(packet);
            });
        }
        match self.error_output {
            Some(0) => {}
            Some(output) => cx.emit_batch(output, batch),
            None => cx.drop_batch(batch, reason),
        }
    }

    fn reload(&mut self, cx: &mut Context) -> Result<(), String> {
        let mut script = self.origin.load()?;
        match self.script.save() {
            Ok(Some(saved)) => script.restore(&saved).map_err(|failure| failure.message)?,
            Ok(None) => {}
            // Else a script whose `save` is the mistake could never be mended.
            Err(failure) => self.log(cx, &format!("{}; nothing was saved", failure.message)),
        }
        let steps = self.script.stage().steps.take();
        script.stage().steps = steps;
        script.stage().may_be_merged = self.may_be_merged;
        self.script = script;
        // The new script has queues of its own.
        let left = std::mem::take(&mut self.queues).drain();
        left.into_iter().for_each(|(output, packet)| cx.emit(output, packet));
        self.stopped = None;
        self.second.errors = 0;
        self.begin(cx);
        Ok(())
    }

    /// Does what the script asked for while it was loaded.
    fn begin(&mut self, cx: &mut Context) {
        self.script.shared().begin(cx.now_ns(), cx.outputs());
        self.finish(cx, Ok(()));
    }

    /// Has the script do something beside its packets.
    fn ask<T>(
        &mut self,
        cx: &mut Context,
        call: impl FnOnce(&mut Script) -> Result<T, Failure>,
    ) -> Result<T, String> {
        if let Some(why) = &self.stopped {
            return Err(format!("the script is out of the way: {why}"));
        }
        self.script.shared().begin(cx.now_ns(), cx.outputs());
        let result = call(&mut self.script);
        self.finish(cx, Ok(()));
        result.map_err(|failure| {
            let message = failure.message.clone();
            if failure.was_stopped {
                self.fail(cx, failure);
            }
            message
        })
    }
}

/// What of Linux a router follows.
#[derive(Clone, Copy)]
enum FollowedHere {
    /// The host's IPv4 addresses, from which nobody else sends to a port.
    Own4(usize),
    /// The MTU of a port, for IPv4 or IPv6.
    Mtu(usize, usize),
}

impl LuaElement {
    /// What the handler of this name follows, of a router: `own_1`, `mtu4_1`, `mtu6_1`, `mtu4_2` ...
    fn followed(&self, name: &str) -> Option<FollowedHere> {
        if self.origin.ports.is_empty() {
            return None;
        }
        let (what, number) = name.split_once('_')?;
        let port = number.parse::<usize>().ok()?.checked_sub(1)?;
        let followed = match what {
            "own" => FollowedHere::Own4(port),
            "mtu4" => FollowedHere::Mtu(port, 0),
            "mtu6" => FollowedHere::Mtu(port, 1),
            _ => return None,
        };
        (port < self.origin.ports.len()).then_some(followed)
    }

    fn read_followed(&self, followed: FollowedHere) -> String {
        let mut stage = self.script.stage();
        match (&mut stage.steps, followed) {
            (Some(steps), FollowedHere::Own4(port)) => {
                steps.own4(port).map_or_else(String::new, |own| own.own_text())
            }
            (Some(steps), FollowedHere::Mtu(port, family)) => steps.mtus[port][family].to_string(),
            (None, _) => String::new(),
        }
    }

    fn write_followed(&self, followed: FollowedHere, value: &str) -> Result<(), String> {
        let mut stage = self.script.stage();
        let Some(steps) = &mut stage.steps else { return Ok(()) };
        match followed {
            FollowedHere::Own4(port) => steps.own4(port).map_or(Ok(()), |own| own.set_own(value)),
            FollowedHere::Mtu(port, family) => {
                steps.mtus[port][family] = u32::from_value(value)?;
                Ok(())
            }
        }
    }

    /// Has the script work on a batch, which is empty afterwards unless it leaves by output 0.
    #[inline]
    fn push_as_it_is(&mut self, cx: &mut Context, input: usize, batch: &mut Batch) {
        if self.stopped.is_some() {
            return self.pass_over(cx, batch, "script stopped");
        }
        let shared = self.script.shared();
        shared.begin(cx.now_ns(), cx.outputs());
        let result = self.script.process(input, batch);
        let mut requests = self.script.requests();
        if let Some(list) = &mut requests {
            // Its packets may be for queues that it has just made.
            std::mem::take(&mut list.wishes).into_iter().for_each(|wish| self.queues.grant(cx, wish));
        }
        if result.is_err() {
            self.pass_over(cx, batch, "script error");
        } else if !self.queues.is_empty() {
            let mut stage = self.script.stage();
            let shared = self.script.shared();
            self.queues.take(cx, batch, |number| shared.output(number, &mut stage.reasons));
            shared.show_lengths(self.queues.lengths());
        } else if self.script.shared().is_sorted() {
            let mut stage = self.script.stage();
            let (shared, mut number) = (self.script.shared(), 0);
            cx.classify(batch, |_| {
                number += 1;
                shared.output(number - 1, &mut stage.reasons)
            });
        } else if cx.outputs() == 0 {
            cx.free(batch);
        }
        if let Some(requests) = requests {
            self.grant(cx, requests);
        }
        if let Err(failure) = result {
            self.fail(cx, failure);
        }
    }
}

impl Element for LuaElement {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        self.begin(cx);
        Ok(())
    }

    fn push(&mut self, cx: &mut Context, input: usize, batch: &mut Batch) {
        let divides = self.may_be_merged && !self.script.shared().takes_merged();
        if !divides || !batch.iter().any(Packet::is_merged) {
            return self.push_as_it_is(cx, input, batch);
        }
        self.divide.take(cx, batch);
        while !self.divide.is_empty() {
            self.divide.give(batch, usize::MAX);
            self.push_as_it_is(cx, input, batch);
            if !batch.is_empty() {
                cx.emit_batch(0, batch);
            }
        }
    }

    fn timer(&mut self, cx: &mut Context, key: u32) {
        if key >= FIRST_TIMER {
            self.queues.serve(cx);
            return self.script.shared().show_lengths(self.queues.lengths());
        }
        if self.stopped.is_none() {
            self.script.shared().begin(cx.now_ns(), cx.outputs());
            let result = self.script.timer(key);
            self.finish(cx, result);
        }
    }

    fn more_handlers(&self, name: &str) -> Option<Handler> {
        if self.followed(name).is_some() {
            return Some(Handler::more_to_read_and_write("*", Combine::First));
        }
        let export = self.script.exports.iter().find(|export| export.name == name)?;
        let both = Handler::more_to_read_and_write("*", export.combine);
        Some(Handler {
            read: both.read.filter(|_| export.is_readable),
            write: both.write.filter(|_| export.is_writable),
            ..both
        })
    }

    fn names_of_more_handlers(&self) -> Vec<String> {
        self.script.exports.iter().map(|export| export.name.clone()).collect()
    }

    fn read_more(&mut self, cx: &mut Context, name: &str, argument: &str) -> Result<String, String> {
        if let Some(followed) = self.followed(name) {
            return Ok(self.read_followed(followed));
        }
        self.ask(cx, |script| script.read(name, argument))
    }

    fn write_more(&mut self, cx: &mut Context, name: &str, value: &str) -> Result<(), String> {
        if let Some(followed) = self.followed(name) {
            return self.write_followed(followed, value);
        }
        self.ask(cx, |script| script.write(name, value))
    }

    fn settle(&mut self, cx: &mut Context) {
        for place in self.script.given_up() {
            self.log(cx, &format!("LuaJIT gave up on compiling {place}; it is interpreted there"));
        }
    }

    fn leave(&mut self) -> Option<Box<dyn Any + Send>> {
        let left = Left { saved: self.script.save().ok().flatten(), packets: self.queues.drain() };
        (left.saved.is_some() || !left.packets.is_empty()).then(|| Box::new(left) as Box<dyn Any + Send>)
    }

    fn inherit(&mut self, cx: &mut Context, left: Box<dyn Any + Send>) {
        let Ok(left) = left.downcast::<Left>() else { return };
        if let Some(saved) = &left.saved
            && let Err(failure) = self.script.restore(saved)
        {
            self.log(cx, &failure.message);
        }
        let outputs = cx.outputs();
        for (output, packet) in left.packets {
            match output < outputs {
                true => cx.emit(output, packet),
                false => cx.drop(packet, "no such output"),
            }
        }
    }
}
