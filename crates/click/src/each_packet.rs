//! The element behind classes that do the same to each packet and have no handlers.

use graph::{ConfigError, Context, Element, Setup, Verdict};
use packet::{Batch, Packet};

/// Makes an element that does `work` to each packet. The arguments must have been read.
pub(crate) fn each_packet(
    setup: &mut Setup<'_>,
    work: impl FnMut(&mut Packet) -> Verdict + Send + 'static,
) -> Result<Box<dyn Element>, ConfigError> {
    setup.arguments.finish()?;
    Ok(Box::new(EachPacket { work }))
}

/// The verdict on a packet that is dropped for `reason` unless the work on it was `done`.
#[inline(always)]
pub(crate) fn or_drop(done: Option<()>, reason: &'static str) -> Verdict {
    match done {
        Some(()) => Verdict::Keep,
        None => Verdict::Drop(reason),
    }
}

struct EachPacket<F> {
    work: F,
}

impl<F: FnMut(&mut Packet) -> Verdict + Send + 'static> Element for EachPacket<F> {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        cx.filter(batch, &mut self.work);
    }
}
