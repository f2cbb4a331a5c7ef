//! How the elements that check headers count and report what they refuse.

use std::cell::Cell;

use graph::Context;
use packet::{Batch, Packet};

/// The packets that a header check refused, by reason.
#[derive(Debug)]
pub struct Rejects {
    element: String,
    title: &'static str,
    reasons: &'static [&'static str],
    counts: Vec<u64>,
    verbose: bool,
    details: bool,
    /// Whether the element refuses martians.
    martians: bool,
}

/// The reason that only elements with MARTIANS have.
pub const MARTIAN: &str = "martian source";

/// As it is written in handlers: separated by spaces.
pub fn list_text(addresses: impl Iterator<Item = impl ToString>) -> String {
    addresses.map(|address| address.to_string()).collect::<Vec<_>>().join(" ")
}

impl Rejects {
    /// For the element called `element`, which checks a header called `title` ("IP"). With `verbose` every
    /// refused packet gives a message, else the first; with `details` there is a `drop_details` handler.
    pub fn new(
        element: &str,
        title: &'static str,
        reasons: &'static [&'static str],
        verbose: bool,
        details: bool,
    ) -> Self {
        Self {
            element: element.to_owned(),
            title,
            reasons,
            counts: vec![0; reasons.len()],
            verbose,
            details,
            martians: false,
        }
    }

    /// For an element that refuses martians, or not.
    pub fn with_martians(self, martians: bool) -> Self {
        Self { martians, ..self }
    }

    /// Packets refused so far: the handler `drops`.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Packets refused, by reason: the handler `drop_details`.
    pub fn details_text(&self) -> String {
        let reasons =
            self.counts.iter().zip(self.reasons).filter(|(_, reason)| self.martians || **reason != MARTIAN);
        reasons.map(|(count, reason)| format!("{count}\t{reason}\n")).collect()
    }

    /// Returns whether the element has the handler `name`: `drop_details` and `own` depend on arguments.
    pub fn has_handler(&self, name: &str) -> bool {
        match name {
            "drop_details" => self.details,
            "own" => self.martians,
            _ => true,
        }
    }

    /// Keeps the packets of `batch` that pass `check`, and rejects the others. The error is the number of the reason.
    #[inline(always)]
    pub fn filter(
        &mut self,
        cx: &mut Context,
        batch: &mut Batch,
        mut check: impl FnMut(&mut Packet) -> Result<(), usize>,
    ) {
        let reason = Cell::new(0);
        let passes = |packet: &mut Packet| check(packet).map_err(|found| reason.set(found)).is_ok();
        batch.extract(passes, |packet| self.reject(cx, packet, reason.get()));
    }

    /// Sends `packet` out by output 1, or drops it for the reason of number `reason`.
    #[cold]
    #[inline(never)]
    fn reject(&mut self, cx: &mut Context, packet: Packet, reason: usize) {
        if self.verbose || self.total() == 0 {
            cx.message(&format!(
                "{}: {} header check failed: {}",
                self.element, self.title, self.reasons[reason]
            ));
        }
        self.counts[reason] += packet.pieces();
        cx.divert(1, packet, self.reasons[reason]);
    }
}
