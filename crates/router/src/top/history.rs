//! The last minute of each port, drawn in a line.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use super::rates::{Cell, Table};

/// How far a line goes back.
const LENGTH: Duration = Duration::from_secs(60);
/// Characters for an eighth of the height to all of it.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Packets a second, received and sent, of each port; none where they were not known, as after the start of another router.
#[derive(Debug, Default)]
pub(super) struct History {
    ports: HashMap<String, VecDeque<(Duration, Option<f64>)>>,
}

impl History {
    /// Adds the rates of a table of ports. Ports that are gone are forgotten once their last minute is over.
    pub(super) fn add(&mut self, at: Duration, ports: &Table) {
        for row in &ports.rows {
            if let [Cell::Text(name), Cell::Number(rx), _, Cell::Number(tx), ..] = row.as_slice() {
                let rate = rx.zip(*tx).map(|(rx, tx)| rx + tx);
                self.ports.entry(name.clone()).or_default().push_back((at, rate));
            }
        }
        self.ports.retain(|_, rates| {
            // The one before the minute lasts into it.
            while rates.get(1).is_some_and(|(time, _)| *time + LENGTH <= at) {
                rates.pop_front();
            }
            rates.back().is_some_and(|(time, _)| *time + LENGTH > at)
        });
    }

    /// Draws a port's last minute before `now` in `width` characters, its highest rate as a full bar.
    pub(super) fn line(&self, port: &str, now: Duration, width: usize) -> String {
        let Some(rates) = self.ports.get(port) else { return String::new() };
        // The rate at a moment is that of the first sample after it.
        let at = |column: usize| {
            let ago = LENGTH.mul_f64((width - 1 - column) as f64 / width as f64);
            let time = now.checked_sub(ago)?;
            let first = rates.partition_point(|(taken, _)| *taken < time);
            // Nothing is known of the time before the first sample.
            if first == 0 && rates.front().is_none_or(|(taken, _)| *taken > time) {
                return None;
            }
            rates.get(first).or(rates.back()).and_then(|(_, rate)| *rate)
        };
        let values: Vec<Option<f64>> = (0..width).map(at).collect();
        let highest = values.iter().flatten().copied().fold(0.0, f64::max);
        let bar = |value: Option<f64>| match value {
            Some(rate) if rate > 0.0 => {
                let level = (rate / highest * BARS.len() as f64).ceil() as usize;
                BARS[level.clamp(1, BARS.len()) - 1]
            }
            Some(_) => '.',
            None => ' ',
        };
        values.into_iter().map(bar).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::rates::{Tables, Unit};
    use super::super::testing::sample;
    use super::*;

    #[test]
    fn a_line_is_the_last_minute_and_the_highest_rate_its_full_height() {
        let mut history = History::default();
        let mut old = sample(0, 0);
        for (second, packets) in (1..=100_u64).map(|second| (second, second * 10)) {
            let new = sample(second, packets + if second == 100 { 10 } else { 0 });
            let ports = Tables::new(Some(&old), &new, Unit::Second).ports;
            history.add(Duration::from_secs(second), &ports);
            old = new;
        }
        let now = Duration::from_secs(100);
        let line = history.line("eth1", now, 12);
        assert_eq!(line, format!("{}█", "▄".repeat(11)));
        assert_eq!(history.ports["eth1"].len(), 61);
        assert_eq!(history.line("eth9", now, 12), "");
        let later = History { ports: [("eth1".into(), [(now, Some(0.0))].into())].into() };
        assert_eq!(later.line("eth1", now, 3), "  .");
        // Nothing is known of the time between two routers.
        let rates = [(20, Some(1.0)), (40, None), (60, Some(2.0))];
        let rates = rates.map(|(second, rate)| (Duration::from_secs(second), rate));
        let apart = History { ports: [("eth1".into(), rates.into())].into() };
        assert_eq!(apart.line("eth1", Duration::from_secs(60), 3), "▄ █");
    }

    #[test]
    fn a_port_that_is_gone_is_forgotten_after_its_minute() {
        let mut history = History::default();
        let (old, mut new) = (sample(0, 0), sample(1, 10));
        history.add(Duration::from_secs(1), &Tables::new(Some(&old), &new, Unit::Second).ports);
        assert_eq!(history.ports.len(), 2);
        new.ports.rows.clear();
        let none = Tables::new(Some(&old), &new, Unit::Second).ports;
        history.add(Duration::from_secs(60), &none);
        assert_eq!(history.ports.len(), 2);
        history.add(Duration::from_secs(61), &none);
        assert!(history.ports.is_empty());
    }
}
