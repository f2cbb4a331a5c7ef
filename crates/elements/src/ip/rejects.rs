//! How the elements that check headers count and report what they refuse.

use graph::{Combine, Context, Handler};
use packet::Packet;

/// The packets that a header check refused, by reason.
#[derive(Debug)]
pub(crate) struct Rejects {
    element: String,
    title: &'static str,
    reasons: &'static [&'static str],
    counts: Vec<u64>,
    verbose: bool,
    details: bool,
}

const HANDLERS: [Handler; 2] =
    [Handler::read("drops", Combine::Sum), Handler::read("drop_details", Combine::Join)];

impl Rejects {
    /// For the element called `element`, which checks a header called `title` ("IP"). With `verbose` every
    /// refused packet gives a message, else the first; with `details` there is a `drop_details` handler.
    pub(crate) fn new(
        element: &str,
        title: &'static str,
        reasons: &'static [&'static str],
        verbose: bool,
        details: bool,
    ) -> Self {
        Self { element: element.to_owned(), title, reasons, counts: vec![0; reasons.len()], verbose, details }
    }

    fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Sends `packet` out by output 1, or drops it for the reason of number `reason`.
    #[cold]
    #[inline(never)]
    pub(crate) fn reject(&mut self, cx: &mut Context, packet: Packet, reason: usize) {
        if self.verbose || self.total() == 0 {
            cx.message(&format!(
                "{}: {} header check failed: {}",
                self.element, self.title, self.reasons[reason]
            ));
        }
        self.counts[reason] += 1;
        cx.divert(1, packet, self.reasons[reason]);
    }

    /// The handlers that the element has.
    pub(crate) fn handlers(&self) -> &'static [Handler] {
        if self.details { &HANDLERS } else { HANDLERS.first_chunk::<1>().expect("there are two") }
    }

    /// Reads one of them.
    pub(crate) fn read(&self, name: &str) -> String {
        if name == "drops" {
            return self.total().to_string();
        }
        self.counts.iter().zip(self.reasons).map(|(count, reason)| format!("{count}\t{reason}\n")).collect()
    }
}
