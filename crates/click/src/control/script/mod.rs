//! =c
//! Script([TYPE I<type>,] I<INSTRUCTIONS>...)
//!
//! =s control
//! a small program that reads and writes handlers
//!
//! =d
//! Each argument is an instruction. The instructions run one after the other.
//!
//! Texts may contain variables (`$x`, `${x}`) and values of read handlers (`$(c.count)`, with
//! arguments `$(add $x 1)`). These have a meaning of their own:
//!
//!   $args, $1, $2 ...  arguments with which a handler of the script was called
//!   $#                 how many these are
//!   $0                 the handler
//!   $write             whether it was written
//!   $?                 0 if the last `write` went well
//!   $$                 the process
//!
//! The forms of instructions that end in `q` remove one layer of quotes from the result. Handlers
//! are named as ELEMENT.HANDLER. They are looked for outwards from the compound element that the
//! Script stands in. The Script's own, and those of the router (`stop`, `list`), need no element.
//! References may be nested 10 deep, and a text may become 4 MiB long.
//!
//! =head1 Instructions
//!
//! =over 4
//!
//! =item set VAR TEXT; setq
//! Gives a variable a value.
//!
//! =item init VAR TEXT; initq; export VAR TEXT; exportq
//! The same once, at the start. An exported variable is a read handler too.
//!
//! =item print [>FILE | >>FILE] TEXT; printq, printn, printnq
//! Prints a text to standard output or to a file; `printn` without a new line. A TEXT that begins with a letter, `@`
//! or `_` is a read handler; a layer of quotes is taken off any other.
//!
//! =item save HANDLER [ARGUMENTS] FILE; append HANDLER [ARGUMENTS] FILE
//! As print.
//!
//! =item read HANDLER [ARGUMENTS]; readq
//! Prints the handler's name and value to standard error.
//!
//! =item write HANDLER [VALUE]; writeq
//! Writes a handler. After a write to an element's `config`, the script goes on when the element
//! has been made anew.
//!
//! =item pause [COUNT]; wait_step, wait_stop, wait
//! Waits until the handler `step` is written so many times.
//!
//! =item wait TIME; wait_time, wait_for
//! Waits so long, or for a step.
//!
//! =item label NAME; goto NAME [CONDITION]; loop
//! Goes on elsewhere. `begin`, `end`, `exit`, `stop` and `error` are places too. A script that goes to other places 1,000 times
//! without waiting is cut off, with a message.
//!
//! =item return [VALUE]; returnq
//! Ends; the value is that of the handler which runs the script.
//!
//! =item error [TEXT]; errorq
//! Ends with a mistake.
//!
//! =item stop
//! Ends, and has the router stop.
//!
//! =item end; exit
//! Ends. After `end` a signal script waits for the next signal. After `exit` it takes no more
//! signals. If no other script takes the signal, its default action happens, which usually ends the
//! process. A signal runs all scripts that take it, even if one of them runs `stop`.
//!
//! =back
//!
//! =head1 Types
//!
//! ACTIVE (the default) begins when the router does. PASSIVE runs when its handler `run` is read or
//! written. DRIVER decides what happens when the router is to stop, see DriverManager. SIGNAL
//! I<NAMES> runs when the process gets one of these signals. PACKET (the default for a Script with
//! ports) runs for each packet, with `$input`. The packet leaves by the output whose number the
//! script returns (0 at its `end`); others are dropped. PROXY runs for whatever handler is asked of
//! it, `$0`.
//!
//! With several workers a Script runs on the first one only (PACKET: on each, with variables of its
//! own). Its reads and writes of handlers concern all workers.
//!
//! =e
//!   Script(set x 0, label again, print $x, set x $(add $x 1), goto again $(lt $x 5), stop)
//!
//! =a DriverManager
//!
//! =c
//! DriverManager(I<INSTRUCTIONS>...)
//!
//! =s control
//! a Script that decides what happens when the router is to stop
//!
//! =d
//! A Script whose TYPE is DRIVER by default.
//!
//! Any element may ask for the router's end: a source with STOP true, a handler, a Script. The
//! router then has the DriverManager take a step. It ends only when the DriverManager's script
//! ends, or runs `stop`. Without instructions that is at once. A script that does not begin by
//! waiting runs when the router starts. A router has one driver script at most.
//!
//! =e
//! Waits for the end of the traffic, and gives the rest a tenth of a second to arrive:
//!
//!   DriverManager(pause, wait 0.1s, print c.count, stop)
//!
//! =a Script

