//! =c
//! TimeFilter([START, END, I<keywords> START_AFTER, START_DELAY, END_AFTER, END_DELAY, INTERVAL, STOP, END_CALL])
//!
//! =s timestamps
//! passes packets of a time
//!
//! =d
//! Passes packets whose timestamps are START or later and before END. All others leave by output 1 if that is connected,
//! else they are dropped as "not of the time".
//!
//! Arguments are times in seconds, or with a unit. At most one sets when the time begins, and at
//! most one when it ends:
//!
//! START, END: seconds since 1970.
//!
//! START_AFTER, END_AFTER: counted from the first packet's timestamp.
//!
//! START_DELAY, END_DELAY: counted from the router's start.
//!
//! INTERVAL: how long the time is.
//!
//! STOP: boolean. True stops the router when the first packet after the end comes.
//!
//! END_CALL: a write handler that is called at that moment instead of a stop. In the value that is
//! written, C<$t> stands for the packet's timestamp. The call may move the end of the time to
//! later, by this element's own handlers. The handler is then called again at the new end.
//!
//! With several workers each has a first packet of its own and calls for itself.
//!
//! =e
//!   FromDump(f.pcap) -> TimeFilter(START_AFTER 10, INTERVAL 60, STOP true) -> ...
//!
//! =a SetTimestamp, AdjustTimestamp

use graph::arguments::{HandlerCall, Interval};
use graph::{
    Arguments, Class, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Put, Setup, Verdict,
};
use packet::Batch;

use crate::marking::print::write_timestamp;

pub(crate) static CLASS: Class = Class {
    name: "TimeFilter",
    ports: "1/1-2",
    processing: Class::AGNOSTIC_WITH_ERRORS,
    handlers: &[
        Handler::read_write(
            "start",
            Combine::First,
            "When the time begins.",
            &Get(|e: &mut TimeFilter| seconds(e.start_ns)),
            &Put(|e: &mut TimeFilter, _, value| e.set_start(value)),
        ),
        Handler::read_write(
            "end",
            Combine::First,
            "When it ends.",
            &Get(|e: &mut TimeFilter| seconds(e.end_ns)),
            &Put(|e: &mut TimeFilter, _, value| {
                let ns = time(value)?;
                e.end = Some(Bound::At(ns));
                e.set_end(ns);
                Ok(())
            }),
        ),
        Handler::read_write(
            "interval",
            Combine::First,
            "How long it is.",
            &Get(|e: &mut TimeFilter| seconds(e.end_ns.saturating_sub(e.start_ns))),
            &Put(|e: &mut TimeFilter, _, value| {
                e.set_end(e.start_ns.saturating_add(time(value)?));
                Ok(())
            }),
        ),
        Handler::write(
            "extend_interval",
            "Lets it end so much later.",
            &Put(|e: &mut TimeFilter, _, value| {
                e.set_end(e.end_ns.saturating_add(time(value)?));
                Ok(())
            }),
        ),
    ],
    manual: graph::manual!("time_filter.rs"),
    make,
    ..Class::DEFAULT
};

/// The argument that says an end of the time in one way.
type Named = (&'static str, fn(u64) -> Bound);

/// An end of the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    At(u64),
    AfterFirst(u64),
    AfterInitialisation(u64),
    /// After the beginning.
    Long(u64),
}

impl Bound {
    /// The one of `names` that is said, 0 being nothing; the first is positional.
    fn read(arguments: &mut Arguments, names: &[Named]) -> Result<Option<Self>, ConfigError> {
        let mut said = Vec::new();
        for (place, (name, bound)) in names.iter().enumerate() {
            let time: Option<Interval> =
                if place == 0 { arguments.optional(name)? } else { arguments.keyword(name)? };
            said.extend(time.filter(|time| time.ns > 0).map(|time| bound(time.ns)));
        }
        if said.len() > 1 {
            let names: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
            return Err(format!("{} are mutually exclusive", names.join(", ")).into());
        }
        Ok(said.pop())
    }
}

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let arguments = &mut setup.arguments;
    let start = Bound::read(
        arguments,
        &[
            ("START", Bound::At),
            ("START_AFTER", Bound::AfterFirst),
            ("START_DELAY", Bound::AfterInitialisation),
        ],
    )?;
    let end = Bound::read(
        arguments,
        &[
            ("END", Bound::At),
            ("END_AFTER", Bound::AfterFirst),
            ("END_DELAY", Bound::AfterInitialisation),
            ("INTERVAL", Bound::Long),
        ],
    )?;
    let stop = arguments.keyword_or("STOP", false)?;
    let call: Option<HandlerCall> = arguments.keyword("END_CALL")?;
    arguments.finish()?;
    if stop && call.is_some() {
        return Err("END_CALL and STOP are mutually exclusive".to_owned().into());
    }
    let stop = stop.then(|| HandlerCall { name: "stop".to_owned(), value: "true".to_owned() });
    let call = call.or(stop);
    Ok(Box::new(TimeFilter {
        start,
        end,
        start_ns: 0,
        end_ns: u64::MAX,
        saw_first: false,
        may_call: call.is_some(),
        call,
    }))
}

/// Reads a time that was written to a handler.
fn time(value: &str) -> Result<u64, String> {
    let Interval { ns } = Interval::from_argument(value.trim()).ok_or("expected time")?;
    Ok(ns)
}

/// A time as handlers tell it.
fn seconds(ns: u64) -> String {
    let mut text = String::new();
    write_timestamp(&mut text, ns);
    text
}

