//! =c
//! TimestampDiff([RECORDER, I<keywords> OFFSET, MAXDELAY])
//!
//! =s timestamps
//! measures how long packets were on their way
//!
//! =d
//! Each packet has a number OFFSET bytes into it (40 by default). The RecordTimestamp called
//! RECORDER (by default the only one) has the time when the packet with this number passed. The
//! element keeps how many microseconds ago that was, for the first 1,048,576 packets. Some packets
//! do not count: those that were not recorded, and those that took longer than MAXDELAY
//! milliseconds (1000 by default). They leave by output 1 if that is connected, and pass otherwise.
//!
//! Handlers report on the packets that were measured, in microseconds. From FastClick.
//!
//! =a RecordTimestamp, NumberPacket

use std::fmt::Write;
use std::sync::Arc;

use graph::{
    Ask, Class, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Put, Setup, Verdict,
};
use packet::Batch;

use super::record_timestamp::{CLASS as RECORDER, DEFAULT_OFFSET, Times, number_in, times_of};

pub(crate) static CLASS: Class = Class {
    name: "TimestampDiff",
    ports: "1/1-2",
    processing: Class::AGNOSTIC_WITH_ERRORS,
    handlers: HANDLERS,
    manual: graph::manual!("timestamp_diff.rs"),
    make,
    ..Class::DEFAULT
};

/// Delays that are kept.
const MOST_DELAYS: usize = 1 << 20;

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let name: Option<String> = setup.arguments.optional("RECORDER")?;
    let offset: u16 = setup.arguments.keyword_or("OFFSET", DEFAULT_OFFSET as u16)?;
    let most_ms: u32 = setup.arguments.keyword_or("MAXDELAY", 1000)?;
    setup.arguments.finish()?;
    let recorder = match &name {
        Some(name) => setup.find(name).filter(|element| element.class == RECORDER.name),
        None => {
            let mut all = setup.all_of(RECORDER.name);
            all.next().filter(|_| all.next().is_none())
        }
    };
    let recorder = recorder.ok_or("RECORDER: expected the name of a RecordTimestamp".to_owned())?;
    let times = times_of(setup, &recorder.name, &recorder.config)?;
    Ok(Box::new(TimestampDiff {
        times,
        offset: offset.into(),
        most_us: u64::from(most_ms) * 1000,
        delays_us: Vec::with_capacity(MOST_DELAYS),
    }))
}

/// A handler for the delay that so many per cent of the packets did not exceed.
macro_rules! percentile {
    ($name:literal, $percent:literal) => {
        Handler::read(
            $name,
            Combine::First,
            concat!("The delay that ", $percent, "% of the packets did not exceed."),
            &Get(|e: &mut TimestampDiff| e.percentile(f64::from($percent)).to_string()),
        )
    };
}

const HANDLERS: &[Handler] = &[
    Handler::read(
        "count",
        Combine::Sum,
        "Packets measured.",
        &Get(|e: &mut TimestampDiff| e.delays_us.len().to_string()),
    ),
    Handler::read(
        "average",
        Combine::First,
        "The mean delay.",
        &Get(|e: &mut TimestampDiff| e.mean().to_string()),
    ),
    Handler::read("avg", Combine::First, "As average.", &Get(|e: &mut TimestampDiff| e.mean().to_string())),
    Handler::read(
        "min",
        Combine::First,
        "The shortest delay.",
        &Get(|e: &mut TimestampDiff| e.delays_us.iter().min().copied().unwrap_or(0).to_string()),
    ),
    Handler::read(
        "max",
        Combine::Max,
        "The longest delay.",
        &Get(|e: &mut TimestampDiff| e.delays_us.iter().max().copied().unwrap_or(0).to_string()),
    ),
    Handler::read(
        "stddev",
        Combine::First,
        "The standard deviation.",
        &Get(|e: &mut TimestampDiff| e.deviation().to_string()),
    ),
    Handler::read(
        "median",
        Combine::First,
        "The delay that half of the packets did not exceed.",
        &Get(|e: &mut TimestampDiff| e.percentile(50.0).to_string()),
    ),
    Handler::read(
        "perc",
        Combine::First,
        "The delay that so many per cent of the packets did not exceed; the number is the handler's \
         argument.",
        &Ask(|e: &mut TimestampDiff, _, argument| Ok(e.percentile(f64::from_value(argument)?).to_string())),
    ),
    percentile!("perc00", 0),
    percentile!("perc01", 1),
    percentile!("perc05", 5),
    percentile!("perc10", 10),
    percentile!("perc25", 25),
    percentile!("perc75", 75),
    percentile!("perc90", 90),
    percentile!("perc95", 95),
    percentile!("perc99", 99),
    percentile!("perc100", 100),
    Handler::read("dump", Combine::Join, "All delays, a line each.", &Get(|e: &mut TimestampDiff| e.dump())),
    Handler::write(
        "reset",
        "Forgets all delays.",
        &Put(|e: &mut TimestampDiff, _, _| {
            e.delays_us.clear();
            Ok(())
        }),
    ),
];