mod functions;
mod instructions;
mod run;
mod signals;

use std::os::fd::{AsFd, BorrowedFd};

use graph::lang::{split_arguments, split_words};
use graph::setup::TakenSignals;
use graph::{Act, Class, Combine, ConfigError, Context, Element, Handler, Put, Setup, TaskStatus};
use packet::Batch;

use instructions::{Ending, parse};
use run::Run;
use signals::{Signals, signal_stream};

pub(crate) static CLASS: Class = Class {
    name: "Script",
    ports: "-/-",
    processing: Class::AGNOSTIC_WITH_ERRORS,
    handlers: &HANDLERS,
    manual: graph::manual!("mod.rs", "Script"),
    make: |setup| make(setup, None),
    ..Class::DEFAULT
};

pub(crate) static DRIVER: Class = Class {
    name: "DriverManager",
    ports: "0/0",
    processing: Class::AGNOSTIC,
    manual: graph::manual!("mod.rs", "DriverManager"),
    make: |setup| make(setup, Some(Kind::Driver)),
    ..CLASS
};

/// What makes a script run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Active,
    Passive,
    Driver,
    Signal,
    Packet,
    Proxy,
}

/// Makes a script; `usual` is what it is where nothing else is said.
fn make(setup: &mut Setup<'_>, usual: Option<Kind>) -> Result<Box<dyn Element>, ConfigError> {
    let has_ports = setup.inputs() + setup.outputs() > 0;
    let usual = usual.unwrap_or(if has_ports { Kind::Packet } else { Kind::Active });
    let mut arguments = split_arguments(setup.config());
    let (kind, wanted) =
        match arguments.iter().position(|text| text.split_whitespace().next() == Some("TYPE")) {
            Some(at) => kind(&arguments.remove(at))?,
            None => (usual, Vec::new()),
        };
    match kind {
        Kind::Packet if setup.inputs() == 0 => {
            return Err("PACKET script must have inputs".to_owned().into());
        }
        Kind::Packet => {}
        _ if has_ports => return Err("ports allowed only on PACKET scripts".to_owned().into()),
        Kind::Driver => setup.manage_driver()?,
        _ => {}
    }
    let last = if kind == Kind::Driver { Ending::Stop } else { Ending::End };
    let instructions = parse(&arguments, last)?;
    let works = kind == Kind::Packet || setup.copy().index == 0;
    let taken =
        setup.shared().get_or_make(TakenSignals::KEY, || Ok::<_, ConfigError>(TakenSignals::default()))?;
    let mut streams = Vec::new();
    if works && !setup.is_check() && !wanted.is_empty() {
        for signal in wanted.iter().map(|signal| signal.as_raw()) {
            taken.take(signal);
            let stream =
                signal_stream(signal).map_err(|error| format!("cannot wait for signals: {error}"))?;
            streams.push((signal, stream));
        }
    }
    let exported = arguments.iter().map(|text| split_words(text));
    let exported = exported.filter(|words| words.first().is_some_and(|word| word.starts_with("export")));
    let exported = exported.filter_map(|words| words.into_iter().nth(1)).collect();
    let name = format!("{} :: {}", setup.name(), setup.class());
    let signals = Signals { streams, taken, is_gone: false, stops_in: None };
    Ok(Box::new(Script { kind, works, signals, run: Run::new(name, instructions, exported) }))
}

