//! What a test hears of the log.

use std::sync::LazyLock;

use tracing::subscriber::{NoSubscriber, with_default};
use tracing::{Dispatch, Subscriber};

/// A second listener, which is always there and hears nothing. While `tracing` knows of one alone, a place that reports for the first time
/// asks the thread that it runs in, and of a thread without a listener it remembers for all that nobody wants to hear of it.
static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::new()));

/// Calls `act` while `listener` hears what this thread reports, whatever the threads of other tests report meanwhile.
pub fn while_heard<T>(listener: impl Subscriber + Send + Sync + 'static, act: impl FnOnce() -> T) -> T {
    LazyLock::force(&SECOND);
    with_default(listener, || {
        // Places that reported before anybody listened.
        tracing::callsite::rebuild_interest_cache();
        act()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata};

    struct Counter(Arc<AtomicU32>);

    impl Subscriber for Counter {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn event(&self, _: &Event<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    fn report() {
        tracing::info!("said");
    }

    #[test]
    fn a_thread_that_nobody_hears_and_that_reports_first_silences_no_other() {
        let count = Arc::<AtomicU32>::default();
        while_heard(Counter(count.clone()), || {
            std::thread::spawn(report).join().unwrap();
            report();
        });
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }
}