struct TimestampDiff {
    times: Arc<Times>,
    offset: usize,
    most_us: u64,
    /// Has its capacity from the start; what is beyond is not kept.
    delays_us: Vec<u32>,
}

impl TimestampDiff {
    fn percentile(&self, percent: f64) -> u32 {
        let mut sorted = self.delays_us.clone();
        sorted.sort_unstable();
        let last = sorted.len().saturating_sub(1);
        let place = (percent.clamp(0.0, 100.0) / 100.0 * last as f64).round() as usize;
        sorted.get(place).copied().unwrap_or(0)
    }

    fn mean(&self) -> f64 {
        let sum: f64 = self.delays_us.iter().map(|&delay| f64::from(delay)).sum();
        sum / self.delays_us.len().max(1) as f64
    }

    fn deviation(&self) -> f64 {
        let mean = self.mean();
        let squares: f64 = self.delays_us.iter().map(|&delay| (f64::from(delay) - mean).powi(2)).sum();
        (squares / self.delays_us.len().max(1) as f64).sqrt()
    }

    /// All delays, a line each.
    fn dump(&self) -> String {
        let mut text = String::new();
        for (number, delay) in self.delays_us.iter().enumerate() {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{number}: {delay}");
        }
        text
    }
}

impl Element for TimestampDiff {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        let now = cx.update_now_ns();
        let is_divided = cx.outputs() > 1;
        let Self { times, offset, most_us, delays_us } = self;
        cx.filter(batch, |packet| {
            let time = number_in(packet, *offset).and_then(|number| times.take(number));
            match time.map(|time| now.saturating_sub(time) / 1000).filter(|delay| delay <= most_us) {
                Some(delay) => {
                    if delays_us.len() < delays_us.capacity() {
                        delays_us.push(delay as u32);
                    }
                    Verdict::Keep
                }
                None if is_divided => Verdict::Output(1),
                None => Verdict::Keep,
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    #[test]
    fn delays_are_measured() {
        let config = "in :: TestInput -> NumberPacket(0) -> RecordTimestamp(OFFSET 0, N 4) -> way :: TestOutput;
            back :: TestInput -> t :: TimestampDiff(OFFSET 0, MAXDELAY 100) -> out :: TestOutput; t[1] -> odd :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        for delay_us in [10, 30, 20, 200_000] {
            bench.push("in", &[&[0; 20][..]]);
            let packets = bench.taken_packets("way");
            bench.advance_ns(delay_us * 1000);
            bench.push_packets("back", packets);
        }
        // One that nobody recorded, and one without a number.
        bench.push("back", &[&[9; 20][..], b"short"]);
        assert_eq!((bench.taken("out").len(), bench.taken("odd").len()), (3, 3));
        let read = |bench: &mut Bench, name: &str| bench.read(&format!("t.{name}"));
        let told = ["count", "min", "max", "average", "median", "perc100", "perc00"]
            .map(|name| read(&mut bench, name));
        assert_eq!(told, ["3", "10", "30", "20", "20", "30", "10"]);
        assert_eq!(read(&mut bench, "dump"), "0: 10\n1: 30\n2: 20\n");
        bench.write("t.reset", "").unwrap();
        assert_eq!(read(&mut bench, "count"), "0");
    }

    #[test]
    fn mistakes() {
        let error =
            |config: &str| Bench::try_new(&crate::registry(), config, 32, &Default::default()).unwrap_err();
        assert!(error("Idle -> TimestampDiff -> Discard").contains("name of a RecordTimestamp"));
        assert!(error("Idle -> r :: RecordTimestamp(N 0) -> Discard").contains("1 to 67108864"));
    }
}