/// Reads `TYPE KIND [SIGNALS]`.
fn kind(argument: &str) -> Result<(Kind, Vec<rustix::process::Signal>), ConfigError> {
    let words = split_words(argument);
    let simple = match words.get(1).map(String::as_str) {
        Some("ACTIVE") => Kind::Active,
        Some("PASSIVE") => Kind::Passive,
        Some("DRIVER") => Kind::Driver,
        Some("PACKET" | "PUSH") => Kind::Packet,
        Some("PROXY") => Kind::Proxy,
        Some("SIGNAL") => {
            let signals: Option<Vec<_>> = words[2..].iter().map(|name| signals::signal(name)).collect();
            return match signals.filter(|signals| !signals.is_empty()) {
                Some(signals) => Ok((Kind::Signal, signals)),
                None => Err("bad signal number; expected names such as HUP or USR1".to_owned().into()),
            };
        }
        _ => return Err(bad_type()),
    };
    if words.len() == 2 { Ok((simple, Vec::new())) } else { Err(bad_type()) }
}

fn bad_type() -> ConfigError {
    "bad TYPE; expected 'ACTIVE', 'PASSIVE', 'DRIVER', 'SIGNAL', 'PACKET' or 'PROXY'".to_owned().into()
}

struct Script {
    kind: Kind,
    /// Whether this copy is the one that runs it.
    works: bool,
    signals: Signals,
    run: Run,
}

/// The timer of a wait.
const WAIT: u32 = 0;
/// The timer of a script that waits for another configuration to take the running one's place, and how often it looks.
const CHANGE: u32 = 1;
const CHANGE_NS: u64 = 100_000;

/// A handler to read.
macro_rules! asked {
    ($name:literal, $doc:literal) => {
        Handler::read(
            $name,
            Combine::First,
            $doc,
            &Act(|e: &mut Script, cx, argument| e.read(cx, $name, argument)),
        )
    };
}
use asked;

/// A handler to write.
macro_rules! told {
    ($name:literal, $doc:literal) => {
        Handler::write($name, $doc, &Put(|e: &mut Script, cx, value| e.write(cx, $name, value)))
    };
}

/// The handlers by which a script is steered and asked for what it holds.
const OWN: [Handler; 9] = [
    told!("step", "Ends the wait, or that many."),
    told!("goto", "Goes on at a label."),
    Handler::read_write(
        "run",
        Combine::First,
        "Runs the script from its beginning. What is read is what it returns.",
        &Act(|e: &mut Script, cx, argument| e.read(cx, "run", argument)),
        &Put(|e: &mut Script, cx, value| e.write(cx, "run", value)),
    )
    .acting(),
    asked!("random", "A random number below the argument, or from its first word to its second."),
    asked!("now", "The time, in seconds."),
    asked!("now_steady", "As now."),
    asked!("get", "The value of a variable."),
    asked!("shift", "Takes the first word off a variable, `$args` by default. What is read is that word.")
        .acting(),
    told!("set", "Gives a variable a value: the first word names it, the rest is the value."),
];

/// The handlers of scripts: their own, then the functions.
const HANDLERS: [Handler; OWN.len() + functions::HANDLERS.len()] = {
    let mut all = [OWN[0]; OWN.len() + functions::HANDLERS.len()];
    let mut at = 0;
    while at < all.len() {
        all[at] = if at < OWN.len() { OWN[at] } else { functions::HANDLERS[at - OWN.len()] };
        at += 1;
    }
    all
};

impl Script {
    /// Reads one of the script's own handlers.
    fn read(&mut self, cx: &mut Context, name: &str, argument: &str) -> Result<String, String> {
        match self.works {
            true => self.run.read(cx, name, name, argument),
            false => Ok(String::new()),
        }
    }

    /// Writes one of the script's own handlers.
    fn write(&mut self, cx: &mut Context, name: &str, value: &str) -> Result<(), String> {
        match self.works {
            true => self.run.write(cx, name, name, value),
            false => Ok(()),
        }
    }
}