struct TimeFilter {
    start: Option<Bound>,
    end: Option<Bound>,
    start_ns: u64,
    end_ns: u64,
    /// Whether the times that count from the first packet are known.
    saw_first: bool,
    call: Option<HandlerCall>,
    may_call: bool,
}

impl TimeFilter {
    fn begin(&mut self, first_ns: u64) {
        if let Some(Bound::AfterFirst(after)) = self.start {
            self.start_ns = first_ns.saturating_add(after);
        }
        match self.end {
            Some(Bound::AfterFirst(after)) => self.end_ns = first_ns.saturating_add(after),
            Some(Bound::Long(length)) => self.end_ns = self.start_ns.saturating_add(length),
            _ => {}
        }
        self.saw_first = true;
    }

    /// The time is over: calls, as long as what is called puts the end off and that is over too.
    #[cold]
    fn call(&mut self, cx: &mut Context, time_ns: u64) {
        let text = seconds(time_ns);
        while let Some(call) = self.call.as_ref().filter(|_| self.may_call && time_ns >= self.end_ns) {
            let before = self.end_ns;
            self.may_call = false;
            let value = call.value.replace("$t", &text);
            let (result, own) = cx.call_write_hearing(&call.name, &value);
            if let Err(problem) = result {
                cx.message(&format!("While calling '{call}':\n  {problem}"));
            }
            super::write_heard(&CLASS, self, cx, &own);
            if self.end_ns <= before {
                break;
            }
        }
    }

    /// Writes the handler `start`.
    fn set_start(&mut self, value: &str) -> Result<(), String> {
        let ns = time(value)?;
        if !self.saw_first {
            self.begin(ns);
        }
        self.start_ns = ns;
        Ok(())
    }

    /// Has the time end at `ns`; what is to be called then is called once more.
    fn set_end(&mut self, ns: u64) {
        self.end_ns = ns;
        self.may_call = self.call.is_some();
    }
}

impl Element for TimeFilter {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        match self.start {
            Some(Bound::At(at)) => self.start_ns = at,
            Some(Bound::AfterInitialisation(delay)) => self.start_ns = cx.now_ns().saturating_add(delay),
            _ => {}
        }
        match self.end {
            Some(Bound::At(at)) => self.end_ns = at,
            Some(Bound::AfterInitialisation(delay)) => self.end_ns = cx.now_ns().saturating_add(delay),
            _ => {}
        }
        Ok(())
    }

    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        const REASON: &str = "not of the time";
        if !self.saw_first
            && let Some(first) = batch.packets().first()
        {
            self.begin(first.timestamp_ns());
        }
        // Calls come between packets, so these are looked at before the batch is sorted.
        if self.may_call {
            for packet in batch.packets() {
                let time_ns = packet.timestamp_ns();
                if time_ns >= self.end_ns && time_ns >= self.start_ns {
                    self.call(cx, time_ns);
                }
            }
        }
        let (start_ns, end_ns) = (self.start_ns, self.end_ns);
        cx.filter(batch, |packet| match (start_ns..end_ns).contains(&packet.timestamp_ns()) {
            true => Verdict::Keep,
            false => Verdict::Divert(1, REASON),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    const SECOND: u64 = 1_000_000_000;

    fn passed(bench: &mut Bench, seconds: &[u64]) -> Vec<u64> {
        let packets = seconds.iter().map(|&second| {
            let mut packet = bench.packet(b"x");
            packet.set_timestamp_ns(second * SECOND);
            packet
        });
        let packets: Vec<_> = packets.collect();
        bench.push_packets("in0", packets);
        bench.taken_packets("out0").iter().map(|packet| packet.timestamp_ns() / SECOND).collect()
    }

    #[test]
    fn from_and_to() {
        let bench =
            |arguments: &str| Bench::element(&crate::registry(), &format!("TimeFilter({arguments})"), 1, 2);
        let mut absolute = bench("10, 20");
        assert_eq!(passed(&mut absolute, &[9, 10, 19, 20]), [10, 19]);
        assert_eq!(absolute.taken("out1").len(), 2);
        assert_eq!(absolute.read("e.interval"), "10.000000");
        let mut relative = bench("START_AFTER 10, INTERVAL 5");
        assert_eq!(passed(&mut relative, &[100, 109, 110, 114, 115]), [110, 114]);
        let mut open = bench("END_AFTER 5");
        assert_eq!(passed(&mut open, &[7, 11, 12]), [7, 11]);
        open.write("e.extend_interval", "1").unwrap();
        assert_eq!(passed(&mut open, &[12, 13]), [12]);
    }

    #[test]
    fn what_is_called_at_the_end_may_put_it_off() {
        let config = "in0 :: TestInput -> t :: TimeFilter(0, 10, END_CALL s.run $t) -> out0 :: TestOutput;
            s :: Script(TYPE PASSIVE, init n 0, goto exit $(gt $n 1), set n $(add $n 1), print \"over $1\", write t.extend_interval 10)";
        let mut bench = Bench::with_burst(&crate::registry(), config, 1);
        assert_eq!(passed(&mut bench, &[9, 10, 31, 32]), [9, 10]);
        assert_eq!(bench.read("t.end"), "30.000000");
    }

    #[test]
    fn mistakes() {
        let error = |arguments: &str| configure(&CLASS, arguments).unwrap_err().remove(0);
        assert!(error("1, START_AFTER 2").contains("mutually exclusive"));
        assert!(error("STOP true, END_CALL x.y").contains("END_CALL and STOP"));
    }
}
