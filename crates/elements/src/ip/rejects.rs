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
    /// Whether the element has an `own` handler.
    own: bool,
}

/// The reason that only elements with an `own` handler have.
pub(crate) const MARTIAN: &str = "martian source";

const DROPS: Handler = Handler::read("drops", Combine::Sum);
const DETAILS: Handler = Handler::read("drop_details", Combine::Join);
const OWN: Handler = Handler::read_write("own", Combine::First);

/// As it is written in handlers: separated by spaces.
pub(crate) fn list_text(addresses: impl Iterator<Item = impl ToString>) -> String {
    addresses.map(|address| address.to_string()).collect::<Vec<_>>().join(" ")
}

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
        Self {
            element: element.to_owned(),
            title,
            reasons,
            counts: vec![0; reasons.len()],
            verbose,
            details,
            own: false,
        }
    }

    /// For an element that has an `own` handler, or not.
    pub(crate) fn with_own(self, own: bool) -> Self {
        Self { own, ..self }
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
        match (self.details, self.own) {
            (false, false) => const { &[DROPS] },
            (true, false) => const { &[DROPS, DETAILS] },
            (false, true) => const { &[DROPS, OWN] },
            (true, true) => const { &[DROPS, DETAILS, OWN] },
        }
    }

    /// Reads one of them.
    pub(crate) fn read(&self, name: &str) -> String {
        if name == "drops" {
            return self.total().to_string();
        }
        let reasons =
            self.counts.iter().zip(self.reasons).filter(|(_, reason)| self.own || **reason != MARTIAN);
        reasons.map(|(count, reason)| format!("{count}\t{reason}\n")).collect()
    }
}
