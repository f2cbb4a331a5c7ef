//! What DelayUnqueue and DelayShaper have in common: the packet that waits for its time.

use graph::arguments::Interval;
use graph::{ConfigError, Context, FromArgument, Setup};
use packet::{Batch, Packet};

use crate::sources::timed_source::interval_text;

/// Pulls packets, and holds the first whose time has not come.
pub(super) struct Delay {
    interval: Interval,
    held: Option<Held>,
}

struct Held {
    packet: Packet,
    due_ns: u64,
}

impl Delay {
    pub(super) fn from_setup(setup: &mut Setup<'_>) -> Result<Self, ConfigError> {
        let interval = setup.arguments.required("DELAY")?;
        setup.arguments.finish()?;
        Ok(Self { interval, held: None })
    }

    /// Adds to `batch`, which is empty, up to `max` packets whose time has come. When the one that is held is due, if one
    /// is: nothing comes before.
    pub(super) fn pull(&mut self, cx: &mut Context, batch: &mut Batch, max: usize) -> Option<u64> {
        let now = cx.now_ns();
        let mut one = cx.spare_batch();
        let mut wait_until = None;
        while batch.len() < max.min(packet::MAX_BATCH) {
            let Some(Held { mut packet, due_ns }) = self.held.take().or_else(|| self.next(cx, &mut one))
            else {
                break;
            };
            if due_ns > now {
                wait_until = Some(due_ns);
                self.held = Some(Held { packet, due_ns });
                break;
            }
            packet.set_timestamp_ns(now);
            batch.push(packet);
        }
        cx.recycle(one);
        wait_until
    }

    fn next(&self, cx: &mut Context, one: &mut Batch) -> Option<Held> {
        cx.pull(0, one, 1);
        let packet = one.pop()?;
        let since = match packet.timestamp_ns() {
            0 => cx.now_ns(),
            stamped => stamped,
        };
        Some(Held { packet, due_ns: since.saturating_add(self.interval.ns) })
    }

    pub(super) fn text(&self) -> String {
        interval_text(self.interval)
    }

    /// Changes the delay of packets that are yet to be pulled.
    pub(super) fn set(&mut self, value: &str) -> Result<(), String> {
        self.interval = Interval::from_value(value)?;
        Ok(())
    }
}
