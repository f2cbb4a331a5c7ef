//! =c
//! EtherPauseSource(SRC, PAUSETIME [, I<keywords> DST, LIMIT, INTERVAL, ACTIVE])
//!
//! =s ethernet
//! makes Ethernet pause frames
//!
//! =d
//! Makes pause frames (IEEE 802.3, annex 31B) from SRC. They ask the other end of the link to send
//! nothing for a pause of PAUSETIME times 512 bit times. They go to DST, by default
//! 01-80-C2-00-00-01, the address for pause frames.
//!
//! In a push path one leaves every INTERVAL (a time such as C<10ms>, a second by default). In a
//! pull path one leaves for each pull. There are at most LIMIT of them (-1, the default, sets no
//! limit). With ACTIVE false it makes none.
//!
//! Different from Click: on a router of several workers only the first one makes frames, and frames have 60 bytes.
//!
//! =e
//!   EtherPauseSource(00:1e:13:22:48:91, 390) -> ToDevice(eth0);
//!
//! =a TimedSource, EtherEncap

use elements::ethernet::header;
use graph::arguments::Interval;
use graph::{Class, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Put, Setup};
use packet::Batch;
use packet::wire::ethernet::{HEADER_LEN, MacAddr};

use crate::sources::timed_source::check_interval;

pub(crate) static CLASS: Class = Class {
    name: "EtherPauseSource",
    ports: "0/1",
    handlers: HANDLERS,
    manual: graph::manual!("ether_pause_source.rs"),
    make,
    ..Class::DEFAULT
};

/// The group of all that understand MAC control frames; bridges do not forward it.
const PAUSE_GROUP: MacAddr = MacAddr([0x01, 0x80, 0xc2, 0, 0, 1]);
const MAC_CONTROL: u16 = 0x8808;
const PAUSE: u16 = 1;
/// The shortest frame, without its checksum.
const FRAME_LEN: usize = 60;

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let source = setup.arguments.required("SRC")?;
    let pause = setup.arguments.required("PAUSETIME")?;
    let destination = setup.arguments.keyword_or("DST", PAUSE_GROUP)?;
    let limit = setup.arguments.keyword_or("LIMIT", -1)?;
    let interval = setup.arguments.keyword_or("INTERVAL", Interval { ns: 1_000_000_000 })?;
    let active = setup.arguments.keyword_or("ACTIVE", true)?;
    setup.arguments.finish()?;
    let interval = check_interval(interval).map_err(|error| format!("INTERVAL: {error}"))?;
    Ok(Box::new(EtherPauseSource {
        source,
        destination,
        pause,
        limit,
        interval_ns: interval.ns,
        active,
        pushes: !setup.output_is_pull(0),
        works_here: setup.works_here(),
        waits: false,
        count: 0,
    }))
}

const HANDLERS: &[Handler] = &[
    Handler::read(
        "count",
        Combine::Sum,
        "Frames made so far.",
        &Get(|e: &mut EtherPauseSource| e.count.to_string()),
    ),
    Handler::read_write(
        "src",
        Combine::First,
        "The SRC argument.",
        &Get(|e: &mut EtherPauseSource| e.source.to_string()),
        &Put(|e: &mut EtherPauseSource, cx, value| {
            e.source = MacAddr::from_value(value)?;
            e.wait(cx);
            Ok(())
        }),
    ),
    Handler::read_write(
        "dst",
        Combine::First,
        "The DST argument.",
        &Get(|e: &mut EtherPauseSource| e.destination.to_string()),
        &Put(|e: &mut EtherPauseSource, cx, value| {
            e.destination = MacAddr::from_value(value)?;
            e.wait(cx);
            Ok(())
        }),
    ),
    Handler::read_write(
        "pausetime",
        Combine::First,
        "The PAUSETIME argument.",
        &Get(|e: &mut EtherPauseSource| e.pause.to_string()),
        &Put(|e: &mut EtherPauseSource, cx, value| {
            e.pause = u16::from_value(value)?;
            e.wait(cx);
            Ok(())
        }),
    ),
    Handler::read_write(
        "limit",
        Combine::First,
        "The LIMIT argument.",
        &Get(|e: &mut EtherPauseSource| e.limit.to_string()),
        &Put(|e: &mut EtherPauseSource, cx, value| {
            e.limit = i64::from_value(value)?;
            e.wait(cx);
            Ok(())
        }),
    ),
    Handler::read_write(
        "active",
        Combine::First,
        "The ACTIVE argument.",
        &Get(|e: &mut EtherPauseSource| e.active.to_string()),
        &Put(|e: &mut EtherPauseSource, cx, value| {
            e.active = bool::from_value(value)?;
            e.wait(cx);
            Ok(())
        }),
    ),
    Handler::write(
        "reset_counts",
        "Sets the count to zero, so that LIMIT more frames are made.",
        &Put(|e: &mut EtherPauseSource, cx, _| {
            e.count = 0;
            e.wait(cx);
            Ok(())
        }),
    ),
];

