//! Back-pressure: while a `ToDevice` that may not drop has more than it can send, the `FromDevice`s of the same worker
//! receive nothing, and packets wait in the receive rings.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use graph::Setup;

/// How many elements of a worker want its receivers to wait. Only that worker's thread touches it.
#[derive(Debug, Default)]
pub(super) struct Congestion(AtomicU32);

impl Congestion {
    /// That of the worker that `setup` belongs to.
    pub(super) fn of(setup: &Setup<'_>) -> Arc<Self> {
        let key = format!("congestion of copy {}", setup.copy().index);
        match setup.shared().get_or_make(&key, || Ok::<_, std::convert::Infallible>(Self::default())) {
            Ok(congestion) => congestion,
            Err(never) => match never {},
        }
    }

    /// Whether receivers are to wait.
    #[inline]
    pub(super) fn holds(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    pub(super) fn begin(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn end(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