impl Element for Script {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        if self.works {
            self.run.initialise(cx, self.kind);
            if self.kind == Kind::Signal {
                cx.wake();
            }
        }
        Ok(())
    }

    fn timer(&mut self, cx: &mut Context, key: u32) {
        match key {
            CHANGE if cx.change_is_due() => cx.set_timer(CHANGE, cx.now_ns() + CHANGE_NS),
            CHANGE => self.run.step_alone(cx, 0),
            _ => self.run.step_alone(cx, 1),
        }
    }

    fn task(&mut self, cx: &mut Context) -> TaskStatus {
        if self.signals.streams.is_empty() {
            return TaskStatus::Asleep;
        }
        if self.signals.is_time_to_stop(self.run.take_ending()) {
            cx.stop();
            return TaskStatus::Busy;
        }
        if self.signals.came() {
            self.run.begin("run", "", true);
            self.run.step_alone(cx, 0);
            return TaskStatus::Busy;
        }
        if self.signals.stops_in.is_some() { TaskStatus::Busy } else { TaskStatus::Idle }
    }

    fn wait_fds<'a>(&'a self, fds: &mut Vec<BorrowedFd<'a>>) -> bool {
        fds.extend(self.signals.streams.iter().map(|(_, stream)| stream.as_fd()));
        true
    }

    fn push(&mut self, cx: &mut Context, input: usize, batch: &mut Batch) {
        let mut packets = std::mem::replace(batch, cx.spare_batch());
        for packet in packets.drain() {
            match self.run.packet(cx, input) {
                Some(output) => cx.emit(output, packet),
                None => cx.drop(packet, "no output returned"),
            }
        }
        cx.recycle(packets);
    }

    fn pull(&mut self, cx: &mut Context, _output: usize, batch: &mut Batch, max: usize) {
        let mut packets = cx.spare_batch();
        cx.pull(0, &mut packets, max);
        for packet in packets.drain() {
            match self.run.packet(cx, 0) {
                Some(0) => batch.push(packet),
                Some(output) => cx.emit(output, packet),
                None => cx.drop(packet, "no output returned"),
            }
        }
        cx.recycle(packets);
    }

    fn more_handlers(&self, name: &str) -> Option<Handler> {
        let more = match self.kind {
            Kind::Proxy => Some(Handler::more_to_read_and_write("*", Combine::First)),
            _ => self.run.exports(name).then_some(Handler::more_to_read("*", Combine::First)),
        };
        more.map(Handler::acting)
    }

    fn read_more(&mut self, cx: &mut Context, name: &str, argument: &str) -> Result<String, String> {
        if !self.works {
            return Ok(String::new());
        }
        let own = if self.run.exports(name) { name } else { "run" };
        self.run.read(cx, own, name, argument)
    }

    fn write_more(&mut self, cx: &mut Context, name: &str, value: &str) -> Result<(), String> {
        if !self.works {
            return Ok(());
        }
        self.run.write(cx, "run", name, value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    fn bench(config: &str) -> Bench {
        Bench::new(&crate::registry(), config)
    }

    #[test]
    fn a_passive_script_is_a_function() {
        let mut bench = bench(
            "s :: Script(TYPE PASSIVE, return $(add $1 $2 $#)); f :: Script(TYPE PASSIVE, set n 0, label l,
               set n $(add $n 1), goto l $(lt $n $args), returnq \"<$n>\")",
        );
        assert_eq!(bench.read("s.run 40 1"), "43");
        assert_eq!(bench.read("f.run 5"), "<5>");
        assert_eq!(bench.read("s.sprintf %03d 7"), "007");
    }

    #[test]
    fn others_are_called_and_their_packets_go_on() {
        let mut bench = bench(
            "in0 :: TestInput -> sw :: Switch -> out0 :: TestOutput; sw[1] -> out1 :: TestOutput;
             s :: Script(TYPE PASSIVE, write sw.switch $1, set x $?, write sw.nothing 1, return \"$x $? $(sw.switch)\")",
        );
        assert_eq!(bench.read("s.run 1"), "\"0 -22 1\"");
        bench.push("in0", &[b"a"]);
        assert_eq!((bench.taken("out0").len(), bench.taken("out1").len()), (0, 1));
        assert!(bench.messages()[0].contains("While executing 's :: Script'"));
    }

    #[test]
    fn what_grows_without_end_is_cut_off() {
        let mut bench = bench(
            "s :: Script(TYPE PASSIVE, set x 0123456789, label l, set x $x$x, goto l, return $(length $x));
             t :: Script(TYPE PASSIVE, write t.step 9223372036854775807, write t.step 9223372036854775807, pause 3, return $00)",
        );
        assert_eq!(bench.read("s.run"), "");
        let messages = bench.messages();
        assert!(
            messages.iter().any(|message| message.contains("'$x$x' becomes too long")),
            "{}",
            messages[0]
        );
        assert_eq!(bench.read("t.run"), "");
    }

    #[test]
    fn time_passes() {
        let mut bench = bench("s :: Script(export x 0, label l, wait 1s, set x $(add $x 1), goto l)");
        bench.advance_ns(3_500_000_000);
        assert_eq!(bench.read("s.x"), "3");
        bench.write("s.step", "").unwrap();
        assert_eq!(bench.read("s.x"), "4");
        bench.advance_ns(900_000_000);
        assert_eq!(bench.read("s.x"), "4");
        bench.advance_ns(200_000_000);
        assert_eq!(bench.read("s.x"), "5");
    }

    #[test]
    fn steps_and_places() {
        let mut bench =
            bench("s :: Script(pause 2, set a x, pause, set a $(add $a 1), label l, set a ${a}y)");
        bench.run(10);
        assert!(bench.read("s.readable s.run x.y").contains("false"));
        bench.write("s.step", "1").unwrap();
        assert!(bench.read("s.get a").is_empty());
        bench.write("s.step", "").unwrap();
        assert_eq!(bench.read("s.get a"), "x");
        bench.write("s.goto", "l").unwrap();
        assert_eq!(bench.read("s.get a"), "xy");
        assert!(bench.write("s.goto", "nowhere").unwrap_err().contains("nonexistent label"));
        bench.write("s.set", "a b c").unwrap();
        assert_eq!((bench.read("s.shift a"), bench.read("s.get a")), ("b".into(), "c".into()));
    }

    #[test]
    fn loops_are_cut() {
        let mut bench = bench("s :: Script(label l, goto l)");
        bench.run(10);
        assert_eq!(bench.messages(), ["s :: Script: too many jumps, giving up"]);
    }

    #[test]
    fn packets_are_switched() {
        let mut bench = Bench::element(
            &crate::registry(),
            "Script(TYPE PACKET, init n 0, set n $(add $n 1), goto end $(eq $n 2), return $(if $(eq $input 1) 1 7))",
            2,
            2,
        );
        bench.push("in1", &[b"a"]);
        bench.push("in0", &[b"b", b"c"]);
        assert_eq!((bench.taken("out0"), bench.taken("out1")), (vec![b"b".to_vec()], vec![b"a".to_vec()]));
        assert_eq!(bench.drops("e", "sent to an output that is not connected"), 1);
    }

    #[test]
    fn a_proxy_answers_to_any_name() {
        let mut bench = bench("s :: Script(TYPE PROXY, return \"$0($args) $write\")");
        assert_eq!(bench.read("s.anything a b"), "\"anything(a b) false\"");
    }

    #[test]
    fn a_script_that_calls_itself_through_another_is_told() {
        let mut bench =
            bench("a :: Script(TYPE PASSIVE, return $(b.run)); b :: Script(TYPE PASSIVE, return $(a.run))");
        assert_eq!(bench.read("a.run"), "$(b.run)".replace("$(b.run)", "$(a.run)"));
        assert!(bench.messages().iter().any(|line| line.contains("is at work")));
    }

    #[test]
    fn mistakes() {
        let wrong = |config: &str| configure(&CLASS, config).unwrap_err().join("\n");
        assert!(wrong("TYPE NONE").contains("bad TYPE"));
        assert!(wrong("TYPE PASSIVE").contains("ports allowed only"));
        assert!(wrong("TYPE SIGNAL FOO").contains("bad signal"));
    }
}