struct EtherPauseSource {
    source: MacAddr,
    destination: MacAddr,
    pause: u16,
    limit: i64,
    interval_ns: u64,
    active: bool,
    pushes: bool,
    /// Whether this is the copy that makes frames.
    works_here: bool,
    /// Whether the timer is set.
    waits: bool,
    count: u64,
}

impl EtherPauseSource {
    /// Frames that may still be made.
    fn left(&self) -> u64 {
        if !self.active || !self.works_here {
            return 0;
        }
        u64::try_from(self.limit).map_or(u64::MAX, |limit| limit.saturating_sub(self.count))
    }

    fn frame(&self) -> [u8; FRAME_LEN] {
        let mut frame = [0; FRAME_LEN];
        frame[..HEADER_LEN].copy_from_slice(&header::bytes(self.destination, self.source, MAC_CONTROL));
        frame[14..16].copy_from_slice(&PAUSE.to_be_bytes());
        frame[16..18].copy_from_slice(&self.pause.to_be_bytes());
        frame
    }

    /// Adds up to `max` frames to `batch`.
    fn fill(&mut self, cx: &mut Context, batch: &mut Batch, max: usize) {
        let frame = self.frame();
        let wanted = self.left().min(max.min(batch.room()) as u64);
        for _ in 0..wanted {
            let packet = cx.allocate().and_then(|mut packet| packet.set_data(&frame).then_some(packet));
            let Some(mut packet) = packet else {
                cx.count_drop("no frame for a pause frame", 1);
                return;
            };
            packet.set_link_header(0);
            batch.push(packet);
            self.count += 1;
        }
    }

    fn wait(&mut self, cx: &mut Context) {
        if self.pushes && !self.waits && self.left() > 0 {
            self.waits = true;
            cx.set_timer(0, cx.now_ns().saturating_add(self.interval_ns));
        }
    }
}

impl Element for EtherPauseSource {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        self.wait(cx);
        Ok(())
    }

    fn timer(&mut self, cx: &mut Context, _key: u32) {
        self.waits = false;
        let mut batch = cx.spare_batch();
        self.fill(cx, &mut batch, 1);
        cx.emit_batch(0, &mut batch);
        cx.recycle(batch);
        self.wait(cx);
    }

    fn pull(&mut self, cx: &mut Context, _output: usize, batch: &mut Batch, max: usize) {
        self.fill(cx, batch, max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    #[test]
    fn a_frame_every_interval() {
        let text = "EtherPauseSource(2:0:0:0:0:1, 390, INTERVAL 10ms, LIMIT 3)";
        let mut bench = Bench::element(&crate::registry(), text, 0, 1);
        bench.advance_ns(9_999_999);
        assert!(bench.taken("out0").is_empty());
        bench.advance_ns(1);
        let mut expected = b"\x01\x80\xc2\0\0\x01\x02\0\0\0\0\x01\x88\x08\0\x01\x01\x86".to_vec();
        expected.resize(60, 0);
        assert_eq!(bench.taken("out0"), [expected]);
        bench.advance_ns(100_000_000);
        assert_eq!((bench.taken("out0").len(), bench.read("e.count")), (2, "3".into()));
        bench.write("e.reset_counts", "").unwrap();
        bench.write("e.active", "false").unwrap();
        bench.advance_ns(100_000_000);
        assert_eq!(bench.taken("out0").len(), 0);
        bench.write("e.active", "true").unwrap();
        bench.write("e.limit", "-1").unwrap();
        bench.advance_ns(100_000_000);
        assert_eq!(bench.taken("out0").len(), 10);
    }

    #[test]
    fn pulled() {
        let config = "e :: EtherPauseSource(2:0:0:0:0:1, 1, LIMIT 5) -> PullNull -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        assert_eq!((bench.pull("out", 2), bench.pull("out", 9)), (2, 3));
        bench.write("e.dst", "2:0:0:0:0:2").unwrap();
        bench.write("e.pausetime", "7").unwrap();
        bench.write("e.limit", "6").unwrap();
        bench.taken("out");
        assert_eq!(bench.pull("out", 9), 1);
        assert_eq!(bench.taken("out")[0][..6], [2, 0, 0, 0, 0, 2]);
        assert!(configure(&CLASS, "2:0:0:0:0:1").is_err());
        assert!(configure(&CLASS, "2:0:0:0:0:1, 1, INTERVAL 0").is_err());
    }
}
