//! =c
//! TimedSource([INTERVAL, DATA, I<keywords> LIMIT, ACTIVE, STOP, END_CALL])
//!
//! =s basicsources
//! makes a packet every so often
//!
//! =d
//! Pushes out a packet of DATA every INTERVAL (a time such as C<10ms>, by default half a second),
//! the first one after one INTERVAL. There are at most LIMIT of them (negative, the default, sets
//! no limit). With ACTIVE false it does nothing until the C<active> handler makes it true. With
//! STOP true it stops the router one INTERVAL after the last packet.
//!
//! Different from Click: on a router of several workers only the first one makes packets. HEADROOM
//! is not supported.
//!
//! =e
//!   TimedSource(1s, hello) -> ...
//!
//! =a RatedSource, InfiniteSource, TimedSink

use graph::arguments::Interval;
use graph::{Class, Combine, Context, Element, FromArgument, Get, Handler, Put};

use super::end::End;
use super::payload::Payload;

pub(crate) static CLASS: Class = Class {
    name: "TimedSource",
    ports: "0/1",
    processing: Class::PUSH,
    handlers: &[
        Handler::read(
            "count",
            Combine::Sum,
            "Packets made since the start or the last reset.",
            &Get(|e: &mut TimedSource| e.count.to_string()),
        ),
        Handler::read_write(
            "active",
            Combine::First,
            "Whether it works.",
            &Get(|e: &mut TimedSource| e.active.to_string()),
            &Put(|e: &mut TimedSource, cx, value| {
                e.active = bool::from_value(value)?;
                e.go_on(cx);
                Ok(())
            }),
        ),
        Handler::write(
            "reset",
            "Sets the count to zero, so that LIMIT more packets are made.",
            &Put(|e: &mut TimedSource, cx, _| {
                e.count = 0;
                e.go_on(cx);
                Ok(())
            }),
        ),
        Handler::read_write(
            "data",
            Combine::First,
            "The DATA argument.",
            &Get(|e: &mut TimedSource| e.payload.data_text()),
            &Put(|e: &mut TimedSource, cx, value| e.payload.set_data(cx, value)),
        ),
        Handler::read_write(
            "interval",
            Combine::First,
            "The INTERVAL argument.",
            &Get(|e: &mut TimedSource| interval_text(e.interval)),
            &Put(|e: &mut TimedSource, _, value| {
                e.interval = check_interval(Interval::from_value(value)?)?;
                Ok(())
            }),
        ),
        Handler::read_write(
            "limit",
            Combine::First,
            "The LIMIT argument.",
            &Get(|e: &mut TimedSource| e.limit.map_or_else(|| "-1".to_owned(), |limit| limit.to_string())),
            &Put(|e: &mut TimedSource, _, value| {
                e.limit = u64::try_from(i64::from_value(value)?).ok();
                Ok(())
            }),
        ),
    ],
    manual: graph::manual!("timed_source.rs"),
    make: |setup| {
        let interval = setup.arguments.optional("INTERVAL")?.unwrap_or(Interval { ns: DEFAULT_INTERVAL_NS });
        let data = Payload::data_argument(&mut setup.arguments)?;
        let limit: i64 = setup.arguments.keyword_or("LIMIT", -1)?;
        let active = setup.arguments.keyword_or("ACTIVE", true)?;
        let end = End::read(&mut setup.arguments)?;
        setup.arguments.finish()?;
        check_interval(interval).map_err(|error| format!("INTERVAL: {error}"))?;
        Ok(Box::new(TimedSource {
            payload: Payload::new(data, None),
            interval,
            limit: u64::try_from(limit).ok(),
            active,
            end,
            works_here: setup.works_here(),
            waits: false,
            count: 0,
        }))
    },
    ..Class::DEFAULT
};

const DEFAULT_INTERVAL_NS: u64 = 500_000_000;

/// With no time at all between packets one turn would never end.
pub(crate) fn check_interval(interval: Interval) -> Result<Interval, String> {
    if interval.ns == 0 { Err("expected a time greater than 0".to_owned()) } else { Ok(interval) }
}

/// A time as text: `0.5s`, `10ms`.
pub(crate) fn interval_text(interval: Interval) -> String {
    let ns = interval.ns;
    let (value, unit) = match ns {
        _ if ns >= 1_000_000_000 => (ns as f64 / 1e9, "s"),
        _ if ns >= 1_000_000 => (ns as f64 / 1e6, "ms"),
        _ if ns >= 1_000 => (ns as f64 / 1e3, "us"),
        _ => (ns as f64, "ns"),
    };
    format!("{value}{unit}")
}

struct TimedSource {
    payload: Payload,
    interval: Interval,
    limit: Option<u64>,
    active: bool,
    end: End,
    /// Whether this is the copy that makes packets.
    works_here: bool,
    /// Whether a timer is set.
    waits: bool,
    count: u64,
}

impl TimedSource {
    fn wait(&mut self, cx: &mut Context, ns: u64) {
        self.waits = true;
        cx.set_timer(0, cx.now_ns().saturating_add(ns));
    }

    /// Goes to work again after a handler changed something.
    fn go_on(&mut self, cx: &mut Context) {
        if self.active && self.works_here && !self.waits {
            self.wait(cx, 0);
        }
    }
}

impl Element for TimedSource {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        self.payload.check(cx)?;
        if self.active && self.works_here {
            self.wait(cx, self.interval.ns);
        }
        Ok(())
    }

    fn timer(&mut self, cx: &mut Context, _key: u32) {
        self.waits = false;
        if !self.active {
            return;
        }
        if self.limit.is_some_and(|limit| self.count >= limit) {
            self.end.reached(cx);
            return;
        }
        // Without a free frame it tries again after the next interval.
        if let Some(mut packet) = cx.allocate() {
            self.payload.fill(&mut packet);
            packet.set_timestamp_ns(cx.now_ns());
            self.count += 1;
            cx.emit(0, packet);
        }
        self.wait(cx, self.interval.ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    #[test]
    fn one_packet_an_interval() {
        let mut bench =
            Bench::new(&crate::registry(), "e :: TimedSource(10ms, hi, LIMIT 4) -> out :: TestOutput");
        bench.advance_ns(9_999_999);
        assert_eq!(bench.taken("out").len(), 0);
        bench.advance_ns(1);
        assert_eq!(bench.taken("out"), [b"hi"]);
        bench.advance_ns(1_000_000_000);
        assert_eq!(bench.taken("out").len(), 3);
        bench.write("e.interval", "0.5").unwrap();
        assert_eq!(bench.read("e.interval"), "500ms");
        bench.write("e.data", "ho").unwrap();
        bench.write("e.reset", "").unwrap();
        bench.advance_ns(0);
        assert_eq!(bench.taken("out"), [b"ho"]);
        bench.advance_ns(500_000_000);
        assert_eq!(bench.taken("out"), [b"ho"]);
    }

    #[test]
    fn inactive_until_told() {
        let mut bench =
            Bench::new(&crate::registry(), "e :: TimedSource(1, ACTIVE false) -> out :: TestOutput");
        bench.advance_ns(10_000_000_000);
        assert_eq!(bench.taken("out").len(), 0);
        bench.write("e.active", "true").unwrap();
        bench.advance_ns(1_000_000_000);
        assert_eq!(bench.taken("out").len(), 2);
    }

    #[test]
    fn mistakes() {
        assert_eq!(configure(&CLASS, "0").unwrap_err(), ["INTERVAL: expected a time greater than 0"]);
        assert!(configure(&CLASS, "soon").is_err());
    }
}
